"""The cost of a computation: multiply-adds and peak memory as torch counts them, and time."""

import os
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from attnlab.errors import not_none
from attnlab.parts.linear import use_matrix_path

Work = TypeVar("Work", bound=Hashable)

_SHORTEST = 2e-3  # seconds; a quicker call is timed several times over


def multiply_adds(work: Callable[[], object]) -> int:
    """Count the multiply-adds of all matrix products, with torch's own counter."""
    counter = FlopCounterMode(display=False)
    # The counter does not know the operations of the other matrix paths.
    with torch.no_grad(), use_matrix_path("default"), counter:
        work()
    return int(counter.get_total_flops()) // 2


def peak_memory(work: Callable[[], object]) -> int:
    """Return the largest number of bytes that torch's allocator held for the work at once.

    Scratch space inside a kernel counts if it comes from torch's allocator; the inputs do not.
    """
    with torch.no_grad():
        work()  # a first call may allocate tables that stay
        quiet = "KINETO_LOG_LEVEL" not in os.environ
        if quiet:  # the profiler would write two lines to the terminal each time
            os.environ["KINETO_LOG_LEVEL"] = "99"
        try:
            with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
                work()
        finally:
            if quiet:
                del os.environ["KINETO_LOG_LEVEL"]
    events = not_none(not_none(profiled.profiler).kineto_results).events()
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def times(
    works: Mapping[Work, Callable[[], object]], repeats: int, tell: Callable[[int, int], None]
) -> dict[Work, tuple[float, ...]]:
    """Time works in turn, in `repeats` rounds, so that a slow moment of the machine affects all.

    Returns the seconds of one call in each round.

    Args:
        works: by name.
        repeats: rounds.
        tell: is told how many rounds are done, and of how many.
    """
    calls = {}
    seconds: dict[Work, list[float]] = {name: [] for name in works}
    with torch.no_grad():
        for name, work in works.items():
            work()
            calls[name] = max(1, int(_SHORTEST / max(_seconds(work, 1), 1e-7)))
        for done in range(repeats):
            for name, work in works.items():
                seconds[name].append(_seconds(work, calls[name]))
            tell(done + 1, repeats)
    return {name: tuple(rounds) for name, rounds in seconds.items()}


def _seconds(work: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - start) / calls
