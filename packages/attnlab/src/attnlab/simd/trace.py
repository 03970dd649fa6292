"""From a loss to a program: one member's loss and gradient are recorded once, and each operation
becomes terms.

What depends on neither parameters nor batch (masks, positions, rows that are always the same) is
computed here, once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.func import functionalize, grad_and_value
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from attnlab.errors import AttnlabError
from attnlab.simd import lookups as lookups  # which registers its rules
from attnlab.simd import operations as operations
from attnlab.simd import views as views
from attnlab.simd.program import RULES, Operand, StepProgram
from attnlab.simd.terms import (
    Apply,
    Buffer,
    ElementRead,
    NotExpressible,
    Scalar,
    Term,
    Value,
    contiguous,
    value_of,
)

aten = torch.ops.aten

_TAKEN_APART = (
    aten._fused_rms_norm, aten._fused_rms_norm_backward, aten._log_softmax, aten._softmax,
    aten.addmm, aten.gelu, aten.linalg_vector_norm, aten.mse_loss, aten.mse_loss_backward,
    aten.native_layer_norm, aten.sigmoid_backward, aten.silu, aten.silu_backward,
    aten.tanh_backward, aten.threshold_backward,
)  # fmt: skip
"""Operations that PyTorch takes apart when asked, besides those that it always does."""

_DECOMPOSITIONS = {**core_aten_decompositions(), **get_decompositions(_TAKEN_APART)}
for _operation in RULES:  # ours are the quicker
    _DECOMPOSITIONS.pop(_operation, None)
_approximate_gelu = _DECOMPOSITIONS[aten.gelu.default]
_approximate_gelu_backward = _DECOMPOSITIONS[aten.gelu_backward.default]


def _gelu(x: Tensor, *, approximate: str = "none") -> Any:
    """Take GELU apart around erfc, which costs less than erf."""
    if approximate != "none":
        return _approximate_gelu(x, approximate=approximate)
    return x * _share_below(x)


def _gelu_backward(grad: Tensor, x: Tensor, *, approximate: str = "none") -> Any:
    if approximate != "none":
        return _approximate_gelu_backward(grad, x, approximate=approximate)
    density = (x * x * -0.5).exp() * (2 * math.pi) ** -0.5
    return grad * (_share_below(x) + x * density)


def _share_below(x: Tensor) -> Tensor:
    """Return the share of a normal distribution below x."""
    upper: Tensor = torch.special.erfc(x * -(0.5**0.5))
    return upper * 0.5


_DECOMPOSITIONS[aten.gelu.default] = _gelu
_DECOMPOSITIONS[aten.gelu_backward.default] = _gelu_backward


@dataclass(frozen=True)
class TracedStep:
    """A step's program, and where its numbers lie: one buffer each for all parameters, all
    gradients, all buffers in which members differ, and all of a batch, whose tensors begin at
    `batch_starts`."""

    program: StepProgram
    parameters: Buffer
    gradients: Buffer
    members: Buffer
    batch: Buffer
    batch_starts: list[int]
    loss: Buffer


def traced(
    loss: Callable[..., Tensor],
    parameters: Mapping[str, Tensor],
    different: Mapping[str, Tensor],
    example: Sequence[Tensor],
) -> TracedStep:
    """Record a step of one member.

    Args:
        loss: called as loss(parameters, different, *example).
        parameters: of one member, by name.
        different: numbers by name in which members differ, and which are not trained.
        example: the batch of one step.

    Raises:
        NotExpressible: an operation has no rule here.
    """
    graph, program = _graph(loss, parameters, different, example), StepProgram()
    parameter_buffer, members, batch = (
        Buffer("parameter", 0),
        Buffer("member", 0),
        Buffer("batch", 0),
    )
    places = [_place(tensor, parameter_buffer) for tensor in parameters.values()]
    others = [_place(tensor, members) for tensor in different.values()]
    batch_places = [_place(tensor, batch) for tensor in example]
    tensors = (*parameters.values(), *different.values(), *example)
    inputs = []
    for tensor, place in zip(tensors, (*places, *others, *batch_places), strict=True):
        inputs.append(value_of(tensor.shape, place, is_bool=tensor.dtype == torch.bool))
    *outputs, last = _lowered(graph, program, inputs)
    gradients, total = Buffer("gradient", parameter_buffer.size), Buffer("loss", 1)
    for output, place in zip(outputs, places, strict=True):
        program.store(program.value(output), replace(place, buffer=gradients))
    program.store(program.value(last), ElementRead(total, ()))
    starts = [place.offset for place in batch_places]
    return TracedStep(program, parameter_buffer, gradients, members, batch, starts, total)


def _place(tensor: Tensor, buffer: Buffer) -> ElementRead:
    """Give a tensor the next place in a buffer."""
    place = ElementRead(buffer, contiguous(tensor.shape), buffer.size)
    buffer.size += tensor.numel()
    return place


def _graph(
    loss: Callable[..., Tensor],
    parameters: Mapping[str, Tensor],
    different: Mapping[str, Tensor],
    example: Sequence[Tensor],
) -> fx.GraphModule:
    step = make_fx(
        functionalize(grad_and_value(loss)),
        decomposition_table=_DECOMPOSITIONS,
        tracing_mode="fake",
        _allow_non_fake_inputs=True,
    )
    try:
        graph = step(dict(parameters), dict(different), *example)
    except (AttnlabError, NotExpressible):
        raise
    except Exception as error:
        # Whatever is wrong with the loss itself, a layout that only calls it will say better.
        if "tracing tensor" in str(error) or "data-dependent" in str(error):
            raise NotExpressible("the loss looks at numbers to decide what to compute") from None
        first = next(iter(str(error).splitlines()), "")
        raise NotExpressible(
            f"the loss cannot be recorded ({type(error).__name__}: {first})"
        ) from error
    graph.graph.eliminate_dead_code()
    return graph


def _lowered(graph: fx.GraphModule, program: StepProgram, inputs: Sequence[Value]) -> list[Any]:
    """Write the program, going through the operations in order; return the outputs."""
    waiting = iter(inputs)
    known: dict[fx.Node, Any] = {}
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            known[node] = next(waiting)
        elif node.op == "get_attr":
            known[node] = getattr(graph, str(node.target))
        elif node.op == "output":
            return tree_leaves(fx.map_arg(node.args[0], known.__getitem__))
        else:
            known[node] = _call(node, known, program)
    raise AssertionError("a graph without an output")


def _call(node: fx.Node, known: Mapping[fx.Node, Any], program: StepProgram) -> Any:
    arguments = fx.map_arg(node.args, known.__getitem__)
    options = fx.map_arg(node.kwargs, known.__getitem__)
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return target(*arguments)  # operator.getitem
    name = str(target).removesuffix(".default")
    fault = _fault(target, node)
    if fault:
        raise NotExpressible(f"{fault} ({name})")
    if not any(isinstance(leaf, Value) for leaf in tree_leaves((arguments, options))):
        return target(*arguments, **options)
    if target not in RULES:
        raise NotExpressible(f"the loss needs {name}")
    results = RULES[target](program, *arguments, **options)
    if isinstance(results, list):
        return [_kept(program, operand, 2) for operand in results]
    is_number = isinstance(results, Value) and not results.is_bool
    if is_number and _dtype_of(node) == torch.bool:
        raise NotExpressible(f"the loss computes with truths as with numbers ({name})")
    return _kept(program, results, len(node.users))


def _fault(target: torch._ops.OpOverload, node: fx.Node) -> str:
    """Say why an operation cannot be recorded, whatever its arguments; nothing if it can."""
    if torch.Tag.nondeterministic_seeded in target.tags:
        return "the loss draws random numbers"
    if target._schema.is_mutable:
        return "the loss changes a tensor in place"
    if _has_open_shape(node):
        return "how much the loss computes depends on numbers"
    return ""


def _kept(program: StepProgram, operand: Operand | None, users: int) -> Operand | None:
    """Store what is needed more than once, unless it is as cheap as reading it."""
    if not isinstance(operand, Value) or users < 2 or _is_cheap(operand.term):
        return operand
    return program.stored(operand)


def _has_open_shape(node: fx.Node) -> bool:
    """May an operation's result have another shape next time, as what a mask selects?"""
    target: Any = node.target
    if target != torch.ops.aten.index.Tensor:
        return torch.Tag.dynamic_output_shape in target.tags
    # With a boolean index the shape depends on how many are true.
    ids: Any = node.args[1]
    return any(_dtype_of(operand) in (torch.bool, torch.uint8) for operand in ids)


def _dtype_of(node: fx.Node | None) -> torch.dtype | None:
    if node is None:
        return None
    value = node.meta.get("val")
    if value is None and node.op == "get_attr":
        value = getattr(node.graph.owning_module, str(node.target))
    return getattr(value, "dtype", None)


def _is_cheap(term: Term) -> bool:
    if isinstance(term, Apply):
        return term.name in ("is_true", "logical_not", "neg") and _is_cheap(term.arguments[0])
    return isinstance(term, ElementRead | Scalar)
