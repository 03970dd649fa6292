"""A student's answer beside the right one: type, shape, dtype, finite, values, in this order.

Answers come from another process, which a student's code may have taken over, as JSON. What has
not the form that `student_code.encode` gives is read as `Other`: a wrong answer, never an error of
ours.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlab.display import plural
from attnlab_course.exercise import Failure, Settings
from attnlab_course.sandbox.student_code import Json

_DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
_MOST_SHOWN = 40  # numbers of an array in a message; of more, the edges
_MOST_LISTED = 12
_MOST_WORDS = 400
_MOST_DEPTH = 24


@dataclass(frozen=True)
class Figure:
    """What a figure shows: its title, and of each of its axes title, labels, images and lines."""

    axes: Sequence[Settings]
    title: str = ""


@dataclass(frozen=True)
class Other:
    """A value that JSON cannot hold: the name of its type."""

    type: str


def read_answer(value: Json) -> Any:
    """Turn an answer's JSON into plain values; a form that is not known becomes `Other`."""
    try:
        return _read(value)
    except (KeyError, ValueError, TypeError, OverflowError):
        return Other("damaged answer")


def _read(value: Json, depth: int = 0) -> Any:
    """Read a value; raise one of several errors where it has another form."""
    if depth > _MOST_DEPTH:
        raise ValueError
    if value is None or isinstance(value, bool | int | float | str):
        return value
    match value["kind"]:
        case "list":
            return list(map(_read, value["items"], repeat(depth + 1)))
        case "dict":
            return {_read(key, depth + 1): _read(item, depth + 1) for key, item in value["items"]}
        case "int":
            return int(value["text"])
        case "figure":
            return Figure(list(_read(value["axes"], depth + 1)), str(value.get("title", "")))
        case "array" if value["dtype"] in _DTYPES:
            data = np.frombuffer(base64.b64decode(value["data"]), np.dtype(value["dtype"]))
            array = data.reshape(list(map(int, value["shape"]))).copy()
            return torch.from_numpy(array) if value["of"] == "torch" else array
    return Other(str(value.get("type", value["kind"]))[:80])


def difference(
    expected: Any, got: Any, tolerance: float, where: str = "answer", names: Sequence[str] = ()
) -> Failure | None:
    """Say how an answer differs from what was expected; None where it does not.

    None in what was expected stands for anything. `names` are those of a list's items, if any.
    """
    if expected is None:
        return None
    if isinstance(expected, Mapping):
        return _mapping_difference(expected, got, tolerance, where)
    if isinstance(expected, list | tuple):
        return _list_difference(expected, got, tolerance, where, names)
    if isinstance(expected, str | bool):
        if type(got) is type(expected) and got == expected:
            return None
        return _expected(where, show_answer(expected), show_answer(got))
    return _number_difference(expected, got, tolerance, where)


def item_places(where: str, count: int) -> list[str]:
    """Return the places of a list's items, as they are written in brackets."""
    return [f"{where}[{number}]" for number in range(count)]


def is_same(one: Any, other: Any, tolerance: float) -> bool:
    """Whether two answers agree, not-a-number and infinities included."""
    if _are(Figure, one, other):
        return is_same(one.axes, other.axes, tolerance)
    if _are(Mapping, one, other):
        if {*one} != {*other}:
            return False
        return all(is_same(one[name], other[name], tolerance) for name in one)
    if _are(list, one, other):
        return len(one) == len(other) and all(map(is_same, one, other, repeat(tolerance)))
    if _is_number(one) and _is_number(other):
        return _are_same_numbers(one, other, tolerance)
    return type(one) is type(other) and bool(one == other)


def _are(kind: type, one: object, other: object) -> bool:
    return isinstance(one, kind) and isinstance(other, kind)


def _are_same_numbers(one: Any, other: Any, tolerance: float) -> bool:
    if _are(int, one, other):
        return bool(one == other)  # of any size
    mine, theirs = _numbers(one), _numbers(other)
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return False
    return bool(np.allclose(mine, theirs, tolerance, tolerance, equal_nan=True))


def show_answer(value: Any) -> str:
    """Show a value in a message: small arrays whole, of large ones the edges, with … between."""
    if isinstance(value, Tensor | np.ndarray):
        array = _numbers(value)
        text = np.array2string(array, None, 4, True, ", ", threshold=_MOST_SHOWN, edgeitems=2)
        shape = "×".join(map(str, array.shape)) or "single number"
        return f"{_cut(' '.join(text.split()).replace('...', '…'))} ({shape})"
    if isinstance(value, Other):
        return f"a {value.type}"
    if isinstance(value, Figure):
        return f"a figure with {len(value.axes)} axes"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        shown = list(map(show_answer, value[:_MOST_LISTED]))
        if len(value) > _MOST_LISTED:
            shown.append("…")
        return f"[{', '.join(shown)}]"
    if isinstance(value, Mapping):
        pairs = [f"{key!r}: {show_answer(item)}" for key, item in value.items()]
        return _cut("{" + ", ".join(pairs) + "}")
    return _cut(repr(value))


