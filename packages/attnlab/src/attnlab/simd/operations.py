"""Rules of what PyTorch computes: element by element, sums, products. Larger operations (softmax,
norms, losses) are taken apart as PyTorch itself takes them apart: see `trace.py`."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnlab.simd.program import RULES, Operand, StepProgram, rule
from attnlab.simd.terms import ElementRead, NotExpressible, Value, broadcast, expanded

aten = torch.ops.aten

_NUMBERS = (
    "div", "neg", "exp", "log", "log1p", "sqrt", "reciprocal", "tanh", "erf", "abs", "relu",
    "sigmoid",
    "rsqrt", "maximum", "minimum", "sign", "erfc",
)  # fmt: skip
_COMPARISONS = ("ne", "lt", "le", "gt", "ge", "eq")
_TRUTHS = {
    "logical_and": "logical_and", "bitwise_and": "logical_and", "logical_or": "logical_or",
    "bitwise_or": "logical_or", "logical_not": "logical_not", "bitwise_not": "logical_not",
}  # fmt: skip
"""Operations that go by their name in `arithmetic.h`; of truths, by PyTorch's name."""


def _number(program: StepProgram, x: Operand) -> Value:
    value = program.value(x)
    return program.apply("as_number", value) if value.is_bool else value


def _truth(program: StepProgram, x: Operand) -> Value:
    value = program.value(x)
    if not value.is_bool:
        raise NotExpressible("whole numbers are combined bit by bit")
    return value


def _elementwise(
    name: str,
    made: Callable[[StepProgram, Operand], Value],
    is_bool: bool,
    program: StepProgram,
    *operands: Operand,
) -> Value:
    return program.apply(name, *(made(program, x) for x in operands), is_bool=is_bool)


def _register(operation: str, *how: Any) -> None:
    packet = getattr(aten, operation)
    for kind in {"default", "Tensor", "Scalar"} & set(packet.overloads()):
        RULES[getattr(packet, kind)] = partial(_elementwise, *how)


for _name in _NUMBERS:
    _register(_name, _name, _number, False)
for _name in _COMPARISONS:
    _register(_name, _name, _number, True)
for _name, _own_name in _TRUTHS.items():
    _register(_name, _own_name, _truth, True)


@rule(aten.mul.Tensor, aten.mul.Scalar)
def _mul(program: StepProgram, x: Operand, y: Operand) -> Value:
    if _are_truths(program, x, y):
        return program.apply("logical_and", x, y, is_bool=True)
    return program.apply("mul", _number(program, x), _number(program, y))


def _are_truths(program: StepProgram, x: Operand, y: Operand) -> bool:
    return program.value(x).is_bool and program.value(y).is_bool


@rule(aten.add.Tensor, aten.add.Scalar)
def _add(program: StepProgram, x: Operand, y: Operand, *, alpha: float = 1) -> Value:
    if alpha == 1 and _are_truths(program, x, y):  # true and true is true, not two
        return program.apply("logical_or", x, y, is_bool=True)
    return program.apply("add", _number(program, x), _times(program, y, alpha))


@rule(aten.sub.Tensor, aten.sub.Scalar)
def _sub(program: StepProgram, x: Operand, y: Operand, *, alpha: float = 1) -> Value:
    return program.apply("sub", _number(program, x), _times(program, y, alpha))


def _times(program: StepProgram, x: Operand, factor: float) -> Value:
    value = _number(program, x)
    return value if factor == 1 else program.apply("mul", value, float(factor))


@rule(aten.pow.Tensor_Scalar)
def _pow(program: StepProgram, x: Value, power: float) -> Value:
    if power in (1, 2, 3):
        if not isinstance(x.term, ElementRead):
            x = program.stored(x)
        result = x
        for _ in range(int(power) - 1):
            result = program.apply("mul", result, x)
        return result
    names = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    if power not in names:
        raise NotExpressible(f"numbers are raised to the power {power:g}")
    return program.apply(names[power], x)


@rule(aten.clamp.default)
def _clamp(
    program: StepProgram, x: Value, low: float | None = None, high: float | None = None
) -> Value:
    if low is not None:
        x = program.apply("maximum", x, low)
    if high is not None:
        x = program.apply("minimum", x, high)
    return x


@rule(aten.where.self)
def _where(program: StepProgram, condition: Operand, x: Operand, y: Operand) -> Value:
    yes, no = _number(program, x), _number(program, y)
    if isinstance(condition, Tensor) and bool((condition == condition.any()).all()):
        chosen = yes if bool(condition.any()) else no  # the same everywhere
        return expanded(chosen, broadcast(condition.shape, yes.shape, no.shape))
    return program.apply("choose", _truth(program, condition), yes, no)


# Sums and products.


@rule(aten.sum.dim_IntList)
def _sum(
    program: StepProgram, x: Value, axes: Sequence[int] | None, keep: bool = False, **_: Any
) -> Value:
    return program.reduce("add", _number(program, x), axes, keep=keep)


@rule(aten.mean.default, aten.mean.dim)
def _mean(
    program: StepProgram, x: Value, axes: Sequence[int] | None = None, keep: bool = False, **_: Any
) -> Value:
    total = program.reduce("add", x, axes, keep=keep)
    return program.apply("mul", total, max(total.size, 1) / x.size)


@rule(aten.var_mean.correction)
def _var_mean(
    program: StepProgram,
    x: Value,
    axes: Sequence[int] | None = None,
    *,
    correction: float = 1,
    keepdim: bool = False,
) -> list[Value]:
    x = program.operand(x)
    mean = program.stored(_mean(program, x, axes, keep=True))
    apart = program.stored(program.apply("sub", x, mean))
    total = program.reduce("add", program.apply("mul", apart, apart), axes, keep=keepdim)
    variance = program.apply("mul", total, 1 / (x.size // total.size - correction))
    return [variance, program.view(mean, list(total.shape))]


@rule(aten.amax.default)
def _amax(program: StepProgram, x: Value, axes: Sequence[int] = (), keep: bool = False) -> Value:
    return program.reduce("max", x, axes, keep=keep)


@rule(aten.any.dim, aten.any.dims, aten.any.default)
def _any(
    program: StepProgram, x: Value, axes: int | Sequence[int] | None = None, keep: bool = False
) -> Value:
    if isinstance(axes, int):
        axes = [axes]
    truth = program.reduce("max", program.apply("as_number", _truth(program, x)), axes, keep=keep)
    return program.apply("is_true", truth, is_bool=True)


@rule(aten.mm.default, aten.bmm.default)
def _mm(program: StepProgram, a: Operand, b: Operand) -> Value:
    return program.product(a, b)
