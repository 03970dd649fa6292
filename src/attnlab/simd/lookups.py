"""Rules of look-ups: numbers read from, and added to, places that other numbers name."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from attnlab.simd.program import Operand, Program
from attnlab.simd.rules import Rules, shape_of
from attnlab.simd.terms import (
    NotExpressible,
    Read,
    Scalar,
    Value,
    broadcast,
    expanded,
    permuted,
    reads,
    sliced,
)

aten = torch.ops.aten
RULES = Rules()


def picked(program: Program, x: Operand, axis: int, ids: Operand) -> Value:
    """Take one place of an axis, another for each id: x (…, n, …) without the axis and ids
    broadcast together."""
    value, places = program.operand(x), program.operand(ids)
    if any(read.where is not None for read in reads(value.term)):
        value = program.stored(value)
    axis %= len(value.shape)
    one = program.view(
        sliced(value, axis, 0, 1), [size for i, size in enumerate(value.shape) if i != axis]
    )
    shape = broadcast(one.shape, places.shape)
    read = expanded(one, shape).term
    if isinstance(read, Scalar):
        return Value(shape, read)
    assert isinstance(read, Read)
    assert isinstance(value.term, Read)
    return Value(
        shape, _picking(read, expanded(places, shape), value.term.strides[axis], value.shape[axis])
    )


def _picking(read: Read, places: Value, step: int, size: int) -> Read:
    """Let ids say how many steps further to read, or to write."""
    if isinstance(places.term, Scalar):
        return replace(read, offset=read.offset + int(places.term.value) * step)
    assert isinstance(places.term, Read)
    return replace(read, where=places.term, pick=step, pick_size=size)


def added_up(
    program: Program, x: Operand, shape: tuple[int, ...], axis: int, ids: Operand
) -> Value:
    """Add elements to places of an axis among zeros, the backward of `picked`: x and ids of one
    shape.

    The axes of x are those of the result without `axis`, after leading ones that are summed over.
    """
    value, places = program.value(x), program.operand(ids)
    whole = Value(shape, program.zeros(shape))
    axis %= len(shape)
    one = program.view(
        sliced(whole, axis, 0, 1), [size for i, size in enumerate(shape) if i != axis]
    )
    target = expanded(one, value.shape).term
    assert isinstance(target, Read)
    assert isinstance(whole.term, Read)
    place = _picking(target, expanded(places, value.shape), whole.term.strides[axis], shape[axis])
    program.store(value, place, is_sum=True)
    return whole


@RULES.of(aten.embedding.default)
def _embedding(program: Program, table: Operand, ids: Operand, *_: Any) -> Value:
    places = program.operand(ids)
    return picked(program, table, 0, program.view(places, [*places.shape, 1]))


@RULES.of(aten.embedding_dense_backward.default)
def _embedding_backward(
    program: Program, grad: Operand, ids: Operand, rows: int, padding: int, by_count: bool
) -> Value:
    if padding >= 0 or by_count:
        raise NotExpressible("an embedding has a padding index or scales its gradient by counts")
    width = shape_of(grad)[-1]
    places = program.operand(ids)
    return added_up(program, grad, (rows, width), 0, program.view(places, [*places.shape, 1]))


@RULES.of(aten.index_select.default)
def _index_select(program: Program, x: Value, axis: int, ids: Operand) -> Value:
    axis %= len(x.shape)
    places = program.operand(ids)
    wide = program.view(x, [*x.shape[: axis + 1], *[1] * len(places.shape), *x.shape[axis + 1 :]])
    return picked(
        program, wide, axis, program.view(places, [*places.shape, *[1] * (len(x.shape) - axis - 1)])
    )


@RULES.of(aten.index.Tensor)
def _index(program: Program, x: Value, ids: Sequence[Operand | None]) -> Value:
    axis, places = _only(program, ids, x.shape)
    return _index_select(program, x, axis, places)


@RULES.of(aten.index_put.default)
def _index_put(
    program: Program,
    x: Operand,
    ids: Sequence[Operand | None],
    source: Operand,
    is_sum: bool = False,
) -> Value:
    axis, places = _only(program, ids, shape_of(x))
    if not (is_sum and _is_zero(x)):
        raise NotExpressible("numbers are written to places that ids name")
    shape, rank = shape_of(x), len(shape_of(places))
    value = expanded(program.value(source), [*shape[:axis], *shape_of(places), *shape[axis + 1 :]])
    # The axes of the ids are summed over, so they go to the front.
    order = [*range(axis, axis + rank), *range(axis), *range(axis + rank, len(value.shape))]
    spread = program.view(program.operand(places), [*shape_of(places), *[1] * (len(shape) - 1)])
    return added_up(program, permuted(value, order), shape, axis, spread)


def _only(
    program: Program, ids: Sequence[Operand | None], shape: Sequence[int]
) -> tuple[int, Operand]:
    """Return the one axis that ids are given for, and them; those below 0 count from the end."""
    (axis, places), *more = [(axis, each) for axis, each in enumerate(ids) if each is not None]
    if more or (
        places.dtype == torch.bool if isinstance(places, Tensor) else program.value(places).is_bool
    ):
        raise NotExpressible("a tensor is indexed by masks, or along several axes at once")
    if isinstance(places, Tensor):
        return axis, places % shape[axis]
    is_below = program.apply("lt", places, 0.0, is_bool=True)
    from_end = program.apply("add", places, float(shape[axis]))
    return axis, program.stored(program.apply("choose", is_below, from_end, places))


def _is_zero(x: Operand) -> bool:
    return isinstance(x, Tensor) and not bool(x.any())


@RULES.of(aten.gather.default)
def _gather(program: Program, x: Operand, axis: int, ids: Operand, **_: Any) -> Value:
    return _picked_along(program, x, axis, ids, is_pointwise=True)


def _picked_along(
    program: Program, x: Operand, axis: int, ids: Operand, *, is_pointwise: bool = False
) -> Value:
    """Like `picked`, with the axis kept in its place, as long as ids say."""
    value, places = program.operand(x), program.operand(ids)
    axis %= len(value.shape)
    wide = program.view(
        value, [*value.shape[:axis], value.shape[axis], 1, *value.shape[axis + 1 :]]
    )
    if is_pointwise:
        for i, size in enumerate(places.shape):
            if (
                i != axis and size < value.shape[i]
            ):  # gather may look at fewer places than there are
                wide = sliced(wide, i if i < axis else i + 1, 0, size)
    return picked(program, wide, axis, places)


@RULES.of(aten.scatter_add.default)
def _scatter_add(program: Program, x: Operand, axis: int, ids: Operand, source: Operand) -> Value:
    if not _is_zero(x):
        raise NotExpressible("numbers are added to places of a tensor that is not zero")
    shape, value, axis = shape_of(x), program.value(source), axis % len(shape_of(x))
    if any(a != b for i, (a, b) in enumerate(zip(shape, value.shape, strict=True)) if i != axis):
        raise NotExpressible("numbers are added to some rows of a tensor only")
    # The source's own axis is summed over, so it goes to the front.
    order = [axis, *[i for i in range(len(shape)) if i != axis]]
    return added_up(
        program, permuted(value, order), shape, axis, permuted(program.operand(ids), order)
    )
