"""Frozen dataclasses as plain JSON values, and back with every key and type checked.

Fields that have their default values are written too, so that a later default changes nothing of
what was kept. Classes derived from one base are told apart by their `kind`.
"""

import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from attnlab.core.store import JsonObject
from attnlab.errors import WrongUsage, is_integer, is_number

Number = float | None
"""A number of a chart; None and NaN are gaps."""

Scalar = str | float | bool | None
"""A cell of a table, or the value of a fact."""


def to_json(value: Any) -> Any:
    """Return a dataclass, or a sequence of them, as plain values."""
    if isinstance(value, list | tuple | range):
        return list(map(to_json, value))
    if not is_dataclass(value):
        return value
    plain: JsonObject = {}
    if hasattr(value, "kind"):
        plain["kind"] = value.kind
    for field in fields(value):
        plain[field.name] = to_json(getattr(value, field.name))
    return plain


def without_nan(value: Any) -> Any:
    """Replace NaN and infinities, which JSON does not have, by None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return list(map(without_nan, value))
    return value


def from_json(kind: Any, value: Any, where: str) -> Any:
    """Read plain values as a type; `where` names them in messages.

    Raises:
        WrongUsage: a key is missing or unknown, a value has another type, or two do not fit.
    """
    if kind in _PLAIN:
        is_right, expected = _PLAIN[kind]
        if not is_right(value):
            raise _unexpected(where, expected, value)
        return value
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        if value not in inner:
            raise _unexpected(where, f"one of {', '.join(inner)}", value)
        return value
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        (kind,) = {*inner} - {types.NoneType}
        return from_json(kind, value, where)
    if is_dataclass(kind):
        if "kind" in kind.__annotations__ and not hasattr(kind, "kind"):
            kind = _class_of_kind(kinds_of(kind), value, where)
        return _read_fields(kind, value, where)
    return _read_list(origin, inner, value, where)


def _read_list(origin: Any, inner: tuple[Any, ...], value: Any, where: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise _unexpected(where, "a list", value)
    if inner == (float,):
        inner = (Number,)  # JSON has no NaN
    if origin is tuple:
        if len(value) != len(inner):
            raise WrongUsage(f"{where}: expected {len(inner)} values, got {len(value)}")
    elif inner[0] in _PLAIN and all(map(_PLAIN[inner[0]][0], value)):
        return list(value)  # traces hold up to a million weights
    else:
        inner = inner * len(value)
    items = []
    for index, (kind, item) in enumerate(zip(inner, value, strict=True)):
        items.append(from_json(kind, item, f"{where}[{index}]"))
    return tuple(items) if origin is tuple else items


def kinds_of(base: Any) -> dict[str, type]:
    """Return every class derived from a base that has a kind of its own, by that kind."""
    classes: dict[str, type] = {}
    for subclass in base.__subclasses__():
        if "kind" in vars(subclass):
            classes[subclass.kind] = subclass
        classes |= kinds_of(subclass)
    return classes


def _class_of_kind(known: Mapping[str, type], value: Any, where: str) -> type:
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if not isinstance(kind, str) or kind not in known:
        expected = f"an object with a known kind, one of {', '.join(known)}"
        raise _unexpected(where, expected, value if kind is None else kind)
    return known[kind]


def _read_fields(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise _unexpected(where, "an object", value)
    hints = _hints(kind)
    required = {field.name for field in fields(kind) if field.default is MISSING}
    values = {name: item for name, item in value.items() if name != "kind"}
    if not required <= set(values) <= set(hints):
        raise WrongUsage(
            f"{where}: expected the keys {', '.join(hints)}; got {', '.join(map(str, values))}."
        )
    for name, item in values.items():
        values[name] = from_json(hints[name], item, f"{where}.{name}")
    return kind(**values)


@cache
def _hints(kind: Any) -> dict[str, object]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _is_number(value: Any) -> bool:
    return value is None or is_number(value)


_PLAIN: dict[Any, tuple[Callable[[Any], bool], str]] = {
    str: (lambda value: isinstance(value, str), "a string"),
    bool: (lambda value: isinstance(value, bool), "True or False"),
    bool | None: (lambda value: isinstance(value, bool | None), "True, False or None"),
    int: (lambda value: is_integer(value) and value >= 0, "a whole number, 0 or more"),
    float: (lambda value: is_number(value) and math.isfinite(value), "a plain finite number"),
    Number: (_is_number, "a plain number or None"),
    Scalar: (
        lambda value: isinstance(value, str | bool) or _is_number(value),
        "a string or a number",
    ),
}
"""Types of single values: their check, and the words of it."""


def _unexpected(where: str, expected: str, value: Any) -> WrongUsage:
    hint = ""
    if hasattr(value, "tolist"):
        hint = "; arrays become plain values with .tolist()"
    return WrongUsage(
        f"{where}: expected {expected}, got {type(value).__name__} {str(value)[:60]!r}{hint}"
    )
