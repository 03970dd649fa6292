"""The anatomy of a model: the parts that write to the stream of its logits, in order.

In every block, heads write through a projection and perhaps a norm, and one more part is added; the
stream itself may be normalized. After the last block come matrices, norms and an activation, and
the output embedding last. The anatomy of our own models is known; that of a foreign model is found
in the numbers of one small pass. `readout.py` decomposes a logit through it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from attnlab.errors import CouldNotRun, WrongUsage, not_none
from attnlab.models.decoder import Decoder
from attnlab.models.encoder import Encoder
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.single_head import SingleHead
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.model_trace import ModelTrace, TracedAttention, TracedCall
from attnlab.pretrained.structure import StackStructure
from attnlab.pretrained.text import device_of, text_config
from attnlab.pretrained.tracing import trace_model
from attnlab.sites import STREAM_ADVICE, require_model, set_aside, site_of

Function = Callable[[Tensor], Tensor]
_Named = list[tuple[str, Function]]

_MOST_BEHIND = 5  # the most modules between the last block and the output embedding


@dataclass(frozen=True)
class HeadsStep:
    """An attention by its hook point, the projection of its heads, later norms, and a factor."""

    point: str
    projection: str
    norms: tuple[str, ...] = ()
    factor: float = 1.0


@dataclass(frozen=True)
class PartStep:
    """Another addition to the stream: the output of a module call, times a factor."""

    name: str
    path: str
    number: int = 0
    factor: float = 1.0


@dataclass(frozen=True)
class NormStep:
    """A norm of the whole stream."""

    path: str


AnatomyStep = HeadsStep | PartStep | NormStep


@dataclass(frozen=True)
class Anatomy:
    """The steps of all blocks in order, the modules after the last, and the output embedding.

    behind: names and functions · factor: before the output embedding · reader: its name, read: its
    function · scale: of the logits, None if they are capped · bias: added to them last.
    """

    steps: Sequence[AnatomyStep]
    behind: Sequence[tuple[str, Function]]
    factor: float
    reader: str
    read: Function
    scale: float | None
    bias: Tensor | None


def lens_stack(model: nn.Module) -> tuple[str, int]:
    """Return the stack that a lens reads: the prefix of its sites, and its number of blocks.

    Raises:
        WrongUsage: no lens reads models of this kind.
        CouldNotRun: a foreign model without an output embedding.
    """
    require_model(model)
    if isinstance(model, Pretrained):
        _reader_of(model)
        stack = model.structure.stacks[-1]
        return site_of(stack.name, ""), len(stack.blocks)
    got = type(model).__name__
    is_headless = isinstance(model, Encoder) and model.head is None
    advice = "" if is_headless or isinstance(model, SingleHead) else f"; {STREAM_ADVICE}"
    if is_headless:
        got += " without classes"
    if is_headless or not isinstance(model, Decoder | EncoderDecoder | Encoder):
        raise WrongUsage(
            "a lens reads a decoder, an encoder–decoder, an encoder with classes or a pretrained "
            f"model; got {got}, which has no read-out{advice}."
        )
    if isinstance(model, EncoderDecoder):
        return "decoder.", len(model.decoder.layers)
    return "", len(model.layers)


def anatomy_of(model: nn.Module) -> Anatomy:
    """Return how the last stack writes to its stream, and what reads it.

    The anatomy of a foreign model is found in one small pass.

    Raises:
        CouldNotRun: a foreign model has no output embedding, or a logit is not a sum through
            matrices and norms.
    """
    if not isinstance(model, Pretrained):
        return _own(model)
    reader = _reader_of(model)
    seen, stack = _traced(model), model.structure.stacks[-1]
    reader_call = next(call for call in reversed(seen.calls) if call.path == reader)
    behind, factor = _behind(model, seen, _blocks_of(model, stack, seen)[-1], reader_call)
    scale, bias = _after(model, seen, reader_call)
    steps = list(chain.from_iterable(_foreign_steps(model, stack, seen)))
    read = model.foreign.get_submodule(reader)
    return Anatomy(steps, behind, factor, reader, read, scale, bias)


_steps_by_model: WeakKeyDictionary[nn.Module, dict[str, list[list[AnatomyStep]]]] = (
    WeakKeyDictionary()
)


def block_steps(model: nn.Module, stack: str) -> list[list[AnatomyStep]]:
    """Return how each block of a stack writes to its stream; for a foreign model, found in one
    small pass the first time.

    Raises:
        WrongUsage: a model without a stack of blocks.
        CouldNotRun: what a block of a foreign model gives is not a sum.
    """
    if not isinstance(model, Decoder | Encoder | EncoderDecoder | Pretrained):
        raise WrongUsage(
            "a score is taken apart in a decoder, an encoder, an encoder–decoder or a pretrained "
            f"model; got {type(model).__name__}, which has no residual stream of blocks; "
            f"{STREAM_ADVICE}."
        )
    if not isinstance(model, Pretrained):
        blocks: Any = getattr(model, stack) if stack else model
        return [_own_steps(site_of(stack, ""), *numbered) for numbered in enumerate(blocks.layers)]
    by_stack = _steps_by_model.setdefault(model, {})
    if stack not in by_stack:
        structure = next(known for known in model.structure.stacks if known.name == stack)
        by_stack[stack] = _foreign_steps(model, structure, _traced(model))
    return by_stack[stack]


def _traced(model: Pretrained) -> ModelTrace:
    """Trace a foreign model on its example."""
    with set_aside(model):
        return trace_model(model.foreign, example_of(model))


def example_of(model: Pretrained) -> dict[str, Any]:
    """Return the small inputs of a foreign model, on its device and in its precision."""
    example: dict[str, Any] = {}
    for name, value in model.example.items():
        if isinstance(value, Tensor) and value.is_floating_point():
            value = value.to(next(model.foreign.parameters()))
        example[name] = value.to(device_of(model)) if isinstance(value, Tensor) else value
    return example


def _foreign_steps(
    model: Pretrained, stack: StackStructure, seen: ModelTrace
) -> list[list[AnatomyStep]]:
    """Find how the blocks of a stack write to the stream."""
    calls_by_place = {(call.place, call.nth): call for call in reversed(seen.attentions)}
    steps_by_block = []
    blocks = zip(stack.paths, stack.blocks, _blocks_of(model, stack, seen), strict=True)
    for name, structure, block in blocks:
        attentions = []
        for attention in structure.attentions:
            call = calls_by_place[attention.place, attention.nth]
            attentions.append((f"{name}.{attention.name}", call))
        inside = [call for call in seen.calls if block.begun < call.begun < block.ended]
        steps = _steps_of(name, not_none(block.input), attentions, inside, block)
        if steps is None:
            raise not_a_sum(
                f"the output of {block.path} is not the sum of its stream, its heads' outputs "
                "through one matrix that is a module, and one more part"
            )
        steps_by_block.append(steps)
    return steps_by_block


def _own(model: Any) -> Anatomy:
    """Write down the steps of a model of attnlab."""
    prefix, _ = lens_stack(model)
    stack = model.decoder if prefix else model
    steps = list(chain.from_iterable(block_steps(model, prefix.rstrip("."))))
    if stack.final_norm is not None:
        steps.append(NormStep(f"{prefix}final_norm"))
    if model.head is None:
        return Anatomy(steps, [], 1.0, "embedding", stack.embedding.read_out, 1.0, None)
    return Anatomy(steps, [], 1.0, "head", model.head, 1.0, None)


def _own_steps(prefix: str, index: int, block: Any) -> list[AnatomyStep]:
    """Return the steps of a block of attnlab."""
    steps: list[AnatomyStep] = []
    for part in ("attention", "cross_attention", "feed_forward"):
        path = f"{prefix}layers.{index}.{part}"
        if getattr(block, part) is None:
            continue
        if part == "feed_forward":
            steps.append(PartStep(path, path))
        else:
            steps.append(HeadsStep(path, f"{path}.output"))
        if block.norm_place == "post":
            steps.append(NormStep(f"{prefix}layers.{index}.norm_{part}"))
    return steps


def not_a_sum(why: str) -> CouldNotRun:
    """Return the error for a model whose logits are no sum of parts."""
    return CouldNotRun(f"this model's logits cannot be decomposed: {why}. logit_lens can read it.")


def _blocks_of(model: Pretrained, stack: StackStructure, seen: ModelTrace) -> list[TracedCall]:
    """Return the calls of a stack's blocks."""
    calls = {call.place: call for call in seen.calls}
    places = [block.place for block in stack.blocks if block.place]
    if len(places) != len(stack.blocks):
        raise CouldNotRun(f"no module of {model.name} is a block; {STREAM_ADVICE}.")
    return [calls[place] for place in places]


