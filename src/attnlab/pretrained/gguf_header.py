"""The header of a GGUF file, checked before anything else reads it: magic, version, counts, and
sizes against the file.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Every length that the file
states is compared with the bytes that are there, so that no later reader goes beyond its end.
"""

import math
import os
import stat
import struct
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from attnlab.errors import CouldNotRun
from attnlab.pretrained.header import MOST_DIMENSIONS, MOST_NAME, MOST_TENSORS

__all__ = ["GgufHeader", "read_gguf_header"]

MOST_HEADER = 32 * 2**20  # bytes; it includes the vocabulary, some MiB
MOST_FACTS = 2_000
MOST_ITEMS = 1_000_000  # of a list: a vocabulary, its merges
_ITEMS, _ITEMS_PER_ROW = 10_000, 4  # of a list, per row of the weights: there are more merges
_NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_TEXT, _LIST = 8, 9


class GgufHeader(NamedTuple):
    """The header of a GGUF file: numbers and short texts by name, how many tensors and weights."""

    facts: dict[str, Any]
    num_tensors: int
    num_numbers: int


def read_gguf_header(path: Path) -> GgufHeader:
    """Read the header of a GGUF file.

    Raises:
        CouldNotRun: not a GGUF file, another version, cut off, or an offset beyond its end.
    """
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise CouldNotRun(f"{path} is no plain file.")
        with open(path, "rb") as file:
            return _HeaderReader(file, path, found.st_size).whole()
    except OSError as error:
        raise CouldNotRun(f"could not read {path}: {error.strerror or error}.") from None


class _HeaderReader:
    """Reads the header once, never beyond the end of the file."""

    def __init__(self, file: BinaryIO, path: Path, size: int) -> None:
        self.path, self.size, self.at, self.longest_list = path, size, 0, 0
        self.content = file.read(min(size, MOST_HEADER))

    def whole(self) -> GgufHeader:
        magic = self.content[:4]
        if magic != b"GGUF":
            advice = ""
            if magic == b"vers":
                advice = " It is the pointer that git-lfs leaves: run `git lfs pull`."
            raise CouldNotRun(f"{self.path} is no GGUF file: it begins with {magic!r}.{advice}")
        self.at = 4
        version = self.number("I")
        if version not in (2, 3):
            raise CouldNotRun(
                f"{self.path} is GGUF of version {version:,}; 2 and 3 are read (lowest byte first)."
            )
        num_tensors, num_facts = self.number("Q"), self.number("Q")
        if not 0 < num_tensors <= MOST_TENSORS or num_facts > MOST_FACTS:
            raise CouldNotRun(
                f"{self.path} announces {num_tensors:,} tensors and {num_facts:,} facts; "
                f"at most {MOST_TENSORS:,} and {MOST_FACTS:,} are read."
            )
        facts: dict[str, Any] = {}
        for _ in range(num_facts):
            name, value = self.text(MOST_NAME), self.value(self.number("I"))
            if name in facts:
                raise CouldNotRun(f"{self.path}: the fact {name!a} appears twice.")
            facts[name] = value
        num_numbers, longest = self.tensors(num_tensors, facts)
        # A vocabulary has a row of the weights for each token.
        if self.longest_list > _ITEMS + _ITEMS_PER_ROW * longest:
            raise CouldNotRun(
                f"{self.path} holds a list of {self.longest_list:,} items, far more than its "
                f"weights have rows ({longest:,}). It is damaged, or a trap."
            )
        return GgufHeader(facts, num_tensors, num_numbers)

    def tensors(self, count: int, facts: dict[str, Any]) -> tuple[int, int]:
        """Check all tensors; return how many numbers they hold, and the longest side of any."""
        try:
            from gguf.constants import GGML_QUANT_SIZES  # numbers in a block, and its bytes
        except ImportError as error:
            raise CouldNotRun(
                f"opening a GGUF file needs gguf ({error}): pip install 'attnlab[hf]'."
            ) from None
        sizes = {int(kind): block for kind, block in GGML_QUANT_SIZES.items()}
        names: set[str] = set()
        places, num_numbers, longest = [], 0, 0
        for _ in range(count):
            name = self.text(MOST_NAME)
            num_dimensions = self.number("I")
            is_name = name not in names and name.isprintable() and ".." not in name
            if num_dimensions > MOST_DIMENSIONS or not is_name:
                raise CouldNotRun(
                    f"{self.path}: {ascii(name)[:60]} is no tensor that can be read (name or "
                    "dimensions)."
                )
            names.add(name)
            shape = [self.number("Q") for _ in range(num_dimensions)]
            kind, offset = self.number("I"), self.number("Q")
            if kind not in sizes or 0 in shape:
                raise CouldNotRun(
                    f"{self.path}: {name} has shape {shape} and numbers of kind {kind}, which "
                    "is not known."
                )
            numbers = math.prod(shape)
            block, size = sizes[kind]
            if numbers % block:
                raise CouldNotRun(
                    f"{self.path}: {name} has {numbers:,} numbers, no multiple of its blocks "
                    f"of {block}."
                )
            places.append((offset, offset + numbers // block * size, name))
            num_numbers += numbers
            longest = max(longest, *shape, 0)
        self.check_places(sorted(places), facts.get("general.alignment", 32))
        return num_numbers, longest

    def check_places(self, places: list[tuple[int, int, str]], alignment: Any) -> None:
        """Refuse tensors that overlap or lie beyond the end of the file."""
        if type(alignment) is not int or not 0 < alignment <= 2**16:
            raise CouldNotRun(
                f"{self.path}: an alignment of {ascii(alignment)[:40]} is not possible."
            )
        room, end = self.size - (self.at + alignment - 1) // alignment * alignment, 0
        for begin, after, name in places:
            if begin < end or after > room:
                raise CouldNotRun(
                    f"{self.path}: {name} takes bytes {begin:,} to {after:,} of {max(room, 0):,}, "
                    f"and {end:,} are taken already: the file is cut off or damaged. Fetch it "
                    "again."
                )
            end = after

    def value(self, kind: int) -> Any:
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _TEXT:
            return self.text(2**20)
        if kind != _LIST:
            raise CouldNotRun(f"{self.path}: a fact of kind {kind:,} is not known.")
        inner, count = self.number("I"), self.number("Q")
        if count > MOST_ITEMS or (inner not in _NUMBERS and inner != _TEXT):
            raise CouldNotRun(
                f"{self.path}: a list of {count:,} values of kind {inner:,} is not read."
            )
        self.longest_list = max(self.longest_list, count)
        if inner in _NUMBERS:
            self.skip(count * struct.calcsize("<" + _NUMBERS[inner]))
        else:
            for _ in range(count):
                self.skip(self.number("Q"))
        return None  # lists are skipped: no check needs their items

    def number(self, code: str) -> Any:
        begin = self.at
        self.skip(struct.calcsize("<" + code))
        return struct.unpack_from("<" + code, self.content, begin)[0]

    def text(self, most: int) -> str:
        length = self.number("Q")
        if length > most:
            raise CouldNotRun(
                f"{self.path}: a text of {length:,} bytes, where at most {most:,} are read."
            )
        self.skip(length)
        return self.content[self.at - length : self.at].decode(errors="replace")

    def skip(self, count: int) -> None:
        if count > len(self.content) - self.at:
            raise CouldNotRun(
                f"{self.path} is cut off or damaged: its header states more bytes than there are."
            )
        self.at += count
