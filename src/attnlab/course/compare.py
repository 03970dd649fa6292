"""A student's answer beside the right one: type, shape, dtype, finite, values, in this order.

Answers come from another process, which a student's code may have taken over, as JSON. What has not
the form that `runner.encode` gives is read as `Other`: a wrong answer, never an error of ours.
"""

import base64
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
_MOST_SHOWN = 4  # rows and columns of an array in a message
_MOST_WORDS = 400
_MOST_DEPTH = 24


@dataclass(frozen=True)
class Figure:
    """What a figure shows: its title, and of each of its axes title, labels, images and lines."""

    axes: Sequence[Mapping[str, Any]]
    title: str = ""


@dataclass(frozen=True)
class Other:
    """A value that is no plain one: the name of its type."""

    type: str


def read_answer(value: Any) -> Any:
    """Turn an answer's JSON into plain values; a form that is not known becomes `Other`."""
    try:
        return _read(value)
    except (KeyError, ValueError, TypeError, OverflowError):
        return Other("damaged answer")


def _read(value: Any, depth: int = 0) -> Any:
    """Read a value; raise one of several errors where it has another form."""
    if depth > _MOST_DEPTH:
        raise ValueError
    if value is None or isinstance(value, bool | int | float | str):
        return value
    kind = value["kind"]
    if kind == "list":
        return [_read(each, depth + 1) for each in value["items"]]
    if kind == "dict":
        return {_read(key, depth + 1): _read(each, depth + 1) for key, each in value["items"]}
    if kind == "int":
        return int(value["text"])
    if kind == "figure":
        return Figure(list(_read(value["axes"], depth + 1)), str(value.get("title", "")))
    if kind == "array" and value["dtype"] in _DTYPES:
        data = np.frombuffer(base64.b64decode(value["data"]), np.dtype(value["dtype"]))
        array = data.reshape([int(size) for size in value["shape"]]).copy()
        return torch.from_numpy(array) if value["of"] == "torch" else array
    return Other(str(value.get("type", kind))[:80])


def difference(expected: Any, got: Any, tolerance: float, where: str = "answer") -> str | None:
    """Say how an answer differs from what was expected; None where it does not.

    None in what was expected stands for anything.
    """
    if expected is None:
        return None
    if isinstance(expected, Mapping):
        return _mapping_difference(expected, got, tolerance, where)
    if isinstance(expected, list | tuple):
        return _list_difference(expected, got, tolerance, where)
    if isinstance(expected, str | bool):
        if type(got) is type(expected) and got == expected:
            return None
        return f"{where}: expected {show(expected)}, got {show(got)}"
    return _number_difference(expected, got, tolerance, where)


def is_same(one: Any, other: Any, tolerance: float) -> bool:
    """Whether two answers agree, not-a-number and infinities included."""
    if isinstance(one, Figure) and isinstance(other, Figure):
        one, other = one.axes, other.axes
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if set(one) != set(other):
            return False
        return all(is_same(one[key], other[key], tolerance) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return False
        return all(map(is_same, one, other, itertools.repeat(tolerance)))
    if isinstance(one, int) and isinstance(other, int):
        return type(one) is type(other) and one == other
    if _is_number(one) and _is_number(other):
        mine, theirs = _numbers(one), _numbers(other)
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return False
        return bool(np.allclose(mine, theirs, tolerance, tolerance, equal_nan=True))
    return type(one) is type(other) and bool(one == other)


def leave_out(value: Any, got: Any) -> Any:
    """Return a value with None wherever an answer has None, which then stands for anything.

    >>> leave_out([[1, 2], {"a": 3}], [[None, 5], {"a": None}])
    [[None, 2], {'a': None}]
    """
    if got is None:
        return None
    if isinstance(value, Mapping) and isinstance(got, Mapping):
        return {key: leave_out(each, got.get(key, each)) for key, each in value.items()}
    if isinstance(value, list | tuple) and isinstance(got, list) and len(value) == len(got):
        return [leave_out(each, own) for each, own in zip(value, got, strict=True)]
    return value


def show(value: Any) -> str:
    """Show a value in a message: small arrays whole, of large ones a corner."""
    if isinstance(value, Tensor | np.ndarray):
        array = _numbers(value)
        cut = array[tuple(slice(_MOST_SHOWN) for _ in array.shape)]
        text = np.array2string(cut, precision=4, suppress_small=True, separator=", ")
        text = " ".join(text.split())
        shape = "×".join(map(str, array.shape)) or "single number"
        return f"{_cut(text)} ({shape})"
    if isinstance(value, Other):
        return f"a {value.type}"
    if isinstance(value, Figure):
        return f"a figure with {len(value.axes)} axes"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(show, value[:12])) + (", …]" if len(value) > 12 else "]")
    if isinstance(value, Mapping):
        return _cut("{" + ", ".join(f"{key!r}: {show(each)}" for key, each in value.items()) + "}")
    return _cut(repr(value))


