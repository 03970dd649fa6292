"""The values of a program: which are possible, and which are the same.

Python calls True, 1 and 1.0 equal, and 0.0 and -0.0, alone and in tuples; str() and many other maps
tell them apart. So nothing here is looked up by equality: `identity` is the same of two values only
if no map can tell them apart.
"""

import math
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np

Value = Any
"""What a position holds: a number (int, Fraction, float, bool) or a hashable symbol."""

_EXACT = (type(None), bool, int, str, bytes, Fraction)  # equal ones of a type are the same
_WRITTEN = (float, complex, Decimal)  # the same are written alike: 0.0 and -0.0 are not
_MAX_WORDS = 160  # letters of an expression


def identity(value: Value) -> Any:
    """Return a key that two values share only if they are the same.

    >>> identity((True, 0.0)) == identity((True, 0.0)), identity((True,)) == identity((1,))
    (True, False)

    Raises:
        ValueError: it is unknown of a value of this class when it is the same as another.
    """
    kind: Any = type(value)
    if kind in _EXACT:
        return kind, value
    if kind in _WRITTEN:
        if value != value:
            raise ValueError("NaN is not even equal to itself")
        return kind, repr(value)
    if isinstance(value, Enum):
        return kind, value.name
    if kind is frozenset:
        return kind, frozenset(map(identity, value))
    if kind is tuple or (hasattr(kind, "_fields") and not hasattr(value, "__dict__")):
        return kind, tuple(map(identity, value))
    if is_dataclass(kind):
        return kind, tuple(identity(getattr(value, field.name)) for field in fields(kind))
    if kind.__eq__ is object.__eq__:
        return kind, value
    raise ValueError(f"two of the class {kind.__name__} may be equal and not the same")


def numbered(values: Iterable[Value]) -> dict[Any, int]:
    """Number values from 0, by their identities."""
    return {identity(value): place for place, value in enumerate(values)}


def fault_of(value: Value) -> str | None:
    """Explain why this cannot be a value: it has no hash or identity, or is not finite."""
    if isinstance(value, int | float | Fraction) and not _is_finite(value):
        return f"a number must be finite, and fit a float; got {cut(repr(value))}."
    try:
        hash(value)
        identity(value)
    except TypeError:
        return f"a value must be hashable, such as a number, a text or a tuple; got {value!r}."
    except (ValueError, RecursionError) as error:
        return f"a value is a number, a text or a tuple of such; of {cut(repr(value))}: {error}."
    return None


def _is_finite(value: float | Fraction) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def plain(value: Value) -> Value:
    """Return NumPy's numbers as Python's, and a whole Fraction as its int; all else as it is."""
    if isinstance(value, np.generic):
        return value.item()
    is_whole = isinstance(value, Fraction) and value.denominator == 1
    return int(value) if is_whole else value


def mean_of_one(value: Value) -> Value:
    """Return an aggregate's result for one value: exact numbers, and symbols as they are."""
    return plain(Fraction(value)) if is_number(value) else value


def are_numbers(values: Iterable[Value]) -> bool:
    """Are all of these numbers, truth values included?"""
    return all(map(is_number, values))


def is_number(value: Value) -> bool:
    """Is this a number, or a truth value?"""
    return isinstance(value, int | float | Rational)


def cut(words: str) -> str:
    """Cut long words."""
    if len(words) <= _MAX_WORDS:
        return words
    return f"{words[: _MAX_WORDS - 1]}…"
