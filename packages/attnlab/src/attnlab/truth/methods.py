"""Methods: each gives every head of a model a number, large where it takes the head to be used.

A method is a function (model, inputs, answers) -> {head: number}; heads are named by their path, as
in layers.0.attention.1. Where a method needs one number of how well the model does, it takes the
logit of the right answer less that of the likeliest other, mean over the positions that count.
"""

import pkgutil
import runpy
import zlib
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from attnlab.edits.effects.ablate import ablate
from attnlab.edits.effects.controls import pattern_effects as control_effects
from attnlab.edits.effects.estimates import Estimate
from attnlab.edits.effects.metrics import IGNORED
from attnlab.edits.effects.patches import patch_all
from attnlab.edits.effects.sweep import PatchTarget
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.look.heads import number_of_heads
from attnlab.look.inputs import Call
from attnlab.look.recording import record
from attnlab.sites import site_names

Scores: TypeAlias = Mapping[str, float]
Method: TypeAlias = Callable[[nn.Module, Any, Tensor], Scores]

_METRIC: Any = "logit_difference"
_DIGITS = 6  # of a circuit's largest number


def _to_six_digits(method: Method) -> Method:
    """Round the scores of a method of ours: heads must not be ranked by rounding errors."""

    @wraps(method)
    def rounded(model: nn.Module, inputs: Any, answers: Tensor) -> Scores:
        scores = method(model, inputs, answers)
        largest = max(map(abs, scores.values()), default=0.0) or 1.0
        return {head: round(value / largest, _DIGITS) * largest for head, value in scores.items()}

    return rounded


@_to_six_digits
def raw_attention(model: nn.Module, inputs: Mapping[str, Tensor], answers: Tensor) -> Scores:
    """Return the largest weight of each query, mean over queries ("confidence": Voita et al. 2019,
    section 4)."""
    scores: dict[str, float] = {}
    for path, weights in _weights(model, inputs).items():
        largest = weights.amax(-1).transpose(1, 2)  # (input, query, head)
        means = largest[_real_queries(inputs, weights)].mean(0)
        scores |= _named(path, means)
    return scores


@_to_six_digits
def rollout(model: nn.Module, inputs: Mapping[str, Tensor], answers: Tensor) -> Scores:
    """Return how much relevance moves along each head, if half of it stays in the residual stream
    (attention rollout: Abnar and Zuidema 2020), from the answers back."""
    weights = _weights(model, inputs)
    relevance = (answers != IGNORED).double()
    scores: dict[str, float] = {}
    of_memory: Any = None
    for path in reversed(weights):
        layer_weights, is_cross = weights[path].double(), path.endswith("cross_attention")
        if path.startswith("encoder.") and of_memory is not None:
            relevance, of_memory = of_memory, None
        shares = relevance[:, None, :, None] * layer_weights / (2 * layer_weights.shape[1])
        moved = shares
        if not is_cross:
            moved = shares - torch.diag_embed(shares.diagonal(dim1=-2, dim2=-1))
        scores |= _named(path, moved.sum((0, 2, 3)))
        arrived = shares.sum((1, 2))
        relevance = relevance / 2
        if is_cross:
            of_memory = arrived if of_memory is None else of_memory + arrived
        else:
            relevance = relevance + arrived
    return scores


@_to_six_digits
def gradient_attention(model: nn.Module, inputs: Mapping[str, Tensor], answers: Tensor) -> Scores:
    """Return |weight · gradient|, summed over queries and keys (Barkan et al. 2021; Chefer et al.
    2021)."""
    with record(model, "*.weights", gradients=True) as recording:
        _differentiate(Call.of(inputs)(model), answers)
    scores: dict[str, float] = {}
    for site in recording:
        parts = (recording[site] * recording.gradient(site)).abs().sum((0, 2, 3))
        scores |= _named(site.removesuffix(".weights"), parts)
    return scores


