"""The lines of a program, and the errors that name them."""

import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from attnlab.errors import WrongUsage

_MAX_LETTERS = 90  # of a line, where it is told
_LANGUAGE = (__name__, f"{__package__}.language")  # modules whose lines are of no program


@dataclass(frozen=True)
class Line:
    """Where a program says something; `text` is the line itself where it is in no file."""

    file: str
    number: int
    text: str | None = None

    @property
    def source(self) -> str:
        """The line's text."""
        if self.text is not None:
            return self.text.strip()
        return linecache.getline(self.file, self.number).strip()

    def __str__(self) -> str:
        words = f"{Path(self.file).name}:{self.number}  {self.source}".rstrip()
        if len(words) <= _MAX_LETTERS:
            return words
        return f"{words[: _MAX_LETTERS - 1]}…"


class ProgramError(WrongUsage):
    """A program without a meaning, or one that cannot be compiled: the reason, and the line."""

    def __init__(self, line: Line, reason: str) -> None:
        super().__init__(f"{reason}\n  {line}")
        self.line, self.reason = line, reason


_text_line: ContextVar[Line | None] = ContextVar("_text_line", default=None)


@contextmanager
def at_line(line: Line) -> Iterator[None]:
    """Use this line for all expressions made inside the `with`."""
    before = _text_line.set(line)
    try:
        yield
    finally:
        _text_line.reset(before)


def current_line() -> Line:
    """Return the line of `at_line`, or the one that is being run outside of the language."""
    line = _text_line.get()
    if line is not None:
        return line
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in _LANGUAGE:
        frame = frame.f_back
    return Line(frame.f_code.co_filename, frame.f_lineno)
