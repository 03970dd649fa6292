"""From a loss to a program: one member's loss and gradient are recorded once, and each operation
becomes terms.

What depends on neither parameters nor batch (masks, positions, rows that are always the same) is
computed here, once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.func import functionalize, grad_and_value
from torch.fx.experimental.proxy_tensor import make_fx

from attnlab.errors import AttnlabError
from attnlab.simd import composites, lookups, operations, views
from attnlab.simd.program import Operand, Program
from attnlab.simd.rules import shape_of
from attnlab.simd.terms import Apply, Buffer, NotExpressible, Read, Scalar, Term, Value, contiguous

_RULES = {**views.RULES, **operations.RULES, **lookups.RULES, **composites.RULES}
_DECOMPOSITIONS = {
    name: rule for name, rule in composites.DECOMPOSITIONS.items() if name not in _RULES
}


@dataclass(frozen=True)
class Traced:
    """A step's program, and where its numbers lie: one buffer each for all parameters, all
    gradients, all buffers in which members differ, and all of a batch, with the start of each by
    name (of the batch: by place)."""

    program: Program
    starts: dict[str, int]
    member_starts: dict[str, int]
    batch_starts: list[int]
    parameters: Buffer
    gradients: Buffer
    members: Buffer
    batch: Buffer
    loss: Buffer


def traced(
    loss: Callable[..., Tensor],
    parameters: Mapping[str, Tensor],
    different: Mapping[str, Tensor],
    example: Sequence[Tensor],
) -> Traced:
    """Record a step of one member.

    Args:
        loss: called as loss(parameters, different, *example).
        parameters: of one member, by name.
        different: numbers by name in which members differ, and which are not trained.
        example: the batch of one step.

    Raises:
        NotExpressible: an operation has no rule here.
    """
    graph = _graph(loss, parameters, different, example)
    return _Lowering(graph, parameters, different, example).result


def _graph(
    loss: Callable[..., Tensor],
    parameters: Mapping[str, Tensor],
    different: Mapping[str, Tensor],
    example: Sequence[Tensor],
) -> fx.GraphModule:
    step = make_fx(functionalize(grad_and_value(loss)), decomposition_table=_DECOMPOSITIONS)
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


class _Lowering:
    """Goes through the operations in order, and writes the program."""

    def __init__(
        self,
        graph: fx.GraphModule,
        parameters: Mapping[str, Tensor],
        different: Mapping[str, Tensor],
        example: Sequence[Tensor],
    ) -> None:
        self._graph, self._program = graph, Program()
        self._known: dict[fx.Node, Any] = {}
        groups = (list(parameters.values()), list(different.values()), list(example))
        buffers = [Buffer(kind, 0) for kind in ("parameter", "member", "batch")]
        inputs = []
        starts: list[list[int]] = [[], [], []]
        for group, buffer, own in zip(groups, buffers, starts, strict=True):
            for tensor in group:
                own.append(buffer.size)
                term: Term = Read(buffer, contiguous(tensor.shape), buffer.size)
                is_bool = tensor.dtype == torch.bool
                inputs.append(
                    Value(
                        tuple(tensor.shape), Apply("is_true", (term,)) if is_bool else term, is_bool
                    )
                )
                buffer.size += tensor.numel()
        outputs = self._lower(inputs)
        gradients, loss = Buffer("gradient", buffers[0].size), Buffer("loss", 1)
        for output, start, tensor in zip(outputs, starts[0], groups[0], strict=False):
            value = self._program.value(output)
            self._program.store(value, Read(gradients, contiguous(tensor.shape), start))
        self._program.store(self._program.value(outputs[-1]), Read(loss, ()))
        self.result = Traced(
            self._program,
            dict(zip(parameters, starts[0], strict=True)),
            dict(zip(different, starts[1], strict=True)),
            starts[2],
            buffers[0],
            gradients,
            buffers[1],
            buffers[2],
            loss,
        )

    def _lower(self, inputs: list[Value]) -> list[Any]:
        waiting = iter(inputs)
        for node in self._graph.graph.nodes:
            if node.op == "placeholder":
                self._known[node] = next(waiting)
            elif node.op == "get_attr":
                self._known[node] = getattr(self._graph, str(node.target))
            elif node.op == "output":
                flat, _ = torch.utils._pytree.tree_flatten(node.args[0])
                return [self._known[each] if isinstance(each, fx.Node) else each for each in flat]
            else:
                self._known[node] = self._call(node)
        raise AssertionError("a graph without an output")

    def _call(self, node: fx.Node) -> Any:
        arguments = fx.map_arg(node.args, self._known.__getitem__)
        options = fx.map_arg(node.kwargs, self._known.__getitem__)
        target: Any = node.target
        if not isinstance(target, torch._ops.OpOverload):
            return target(*arguments)  # operator.getitem
        name = str(target).removesuffix(".default")
        if torch.Tag.nondeterministic_seeded in target.tags:
            raise NotExpressible(f"the loss draws random numbers ({name})")
        if target._schema.is_mutable:
            raise NotExpressible(f"the loss changes a tensor in place ({name})")
        if _has_open_shape(node):
            raise NotExpressible(f"how much the loss computes depends on numbers ({name})")
        leaves = torch.utils._pytree.tree_leaves((arguments, options))
        if not any(isinstance(leaf, Value) for leaf in leaves):
            return target(*arguments, **options)
        made = _made(target, arguments, options)
        if made is not None:
            return made
        if target not in _RULES:
            raise NotExpressible(f"the loss needs {name}")
        found = _RULES[target](self._program, *arguments, **options)
        if (
            _is_truth(node)
            and not (isinstance(found, Value) and found.is_bool)
            and not isinstance(found, Tensor)
        ):
            raise NotExpressible(f"the loss computes with truths as with numbers ({name})")
        if isinstance(found, list):
            return [self._kept(each, 2) for each in found]
        return self._kept(found, len(node.users))

    def _kept(self, found: Operand | None, users: int) -> Operand | None:
        """Store what is needed more than once, unless it is as cheap as reading it."""
        if not isinstance(found, Value) or users < 2 or _is_cheap(found.term):
            return found
        return self._program.stored(found)


def _has_open_shape(node: fx.Node) -> bool:
    """May an operation's result have another shape next time, as what a mask selects?"""
    target: Any = node.target
    if target != torch.ops.aten.index.Tensor:
        return torch.Tag.dynamic_output_shape in target.tags
    # With a boolean index the shape depends on how many are true.
    ids: Any = node.args[1]
    return any(_dtype_of(each) in (torch.bool, torch.uint8) for each in ids)


