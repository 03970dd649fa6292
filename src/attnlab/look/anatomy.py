"""How a foreign model writes to the stream that becomes its logits: read off the numbers of one small pass.

In every block, heads write through a projection and perhaps a norm, and one part more is added; norms may stand on the
stream. Behind the last block come matrices, norms and an activation, at last the output embedding. What passes through
them is taken apart in `readout.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu

from attnlab.errors import CouldNotRun
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.survey import Attended, Survey, survey
from attnlab.pretrained.survey import Call as Met
from attnlab.sites import set_aside

__all__ = [
    "Anatomy", "Function", "HeadsStep", "NormStep", "PartStep", "anatomy_of", "are_close", "cap_of", "device_of",
    "reader_of",
]  # fmt: skip

Function = Callable[[Tensor], Tensor]

_MOST_BEHIND = 5  # modules between the last block and the output embedding


class HeadsStep(NamedTuple):
    """An attention by its door, the projection of its heads, norms behind it, and by what the result is multiplied."""

    door: str
    projection: str
    norms: tuple[str, ...]
    factor: float


class PartStep(NamedTuple):
    """What else a block adds: the call of a module, and by what it is multiplied."""

    name: str
    path: str
    number: int
    factor: float


class NormStep(NamedTuple):
    """A norm of the whole stream."""

    path: str


_Step = HeadsStep | PartStep | NormStep


class Anatomy(NamedTuple):
    """Steps of all blocks in order; modules behind the last; a factor before the output embedding, and its path.

    scale: of the logits, None where they are capped · bias: that is added to them at last.
    """

    steps: list[_Step]
    behind: list[tuple[str, Function]]
    factor: float
    reader: str
    scale: float | None
    bias: Tensor | None


def anatomy_of(model: Pretrained) -> Anatomy:
    """Read off one small pass how the last stack writes to its stream, and what reads that.

    Raises:
        CouldNotRun: the model has no output embedding, or something is on the way that is no sum, matrix or norm.
    """
    reader = reader_of(model)
    with set_aside(model):
        seen = survey(model.foreign, {name: _moved(each, model) for name, each in model.example.items()})
    stack = model.plan.stacks[-1]
    blocks = [_call_at(seen, block.place.path, block.place.number) for block in stack.blocks if block.place]
    if len(blocks) != len(stack.blocks):
        raise CouldNotRun(f"{model.name} cannot be taken apart: no module of it is a block with its residual stream.")
    own = [call for call in seen.calls if call.path == reader][-1]
    behind, factor = _behind(model, seen, blocks[-1], own)
    scale, bias = _after(model, seen, own)
    steps: list[_Step] = []
    for index, (plan, block) in enumerate(zip(stack.blocks, blocks, strict=True)):
        name = f"{stack.name}.layers.{index}" if stack.name else f"layers.{index}"
        inside = [call for call in seen.calls if block.begun < call.begun < block.ended]
        attended = []
        for each in plan.attentions:
            met = [one for one in seen.attended if (one.path, one.number) == each.place and one.nth == each.nth]
            attended.append((f"{name}.{each.name}", met[0]))
        assert block.given is not None
        way = _way(name, block.given, attended, inside, block)
        if way is None:
            raise CouldNotRun(
                f"{model.name} cannot be taken apart: what {block.path} gives is not the sum of its stream, of "
                "what its heads write through one matrix that is a module, and of one part more. logit_lens "
                "reads the stream all the same."
            )
        steps += way
    return Anatomy(steps, behind, factor, reader, scale, bias)


def reader_of(model: Pretrained) -> str:
    """Return the path of the output embedding."""
    getter = getattr(model.foreign, "get_output_embeddings", None)
    found = getter() if callable(getter) else None
    path = next((path for path, module in model.foreign.named_modules() if module is found and path), None)
    if path is None or "logits" not in model.sites:
        raise CouldNotRun(
            f"{type(model.foreign).__name__} has no output embedding, a matrix from its stream to the names "
            "of tokens, so that no lens can read its stream out."
        )
    return str(path)


def _behind(model: Pretrained, seen: Survey, last: Met, own: Met) -> tuple[list[tuple[str, Function]], float]:
    """Find the functions from the last block to the output embedding, and by what the last is multiplied on the way."""
    assert last.found is not None
    after = [call for call in seen.calls if last.ended < call.begun < own.begun and _is_leaf(call)]

    def search(value: Tensor, start: int, most: int) -> tuple[list[tuple[str, Function]], float] | None:
        factor = _factor(own.given, value)
        if factor is not None:
            return [], factor
        for call in after if most else ():
            if call.begun < start or call.found is None:
                continue
            ways: list[list[tuple[str, Function]]] = []
            if _factor(call.given, value) == 1.0:
                ways.append([])
            elif _factor(call.given, gelu(value)) == 1.0:  # which some models call without a module
                ways.append([("gelu", gelu)])
            for way in ways:
                rest = search(call.found, call.begun, most - 1)
                if rest is not None:
                    return [*way, (call.path, model.foreign.get_submodule(call.path)), *rest[0]], rest[1]
        return None

    found = search(last.found, last.ended, _MOST_BEHIND)
    if found is None:
        raise CouldNotRun(
            f"{model.name} cannot be taken apart: between its last block and {own.path} stands more than norms, "
            f"matrices and activations ({', '.join(call.path for call in after) or 'no module'}), so that a logit is "
            "no sum of parts. logit_lens reads the stream all the same."
        )
    return found


def _after(model: Pretrained, seen: Survey, own: Met) -> tuple[float | None, Tensor | None]:
    """Say what the logits are of what the output embedding gives: a multiple, one with a bias, or (None) capped."""
    logits, plain = seen.output["logits"], own.found
    assert plain is not None
    factor = _factor(logits, plain)
    if factor is not None:
        return factor, None
    cap = cap_of(model)
    if cap and logits.shape == plain.shape and are_close(cap * torch.tanh(plain / cap), logits):
        return None, None
    if logits.shape == plain.shape and are_close((logits - plain)[..., :1, :].expand_as(plain), logits - plain):
        return 1.0, (logits - plain)[:1, 0]
    raise CouldNotRun(
        f"{model.name} cannot be taken apart: its logits are not what {own.path} gives, nor that scaled or capped."
    )


def _way(
    name: str, stream: Tensor, attended: Sequence[tuple[str, Attended]], inside: Sequence[Met], block: Met
) -> list[_Step] | None:
    """Find steps that lead from a stream to what a block gives."""
    if not attended:
        return _closing(name, stream, inside, block)
    (door, first), *others = attended
    for step, taken, onward in _adds(door, first, stream, inside):
        norms: list[tuple[list[_Step], Tensor]] = [([], onward)]
        if taken is not None and _is_leaf(taken) and taken.found is not None and taken.found.shape == onward.shape:
            norms.append(([NormStep(taken.path)], taken.found))
        for norm, value in norms:
            rest = _way(name, value, others, inside, block)
            if rest is not None:
                return [step, *norm, *rest]
    return None


def _adds(
    door: str, attended: Attended, stream: Tensor, inside: Sequence[Met]
) -> Iterator[tuple[_Step, Met | None, Tensor]]:
    """List ways in which an attention may add to the stream: the step, the call that is given the sum, the sum."""
    joined = None if attended.heads is None else attended.heads.transpose(1, 2).flatten(2)
    later = [call for call in inside if call.begun > attended.begun]
    projection = next(
        (call for call in later if call.projects and joined is not None and _factor(call.given, joined) == 1.0), None
    )
    if projection is None or projection.found is None or projection.found.numel() != stream.numel():
        return
    made = [((), projection.found)]
    for call in later:
        is_norm = _is_leaf(call) and call.begun > projection.begun and _factor(call.given, projection.found) == 1.0
        if is_norm and call.found is not None and call.found.numel() == stream.numel():
            made.append(((call.path,), call.found))  # type: ignore[arg-type]
    for norms, value in made:
        added = value.reshape(stream.shape)
        for call in later:
            fits = call.given is not None and call.given.numel() == stream.numel() and call.begun > projection.begun
            factor = _factor(call.given.reshape(stream.shape) - stream, added) if fits else None  # type: ignore[union-attr]
            if factor:
                yield HeadsStep(door, projection.path, norms, factor), call, stream + factor * added
    for norms, value in made:  # parts that stand beside one another: nobody is given the sum
        yield HeadsStep(door, projection.path, norms, 1.0), None, stream + value.reshape(stream.shape)


def _closing(name: str, stream: Tensor, inside: Sequence[Met], block: Met) -> list[_Step] | None:
    """Find what is added last, perhaps before a norm, to give what the block gives."""
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


def _is_leaf(call: Met) -> bool:
    return call.ended == call.begun + 1  # nothing was called inside


def _call_at(seen: Survey, path: str, number: int) -> Met:
    return next(call for call in seen.calls if (call.path, call.number) == (path, number))


def _factor(found: Any, value: Tensor) -> float | None:
    """Say by what a tensor must be multiplied to be another; None if that cannot be."""
    if not isinstance(found, Tensor) or found.numel() != value.numel() or not found.is_floating_point():
        return None
    one, other = found.reshape(value.shape).double(), value.double()
    power = float(other.square().sum())
    factor = float((one * other).sum()) / power if power else 0.0
    if not factor or not are_close(factor * other, one, found.dtype):
        return None
    return 1.0 if abs(factor - 1.0) < 1e-3 else factor


def are_close(one: Tensor, other: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Say whether two tensors are the same but for rounding."""
    within = max(1e-4, 8 * torch.finfo(dtype or other.dtype).eps)
    return one.shape == other.shape and float((one - other).abs().max()) <= within * float(other.abs().max())


def cap_of(model: Pretrained) -> float:
    """Return what a model caps its logits at; 0 if it does not."""
    config: Any = model.foreign.config
    return getattr(config.get_text_config(), "final_logit_softcapping", None) or 0.0


def device_of(model: Pretrained) -> torch.device:
    """Return where a model's weights are."""
    return next(model.foreign.parameters()).device


def _moved(value: Any, model: Pretrained) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.to(next(model.foreign.parameters())) if value.is_floating_point() else value.to(device_of(model))
