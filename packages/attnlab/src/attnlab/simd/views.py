"""Rules of what moves numbers but changes none: views, joining, padding."""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from attnlab.simd.program import RULES, Operand, StepProgram, is_zero, rule, shape_of
from attnlab.simd.terms import (
    ElementRead,
    NotExpressible,
    Value,
    contiguous,
    sliced,
    value_of,
    viewed,
)

aten = torch.ops.aten


@rule(aten.view.default, aten.reshape.default)
def _view(program: StepProgram, x: Value, shape: Sequence[int]) -> Value:
    return program.view(x, list(shape))


@rule(aten.alias.default, aten.lift_fresh_copy.default, aten.clone.default)
def _same(program: StepProgram, x: Value, **_: Any) -> Value:
    return x


@rule(aten.full_like.default)
def _full_like(
    program: StepProgram, x: Value, number: float, *, dtype: torch.dtype | None = None, **_: Any
) -> Tensor:
    return torch.full(x.shape, number, dtype=dtype or torch.float64)


@rule(aten._to_copy.default)
def _to_copy(
    program: StepProgram, x: Value, *, dtype: torch.dtype | None = None, **_: Any
) -> Value:
    is_bool = dtype == torch.bool
    if not is_bool and dtype not in (None, torch.float32, torch.float64):
        raise NotExpressible(f"numbers are turned into {dtype}")
    if x.is_bool == is_bool:
        return x
    return program.apply("is_true" if is_bool else "as_number", x, is_bool=is_bool)


def _view_rule(operation: Any) -> Callable[..., Value]:
    def apply(program: StepProgram, x: Value, *arguments: Any, **options: Any) -> Value:
        return viewed(x, lambda tensor: operation(tensor, *arguments, **options))

    return apply


for _operation in (
    aten.permute.default,
    aten.expand.default,
    aten.unsqueeze.default,
    aten.squeeze.dims,
    aten.slice.Tensor,
    aten.select.int,
):
    RULES[_operation] = _view_rule(_operation)


@rule(aten.split_with_sizes.default)
def _split(program: StepProgram, x: Value, sizes: Sequence[int], axis: int = 0) -> list[Value]:
    ends = accumulate(sizes)
    return [sliced(x, axis, end - size, size) for end, size in zip(ends, sizes, strict=True)]


@rule(aten.cat.default)
def _cat(program: StepProgram, parts: Sequence[Operand], axis: int = 0) -> Value:
    values = [value for value in map(program.value, parts) if value.size]
    axis %= len(values[0].shape)
    shape = list(values[0].shape)
    shape[axis] = sum(value.shape[axis] for value in values)
    whole = Value(tuple(shape), ElementRead(program.buffer(math.prod(shape)), contiguous(shape)))
    start = 0
    for value in values:
        _store(program, value, whole, axis, start)
        start += value.shape[axis]
    return value_of(shape, whole.term, is_bool=values[0].is_bool)


@rule(aten.slice_scatter.default)
def _slice_scatter(
    program: StepProgram,
    x: Operand,
    part: Operand,
    axis: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    if not is_zero(x):
        raise NotExpressible("numbers are written into a part of a tensor")
    places = range(shape_of(x)[axis])[start:end:step]
    return _padded(program, program.value(part), shape_of(x), axis, places.start, step)


@rule(aten.constant_pad_nd.default)
def _pad(program: StepProgram, x: Value, widths: Sequence[int], value: float = 0) -> Value:
    if value != 0:
        raise NotExpressible("a tensor is padded with other numbers than 0")
    for pair in range(len(widths) // 2):
        axis = len(x.shape) - 1 - pair
        before, after = widths[2 * pair : 2 * pair + 2]
        # Negative widths cut off.
        first, last = max(-before, 0), max(-after, 0)
        x = sliced(x, axis, first, x.shape[axis] - first - last)
        shape = list(x.shape)
        shape[axis] += max(before, 0) + max(after, 0)
        x = _padded(program, x, shape, axis, max(before, 0))
    return x


def _padded(
    program: StepProgram, x: Value, shape: Sequence[int], axis: int, start: int, step: int = 1
) -> Value:
    """Put x among zeros."""
    if tuple(shape) == x.shape:
        return x
    whole = Value(tuple(shape), program.zeros(tuple(shape)))
    _store(program, x, whole, axis, start, step)
    return whole


def _store(
    program: StepProgram, x: Value, whole: Value, axis: int, start: int, step: int = 1
) -> None:
    place = sliced(whole, axis, start, x.shape[axis], step).term
    assert isinstance(place, ElementRead)
    program.store(x, place)
