"""Rules of PyTorch's larger operations: softmax, layer norm, GELU, cross-entropy; forward and
backward. Others are taken apart as PyTorch itself takes them apart."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions, get_decompositions

from attnlab.simd.lookups import picked
from attnlab.simd.program import Operand, Program
from attnlab.simd.rules import Rules, shape_of
from attnlab.simd.terms import NotExpressible, Value, expanded

aten = torch.ops.aten
RULES = Rules()

DECOMPOSITIONS = {
    **core_aten_decompositions(),
    **get_decompositions(
        [
            aten.linalg_vector_norm,
            aten._fused_rms_norm,
            aten._fused_rms_norm_backward,
            aten.silu,
            aten.silu_backward,
            aten.sigmoid_backward,
            aten.tanh_backward,
            aten.threshold_backward,
            aten.mse_loss,
            aten.mse_loss_backward,
        ]
    ),
}
"""PyTorch's own rules of operations made of simpler ones; of those that have a rule here, ours is
quicker."""


@RULES.of(aten._softmax.default)
def _softmax(program: Program, x: Operand, axis: int, half_to_float: bool) -> Value:
    value = program.operand(x)
    largest = program.stored(program.reduce("max", value, [axis], keep=True))
    powers = program.stored(program.apply("exp", program.apply("sub", value, largest)))
    share = program.stored(
        program.apply("inverse", program.reduce("add", powers, [axis], keep=True))
    )
    return program.apply("mul", powers, share)


@RULES.of(aten._softmax_backward_data.default)
def _softmax_backward(
    program: Program, grad: Operand, output: Operand, axis: int, dtype: torch.dtype
) -> Value:
    product = program.stored(program.apply("mul", grad, output))
    total = program.stored(program.reduce("add", product, [axis], keep=True))
    return program.apply("sub", product, program.apply("mul", output, total))


@RULES.of(aten._log_softmax.default)
def _log_softmax(program: Program, x: Operand, axis: int, half_to_float: bool) -> Value:
    value = program.operand(x)
    largest = program.stored(program.reduce("max", value, [axis], keep=True))
    beside = program.stored(
        program.apply("sub", value, largest)
    )  # the difference first, lest large logits round it
    total = program.reduce("add", program.apply("exp", beside), [axis], keep=True)
    return program.apply("sub", beside, program.stored(program.apply("log", total)))


@RULES.of(aten._log_softmax_backward_data.default)
def _log_softmax_backward(
    program: Program, grad: Operand, output: Operand, axis: int, dtype: torch.dtype
) -> Value:
    value = program.operand(grad)
    total = program.stored(program.reduce("add", value, [axis], keep=True))
    return program.apply("sub", value, program.apply("mul", program.apply("exp", output), total))


def _last(x: Operand, normal: Sequence[int]) -> list[int]:
    return list(range(len(shape_of(x)) - len(normal), len(shape_of(x))))


@RULES.of(aten.native_layer_norm.default)
def _layer_norm(
    program: Program,
    x: Operand,
    normal: Sequence[int],
    gain: Operand | None,
    bias: Operand | None,
    epsilon: float,
) -> list[Value]:
    value, axes = program.operand(x), _last(x, normal)
    count = math.prod(normal)
    mean = program.stored(
        program.apply("mul", program.reduce("add", value, axes, keep=True), 1 / count)
    )
    centred = program.stored(program.apply("sub", value, mean))
    squares = program.reduce("add", program.apply("mul", centred, centred), axes, keep=True)
    variance = program.apply("mul", squares, 1 / count)
    scale = program.stored(program.apply("rsqrt", program.apply("add", variance, epsilon)))
    found = program.apply("mul", centred, scale)
    if gain is not None:
        found = program.apply("mul", found, gain)
    if bias is not None:
        found = program.apply("add", found, bias)
    return [found, mean, scale]


@RULES.of(aten.native_layer_norm_backward.default)
def _layer_norm_backward(
    program: Program,
    grad: Operand,
    x: Operand,
    normal: Sequence[int],
    mean: Operand,
    scale: Operand,
    gain: Operand | None,
    bias: Operand | None,
    wanted: Sequence[bool],
) -> list[Value | None]:
    value, axes = program.operand(grad), _last(x, normal)
    lead = list(range(axes[0]))
    normed = program.stored(program.apply("mul", program.apply("sub", x, mean), scale))
    inner = value if gain is None else program.stored(program.apply("mul", value, gain))
    found: list[Value | None] = [None, None, None]
    if wanted[0]:
        found[0] = _through_norm(program, inner, normed, scale, axes, math.prod(normal))
    if wanted[1]:
        by_place = program.apply("mul", value, normed)
        found[1] = program.reduce("add", by_place, lead, keep=False)
    if wanted[2]:
        found[2] = program.reduce("add", value, lead, keep=False)
    return found


def _through_norm(
    program: Program, inner: Value, normed: Value, scale: Operand, axes: list[int], count: int
) -> Value:
    """(inner - mean(inner) - normed · mean(inner · normed)) · scale."""
    along = program.reduce("add", program.apply("mul", inner, normed), axes, keep=True)
    along = program.stored(program.apply("mul", along, 1 / count))
    level = program.reduce("add", inner, axes, keep=True)
    level = program.stored(program.apply("mul", level, 1 / count))
    rest = program.apply(
        "sub", program.apply("sub", inner, level), program.apply("mul", normed, along)
    )
    return program.apply("mul", rest, scale)


@RULES.of(aten.gelu.default)
def _gelu(program: Program, x: Operand, *, approximate: str = "none") -> Value:
    _refuse_tanh(approximate)
    value = program.operand(x)
    return program.apply("mul", value, program.apply("normal_share", value))


@RULES.of(aten.gelu_backward.default)
def _gelu_backward(
    program: Program, grad: Operand, x: Operand, *, approximate: str = "none"
) -> Value:
    _refuse_tanh(approximate)
    value = program.operand(x)
    density = program.apply("exp", program.apply("mul", program.apply("mul", value, value), -0.5))
    density = program.apply("mul", density, 1 / math.sqrt(2 * math.pi))
    slope = program.apply(
        "add", program.apply("normal_share", value), program.apply("mul", value, density)
    )
    return program.apply("mul", grad, slope)


def _refuse_tanh(approximate: str) -> None:
    if approximate != "none":
        raise NotExpressible("a GELU is approximated")


@RULES.of(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def _nll_loss(
    program: Program, logs: Operand, target: Operand, weight: Any, reduction: int, ignored: int
) -> list[Operand]:
    is_counted, place = _targets(program, target, weight, ignored)
    losses = program.apply("neg", picked(program, logs, 1 if len(shape_of(logs)) > 1 else 0, place))
    if is_counted is not None:
        losses = program.apply("choose", is_counted, losses, 0.0)
    count = _count(program, is_counted, losses.size)
    if reduction == 0:
        return [losses, torch.tensor(0.0)]
    total = program.reduce("add", losses, list(range(len(losses.shape))), keep=False)
    return [program.apply("div", total, count) if reduction == 1 else total, count]


@RULES.of(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
def _nll_loss_backward(
    program: Program,
    grad: Operand,
    logs: Operand,
    target: Operand,
    weight: Any,
    reduction: int,
    ignored: int,
    total: Operand,
) -> Value:
    is_counted, place = _targets(program, target, weight, ignored)
    shape = shape_of(logs)
    axis = 1 if len(shape) > 1 else 0
    grad = program.apply("neg", grad)
    if reduction == 1:
        grad = program.stored(program.apply("div", grad, total))
    if is_counted is not None:
        grad = program.apply("choose", is_counted, grad, 0.0)
    if grad.shape and len(grad.shape) == len(shape) - 1:
        grad = program.view(grad, [*shape[:axis], 1, *shape[axis + 1 :]])
    classes = torch.arange(shape[axis]).view(-1, *[1] * (len(shape) - axis - 1))
    if isinstance(place, Tensor):
        hit: Operand = place.unsqueeze(axis) == classes
    else:
        value = program.operand(place)
        spread = program.view(value, [*shape[:axis], 1, *shape[axis + 1 :]])
        hit = program.apply("eq", spread, classes, is_bool=True)
    found = program.apply("choose", hit, grad, 0.0)
    return replace(found, shape=shape, term=expanded(found, shape).term)


def _targets(
    program: Program, target: Operand, weight: Any, ignored: int
) -> tuple[Operand | None, Operand]:
    """Return where a target counts (None: everywhere), and targets that are classes everywhere."""
    if weight is not None:
        raise NotExpressible("a cross-entropy weighs its classes")
    if isinstance(target, Tensor):
        counted = target != ignored
        if bool(counted.all()):
            return None, target
        return counted, target.masked_fill(~counted, 0)
    counted_value = program.apply("ne", target, float(ignored), is_bool=True)
    return counted_value, program.stored(program.apply("choose", counted_value, target, 0.0))


def _count(program: Program, is_counted: Operand | None, size: int) -> Operand:
    if is_counted is None:
        return torch.tensor(float(size))
    if isinstance(is_counted, Tensor):
        return is_counted.sum().double()
    value = program.apply("as_number", is_counted)
    return program.stored(program.reduce("add", value, list(range(len(value.shape))), keep=False))