@_to_six_digits
def value_norm(model: nn.Module, inputs: Mapping[str, Tensor], answers: Tensor) -> Scores:
    """Return the norm of each head's addition to the stream, mean over positions (Kobayashi et al.
    2020)."""
    scores: dict[str, float] = {}
    for path, heads in _recorded(model, inputs, "heads").items():
        attention: Any = model.get_submodule(path)
        width, weight = heads.shape[-1], attention.output.weight.detach()
        for number in range(heads.shape[1]):
            columns = weight[:, number * width : (number + 1) * width]
            norms = (heads[:, number] @ columns.T).norm(dim=-1)
            scores[f"{path}.{number}"] = float(norms[_real_queries(inputs, heads)].mean())
    return scores


@_to_six_digits
def ablation(model: nn.Module, inputs: Mapping[str, Tensor], answers: Tensor) -> Scores:
    """Return how far the lead moves where the head's output is zeros, either way."""
    effects = ablate(model, inputs, metric=_METRIC, target=answers)
    return _placed(effects.places, effects.effects.mean(1).abs())


@_to_six_digits
def patching(model: nn.Module, inputs: Mapping[str, Tensor], answers: Tensor) -> Scores:
    """Return how much of the lead comes back where the head's output of the clean run is patched
    into the run of another input (Wang et al. 2022)."""
    other = corrupted(inputs)
    patches = patch_all(model, inputs, other, "heads", metric=_METRIC, target=answers)
    return _placed(patches.places, patches.shares.abs())


@_to_six_digits
def attribution_patching(model: nn.Module, inputs: Mapping[str, Tensor], answers: Tensor) -> Scores:
    """Return patching to first order: the change of the head's output times the gradient of the
    lead (Nanda 2023; Syed et al. 2023)."""
    return _estimated(model, inputs, answers, "gradient")


@_to_six_digits
def integrated_gradients(model: nn.Module, inputs: Mapping[str, Tensor], answers: Tensor) -> Scores:
    """Return the same with the gradient's mean between both runs (Sundararajan et al. 2017; Hanna
    et al. 2024)."""
    return _estimated(model, inputs, answers, "integrated")


def _estimated(
    model: nn.Module, inputs: Mapping[str, Tensor], answers: Tensor, estimate: Estimate
) -> Scores:
    other = corrupted(inputs)
    options: Any = {"metric": _METRIC, "target": answers, "estimate": estimate}
    patches = patch_all(model, inputs, other, "heads", **options)
    return _placed(patches.places, patches.shares.abs())


@_to_six_digits
def pattern_effects(model: nn.Module, inputs: Mapping[str, Tensor], answers: Tensor) -> Scores:
    """Return the largest effect of attnlab's seven controls on the lead, 0 where none is sure."""
    effects = control_effects(model, inputs, metric=_METRIC, target=answers)
    sure = effects.tested.mean.abs() * effects.matters
    return _placed(effects.heads, sure.amax(1))


def random(model: nn.Module, inputs: Mapping[str, Tensor], answers: Tensor) -> Scores:
    """Return numbers drawn at random, the same for the same model."""
    first = next(model.parameters()).detach()
    generator = torch.Generator().manual_seed(zlib.crc32(first.numpy().tobytes()))
    names = _names(model)
    return dict(zip(names, torch.rand(len(names), generator=generator).tolist(), strict=True))


def head_number(model: nn.Module, inputs: Mapping[str, Tensor], answers: Tensor) -> Scores:
    """Return the number of the head in its attention."""
    return {name: float(name.rpartition(".")[2]) for name in _names(model)}


def head_number_reversed(model: nn.Module, inputs: Mapping[str, Tensor], answers: Tensor) -> Scores:
    """Return minus the number of the head in its attention."""
    return {name: -value for name, value in head_number(model, inputs, answers).items()}


def layer_number(model: nn.Module, inputs: Mapping[str, Tensor], answers: Tensor) -> Scores:
    """Return the place of the head's attention among all, from the input on."""
    paths = list(dict.fromkeys(name.rpartition(".")[0] for name in _names(model)))
    return {name: float(paths.index(name.rpartition(".")[0])) for name in _names(model)}


