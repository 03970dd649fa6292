"""The structure of a foreign model: which of its modules stand for which of our sites, read off a
trace of one pass.

A module may be called several times in one pass (layers that share their weights), so a call is a
path and a number.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun
from attnlab.pretrained.tracing import FoundAttention, ModelTrace, TracedCall


class ModuleCall(NamedTuple):
    """A call of a module in one pass: its path in the foreign model, and how many calls of it came
    before."""

    path: str
    number: int = 0


@dataclass(frozen=True)
class AttentionStructure:
    """One attention: its name in the block, where it is computed, and how the residual stream goes
    on after it.

    nth: its number among the attentions in one call · adds: the module whose output is added to the
    stream, None where the trace does not show it · after: the stream after it: "sum" (what it was
    and what was added), what that module call returns, or None (not seen).
    """

    name: str
    place: ModuleCall
    nth: int
    backend: str
    num_heads: int
    num_kv_heads: int
    shows_heads: bool
    adds: ModuleCall | None
    after: ModuleCall | str | None


@dataclass(frozen=True)
class BlockStructure:
    """One block.

    place: the module that receives the stream, None where no module is the block · end: the module
    that returns it, None where none does; another one where attention and feed-forward alternate in
    a list · down: the module that projects the hidden layer back to d_model · adds: the module
    whose output the feed-forward part adds to the stream · gives: "tensor", "one" (a tuple of one)
    or "other" · stream: "batch first", "length first", or "one input", (length, width).
    """

    place: ModuleCall | None
    attentions: tuple[AttentionStructure, ...]
    down: ModuleCall | None = None
    adds: ModuleCall | None = None
    gives: str = "other"
    stream: str = "batch first"
    end: ModuleCall | None = None

    @property
    def places(self) -> list[ModuleCall]:
        """All module calls that this structure names."""
        found = [self.place, self.end, self.down, self.adds]
        for each in self.attentions:
            after = each.after if isinstance(each.after, ModuleCall) else None
            found += [each.place, each.adds, after]
        return [each for each in found if each is not None]

    @property
    def parts(self) -> list[str]:
        """The names of the parts in the block."""
        return [*(each.name for each in self.attentions), "feed_forward"]


@dataclass(frozen=True)
class StackStructure:
    """One stack of blocks, and the paths of the modules around it, whose arguments say what it
    reads."""

    name: str
    blocks: tuple[BlockStructure, ...]
    around: tuple[str, ...]

    @property
    def paths(self) -> list[str]:
        """The paths of the hook points of the blocks."""
        prefix = f"{self.name}." if self.name else ""
        return [f"{prefix}layers.{index}" for index in range(len(self.blocks))]

    def module_in(self, foreign: nn.Module) -> nn.Module | None:
        """Return the innermost module around the stack that can be called, or None."""
        modules = [foreign.get_submodule(path) for path in reversed(self.around) if path]
        called = [each for each in modules if not isinstance(each, nn.ModuleList | nn.ModuleDict)]
        return next(iter(called), None)

    @property
    def attentions(self) -> Iterator[tuple[str, AttentionStructure]]:
        """Every attention with the path of its hook point."""
        for path, block in zip(self.paths, self.blocks, strict=True):
            for each in block.attentions:
                yield f"{path}.{each.name}", each


@dataclass(frozen=True)
class ModelStructure:
    """All stacks of a model."""

    stacks: tuple[StackStructure, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stacks."""
        return tuple(stack.name for stack in self.stacks)

    @property
    def attentions(self) -> Iterator[tuple[str, AttentionStructure]]:
        """Every attention with the path of its hook point."""
        for stack in self.stacks:
            yield from stack.attentions


Block = tuple[TracedCall | None, list[FoundAttention]]
"""A block's call in the trace, None where no module is the block, and the attentions in it."""


