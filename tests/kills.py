"""Commands that are killed at each of their writes in turn, or find the disk full there."""

import contextlib
import errno
import io
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlab.cli import main
from attnlab.core import store

FILLS = ("mkdtemp", "mkdir", "fsync", "open", "write_text", "write_bytes")
"""The calls for which a disk needs room."""

WRITES = (
    (store.tempfile, "mkdtemp"),
    (store.os, "fsync"),
    (store.os, "replace"),
    (store, "_sync_folder"),
    (Path, "mkdir"),
    (Path, "open"),
    (Path, "rmdir"),
    (Path, "unlink"),
    (Path, "write_text"),
    (Path, "write_bytes"),
)
"""What changes a disk: a process may end before each of these calls, and half way in a file."""


@contextlib.contextmanager
def disturbed(
    nth: int, disturb: Callable[[], object], only: tuple[str, ...] = ()
) -> Iterator[list[str]]:
    """Do something before the nth write (of these kinds), and note all until then."""
    seen: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in WRITES:
            if only and name not in only:
                continue
            patch.setattr(owner, name, _counted(getattr(owner, name), name, seen, nth, disturb))
        yield seen


def writes_of() -> contextlib.AbstractContextManager[list[str]]:
    """Note all writes, and disturb none."""
    return disturbed(0, lambda: None)


def _counted(
    whole: Any, name: str, seen: list[str], nth: int, disturb: Callable[[], object]
) -> Callable[..., Any]:
    def call(*given: Any, **options: Any) -> Any:
        if name == "open" and not set("wa") & set(given[1] if len(given) > 1 else "r"):
            return whole(*given, **options)  # to read
        seen.append(name)
        if len(seen) == nth:
            if name == "write_bytes":
                with given[0].open("wb") as file:
                    file.write(given[1][: len(given[1]) // 2])
            disturb()
        return whole(*given, **options)

    return call


def start_copy(work: Callable[[], int | None]) -> int:
    """Start something in a copy of this process, which has imported all; return its number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
        process = os.fork()
    if not process:
        status = 99
        try:
            signal.alarm(300)
            status = work() or 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return process


def in_copy(work: Callable[[], int | None]) -> int:
    """Do something in a copy of this process; return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(start_copy(work), 0)[1])


def killed_at(nth: int, command: list[str]) -> bool:
    """Run a command in a process of its own that is killed before its nth write; tell whether it
    was."""

    def run() -> int:
        sys.stdout = sys.stderr = io.StringIO()
        with disturbed(nth, lambda: os.kill(os.getpid(), signal.SIGKILL)):
            return main(command)

    code = in_copy(run)
    assert code in (0, 1, -signal.SIGKILL), code
    return code == -signal.SIGKILL


def without_room_at(nth: int, command: list[str]) -> tuple[int, bool]:
    """Run a command that finds the disk full at its nth write; return its exit status, and whether
    it came so far."""

    def refuse() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with disturbed(nth, refuse, FILLS) as seen:
        status = main(command)
    return status, len(seen) >= nth


def content_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder, by their paths in it."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            files[str(path.relative_to(folder))] = path.read_bytes()
    return files
