"""A step recorded as a flat list of operations on fixed memory, to be replayed.

PyTorch's autograd, modules and views are asked once, while the step is recorded; what is left of
them afterwards are the operations that touch numbers. Each writes to a place of its own, and places
that are no longer needed serve the next operations, so that a step stays in the cache.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import getitem
from typing import Any

import torch
from torch import Tensor, fx
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from attnlab.errors import AttnlabError
from attnlab.parts.attend import trusted_numbers
from attnlab.train.layouts.layout import NotExpressible

__all__ = ["Tape", "has_open_shape", "recorded"]

aten = torch.ops.aten

_ALIASES = {getitem, aten._unsafe_view.default, aten.detach.default, aten.lift_fresh_copy.default}
_OF_SHAPE_ALONE = {
    aten.zeros_like.default,
    aten.ones_like.default,
    aten.full_like.default,
    aten.new_zeros.default,
}


def recorded(function: Callable[..., Any], *arguments: Any) -> fx.GraphModule:
    """Record a function of tensors as a graph of PyTorch's primitive operations.

    Raises:
        NotExpressible: it draws random numbers, changes tensors, or looks at numbers to decide what
            to do.
    """
    try:
        with trusted_numbers():
            graph = make_fx(functionalize(function))(*arguments)
    except (AttnlabError, NotExpressible):
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise NotExpressible(f"a step cannot be recorded ({reason})") from None
    graph.graph.eliminate_dead_code()
    for node in graph.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            if torch.Tag.nondeterministic_seeded in node.target.tags:
                raise NotExpressible(f"the loss draws random numbers ({node.target})")
            if node.target._schema.is_mutable:
                raise NotExpressible(f"the loss changes a tensor in place ({node.target})")
            if has_open_shape(node):
                raise NotExpressible(
                    f"how much the loss computes depends on numbers ({node.target})"
                )
    return graph


def has_open_shape(node: fx.Node) -> bool:
    """May an operation's result have another shape next time, as what a mask selects?"""
    target: Any = node.target
    if target == aten.index.Tensor:  # with a boolean index the shape depends on how many are true
        ids = node.args[1]
        assert isinstance(ids, Sequence)
        dtypes = {_dtype_of(each) for each in ids if isinstance(each, fx.Node)}
        return not dtypes.isdisjoint((torch.bool, torch.uint8))
    return torch.Tag.dynamic_output_shape in target.tags


def _dtype_of(node: fx.Node) -> torch.dtype | None:
    value = node.meta.get("val")
    if value is None and node.op == "get_attr":
        value = getattr(node.graph.owning_module, str(node.target))
    return getattr(value, "dtype", None)