def find_structure(trace: ModelTrace, *, is_encoder_decoder: bool) -> ModelStructure:
    """Read the structure of a model off a trace of one pass.

    Raises:
        CouldNotRun: the trace holds no attention.
    """
    if not trace.attentions:
        raise CouldNotRun(
            "no attention was found in this model: it calls neither an attention function of "
            "transformers, nor scaled_dot_product_attention or multi_head_attention_forward of "
            "torch, nor multiplies a softmax with values."
        )
    containers: dict[str, list[Block]] = {}
    for attention in trace.attentions:
        block = _block_of(attention, trace)
        if block is None:
            container = attention.path
        else:
            container = _list_of(block.path.rpartition(".")[0], trace)
        blocks = containers.setdefault(container, [])
        if block is not None and blocks and blocks[-1][0] is block:
            blocks[-1][1].append(attention)
        else:
            blocks.append((block, [attention]))
    names = _stack_names(list(containers), is_encoder_decoder=is_encoder_decoder)
    stacks = []
    for (container, blocks), name in zip(containers.items(), names, strict=True):
        blocks = _with_others(container, blocks, trace)
        found = _alternating(blocks, trace) or tuple(
            _block_structure(block, attentions, trace) for block, attentions in blocks
        )
        parts = container.split(".") if container else []
        around = [".".join(parts[:end]) for end in range(len(parts) + 1)]
        stacks.append(StackStructure(name, found, tuple(around)))
    return ModelStructure(tuple(stacks))


def _with_others(container: str, blocks: list[Block], trace: ModelTrace) -> list[Block]:
    """Add the blocks of the same list that have no attention, so that all keep their numbers."""
    prefix = re.escape(container)
    beside = [call for call in trace.calls if re.fullmatch(prefix + r"\.\d+", call.path)]
    if not beside:  # lists in a list
        beside = [call for call in trace.calls if re.fullmatch(prefix + r"\.\d+\.\d+", call.path)]
    if any(block is None for block, _ in blocks) or not all(_keeps_shape(call) for call in beside):
        return blocks
    known = {id(block) for block, _ in blocks}
    every: list[Block] = [*blocks, *((call, []) for call in beside if id(call) not in known)]
    return sorted(every, key=lambda each: each[0].begun if each[0] is not None else 0)


def _list_of(container: str, trace: ModelTrace) -> str:
    """Return the list of a block; in a list of lists (pairs of attention and feed-forward), the
    outer one."""
    outer, _, number = container.rpartition(".")
    is_called = any(call.path == container for call in trace.calls)
    return outer if number.isdigit() and outer and not is_called else container


def _alternating(blocks: Sequence[Block], trace: ModelTrace) -> tuple[BlockStructure, ...]:
    """Join the pairs of a list in which attention and feed-forward alternate; () for another
    list."""
    if not blocks[-1][0] or blocks[-1][1] or any(block is None for block, _ in blocks):
        return ()
    found: list[BlockStructure] = []
    first: TracedCall | None = None
    inside: list[FoundAttention] = []
    for block, attentions in blocks:
        assert block is not None
        if attentions and _block_structure(block, attentions, trace).adds is not None:
            return ()  # it has a feed-forward part of its own
        first = block if first is None else first
        inside += attentions
        if attentions:
            continue
        if not inside:
            return ()
        whole = replace(first, ended=block.ended, found=block.found, gives="other")
        joined = _block_structure(whole, inside, trace)
        # A sum that is computed between the modules is returned by none of them.
        end = None if joined.adds is None else _place(block)
        found.append(replace(joined, end=end))
        first, inside = None, []
    return tuple(found)


def _keeps_shape(call: TracedCall) -> bool:
    return (
        call.given is not None and call.found is not None and call.given.shape == call.found.shape
    )


def _block_of(attention: FoundAttention, trace: ModelTrace) -> TracedCall | None:
    """Find the block around an attention: the outermost numbered module with no second attention of
    the same kind in it."""
    around = [call for call in trace.calls if call.begun < attention.begun < call.ended]
    for call in sorted(around, key=lambda each: not _keeps_shape(each)):
        if not re.search(r"(^|\.)\d+$", call.path):
            continue
        inside = [each for each in trace.attentions if call.begun < each.begun < call.ended]
        kinds = [(re.sub(r"\d+", "", each.path[len(call.path) :]), each.nth) for each in inside]
        if len(set(kinds)) == len(kinds):
            return call
    return None