def _reader_of(model: Pretrained) -> str:
    """Return the path of the output embedding."""
    getter = getattr(model.foreign, "get_output_embeddings", None)
    if callable(getter) and "logits" in model.sites:
        embedding = getter()
        for path, module in model.foreign.named_modules():
            if path and module is embedding:
                return str(path)
    raise CouldNotRun(
        f"{type(model.foreign).__name__} has no output embedding that a lens can read: it needs "
        'get_output_embeddings() to return that module, and an output {"logits": ...}, as in '
        "docs/build.md."
    )


def _behind(
    model: Pretrained, seen: ModelTrace, last: TracedCall, reader: TracedCall
) -> tuple[_Named, float]:
    """Find what lies between the last block and the output embedding, and a factor."""
    between = [call for call in seen.calls if last.ended < call.begun < reader.begun]
    leaves = list(filter(_is_leaf, between))
    way = _path(model, last, reader, leaves, _MOST_BEHIND)
    if way is None:
        met = ", ".join(call.path for call in leaves) or "no module"
        raise not_a_sum(
            f"between the last block of {model.name} and {reader.path} is more than norms, "
            f"matrices and activations ({met})"
        )
    return way


def _path(
    model: Pretrained, call: TracedCall, reader: TracedCall, after: Sequence[TracedCall], left: int
) -> tuple[_Named, float] | None:
    """Find the path from a call's output to the output embedding, through at most `left` of the
    later calls: names and functions, and a factor."""
    output = not_none(call.output)
    factor = _factor(reader.input, output)
    if factor is not None:
        return [], factor
    for later in after:
        if not left or later.begun < call.ended or later.output is None:
            continue
        way: _Named = [(later.path, model.foreign.get_submodule(later.path))]
        if _factor(later.input, output) != 1.0:
            if _factor(later.input, gelu(output)) != 1.0:
                continue
            way.insert(0, ("gelu", gelu))  # some models call it without a module
        rest = _path(model, later, reader, after, left - 1)
        if rest is not None:
            return [*way, *rest[0]], rest[1]
    return None


