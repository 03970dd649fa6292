"""Targets: how an edit says where, and what that means in a model and in an input.

A target is a number (negative ones count from the end), a span "2..5" (both ends are in it; "2.."
and "..5" are open), a list of these, or None for everything. Layers, heads, rows and steps take the
word "all" too; among positions it is a token's name, as every other word is. Numbers of layers and
heads are known from the model; positions only while it reads.
"""

import operator
import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, TypeAlias

from attnlab.errors import WrongUsage

__all__ = [
    "ALL",
    "Atom",
    "Span",
    "Target",
    "atoms_of",
    "bounds",
    "counted_from_one",
    "ends_of",
    "has_names",
    "is_all",
    "normal",
    "numbers",
]

ALL = "all"
Target: TypeAlias = int | str | Collection[int | str] | None
_NAMED = ("query", "key")  # positions, which go by their tokens' names too
_SPAN = re.compile(r"(-?\d{1,18})?\.\.(-?\d{1,18})?")
_LARGEST = 10**18
_MOST = 10_000  # things that a list may name


class Span(NamedTuple):
    """Everything from `low` to `high`, both in it; None is an open end."""

    low: int | None
    high: int | None

    def __str__(self) -> str:
        return f"{'' if self.low is None else self.low}..{'' if self.high is None else self.high}"


Atom: TypeAlias = int | str | Span


def is_all(target: Target) -> bool:
    """Say whether a target leaves nothing out."""
    return target is None


def normal(name: str, target: Any) -> int | str | tuple[int | str, ...] | None:
    """Return a target as an edit stores it: a number, a text, a tuple of these, or None for all.

    Raises:
        WrongUsage: it is none of what a target may be, or an empty list.
    """
    if target is None or (target == ALL and isinstance(target, str) and name not in _NAMED):
        return None
    if isinstance(target, str):
        if not target:
            raise WrongUsage(f"{name}= is empty; leave it out for all.")
        return target
    number = _integer(target)
    if number is not None:
        return number
    if isinstance(target, set | frozenset):
        target = sorted(target, key=lambda each: (isinstance(each, str), each))
    if isinstance(target, Sequence) or hasattr(target, "tolist"):
        listed = tuple(target if isinstance(target, Sequence) else target.tolist())
        kept = tuple(
            dict.fromkeys(
                each if isinstance(each, str) and each else _integer(each) for each in listed
            )
        )
        if len(kept) > _MOST:
            raise WrongUsage(
                f"{name}= names {len(kept):,} things, the most are {_MOST:,}; say a span such "
                "as '2..5'."
            )
        if kept and None not in kept and (ALL not in kept or name in _NAMED):
            return kept[0] if len(kept) == 1 else kept  # type: ignore[return-value]
    also = "a token's name" if name in _NAMED else "'all'"
    raise WrongUsage(
        f"{name}= takes a number, a list of numbers, a span such as '2..5', or {also}; got "
        f"{target!r:.80}."
    )


def atoms_of(name: str, target: Target, *, may_be_named: bool) -> tuple[Atom, ...]:
    """Split a target into numbers, spans and, where allowed, token names."""
    assert target is not None
    found: list[Atom] = []
    for each in (target,) if isinstance(target, int | str) else target:
        if isinstance(each, int):
            found.append(each)
        elif span := _SPAN.fullmatch(each):
            low, high = (None if end is None else int(end) for end in span.groups())
            if low is None and high is None:
                raise WrongUsage(f"{name}='..' has no ends; leave {name}= out for all.")
            if low is not None and high is not None and (low < 0) == (high < 0) and low > high:
                raise WrongUsage(
                    f"{name}={each!r} holds nothing; its first end must not be above its second."
                )
            found.append(Span(low, high))
        elif may_be_named:
            found.append(each)
        else:
            raise WrongUsage(
                f"{name}= takes numbers, spans such as '2..5', or 'all'; got {each!r:.80}."
                + (" Head 1 of layer 0 is layer=0, head=1." if name == "head" else "")
            )
    return tuple(found)


def ends_of(atom: Atom) -> list[int]:
    """Return the numbers in an atom; a name has none."""
    if isinstance(atom, Span):
        return [end for end in atom if end is not None]
    return [atom] if isinstance(atom, int) else []


def bounds(atom: Atom, size: int) -> tuple[int, int]:
    """Return the first and last of `size` numbers that a number or span means, from the start.

    >>> bounds(Span(-3, None), 10)
    (7, 9)
    """
    assert not isinstance(atom, str)
    low, high = (atom, atom) if isinstance(atom, int) else atom
    low = 0 if low is None else low
    high = size - 1 if high is None else high
    return low + size * (low < 0), high + size * (high < 0)


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


def has_names(target: Target) -> bool:
    """Say whether a target holds a token's name."""
    return any(type(atom) is str for atom in atoms_of("", target, may_be_named=True))


def numbers(name: str, target: Target, size: int, where: str) -> list[int]:
    """Return the numbers from 0 to size - 1 that a target names, in its order.

    >>> numbers("head", (-1, "0..1"), 4, "layers.0.attention")
    [3, 0, 1]
    """
    if is_all(target):
        return list(range(size))
    found: list[int] = []
    for atom in atoms_of(name, target, may_be_named=False):
        low, high = bounds(atom, size)
        if not 0 <= low <= high < size:
            raise WrongUsage(
                f"{name}={_shown(atom)} is out of range: {where} has {_range(name, size)}."
            )
        found += range(low, high + 1)
    return list(dict.fromkeys(found))


def _range(name: str, size: int) -> str:
    if size == 1:
        return f"one {name}, number 0"
    return f"{size} {name}s, 0 to {size - 1} (or -{size} to -1)"


def _shown(atom: Any) -> str:
    return f"'{atom}'" if isinstance(atom, Span) else repr(atom)


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        number = operator.index(value)
    except TypeError:
        return None
    return number if -_LARGEST < number < _LARGEST else None
