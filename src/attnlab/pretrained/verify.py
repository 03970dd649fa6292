"""Verification: every model that is given hook points is tested before it is returned.

Recording must leave the output equal to the bit, and so must explicit attention without an edit;
every attention must reach its hook point once in a pass; an edit at any hook point must reach the
output; and weights computed later from queries and keys must be those of the model's own explicit
attention, otherwise they are never computed so.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.errors import CouldNotRun
from attnlab.parts.attend import attention_scores, attention_weights, explicit_attention
from attnlab.parts.heads import share_heads
from attnlab.pretrained.hook_points import AttentionPoint
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.multi_head import SlowPath
from attnlab.pretrained.tracing import inside
from attnlab.sites import AttentionCall, Hook, installed

__all__ = ["PointCheck", "verify"]

_ROWS = 32  # attentions that are zeroed in one batch
_FEW = 2  # tokens: enough to show the effect of a zeroed attention


class PointCheck(NamedTuple):
    """The verification of one attention.

    path: of its hook point · backend: how it reaches it · calls: how often in one pass · made: the
    largest difference of weights computed later from the model's own, None where they cannot be ·
    least: the least sum of a row of weights (below 1 where a sink takes the rest) · effect: of zero
    heads there on the output.
    """

    path: str
    backend: str
    calls: int
    made: float | None
    least: float
    effect: float


class _Recorder(Hook):
    """Records all weights; with `opens`, as an editor does, which makes attention explicit."""

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


class _Zeroer(Hook):
    """Zeroes the heads of each attention in one row of `number`, or in all rows where the row is
    None."""

    def __init__(self, rows: Mapping[str, int | None], number: int = 0) -> None:
        self._rows, self._number = rows, number

    def wants(self, site: str) -> bool:
        return site in self._rows

    def visit(self, site: str, value: Tensor) -> Tensor:
        row = self._rows[site]
        if row is None:
            return torch.zeros_like(value)
        if value.shape[0] != self._number:  # the rows are something else, as windows of a picture
            return value
        value = value.clone()
        value[row] = 0.0
        return value


@torch.no_grad()
def verify(model: Pretrained, inputs: Mapping[str, Any]) -> tuple[PointCheck, ...]:
    """Test every hook point, and set which weights may be computed later.

    Raises:
        CouldNotRun: recording changes the output, an attention does not reach its hook point, or an
            edit does not reach the output.
    """
    points = dict(model.attention_points())
    for point in points.values():
        point.is_lazy = point.backend != "softmax"
    if not any(point.backend == "multi-head" for point in points.values()):
        return _verified(model, points, inputs)
    model.fast_path = _fast_path(model, inputs)
    with SlowPath():
        return _verified(model, points, inputs)


def _fast_path(model: Pretrained, inputs: Mapping[str, Any]) -> float | None:
    """Return the largest difference of the user's own call from a hooked one, with and without
    gradients; None without any.

    Where torch needs no gradients it computes whole layers in one kernel, inside which no hook
    reaches.

    Raises:
        CouldNotRun: the two differ although torch's fast path is not taken.
    """
    apart = []
    for wants_gradients in (False, True):
        with torch.set_grad_enabled(wants_gradients):
            own = model(**inputs).detach()
            with SlowPath():
                slow = model(**inputs).detach()
            with installed(model, _Recorder(opens=False)):
                recorded = model(**inputs).detach()  # with torch's zeros at padding
                with SlowPath():
                    _require_same(slow, model(**inputs).detach(), model, "recording")
            apart.append(
                None if torch.equal(own, recorded) else float((own - recorded).abs().max())
            )
    return max((each for each in apart if each is not None), default=None)


def _verified(
    model: Pretrained, points: Mapping[str, AttentionPoint], inputs: Mapping[str, Any]
) -> tuple[PointCheck, ...]:
    plain = model(**inputs)
    recorder, opener = _Recorder(opens=False), _Recorder(opens=True)
    with installed(model, recorder):
        recorded = model(**inputs)
    if not torch.equal(plain, recorded):
        if not torch.equal(plain, model(**inputs)):
            raise CouldNotRun(
                f"{model.name} gives another output each time, which hides the effects of edits."
            )
        _require_same(plain, recorded, model, "recording")
    with explicit_attention(), model.while_hooked():  # no hook of ours: only the backends
        explicit = model(**inputs)
    with installed(model, opener):
        _require_same(explicit, model(**inputs), model, "explicit attention")
    effects = _effects(model, inputs)
    return tuple(
        _point_check(model, path, recorder, opener, effects.get(path, math.nan)) for path in points
    )


def _effects(model: Pretrained, inputs: Mapping[str, Any]) -> dict[str, float]:
    """Measure the effect of zeroing each attention: each in one row of a batch, compared with an
    unedited row."""
    paths = [path for path, point in model.attention_points() if "heads" in point.sites]
    if not hasattr(model.foreign, "config"):  # the batch axis of its inputs is unknown
        return {path: _effect_alone(model, path, inputs) for path in paths}
    found, short = {}, _shortened(inputs)
    for start in range(0, len(paths), _ROWS):
        some = paths[start : start + _ROWS]
        # The first row and the last are not edited: they differ by rounding.
        batch = {name: _rows(each, len(some) + 2) for name, each in short.items()}
        rows = {f"{path}.heads": row for row, path in enumerate(some, 1)}
        apart = [0.0] * (len(some) + 2)
        try:
            with installed(model, _Zeroer(rows, len(some) + 2)):
                output = model(**batch)
            if len(output) == len(apart):
                apart = (output - output[:1]).flatten(1).abs().amax(1).tolist()
        except (RuntimeError, ValueError, TypeError, IndexError):
            pass  # it takes no such batch: one by one below
        for path, effect in zip(some, apart[1:-1], strict=True):
            found[path] = effect if effect > 4 * apart[-1] else _effect_alone(model, path, inputs)
    return found


def _shortened(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Cut token ids to their first few, if there is no other input whose size must fit."""
    sizes = {name: each for name, each in inputs.items() if isinstance(each, Tensor)}
    if not set(sizes) <= {"input_ids", "decoder_input_ids"}:
        return inputs
    return {**inputs, **{name: each[:, :_FEW] for name, each in sizes.items()}}


