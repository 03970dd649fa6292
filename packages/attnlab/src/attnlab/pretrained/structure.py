"""The structure of a foreign model: which of its modules stand for which of our sites, read off a
trace of one pass.

A module may be called several times in one pass (layers that share their weights), so a call is a
path and a number.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun
from attnlab.pretrained.model_trace import ModelTrace, ModuleCall, TracedAttention, TracedCall
from attnlab.pretrained.origins import are_one_sequence


@dataclass(frozen=True)
class AttentionStructure:
    """One attention: its name in the block, where it is computed, and how the residual stream goes
    on after it.

    nth: its number among the attentions in one call · adds: the module whose output is added to the
    stream, None where the trace does not show it · after: the stream after it: "sum" (what it was
    and what was added), what that module call returns, or None (not seen) · shows_product: the
    values are multiplied by something other than the softmax's weights, which is shown instead.
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
    shows_product: bool = False


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
        calls = [self.place, self.end, self.down, self.adds]
        for attention in self.attentions:
            calls += [attention.place, attention.adds]
            if isinstance(attention.after, ModuleCall):
                calls.append(attention.after)
        return [call for call in calls if call is not None]

    @property
    def parts(self) -> list[str]:
        """The names of the parts in the block."""
        return [*(attention.name for attention in self.attentions), "feed_forward"]


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
        prefix = f"{self.name}.layers".lstrip(".")
        return [f"{prefix}.{index}" for index in range(len(self.blocks))]

    def module_in(self, foreign: nn.Module) -> nn.Module | None:
        """Return the innermost module around the stack that can be called, or None."""
        for path in reversed(self.around):
            module = foreign.get_submodule(path)
            if path and not isinstance(module, nn.ModuleList | nn.ModuleDict):
                return module
        return None

    @property
    def attentions(self) -> Iterator[tuple[str, AttentionStructure]]:
        """Every attention with the path of its hook point."""
        for path, block in zip(self.paths, self.blocks, strict=True):
            for attention in block.attentions:
                yield f"{path}.{attention.name}", attention


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


TracedBlock = tuple[TracedCall | None, list[TracedAttention]]
"""A block's call in the trace, None where no module is the block, and the attentions in it."""


def find_structure(trace: ModelTrace, *, is_encoder_decoder: bool) -> ModelStructure:
    """Read the structure of a model off a trace of one pass.

    Raises:
        CouldNotRun: the trace holds no attention.
    """
    if not trace.attentions:
        raise CouldNotRun(
            "no attention was found in this model that can be shown: a call of an attention "
            "function of transformers, of torch's scaled_dot_product_attention or "
            "multi_head_attention_forward, or a softmax over the last axis that is multiplied with "
            f"values.{trace.why_set_aside}"
        )
    containers = _blocks_by_list(trace)
    names = _stack_names(list(containers), is_encoder_decoder=is_encoder_decoder)
    stacks = []
    for (container, blocks), name in zip(containers.items(), names, strict=True):
        blocks = _with_others(container, blocks, trace)
        structures = _alternating(blocks, trace) or tuple(
            _block_structure(block, attentions, trace) for block, attentions in blocks
        )
        parts = container.split(".") if container else []
        around = [".".join(parts[:end]) for end in range(len(parts) + 1)]
        stacks.append(StackStructure(name, structures, tuple(around)))
    return ModelStructure(tuple(stacks))


def _blocks_by_list(trace: ModelTrace) -> dict[str, list[TracedBlock]]:
    """Return the blocks that hold attentions, by the path of the list that they are in."""
    containers: dict[str, list[TracedBlock]] = {}
    for attention in trace.attentions:
        block = _block_of(attention, trace)
        container = attention.path
        if block is not None:
            container = _list_of(block.path.rpartition(".")[0], trace)
        blocks = containers.setdefault(container, [])
        if block is not None and blocks and blocks[-1][0] is block:
            blocks[-1][1].append(attention)
        else:
            blocks.append((block, [attention]))
    return containers


