"""The learning rate's course: a straight warm-up, then half a cosine down to a share of the peak."""

import math

__all__ = ["learning_rate"]


def learning_rate(step: int, *, peak: float, steps: int, warmup_steps: int, final_share: float) -> float:
    """Return the rate of a step, counted from 0.

    >>> [round(learning_rate(s, peak=1.0, steps=9, warmup_steps=2, final_share=0.1), 2) for s in (0, 1, 2, 5, 8)]
    [0.5, 1.0, 1.0, 0.55, 0.1]
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    progress = min((step - warmup_steps) / max(steps - 1 - warmup_steps, 1), 1.0)
    return peak * (final_share + (1 - final_share) * 0.5 * (1 + math.cos(math.pi * progress)))