def _stack_names(containers: Sequence[str], *, is_encoder_decoder: bool) -> list[str]:
    """Name the stacks; a single stack needs no name."""
    if len(containers) == 1:
        # The other half of an encoder–decoder may attend in a way that no backend knows.
        parts = containers[0].split(".") if is_encoder_decoder else []
        return [next((part for part in parts if part in ("encoder", "decoder")), "")]
    if is_encoder_decoder and len(containers) == 2:
        return ["encoder", "decoder"]
    names: list[str] = []
    for container in containers:
        others = {part for other in containers if other != container for part in other.split(".")}
        own = [part for part in container.split(".") if part not in others]
        name = "_".join(["stage", *own]) if own else "stack"
        name = next((part for part in own if not part.isdigit()), name)
        names.append(name if name not in names else f"{name}_{len(names)}")
    return names


def _block_structure(
    block: TracedCall | None, attentions: Sequence[FoundAttention], trace: ModelTrace
) -> BlockStructure:
    calls: list[TracedCall] = []
    step = _Step()
    if block is not None:
        calls = [
            each for each in trace.calls if block.begun < each.begun < each.ended < block.ended
        ]
        step = _Step(stream=block.given)
    found: list[AttentionStructure] = []
    names = _attention_names(attentions)
    for name, each, following in zip(names, attentions, [*attentions[1:], None], strict=False):
        step = _step(step.stream, calls, block, each, following)
        found.append(
            AttentionStructure(
                name,
                ModuleCall(each.path, each.number),
                each.nth,
                each.backend,
                each.num_heads,
                each.num_kv_heads,
                each.heads is not None or each.backend == "multi-head",
                step.adds,
                step.after,
            )
        )
    is_attention = block is not None and any(each.path == block.path for each in attentions)
    if block is None or (step.last is None and is_attention):
        return BlockStructure(None, tuple(found))
    return BlockStructure(
        _place(block),
        tuple(found),
        None if step.last is None else _down(step.last, calls),
        None if step.last is None else _place(step.last),
        block.gives,
        _stream_of(block, attentions[0]) if attentions else "batch first",
        _place(block),
    )


@dataclass(frozen=True)
class _Step:
    """How the stream goes on after an attention: what adds to it, the stream after it (as in
    `AttentionStructure`), its value and, after the last attention, the call that the rest of the
    block adds."""

    adds: ModuleCall | None = None
    after: ModuleCall | str | None = None
    stream: Tensor | None = None
    last: TracedCall | None = None


def _step(
    stream: Tensor | None,
    calls: Sequence[TracedCall],
    block: TracedCall | None,
    attention: FoundAttention,
    following: FoundAttention | None,
) -> _Step:
    """Follow the stream through one attention."""
    if block is None:
        return _Step()
    end = block.ended if following is None else following.begun
    after = [call for call in _calls_after(calls, attention) if call.begun < end]
    added = _adds(stream, after, attention)
    if added is None:
        return _Step()
    total, taker = added.total, added.taker
    adds = None if taker is None else _place(added.by)
    choices: list[tuple[ModuleCall | str, Tensor | None]] = [("sum", total)]
    if taker is not None:
        choices.append((_place(taker), taker.found))
    for onward, value in choices:
        if value is None or value.shape != total.shape:
            continue
        if following is not None:
            further = _adds(value, _calls_after(calls, following), following)
            if further is not None and further.taker is not None:
                return _Step(adds, onward, value)
            continue
        closes = _closes(value, calls, block)
        if closes is not None:
            # If no call received the sum, the feed-forward part is parallel to attention.
            return _Step(_place(added.by), None if taker is None else onward, value, closes)
    return _Step(adds)


def _stream_of(block: TracedCall, attention: FoundAttention) -> str:
    """Return the order of the axes of a block's stream."""
    if block.given is None:
        return "batch first"
    shape, own = tuple(block.given.shape[:2]), (attention.batch, attention.num_queries)
    if block.given.dim() == 2:
        return "one input" if attention.backend == "multi-head" else "batch first"
    is_turned = shape == own[::-1] and (shape != own or attention.is_length_first)
    return "length first" if is_turned else "batch first"


