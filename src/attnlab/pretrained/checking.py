"""The check of every model that is given doors: what is claimed of its seams is tried on it first.

Looking must leave the output as it is, to the bit, and so must an open attention in which nothing is changed; every
attention must be met once in a pass; a change at any door must reach the output; and weights that are made later from
queries and keys must be those that the model's own open attention makes, or they are not made so.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.errors import CouldNotRun
from attnlab.parts.attend import attention_scores, attention_weights, explicit_attention
from attnlab.parts.heads import share_heads
from attnlab.pretrained.doors import AttentionDoor
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.multi_head import SlowPath
from attnlab.sites import AttentionCall, Instrument, installed

__all__ = ["Checked", "check"]

_ROWS = 32  # attentions that are silenced in one batch
_FEW = 2  # tokens, by which a silenced attention shows as well as by many


class Checked(NamedTuple):
    """What was found of one attention.

    path: of its door · seam: how it is met · calls: how often, in one pass · made: the largest difference of weights
    made later from the model's own, None where they cannot be · least: the least that a row of weights sums to (below 1
    where a sink takes the rest) · effect: of gathering nothing there, on the output.
    """

    path: str
    seam: str
    calls: int
    made: float | None
    least: float
    effect: float


class _Looker(Instrument):
    """Looks at every weight, and opens attention if it is told to."""

    def __init__(self, *, opens: bool) -> None:
        self.changes = opens
        self.weights: dict[str, Tensor] = {}
        self.calls: dict[str, AttentionCall] = {}
        self.count: dict[str, int] = {}

    def wants(self, site: str) -> bool:
        return site.endswith(("weights", "heads"))

    def visit(self, site: str, value: Tensor) -> Tensor:
        part, _, own = site.rpartition(".")
        if own == "weights":
            self.weights[part] = value
        else:
            self.count[part] = self.count.get(part, 0) + 1
        return value

    def watch(self, part: str, call: AttentionCall) -> None:
        self.calls[part] = call


class _Silencer(Instrument):
    """Makes the heads of each attention gather nothing, each in a row of its own of so many, or one in all rows."""

    def __init__(self, rows: Mapping[str, int | None], number: int = 0) -> None:
        self._rows, self._number = rows, number

    def wants(self, site: str) -> bool:
        return site in self._rows

    def visit(self, site: str, value: Tensor) -> Tensor:
        row = self._rows[site]
        if row is None:
            return torch.zeros_like(value)
        if value.shape[0] != self._number:  # windows of a picture, say: what its rows are is not known
            return value
        value = value.clone()
        value[row] = 0.0
        return value


@torch.no_grad()
def check(model: Pretrained, inputs: Mapping[str, Any]) -> tuple[Checked, ...]:
    """Try every door, and set which weights may be made later.

    Raises:
        CouldNotRun: looking changes something, an attention is not met, or a change does not reach the output.
    """
    doors = dict(model.attention_doors())
    for door in doors.values():
        door.is_lazy = door.seam != "softmax"
    if not any(door.seam == "multi-head" for door in doors.values()):
        return _tried(model, doors, inputs)
    model.fast_path = _fast_path(model, inputs)
    with SlowPath():
        return _tried(model, doors, inputs)


def _fast_path(model: Pretrained, inputs: Mapping[str, Any]) -> float | None:
    """Return how far the user's own call is from a watched one, in the gradient mode in which it is furthest.

    torch computes whole layers at once where it needs no gradients, and then nothing inside them can be met.

    Raises:
        CouldNotRun: the two differ where torch's fast path is not taken.
    """
    apart = []
    for wants_gradients in (False, True):
        with torch.set_grad_enabled(wants_gradients):
            own = model(**inputs).detach()
            with SlowPath():
                slow = model(**inputs).detach()
            with installed(model, _Looker(opens=False)):
                _require_same(slow, model(**inputs).detach(), model, "looking")
            apart.append(None if torch.equal(own, slow) else float((own - slow).abs().max()))
    return max((each for each in apart if each is not None), default=None)


def _tried(model: Pretrained, doors: Mapping[str, AttentionDoor], inputs: Mapping[str, Any]) -> tuple[Checked, ...]:
    plain = model(**inputs)
    looker, opener = _Looker(opens=False), _Looker(opens=True)
    with installed(model, looker):
        looked = model(**inputs)
    if not torch.equal(plain, looked):
        if not torch.equal(plain, model(**inputs)):
            raise CouldNotRun(f"{model.name} gives another output each time; nothing that is done to it could be told.")
        _require_same(plain, looked, model, "looking")
    with explicit_attention(), model.attended():  # nothing is met in it: nobody stands at the doors
        explicit = model(**inputs)
    with installed(model, opener):
        _require_same(explicit, model(**inputs), model, "opening the attention")
    effects = _effects(model, inputs)
    return tuple(_checked(model, path, looker, opener, effects.get(path, math.nan)) for path in doors)


def _effects(model: Pretrained, inputs: Mapping[str, Any]) -> dict[str, float]:
    """Silence every attention, each in a row of one batch, and measure how far its row is from one left alone."""
    paths = [path for path, door in model.attention_doors() if "heads" in door.sites]
    if not hasattr(model.foreign, "config"):  # nobody knows which axis of its inputs is the batch
        return {path: _effect_alone(model, path, inputs) for path in paths}
    found, short = {}, _shortened(inputs)
    for start in range(0, len(paths), _ROWS):
        some = paths[start : start + _ROWS]
        # The first row and the last are left alone: what they are apart is rounding.
        batch = {name: _rows(each, len(some) + 2) for name, each in short.items()}
        silencer = _Silencer({f"{path}.heads": row for row, path in enumerate(some, 1)}, len(some) + 2)
        apart = [0.0] * (len(some) + 2)
        try:
            with installed(model, silencer):
                output = model(**batch)
            if len(output) == len(apart):
                apart = (output - output[:1]).flatten(1).abs().amax(1).tolist()
        except (RuntimeError, ValueError, TypeError, IndexError):
            pass  # it takes no such batch, or no such short one: then one by one
        for path, effect in zip(some, apart[1:-1], strict=True):
            found[path] = effect if effect > 4 * apart[-1] else _effect_alone(model, path, inputs)
    return found


def _shortened(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Cut token ids to their first few, where nothing else is given whose size would have to fit."""
    sizes = {name: each for name, each in inputs.items() if isinstance(each, Tensor)}
    if not set(sizes) <= {"input_ids", "decoder_input_ids"}:
        return inputs
    return {**inputs, **{name: each[:, :_FEW] for name, each in sizes.items()}}


