"""What a step computes, written down: every value is a term over numbers that lie in buffers.

A term is a number, a read of a buffer at an address that is linear in the value's indices, an
operation on terms, or a sum (or maximum) of a term over further indices. Views (transpose, expand,
slice, …) therefore cost nothing: they only change the addresses. Each element of a buffer stands
for one number of each lane.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor


class NotExpressible(Exception):
    """These models cannot be computed so; the message is the reason, without a full stop."""


class CompilationFailed(NotExpressible):
    """Compilation failed: the compiler, or its result."""


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
class ElementRead:
    """The element at offset + Σ index · stride; with `where`, its number times `pick` is added to
    the address.

    pick_size: how many different numbers `where` may be, from 0. row: what each row of a loop over
    rows adds.
    """

    buffer: Buffer
    strides: tuple[int, ...]
    offset: int = 0
    where: "ElementRead | None" = None
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


Term = ElementRead | Scalar | Apply | Reduce


@dataclass(frozen=True)
class Value:
    """A tensor of one member: its shape and the term of an element."""

    shape: tuple[int, ...]
    term: Term
    is_bool: bool = False

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


def value_of(shape: Sequence[int], term: Term, *, is_bool: bool = False) -> Value:
    """Make a value of what is stored, truths as numbers."""
    if is_bool:
        term = Apply("is_true", (term,))
    return Value(tuple(shape), term, is_bool)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a tensor that lies row by row."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def reads(term: Term) -> Iterator[ElementRead]:
    """Go through all reads of a term, also those that only pick an address."""
    if isinstance(term, ElementRead):
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
    if isinstance(term, Apply):
        return any(map(has_reduce, term.arguments))
    return isinstance(term, Reduce)


def with_reads(term: Term, change: Callable[[ElementRead], ElementRead]) -> Term:
    """Change all reads, those that pick an address before those they pick for."""
    if isinstance(term, ElementRead):
        if term.where is not None:
            term = replace(term, where=change(term.where))
        return change(term)
    if isinstance(term, Apply):
        return replace(
            term, arguments=tuple(with_reads(argument, change) for argument in term.arguments)
        )
    if isinstance(term, Reduce):
        return replace(term, term=with_reads(term.term, change))
    return term


def viewed(value: Value, view: Callable[[Tensor], Tensor]) -> Value:
    """Apply one of PyTorch's views: it is asked what becomes of each read's strides.

    Raises:
        RuntimeError: there is no such view of one of them.
    """
    rank = len(value.shape)

    def changed(read: ElementRead) -> ElementRead:
        viewed = view(torch.empty_strided(value.shape, read.strides[:rank], device="meta"))
        strides = list(viewed.stride())
        for axis, size in enumerate(viewed.shape):
            if size <= 1:
                strides[axis] = 0
        offset = read.offset + int(viewed.storage_offset())
        return replace(read, strides=(*strides, *read.strides[rank:]), offset=offset)

    shape = tuple(view(torch.empty(value.shape, device="meta")).shape)
    return Value(shape, with_reads(value.term, changed), value.is_bool)


def permuted(value: Value, order: Sequence[int]) -> Value:
    """Put the axes into another order."""
    return viewed(value, lambda x: x.permute(tuple(order)))


def expanded(value: Value, shape: Sequence[int]) -> Value:
    """Repeat axes of size 1, and put new ones in front; -1 keeps a size."""
    if tuple(shape) == value.shape:
        return value
    try:
        return viewed(value, lambda x: x.expand(tuple(shape)))
    except RuntimeError:
        raise NotExpressible(f"{value.shape} cannot be repeated to {tuple(shape)}") from None


def sliced(value: Value, axis: int, start: int, size: int, step: int = 1) -> Value:
    """Keep `size` places of an axis, from `start` on."""
    axis %= len(value.shape)
    places = (*[slice(None)] * axis, slice(start, start + size * step, step))
    return viewed(value, lambda x: x[places])


def reshaped(value: Value, shape: Sequence[int]) -> Value | None:
    """Split and join axes; None where the addresses would no longer be linear, so that a copy is
    needed first."""
    try:
        return viewed(value, lambda x: x.view(tuple(shape)))
    except RuntimeError:
        return None


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that several shapes broadcast to."""
    try:
        return tuple(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
    except RuntimeError:
        texts = " and ".join(str(tuple(shape)) for shape in shapes)
        raise NotExpressible(f"shapes do not broadcast: {texts}") from None
