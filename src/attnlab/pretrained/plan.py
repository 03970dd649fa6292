"""The plan of a foreign model: which of its modules stand for which of our sites, as a survey found them.

A module may be called several times in one pass (layers that share their weights), so a place is a path and the number
of the call.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.errors import CouldNotRun
from attnlab.pretrained.survey import Attended, Call, Survey

__all__ = ["AttentionPlan", "BlockPlan", "Place", "Plan", "StackPlan", "make_plan"]


class Place(NamedTuple):
    """A call of a module in one pass: its path in the foreign model, and how often it was called before."""

    path: str
    number: int = 0


class AttentionPlan(NamedTuple):
    """One attention: its name in the block, where it is met, and how the residual stream goes on after it.

    nth: of the attentions in one call · adds: the module whose output is added to the stream, None where it cannot be
    told · after: "sum", the stream is then what it was and what was added; a place, it is what that module gives; None,
    it cannot be seen.
    """

    name: str
    place: Place
    nth: int
    seam: str
    num_heads: int
    num_kv_heads: int
    shows_heads: bool
    adds: Place | None
    after: Place | str | None


class BlockPlan(NamedTuple):
    """One block.

    place: the module that is given the stream, None where no module is the block · end: the one that gives it on,
    None where none does; another one where attention and feed-forward take turns in a list · down: the module that
    takes the hidden layer back to d_model · adds: the module whose output the feed-forward part adds to the stream ·
    gives: "tensor", "one" (a tuple of one) or "other" · stream: "batch first", "length first", or "one input",
    (length, width).
    """

    place: Place | None
    attentions: tuple[AttentionPlan, ...]
    down: Place | None = None
    adds: Place | None = None
    gives: str = "other"
    stream: str = "batch first"
    end: Place | None = None

    @property
    def places(self) -> list[Place]:
        """Every place that the block is known by."""
        found = [self.place, self.end, self.down, self.adds]
        for each in self.attentions:
            found += [each.place, each.adds, each.after if isinstance(each.after, Place) else None]
        return [each for each in found if each is not None]


class StackPlan(NamedTuple):
    """One stack of blocks, and the paths of the modules around it, which are told what it reads."""

    name: str
    blocks: tuple[BlockPlan, ...]
    around: tuple[str, ...]


class Plan(NamedTuple):
    """All stacks of a model."""

    stacks: tuple[StackPlan, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the stacks."""
        return tuple(stack.name for stack in self.stacks)

    @property
    def attentions(self) -> Iterator[tuple[str, AttentionPlan]]:
        """Every attention with the path of its door."""
        for stack in self.stacks:
            for index, block in enumerate(stack.blocks):
                for each in block.attentions:
                    yield ".".join(filter(None, (stack.name, f"layers.{index}", each.name))), each


def make_plan(survey: Survey, *, is_encoder_decoder: bool) -> Plan:
    """Read the plan of a model off a survey of it.

    Raises:
        CouldNotRun: no attention was met.
    """
    if not survey.attended:
        raise CouldNotRun(
            "no attention was met in this model: it calls neither an attention function of transformers, nor "
            "scaled_dot_product_attention or multi_head_attention_forward of torch, nor multiplies a softmax with "
            "values."
        )
    groups: dict[str, list[tuple[Call | None, list[Attended]]]] = {}
    for attended in survey.attended:
        block = _block_of(attended, survey)
        container = block.path.rpartition(".")[0] if block is not None else attended.path
        container = container if block is None else _list_of(container, survey)
        blocks = groups.setdefault(container, [])
        if block is not None and blocks and blocks[-1][0] is block:
            blocks[-1][1].append(attended)
        else:
            blocks.append((block, [attended]))
    names = _stack_names(list(groups), is_encoder_decoder=is_encoder_decoder)
    stacks = []
    for (container, found), name in zip(groups.items(), names, strict=True):
        found = _with_others(container, found, survey)
        planned = _paired(found, survey) or tuple(_planned(block, attended, survey) for block, attended in found)
        stacks.append(StackPlan(name, planned, tuple(_prefixes(container))))
    return Plan(tuple(stacks))


def _with_others(
    container: str, found: list[tuple[Call | None, list[Attended]]], survey: Survey
) -> list[tuple[Call | None, list[Attended]]]:
    """Add the blocks beside these that do not attend, so that all keep their numbers."""
    known = {id(block) for block, _ in found}
    beside = [call for call in survey.calls if re.fullmatch(re.escape(container) + r"\.\d+", call.path)]
    if not beside:  # lists in a list
        beside = [call for call in survey.calls if re.fullmatch(re.escape(container) + r"\.\d+\.\d+", call.path)]
    if any(block is None for block, _ in found) or not all(_keeps_shape(call) for call in beside):
        return found
    all_of_them = [*found, *((call, []) for call in beside if id(call) not in known)]
    return sorted(all_of_them, key=lambda each: each[0].begun if each[0] is not None else 0)