def _with_others(container: str, blocks: list[TracedBlock], trace: ModelTrace) -> list[TracedBlock]:
    """Add the blocks of the same list that have no attention, so that all keep their numbers."""
    numbered = re.escape(container) + r"\.\d+"
    beside = _calls_at(numbered, trace) or _calls_at(numbered + r"\.\d+", trace)  # lists in a list
    if not all(map(_keeps_shape, beside)):
        return blocks
    every: dict[int, TracedBlock] = {call.begun: (call, []) for call in beside}
    for block in blocks:
        if block[0] is None:
            return blocks
        every[block[0].begun] = block
    return [every[begun] for begun in sorted(every)]


def _calls_at(pattern: str, trace: ModelTrace) -> list[TracedCall]:
    return [call for call in trace.calls if re.fullmatch(pattern, call.path)]


def _list_of(container: str, trace: ModelTrace) -> str:
    """Return the list of a block; in a list of lists (pairs of attention and feed-forward), the
    outer one."""
    outer, _, number = container.rpartition(".")
    is_called = any(call.path == container for call in trace.calls)
    if outer and number.isdigit() and not is_called:
        return outer
    return container


def _alternating(blocks: Sequence[TracedBlock], trace: ModelTrace) -> tuple[BlockStructure, ...]:
    """Join the pairs of a list in which attention and feed-forward alternate; () for another
    list."""
    calls = [call for call, _ in blocks if call is not None]
    if len(calls) < len(blocks) or blocks[-1][1]:
        return ()
    structures: list[BlockStructure] = []
    first: TracedCall | None = None
    inside: list[TracedAttention] = []
    for call, (_, attentions) in zip(calls, blocks, strict=True):
        first = first or call
        if attentions:
            if _block_structure(call, attentions, trace).adds is not None:
                return ()  # it has a feed-forward part of its own
            inside += attentions
        elif inside:
            structures.append(_joined(first, call, inside, trace))
            first, inside = None, []
        else:
            return ()
    return tuple(structures)


def _joined(
    first: TracedCall, last: TracedCall, attentions: Sequence[TracedAttention], trace: ModelTrace
) -> BlockStructure:
    """Join the calls of a list from an attention to the feed-forward part after it."""
    whole = replace(first, ended=last.ended, output=last.output, gives="other")
    joined = _block_structure(whole, attentions, trace)
    end = None
    # A sum that is computed between the modules is returned by none of them.
    if joined.adds is not None:
        end = last.place
    return replace(joined, end=end)


def _keeps_shape(call: TracedCall) -> bool:
    return (
        call.input is not None and call.output is not None and call.input.shape == call.output.shape
    )


def _block_of(attention: TracedAttention, trace: ModelTrace) -> TracedCall | None:
    """Find the block around an attention: the outermost numbered module with no second attention of
    the same kind in it."""
    around = [call for call in trace.calls if call.begun < attention.begun < call.ended]
    for call in sorted(around, key=lambda call: not _keeps_shape(call)):
        if not re.search(r"(^|\.)\d+$", call.path):
            continue
        inside = [one for one in trace.attentions if call.begun < one.begun < call.ended]
        kinds = [(re.sub(r"\d+", "", one.path[len(call.path) :]), one.nth) for one in inside]
        if len(set(kinds)) == len(kinds):
            return call
    return None


def _stack_names(containers: Sequence[str], *, is_encoder_decoder: bool) -> list[str]:
    """Name the stacks; a single stack needs no name."""
    halves = ["encoder", "decoder"]
    if is_encoder_decoder and len(containers) == 2:
        return halves
    if len(containers) == 1:
        # The other half of an encoder–decoder may attend in a way that no backend knows.
        halves_named = [part for part in containers[0].split(".") if part in halves]
        return halves_named[:1] if is_encoder_decoder and halves_named else [""]
    names: list[str] = []
    for container in containers:
        _add_name(names, _stack_name(container, containers))
    return names


def _add_name(names: list[str], name: str) -> None:
    """Add a name to those before it, with its number where it is one of them."""
    names.append(name if name not in names else f"{name}_{len(names)}")


