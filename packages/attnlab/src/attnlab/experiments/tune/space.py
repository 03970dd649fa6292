"""The space of a search: a range between two ends, or choices; Optuna's distributions of them.

A range whose last number is ten times its first or more is searched on a logarithmic scale.
"""

from typing import TYPE_CHECKING, Any

from attnlab.experiments.sweeps.axes import Axis, shown

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_DECADE = 10


def is_log(axis: Axis) -> bool:
    """Does a range span decades?"""
    return axis.ends is not None and 0 < _DECADE * axis.ends[0] <= axis.ends[1]


def range_words(axis: Axis) -> str:
    """Return the range or the choices, in words."""
    if axis.ends is None:
        return " or ".join(axis.labels())
    words = f"{shown(axis.ends[0])} to {shown(axis.ends[1])}"
    if is_log(axis):
        words += ", on a logarithmic scale"
    return words


def readable(axis: Axis, value: Any) -> Any:
    """Return a proposed value, rounded to digits that a person would type."""
    if axis.ends is None or not isinstance(value, float):
        return value
    return min(max(float(f"{value:.4g}"), axis.ends[0]), axis.ends[1])


def distribution(axis: Axis) -> "BaseDistribution":
    """Return the range or the choices as a distribution of Optuna."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if axis.ends is None:
        return CategoricalDistribution(axis.values)
    low, high = axis.ends
    if isinstance(low, int) and isinstance(high, int):
        return IntDistribution(low, high, log=is_log(axis))
    return FloatDistribution(low, high, log=is_log(axis))
