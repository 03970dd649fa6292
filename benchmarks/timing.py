"""Timing several contestants against each other on a machine that is not ours alone.

All contestants run in one process, round by round, in an order that turns from round to round; what
slows the machine for a while slows them all. Two contestants are compared by their ratio within
each round, and reported as the median of the ratios with its quartiles. The processor time of the
process stands beside the wall time: with one thread it does not count what other processes take.
"""

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

__all__ = ["Ratio", "Times", "interleaved", "ratio", "repeats_for", "seconds", "spread", "timed"]


T = TypeVar("T")


class Times(NamedTuple):
    """Seconds per call of one contestant, one entry a round."""

    wall: list[float]
    processor: list[float]


class Ratio(NamedTuple):
    """A median of rounds, and the quartiles around it."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        """Median, then the quartiles."""
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def interleaved(
    contestants: Mapping[str, Callable[[], object]], *, rounds: int, least_seconds: float = 0.02
) -> dict[str, Times]:
    """Time every contestant once a round; a measurement repeats its call until it lasts
    `least_seconds`."""
    names = list(contestants)
    repeats = {name: repeats_for(contestants[name], least_seconds) for name in names}
    times = {name: Times([], []) for name in names}
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            # Turn the order by one each time two rounds (there and back) are over: nobody always
            # follows the same.
            turned = names[number // 2 % len(names) :] + names[: number // 2 % len(names)]
            for name in turned if number % 2 == 0 else reversed(turned):
                wall, processor = _seconds(contestants[name], repeats[name])
                times[name].wall.append(wall)
                times[name].processor.append(processor)
    finally:
        gc.enable()
    return times


def seconds(call: Callable[..., object], *arguments: object) -> float:
    """Time one call: seconds of processor time."""
    return timed(call, *arguments)[1]


def timed(call: Callable[..., T], *arguments: object) -> tuple[T, float]:
    """Return what a call returns, and its seconds of processor time."""
    began = time.process_time()
    value = call(*arguments)
    return value, time.process_time() - began


def ratio(ours: list[float], theirs: list[float]) -> Ratio:
    """Compare two contestants round by round."""
    return spread([a / b for a, b in zip(ours, theirs, strict=True)])


def spread(values: list[float]) -> Ratio:
    """Return the median and the quartiles of some values."""
    if len(values) == 1:
        return Ratio(values[0], values[0], values[0])
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Ratio(middle, low, high)


def repeats_for(call: Callable[[], object], least_seconds: float) -> int:
    """Warm a call up, and say how often it must be repeated to last `least_seconds`."""
    call()
    wall, _ = _seconds(call, 1)
    return max(1, round(least_seconds / max(wall, 1e-7)))


def _seconds(call: Callable[[], object], repeats: int) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - wall) / repeats, (time.process_time() - processor) / repeats