class Tape:
    """A recorded function, bound to its inputs.

    What depends on no input is computed once, here. `outputs` are where they lie after each `play`.
    """

    def __init__(self, graph: fx.GraphModule, inputs: Sequence[Tensor]) -> None:
        self._calls: list[Callable[[], object]] = []
        self._free: dict[tuple[int, torch.dtype], list[Tensor]] = {}
        self._places: dict[fx.Node, list[Tensor]] = {}
        self._values: dict[fx.Node, Any] = {}
        moving: set[fx.Node] = set()
        waiting = iter(inputs)
        done_with = _last_uses(graph.graph)
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                self._values[node] = next(waiting)
                moving.add(node)
            elif node.op == "get_attr":
                self._values[node] = getattr(graph, str(node.target))
            elif node.op == "output":
                leaves = torch.utils._pytree.tree_leaves(node.args)
                self.outputs: list[Tensor] = [self._values[each] for each in leaves]
            else:
                is_moving = (
                    not moving.isdisjoint(node.all_input_nodes)
                    and node.target not in _OF_SHAPE_ALONE
                )
                if is_moving:
                    moving.add(node)
                self._values[node] = self._take_over(node, is_moving=is_moving)
            for owner in done_with.get(node, ()):
                for place in self._places.pop(owner, ()):
                    self._free.setdefault((place.numel(), place.dtype), []).append(place)

    def play(self) -> None:
        """Compute the outputs again."""
        for call in self._calls:
            call()

    def _take_over(self, node: fx.Node, *, is_moving: bool) -> Any:
        arguments = fx.map_arg(node.args, self._values.__getitem__)
        options = fx.map_arg(node.kwargs, self._values.__getitem__)
        target: Any = node.target
        found = target(*arguments, **options)
        if _is_view(target) or not is_moving:
            return found
        places: list[Tensor] = []
        outputs = [
            self._placed(each, places) for each in ([found] if isinstance(found, Tensor) else found)
        ]
        self._places[node] = places
        self._calls.append(_call(target, arguments, options, outputs))
        return outputs[0] if isinstance(found, Tensor) else outputs

    def _placed(self, like: Tensor | None, places: list[Tensor]) -> Tensor | None:
        """Return memory for a result, with its strides."""
        if like is None or not like.numel():
            return like
        extent = 1 + sum(
            (size - 1) * stride for size, stride in zip(like.shape, like.stride(), strict=True)
        )
        free = self._free.get((extent, like.dtype))
        places.append(
            free.pop() if free else torch.empty(extent, dtype=like.dtype, device=like.device)
        )
        place = places[-1].as_strided(like.shape, like.stride())
        place.copy_(like)
        return place


def _is_view(target: Any) -> bool:
    if target in _ALIASES:
        return True
    return any(
        each.alias_info is not None and not each.alias_info.is_write
        for each in target._schema.returns
    )


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """Return the tensors whose memory is free after each node; that of the outputs never is."""
    owners: dict[fx.Node, fx.Node] = {}
    last: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        is_view = node.op == "call_function" and _is_view(node.target)
        owners[node] = owners[node.all_input_nodes[0]] if is_view else node
        for each in node.all_input_nodes:
            last[owners[each]] = node
    found: dict[fx.Node, list[fx.Node]] = {}
    for owner, node in last.items():
        found.setdefault(node, []).append(owner)
    return found


def _call(
    target: Any, arguments: Any, options: Any, outputs: Sequence[Tensor | None]
) -> Callable[[], object]:
    """Bind an operation to the memory that it reads and writes."""
    first = outputs[0]
    assert first is not None
    if target in (aten.clone.default, aten._to_copy.default):
        return partial(aten.copy_.default, first, arguments[0])
    if target == aten.masked_fill.Scalar:
        fill = torch.tensor(arguments[2], dtype=first.dtype, device=first.device)
        return partial(aten.where.self_out, arguments[1], fill, arguments[0], out=first)
    # A loss writes its unreduced self into the place of its mean first, which is too small for it.
    is_loss = target._schema.name.endswith(("_loss", "binary_cross_entropy"))
    writing = None if is_loss else _writing_overload(target, first.device.type)
    if writing is not None and all(each is not None and each.numel() for each in outputs):
        overload, names = writing
        return partial(overload, *arguments, **options, **dict(zip(names, outputs, strict=True)))

    def compute_and_copy() -> None:
        found = target(*arguments, **options)
        for place, value in zip(
            outputs, [found] if isinstance(found, Tensor) else found, strict=True
        ):
            if place is not None and place.numel():
                place.copy_(value)

    return compute_and_copy


def _writing_overload(target: Any, device: str) -> tuple[Any, list[str]] | None:
    """Return the overload of an operation that writes into given memory, unless it merely
    copies."""
    wanted = [(each.name, str(each.type)) for each in target._schema.arguments]
    packet = target.overloadpacket
    for name in packet.overloads():
        overload = getattr(packet, name)
        outs = [each.name for each in overload._schema.arguments if each.is_out]
        given = [
            (each.name, str(each.type)) for each in overload._schema.arguments if not each.is_out
        ]
        if (
            outs
            and given == wanted
            and torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), device.upper())
        ):
            return overload, outs
    return None
