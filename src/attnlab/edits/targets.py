"""Targets: how an edit says where, and what that means in a model and in an input.

A target is a number (negative ones count from the end), a span "2..5" (both ends are in it; "2.."
and "..5" are open), a list of these, or None for everything. Layers, heads, rows and steps take the
word "all" too; among positions it is a token's name, as every other word is. Numbers of layers and
heads are known from the model; positions only while it reads.
"""

import operator
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from attnlab.errors import WrongUsage

ALL = "all"
Target: TypeAlias = int | str | Collection[int | str] | None
_NAMED = ("query", "key")  # positions, which go by their tokens' names too
_SPAN = re.compile(r"(-?\d{1,18})?\.\.(-?\d{1,18})?")
_LARGEST = 10**18
_MOST = 10_000  # things that a list may name


@dataclass(frozen=True)
class Span:
    """Everything from `low` to `high`, both in it; None is an open end. A number is its own span.

    >>> Span(3, 3), Span(-3, None)
    (3, '-3..')
    """

    low: int | None
    high: int | None

    @property
    def ends(self) -> list[int]:
        """The numbers that are written."""
        return [end for end in (self.low, self.high) if end is not None]

    def within(self, size: int) -> tuple[int, int]:
        """Return the first and last of `size` numbers that the span means, from the start.

        >>> Span(-3, None).within(10)
        (7, 9)
        """
        low = 0 if self.low is None else self.low
        high = size - 1 if self.high is None else self.high
        return low + size * (low < 0), high + size * (high < 0)

    def __repr__(self) -> str:
        if self.low == self.high:
            return repr(self.low)
        return f"'{self.low}..{self.high}'".replace("None", "")


Atom: TypeAlias = Span | str
"""One number, span or token's name."""


def normal(name: str, target: Any) -> int | str | tuple[int | str, ...] | None:
    """Return a target as an edit stores it: a number, a text, a tuple of these, or None for all.

    Raises:
        WrongUsage: it is none of what a target may be, or an empty list.
    """
    if isinstance(target, str):
        if not target:
            raise WrongUsage(f"{name}= is empty; leave it out for all.")
        return None if target == ALL and name not in _NAMED else target
    if target is None:
        return None
    kept = list(dict.fromkeys(_number_or_word(name, each) for each in _listed(target)))
    if not kept or None in kept:
        also = "a token's name" if name in _NAMED else "'all'"
        raise WrongUsage(
            f"{name}= takes a number, a list of numbers, a span such as '2..5', or {also}; got "
            f"{target!r:.80}."
        )
    if len(kept) > _MOST:
        raise WrongUsage(
            f"{name}= names {len(kept):,} things, the most are {_MOST:,}; say a span such "
            "as '2..5'."
        )
    return kept[0] if len(kept) == 1 else tuple(kept)  # type: ignore[arg-type]


def _listed(target: Any) -> Sequence[Any]:
    """Return what a target names: one thing or several."""
    if isinstance(target, set | frozenset):
        return sorted(target, key=lambda each: (isinstance(each, str), each))
    if hasattr(target, "tolist"):  # a tensor or an array
        target = target.tolist()
    return target if isinstance(target, Sequence) else [target]


def _number_or_word(name: str, value: Any) -> int | str | None:
    """Return one item of a target's list; None for what is no such thing."""
    if isinstance(value, str):
        return value if value and (value != ALL or name in _NAMED) else None
    if isinstance(value, bool):
        return None
    try:
        number = operator.index(value)
    except TypeError:
        return None
    return number if abs(number) < _LARGEST else None


def atoms_of(name: str, target: Target) -> list[Atom]:
    """Split a target into spans and, among positions, token names; None holds none."""
    if target is None:
        return []
    if isinstance(target, int | str):
        target = (target,)
    return [_atom(name, each) for each in target]


def _atom(name: str, given: int | str) -> Atom:
    if isinstance(given, int):
        return Span(given, given)
    span = _SPAN.fullmatch(given)
    if span is None:
        if name in _NAMED:
            return given
        hint = " Head 1 of layer 0 is layer=0, head=1." if name == "head" else ""
        raise WrongUsage(
            f"{name}= takes numbers, spans such as '2..5', or 'all'; got {given!r:.80}.{hint}"
        )
    low, high = (None if end is None else int(end) for end in span.groups())
    if low is None and high is None:
        raise WrongUsage(f"{name}='..' has no ends; leave {name}= out for all.")
    if low is not None and high is not None and (low < 0) == (high < 0) and low > high:
        raise WrongUsage(f"{name}={given!r} holds nothing; its first end is above its second.")
    return Span(low, high)


def counted_from_one(target: Any) -> Any:
    """Return a target that counts from 0 as one that counts from 1.

    >>> counted_from_one([0, "2.."])
    [1, '3..']
    """
    if isinstance(target, list):
        return [counted_from_one(each) for each in target]
    if isinstance(target, str):
        return re.sub(r"\d+", lambda end: str(int(end[0]) + 1), target)
    return target + 1 if isinstance(target, int) else target


def numbers(name: str, target: Target, size: int, where: str) -> list[int]:
    """Return the numbers from 0 to size - 1 that a target names, in its order.

    >>> numbers("head", (-1, "0..1"), 4, "layers.0.attention")
    [3, 0, 1]
    """
    if target is None:
        return list(range(size))
    found: list[int] = []
    for atom in atoms_of(name, target):
        assert isinstance(atom, Span)
        low, high = atom.within(size)
        if not 0 <= low <= high < size:
            there = f"{size} {name}s, 0 to {size - 1} (or -{size} to -1)"
            if size == 1:
                there = f"one {name}, number 0"
            raise WrongUsage(f"{name}={atom!r} is out of range: {where} has {there}.")
        found += range(low, high + 1)
    return list(dict.fromkeys(found))
