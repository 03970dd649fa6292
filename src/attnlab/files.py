"""Files that are either whole or not there, in folders with one writer.

Everything is written to a temporary neighbour, synced, and renamed over its goal, so that neither a
kill nor a full disk can leave half a file or destroy the one before it. JSON is read strictly: no
NaN, no key twice.
"""

import errno
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attnlab.errors import AttnlabError, CouldNotRun

__all__ = [
    "LOCK",
    "CouldNotWrite",
    "Taken",
    "check_room",
    "explained",
    "locked",
    "read_json",
    "read_json_lines",
    "remove_remains",
    "write_bytes",
    "write_json",
    "write_text",
    "writer_of",
]

LOCK = ".lock"
"""The lock file of a folder while a process writes there."""


class CouldNotWrite(CouldNotRun):
    """The disk is full or the place is read-only; the old file is unchanged."""


class Taken(CouldNotRun):
    """Another process is writing into the folder; `writer` names it."""

    def __init__(self, folder: Path, writer: str) -> None:
        super().__init__(
            f"{writer} is writing into {folder}: wait until it has ended, or choose another folder."
        )
        self.writer = writer


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file in one step; on any failure the old one is still there.

    Raises:
        CouldNotWrite: the disk is full, the folder is missing or may not be written, with path and
            size.
    """
    with explained(path, len(content)):
        handle, temporary = tempfile.mkstemp(
            prefix=f".{path.name}.", suffix=".part", dir=path.parent
        )
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace a text file (UTF-8) in one step."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any, *, indent: int | None = 2) -> None:
    """Replace a JSON file in one step; NaN and infinity are refused."""
    write_text(path, json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file strictly.

    Raises:
        CouldNotRun: missing, unreadable, not JSON, a key twice, NaN or infinity.
    """
    return _parsed(_text(path), str(path))


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file with one JSON object a line, strictly; empty lines are passed over.

    Raises:
        CouldNotRun: missing, unreadable, or a line that is no object, by its number.
    """
    found = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        if line:
            value = _parsed(line, f"line {number} of {path}")
            if not isinstance(value, dict):
                raise CouldNotRun(
                    f"line {number} of {path} must be a JSON object; got {line[:60]!r}."
                )
            found.append(value)
    return found


@contextmanager
def explained(path: Path, size: int | None = None) -> Iterator[None]:
    """Turn an operating-system error into one sentence with the path and what to do."""
    try:
        yield
    except OSError as error:
        what = f"{path} ({size:,} bytes)" if size is not None else str(path)
        advice = {
            errno.ENOSPC: "The disk is full: free some space, or choose another folder with --out.",
            errno.EDQUOT: (
                "The disk quota is used up: free some space, or choose another folder with --out."
            ),
            errno.EROFS: "The file system is read-only: choose another folder with --out.",
            errno.EACCES: "It may not be written by you: choose another folder with --out.",
            errno.EPERM: "It may not be written by you: choose another folder with --out.",
            errno.ENOTDIR: (
                "A file stands where a folder is needed: choose another folder with --out."
            ),
            errno.EEXIST: (
                "A file stands where a folder is needed: choose another folder with --out."
            ),
            errno.ENOENT: "The folder is not there.",
            errno.ENAMETOOLONG: "Choose a shorter name with --out.",
            errno.EFBIG: "Files this large are not allowed here: choose another folder with --out.",
        }.get(error.errno or 0, "")
        raise CouldNotWrite(
            f"could not write {what}: {error.strerror or error}. {advice}".strip()
        ) from None


def check_room(path: Path, size: int, what: str) -> None:
    """Refuse to begin where it is known that there is too little room.

    Raises:
        CouldNotWrite: fewer bytes are free than `what` needs.
    """
    standing = next(each for each in (path, *path.absolute().parents) if each.exists())
    usage = shutil.disk_usage(standing)
    # a place of no size at all is no disk; writing there says why it fails
    if usage.free < size and usage.total:
        raise CouldNotWrite(
            f"could not write {path}: only {usage.free:,} bytes are free there and {what} needs "
            f"{size:,}. Free some space, or choose another folder with --out."
        )


def remove_remains(folder: Path) -> None:
    """Remove the temporary files that a killed writer left; call only while holding the lock."""
    with explained(folder):
        for path in folder.rglob(".*.part"):
            path.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only one who writes into a folder, which must be there.

    The system frees a lock when its process ends, however it ends: none is ever stale. Where the
    file system knows no locks, there are none.

    Raises:
        Taken: another process holds it.
        CouldNotWrite: the folder may not be written.
    """
    handle = _lock(folder)
    try:
        yield
    finally:
        (folder / LOCK).unlink(missing_ok=True)  # still ours, so no other process's lock is removed
        os.close(handle)


def writer_of(folder: Path) -> str | None:
    """Say who writes into a folder, such as "process 4711"; None where none does, or none can
    tell."""
    try:
        import fcntl
    except ImportError:  # not on every system
        return None
    try:
        with open(folder / LOCK, "rb") as file:
            number = file.read(20).decode(errors="replace")
            if not number:  # its maker is about to lock it, and must find it free
                return None
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return f"process {number}"
    except OSError:
        return None
    return None  # a killed writer left it


def _lock(folder: Path) -> int:
    import fcntl  # not on every system

    file, patience = folder / LOCK, 3  # another process may just be asking who writes here
    while True:
        with explained(file):
            handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                number = os.read(handle, 20).decode(errors="replace")
                os.close(handle)
                patience -= 1
                if patience:
                    time.sleep(0.01)
                    continue
                is_us = number == str(os.getpid())
                writer = (
                    "this process"
                    if is_us
                    else f"process {number}"
                    if number
                    else "another process"
                )
                raise Taken(folder, writer) from None
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                    raise
            if _is_still_there(file, handle):
                os.ftruncate(handle, 0)
                os.write(handle, str(os.getpid()).encode())
                return handle
            os.close(handle)


def _is_still_there(file: Path, handle: int) -> bool:
    """Is the lock we hold still the lock of the file on disk?"""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(file))
    except FileNotFoundError:
        return False


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CouldNotRun(f"could not read {path}: {reason}.") from None


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except AttnlabError as error:
        raise CouldNotRun(f"{where} is not clean JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        raise CouldNotRun(f"could not read {where}: {error}.") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise CouldNotRun(f"the key {twice!r} stands twice.")
    return result


def _refuse_constant(text: str) -> Any:
    raise CouldNotRun(f"{text} is not a JSON number.")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
