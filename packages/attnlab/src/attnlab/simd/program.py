"""A program: stages in order, each a nest of loops that fills one buffer."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from attnlab.errors import not_none
from attnlab.simd.terms import (
    Apply,
    Buffer,
    BufferKind,
    ElementRead,
    Reduce,
    Scalar,
    Term,
    Value,
    broadcast,
    contiguous,
    expanded,
    has_reduce,
    permuted,
    reshaped,
    value_of,
)

Operand = Value | Tensor | float
"""What an operation takes: a value, or what is known already."""

_Rule = TypeVar("_Rule", bound=Callable[..., Any])

RULES: dict[Any, Callable[..., Any]] = {}
"""How one of PyTorch's operations becomes terms: rule(program, *arguments), whose arguments are
values or what is known; it returns values or tensors."""


def rule(*operations: Any) -> Callable[[_Rule], _Rule]:
    """Register the rule of some operations."""

    def register(function: _Rule) -> _Rule:
        RULES.update(dict.fromkeys(operations, function))
        return function

    return register


def shape_of(x: Operand) -> tuple[int, ...]:
    """Return the shape of an operand."""
    return tuple(x.shape) if isinstance(x, Value | Tensor) else ()


def is_zero(x: Operand) -> bool:
    """Is it known to be zeros?"""
    return isinstance(x, Tensor) and not bool(x.any())


@dataclass(eq=False)
class Stage:
    """Fill (or, with is_sum, add to) the elements of a buffer: target[index] = term[index], for
    each index of shape."""

    shape: tuple[int, ...]
    target: ElementRead
    term: Term
    is_sum: bool = False


@dataclass
class StepProgram:
    """Buffers and stages, written by the operations one after the other."""

    stages: list[Stage] = field(default_factory=list)
    _constants: dict[tuple[object, ...], Buffer] = field(default_factory=dict)

    def value(self, x: Operand) -> Value:
        """Make a value of what is known: a scalar where all elements are equal, else a constant
        buffer."""
        if isinstance(x, Value):
            return x
        if not isinstance(x, Tensor):
            return Value((), Scalar(float(x)))
        shape, is_bool = tuple(x.shape), x.dtype == torch.bool
        if x.numel():
            x = _without_copies(x)
        if x.numel() == 1:
            return value_of(shape, Scalar(float(x)), is_bool=is_bool)
        return value_of(shape, self._constant(x, shape), is_bool=is_bool)

    def _constant(self, x: Tensor, shape: tuple[int, ...]) -> Term:
        key = (x.dtype, tuple(x.shape), x.contiguous().numpy().tobytes())
        if key not in self._constants:
            self._constants[key] = Buffer("constant", x.numel(), values=x.flatten())
        place = ElementRead(self._constants[key], contiguous(x.shape))
        return expanded(Value(tuple(x.shape), place), shape).term

    def apply(self, name: str, *operands: Operand, is_bool: bool = False) -> Value:
        """Combine elements, with broadcasting; at most one operand goes on as an unfinished sum."""
        values = list(map(self.value, operands))
        shape = broadcast(*(value.shape for value in values))
        arguments, has_sum = [], False
        for value in values:
            is_sum = has_reduce(value.term)
            # What is computed is computed once, not once for each place that it is repeated at.
            is_repeated = value.size < math.prod(shape) and not _is_plain(value.term)
            if is_repeated or (is_sum and has_sum):
                value = self.stored(value)
            has_sum = has_sum or is_sum
            arguments.append(expanded(value, shape).term)
        return Value(shape, Apply(name, tuple(arguments)), is_bool)

    def reduce(
        self, name: Literal["add", "max"], x: Value, axes: Sequence[int] | None, *, keep: bool
    ) -> Value:
        """Sum over axes (of none named, over all), or take the maximum."""
        if not x.shape:
            return x
        if has_reduce(x.term):
            x = self.stored(x)
        all_axes, kept_shape = range(len(x.shape)), list(x.shape)
        summed = sorted(all_axes[axis] for axis in axes or all_axes)
        kept = [axis for axis in all_axes if axis not in summed]
        turned = permuted(x, kept + summed)
        shape, sizes = turned.shape[: len(kept)], turned.shape[len(kept) :]
        value = Value(shape, Reduce(name, turned.term, sizes))
        if not keep:
            return value
        for axis in summed:
            kept_shape[axis] = 1
        return self.view(value, kept_shape)

    def product(self, a: Operand, b: Operand) -> Value:
        """Multiply matrices, (..., m, k) and (..., k, n) with the same leading axes."""
        left, right = self.operand(a), self.operand(b)
        *lead, m, k = left.shape
        n = right.shape[-1]
        left = expanded(self.view(left, [*lead, m, 1, k]), [*lead, m, n, k])
        turned = permuted(right, [*range(len(lead)), -1, -2])
        right = expanded(self.view(turned, [*lead, 1, n, k]), [*lead, m, n, k])
        return Value((*lead, m, n), Reduce("add", Apply("mul", (left.term, right.term)), (k,)))

    def operand(self, x: Operand) -> Value:
        """Make sure that a value is read, not computed, since it is needed again and again."""
        value = self.value(x)
        return value if isinstance(value.term, ElementRead | Scalar) else self.stored(value)

    def view(self, x: Value, shape: list[int]) -> Value:
        """Reshape, by a copy if need be."""
        view = reshaped(x, shape)
        if view is None:
            view = reshaped(self.stored(x), shape)
        return not_none(view)

    def stored(self, x: Value, kind: BufferKind = "temporary") -> Value:
        """Compute a value into a buffer of its own, and return the reading of it."""
        buffer = self.buffer(x.size, kind)
        place = ElementRead(buffer, contiguous(x.shape))
        self.store(x, place)
        return value_of(x.shape, place, is_bool=x.is_bool)

    def store(self, x: Value, place: ElementRead, *, is_sum: bool = False) -> None:
        """Compute a value into a place."""
        term = x.term
        if x.is_bool:
            term = Apply("as_number", (term,))
        if x.size:
            self.stages.append(Stage(x.shape, place, term, is_sum))

    def buffer(self, size: int, kind: BufferKind = "temporary") -> Buffer:
        """Make a buffer."""
        return Buffer(kind, max(size, 1))

    def zeros(self, shape: tuple[int, ...]) -> ElementRead:
        """Make a buffer of zeros, to be written in parts or added to."""
        place = ElementRead(self.buffer(math.prod(shape)), contiguous(shape))
        self.store(Value(shape, Scalar(0.0)), place)
        return place


def _without_copies(x: Tensor) -> Tensor:
    """Keep one place of each axis along which nothing changes."""
    for axis in range(x.dim()):
        first = x.narrow(axis, 0, 1)
        if bool((x == first).all()):
            x = first
    return x


def _is_plain(term: Term) -> bool:
    if isinstance(term, Apply):
        return all(isinstance(argument, ElementRead) for argument in term.arguments)
    return isinstance(term, ElementRead | Scalar)
