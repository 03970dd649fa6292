"""Errors, Ctrl-C and SIGTERM as one sentence and an exit status."""

import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import cyclopts

from attnlab.cli import terminal
from attnlab.core.store import CouldNotWrite
from attnlab.errors import AttnlabError, shorten, typed

_NO_MEMORY = re.compile(
    r"out of memory|not enough memory|(can't|cannot|unable to) (al|re|m)\w+ memory", re.IGNORECASE
)
"""Torch's messages; on a CPU it has no error class of its own."""


@dataclass(frozen=True)
class UnfinishedFolder:
    """A folder that is being written, and how it is resumed."""

    folder: Path
    first_file: str
    command: str


_written: ContextVar[tuple[UnfinishedFolder, ...]] = ContextVar(
    "the folders that are written", default=()
)


class Terminated(KeyboardInterrupt):
    """SIGTERM was received; it differs from Ctrl-C only in the exit status."""


class Interrupts:
    """Turn SIGTERM into an exception, as Python does with SIGINT, and remember the last of both.

    A signal that is ignored, or that has another handler, is left alone. Python loses an interrupt
    that is raised while an object is being finalized: such a signal is sent again.
    """

    def __init__(self) -> None:
        self.received: KeyboardInterrupt | None = None
        self._unraisable = sys.unraisablehook
        self._before: dict[signal.Signals, signal.Handlers | object] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():  # no other may set a handler
            for number, usual in (
                (signal.SIGINT, signal.default_int_handler),
                (signal.SIGTERM, signal.SIG_DFL),
            ):
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
        self.received = Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
        raise self.received

    def _lost(self, lost: "sys.UnraisableHookArgs") -> None:
        if lost.exc_value is not None and lost.exc_value is self.received:
            number = signal.SIGTERM if isinstance(lost.exc_value, Terminated) else signal.SIGINT
            # Sent at once, it would be lost in here as well.
            again = threading.Timer(0.02, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
        else:
            self._unraisable(lost)


@contextmanager
def writing_to(
    folder: Path | None, first_file: str = "config.json", command: str = ""
) -> Iterator[None]:
    """Name the folder that is being written, so that `explain` can say how to resume it.

    Args:
        folder: None if nothing is written.
        first_file: a file that is there as soon as something can be resumed.
        command: resumes it; by default `attnlab resume FOLDER`.
    """
    if folder is not None:
        again = command or f"attnlab resume {typed(folder)}"
        _written.set((UnfinishedFolder(folder, first_file, again),))
    yield
    _written.set(())  # after an error `explain` still needs it


def name_written(folders: Iterable[Path]) -> None:
    """Name the runs that are being written by other processes, in place of those before."""
    names = [(folder, "config.json", f"attnlab resume {typed(folder)}") for folder in folders]
    _written.set(tuple(UnfinishedFolder(*name) for name in names))


def _resume_hint() -> str:
    unfinished = list(filter(_is_unfinished, _written.get()))
    _written.set(())
    if not unfinished:
        return ""
    folders = " and ".join(str(written.folder) for written in unfinished)
    commands = "; ".join(written.command for written in unfinished)
    return f"the results so far are in {folders}; to go on: {commands}"


def _is_unfinished(written: UnfinishedFolder) -> bool:
    # The rule of `experiments.folder.is_unfinished`, which is slow to import after an interrupt.
    has_begun = os.path.isfile(written.folder / written.first_file)
    return has_begun and not os.path.exists(written.folder / "claims.json")


def explain(error: BaseException) -> int | None:
    """Print one sentence about an error and return the exit status; None for a bug of ours."""
    hint = _resume_hint()
    if isinstance(error, BrokenPipeError):
        return 0  # the reader has closed our output (`attnlab list | head`)
    if isinstance(error, CouldNotWrite) and hint:
        return terminal.complain(f"{error} T{hint[1:]}", error.exit_status)
    if isinstance(error, AttnlabError):
        return terminal.complain(str(error), error.exit_status)
    if isinstance(error, KeyboardInterrupt):
        return _stopped(error, hint)
    if isinstance(error, cyclopts.CycloptsError):
        return terminal.complain(_usage(error), 2)
    sentence = machine_words(error)
    if sentence is None:
        return None
    return terminal.complain(sentence, 3)


def machine_words(error: BaseException) -> str | None:
    """Describe what the machine refused: a file or memory; None for another error."""
    if isinstance(error, OSError) and error.strerror:
        path = error.filename or "standard input or output"
        return f"could not use {path}: {error.strerror}."
    is_torch = isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))
    if isinstance(error, MemoryError) or is_torch:
        return "there is not enough memory for this; try a smaller model, domain or batch."
    return None


def _stopped(error: KeyboardInterrupt, hint: str) -> int:
    end = "."
    if hint:
        end = f"; {hint}"
    if isinstance(error, Terminated):
        return terminal.complain(f"stopped by SIGTERM{end}", 143)
    return terminal.complain(f"stopped by you{end}", 130)


def _usage(error: cyclopts.CycloptsError) -> str:
    sentence = shorten(" ".join(str(error).split()))
    if isinstance(error, cyclopts.UnusedCliTokensError):
        rest = shorten(" ".join(error.unused_tokens or ()))
        sentence = f"{rest!r} is more than this command takes."
        if "=" in rest:
            sentence += " Settings are written --set key=value."
        else:
            sentence += (
                " Give one at a time; if these are the words of one input, put them in quotes."
            )
    if not sentence.endswith((".", "?")):
        sentence += "."
    if isinstance(error, cyclopts.UnknownOptionError):
        options = [name for argument in error.argument_collection for name in argument.names]
        if "--set" in options:
            sentence += " Settings are written --set key=value."
    return sentence
