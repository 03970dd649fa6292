"""Folders of JSON and tensors: each file is whole or not there, and one process writes at a time.

    folder = StateFolder(path, "search.json", "attnlab corpus search 1", "search")
    with locked(path):
        write_tensors(path / "numbers.safetensors", tensors)
        folder.write({"sha256": digest_of(path / "numbers.safetensors")})
    folder.get("numbers.safetensors", folder.read()["sha256"])

Every file is written beside its goal, synced, and renamed over it, so that neither a kill nor a
full disk can leave half a file or destroy the one before it. JSON is read strictly: no NaN, no key
twice. Numbers are safetensors, never pickle; a checksum, in the JSON beside them or in their own
name, tells damage.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.core.sizes import count_bytes
from attnlab.errors import AttnlabError, CouldNotRun

if TYPE_CHECKING:  # what needs only the errors of this file loads neither
    from filelock import BaseFileLock
    from torch import Tensor

JsonObject = dict[str, Any]
"""An object of JSON, of any content."""

LOCK = ".lock"
"""The lock file of a folder while a process writes there."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
_PATIENCE = 0.1  # seconds; another process may just be asking who writes here
_ELSEWHERE = "choose another folder with --out."
_NOT_YOURS = f"You have no permission to write there: {_ELSEWHERE}"
_FILE_IN_THE_WAY = f"There is a file where a folder is needed: {_ELSEWHERE}"
_ADVICE = {
    errno.ENOSPC: f"The disk is full: free some space, or {_ELSEWHERE}",
    errno.EDQUOT: f"The disk quota is used up: free some space, or {_ELSEWHERE}",
    errno.EROFS: f"The file system is read-only: {_ELSEWHERE}",
    errno.EACCES: _NOT_YOURS,
    errno.EPERM: _NOT_YOURS,
    errno.ENOTDIR: _FILE_IN_THE_WAY,
    errno.EEXIST: _FILE_IN_THE_WAY,
    errno.ENOENT: "The folder is not there.",
    errno.ENAMETOOLONG: "Choose a shorter name with --out.",
    errno.EFBIG: f"Files this large are not allowed here: {_ELSEWHERE}",
}
_DTYPES = {  # safetensors' names of torch's
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
}


class CouldNotWrite(CouldNotRun):
    """The disk is full or the place is read-only; the old file is unchanged."""


class FolderInUse(CouldNotRun):
    """Another process is writing into the folder; `writer` names it."""

    def __init__(self, folder: Path, writer: str) -> None:
        super().__init__(
            f"{writer} is writing into {folder}: wait until it has ended, or choose another folder."
        )
        self.writer = writer


@dataclass(frozen=True)
class StateFolder:
    """A folder whose state is one JSON file, written last, with tensors in files beside it.

    path: such as searches/induction. file: the JSON file's name. form: the format and its version,
    which the file names. noun: what the folder holds, for messages.
    """

    path: Path
    file: str
    form: str
    noun: str

    @property
    def is_there(self) -> bool:
        """Whether the folder has a state."""
        return os.path.isfile(self.path / self.file)

    def read(self) -> JsonObject:
        """Read the state.

        Raises:
            CouldNotRun: it is missing, damaged or something else.
        """
        if not self.is_there:
            raise CouldNotRun(f"there is no {self.noun} in {self.path}: {self.file} is missing.")
        form = read_json(self.path / self.file)
        if not isinstance(form, dict) or form.get("format") != self.form:
            raise CouldNotRun(
                f"{self.path / self.file} is no {self.noun}: it does not say {self.form!r}."
            )
        return form

    def write(self, state: Mapping[str, object]) -> None:
        """Replace the state."""
        write_json(self.path / self.file, {"format": self.form, **state})

    def keep(self, state: Mapping[str, object], tensors: Mapping[str, "Tensor"]) -> None:
        """Replace the state and its tensors: first these in a new file, then the JSON that names
        it."""
        content = pack(tensors)
        digest = digest_of(content)
        name = f"numbers-{digest[:12]}.safetensors"
        write_bytes(self.path / name, content)
        self.write({**state, "numbers": name, "sha256": digest})
        for old in self.path.glob("numbers-*.safetensors"):
            if old.name != name:
                old.unlink(missing_ok=True)

    def load(self) -> tuple[JsonObject, dict[str, "Tensor"]]:
        """Read what `keep` wrote: the state and its tensors.

        Raises:
            CouldNotRun: it is missing, damaged or something else.
        """
        state = self.read()
        with refusing_damage(f"the {self.noun} in {self.path}"):
            name, digest = Path(str(state.pop("numbers"))).name, state.pop("sha256")
        return state, self.get(name, digest)

    def get(self, name: str, digest: Any) -> dict[str, "Tensor"]:
        """Read the tensors of a file whose checksum the state holds.

        Raises:
            CouldNotRun: it is missing or damaged.
        """
        path = self.path / name
        if digest_of(path) != digest:
            raise CouldNotRun(f"{path} is damaged: its checksum is not the one in {self.file}.")
        return read_tensors(path)