def _after(
    model: Pretrained, seen: ModelTrace, reader: TracedCall
) -> tuple[float | None, Tensor | None]:
    """Return the scale and bias between the output embedding and the logits; a scale of None if
    they are capped."""
    logits, plain = seen.output["logits"], not_none(reader.output)
    factor = _factor(logits, plain)
    if factor is not None:
        return factor, None
    if logits.shape == plain.shape:
        cap, bias = cap_of(model), logits - plain
        if cap and are_close(cap * torch.tanh(plain / cap), logits):
            return None, None
        if are_close(bias[..., :1, :].expand_as(plain), bias):
            return 1.0, bias[:1, 0]
    raise not_a_sum(f"its logits are not the output of {reader.path}, nor that scaled or capped")


def _steps_of(
    name: str,
    stream: Tensor,
    attentions: Sequence[tuple[str, TracedAttention]],
    inside: Sequence[TracedCall],
    block: TracedCall,
) -> list[AnatomyStep] | None:
    """Find the steps from a stream to the block's output; None if there are none."""
    if not attentions:
        return _last_steps(name, stream, inside, block)
    (point, first), *others = attentions
    for steps, onward in _additions(point, first, stream, inside):
        rest = _steps_of(name, onward, others, inside, block)
        if rest is not None:
            return [*steps, *rest]
    return None


def _additions(
    point: str, attention: TracedAttention, stream: Tensor, inside: Sequence[TracedCall]
) -> Iterator[tuple[list[AnatomyStep], Tensor]]:
    """List the ways in which an attention may add to the stream: the steps, and the stream then.

    The sum is recognized by the call that receives it, which may be a norm of the stream.
    """
    made, later = _written(point, attention, stream, inside)
    for step, added in made:
        for call in later:
            stream_input = _like(call.input, stream)
            if stream_input is None:
                continue
            factor = _factor(stream_input - stream, added)
            if factor is None:
                continue
            step, summed = replace(step, factor=factor), stream + factor * added
            yield [step], summed
            if _is_leaf(call) and call.output is not None and call.output.shape == summed.shape:
                yield [step, NormStep(call.path)], call.output
    for step, added in made:  # parallel parts: no call receives the sum
        yield [step], stream + added