def _list_of(container: str, survey: Survey) -> str:
    """Return the list of a block; of a list in a list, as of pairs of attention and feed-forward, the outer one."""
    outer, _, number = container.rpartition(".")
    is_called = any(call.path == container for call in survey.calls)
    return outer if number.isdigit() and outer and not is_called else container


def _paired(found: Sequence[tuple[Call | None, list[Attended]]], survey: Survey) -> tuple[BlockPlan, ...]:
    """Plan a list in which attention and feed-forward take turns: one block for both; nothing of any other list."""
    if not found[-1][0] or found[-1][1] or any(block is None for block, _ in found):
        return ()
    planned: list[BlockPlan] = []
    parts: list[tuple[Call, list[Attended]]] = []
    for block, attended in found:
        assert block is not None
        if attended and _planned(block, attended, survey).adds is not None:
            return ()  # it has a feed-forward part of its own
        parts.append((block, attended))
        if attended:
            continue
        inside = [each for _, some in parts for each in some]
        if not inside:
            return ()
        first = parts[0][0]
        whole = replace(first, ended=block.ended, found=block.found, gives="other")
        plan = _planned(whole, inside, survey)
        # What is added outside of the modules is given on by none of them.
        planned.append(plan._replace(end=None if plan.adds is None else _place(block)))
        parts = []
    return tuple(planned)


def _keeps_shape(call: Call) -> bool:
    return call.given is not None and call.found is not None and call.given.shape == call.found.shape


def _block_of(attended: Attended, survey: Survey) -> Call | None:
    """Find the block around an attention: the outermost numbered module that holds no second one of the same kind."""
    around = [call for call in survey.calls if call.begun < attended.begun < call.ended]
    for call in sorted(around, key=lambda each: not _keeps_shape(each)):
        if not re.search(r"(^|\.)\d+$", call.path):
            continue
        inside = [each for each in survey.attended if call.begun < each.begun < call.ended]
        kinds = [(re.sub(r"\d+", "", each.path[len(call.path) :]), each.nth) for each in inside]
        if len(set(kinds)) == len(kinds):
            return call
    return None


def _stack_names(containers: Sequence[str], *, is_encoder_decoder: bool) -> list[str]:
    """Name the stacks; a model of one needs no name for it."""
    if len(containers) == 1:
        # Of an encoder and a decoder, one may attend in a way that nothing meets.
        parts = containers[0].split(".") if is_encoder_decoder else []
        return [next((part for part in parts if part in ("encoder", "decoder")), "")]
    if is_encoder_decoder and len(containers) == 2:
        return ["encoder", "decoder"]
    names: list[str] = []
    for container in containers:
        others = {part for other in containers if other != container for part in other.split(".")}
        own = [part for part in container.split(".") if part not in others]
        name = next((part for part in own if not part.isdigit()), "_".join(["stage", *own]) if own else "stack")
        names.append(name if name not in names else f"{name}_{len(names)}")
    return names


def _prefixes(path: str) -> list[str]:
    parts = path.split(".")
    return ["", *(".".join(parts[:end]) for end in range(1, len(parts) + 1))] if path else [""]


def _planned(block: Call | None, attended: Sequence[Attended], survey: Survey) -> BlockPlan:
    names = _attention_names(attended)
    if block is None:
        return BlockPlan(None, tuple(_plan_of(each, name) for each, name in zip(attended, names, strict=True)))
    calls = [call for call in survey.calls if block.begun < call.begun < call.ended < block.ended]
    planned, stream, last = [], block.given, None
    for index, (name, each) in enumerate(zip(names, attended, strict=True)):
        end = attended[index + 1].begun if index + 1 < len(attended) else block.ended
        after = [call for call in _calls_after(calls, each) if call.begun < end]
        added = _adds(stream, after, each)
        following = attended[index + 1] if index + 1 < len(attended) else None
        onward, stream, last = _onward(added, calls, block, following)
        is_sure = added is not None and (added.taker is not None or last is not None)
        planned.append(_plan_of(each, name, _place(added.by) if added is not None and is_sure else None, onward))
    if last is None and any(each.path == block.path for each in attended):
        return BlockPlan(None, tuple(planned))  # no more than the attention itself
    down = None if last is None else _down(last, calls)
    return BlockPlan(
        _place(block),
        tuple(planned),
        None if down is None else _place(down),
        None if last is None else _place(last),
        block.gives,
        _stream_of(block, attended[0]) if attended else "batch first",
        _place(block),
    )


def _stream_of(block: Call, attended: Attended) -> str:
    """Say in which order the axes of a block's stream stand."""
    if block.given is None:
        return "batch first"
    shape, own = tuple(block.given.shape[:2]), (attended.batch, attended.num_queries)
    if block.given.dim() == 2:
        return "one input" if attended.seam == "multi-head" else "batch first"
    is_told = shape == own[::-1] and (shape != own or attended.is_length_first)
    return "length first" if is_told else "batch first"


