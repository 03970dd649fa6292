"""The time until all experiments are done, from usual times and the times so far."""

import heapq
import time
from collections.abc import Callable, Iterable

from attnlab.cli import terminal


class TimeEstimate:
    """The time left until the last of some experiments ends."""

    def __init__(
        self,
        names: Iterable[str],
        *,
        full: bool,
        num_processes: int = 1,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        usual = terminal.table_words("seconds")
        self._waiting = {name: usual.get(name, usual["sorting"])[full] for name in names}
        self._num_processes, self._now = num_processes, now
        self._running: dict[str, tuple[float, float]] = {}  # usual seconds, and the beginning
        self._usual = self._spent = 0.0  # seconds of the finished ones

    def begin(self, name: str) -> None:
        """Note that an experiment begins now."""
        self._running[name] = self._waiting.pop(name), self._now()

    def end(self, name: str) -> None:
        """Note that an experiment has ended."""
        usual, begun = self._running.pop(name)
        self._usual += usual
        self._spent += self._now() - begun

    def left(self) -> float:
        """Estimate the seconds that are left."""
        pace, usual, spent, now = 1.0, self._usual, self._spent, self._now()
        if usual:
            pace = spent / usual
        for its_usual, begun in self._running.values():  # one may take longer than usual
            usual += its_usual
            spent += now - begun
        if usual:
            pace = max(pace, spent / usual)
        ends = [0.0] * (self._num_processes - len(self._running))
        for its_usual, begun in self._running.values():
            ends.append(max(0.0, pace * its_usual - (now - begun)))
        heapq.heapify(ends)
        for its_usual in self._waiting.values():
            heapq.heapreplace(ends, ends[0] + pace * its_usual)
        return max(ends)