def _written(
    point: str, attention: TracedAttention, stream: Tensor, inside: Sequence[TracedCall]
) -> tuple[list[tuple[HeadsStep, Tensor]], list[TracedCall]]:
    """Find what an attention may write, the projection of its heads or a norm of that, and the
    calls after its projection."""
    projection = _projection_of(attention, inside)
    if projection is None:
        return [], []
    projected = _like(projection.output, stream)
    if projected is None:
        return [], []
    made = [(HeadsStep(point, projection.path), projected)]
    later = [call for call in inside if call.begun > projection.begun]
    for call in later:
        normed = _like(call.output, stream)
        if normed is not None and _is_leaf(call) and _factor(call.input, projected) == 1.0:
            made.append((HeadsStep(point, projection.path, (call.path,)), normed))
    return made, later


def _projection_of(attention: TracedAttention, inside: Sequence[TracedCall]) -> TracedCall | None:
    """Find the first matrix that reads the heads of an attention, joined."""
    if attention.heads is None:
        return None
    joined = attention.heads.transpose(1, 2).flatten(2)
    for call in inside:
        if call.begun > attention.begun and call.projects and _factor(call.input, joined) == 1.0:
            return call
    return None


def _last_steps(
    name: str, stream: Tensor, inside: Sequence[TracedCall], block: TracedCall
) -> list[AnatomyStep] | None:
    """Find the last addition, perhaps before a norm, that makes the block's output."""
    output = not_none(block.output)
    ends: list[tuple[list[AnatomyStep], Tensor]] = [([], output)]
    for call in inside:
        stream_input = _like(call.input, stream)
        if stream_input is not None and _is_leaf(call) and _factor(call.output, output) == 1.0:
            ends.append(([NormStep(call.path)], stream_input))
    for norm, end in ends:
        if _factor(end, stream) == 1.0:
            return norm
        part = _part_of(name, end - stream, inside)
        if part is not None:
            return [part, *norm]
    return None


def _part_of(name: str, added: Tensor, inside: Sequence[TracedCall]) -> PartStep | None:
    """Find the call whose output, times a factor, is what was added to the stream."""
    for call in inside:
        output = _like(call.output, added)
        if output is None:
            continue
        factor = _factor(added, output)
        if factor is not None:
            return PartStep(f"{name}.feed_forward", call.path, call.number, factor)
    return None


def _like(value: Tensor | None, stream: Tensor) -> Tensor | None:
    """Return a value in the stream's shape; None if it is of another size."""
    if value is None or value.numel() != stream.numel():
        return None
    return value.reshape(stream.shape)


def _is_leaf(call: TracedCall) -> bool:
    return call.ended == call.begun + 1  # nothing was called inside


def _factor(multiple: Any, value: Tensor) -> float | None:
    """Return the factor of `multiple` over `value`; None if it is not a multiple."""
    if not isinstance(multiple, Tensor) or not multiple.is_floating_point():
        return None
    if multiple.numel() != value.numel():
        return None
    one, other = multiple.reshape(value.shape).double(), value.double()
    power = float(other.square().sum())
    if power == 0.0:
        return None
    factor = float((one * other).sum()) / power
    if factor == 0.0 or not are_close(factor * other, one, multiple.dtype):
        return None
    if abs(factor - 1.0) < 1e-3:
        return 1.0
    return factor


def are_close(one: Tensor, other: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Are two tensors equal but for rounding?"""
    within = max(1e-4, 8 * torch.finfo(dtype or other.dtype).eps)
    if one.shape != other.shape:
        return False
    return float((one - other).abs().max()) <= within * float(other.abs().max())


def cap_of(model: Pretrained) -> float:
    """Return the cap of a model's logits; 0 if it has none."""
    return getattr(text_config(model.foreign), "final_logit_softcapping", None) or 0.0
