"""What is known of numbers before they are computed: where a constant mask blocks, weights are 0,
and need no work."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from attnlab.train.layouts.simd.program import Stage
from attnlab.train.layouts.simd.terms import Apply, Buffer, Read, Reduce, Scalar, Term, reads

__all__ = ["Facts", "Known"]

_Numbers = NDArray[np.float64]  # NaN where nothing is known

_LARGEST = 4_096  # elements of a stage that is looked at


class Facts:
    """What is known of the terms of one stage, element by element; of a sum's terms with the sum's
    axes after."""

    def __init__(self, sizes: Sequence[int], rank: int) -> None:
        self._sizes, self._rank = tuple(sizes), rank
        self._numbers: dict[int, _Numbers] = {}

    def shape(self, *, is_inside: bool) -> tuple[int, ...]:
        """Return the sizes of a term's indices: outside a sum, or inside."""
        return self._sizes if is_inside else self._sizes[: self._rank]

    def note(self, term: Term, numbers: _Numbers, *, is_inside: bool) -> _Numbers:
        """Note what is known of a term."""
        self._numbers[id(term)] = np.broadcast_to(numbers, self.shape(is_inside=is_inside))
        return self._numbers[id(term)]

    def at(self, term: Term, point: Sequence[int], tile: Sequence[int]) -> float | None:
        """Return the number that a term is at a point of the tile, wherever the loops stand; None
        if not known."""
        numbers = self._numbers.get(id(term))
        if numbers is None:
            return None
        found = numbers[
            tuple(slice(i, None, step) for i, step in zip(point, tile, strict=True))[: numbers.ndim]
        ]
        return float(found.flat[0]) if bool((found == found.flat[0]).all()) else None

    def uneven(self) -> set[int]:
        """Return the axes along which it changes whether something is known."""
        axes = range(len(self._sizes))
        each = self._numbers.values()
        return {
            axis
            for axis in axes
            for numbers in each
            if axis < numbers.ndim
            and bool((np.isnan(numbers) != np.isnan(numbers.take([0], axis))).any())
        }


class Known:
    """What is known of buffers, stage by stage; of those that one stage alone fills."""

    def __init__(self, stages: Iterable[Stage]) -> None:
        self._writers = Counter(stage.target.buffer for stage in stages)
        self._held: dict[Buffer, _Numbers] = {}

    def of(self, stage: Stage, sizes: Sequence[int]) -> Facts | None:
        """Find what is known of a stage, and keep it for the stages after; None if that is
        nothing."""
        facts = Facts(sizes, len(stage.shape))
        if math.prod(sizes) > _LARGEST or not any(
            self._is_known(read) for read in reads(stage.term)
        ):
            return None
        numbers = self._look(stage.term, facts, is_inside=False)
        if np.isnan(numbers).all() and not facts.uneven():
            return None
        target = stage.target
        if self._writers[target.buffer] == 1 and not (stage.is_sum or target.row or target.where):
            held = np.full(target.buffer.size, np.nan)
            held[_addresses(target, stage.shape)] = numbers
            self._held[target.buffer] = held
        return facts

    def _is_known(self, read: Read) -> bool:
        return read.buffer in self._held or read.buffer.values is not None

    def _look(self, term: Term, facts: Facts, *, is_inside: bool) -> _Numbers:
        return facts.note(term, self._found(term, facts, is_inside=is_inside), is_inside=is_inside)

    def _found(self, term: Term, facts: Facts, *, is_inside: bool) -> _Numbers:
        nothing = np.array(np.nan)
        if isinstance(term, Scalar):
            return np.array(term.value)
        if isinstance(term, Read):
            held = self._held.get(term.buffer)
            if held is None or term.row or term.where is not None:
                return nothing
            return held[_addresses(term, facts.shape(is_inside=is_inside))]
        if isinstance(term, Reduce):
            inner = self._look(term.term, facts, is_inside=True)
            neutral = 0.0 if term.name == "add" else -math.inf
            axes = tuple(range(inner.ndim - len(term.sizes), inner.ndim))
            return np.where((inner == neutral).all(axes), neutral, np.nan)
        if (
            term.name == "is_true"
            and isinstance(mask := term.arguments[0], Read)
            and mask.buffer.values is not None
        ):
            if mask.row or mask.where is not None:
                return nothing
            values: _Numbers = mask.buffer.values.double().numpy()
            return np.where(
                values[_addresses(mask, facts.shape(is_inside=is_inside))] != 0, 1.0, 0.0
            )
        return _combined(
            term, [self._look(each, facts, is_inside=is_inside) for each in term.arguments]
        )


def _combined(term: Apply, x: Sequence[_Numbers]) -> _Numbers:
    """Say what is known of an operation's result, for the few operations by which a mask
    travels."""
    if term.name == "choose":
        return np.where(np.isnan(x[0]), np.nan, np.where(x[0] != 0, x[1], x[2]))
    if term.name == "mul":
        return np.where((x[0] == 0) | (x[1] == 0), 0.0, np.nan)
    if term.name == "sub":
        return np.where(
            x[0] == -math.inf, -math.inf, np.where((x[0] == 0) & (x[1] == 0), 0.0, np.nan)
        )
    if term.name == "exp":
        return np.where(x[0] == -math.inf, 0.0, np.nan)
    return np.array(np.nan)


def _addresses(read: Read, shape: Sequence[int]) -> NDArray[np.int64]:
    found = np.full((1,) * len(shape), read.offset)
    for axis, (size, step) in enumerate(zip(shape, read.strides, strict=True)):
        found = found + (np.arange(size) * step).reshape(
            [-1 if i == axis else 1 for i in range(len(shape))]
        )
    return found
