"""The schedule of a training: the steps of notes and evaluations, and the learning rates.

The course is a straight warm-up, then half a cosine down to a share of the peak.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from attnlab.train.config import TrainConfig

# steps between two notes of the loss; they are drawn, and where it can be computed, in one go
_CHUNK = 50


def span_at(config: TrainConfig, step: int) -> tuple[int, int]:
    """Return the span (first, end) of a step: the steps are cut at every note and every evaluation.

    >>> span_at(TrainConfig(steps=200, evaluate_every=80), 90)
    (80, 100)
    """
    starts = (step - step % _CHUNK, step - step % config.evaluate_every)
    end = min(starts[0] + _CHUNK, starts[1] + config.evaluate_every, config.steps)
    return max(starts), end


def is_evaluated(config: TrainConfig, step: int) -> bool:
    """Are the members evaluated after a step?"""
    return step % config.evaluate_every == 0 or step == config.steps


def share_of_peak(step: int, config: TrainConfig) -> float:
    """Return the rate of a step, counted from 0, as a share of the peak.

    >>> config = TrainConfig(steps=9, warmup_steps=2, final_share=0.1)
    >>> [round(share_of_peak(step, config), 2) for step in (0, 1, 2, 5, 8)]
    [0.5, 1.0, 1.0, 0.55, 0.1]
    """
    warmup, final = config.warmup_steps, config.final_share
    if step < warmup:
        return (step + 1) / warmup
    progress = min((step - warmup) / max(config.steps - 1 - warmup, 1), 1.0)
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress))


class Schedule:
    """The learning rates of several trainings; members that differ in their peak alone share one
    curve.

    Each step is computed by itself (a vector cosine may round by where in a vector a step stands),
    so that a training that goes on in the middle meets the same rates.
    """

    def __init__(self, configs: Sequence[TrainConfig]) -> None:
        peaks = [config.learning_rate for config in configs]
        self._peaks = torch.tensor(peaks, dtype=torch.float64)
        shapes = [(config.steps, config.warmup_steps, config.final_share) for config in configs]
        kinds = dict(zip(shapes, configs, strict=True))
        self._kinds = list(kinds.values())
        self._kind_of = torch.tensor(list(map(list(kinds).index, shapes)))

    def rates(self, first: int, end: int) -> Tensor:
        """Return the rates of the steps first … end - 1: (steps, member) float64."""
        courses = [
            [share_of_peak(step, kind) for kind in self._kinds] for step in range(first, end)
        ]
        return torch.tensor(courses, dtype=torch.float64)[:, self._kind_of] * self._peaks
