"""The parts of a foreign model that write to the stream which becomes its logits, found in the
numbers of one small pass.

In every block, heads write through a projection and perhaps a norm, and one more part is added; the
stream itself may be normalized. After the last block come matrices, norms and an activation, and
the output embedding last. `readout.py` decomposes a logit through them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu

from attnlab.errors import CouldNotRun
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.tracing import FoundAttention, ModelTrace, TracedCall, trace_model
from attnlab.sites import set_aside

__all__ = [
    "Anatomy", "Function", "HeadsStep", "NormStep", "PartStep", "anatomy_of", "are_close", "cap_of",
    "device_of", "reader_of",
]  # fmt: skip

Function = Callable[[Tensor], Tensor]

_MOST_BEHIND = 5  # the most modules between the last block and the output embedding


class HeadsStep(NamedTuple):
    """An attention by its hook point, the projection of its heads, later norms, and a factor."""

    point: str
    projection: str
    norms: tuple[str, ...]
    factor: float


class PartStep(NamedTuple):
    """Another addition to the stream: the output of a module call, times a factor."""

    name: str
    path: str
    number: int
    factor: float


class NormStep(NamedTuple):
    """A norm of the whole stream."""

    path: str


_Step = HeadsStep | PartStep | NormStep


class Anatomy(NamedTuple):
    """The steps of all blocks in order, the modules after the last, a factor before the output
    embedding, and its path.

    scale: of the logits, None if they are capped · bias: added to them last.
    """

    steps: list[_Step]
    behind: list[tuple[str, Function]]
    factor: float
    reader: str
    scale: float | None
    bias: Tensor | None


def anatomy_of(model: Pretrained) -> Anatomy:
    """Find how the last stack writes to its stream and what reads it, from one small pass.

    Raises:
        CouldNotRun: the model has no output embedding, or a logit is not a sum through matrices and
            norms.
    """
    reader = reader_of(model)
    example = {name: _moved(each, model) for name, each in model.example.items()}
    with set_aside(model):
        seen = trace_model(model.foreign, example)
    stack = model.structure.stacks[-1]
    places = [block.place for block in stack.blocks if block.place]
    blocks = [_call_at(seen, place.path, place.number) for place in places]
    if len(blocks) != len(stack.blocks):
        raise CouldNotRun(
            f"{model.name} cannot be taken apart: no module of it is a block with its "
            "residual stream."
        )
    own = [call for call in seen.calls if call.path == reader][-1]
    behind, factor = _behind(model, seen, blocks[-1], own)
    scale, bias = _after(model, seen, own)
    steps: list[_Step] = []
    found = {((each.path, each.number), each.nth): each for each in reversed(seen.attentions)}
    for index, (structure, block) in enumerate(zip(stack.blocks, blocks, strict=True)):
        name = f"{stack.name}.layers.{index}" if stack.name else f"layers.{index}"
        inside = [call for call in seen.calls if block.begun < call.begun < block.ended]
        attentions = [
            (f"{name}.{each.name}", found[(each.place.path, each.place.number), each.nth])
            for each in structure.attentions
        ]
        assert block.given is not None
        way = _way(name, block.given, attentions, inside, block)
        if way is None:
            raise CouldNotRun(
                f"{model.name} cannot be taken apart: the output of {block.path} is not the sum of "
                "its stream, its heads' outputs through one matrix that is a module, and "
                "one more part. logit_lens reads the stream all the same."
            )
        steps += way
    return Anatomy(steps, behind, factor, reader, scale, bias)


def reader_of(model: Pretrained) -> str:
    """Return the path of the output embedding."""
    getter = getattr(model.foreign, "get_output_embeddings", None)
    found = getter() if callable(getter) else None
    modules = model.foreign.named_modules()
    path = next((path for path, module in modules if module is found and path), None)
    if path is None or "logits" not in model.sites:
        raise CouldNotRun(
            f"{type(model.foreign).__name__} has no output embedding, a matrix from its stream to "
            "the vocabulary, so no lens can read its stream."
        )
    return str(path)


def _behind(
    model: Pretrained, seen: ModelTrace, last: TracedCall, own: TracedCall
) -> tuple[list[tuple[str, Function]], float]:
    """Find the functions from the last block to the output embedding, and a factor before it."""
    assert last.found is not None
    after = [call for call in seen.calls if last.ended < call.begun < own.begun and _is_leaf(call)]

    def search(
        value: Tensor, start: int, most: int
    ) -> tuple[list[tuple[str, Function]], float] | None:
        factor = _factor(own.given, value)
        if factor is not None:
            return [], factor
        for call in after if most else ():
            if call.begun < start or call.found is None:
                continue
            before: list[tuple[str, Function]] = []
            if _factor(call.given, value) != 1.0:
                if _factor(call.given, gelu(value)) != 1.0:
                    continue
                before = [("gelu", gelu)]  # some models call it without a module
            rest = search(call.found, call.begun, most - 1)
            if rest is not None:
                module = model.foreign.get_submodule(call.path)
                return [*before, (call.path, module), *rest[0]], rest[1]
        return None

    found = search(last.found, last.ended, _MOST_BEHIND)
    if found is None:
        raise CouldNotRun(
            f"{model.name} cannot be taken apart: between its last block and {own.path} there is "
            "more than norms, matrices and activations "
            f"({', '.join(call.path for call in after) or 'no module'}), so a logit is no "
            "sum of parts. logit_lens reads the stream all the same."
        )
    return found


def _after(
    model: Pretrained, seen: ModelTrace, own: TracedCall
) -> tuple[float | None, Tensor | None]:
    """Return the scale and bias between the output embedding and the logits; a scale of None if
    they are capped."""
    logits, plain = seen.output["logits"], own.found
    assert plain is not None
    factor = _factor(logits, plain)
    if factor is not None:
        return factor, None
    cap = cap_of(model)
    if cap and logits.shape == plain.shape and are_close(cap * torch.tanh(plain / cap), logits):
        return None, None
    if logits.shape == plain.shape:
        bias = logits - plain
        if are_close(bias[..., :1, :].expand_as(plain), bias):
            return 1.0, bias[:1, 0]
    raise CouldNotRun(
        f"{model.name} cannot be taken apart: its logits are not the output of {own.path}, nor "
        "that scaled or capped."
    )


def _way(
    name: str,
    stream: Tensor,
    attentions: Sequence[tuple[str, FoundAttention]],
    inside: Sequence[TracedCall],
    block: TracedCall,
) -> list[_Step] | None:
    """Find the steps from a stream to the block's output."""
    if not attentions:
        return _closing(name, stream, inside, block)
    (point, first), *others = attentions
    for step, taken, onward in _adds(point, first, stream, inside):
        norms: list[tuple[list[_Step], Tensor]] = [([], onward)]
        normed = taken.found if taken is not None and _is_leaf(taken) else None
        if taken is not None and normed is not None and normed.shape == onward.shape:
            norms.append(([NormStep(taken.path)], normed))
        for norm, value in norms:
            rest = _way(name, value, others, inside, block)
            if rest is not None:
                return [step, *norm, *rest]
    return None


