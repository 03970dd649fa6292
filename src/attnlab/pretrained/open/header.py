"""Untrusted JSON, strictly parsed and bounded in size, depth and number of values; and the header
of a safetensors file: which tensors it holds, checked before a number is read.

Python's own reader accepts NaN, a key twice and half a surrogate pair; here each is an error that
names the file.

The format (https://github.com/huggingface/safetensors): 8 bytes for the length of the header, the
header as JSON, and the numbers, tensor after tensor without a gap. Files of other formats are
recognized by their first bytes and refused.
"""

import json
import math
import os
import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab.errors import CouldNotRun

MOST_BYTES = 2 * 2**20  # of config.json; one with the names of 21,000 classes takes 1 MiB
MOST_VALUES = 500_000  # in one file: at some 64 bytes each, at most 32 MB in memory
MOST_DEPTH = 32

JsonObject = dict[str, Any]
"""An object of untrusted JSON, of any content."""

JsonPath = tuple[str, ...]
"""The keys that lead to a value in a JSON file, from the outside in."""


def read_object(path: Path, most: int = MOST_BYTES) -> JsonObject:
    """Read a file that must hold one JSON object.

    Raises:
        CouldNotRun: the file is too large, too deep, not UTF-8, no object, or holds a key twice,
            NaN, infinity or half a surrogate pair.
    """
    return parse_object(read_bytes(path, most), str(path))