def _dtype_of(node: fx.Node | None) -> torch.dtype | None:
    if node is None:
        return None
    value = node.meta.get("val")
    if value is None and node.op == "get_attr":
        value = getattr(node.graph.owning_module, str(node.target))
    return getattr(value, "dtype", None)


def _is_truth(node: fx.Node) -> bool:
    return getattr(node.meta.get("val"), "dtype", None) == torch.bool


def _is_cheap(term: Term) -> bool:
    if isinstance(term, Apply):
        return term.name in ("is_true", "not_", "neg") and _is_cheap(term.arguments[0])
    return isinstance(term, Read | Scalar)


def _made(target: Any, arguments: Any, options: Any) -> Tensor | None:
    """Return tensors that are known from a shape alone."""
    aten = torch.ops.aten
    dtype = options.get("dtype") or torch.float64
    fills = {aten.ones_like.default: 1.0, aten.zeros_like.default: 0.0}
    if target in fills:
        return torch.full(shape_of(arguments[0]), fills[target], dtype=dtype)
    if target == aten.full_like.default:
        return torch.full(shape_of(arguments[0]), arguments[1], dtype=dtype)
    if target == aten.new_zeros.default:
        return torch.zeros(arguments[1], dtype=dtype)
    if target == aten.new_ones.default:
        return torch.ones(arguments[1], dtype=dtype)
    if target == aten.new_full.default:
        return torch.full(arguments[1], arguments[2], dtype=dtype)
    return None
