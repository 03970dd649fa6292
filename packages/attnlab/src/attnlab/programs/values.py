"""The values of a program: which are possible, and which are the same.

Python calls True, 1 and 1.0 equal, and 0.0 and -0.0, alone and in tuples; str() and many other maps
tell them apart. So nothing here is looked up by equality: `value_key` is the same of two values
only if no map can tell them apart.
"""

import math
from collections.abc import Iterable
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np

Value = Any
"""What a position holds: a number (int, Fraction, float, bool), a text, None, a tuple of such."""

_EXACT = (type(None), bool, int, str, Fraction)  # equal ones of a type are the same
_MAX_WORDS = 160  # letters of an expression


def value_key(value: Value) -> Any:
    """Return a key that two values share only if they are the same.

    >>> value_key((True, 0.0)) == value_key((True, 0.0)), value_key((True,)) == value_key((1,))
    (True, False)

    Raises:
        TypeError: it is neither a number, a text, None nor a tuple of such.
    """
    if type(value) in _EXACT:
        return type(value), value
    if type(value) is float and value == value:  # not NaN
        return float, repr(value)  # 0.0 and -0.0 are equal, and not written alike
    if type(value) is tuple:
        return tuple, tuple(map(value_key, value))
    raise TypeError(f"{type(value).__name__} is no class of values")


def numbered(values: Iterable[Value]) -> dict[Any, int]:
    """Number values from 0, by their identities."""
    return {value_key(value): place for place, value in enumerate(values)}


def fault_of(value: Value) -> str | None:
    """Explain why this cannot be a value; None if it can."""
    if isinstance(value, int | float | Fraction):
        try:
            is_finite = math.isfinite(value)
        except OverflowError:
            is_finite = False
        if not is_finite:
            return f"a number must be finite, and fit a float; got {cut_words(repr(value))}."
    try:
        value_key(value)
    except (TypeError, RecursionError):
        return (
            f"a value is a number, a text, None or a tuple of such; got {cut_words(repr(value))}."
        )
    return None


def plain_number(value: Value) -> Value:
    """Return NumPy's numbers as Python's, and a whole Fraction as its int; all else as it is."""
    if isinstance(value, np.generic):
        return value.item()
    is_whole = isinstance(value, Fraction) and value.denominator == 1
    return int(value) if is_whole else value


def mean_of_one(value: Value) -> Value:
    """Return an aggregate's result for one value: exact numbers, and symbols as they are."""
    return plain_number(Fraction(value)) if is_program_number(value) else value


def are_numbers(values: Iterable[Value]) -> bool:
    """Are all of these numbers, truth values included?"""
    return all(map(is_program_number, values))


def is_program_number(value: Value) -> bool:
    """Is this a number, or a truth value?"""
    return isinstance(value, int | float | Rational)


def cut_words(words: str) -> str:
    """Cut long words."""
    if len(words) <= _MAX_WORDS:
        return words
    return f"{words[: _MAX_WORDS - 1]}…"