def _calls_after(calls: Sequence[Call], attended: Attended) -> list[Call]:
    """List the calls after an attention; what is projected inside one function comes out of the call it is in."""
    is_whole, place = attended.seam == "multi-head", (attended.path, attended.number)
    return [each for each in calls if each.begun > attended.begun or (is_whole and (each.path, each.number) == place)]


def _plan_of(each: Attended, name: str, adds: Place | None = None, after: Place | str | None = None) -> AttentionPlan:
    place, shows = Place(each.path, each.number), each.heads is not None or each.seam == "multi-head"
    return AttentionPlan(name, place, each.nth, each.seam, each.num_heads, each.num_kv_heads, shows, adds, after)


def _attention_names(attended: Sequence[Attended]) -> list[str]:
    names: list[str] = []
    for each in attended:
        is_own = each.num_keys == each.num_queries and not each.is_cross
        # Of two in one call of a module of transformers neither is another's: that has a module of its own.
        is_own = is_own and ("attention" not in names or (each.seam == "registry" and each.nth > 0))
        name = "attention" if is_own else "cross_attention"
        names.append(name if name not in names else f"{name}_{len(names)}")
    return names


class _Added(NamedTuple):
    """Something added to the stream: by a call; the sum; and the call that was then given the sum, if any."""

    by: Call
    total: Tensor
    taker: Call | None


def _adds(stream: Tensor | None, after: Sequence[Call], attended: Attended) -> _Added | None:
    """Find the call after an attention whose output, added to the stream, some later call is given."""
    if stream is None:
        return None
    takes = [0]
    if attended.seam != "multi-head":
        joined = None if attended.heads is None else attended.heads.transpose(1, 2).flatten(2)
        takes = [] if joined is None else [i for i, call in enumerate(after) if _is_close(call.given, joined)]
    if not takes:
        return None
    candidates = [call for call in after[takes[0] :] if call.found is not None and call.found.shape == stream.shape]
    for call in candidates:
        total = stream + call.found  # type: ignore[operator]
        taker = next((each for each in after if each.begun > call.begun and _is_close(each.given, total)), None)
        if taker is not None:
            return _Added(call, total, taker)
    return _Added(candidates[0], stream + candidates[0].found, None) if candidates else None  # type: ignore[operator]


def _onward(
    added: _Added | None, calls: Sequence[Call], block: Call, following: Attended | None
) -> tuple[Place | str | None, Tensor | None, Call | None]:
    """Say how the stream goes on after an attention, its value, and (after the last one) what the rest adds to it."""
    if added is None:
        return None, None, None
    choices: list[tuple[Place | str | None, Tensor | None]] = [("sum", added.total)]
    if added.taker is not None:
        choices.append((_place(added.taker), added.taker.found))
    for onward, stream in choices:
        if stream is None or stream.shape != added.total.shape:
            continue
        if following is not None:
            further = _adds(stream, _calls_after(calls, following), following)
            if further is not None and further.taker is not None:
                return onward, stream, None
            continue
        closes = _closes(stream, calls, block)
        if closes is not None:
            # Where nothing was given the sum, the feed-forward part stands beside attention, not after it.
            return onward if added.taker is not None else None, stream, closes
    return None, None, None


def _closes(stream: Tensor, calls: Sequence[Call], block: Call) -> Call | None:
    """Find the call whose output, added to the stream, is what the block gives, perhaps after a norm."""
    for call in calls:
        if call.found is None or call.found.numel() != stream.numel():
            continue
        total = stream + call.found.reshape(stream.shape)
        if _is_close(block.found, total):
            return call
        norms = [each for each in calls if each.begun > call.begun and _is_close(each.given, total)]
        if any(each.found is not None and _is_close(block.found, each.found) for each in norms):
            return call
    return None


def _down(last: Call, calls: Sequence[Call]) -> Call | None:
    """Find the projection from the hidden layer back to d_model: what it gives is added, perhaps after a norm."""
    for call in reversed(calls):
        made = call.found if call.projects else None
        if made is not None and any(_is_close(each, made) for each in (last.found, last.given)):
            return call
    return None


def _place(call: Call) -> Place:
    return Place(call.path, call.number)


def _is_close(one: Any, other: Tensor) -> bool:
    if not isinstance(one, Tensor) or one.numel() != other.numel() or not one.is_floating_point():
        return False
    one = one.reshape(other.shape)  # some blocks put all rows after one another
    size = float(other.detach().abs().max()) if other.numel() else 0.0
    return torch.allclose(one.float(), other.float(), rtol=1e-4, atol=1e-5 * max(size, 1e-6))
