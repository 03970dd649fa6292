"""Rules of what PyTorch computes: element by element, sums, products."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from attnlab.simd.program import Operand, Program
from attnlab.simd.rules import Rules, shape_of
from attnlab.simd.terms import NotExpressible, Read, Value, broadcast, expanded

aten = torch.ops.aten
RULES = Rules()


def _each(
    names: dict[Any, str], made: Callable[[Program, Operand], Value], *, is_bool: bool
) -> None:
    """Register operations that go by their name in `arithmetic.h`, after their operands are made
    what they take."""

    def register(operation: Any, name: str) -> None:
        @RULES.of(operation)
        def _apply(program: Program, *operands: Operand, **_: Any) -> Value:
            return program.apply(name, *(made(program, x) for x in operands), is_bool=is_bool)

    for operation, name in names.items():
        register(operation, name)


def _number(program: Program, x: Operand) -> Value:
    value = program.value(x)
    return program.apply("as_number", value) if value.is_bool else value


def _truth(program: Program, x: Operand) -> Value:
    value = program.value(x)
    if not value.is_bool:
        raise NotExpressible("whole numbers are combined bit by bit")
    return value


_NUMBERS = {
    aten.div.Tensor: "div",
    aten.div.Scalar: "div",
    aten.neg.default: "neg",
    aten.exp.default: "exp",
    aten.log.default: "log",
    aten.log1p.default: "log1p",
    aten.sqrt.default: "sqrt",
    aten.reciprocal.default: "inverse",
    aten.tanh.default: "tanh",
    aten.erf.default: "erf",
    aten.abs.default: "abs",
    aten.relu.default: "relu",
    aten.sigmoid.default: "sigmoid",
    aten.rsqrt.default: "rsqrt",
    aten.maximum.default: "maximum",
    aten.minimum.default: "minimum",
    aten.sign.default: "sign",
    aten.sgn.default: "sign",
}
_COMPARISONS = {
    aten.ne.Scalar: "ne",
    aten.ne.Tensor: "ne",
    aten.lt.Scalar: "lt",
    aten.lt.Tensor: "lt",
    aten.le.Scalar: "le",
    aten.le.Tensor: "le",
    aten.gt.Scalar: "gt",
    aten.gt.Tensor: "gt",
    aten.ge.Scalar: "ge",
    aten.ge.Tensor: "ge",
    aten.eq.Scalar: "eq",
    aten.eq.Tensor: "eq",
}
_TRUTHS = {
    aten.bitwise_and.Tensor: "both",
    aten.logical_and.default: "both",
    aten.bitwise_or.Tensor: "either",
    aten.logical_or.default: "either",
    aten.bitwise_not.default: "not_",
    aten.logical_not.default: "not_",
}
_each(_NUMBERS, _number, is_bool=False)
_each(_COMPARISONS, _number, is_bool=True)
_each(_TRUTHS, _truth, is_bool=True)


@RULES.of(aten.mul.Tensor, aten.mul.Scalar)
def _mul(program: Program, x: Operand, y: Operand) -> Value:
    if _are_truths(program, x, y):
        return program.apply("both", x, y, is_bool=True)
    return program.apply("mul", _number(program, x), _number(program, y))


def _are_truths(program: Program, x: Operand, y: Operand) -> bool:
    return all(not isinstance(each, int | float) and program.value(each).is_bool for each in (x, y))


@RULES.of(aten.add.Tensor, aten.add.Scalar)
def _add(program: Program, x: Operand, y: Operand, *, alpha: float = 1) -> Value:
    if alpha == 1 and _are_truths(program, x, y):  # true and true is true, not two
        return program.apply("either", x, y, is_bool=True)
    return program.apply("add", _number(program, x), _times(program, y, alpha))


@RULES.of(aten.sub.Tensor, aten.sub.Scalar)
def _sub(program: Program, x: Operand, y: Operand, *, alpha: float = 1) -> Value:
    return program.apply("sub", _number(program, x), _times(program, y, alpha))


def _times(program: Program, x: Operand, factor: float) -> Value:
    value = _number(program, x)
    return value if factor == 1 else program.apply("mul", value, float(factor))


@RULES.of(aten.rsub.Scalar, aten.rsub.Tensor)
def _rsub(program: Program, x: Operand, y: Operand, alpha: float = 1) -> Value:
    return _sub(program, y, x, alpha=alpha)


@RULES.of(aten.pow.Tensor_Scalar)
def _pow(program: Program, x: Value, power: float) -> Value:
    if power in (1, 2, 3):
        x = x if isinstance(x.term, Read) else program.stored(x)
        result = x
        for _ in range(int(power) - 1):
            result = program.apply("mul", result, x)
        return result
    names = {0.5: "sqrt", -0.5: "rsqrt", -1: "inverse"}
    if power not in names:
        raise NotExpressible(f"numbers are raised to the power {power:g}")
    return program.apply(names[power], x)


@RULES.of(aten.clamp.default, aten.clamp_min.default)
def _clamp(
    program: Program, x: Value, low: float | None = None, high: float | None = None
) -> Value:
    x = x if low is None else program.apply("maximum", x, low)
    return x if high is None else program.apply("minimum", x, high)


@RULES.of(aten.clamp_max.default)
def _clamp_max(program: Program, x: Value, high: float) -> Value:
    return _clamp(program, x, None, high)


@RULES.of(aten.where.self)
def _where(program: Program, condition: Operand, x: Operand, y: Operand) -> Value:
    yes, no = _number(program, x), _number(program, y)
    if isinstance(condition, Tensor) and bool((condition == condition.any()).all()):
        chosen = yes if bool(condition.any()) else no  # the same everywhere
        return expanded(chosen, broadcast(condition.shape, yes.shape, no.shape))
    return program.apply("choose", _truth(program, condition), yes, no)


@RULES.of(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def _masked_fill(program: Program, x: Operand, mask: Operand, fill: Operand) -> Value:
    return _where(program, mask, fill, x)


# Sums and products.


@RULES.of(aten.sum.default, aten.sum.dim_IntList)
def _sum(
    program: Program, x: Value, axes: Sequence[int] | None = None, keep: bool = False, **_: Any
) -> Value:
    return program.reduce("add", _number(program, x), list(axes or range(len(x.shape))), keep=keep)


@RULES.of(aten.mean.default, aten.mean.dim)
def _mean(
    program: Program, x: Value, axes: Sequence[int] | None = None, keep: bool = False, **_: Any
) -> Value:
    axes = list(axes or range(len(x.shape)))
    count = math.prod(x.shape[axis] for axis in axes)
    return program.apply("mul", program.reduce("add", x, axes, keep=keep), 1.0 / count)


@RULES.of(aten.amax.default)
def _amax(program: Program, x: Value, axes: Sequence[int] = (), keep: bool = False) -> Value:
    axes = list(axes or range(len(x.shape)))
    return program.reduce("max", x, axes, keep=keep)


@RULES.of(aten.any.dim, aten.any.dims, aten.any.default)
def _any(
    program: Program, x: Value, axes: int | Sequence[int] | None = None, keep: bool = False
) -> Value:
    if axes is None:
        axes = range(len(x.shape))
    axes = [axes] if isinstance(axes, int) else list(axes)
    found = program.reduce("max", program.apply("as_number", _truth(program, x)), axes, keep=keep)
    return program.apply("is_true", found, is_bool=True)


@RULES.of(aten.mm.default, aten.bmm.default)
def _mm(program: Program, a: Operand, b: Operand) -> Value:
    return program.product(a, b)


@RULES.of(aten.addmm.default)
def _addmm(program: Program, bias: Operand, a: Operand, b: Operand) -> Value:
    return program.apply("add", program.product(a, b), bias)


@RULES.of(aten.mv.default)
def _mv(program: Program, a: Operand, b: Operand) -> Value:
    (size,) = shape_of(b)
    found = program.product(a, program.view(program.operand(b), [size, 1]))
    return program.view(found, list(found.shape[:-1]))


@RULES.of(aten.dot.default)
def _dot(program: Program, a: Operand, b: Operand) -> Value:
    return program.reduce("add", program.apply("mul", a, b), [0], keep=False)
