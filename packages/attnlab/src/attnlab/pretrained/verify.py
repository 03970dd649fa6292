"""Verification of a foreign model's hook points, before it is returned by `attach`.

Recording must leave the output equal to the bit, and so must explicit attention without an edit;
every attention must reach its hook point once in a pass; an edit at any hook point must reach the
output; and weights computed later from queries and keys must be those of the model's own explicit
attention, otherwise they are never computed so.

Every pass is compared with the plain one. Explicit attention, on the tensors of the plain pass,
must give its heads within rounding; and the witness must hold: the weights that are shown, times
the values, are the output of the heads.

The axis of the batch is verified on a batch of two. An attention function of transformers has a
fixed order of axes; a call of `scaled_dot_product_attention` or of a softmax has not. Heads before
inputs, (head, batch, query, width), or heads and inputs joined the other way round, (head · batch,
query, width), look the same as ours in a batch of one, and would be addressed wrongly.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.parts.attend import attention_scores, attention_weights
from attnlab.parts.heads import share_heads
from attnlab.pretrained.attention_call import AttentionPoint
from attnlab.pretrained.backends.multi_head import SlowPath
from attnlab.pretrained.backends.registry import implementation, registered_function
from attnlab.pretrained.model import Family, Pretrained
from attnlab.pretrained.tracing import Inputs, has_rows, inside
from attnlab.sites import AttentionCall, Hook, explicit_attention, installed, site_names

_TAKES_NONE = (RuntimeError, ValueError, TypeError, IndexError)  # of a model, for another batch


def require_visited(model: Pretrained, family: Family, inputs: Inputs) -> None:
    """Raise unless one pass visits every site of a family exactly once."""
    counts = _recorded(model, inputs, *family.sites).counts
    for site in site_names(model):
        if f".{site}".endswith(tuple(family.sites)) and counts.get(site, 0) != 1:
            raise WrongUsage(
                f"family {family.model_type!r}: {site} is visited {counts.get(site, 0)} times in "
                "one pass, not once; name a module that each block calls once."
            )


_CHECKED = (".weights", ".heads")
_ROWS = 32  # attentions that are zeroed in one batch
_FEW = 2  # tokens: enough to show the effect of a zeroed attention


@dataclass(frozen=True)
class PointCheck:
    """The verification of one attention.

    path: of its hook point · backend: how it reaches it · calls: how often in one pass · made: the
    largest difference of weights computed later from the model's own, None where they cannot be ·
    least: the least sum of a row of weights (below 1 where a sink takes the rest) · effect: of zero
    heads there on the output · witness: the largest difference of weights times values from the
    heads of the plain pass, None where the values are not shown.
    """

    path: str
    backend: str
    calls: int
    made: float | None
    least: float
    effect: float
    witness: float | None = None


class _Recorder(Hook):
    """Records what passes the sites with some endings, and how often.

    As an editor it changes nothing, and so makes attention explicit.
    """

    def __init__(self, *ends: str, is_editor: bool = False) -> None:
        self.changes, self.ends = is_editor, ends
        self.output = torch.empty(0)
        self.values: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}
        self.calls: dict[str, AttentionCall] = {}

    def wants(self, site: str) -> bool:
        return f".{site}".endswith(self.ends)

    def visit(self, site: str, value: Tensor) -> Tensor:
        self.values[site] = value.clone()  # the model may go on in place
        self.counts[site] = self.counts.get(site, 0) + 1
        return value

    def watch(self, part: str, call: AttentionCall) -> None:
        self.calls[part] = call


class _ExplicitRecorder(_Recorder):
    """Makes attention explicit, and lets the pass go on with the heads of the plain one, so that no
    layer inherits the rounding of those before it."""

    def __init__(self, plain: Mapping[str, Tensor]) -> None:
        super().__init__(*_CHECKED, ".value", is_editor=True)
        self._plain = plain

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Record a value; return the plain pass's heads."""
        super().visit(site, value)
        plain = self._plain.get(site)
        return value if plain is None or plain.shape != value.shape else plain


def _recorded(model: Pretrained, inputs: Inputs, *ends: str) -> _Recorder:
    recorder = _Recorder(*ends)
    with torch.no_grad(), installed(model, recorder):
        recorder.output = model(**inputs)
    return recorder


