"""95 % intervals of means and shares, for the claims over many draws and seeds."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.quantiles import student_quantile

__all__ = ["Interval", "check_intervals", "is_above", "mean_interval", "share_interval"]

_NORMAL = 1.959963984540054  # standard deviations that hold 95 % of a normal distribution

# Ends that SciPy 1.17 gives: Student's t for the mean of 0, 1, ... n - 1, and Wilson for a share.
_KNOWN_MEANS = {
    2: (-5.853102368087347, 6.853102368087347),
    3: (-1.4841377117503303, 3.4841377117503303),
    10: (2.334149410331831, 6.665850589668169),
    31: (11.664983044214342, 18.335016955785658),
}
_KNOWN_SHARES = {
    (0, 5): (0.0, 0.43448246478317476),
    (1, 40): (0.004426831502681396, 0.1288136896347409),
    (8, 10): (0.4901624715366418, 0.9433178485456248),
    (50, 100): (0.4038315303659956, 0.5961684696340044),
}


class Interval(NamedTuple):
    """An estimate, and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the mean and its 95 % interval by Student's t; one value alone has NaN ends.

    >>> [round(each, 3) for each in mean_interval([1.0, 2.0, 3.0])]
    [2.0, -0.484, 4.484]
    """
    if not values:
        raise WrongUsage("the mean of no values is not defined; give at least one.")
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Interval(mean, math.nan, math.nan)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    reach = student_quantile(len(values) - 1) * math.sqrt(variance / len(values))
    return Interval(mean, mean - reach, mean + reach)


def share_interval(successes: int, total: int) -> Interval:
    """Return a share and its 95 % interval (Wilson 1927), which is right at 0 % and 100 % too.

    >>> [round(each, 3) for each in share_interval(20, 20)]
    [1.0, 0.839, 1.0]
    """
    if total < 1 or not 0 <= successes <= total:
        raise WrongUsage(
            f"expected successes from 0 to a total of at least 1; got {successes} of {total}."
        )
    share, squared = successes / total, _NORMAL**2
    centre = (share + squared / (2 * total)) / (1 + squared / total)
    reach = (
        _NORMAL
        * math.sqrt(share * (1 - share) / total + squared / (4 * total**2))
        / (1 + squared / total)
    )
    low = 0.0 if successes == 0 else max(0.0, centre - reach)
    high = 1.0 if successes == total else min(1.0, centre + reach)
    return Interval(share, low, high)


def is_above(interval: Interval, bound: float) -> bool | None:
    """Return True if the interval is above a bound, False if below, None if it holds the bound.

    >>> [is_above(Interval(2, 1, 3), bound) for bound in (0, 4, 2.5)]
    [True, False, None]
    """
    if interval.low > bound:
        return True
    if interval.high < bound:
        return False
    return None


def check_intervals() -> None:
    """Compare both intervals with known ones; every run does so first, since its claims need them.

    Raises:
        CouldNotRun: an interval is not the known one.
    """
    found = [
        (f"the mean of 0 to {n - 1}", mean_interval(range(n)), ends)
        for n, ends in _KNOWN_MEANS.items()
    ]
    found += [(f"{k} of {n}", share_interval(k, n), ends) for (k, n), ends in _KNOWN_SHARES.items()]
    for name, (_, low, high), known in found:
        are_close = (
            math.isclose(one, other, abs_tol=1e-9)
            for one, other in zip((low, high), known, strict=True)
        )
        if not all(are_close):
            raise CouldNotRun(
                f"the 95 % interval of {name} is known to be {known[0]:.6f} to {known[1]:.6f}; "
                f"this program computes {low:.6f} to {high:.6f}, so no claim of it can be "
                "trusted. Install attnlab anew."
            )