def _stack_name(container: str, containers: Sequence[str]) -> str:
    """Name a stack by the part of its path that the other stacks' lack."""
    shared = ".".join(other for other in containers if other != container).split(".")
    parts = [part for part in container.split(".") if part not in shared]
    for part in parts:
        if not part.isdigit():
            return part
    return "_".join(["stage", *parts]) if parts else "stack"


def _block_structure(
    block: TracedCall | None, attentions: Sequence[TracedAttention], trace: ModelTrace
) -> BlockStructure:
    calls: list[TracedCall] = []
    step = _Step()
    if block is not None:
        calls = [
            call for call in trace.calls if block.begun < call.begun < call.ended < block.ended
        ]
        step = _Step(stream=block.input)
    structures: list[AttentionStructure] = []
    names = _attention_names(block, attentions, trace)
    for name, attention, following in zip(names, attentions, [*attentions[1:], None], strict=False):
        step = _step(step.stream, calls, block, attention, following)
        shows_heads = attention.heads is not None or attention.backend == "multi-head"
        where = attention.place, attention.nth, attention.backend
        heads = attention.num_heads, attention.num_kv_heads, shows_heads
        ends = step.adds, step.after, attention.shows_product
        structures.append(AttentionStructure(name, *where, *heads, *ends))
    is_itself = block is not None and block.path in {place.path for place in attentions}
    if block is None or (step.last is None and is_itself):
        return BlockStructure(None, tuple(structures))
    down = adds = None
    if step.last is not None:
        down, adds = _down(step.last, calls), step.last.place
    stream = _stream_of(block, attentions)
    place = block.place
    return BlockStructure(place, tuple(structures), down, adds, block.gives, stream, end=place)


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
    attention: TracedAttention,
    following: TracedAttention | None,
) -> _Step:
    """Follow the stream through one attention."""
    if block is None:
        return _Step()
    end = following.begun if following is not None else block.ended
    after = [call for call in _calls_after(calls, attention) if call.begun < end]
    added = _adds(stream, after, attention)
    if added is None:
        return _Step()
    if following is None:
        return _last_step(added, calls, block)
    for onward, value in added.streams:
        further = _adds(value, _calls_after(calls, following), following)
        if further is not None and further.taker is not None:
            return _Step(added.place, onward, value)
    return _Step(added.place)


def _last_step(added: "_Added", calls: Sequence[TracedCall], block: TracedCall) -> _Step:
    """Follow the stream from the last attention to the end of the block."""
    for onward, value in added.streams:
        closes = _closes(value, calls, block)
        if closes is not None and added.taker is not None:
            return _Step(added.by.place, onward, value, closes)
        if closes is not None:  # the feed-forward part is parallel to attention
            return _Step(added.by.place, None, value, closes)
    return _Step(added.place)


def _stream_of(block: TracedCall, attentions: Sequence[TracedAttention]) -> str:
    """Return the order of the axes of a block's stream."""
    if block.input is None or not attentions:
        return "batch first"
    attention = attentions[0]
    shape, sizes = tuple(block.input.shape[:2]), (attention.batch, attention.num_queries)
    if block.input.dim() == 2:
        if attention.backend == "multi-head":
            return "one input"
    elif shape == sizes[::-1] and (shape != sizes or attention.is_length_first):
        return "length first"
    return "batch first"


def _calls_after(calls: Sequence[TracedCall], attention: TracedAttention) -> list[TracedCall]:
    """List the calls after an attention; multi-head attention projects inside its own call, which
    counts too."""
    place = None
    if attention.backend == "multi-head":
        place = attention.place
    return [call for call in calls if call.begun > attention.begun or call.place == place]


def _attention_names(
    block: TracedCall | None, attentions: Sequence[TracedAttention], trace: ModelTrace
) -> list[str]:
    names: list[str] = []
    for attention in attentions:
        is_own, begun = None, block.begun if block is not None else _begun_around(attention, trace)
        if attention.backend != "multi-head":  # torch is handed queries and keys apart
            is_own = are_one_sequence(
                attention.query_from,
                attention.key_from,
                begun,
                may_be_pooled=_may_be_pooled(attention),
            )
        if is_own is None:
            is_own = attention.num_keys == attention.num_queries and not attention.is_cross
            is_own = is_own and "attention" not in names
        _add_name(names, "attention" if is_own else "cross_attention")
    return names


