"""What a step computes, written down: every value is a term over numbers that lie in buffers.

A term is a number, a read of a buffer at an address that is linear in the value's indices, an
operation on terms, or a sum (or maximum) of a term over further indices. Views (transpose, expand,
slice, …) therefore cost nothing: they only change the addresses. Each element of a buffer stands
for one number of each lane.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from attnlab.train.layouts.layout import NotExpressible

__all__ = [
    "Apply", "Buffer", "BufferKind", "Read", "Reduce", "Scalar", "Term", "Value", "broadcast",
    "contiguous", "expanded", "has_reduce", "permuted", "reads", "reshaped", "sliced", "with_reads",
]  # fmt: skip

BufferKind = Literal["parameter", "member", "batch", "constant", "temporary", "gradient", "loss"]


@dataclass(eq=False)
class Buffer:
    """Memory for `size` elements. Only a constant has `values`; what it holds is the same in all
    lanes."""

    kind: BufferKind
    size: int
    start: int = 0
    values: Tensor | None = None


@dataclass(frozen=True)
class Read:
    """The element at offset + Σ index · stride; with `where`, its number times `pick` is added to
    the address.

    pick_size: how many different numbers `where` may be, from 0. row: what each row of a loop over
    rows adds.
    """

    buffer: Buffer
    strides: tuple[int, ...]
    offset: int = 0
    where: "Read | None" = None
    pick: int = 0
    pick_size: int = 1
    row: int = 0


@dataclass(frozen=True)
class Scalar:
    """A number."""

    value: float


@dataclass(frozen=True)
class Apply:
    """An operation, by its name in `arithmetic.h`."""

    name: str
    arguments: tuple["Term", ...]


@dataclass(frozen=True)
class Reduce:
    """The sum ("add") or maximum ("max") of a term over further indices, which come after the
    value's own."""

    name: Literal["add", "max"]
    term: "Term"
    sizes: tuple[int, ...]


Term = Read | Scalar | Apply | Reduce


@dataclass(frozen=True)
class Value:
    """A tensor of one member: its shape and the term of an element.

    blocked: where it is known to be -inf, if that is known.
    """

    shape: tuple[int, ...]
    term: Term
    is_bool: bool = False
    blocked: "Value | Tensor | None" = None

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a tensor that lies row by row."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def reads(term: Term) -> Iterator[Read]:
    """Go through all reads of a term, also those that only pick an address."""
    if isinstance(term, Read):
        yield term
        if term.where is not None:
            yield term.where
    elif isinstance(term, Apply):
        for argument in term.arguments:
            yield from reads(argument)
    elif isinstance(term, Reduce):
        yield from reads(term.term)


def has_reduce(term: Term) -> bool:
    """Say whether a term sums over indices of its own."""
    return isinstance(term, Reduce) or (
        isinstance(term, Apply) and any(map(has_reduce, term.arguments))
    )


Strides = tuple[int, ...]


def with_reads(term: Term, change: Callable[[Read], Read | None]) -> Term | None:
    """Change all reads, those that pick an address before those they pick for; None if one cannot
    be changed."""
    if isinstance(term, Read):
        if term.where is not None:
            where = change(term.where)
            return None if where is None else change(replace(term, where=where))
        return change(term)
    if isinstance(term, Apply):
        arguments = [with_reads(argument, change) for argument in term.arguments]
        whole = tuple(argument for argument in arguments if argument is not None)
        return replace(term, arguments=whole) if len(whole) == len(arguments) else None
    if isinstance(term, Reduce):
        inner = with_reads(term.term, change)
        return None if inner is None else replace(term, term=inner)
    return term


Change = Callable[[Strides], tuple[Strides, int] | None]
"""A view: strides -> strides, and what is added to the offset; None where there is no such view."""


def _viewed(value: Value, shape: Sequence[int], change: Change) -> Value | None:
    rank = len(value.shape)

    def changed(read: Read) -> Read | None:
        found = change(read.strides[:rank])
        return found and replace(
            read, strides=found[0] + read.strides[rank:], offset=read.offset + found[1]
        )

    term = with_reads(value.term, changed)
    return None if term is None else Value(tuple(shape), term, value.is_bool)