class _Zeroer(Hook):
    """Zeroes the heads of each attention in one row of `number`, or fills them with a number in all
    rows where the row is None."""

    def __init__(
        self, rows: Mapping[str, int | None], number: int = 0, *, fill: float = 0.0
    ) -> None:
        self._rows, self._number, self._fill = rows, number, fill
        self.sites = list(rows)

    def wants(self, site: str) -> bool:
        return site in self._rows

    def visit(self, site: str, value: Tensor) -> Tensor:
        row = self._rows[site]
        if row is None:
            return torch.full_like(value, self._fill)
        if value.shape[0] != self._number:  # the rows are something else, as windows of a picture
            return value
        value = value.clone()
        value[row] = 0.0
        return value


@torch.no_grad()
def verify(model: Pretrained, inputs: Inputs) -> tuple[PointCheck, ...]:
    """Test every hook point, and set which weights may be computed later.

    Raises:
        CouldNotRun: recording changes the output, an attention does not reach its hook point, or an
            edit does not reach the output.
    """
    points = dict(model.attention_points())
    for point in points.values():
        point.is_lazy = point.backend != "softmax"
    for path, attention in model.structure.attentions:
        if attention.backend == "registry":
            module, point = model.foreign.get_submodule(attention.place.path), points[path]
            point.function = registered_function(implementation(module))
            if point.function is not None:  # how it takes its mask is known to itself alone
                point.sites = tuple(site for site in point.sites if site != "mask")
    if not any(point.backend == "multi-head" for point in points.values()):
        return _verified(model, points, inputs)
    model.fast_path = _fast_path(model, inputs)
    with SlowPath():
        return _verified(model, points, inputs)


def _fast_path(model: Pretrained, inputs: Inputs) -> float | None:
    """Return the largest difference of the user's own call from a hooked one, with and without
    gradients; None without any.

    Where torch needs no gradients it computes whole layers in one kernel, inside which no hook
    reaches.

    Raises:
        CouldNotRun: the two differ although torch's fast path is not taken.
    """
    apart: list[float] = []
    for wants_gradients in (False, True):
        with torch.set_grad_enabled(wants_gradients):
            fast = model(**inputs).detach()
            with SlowPath():
                slow = model(**inputs).detach()
            with installed(model, _Recorder(*_CHECKED)):
                recorded = model(**inputs).detach()  # with torch's zeros at padding
                with SlowPath():
                    _require_same(slow, model(**inputs).detach(), model, "recording")
        if not torch.equal(fast, recorded):
            apart.append(float((fast - recorded).abs().max()))
    return max(apart, default=None)


def _verified(
    model: Pretrained, points: Mapping[str, AttentionPoint], inputs: Inputs
) -> tuple[PointCheck, ...]:
    plain = model(**inputs)
    recorder = _recorded(model, inputs, *_CHECKED)  # with hooks at every site there is
    if not torch.equal(plain, recorder.output) and not torch.equal(plain, model(**inputs)):
        raise CouldNotRun(f"{model.name} gives a different output each time, which hides edits.")
    _require_same(plain, recorder.output, model, "recording")
    explicit_recorder = _Recorder(*_CHECKED, is_editor=True)
    explicit_recorder.sites = [path + end for path in points for end in _CHECKED]
    with model.while_hooked(explicit_recorder.sites):  # installed once for the passes to come
        with explicit_attention(model, points):  # no hook of ours: only the backends
            explicit = model(**inputs)
        with installed(model, explicit_recorder):
            _require_same(explicit, model(**inputs), model, "explicit attention")
        forced = _ExplicitRecorder(
            {s: v for s, v in recorder.values.items() if s.endswith(".heads")}
        )
        with installed(model, forced):
            model(**inputs)
        effects = _effects(model, inputs)
    reports = []
    for path, point in points.items():
        weights = explicit_recorder.values.get(f"{path}.weights")
        calls = int(weights is not None)
        if "heads" in point.sites:
            calls = recorder.counts.get(f"{path}.heads", 0)
        if calls != 1 or weights is None:
            raise CouldNotRun(_not_reached(model, path, point, calls))
        made = None
        if point.is_lazy:
            made = _lazy_difference(recorder.calls[path], weights)
        point.is_lazy = made is not None
        witness = _witness(model, path, forced, recorder.values.get(f"{path}.heads"))
        least, effect = float(weights.sum(-1).min()), effects.get(path, math.nan)
        reports.append(PointCheck(path, point.backend, calls, made, least, effect, witness))
    return tuple(reports)