def _may_be_pooled(attention: TracedAttention) -> bool:
    """Is each query one of two to four keys?"""
    queries, keys = attention.num_queries, attention.num_keys
    return any(abs(queries * pooled - keys) < pooled for pooled in (2, 3, 4))


def _begun_around(attention: TracedAttention, trace: ModelTrace) -> int | None:
    """Return the mark of the innermost numbered module around an attention that has no block, as
    where a layer attends twice by one module."""
    around = [call for call in trace.calls if call.begun < attention.begun < call.ended]
    numbered = [call.begun for call in around if re.search(r"(^|\.)\d+$", call.path)]
    return numbered[-1] if numbered else None


class _Target:
    """A tensor that others are compared with, many of them: its size and first value are kept."""

    def __init__(self, values: Tensor) -> None:
        self._values = values.detach().float()
        self._size = self._first = 0.0
        if values.numel():
            self._size = float(self._values.abs().max())
            self._first = float(self._values.flatten()[0])

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

    @property
    def place(self) -> ModuleCall | None:
        """The call whose output was added, if another call received the sum."""
        return None if self.taker is None else self.by.place

    @property
    def streams(self) -> list[tuple[ModuleCall | str, Tensor]]:
        """What may go on as the stream: the sum, or what the call that received it returns."""
        streams: list[tuple[ModuleCall | str, Tensor]] = [("sum", self.total)]
        if self.taker is None or self.taker.output is None:
            return streams
        if self.taker.output.shape == self.total.shape:
            streams.append((self.taker.place, self.taker.output))
        return streams


def _adds(
    stream: Tensor | None, after: Sequence[TracedCall], attention: TracedAttention
) -> _Added | None:
    """Find the call after an attention whose output, added to the stream, a later call receives."""
    if stream is None:
        return None
    if attention.backend != "multi-head":
        after = _from_reader(attention, after)
    alone = None
    for call in after:
        if call.output is None or call.output.shape != stream.shape:
            continue
        total = stream + call.output
        taker = _receiver(total, [later for later in after if later.begun > call.begun])
        if taker is not None:
            return _Added(call, total, taker)
        alone = alone or _Added(call, total, None)
    return alone


def _from_reader(attention: TracedAttention, after: Sequence[TracedCall]) -> Sequence[TracedCall]:
    """Return the calls from the first that is given the joined heads of an attention."""
    if attention.heads is None:
        return []
    reader = _receiver(attention.heads.transpose(1, 2).flatten(2), after)
    return [] if reader is None else [call for call in after if call.begun >= reader.begun]


def _receiver(values: Tensor, calls: Sequence[TracedCall]) -> TracedCall | None:
    """Find the first call that is given these values."""
    target = _Target(values)
    for call in calls:
        if target.is_close(call.input):
            return call
    return None


def _closes(stream: Tensor, calls: Sequence[TracedCall], block: TracedCall) -> TracedCall | None:
    """Find the call whose output, added to the stream, is the block's output, perhaps after a
    norm."""
    for call in calls:
        if call.output is None or call.output.numel() != stream.numel():
            continue
        total = _Target(stream + call.output.reshape(stream.shape))
        if total.is_close(block.output):
            return call
        for later in calls:
            is_norm = later.begun > call.begun and total.is_close(later.input)
            if (
                is_norm
                and later.output is not None
                and _Target(later.output).is_close(block.output)
            ):
                return call
    return None


def _down(last: TracedCall, calls: Sequence[TracedCall]) -> ModuleCall | None:
    """Find the projection from the hidden layer back to d_model: its output is added, perhaps after
    a norm."""
    for call in reversed(calls):
        if call.output is None or not call.projects:
            continue
        target = _Target(call.output)
        if target.is_close(last.output) or target.is_close(last.input):
            return call.place
    return None
