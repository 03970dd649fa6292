"""Quantiles of Student's distribution, on which intervals of means stand."""

import functools
import math

__all__ = ["student_quantile"]


@functools.cache
def student_quantile(freedom: int, level: float = 0.95) -> float:
    """Return the t that encloses a share `level` of Student's distribution around 0.

    >>> round(student_quantile(9), 4)
    2.2622
    """
    below = (1 + level) / 2
    low, high = 0.0, 20.0
    while _student_below(high, freedom) < below:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_below(middle, freedom) < below else (low, middle)
    return (low + high) / 2


def _student_below(t: float, freedom: int) -> float:
    """Student's distribution function for whole degrees of freedom (Abramowitz and Stegun 26.7.3,
    26.7.4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine = math.cos(angle)
    if freedom % 2:
        total, term = 0.0, cosine
        for k in range(1, freedom - 1, 2):
            total += term
            term *= cosine**2 * (k + 1) / (k + 2)
        inside = 2 / math.pi * (angle + math.sin(angle) * total)
    else:
        total, term = 0.0, 1.0
        for k in range(0, freedom - 1, 2):
            total += term
            term *= cosine**2 * (k + 1) / (k + 2)
        inside = math.sin(angle) * total
    return 0.5 + inside / 2
