"""Paths: two ways to compute, of which one is chosen by order, or measured to be quicker here.

What is measured is remembered, once a machine, so that two runs on it always compute alike.
"""

import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from attnlab.errors import CouldNotRun, WrongUsage

WORTH_IT = 0.95
"""Another way is taken when it needs less than this share of the default's time."""


@dataclass(frozen=True)
class Probe:
    """What a probe found: the other way's time over the default's, and whether it is taken."""

    ratio: float | None
    is_taken: bool
    reason: str


class ComputePath:
    """A choice between torch's way, "default", and another one: by the setting, else by the
    environment, and with "auto" by a probe. A processor has one, so it holds for the process.

    what: such as "matrix". other: the name of the other way. measure: makes a probe (`fresh`
    ignores what is remembered). reason_against: why the other way cannot be taken, if so.
    """

    def __init__(
        self,
        what: str,
        other: str,
        measure: Callable[[bool], Probe],
        reason_against: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._what, self._other, self._measure = what, other, measure
        self._reason_against = reason_against
        self.setting: str | None = None
        self.found: Probe | None = None

    @contextmanager
    def use(self, path: str) -> Iterator[None]:
        """Choose the path inside the `with`; it wins over the environment."""
        before, self.setting = self.setting, self._checked(path)
        try:
            yield
        finally:
            self.setting = before

    def probe(self, *, fresh: bool = False) -> Probe:
        """Compare the two ways on this processor once; `fresh` measures again."""
        if self.found is None or fresh:
            self.found = self._measure(fresh)
        return self.found

    def is_on(self) -> bool:
        """Is the other way taken?"""
        variable = f"ATTNLAB_{self._what.upper()}_PATH"
        path = self.setting or self._checked(os.environ.get(variable, "auto"))
        if path == "auto":
            return self.probe().is_taken
        if path == "default":
            return False
        if (reason := self._reason_against()) is not None:
            raise CouldNotRun(
                f'the {self._what} path "{path}" cannot be taken: {reason}. Use "auto" or '
                '"default".'
            )
        return True

    def in_use(self) -> Any:
        """Return the path that is taken here, "auto" resolved; results depend on it to the bit."""
        return self._other if self.is_on() else "default"

    def _checked(self, path: str) -> str:
        names = ("auto", "default", self._other)
        if path not in names:
            raise WrongUsage(
                f"the {self._what} path must be one of {', '.join(names)}; got {path!r}."
            )
        return path


def compared(default: Callable[[], object], other: Callable[[], object], rounds: int) -> float:
    """Return the other way's processor time over the default's, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    clock = time.perf_counter
    if time.get_clock_info("thread_time").resolution < 1e-6:
        clock = time.thread_time
    times: tuple[list[float], list[float]] = [], []
    try:
        for _ in range(rounds):  # interleaved, so that a machine that slows down slows both
            for call, durations in zip((default, other), times, strict=True):
                start = clock()
                call()
                durations.append(clock() - start)
    finally:
        torch.set_num_threads(threads)
    # The quickest of each: other work on the machine only ever adds time.
    return round(min(times[1]) / min(times[0]), 3)


def recalled(name: str, fresh: bool = False) -> Probe | None:
    """Return what was found on this machine before, if anything was and nothing fresh is wanted."""
    if fresh:
        return None
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
        lines = [line for line in lines if line.startswith(("model", "cpu family"))]
        model = " ".join(line.partition(":")[2].strip() for line in lines[:3])
    except OSError:
        pass
    return f"{model} | torch {torch.__version__}"


def _memory_file(name: str) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "attnlab" / f"{name}.json"