@dataclass(frozen=True)
class StoredTensor:
    """The dtype ("float32") and shape of a tensor in a file that has not been read."""

    dtype: str
    shape: tuple[int, ...]


def make_folder(path: Path) -> None:
    """Create a folder and those above it, where they are missing."""
    with explained(path):
        path.mkdir(parents=True, exist_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file in one step; on any failure the old one is still there.

    Raises:
        CouldNotWrite: the disk is full, the folder is missing or may not be written, with path and
            size.
    """
    with _replacing(path, len(content)) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Replace a text file (UTF-8) in one step."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any, *, indent: int | None = 2) -> None:
    """Replace a JSON file in one step; NaN and infinity are refused."""
    write_text(path, json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def write_tensors(
    path: Path, tensors: Mapping[str, "Tensor"], metadata: Mapping[str, str] | None = None
) -> None:
    """Replace a file of tensors in one step.

    The tensors are not copied into a second place in memory; the same numbers always give the same
    bytes.
    """
    import safetensors.torch

    own_bytes = _own_memory(tensors)
    with _replacing(path, count_bytes(own_bytes.values())) as temporary:
        try:
            safetensors.torch.save_file(own_bytes, temporary, dict(metadata or {}) or None)
        except safetensors.SafetensorError as error:
            number = re.search(r"os error (\d+)", str(error)) or [0, 0]
            raise OSError(int(number[1]), str(error)) from None


def pack(tensors: Mapping[str, "Tensor"], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return what `write_tensors` would write."""
    import safetensors.torch

    return safetensors.torch.save(_own_memory(tensors), dict(metadata or {}) or None)


def read_json(path: Path) -> Any:
    """Read a JSON file strictly.

    Raises:
        CouldNotRun: missing, unreadable, not JSON, a key twice, NaN or infinity.
    """
    return _parsed(_text(path), str(path))


def read_json_lines(path: Path) -> list[JsonObject]:
    """Read a file with one JSON object a line, strictly; empty lines are passed over.

    Raises:
        CouldNotRun: missing, unreadable, or a line that is no object, by its number.
    """
    rows = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        if line:
            value = _parsed(line, f"line {number} of {path}")
            if not isinstance(value, dict):
                raise CouldNotRun(
                    f"line {number} of {path} must be a JSON object; got {line[:60]!r}."
                )
            rows.append(value)
    return rows


def read_header(path: Path) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """Return the dtypes and shapes of a file of tensors, and its metadata, without reading numbers.

    Raises:
        CouldNotRun: it is missing or not such a file.
    """
    import safetensors

    with _reading(path), safetensors.safe_open(str(path), framework="pt") as opened:
        tensors = {}
        for name in opened.keys():  # noqa: SIM118  not a mapping
            stored = opened.get_slice(name)
            dtype = _DTYPES.get(stored.get_dtype(), stored.get_dtype())
            tensors[name] = StoredTensor(dtype, tuple(stored.get_shape()))
        return tensors, opened.metadata() or {}


def read_tensors(path: Path) -> dict[str, "Tensor"]:
    """Read all tensors of a file.

    Raises:
        CouldNotRun: it is missing or damaged.
    """
    import safetensors.torch

    with _reading(path):
        return safetensors.torch.load_file(path)


def digest_of(content: Path | bytes) -> str:
    """Return the SHA-256 of a file, or of bytes."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with _reading(content), content.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


@contextmanager
def refusing_damage(what: str) -> Iterator[None]:
    """Turn the errors of reading damaged values into one sentence."""
    try:
        yield
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise CouldNotRun(f"{what} is damaged: {reason[:200].rstrip('.')}.") from None


@contextmanager
def explained(path: Path, size: int | None = None) -> Iterator[None]:
    """Turn an operating-system error into one sentence with the path and what to do."""
    try:
        yield
    except OSError as error:
        what = f"{path} ({size:,} bytes)" if size is not None else str(path)
        advice = _ADVICE.get(error.errno or 0, "")
        raise CouldNotWrite(
            f"could not write {what}: {error.strerror or error}. {advice}".strip()
        ) from None


def check_room(path: Path, size: int, what: str) -> None:
    """Raise if too little space is free.

    Raises:
        CouldNotWrite: fewer bytes are free than `what` needs.
    """
    standing = next(ancestor for ancestor in (path, *path.absolute().parents) if ancestor.exists())
    usage = shutil.disk_usage(standing)
    # a place of no size at all is no disk; writing there says why it fails
    if usage.free < size and usage.total:
        raise CouldNotWrite(
            f"could not write {path}: only {usage.free:,} bytes are free there and {what} needs "
            f"{size:,}. Free some space, or {_ELSEWHERE}"
        )


def remove_remains(folder: Path) -> None:
    """Remove the unfinished files of a killed writer; call only while holding the lock."""
    with explained(folder):
        for path in list(folder.rglob(".*.part/")):
            shutil.rmtree(path)


@contextmanager
def locked(folder: Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Hold the lock of an existing folder, for one writer at a time.

    Args:
        folder: to lock.
        patience: seconds to wait for another writer.

    The system frees a lock when its process ends, however it ends: none is ever stale. Where the
    file system knows no locks, there are none.

    Raises:
        FolderInUse: another process holds it.
        CouldNotWrite: the folder may not be written.
    """
    from filelock import Timeout

    file, lock = folder / LOCK, _lock(folder, patience)
    with explained(file):
        os.stat(folder)  # which the lock would make
        try:
            lock.acquire()
        except Timeout:
            writer = _holder(file)
            if writer == f"process {os.getpid()}":
                writer = "this process"
            raise FolderInUse(folder, writer) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
    try:
        with explained(file):
            file.write_text(str(os.getpid()))
        yield
    finally:
        file.unlink(missing_ok=True)  # still ours, so no other process's lock is removed
        lock.release()


def writer_of(folder: Path) -> str | None:
    """Return the writer of a folder, such as "process 4711"; None if there is none, or if
    unknown."""
    from filelock import Timeout

    if not os.path.isfile(folder / LOCK):
        return None
    lock = _lock(folder)
    try:
        lock.acquire()
    except (Timeout, PermissionError):  # whether another user's lock is held cannot be tried
        return _holder(folder / LOCK)
    except OSError:
        return None
    lock.release()  # a killed writer left it
    return None


def _lock(folder: Path, patience: float = _PATIENCE) -> "BaseFileLock":
    from filelock import FileLock

    return FileLock(
        folder / LOCK,
        timeout=patience,
        poll_interval=_PATIENCE / 10,
        thread_local=False,
        fallback_to_soft=False,
    )


def _holder(file: Path) -> str:
    """Return the process whose number a lock file holds."""
    with suppress(OSError):
        number = file.read_text(errors="replace")[:20]
        if number:
            return f"process {number}"
    return "another process"


@contextmanager
def _replacing(path: Path, size: int) -> Iterator[Path]:
    """Yield a path to write to; what is written there then takes the place of `path`."""
    with explained(path, size):
        # A folder, since safetensors puts a temporary file of its own beside what it writes.
        with tempfile.TemporaryDirectory(
            prefix=f".{path.name}.", suffix=".part", dir=path.parent
        ) as folder:
            temporary = Path(folder) / "part"
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
            os.replace(temporary, path)
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _own_memory(tensors: Mapping[str, "Tensor"]) -> dict[str, "Tensor"]:
    """Return the tensors as safetensors wants them."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CouldNotRun(f"could not read {path}: {reason}.") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", error)
        raise CouldNotRun(f"could not read {path}: {reason}.") from None


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=unique_keys, parse_constant=_refuse_constant)
    except AttnlabError as error:
        raise CouldNotRun(f"{where} is not clean JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        raise CouldNotRun(f"could not read {where}: {error}.") from None


def unique_keys(pairs: list[tuple[str, Any]]) -> JsonObject:
    """Build a JSON object; a key that occurs twice is an error."""
    result: JsonObject = {}
    for name, value in pairs:
        if name in result:
            raise CouldNotRun(f"the key {name!r} occurs twice.")
        result[name] = value
    return result


def _refuse_constant(text: str) -> Any:
    raise CouldNotRun(f"{text} is not a JSON number.")
