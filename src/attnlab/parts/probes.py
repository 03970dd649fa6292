"""Probes: which of two ways to compute is quicker here, measured once a machine and remembered.

Remembered, so that two runs on one machine always compute alike.
"""

import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

WORTH_IT = 0.95
"""Another way is taken when it needs less than this share of the default's time."""


class Probe(NamedTuple):
    """What a probe found: the other way's time over the default's, and whether it is taken."""

    ratio: float | None
    is_taken: bool
    reason: str


def compared(default: Callable[[], object], other: Callable[[], object], rounds: int) -> float:
    """Return the other way's processor time over the default's, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    is_fine = time.get_clock_info("thread_time").resolution < 1e-6
    clock = time.thread_time if is_fine else time.perf_counter
    times: tuple[list[float], list[float]] = [], []
    try:
        for _ in range(rounds):  # interleaved, so that a machine that slows down slows both
            for call, found in zip((default, other), times, strict=True):
                start = clock()
                call()
                found.append(clock() - start)
    finally:
        torch.set_num_threads(threads)
    # The quickest of each: other work on the machine only ever adds time.
    return round(min(times[1]) / min(times[0]), 3)


def recalled(name: str) -> Probe | None:
    """Return what was found on this machine before, if anything was."""
    try:
        ratio = float(json.loads(_memory_file(name).read_text())[machine()])
        return Probe(ratio, ratio < WORTH_IT, "remembered")
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None  # nothing remembered, or nothing usable: measure


def remember(name: str, ratio: float) -> Probe:
    """Keep what was measured, and say what follows from it."""
    try:
        file = _memory_file(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            known = json.loads(file.read_text())
        except (OSError, ValueError):
            known = {}
        temporary = file.with_suffix(f".{os.getpid()}.part")
        temporary.write_text(json.dumps({**known, machine(): ratio}, indent=2))
        temporary.replace(file)
    except (OSError, TypeError, RuntimeError):
        pass  # a home that may not be written costs a probe a run, nothing else
    return Probe(ratio, ratio < WORTH_IT, "measured")


def machine() -> str:
    """Name the processor and the torch that a measurement holds for."""
    model = platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        facts = [
            line.partition(":")[2].strip()
            for line in lines
            if line.startswith(("model", "cpu family"))
        ]
        model = " ".join(facts[:3])
    except OSError:
        pass
    return f"{model} | torch {torch.__version__}"


def _memory_file(name: str) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "attnlab" / f"{name}.json"