BASELINES: dict[str, Method] = {
    "head-number": head_number,
    "head-number-reversed": head_number_reversed,
    "layer-number": layer_number,
    "random": random,
}
"""Methods that look at no model: what they score says how much the names of heads give away."""

METHODS: dict[str, Method] = {
    "raw-attention": raw_attention,
    "rollout": rollout,
    "gradient-attention": gradient_attention,
    "value-norm": value_norm,
    "ablation": ablation,
    "patching": patching,
    "attribution-patching": attribution_patching,
    "integrated-gradients": integrated_gradients,
    "pattern-effects": pattern_effects,
    **BASELINES,
}


def find_method(name: str) -> Method:
    """Return a method that is shipped, or a function by file.py:name or package.module:name.

    Raises:
        WrongUsage: there is no such method, or no such function.
        CouldNotRun: the file or the module is not there, or fails when it is run.
    """
    if name in METHODS:
        return METHODS[name]
    place, colon, function = name.rpartition(":")
    if not colon:
        raise WrongUsage(
            f"there is no method {name!r}; {did_you_mean(name, METHODS)}; or all, or your own "
            "function as file.py:function or package.module:function."
        )
    try:
        if place.endswith(".py"):
            names = runpy.run_path(place)
        else:
            names = vars(pkgutil.resolve_name(place))
    except Exception as error:
        raise CouldNotRun(f"{place} could not be run: {type(error).__name__}: {error}") from None
    if not callable(names.get(function)):
        functions = [name for name, value in names.items() if callable(value)]
        hint = did_you_mean(function, functions)
        raise WrongUsage(f"{place} has no function {function!r}; {hint}")
    return names[function]  # type: ignore[no-any-return]


def corrupted(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return for each input another of the same length, by a fixed permutation."""
    generator = torch.Generator().manual_seed(0)
    if "real" not in inputs:
        order = torch.randperm(len(inputs["source"]), generator=generator)
        return {name: values[order] for name, values in inputs.items()}
    lengths = inputs["real"].sum(1)
    order = torch.arange(len(lengths))
    for length in torch.unique(lengths):
        rows = (lengths == length).nonzero().flatten()
        order[rows] = rows[torch.randperm(len(rows), generator=generator)]
    return {name: values[order] for name, values in inputs.items()}


def _differentiate(logits: Tensor, answers: Tensor) -> None:
    """Take the gradient of the right logit less the largest other, summed over positions that
    count."""
    has_answer = answers != IGNORED
    chosen, right = logits[has_answer], answers[has_answer].unsqueeze(1)
    others = chosen.scatter(1, right, float("-inf")).amax(1)
    lead: Any = (chosen.gather(1, right).squeeze(1) - others).sum()
    lead.backward()


def _recorded(model: nn.Module, inputs: Mapping[str, Tensor], site: str) -> dict[str, Tensor]:
    """Record a site of every attention, by the attention's path."""
    with torch.no_grad(), record(model, f"*.{site}") as recording:
        Call.of(inputs)(model)
    return {name.removesuffix(f".{site}"): recording[name] for name in recording}


def _weights(model: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return _recorded(model, inputs, "weights")


def _real_queries(inputs: Mapping[str, Tensor], values: Tensor) -> Tensor:
    """Return which queries are no padding: (input, query) boolean."""
    if "real" not in inputs:
        return torch.ones(values.shape[0], values.shape[2], dtype=torch.bool)
    real: Tensor = inputs["real"]
    return real


def _names(model: nn.Module) -> list[str]:
    """List the heads of a model by name."""
    values = []
    for site in site_names(model):
        path, _, site_suffix = site.rpartition(".")
        if site_suffix == "heads":
            values += [f"{path}.{number}" for number in range(number_of_heads(model, path))]
    return values


def _named(path: str, values: Tensor) -> dict[str, float]:
    return {f"{path}.{number}": float(value) for number, value in enumerate(values)}


def _placed(places: tuple[PatchTarget, ...], values: Tensor) -> dict[str, float]:
    names = [f"{place.path}.{place.head}" for place in places]
    return dict(zip(names, values.tolist(), strict=True))