def permuted(value: Value, order: Sequence[int]) -> Value:
    """Put the axes into another order."""
    order = [axis % len(value.shape) for axis in order]
    view = _viewed(
        value,
        [value.shape[i] for i in order],
        lambda strides: (tuple(strides[i] for i in order), 0),
    )
    assert view is not None
    return view


def expanded(value: Value, shape: Sequence[int]) -> Value:
    """Repeat axes of size 1, and put new ones in front; -1 keeps a size."""
    new = len(shape) - len(value.shape)
    old = (1,) * new + value.shape
    full = [had if size == -1 else size for size, had in zip(shape, old, strict=True)]
    if any(had not in (1, size) for size, had in zip(full, old, strict=True)):
        raise NotExpressible(f"{tuple(value.shape)} cannot be repeated to {tuple(full)}")

    def change(strides: Strides) -> tuple[Strides, int]:
        padded = (0,) * new + strides
        return tuple(0 if had == 1 else s for s, had in zip(padded, old, strict=True)), 0

    view = _viewed(value, full, change)
    assert view is not None
    return view


def sliced(value: Value, axis: int, start: int, size: int, step: int = 1) -> Value:
    """Keep `size` places of an axis, from `start` on."""
    axis %= len(value.shape)

    def change(strides: Strides) -> tuple[Strides, int]:
        return (*strides[:axis], strides[axis] * step, *strides[axis + 1 :]), strides[axis] * start

    view = _viewed(value, [*value.shape[:axis], size, *value.shape[axis + 1 :]], change)
    assert view is not None
    return view


def reshaped(value: Value, shape: Sequence[int]) -> Value | None:  # noqa: C901
    """Split and join axes; None where the addresses would no longer be linear, so that a copy is
    needed first."""
    if -1 in shape:
        known = math.prod(size for size in shape if size != -1)
        shape = [value.size // known if size == -1 else size for size in shape]
    if tuple(shape) == value.shape:
        return value
    if value.size <= 1:
        return _viewed(value, shape, lambda strides: ((0,) * len(shape), 0))
    refined = _refined([s for s in value.shape if s != 1], [s for s in shape if s != 1])
    if refined is None:
        is_whole = isinstance(value.term, Read) and value.term.strides == contiguous(value.shape)
        return _viewed(value, shape, lambda strides: (contiguous(shape), 0)) if is_whole else None
    split, joined = refined

    def change(strides: Strides) -> tuple[Strides, int] | None:
        own = [stride for stride, size in zip(strides, value.shape, strict=True) if size != 1]
        atoms = []
        for stride, sizes in zip(own, split, strict=True):
            atoms += [
                (size, stride * step) for size, step in zip(sizes, contiguous(sizes), strict=True)
            ]
        found, parts = [], iter(joined)
        for size in shape:
            if size == 1:
                found.append(0)
                continue
            taken = [atoms.pop(0) for _ in next(parts)]
            for (_, outer), (inner_size, inner) in itertools.pairwise(taken):
                if outer != inner * inner_size:
                    return None
            found.append(taken[-1][1])
        return tuple(found), 0

    return _viewed(value, shape, change)


def _refined(old: list[int], new: list[int]) -> tuple[list[list[int]], list[list[int]]] | None:
    """Cut both shapes into the same pieces: for each axis its pieces."""
    split: list[list[int]] = [[] for _ in old]
    joined: list[list[int]] = [[] for _ in new]
    i = j = 0
    left, right = old[0], new[0]
    while True:
        piece = min(left, right)
        if left % piece or right % piece:
            return None
        split[i].append(piece)
        joined[j].append(piece)
        left, right = left // piece, right // piece
        if left == 1:
            i += 1
        if right == 1:
            j += 1
        if i == len(old) or j == len(new):
            return split, joined
        left = old[i] if left == 1 else left
        right = new[j] if right == 1 else right


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that several shapes broadcast to."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    found = tuple(
        next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True)
    )
    if any(
        size not in (1, whole) for shape in padded for size, whole in zip(shape, found, strict=True)
    ):
        raise NotExpressible(
            f"shapes do not broadcast: {' and '.join(str(tuple(shape)) for shape in shapes)}"
        )
    return found
