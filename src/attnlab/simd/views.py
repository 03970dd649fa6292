"""Rules of what moves numbers but changes none: views, joining, padding."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from attnlab.simd.program import Operand, Program
from attnlab.simd.rules import Rules
from attnlab.simd.terms import (
    Apply,
    NotExpressible,
    Read,
    Value,
    contiguous,
    sliced,
    viewed,
)

aten = torch.ops.aten
RULES = Rules()


@RULES.of(aten.view.default, aten._unsafe_view.default, aten.reshape.default)
def _view(program: Program, x: Value, shape: Sequence[int]) -> Value:
    return program.view(x, list(shape))


@RULES.of(aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default, aten.clone.default)
def _same(program: Program, x: Value, **_: Any) -> Value:
    return x


@RULES.of(aten._to_copy.default)
def _to_copy(program: Program, x: Value, *, dtype: torch.dtype | None = None, **_: Any) -> Value:
    if dtype in (None, torch.float32, torch.float64):
        return program.apply("as_number", x) if x.is_bool else x
    if dtype == torch.bool:
        return x if x.is_bool else program.apply("is_true", x, is_bool=True)
    raise NotExpressible(f"numbers are turned into {dtype}")


def _view_rule(operation: Any) -> Callable[..., Value]:
    def rule(program: Program, x: Value, *arguments: Any, **options: Any) -> Value:
        return viewed(x, lambda each: operation(each, *arguments, **options))

    return rule


for _operation in (
    aten.t.default,
    aten.transpose.int,
    aten.permute.default,
    aten.expand.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.slice.Tensor,
    aten.select.int,
):
    RULES[_operation] = _view_rule(_operation)


@RULES.of(aten.split.Tensor, aten.split_with_sizes.default)
def _split(program: Program, x: Value, sizes: int | Sequence[int], axis: int = 0) -> list[Value]:
    total, found, start = x.shape[axis], list[Value](), 0
    if isinstance(sizes, int):
        sizes = [sizes] * -(-total // sizes)
    for size in sizes:
        found.append(sliced(x, axis, start, min(size, total - start)))
        start += size
    return found


@RULES.of(aten.cat.default)
def _cat(program: Program, parts: Sequence[Operand], axis: int = 0) -> Value:
    values = [program.value(part) for part in parts]
    values = [value for value in values if value.size]
    axis %= len(values[0].shape)
    shape = list(values[0].shape)
    shape[axis] = sum(value.shape[axis] for value in values)
    whole = Value(tuple(shape), Read(program.buffer(math.prod(shape)), contiguous(shape)))
    start = 0
    for value in values:
        place = sliced(whole, axis, start, value.shape[axis]).term
        assert isinstance(place, Read)
        program.store(value, place)
        start += value.shape[axis]
    if values[0].is_bool:
        return replace(whole, term=Apply("is_true", (whole.term,)), is_bool=True)
    return whole


@RULES.of(aten.slice_backward.default)
def _slice_backward(
    program: Program, x: Operand, shape: Sequence[int], axis: int, start: int, end: int, step: int
) -> Value:
    places = range(shape[axis])[start:end:step]
    return _padded(program, x, shape, axis, places.start, len(places), step)


@RULES.of(aten.select_backward.default)
def _select_backward(
    program: Program, x: Operand, shape: Sequence[int], axis: int, index: int
) -> Value:
    value, axis = program.value(x), axis % len(shape)
    wide = program.view(value, [*value.shape[:axis], 1, *value.shape[axis:]])
    return _padded(program, wide, shape, axis, index % shape[axis], 1, 1)


@RULES.of(aten.constant_pad_nd.default)
def _pad(program: Program, x: Value, widths: Sequence[int], value: float = 0) -> Value:
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
        x = _padded(program, x, shape, axis, max(before, 0), x.shape[axis], 1)
    return x


def _padded(
    program: Program, x: Operand, shape: Sequence[int], axis: int, start: int, size: int, step: int
) -> Value:
    """Put x among zeros."""
    value = program.value(x)
    if tuple(shape) == value.shape:
        return value
    whole = Value(tuple(shape), program.zeros(tuple(shape)))
    place = sliced(whole, axis, start, size, step).term
    assert isinstance(place, Read)
    program.store(value, place)
    return whole
