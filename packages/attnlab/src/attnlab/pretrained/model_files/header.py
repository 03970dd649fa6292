"""Untrusted JSON, bounded in size, depth and number of values; and the header of a safetensors
file: which tensors it holds, checked before a number is read.

The format (https://github.com/huggingface/safetensors): 8 bytes for the length of the header, the
header as JSON, and the numbers, tensor after tensor without a gap, which the library checks. Files
of other formats are recognized by their first bytes and refused.
"""

import json
import math
import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

from attnlab.errors import CouldNotRun

MAX_BYTES = 2 * 2**20  # of config.json; one with the names of 21,000 classes takes 1 MiB
MAX_VALUES = 500_000  # in one file: at some 64 bytes each, at most 32 MB in memory
MAX_DEPTH = 32

JsonObject = dict[str, Any]
"""An object of untrusted JSON, of any content."""

JsonPath = tuple[str, ...]
"""The keys that lead to a value in a JSON file, from the outside in."""


def require(holds: object, where: object, words: str) -> None:
    """Raise a sentence about a file, or something in it, unless a condition holds."""
    if not holds:
        raise CouldNotRun(f"{where} {words}")


def some_of(names: Sequence[str]) -> str:
    """List up to ten names."""
    shown = ", ".join(ascii(name)[1:-1][:100] for name in names[:10])
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10:,} more"