def _not_reached(model: Pretrained, path: str, point: AttentionPoint, calls: int) -> str:
    """Say why an attention that one pass does not reach exactly once cannot be shown."""
    if point.function is not None and calls:
        name = getattr(point.function, "__qualname__", type(point.function).__name__)
        return (
            f"{path} of {model.name} is computed by an attention function that was registered "
            f"({name}), in which no softmax can be seen, so its weights are "
            "not known; choose another one by set_attn_implementation."
        )
    return (
        f"{path} of {model.name} was reached {calls} times in one pass by the backend "
        f"{point.backend!r}, not once; its attention cannot be told from others."
    )


def _witness(model: Pretrained, path: str, forced: _Recorder, plain: Tensor | None) -> float | None:
    """Return how far weights times values are from the heads of the plain pass.

    Raises:
        CouldNotRun: farther than rounding, or the explicit heads are.
    """
    weights, value = (forced.values.get(f"{path}.{site}") for site in ("weights", "value"))
    if plain is None or weights is None or value is None:
        return None
    explicit = forced.values[f"{path}.heads"]
    is_half = plain.dtype in (torch.float16, torch.bfloat16)
    bound = (3e-2 if is_half else 1e-4) * max(1e-3, float(value.abs().max()))
    apart = _apart(explicit, plain)
    if apart > bound:
        advice = ""
        if model.point(path).backend == "registry":
            advice = "; choose another attention function by set_attn_implementation"
        raise CouldNotRun(
            f"explicit attention at {path} of {model.name} differs by {apart:.2g} from what the "
            f"model computes, so its weights would not be the model's{advice}."
        )
    made = weights.float() @ share_heads(value, weights.shape[1]).float()
    apart = _apart(made, plain)
    if apart > bound:
        raise CouldNotRun(
            f"{path}.weights of {model.name} times the values differ by {apart:.2g} from the "
            "heads' outputs: something other than these weights mixes the tokens."
        )
    return apart


def _apart(heads: Tensor, plain: Tensor) -> float:
    """Return the largest difference from heads, but for queries that have no key."""
    if heads.shape != plain.shape:
        return math.inf
    is_alive = plain.isfinite().all(-1) & (plain != 0.0).any(-1)
    apart = (heads.float() - plain.float()).abs().amax(-1)[is_alive]
    return float(apart.max()) if apart.numel() else 0.0


def _lazy_difference(call: AttentionCall, weights: Tensor) -> float | None:
    """Return how far weights made from queries and keys are from a model's own; None if too far."""
    key = share_heads(call.key, call.query.shape[1])
    scores = attention_scores(call.query, key, call.mask, scale=call.scale)  # type: ignore[arg-type]
    computed = attention_weights(scores)
    if computed.shape != weights.shape:
        return None
    is_half = weights.dtype in (torch.float16, torch.bfloat16)
    bound = 1e-4
    if is_half or call.query.dtype != computed.dtype:
        bound = 3e-2
    made = float((computed - weights).abs().max())
    return made if made <= bound else None


def _effects(model: Pretrained, inputs: Inputs) -> dict[str, float]:
    """Measure the effect of zeroing each attention: each in one row of a batch, compared with an
    unedited row."""
    paths = [path for path, point in model.attention_points() if "heads" in point.sites]
    effects: dict[str, float] = {}
    if hasattr(model.foreign, "config"):  # otherwise the axis of the batch is unknown
        short = _shortened(inputs)
        for start in range(0, len(paths), _ROWS):
            effects |= _effects_together(model, paths[start : start + _ROWS], short)
    for path in paths:
        if path not in effects:
            effects[path] = _effect_alone(model, path, inputs)
    return effects


def _effects_together(model: Pretrained, paths: Sequence[str], inputs: Inputs) -> dict[str, float]:
    """Measure the effects of some attentions in one batch; leave out those that it does not
    show."""
    number = len(paths) + 2  # the first row and the last are not edited: they differ by rounding
    batch = {name: _rows(value, number) for name, value in inputs.items()}
    rows = {f"{path}.heads": row for row, path in enumerate(paths, 1)}
    try:
        with installed(model, _Zeroer(rows, number)):
            output = model(**batch)
    except _TAKES_NONE:
        return {}  # it takes no such batch
    if len(output) != number:
        return {}
    apart = (output - output[:1]).flatten(1).abs().amax(1).tolist()
    effects = zip(paths, apart[1:-1], strict=True)
    return {path: effect for path, effect in effects if effect > 4 * apart[-1]}