def _calls_after(calls: Sequence[TracedCall], attention: FoundAttention) -> list[TracedCall]:
    """List the calls after an attention; multi-head attention projects inside its own call, which
    counts too."""
    found = [each for each in calls if each.begun > attention.begun]
    if attention.backend == "multi-head":
        place = ModuleCall(attention.path, attention.number)
        found = [each for each in calls if each.begun > attention.begun or _place(each) == place]
    return found


def _attention_names(attentions: Sequence[FoundAttention]) -> list[str]:
    names: list[str] = []
    for each in attentions:
        is_own = each.num_keys == each.num_queries and not each.is_cross
        # Two in one call of a module of transformers are both self-attention: its cross-attention
        # is a module of its own.
        is_second = each.backend == "registry" and each.nth > 0
        is_own = is_own and ("attention" not in names or is_second)
        name = "attention" if is_own else "cross_attention"
        names.append(name if name not in names else f"{name}_{len(names)}")
    return names


class _Target:
    """A tensor that others are compared with, many of them: its size and first value are kept."""

    def __init__(self, values: Tensor) -> None:
        self._values = values.detach().float()
        self._size = float(self._values.abs().max()) if values.numel() else 0.0
        self._first = float(self._values.flatten()[0]) if values.numel() else 0.0

    def is_close(self, other: Any) -> bool:
        """Does another value hold the same numbers, perhaps in another shape?"""
        if not isinstance(other, Tensor) or not other.is_floating_point():
            return False
        if other.numel() != self._values.numel():
            return False
        within = 1e-5 * max(self._size, 1e-6)
        if other.numel():
            apart = abs(float(other.detach().flatten()[0]) - self._first)
            if apart > 2 * (within + 1e-4 * abs(self._first)):
                return False
        # Some blocks join the batch and the length into one axis.
        other = other.reshape(self._values.shape).float()
        return torch.allclose(other, self._values, rtol=1e-4, atol=within)


@dataclass(frozen=True)
class _Added:
    """An addition to the stream: the call whose output was added, the sum, and the call that
    received the sum, if any."""

    by: TracedCall
    total: Tensor
    taker: TracedCall | None


def _adds(
    stream: Tensor | None, after: Sequence[TracedCall], attention: FoundAttention
) -> _Added | None:
    """Find the call after an attention whose output, added to the stream, a later call receives."""
    if stream is None:
        return None
    first: int | None = 0
    if attention.backend != "multi-head":
        if attention.heads is None:
            return None
        joined = attention.heads.transpose(1, 2).flatten(2)
        target = _Target(joined)
        first = next((i for i, call in enumerate(after) if target.is_close(call.given)), None)
    if first is None:
        return None
    alone = None
    for call in after[first:]:
        if call.found is None or call.found.shape != stream.shape:
            continue
        total = stream + call.found
        target = _Target(total)
        for each in after:
            if each.begun > call.begun and target.is_close(each.given):
                return _Added(call, total, each)
        alone = alone or _Added(call, total, None)
    return alone


def _closes(stream: Tensor, calls: Sequence[TracedCall], block: TracedCall) -> TracedCall | None:
    """Find the call whose output, added to the stream, is the block's output, perhaps after a
    norm."""
    for call in calls:
        if call.found is None or call.found.numel() != stream.numel():
            continue
        total = _Target(stream + call.found.reshape(stream.shape))
        if total.is_close(block.found):
            return call
        for each in calls:
            is_norm = each.begun > call.begun and total.is_close(each.given)
            if is_norm and each.found is not None and _Target(each.found).is_close(block.found):
                return call
    return None


def _down(last: TracedCall, calls: Sequence[TracedCall]) -> ModuleCall | None:
    """Find the projection from the hidden layer back to d_model: its output is added, perhaps after
    a norm."""
    for call in reversed(calls):
        if call.found is None or not call.projects:
            continue
        target = _Target(call.found)
        if target.is_close(last.found) or target.is_close(last.given):
            return _place(call)
    return None


def _place(call: TracedCall) -> ModuleCall:
    return ModuleCall(call.path, call.number)