@contextmanager
def plain_file(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file and yield it with its size; a pipe or a device is never opened."""
    try:
        status = os.stat(path)
        require(stat.S_ISREG(status.st_mode), path, "is not a regular file.")
        with open(path, "rb") as file:
            yield file, status.st_size
    except OSError as error:
        raise CouldNotRun(f"could not read {path}: {error.strerror or error}.") from None


def read_object(path: Path, most: int = MAX_BYTES) -> JsonObject:
    """Read a file that must hold one JSON object.

    Raises:
        CouldNotRun: the file is too large, too deep, not UTF-8, or holds no object.
    """
    with plain_file(path) as (file, size):
        require(size <= most, path, f"has {size:,} bytes; at most {most:,} are read.")
        content = file.read(most)
    return parse_object(content, str(path))


def parse_object(content: bytes, where: str) -> JsonObject:
    """Parse the bytes of one JSON object; `where` is named in errors."""
    count = content.count(b",") + content.count(b"[") + content.count(b"{")
    require(count <= MAX_VALUES, where, f"holds more than {MAX_VALUES:,} values.")
    try:
        value = json.loads(content.decode("utf-8"))
        depth = max(len(place) for place, _ in walk(value))
    except RecursionError:
        depth = MAX_DEPTH + 1
    except ValueError as error:
        raise CouldNotRun(f"{where} is not JSON: {str(error)[:200]}.") from None
    require(depth <= MAX_DEPTH, where, f"is nested more than {MAX_DEPTH} deep.")
    kind = type(value).__name__
    require(isinstance(value, dict), where, f"must hold an object, {{...}}; it holds a {kind}.")
    mapping: JsonObject = value
    return mapping


def walk(value: Any) -> Iterator[tuple[JsonPath, Any]]:
    """Visit every value of a JSON value with its place, without recursion."""
    waiting: list[tuple[JsonPath, Any]] = [((), value)]
    while waiting:
        place, item = waiting.pop()
        yield place, item
        if isinstance(item, dict):
            waiting += [((*place, name), inner) for name, inner in item.items()]
        elif isinstance(item, list):
            waiting += [((*place, str(number)), inner) for number, inner in enumerate(item)]


MAX_HEADER = 16 * 2**20
MAX_TENSORS = 10_000
MAX_DIMENSIONS = 8
MAX_NAME = 256

_NUMBERS = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


@dataclass(frozen=True)
class TensorEntry:
    """The shape and dtype that a file states for a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """Its bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_tensor_entries(path: Path) -> dict[str, TensorEntry]:
    """Return the tensors of a safetensors file by name.

    Raises:
        CouldNotRun: another format, which is named; a file that is cut off; or a header that breaks
            a rule of the format or a limit: 16 MiB, 10,000 tensors, 8 dimensions, names of 256
            printable letters.
    """
    from safetensors import SafetensorError, safe_open

    header = _header_of(path)
    for name, entry in header.items():
        _check_entry(name, entry, f"{path}: {name[:60]!a}")
    try:  # the library checks that the tensors fill the file without a gap
        with safe_open(str(path), framework="numpy"):
            pass
    except (OSError, SafetensorError) as error:
        raise CouldNotRun(f"{path} is cut off or damaged ({error}). Download it again.") from None
    tensors = {}
    for name, entry in header.items():
        tensors[name] = TensorEntry(tuple(entry["shape"]), _NUMBERS[entry["dtype"]])
    return tensors


def _header_of(path: Path) -> JsonObject:
    """Read the header of a safetensors file: its tensors by name."""
    with plain_file(path) as (file, size):
        start = file.read(16)
        other = wrong_kind(start) or ""
        more = f" {how_to_convert(path)}" if "pickle" in other else ""
        require(not other, path, f"is not a safetensors file but {other}.{more}")
        length = int.from_bytes(start[:8], "little")
        is_whole = len(start) == 16 and length <= size - 8
        require(is_whole, path, f"is cut off: it has {size:,} bytes, its header {length:,}.")
        most = f"at most {MAX_HEADER:,} are read."
        require(length <= MAX_HEADER, path, f"has a header of {length:,} bytes; {most}")
        content = start[8:][:length] + file.read(max(0, length - 8))
    header = parse_object(content, f"the header of {path}")
    header.pop("__metadata__", None)
    most = f"at most {MAX_TENSORS:,} are read."
    require(header, path, "holds no tensor.")
    require(len(header) <= MAX_TENSORS, path, f"holds {len(header):,} tensors; {most}")
    return header


def _check_entry(name: str, entry: Any, where: str) -> None:
    """Check what a header says of one tensor."""
    is_name = 0 < len(name) <= MAX_NAME and name.isprintable() and ".." not in name
    require(is_name, where, f"is not a valid tensor name (at most {MAX_NAME} printable letters).")
    is_described = isinstance(entry, dict) and set(entry) == {"dtype", "shape", "data_offsets"}
    require(is_described, where, "must be described by dtype, shape and data_offsets alone.")
    advice = ""
    if str(entry["dtype"])[:2] in ("F8", "F4", "F6"):
        advice = " It is quantized: take the model's unquantized form."
    words = f"has numbers of kind {ascii(entry['dtype'])[:40]}; known: {', '.join(_NUMBERS)}."
    require(str(entry["dtype"]) in _NUMBERS, where, words + advice)
    shape = entry["shape"]
    is_shape = isinstance(shape, list) and len(shape) <= MAX_DIMENSIONS
    wanted = f"expected at most {MAX_DIMENSIONS} whole numbers of at least 1."
    require(is_shape and 0 not in shape, where, f"has shape {ascii(shape)[:60]}; {wanted}")


_BEGINNINGS = {
    b"version https://": (
        "the pointer that git-lfs leaves in its place: run `git lfs pull`, or `hf download`"
    ),
    b"PK\x03\x04": "a zip archive, such as torch.save writes around a pickle",
    b"\x80": "a pickle",
    b"\x89HDF": "an HDF5 file of Keras or TensorFlow: convert it to safetensors where it was made",
    b"\x1f\x8b": "compressed with gzip: unpack it",
    b"GGUF": "a GGUF file: give it the ending .gguf and open the file itself",
    b"<": "a web page, perhaps an error page that was saved in its place: download it again",
    b"{": "JSON text",
}


def wrong_kind(start: bytes) -> str | None:
    """Return the format of a file by its first bytes; None for safetensors or an unknown format."""
    # A safetensors file begins with a length below 16 MiB, so its fourth to eighth bytes are zeros
    # and its ninth is {.
    if len(start) > 8 and start[4:8] == b"\0\0\0\0" and start[8:9] == b"{":
        return None
    for begin, words in _BEGINNINGS.items():
        if start.startswith(begin):
            return words
    return None


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