def _shortened(inputs: Inputs) -> Inputs:
    """Cut token ids to their first few, if there is no other input whose size must fit."""
    sizes = {name: tensor for name, tensor in inputs.items() if isinstance(tensor, Tensor)}
    if not set(sizes) <= {"input_ids", "decoder_input_ids"}:
        return inputs
    return {**inputs, **{name: tensor[:, :_FEW] for name, tensor in sizes.items()}}


def _effect_alone(model: Pretrained, path: str, inputs: Inputs) -> float:
    named = model.arguments(**inputs)
    plain = _tensors(model.foreign(**named))
    # Heads may be zeros, or too small to count beside the stream, in a model that is not trained.
    for fill in (0.0, 1.0, 1e6):
        with installed(model, _Zeroer({f"{path}.heads": None}, fill=fill)):
            edited = _tensors(model.foreign(**named))
        apart = [(one - other).abs().max() for one, other in zip(edited, plain, strict=True)]
        largest = max(float(most.nan_to_num(nan=math.inf)) for most in apart)  # as of 0 / 0
        if largest > 0.0:
            return largest if fill == 0.0 else 0.0
    raise CouldNotRun(
        f"{path}: its heads were replaced, by zeros and by large numbers, and the output did not "
        "change; nothing that the model returns for this input depends on them."
    )


def _tensors(output: Any) -> list[Tensor]:
    """List all tensors of an output, those of poolers and of other streams included."""
    if isinstance(output, Tensor):
        if output.is_floating_point() and output.numel():
            return [output]
        return []
    return [tensor for item in inside(output) for tensor in _tensors(item)]


def _rows(value: Any, number: int) -> Any:
    """Repeat the first row of an input."""
    if not has_rows(value):
        return value
    return value[:1].expand(number, *value.shape[1:])


def _with_reverse(value: Any) -> Any:
    """Add an input that is read backwards."""
    if not has_rows(value):
        return value
    return torch.cat((value, value.flip(-1)))


def _require_same(plain: Tensor, edited: Tensor, model: Pretrained, what: str) -> None:
    if not torch.equal(plain, edited):
        raise CouldNotRun(
            f"{what} changes the output of {model.name} by "
            f"{float((edited - plain).abs().max()):.2g}; it must be exactly 0."
        )


@torch.no_grad()
def require_batch_first(model: Pretrained, inputs: Inputs) -> None:
    """Raise unless every attention found at torch's functions has its batch on the first axis.

    Models whose inputs do not begin with the batch, or cannot be put into a batch of two, pass.
    """
    sites = []
    for path, point in model.attention_points():
        if point.backend in ("sdpa", "softmax") and "heads" in point.sites:
            sites.append(f"{path}.heads")
    if not sites:
        return
    first = {name: _rows(value, 1) for name, value in inputs.items()}
    both = {name: _with_reverse(value) for name, value in first.items()}
    try:
        one, two = model(**first), model(**both)
    except _TAKES_NONE:
        return  # it takes no other batch
    if not _begins_with(two, one):
        return
    alone, together = _recorded(model, first, ".heads"), _recorded(model, both, ".heads")
    for site in sites:
        heads, twice = alone.values[site], together.values[site]
        if not _begins_with(twice, heads):
            raise CouldNotRun(
                f"{site} of {model.name} has its axes in a different order from (batch, head, "
                "query, key or width): with two inputs its first half is not the first input, so "
                "heads would be taken for inputs."
            )


def _begins_with(twice: Tensor, one: Tensor) -> bool:
    """Is one tensor the first half of the rows of another, but for rounding?"""
    if twice.shape[0] != 2 * one.shape[0] or twice.shape[1:] != one.shape[1:]:
        return False
    if not one.numel():
        return True
    within = 1e-4 * max(float(one.abs().max()), 1.0)
    return torch.allclose(twice[: len(one)].float(), one.float(), rtol=1e-3, atol=within)
