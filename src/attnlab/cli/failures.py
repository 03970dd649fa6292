"""What ends a command early, in one sentence with an exit status: errors, Ctrl-C, a polite `kill`."""

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType

import cyclopts

from attnlab.cli import terminal
from attnlab.errors import AttnlabError
from attnlab.files import CouldNotWrite

__all__ = ["Interrupts", "Terminated", "explain", "leaving"]

_NO_MEMORY = re.compile(r"out of memory|not enough memory|(can't|cannot|unable to) (al|re|m)\w+ memory", re.IGNORECASE)
"""How torch words it; on a CPU it has no error class of its own."""

_written: ContextVar[Path | None] = ContextVar("the run folder that is being written", default=None)


class Terminated(KeyboardInterrupt):
    """SIGTERM came: all is as for Ctrl-C but the exit status."""


class Interrupts:
    """Turns SIGTERM into an exception, as SIGINT is, and remembers whether one came.

    Where a signal is ignored, or heard by somebody else, that stays so. An interrupt that comes while an object is
    being finalised is lost in Python, which cannot raise anything there: such a one is sent again.
    """

    def __init__(self) -> None:
        self.came: KeyboardInterrupt | None = None
        self._unraisable = sys.unraisablehook
        self._before: dict[signal.Signals, signal.Handlers | object] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():  # no other thread may set a handler
            for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
                if signal.getsignal(number) is usual:
                    self._before[number] = usual
                    signal.signal(number, self._note)
            sys.unraisablehook = self._lost
        return self

    def __exit__(self, *_: object) -> None:
        if sys.unraisablehook == self._lost:
            sys.unraisablehook = self._unraisable
        for number, usual in self._before.items():
            signal.signal(number, usual)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
        raise self.came

    def _lost(self, lost: "sys.UnraisableHookArgs") -> None:
        if lost.exc_value is not None and lost.exc_value is self.came:
            number = signal.SIGTERM if isinstance(lost.exc_value, Terminated) else signal.SIGINT
            # Not at once: it would be lost in here as well.
            again = threading.Timer(0.02, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
        else:
            self._unraisable(lost)


@contextmanager
def leaving(folder: Path) -> Iterator[None]:
    """Say which run folder is being written: whatever ends that early, its explanation names the folder."""
    _written.set(folder)
    yield
    _written.set(None)  # not after an error, which is explained later


def _how_to_go_on() -> str:
    folder = _written.get()
    _written.set(None)
    # As `experiments.folder.is_unfinished` has it, which an interrupt must not have to import.
    if folder is None or not os.path.isfile(folder / "config.json") or os.path.exists(folder / "claims.json"):
        return ""
    return f"what it has so far is in {folder}: go on with attnlab resume {folder}"


def explain(error: BaseException) -> int | None:
    """Say in one sentence what went wrong, and return the exit status; None when it is a fault of ours."""
    kept = _how_to_go_on()
    if isinstance(error, KeyboardInterrupt):
        who, status = ("SIGTERM", 143) if isinstance(error, Terminated) else ("you", 130)
        return terminal.complain(f"stopped by {who}; {kept}" if kept else f"stopped by {who}.", status)
    if isinstance(error, cyclopts.CycloptsError):
        sentence = " ".join(str(error).split())
        if isinstance(error, cyclopts.UnusedCliTokensError):
            sentence += " Settings are written --set key=value, and an input of several words is one argument."
        return terminal.complain(sentence if sentence.endswith((".", "?")) else sentence + ".", 2)
    if isinstance(error, CouldNotWrite) and kept:
        return terminal.complain(f"{error} W{kept[1:]}", error.exit_status)
    if isinstance(error, AttnlabError):
        return terminal.complain(str(error), error.exit_status)
    if isinstance(error, BrokenPipeError):
        return 0  # whoever read our output has heard enough (`attnlab list | head`)
    if isinstance(error, OSError) and error.strerror:
        what = error.filename or "standard input or output"
        return terminal.complain(f"could not use {what}: {error.strerror}.", 3)
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))):
        return terminal.complain("there is not enough memory for this; try a smaller model, domain or batch.", 3)
    return None