def _adds(
    point: str, attention: FoundAttention, stream: Tensor, inside: Sequence[TracedCall]
) -> Iterator[tuple[_Step, TracedCall | None, Tensor]]:
    """List the ways in which an attention may add to the stream: the step, the call that receives
    the sum, the sum."""
    if attention.heads is None:
        return
    joined = attention.heads.transpose(1, 2).flatten(2)
    later = [call for call in inside if call.begun > attention.begun]
    projections = (call for call in later if call.projects and _factor(call.given, joined) == 1.0)
    projection = next(projections, None)
    if projection is None or projection.found is None or projection.found.numel() != stream.numel():
        return
    later = [call for call in later if call.begun > projection.begun]
    made: list[tuple[tuple[str, ...], Tensor]] = [((), projection.found)]
    for call in later:
        is_norm = _is_leaf(call) and _factor(call.given, projection.found) == 1.0
        if is_norm and call.found is not None and call.found.numel() == stream.numel():
            made.append(((call.path,), call.found))
    for norms, value in made:
        added = value.reshape(stream.shape)
        for call in later:
            if call.given is None or call.given.numel() != stream.numel():
                continue
            factor = _factor(call.given.reshape(stream.shape) - stream, added)
            if factor:
                step = HeadsStep(point, projection.path, norms, factor)
                yield step, call, stream + factor * added
    for norms, value in made:  # parallel parts: no call receives the sum
        step = HeadsStep(point, projection.path, norms, 1.0)
        yield step, None, stream + value.reshape(stream.shape)


def _closing(
    name: str, stream: Tensor, inside: Sequence[TracedCall], block: TracedCall
) -> list[_Step] | None:
    """Find the last addition, perhaps before a norm, that makes the block's output."""
    assert block.found is not None
    ends: list[tuple[list[_Step], Tensor]] = [([], block.found)]
    for call in inside:
        is_norm = _is_leaf(call) and call.given is not None and call.given.shape == stream.shape
        if is_norm and _factor(call.found, block.found) == 1.0:
            assert call.given is not None
            ends.append(([NormStep(call.path)], call.given))
    for norm, end in ends:
        if _factor(end, stream) == 1.0:
            return norm
        for call in inside:
            if call.found is not None and call.found.numel() == stream.numel():
                factor = _factor(end - stream, call.found.reshape(stream.shape))
                if factor:
                    return [PartStep(f"{name}.feed_forward", call.path, call.number, factor), *norm]
    return None


def _is_leaf(call: TracedCall) -> bool:
    return call.ended == call.begun + 1  # nothing was called inside


def _call_at(seen: ModelTrace, path: str, number: int) -> TracedCall:
    return next(call for call in seen.calls if (call.path, call.number) == (path, number))


def _factor(found: Any, value: Tensor) -> float | None:
    """Return the factor of `found` over `value`; None if it is not a multiple."""
    if not isinstance(found, Tensor) or not found.is_floating_point():
        return None
    if found.numel() != value.numel():
        return None
    one, other = found.reshape(value.shape).double(), value.double()
    power = float(other.square().sum())
    factor = float((one * other).sum()) / power if power else 0.0
    if not factor or not are_close(factor * other, one, found.dtype):
        return None
    return 1.0 if abs(factor - 1.0) < 1e-3 else factor


def are_close(one: Tensor, other: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Are two tensors equal but for rounding?"""
    within = max(1e-4, 8 * torch.finfo(dtype or other.dtype).eps)
    if one.shape != other.shape:
        return False
    return float((one - other).abs().max()) <= within * float(other.abs().max())


def cap_of(model: Pretrained) -> float:
    """Return the cap of a model's logits; 0 if it has none."""
    config: Any = model.foreign.config
    return getattr(config.get_text_config(), "final_logit_softcapping", None) or 0.0


def device_of(model: Pretrained) -> torch.device:
    """Return the device of a model's weights."""
    return next(model.foreign.parameters()).device


def _moved(value: Any, model: Pretrained) -> Any:
    if not isinstance(value, Tensor):
        return value
    is_real = value.is_floating_point()
    return value.to(next(model.foreign.parameters()) if is_real else device_of(model))
