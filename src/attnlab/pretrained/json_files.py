"""Untrusted JSON: strictly parsed, and bounded in size, depth and number of values.

Python's own reader accepts NaN, a key twice and half a surrogate pair; here each is an error that
names the file.
"""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attnlab.errors import CouldNotRun

__all__ = ["JsonPath", "parse_object", "read_bytes", "read_object", "walk"]

MOST_BYTES = 2 * 2**20  # of config.json; one with the names of 21,000 classes takes 1 MiB
MOST_VALUES = 500_000  # in one file: at some 64 bytes each, at most 32 MB in memory
MOST_DEPTH = 32

JsonPath = tuple[str, ...]
"""The keys that lead to a value in a JSON file, from the outside in."""


def read_object(path: Path, most: int = MOST_BYTES) -> dict[str, Any]:
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


def parse_object(content: bytes, where: str) -> dict[str, Any]:
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


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Unclean(f"the key {twice[:60]!r} appears twice.")
    return result


def _no_constant(text: str) -> Any:
    raise _Unclean(f"{text} is not a JSON number.")
