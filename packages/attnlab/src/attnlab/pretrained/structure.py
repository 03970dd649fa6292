"""The structure of a foreign model: which of its modules stand for which of our sites, read off a
trace of one pass.

A module may be called several times in one pass (layers that share their weights), so a call is a
path and a number.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from torch import nn

from attnlab.errors import CouldNotRun
from attnlab.pretrained.model_trace import ModelTrace, ModuleCall, TracedAttention, TracedCall
from attnlab.pretrained.origins import are_one_sequence
from attnlab.pretrained.stream import Step, find_down, follow


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
        container = _list_of_dicts(attention.path, trace)
        if block is not None:
            container = _list_of(block.path.rpartition(".")[0], trace)
        blocks = containers.setdefault(container, [])
        if block is not None and blocks and blocks[-1][0] is block:
            blocks[-1][1].append(attention)
        else:
            blocks.append((block, [attention]))
    return containers


def _list_of_dicts(path: str, trace: ModelTrace) -> str:
    """Return the list that holds an attention in an entry that is no module of its own, such as a
    `ModuleDict` whose parts the model calls; an attention anywhere else is its own list."""
    number = re.search(r"(?<=\.)\d+(?=\.)", path)
    if number is None or _calls_at(re.escape(path[: number.end()]), trace):
        return path
    return path[: number.start() - 1]


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
    step = Step()
    if block is not None:
        calls = [
            call for call in trace.calls if block.begun < call.begun < call.ended < block.ended
        ]
        step = Step(stream=block.input)
    structures: list[AttentionStructure] = []
    names = _attention_names(block, attentions, trace)
    for name, attention, following in zip(names, attentions, [*attentions[1:], None], strict=False):
        step = follow(step.stream, calls, block, attention, following)
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
        down, adds = find_down(step.last, calls), step.last.place
    stream = _stream_of(block, attentions)
    place = block.place
    return BlockStructure(place, tuple(structures), down, adds, block.gives, stream, end=place)


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