def _effect_alone(model: Pretrained, path: str, inputs: Mapping[str, Any]) -> float:
    named = model.arguments(**inputs)
    plain = _tensors(model.foreign(**named))
    with installed(model, _Silencer({f"{path}.heads": None})):
        silenced = _tensors(model.foreign(**named))
    effect = max(float((one - other).abs().max()) for one, other in zip(silenced, plain, strict=True))
    if not effect > 0.0:
        raise CouldNotRun(f"{path} of {model.name}: its heads were silenced, and the output did not change.")
    return effect


def _tensors(output: Any) -> list[Tensor]:
    """List all numbers of an output, those of its poolers and of other streams too."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() and output.numel() else []
    inside = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple | list) else ()
    return [tensor for each in inside for tensor in _tensors(each)]


def _rows(value: Any, number: int) -> Any:
    """Repeat the first row of an input."""
    if not isinstance(value, Tensor) or value.dim() < 2:
        return value
    return value[:1].expand(number, *value.shape[1:])


def _checked(model: Pretrained, path: str, looker: _Looker, opener: _Looker, effect: float) -> Checked:
    door = dict(model.attention_doors())[path]
    calls = looker.count.get(path, 0) if "heads" in door.sites else int(path in opener.weights)
    if calls != 1 or path not in opener.weights:
        raise CouldNotRun(
            f"{path} of {model.name} was met {calls} times in one pass by the seam {door.seam!r}, not once; "
            "its attention cannot be told from others."
        )
    weights, made = opener.weights[path], None
    if door.is_lazy:
        call = looker.calls[path]
        found = attention_weights(
            attention_scores(call.query, share_heads(call.key, call.query.shape[1]), call.mask, scale=call.scale)  # type: ignore[arg-type]
        )
        is_alike = found.shape == weights.shape
        made = float((found - weights).abs().max()) if is_alike else float("inf")
        within = 3e-2 if weights.dtype in (torch.float16, torch.bfloat16) or call.query.dtype != found.dtype else 1e-4
        if not made <= within:
            door.is_lazy, made = False, None
    return Checked(path, door.seam, calls, made, float(weights.sum(-1).min()), effect)


def _require_same(plain: Tensor, found: Tensor, model: Pretrained, what: str) -> None:
    if not torch.equal(plain, found):
        raise CouldNotRun(
            f"{what} changes the output of {model.name} by {float((found - plain).abs().max()):.2g}; "
            "it must be exactly 0."
        )