def _effect_alone(model: Pretrained, path: str, inputs: Mapping[str, Any]) -> float:
    named = model.arguments(**inputs)
    plain = _tensors(model.foreign(**named))
    with installed(model, _Zeroer({f"{path}.heads": None})):
        zeroed = _tensors(model.foreign(**named))
    effect = max(float((one - other).abs().max()) for one, other in zip(zeroed, plain, strict=True))
    if not effect > 0.0:
        raise CouldNotRun(
            f"{path} of {model.name}: its heads were zeroed, and the output did not change."
        )
    return effect


def _tensors(output: Any) -> list[Tensor]:
    """List all tensors of an output, those of poolers and of other streams included."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() and output.numel() else []
    return [tensor for each in inside(output) for tensor in _tensors(each)]


def _rows(value: Any, number: int) -> Any:
    """Repeat the first row of an input."""
    if not isinstance(value, Tensor) or value.dim() < 2:
        return value
    return value[:1].expand(number, *value.shape[1:])


def _point_check(
    model: Pretrained, path: str, recorder: _Recorder, opener: _Recorder, effect: float
) -> PointCheck:
    point = dict(model.attention_points())[path]
    calls = recorder.count.get(path, 0) if "heads" in point.sites else int(path in opener.weights)
    if calls != 1 or path not in opener.weights:
        raise CouldNotRun(
            f"{path} of {model.name} was reached {calls} times in one pass by the backend "
            f"{point.backend!r}, not once; its attention cannot be told from others."
        )
    weights, made = opener.weights[path], None
    if point.is_lazy:
        call = recorder.calls[path]
        key = share_heads(call.key, call.query.shape[1])
        scores = attention_scores(call.query, key, call.mask, scale=call.scale)  # type: ignore[arg-type]
        found = attention_weights(scores)
        is_half = weights.dtype in (torch.float16, torch.bfloat16)
        bound = 3e-2 if is_half or call.query.dtype != found.dtype else 1e-4
        made = math.inf
        if found.shape == weights.shape:
            made = float((found - weights).abs().max())
        if not made <= bound:
            point.is_lazy, made = False, None
    return PointCheck(path, point.backend, calls, made, float(weights.sum(-1).min()), effect)


def _require_same(plain: Tensor, found: Tensor, model: Pretrained, what: str) -> None:
    if not torch.equal(plain, found):
        raise CouldNotRun(
            f"{what} changes the output of {model.name} by "
            f"{float((found - plain).abs().max()):.2g}; it must be exactly 0."
        )
