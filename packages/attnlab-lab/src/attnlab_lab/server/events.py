"""Events of a job: appended to a log by the job, sent to any number of pages from that log.

The number of a line is the event's id. A page that reconnects, a second page and a restarted server
all read on after the last id they know.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

_PAUSE = 0.1  # seconds between two looks at the log, and between two steps that are noted
_KEEP_ALIVE = 15.0  # seconds of silence after which a line is sent, which finds out who has left
_PIECE = 2**18  # bytes read at once


Event = dict[str, object]
"""A line of the log: `event` says what happened, `at` when, and the rest belongs to it."""


class EventLog:
    """The log of a job while it is written; it observes the job's trainings."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._figures: dict[str, float] = {}
        self._noted_at = 0.0
        _end_last_line(path)

    def stage(self, name: str) -> None:
        """Note the beginning of a stage."""
        self._figures = {}
        self._noted_at = 0.0
        self.write("stage", name=name)

    def step(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        """Note a step: ten in a second at most, and the last."""
        self._figures |= figures
        now = time.monotonic()
        if now - self._noted_at >= _PAUSE or step == steps:
            self._noted_at = now
            self.write("step", step=step, steps=steps, figures=self._figures)

    def tell(self, sentence: str) -> None:
        """Note a departure from the request."""
        self.write("told", sentence=sentence)

    def write(self, event: str, **facts: object) -> None:
        """Append an event, in one piece."""
        line = json.dumps({"event": event, "at": round(time.time(), 3), **facts}) + "\n"
        with self._path.open("ab", buffering=0) as log:
            log.write(line.encode())
            if event == "ended":
                os.fsync(log.fileno())


def _end_last_line(path: Path) -> None:
    """Cut off the part of a line that a killed writer left."""
    if path.exists():
        content = path.read_bytes()
        if not content.endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)


def last_event(path: Path) -> Event:
    """Return the last whole event of a log; an empty one where there is none."""
    size = path.stat().st_size if path.exists() else 0
    for line in _whole_lines(path, max(0, size - _PIECE))[-1:]:
        event = json.loads(line)
        if isinstance(event, dict):
            return event
    return {}


def is_read(path: Path, after: int) -> bool:
    """Does a page that knows so many events know all?"""
    return path.exists() and path.read_bytes().count(b"\n") <= after


async def follow(
    path: Path, after: int, is_live: Callable[[], bool], is_closing: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Yield the events after an id as a page reads them, until the job has ended.

    Args:
        path: the log.
        after: the last id that the page knows; 0 for none.
        is_live: may the job still write?
        is_closing: does the server end?
    """
    number, offset, silent_since = 0, 0, time.monotonic()
    while not is_closing():
        was_live = is_live()  # asked before the log is read, so that its last line is not lost
        lines = _whole_lines(path, offset)
        for line in lines:
            offset += len(line) + 1
            number += 1
            if number > after:
                silent_since = time.monotonic()
                yield b"id: %d\ndata: %s\n\n" % (number, line)
        if lines:
            continue
        if not was_live:
            return
        if time.monotonic() - silent_since > _KEEP_ALIVE:
            silent_since = time.monotonic()
            yield b": still here\n\n"
        await asyncio.sleep(_PAUSE)


def _whole_lines(path: Path, offset: int) -> list[bytes]:
    """Read the next lines that are whole."""
    try:
        with path.open("rb") as log:
            log.seek(offset)
            return log.read(_PIECE).split(b"\n")[:-1]
    except FileNotFoundError:
        return []