def read_bytes(path: Path, most: int) -> bytes:
    """Read a plain file of at most `most` bytes; a pipe or a device is never opened."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise CouldNotRun(f"{path} is no plain file.")
        if found.st_size > most:
            raise CouldNotRun(f"{path} has {found.st_size:,} bytes; at most {most:,} are read.")
        with open(path, "rb") as file:
            return file.read(most)
    except OSError as error:
        raise CouldNotRun(f"could not read {path}: {error.strerror or error}.") from None


def parse_object(content: bytes, where: str) -> JsonObject:
    """Parse the bytes of one JSON object, strictly; `where` is named in errors."""
    if content.count(b",") + content.count(b"[") + content.count(b"{") > MOST_VALUES:
        raise CouldNotRun(f"{where} holds more than {MOST_VALUES:,} values.")
    try:
        value = json.loads(
            content.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant
        )
    except _Unclean as error:
        raise CouldNotRun(f"{where} is not clean JSON: {error}") from None
    except RecursionError:
        raise CouldNotRun(f"{where} is nested more than {MOST_DEPTH} deep.") from None
    except ValueError as error:
        raise CouldNotRun(f"{where} is not JSON: {str(error)[:200]}.") from None
    if not isinstance(value, dict):
        raise CouldNotRun(
            f"{where} must hold an object, {{...}}; it holds a {type(value).__name__}."
        )
    for place, each in walk(value):
        _check(place, each, where)
    return value


def walk(value: Any) -> Iterator[tuple[JsonPath, Any]]:
    """Visit every value of a JSON value with its place, without recursion."""
    waiting: list[tuple[JsonPath, Any]] = [((), value)]
    while waiting:
        place, each = waiting.pop()
        yield place, each
        if isinstance(each, dict):
            waiting += [((*place, name), inner) for name, inner in each.items()]
        elif isinstance(each, list):
            waiting += [((*place, str(number)), inner) for number, inner in enumerate(each)]


def _check(place: JsonPath, value: Any, where: str) -> None:
    if len(place) > MOST_DEPTH:
        raise CouldNotRun(f"{where} is nested more than {MOST_DEPTH} deep.")
    for text in (value, place[-1] if place else ""):
        if not isinstance(text, str) or text.isascii():
            continue
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise CouldNotRun(f"{where} is not clean JSON: it holds half a surrogate pair.")
    if isinstance(value, float) and abs(value) == float("inf"):
        raise CouldNotRun(
            f"{where} is not clean JSON: {'.'.join(place)} is too large for a number."
        )


class _Unclean(Exception):
    """JSON that the standard library would accept."""


def _unique(pairs: list[tuple[str, Any]]) -> JsonObject:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Unclean(f"the key {twice[:60]!r} appears twice.")
    return result


def _no_constant(text: str) -> Any:
    raise _Unclean(f"{text} is not a JSON number.")


MOST_HEADER = 16 * 2**20
MOST_TENSORS = 10_000
MOST_DIMENSIONS = 8
MOST_NAME = 256

_SIZES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1,
    "BOOL": 1,
}  # fmt: skip


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file: its shape, its dtype as the file names it ("F32"), its bytes."""

    shape: tuple[int, ...]
    dtype: str
    size: int


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a safetensors file by name.

    Raises:
        CouldNotRun: another format, which is named; a file that is cut off; or a header that breaks
            a rule of the format or a limit: 16 MiB, 10,000 tensors, 8 dimensions, names of 256
            printable letters.
    """
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise CouldNotRun(f"{path} is no plain file.")
        with open(path, "rb") as file:
            start = file.read(16)
            other = wrong_kind(start)
            if other:
                more = f" {how_to_convert(path)}" if "pickle" in other else ""
                raise CouldNotRun(f"{path} is no safetensors file but {other}.{more}")
            length = int.from_bytes(start[:8], "little")
            if len(start) < 16 or length > found.st_size - 8:
                raise CouldNotRun(
                    f"{path} is cut off or no safetensors file: it has {found.st_size:,} bytes, "
                    f"and its header alone would take {length:,}. Fetch it again."
                )
            if length > MOST_HEADER:
                raise CouldNotRun(
                    f"{path}: its header takes {length:,} bytes; at most {MOST_HEADER:,} are read."
                )
            content = start[8:][:length] + file.read(max(0, length - 8))
    except OSError as error:
        raise CouldNotRun(f"could not read {path}: {error.strerror or error}.") from None
    header = parse_object(content, f"the header of {path}")
    return _tensors(header, path, found.st_size - 8 - length)


def wrong_kind(start: bytes) -> str | None:
    """Return the format of a file by its first bytes; None for safetensors or an unknown format."""
    kinds = {
        b"version https://": (
            "the pointer that git-lfs leaves in its place: run `git lfs pull`, or `hf download`"
        ),
        b"PK\x03\x04": "a zip archive, such as torch.save writes around a pickle",
        b"\x80": "a pickle",
        b"\x89HDF": (
            "an HDF5 file of Keras or TensorFlow: convert it to safetensors where it was made"
        ),
        b"\x1f\x8b": "compressed with gzip: unpack it",
        b"GGUF": "a GGUF file: give it the ending .gguf and open the file itself",
        b"<": "a web page, perhaps an error page that was saved in its place: fetch it again",
        b"{": "JSON text",
    }
    # A safetensors file begins with a length below 16 MiB, so its fourth to eighth bytes are zeros
    # and its ninth is {.
    if len(start) > 8 and start[4:8] == b"\0\0\0\0" and start[8:9] == b"{":
        return None
    return next((words for begin, words in kinds.items() if start.startswith(begin)), None)


def how_to_convert(pickle: Path) -> str:
    """Return how to convert a trusted pickle to safetensors, as one line for a shell."""
    python = (
        "import sys, torch; from safetensors.torch import save_file; old = "
        "torch.load(sys.argv[1], map_location='cpu', weights_only=True); save_file({name: "
        "value.clone().contiguous() for name, value in old.items()}, sys.argv[2], {'format': "
        "'pt'})"
    )
    old, new = shlex.quote(str(pickle)), shlex.quote(str(pickle.with_name("new.safetensors")))
    return (
        "Opening it could run a program that was hidden in it. If you trust who made it, convert "
        "it once, and put the result in a folder of its own as model.safetensors, with "
        f'config.json: python -c "{python}" {old} {new}'
    )


def _tensors(header: JsonObject, path: Path, room: int) -> dict[str, StoredTensor]:
    described = {name: entry for name, entry in header.items() if name != "__metadata__"}
    metadata = header.get("__metadata__", {})
    is_metadata = isinstance(metadata, dict)
    if not is_metadata or any(not isinstance(text, str) for text in metadata.values()):
        raise CouldNotRun(f"{path}: __metadata__ must be texts by name.")
    if not described:
        raise CouldNotRun(f"{path} holds no tensor.")
    if len(described) > MOST_TENSORS:
        raise CouldNotRun(
            f"{path} holds {len(described):,} tensors; at most {MOST_TENSORS:,} are read. If your "
            "model needs more, tell us which."
        )
    tensors, places = {}, []
    for name, entry in described.items():
        tensors[name], begin = _tensor(name, entry, path)
        places.append((begin, begin + tensors[name].size, name))
    end = 0
    for begin, after, name in sorted(places):
        if begin != end:
            raise CouldNotRun(
                f"{path}: {name} begins at byte {begin:,} of the numbers, expected {end:,}."
            )
        end = after
    if end != room:
        word = "cut off" if end > room else "followed by something else"
        raise CouldNotRun(
            f"{path} is {word}: its tensors take {end:,} bytes, there are {room:,}. Fetch it again."
        )
    return tensors


def _tensor(name: str, entry: Any, path: Path) -> tuple[StoredTensor, int]:
    shown = f"{path}: {name[:60]!a}"
    if not 0 < len(name) <= MOST_NAME or not name.isprintable() or ".." in name:
        raise CouldNotRun(
            f"{shown} is no name for a tensor (1 to {MOST_NAME} printable letters, no two dots)."
        )
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise CouldNotRun(f"{shown} must be described by dtype, shape and data_offsets alone.")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _SIZES:
        advice = ""
        if str(dtype)[:2] in ("F8", "F4", "F6"):
            advice = " It is quantised: take the model's unquantised form."
        raise CouldNotRun(
            f"{shown} has numbers of kind {ascii(dtype)[:40]}; known: {', '.join(_SIZES)}.{advice}"
        )
    if not _are_sizes(shape) or len(shape) > MOST_DIMENSIONS or 0 in shape:
        raise CouldNotRun(
            f"{shown} has shape {ascii(shape)[:60]}; expected at most {MOST_DIMENSIONS} whole "
            "numbers of at least 1."
        )
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise CouldNotRun(f"{shown} has offsets {ascii(offsets)[:60]}; expected two whole numbers.")
    size = math.prod(shape) * _SIZES[dtype]
    if offsets[1] - offsets[0] != size:
        raise CouldNotRun(
            f"{shown} takes {offsets[1] - offsets[0]:,} bytes; shape {tuple(shape)} needs {size:,}."
        )
    return StoredTensor(tuple(shape), dtype, size), offsets[0]


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(
        type(each) is int and 0 <= each < 2**63 for each in value
    )
