"""Rules of look-ups: numbers read from, and added to, places that other numbers name."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from attnlab.simd.program import Operand, StepProgram, is_zero, rule, shape_of
from attnlab.simd.terms import (
    ElementRead,
    NotExpressible,
    Scalar,
    Value,
    broadcast,
    expanded,
    permuted,
    reads,
    sliced,
)

aten = torch.ops.aten


def picked(program: StepProgram, x: Operand, axis: int, ids: Operand) -> Value:
    """Take one place of an axis, another for each id: x (…, n, …) without the axis and ids
    broadcast together."""
    value, places = program.operand(x), program.operand(ids)
    if any(read.where is not None for read in reads(value.term)):
        value = program.stored(value)
    axis %= len(value.shape)
    shape = broadcast((*value.shape[:axis], *value.shape[axis + 1 :]), places.shape)
    return Value(shape, _places(program, value, axis, places, shape))


def added_up(
    program: StepProgram, x: Operand, shape: tuple[int, ...], axis: int, ids: Operand
) -> Value:
    """Add elements to places of an axis among zeros, the backward of `picked`: x and ids of one
    shape.

    The axes of x are those of the result without `axis`, after leading ones that are summed over.
    """
    value, places = program.value(x), program.operand(ids)
    whole = Value(shape, program.zeros(shape))
    target = _places(program, whole, axis % len(shape), places, value.shape)
    assert isinstance(target, ElementRead)
    program.store(value, target, is_sum=True)
    return whole


def _places(
    program: StepProgram, whole: Value, axis: int, ids: Value, shape: Sequence[int]
) -> ElementRead | Scalar:
    """Let ids say which place of an axis to read, or to write, for each element of a shape."""
    rest = [size for other, size in enumerate(whole.shape) if other != axis]
    place = expanded(program.view(sliced(whole, axis, 0, 1), rest), shape).term
    chosen = expanded(ids, shape).term
    if isinstance(place, Scalar):
        return place
    assert isinstance(place, ElementRead)
    assert isinstance(whole.term, ElementRead)
    step = whole.term.strides[axis]
    if isinstance(chosen, Scalar):
        return replace(place, offset=place.offset + int(chosen.value) * step)
    assert isinstance(chosen, ElementRead)
    return replace(place, where=chosen, pick=step, pick_size=whole.shape[axis])


@rule(aten.embedding.default)
def _embedding(program: StepProgram, table: Operand, ids: Operand, *_: Any) -> Value:
    places = program.operand(ids)
    return picked(program, table, 0, program.view(places, [*places.shape, 1]))


@rule(aten.embedding_dense_backward.default)
def _embedding_backward(
    program: StepProgram, grad: Operand, ids: Operand, rows: int, padding: int, by_count: bool
) -> Value:
    if padding >= 0 or by_count:
        raise NotExpressible("an embedding has a padding index or scales its gradient by counts")
    width = shape_of(grad)[-1]
    places = program.operand(ids)
    return added_up(program, grad, (rows, width), 0, program.view(places, [*places.shape, 1]))


@rule(aten.index_select.default)
def _index_select(program: StepProgram, x: Value, axis: int, ids: Operand) -> Value:
    axis %= len(x.shape)
    places = program.operand(ids)
    before, after = x.shape[: axis + 1], x.shape[axis + 1 :]
    wide = program.view(x, [*before, *[1] * len(places.shape), *after])
    return picked(program, wide, axis, program.view(places, [*places.shape, *[1] * len(after)]))


@rule(aten.index.Tensor)
def _index(program: StepProgram, x: Value, ids: Sequence[Operand | None]) -> Value:
    axis, places = _only(program, ids, x.shape)
    return _index_select(program, x, axis, places)


@rule(aten.index_put.default)
def _index_put(
    program: StepProgram,
    x: Operand,
    ids: Sequence[Operand | None],
    source: Operand,
    is_sum: bool = False,
) -> Value:
    axis, places = _only(program, ids, shape_of(x))
    if not (is_sum and is_zero(x)):
        raise NotExpressible("numbers are written to places that ids name")
    shape, rank = shape_of(x), len(shape_of(places))
    value = expanded(program.value(source), [*shape[:axis], *shape_of(places), *shape[axis + 1 :]])
    # The axes of the ids are summed over, so they go to the front.
    order = [*range(axis, axis + rank), *range(axis), *range(axis + rank, len(value.shape))]
    spread = program.view(program.operand(places), [*shape_of(places), *[1] * (len(shape) - 1)])
    return added_up(program, permuted(value, order), shape, axis, spread)


def _only(
    program: StepProgram, ids: Sequence[Operand | None], shape: Sequence[int]
) -> tuple[int, Operand]:
    """Return the one axis that ids are given for, and them; those below 0 count from the end."""
    (axis, places), *more = [
        (axis, tensor) for axis, tensor in enumerate(ids) if tensor is not None
    ]
    if more or program.value(places).is_bool:
        raise NotExpressible("a tensor is indexed by masks, or along several axes at once")
    if isinstance(places, Tensor):
        return axis, places % shape[axis]
    is_below = program.apply("lt", places, 0.0, is_bool=True)
    from_end = program.apply("add", places, float(shape[axis]))
    return axis, program.stored(program.apply("choose", is_below, from_end, places))


@rule(aten.gather.default)
def _gather(program: StepProgram, x: Operand, axis: int, ids: Operand, **_: Any) -> Value:
    value, places = program.operand(x), program.operand(ids)
    axis %= len(value.shape)
    for other, size in enumerate(places.shape):  # there may be fewer ids than places
        if other != axis:
            value = sliced(value, other, 0, size)
    # The axis stays in its place, as long as ids say.
    wide = program.view(value, [*value.shape[: axis + 1], 1, *value.shape[axis + 1 :]])
    return picked(program, wide, axis, places)


@rule(aten.scatter.value)
def _scatter_value(
    program: StepProgram, x: Operand, axis: int, ids: Operand, number: float
) -> Value:
    shape, places = shape_of(x), program.operand(ids)
    axis %= len(shape)
    if not is_zero(x) or places.shape != (*shape[:axis], 1, *shape[axis + 1 :]):
        raise NotExpressible("numbers are written to places that ids name")
    positions = torch.arange(shape[axis]).view(-1, *[1] * (len(shape) - axis - 1))
    is_named = program.apply("eq", places, positions, is_bool=True)
    return program.apply("choose", is_named, number, 0.0)


@rule(aten.scatter_add.default)
def _scatter_add(
    program: StepProgram, x: Operand, axis: int, ids: Operand, source: Operand
) -> Value:
    if not is_zero(x):
        raise NotExpressible("numbers are added to places of a tensor that is not zero")
    shape, value = shape_of(x), program.value(source)
    axis %= len(shape)
    # The source's own axis is summed over, so it goes to the front.
    order = list(range(len(shape)))
    order.insert(0, order.pop(axis))
    moved = permuted(value, order)
    if moved.shape[1:] != (*shape[:axis], *shape[axis + 1 :]):
        raise NotExpressible("numbers are added to some rows of a tensor only")
    return added_up(program, moved, shape, axis, permuted(program.operand(ids), order))