def _cut(text: str) -> str:
    """Cut a long text between two of its parts."""
    if len(text) <= _MOST_WORDS:
        return text
    return text[:_MOST_WORDS].rpartition(",")[0] + ", …"


def _mapping_difference(
    expected: Mapping[Any, Any], got: Any, tolerance: float, where: str
) -> str | None:
    if not isinstance(got, Mapping):
        return f"{where}: expected a mapping, got {show(got)}"
    if set(got) != set(expected):
        keys = ", ".join(map(str, expected))
        return f"{where}: expected the keys {keys}; got {', '.join(map(str, got)) or 'none'}"
    for key, each in expected.items():
        found = difference(each, got[key], tolerance, f"{where}[{key!r}]")
        if found:
            return found
    return None


def _list_difference(expected: Sequence[Any], got: Any, tolerance: float, where: str) -> str | None:
    if not isinstance(got, list):
        noun = "value" if len(expected) == 1 else "values"
        return f"{where}: expected {len(expected)} {noun}, got {show(got)}"
    if len(got) != len(expected):
        wanted = f"{show(expected)} ({len(expected)} values)"
        return f"{where}: expected {wanted}, got {show(got)} ({len(got)})"
    for number, (each, own) in enumerate(zip(expected, got, strict=True)):
        found = difference(each, own, tolerance, f"{where}[{number}]")
        if found:
            return found
    return None


def _number_difference(expected: Any, got: Any, tolerance: float, where: str) -> str | None:
    if not _is_number(got):
        return f"{where}: expected {_noun(expected)}, got {show(got)}"
    if isinstance(expected, Tensor | np.ndarray) and type(got) is not type(expected):
        return f"{where}: expected {_noun(expected)}, got {_noun(got)}"
    right, own = _numbers(expected), _numbers(got)
    if own.shape != right.shape:
        return f"{where}: expected shape {right.shape}, got {own.shape}"
    if isinstance(expected, Tensor | np.ndarray) and own.dtype != right.dtype:
        return f"{where}: expected {right.dtype}, got {own.dtype}"
    if own.dtype.kind in "bO" or right.dtype.kind in "bO":  # O: an integer of over 64 bits
        is_right = np.array_equal(right, own)
    else:
        if np.isfinite(right).all() and not np.isfinite(own).all():
            return f"{where}: expected finite numbers, got {show(got)}"
        is_right = np.allclose(own, right, tolerance, tolerance, equal_nan=True)
    if is_right:
        return None
    lines = [f"{where}:", f"  expected  {show(expected)}", f"  got       {show(got)}"]
    if own.size > 1 and own.dtype.kind in "iuf" and np.isfinite(right).all():
        distances = np.abs(own.astype(float) - right)
        place = np.unravel_index(int(distances.argmax()), distances.shape)
        at = ", ".join(map(str, place))
        lines.append(f"  they differ by {distances.max():.3g} at most, at [{at}]")
    return "\n".join(lines)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float | Tensor | np.ndarray | np.number)


def _numbers(value: Any) -> NDArray[Any]:
    return value.numpy() if isinstance(value, Tensor) else np.asarray(value)


def _noun(value: Any) -> str:
    if isinstance(value, Tensor):
        return "a tensor"
    if isinstance(value, np.ndarray):
        return "a NumPy array"
    return "a number"
