"""The files of a submission, from a zip or a folder, in memory and within limits.

Links, absolute names, names that climb out of their folder, encrypted and oversized entries are
left out and reported. Nothing is written, so no name in a zip is ever a path here.
"""

import os
import re
import stat
import zipfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

MOST_FILES = 500
MOST_BYTES = 16_000_000
"""Of a zip, and of all files of a submission together."""
MOST_OF_FILE = 1_000_000
MOST_RATIO = 200
MOST_DEPTH = 8
"""How many folders in one another are read."""

_ENDINGS = {".py", ".ipynb", ".json", ".jsonl", ".txt", ".zip"}
_PASSED_OVER = re.compile(r"(^|/)(__MACOSX|__pycache__|\.[^/]*)/|(^|/)\._")
_OF_SYSTEMS = {".ds_store", "thumbs.db", "desktop.ini", ".lock"}


@dataclass
class _Read:
    """What was read so far, and what was left out."""

    files: dict[str, bytes] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    too_large: list[str] = field(default_factory=list)
    size: int = 0

    def add(self, name: str, content: bytes) -> None:
        """Keep a file, unless it is too large or there already."""
        if name in self.files:
            self.problems.append(f"{name} is there twice; the first is read")
        elif len(content) > MOST_OF_FILE:
            self.problems.append(f"{name} was left out: it has over {MOST_OF_FILE:,} bytes")
            self.too_large.append(name)
        else:
            self.files[name] = content
            self.size += len(content)

    def is_full(self) -> bool:
        """Whether a limit is reached; the first time, note it as a problem."""
        if len(self.files) < MOST_FILES and self.size < MOST_BYTES:
            return False
        words = f"only its first {MOST_FILES} files, {MOST_BYTES:,} bytes, were read"
        if words not in self.problems:
            self.problems.append(words)
        return True


def read_files(path: Path) -> tuple[dict[str, bytes], list[str], list[str]]:
    """Return the files of a submission by their names in it, and what was left out and why.

    Last come the names of the files that are too large.
    """
    read = _Read()
    if path.is_symlink():
        read.problems.append("it is a link, which is not followed")
    elif path.is_dir():
        _read_folder(path, read)
    else:
        _read_one(path, path.name, read)
    return read.files, read.problems, read.too_large


def _read_folder(folder: Path, read: _Read) -> None:
    for place, folders, names in os.walk(folder, followlinks=False):
        here = Path(place)
        folders.sort()
        inside = here.relative_to(folder)
        is_deepest = len(inside.parts) == MOST_DEPTH
        for name in folders:
            if (here / name).is_symlink():
                read.problems.append(f"{name} was left out: it is a link")
            elif is_deepest and not _PASSED_OVER.search(f"{name}/"):
                words = f"it is more than {MOST_DEPTH} folders deep"
                read.problems.append(f"{inside / name} was left out: {words}")
        if is_deepest:
            folders.clear()
        for name in sorted(names):
            if read.is_full():
                return
            _read_one(here / name, str(inside / name), read)


def _read_one(path: Path, name: str, read: _Read) -> None:
    """Read a file, or the files of a zip; no link is followed and no pipe is waited for."""
    if not _is_wanted(name, read):
        return
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                read.problems.append(f"{name} was left out: it is no file")
                return
            if path.suffix.lower() != ".zip":
                read.add(name, file.read(MOST_OF_FILE + 1))
            elif os.fstat(handle).st_size > MOST_BYTES:
                read.problems.append(f"{name} was left out: it has over {MOST_BYTES:,} bytes")
            else:
                with zipfile.ZipFile(file) as archive:
                    _read_zip(archive, read)
    except Exception as error:  # a zip can be damaged in many ways
        read.problems.append(f"{name} could not be read: {_reason(error)}")


def _read_zip(archive: zipfile.ZipFile, read: _Read) -> None:
    for entry in archive.infolist():
        if read.is_full():
            return
        name = entry.filename.replace("\\", "/")
        if entry.is_dir():
            continue
        why = _refusal(entry, name)
        if why is not None:
            read.problems.append(f"{name[:100]} was left out: {why}")
        elif name.lower().endswith(".zip"):
            read.problems.append(f"{name[:100]} was passed over: it is a zip in a zip")
        elif _is_wanted(name, read):
            try:
                with archive.open(entry) as file:
                    read.add(str(PurePosixPath(name)), file.read(MOST_OF_FILE + 1))
            except Exception as error:  # a zip can be damaged in many ways
                read.problems.append(f"{name[:100]} could not be read: {_reason(error)}")


def _refusal(entry: zipfile.ZipInfo, name: str) -> str | None:
    """Say why an entry of a zip is not read; None where it is."""
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        return "it is a link or a device"
    if entry.flag_bits & 1:
        return "it is encrypted"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "it is compressed in an unusual way"
    if _is_odd(name) or entry.orig_filename != entry.filename:
        return "its name is no plain name below the submission's folder"
    if entry.file_size > 10_000 and entry.file_size > MOST_RATIO * entry.compress_size:
        return f"it would grow more than {MOST_RATIO} times"
    return None


def _is_odd(name: str) -> bool:
    parts = name.split("/")
    if name.startswith("/") or ":" in parts[0] or ".." in parts or len(name) > 200:
        return True
    return any(ord(letter) < 32 or 0xD800 <= ord(letter) < 0xE000 for letter in name)


def _is_wanted(name: str, read: _Read) -> bool:
    """Whether a file may hold an answer; note one that is passed over, but for a system's own."""
    if _PASSED_OVER.search(name) or PurePosixPath(name).name.lower() in _OF_SYSTEMS:
        return False
    if PurePosixPath(name).suffix.lower() in _ENDINGS:
        return True
    read.problems.append(f"{name[:100]} was passed over: it is no program, notebook, JSON or zip")
    return False


def _reason(error: BaseException) -> str:
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(words)[:100].rstrip(".")