def _cut(text: str) -> str:
    """Cut a long text between two of its parts."""
    if len(text) <= _MOST_WORDS:
        return text
    return text[:_MOST_WORDS].rpartition(",")[0] + ", …"


def _expected(where: str, wanted: object, got: object, kind: str = "") -> Failure:
    return Failure(f"{where}: expected {wanted}, got {got}", kind=kind)


def _mapping_difference(
    expected: Mapping[Any, Any], got: Any, tolerance: float, where: str
) -> Failure | None:
    if not isinstance(got, Mapping):
        return _expected(where, "a mapping", show_answer(got), "type")
    if {*got} != {*expected}:
        keys, got_keys = ", ".join(map(str, expected)), ", ".join(map(str, got))
        return Failure(f"{where}: expected the keys {keys}; got {got_keys or 'none'}")
    for key, item in expected.items():
        failure = difference(item, got[key], tolerance, f"{where}[{key!r}]")
        if failure:
            return failure
    return None


def _list_difference(
    expected: Sequence[Any], got: Any, tolerance: float, where: str, names: Sequence[str]
) -> Failure | None:
    count = len(expected)
    if not isinstance(got, list):
        wanted = f"{count} {plural(count, 'value')}"
        if names:
            wanted = f"{count} results ({', '.join(names)})"
        received = show_answer(got)
        if isinstance(got, Tensor | np.ndarray):
            received = f"{_noun(got).replace('a ', 'one ', 1)}, {received}"
        return _expected(where, wanted, received, "count")
    if len(got) != count:
        wanted, received = (
            f"{show_answer(expected)} ({count} values)",
            f"{show_answer(got)} ({len(got)})",
        )
        return _expected(where, wanted, received, "count")
    places = names or item_places(where, count)
    for place, item, received in zip(places, expected, got, strict=True):
        failure = difference(item, received, tolerance, place)
        if failure:
            return failure
    return None


def _number_difference(expected: Any, got: Any, tolerance: float, where: str) -> Failure | None:
    failure = _form_difference(expected, got, where)
    if failure is not None:
        return failure
    right, answer = _numbers(expected), _numbers(got)
    if {answer.dtype.kind, right.dtype.kind} & {*"bO"}:  # O: an integer of over 64 bits
        is_right = np.array_equal(right, answer)
    elif np.isfinite(right).all() and not np.isfinite(answer).all():
        return _expected(where, "finite numbers", show_answer(got), "finite")
    else:
        is_right = np.allclose(answer, right, tolerance, tolerance, equal_nan=True)
    if is_right:
        return None
    lines = [f"{where}:", f"  expected  {show_answer(expected)}", f"  got       {show_answer(got)}"]
    lines += _where_wrong(right, answer, tolerance)
    return Failure("\n".join(lines))


def _form_difference(expected: Any, got: Any, where: str) -> Failure | None:
    """Say how the type, shape or dtype of numbers differs from what was expected."""
    is_array = isinstance(expected, Tensor | np.ndarray)
    if not _is_number(got):
        return _expected(where, _noun(expected), show_answer(got), "type")
    if is_array and type(got) is not type(expected):
        return _expected(where, _noun(expected), _noun(got), "type")
    right, answer = _numbers(expected), _numbers(got)
    if answer.shape != right.shape:
        return _expected(where, f"shape {right.shape}", answer.shape, "shape")
    if is_array and answer.dtype != right.dtype:
        return _expected(where, right.dtype, answer.dtype, "dtype")
    return None


def _where_wrong(right: NDArray[Any], answer: NDArray[Any], tolerance: float) -> Iterator[str]:
    """Yield where two arrays of real numbers differ most and first, and how many are right."""
    if answer.size < 2 or answer.dtype.kind not in "iuf" or not np.isfinite(right).all():
        return
    distances = np.abs(answer.astype(float) - right)
    yield f"  they differ by {distances.max():.3g} at most, at {_place(distances.argmax(), right)}"
    is_right = np.isclose(answer, right, tolerance, tolerance)
    if is_right.any():
        first = _place(is_right.argmin(), right)
        yield f"  {is_right.sum()} of {right.size} are right; the first wrong one is at {first}"


def _place(number: np.intp, array: NDArray[Any]) -> str:
    """Return the place of an array's number, as it is written in brackets."""
    return f"[{', '.join(map(str, np.unravel_index(int(number), array.shape)))}]"


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float | Tensor | np.ndarray | np.number)


def _numbers(value: Any) -> NDArray[Any]:
    if isinstance(value, Tensor):
        return value.numpy()
    return np.asarray(value)


def _noun(value: Any) -> str:
    if isinstance(value, Tensor):
        return "a tensor"
    if isinstance(value, np.ndarray):
        return "a NumPy array"
    return "a number"
