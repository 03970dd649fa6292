"""Attention functions that users register with transformers, or put in place of its own: what they
compute is what is shown and what goes on, or the model is refused."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from parts.planting import planted
from torch import Tensor, nn

import attnlab
from attnlab.errors import CouldNotRun
from tests.pretrained.families import FAMILIES

pytest.importorskip("transformers")
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

Function = Callable[..., tuple[Tensor, Tensor | None]]
IDS = torch.tensor([[5, 7, 11, 13, 17, 19, 23], [29, 31, 37, 41, 43, 47, 53]])
NOTHING = attnlab.edits.ScaleScores(layer=0, head=0, factor=1.0)
MADE: list[Tensor] = []
"""The weights that a function made, in order."""


def _scores(query: Tensor, key: Tensor, scaling: float) -> tuple[Tensor, Tensor]:
    """Scores and which of them are in the future."""
    scores = scaling * query @ key.repeat_interleave(query.shape[1] // key.shape[1], 1).mT
    return scores, torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)


def _mixed(weights: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    MADE.append(weights)
    value = value.repeat_interleave(weights.shape[1] // value.shape[1], 1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def larger_scores(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any):
    scores, future = _scores(query, key, more["scaling"])
    return _mixed((1.7 * scores).masked_fill(future, float("-inf")).softmax(-1), value)


def soft_cap(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any):
    scores, future = _scores(query, key, more["scaling"])
    scores = 2.0 * (scores / 2.0).tanh()
    return _mixed(scores.masked_fill(future, float("-inf")).softmax(-1), value)


def sinks(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any):
    scores, future = _scores(query, key, more["scaling"])
    scores = scores.masked_fill(future, float("-inf"))
    weights = torch.cat((scores, torch.ones_like(scores[..., :1])), -1).softmax(-1)
    return _mixed(weights[..., :-1], value)


def no_mask(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any):
    return _mixed(_scores(query, key, more["scaling"])[0].softmax(-1), value)


def fused_with_a_window(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any
):
    scores, future = _scores(query, key, more["scaling"])
    seen = ~future & ~future.mT.roll(2, 0).tril(-2)
    heads = nn.functional.scaled_dot_product_attention(query, key, value, seen, enable_gqa=True)
    MADE.append(scores.masked_fill(~seen, float("-inf")).softmax(-1))
    return heads.transpose(1, 2).contiguous(), None


def fused_of_transformers(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any
):
    scores, future = _scores(1.5 * query, key, more["scaling"])
    MADE.append(scores.masked_fill(future, float("-inf")).softmax(-1))
    return sdpa_attention_forward(module, 1.5 * query, key, value, mask, **more)


SHOWN = [larger_scores, soft_cap, sinks, no_mask, fused_with_a_window, fused_of_transformers]


def by_hand(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any):
    scores, future = _scores(query, key, more["scaling"])
    raised = scores.masked_fill(future, float("-inf")).exp()
    return _mixed(raised / raised.sum(-1, keepdim=True), value)


def mask_after(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any):
    scores, future = _scores(query, key, more["scaling"])
    return _mixed(scores.softmax(-1).masked_fill(future, 0.0), value)


def gated(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any):
    heads, weights = larger_scores(module, query, key, value, mask, **more)
    return heads * query.transpose(1, 2).sigmoid(), weights


REFUSED = [
    (by_hand, r"registered \(by_hand\), in which no softmax can be seen"),
    (mask_after, "something other than these weights mixes the tokens"),
    (gated, "something other than these weights mixes the tokens"),
]


def _put_in_place_of(name: str) -> Callable[[Function], str]:
    def put(function: Function) -> str:
        ALL_ATTENTION_FUNCTIONS[name] = function
        return name

    return put


def _registered_as(name: str) -> Callable[[Function], str]:
    def register(function: Function) -> str:
        AttentionInterface.register(name, function)
        return name

    return register


WAYS = {
    "under a new name": _registered_as("mine"),
    "in place of sdpa": _put_in_place_of("sdpa"),
    "in place of sdpa for all": _registered_as("sdpa"),
    "in place of eager": _put_in_place_of("eager"),
}


@pytest.fixture(autouse=True)
def _registry_as_before() -> Iterator[None]:
    local, shared = (
        dict(ALL_ATTENTION_FUNCTIONS._local_mapping),
        dict(AttentionInterface._global_mapping),
    )
    yield
    assert set(AttentionInterface._global_mapping) >= set(shared)
    for mapping, before in (
        (ALL_ATTENTION_FUNCTIONS._local_mapping, local),
        (AttentionInterface._global_mapping, shared),
    ):
        mapping.clear()
        mapping.update(before)


def _llama(name: str) -> nn.Module:
    model = FAMILIES["llama"].build().eval()
    model.set_attn_implementation(name)
    return model


@torch.no_grad()
def _check_shown(function: Function, way: Callable[[Function], str]) -> None:
    model = _llama(way(function))
    lab = attnlab.load(model)
    MADE.clear()
    plain = model(IDS, use_cache=False).logits
    made = list(MADE)
    assert made
    with attnlab.record(lab, ("*.weights", "*.value", "*.heads")) as recording:
        assert torch.equal(model(IDS, use_cache=False).logits, plain)
    for layer, weights in enumerate(made):
        part = f"layers.{layer}.attention"
        assert torch.allclose(recording[f"{part}.weights"], weights, atol=1e-5)
        value = recording[f"{part}.value"].repeat_interleave(2, 1)
        heads = recording[f"{part}.heads"]
        assert torch.allclose(recording[f"{part}.weights"] @ value, heads, atol=1e-5)
    with attnlab.edit(lab, NOTHING, certify=False):
        assert torch.allclose(model(IDS, use_cache=False).logits, plain, atol=1e-4)
    assert torch.equal(model(IDS, use_cache=False).logits, plain)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", SHOWN)
def test_what_a_registered_function_computes_is_shown_and_goes_on(
    function: Function, way: str
) -> None:
    _check_shown(function, WAYS[way])


@pytest.mark.parametrize(("function", "words"), REFUSED)
def test_a_registered_function_whose_weights_are_not_what_mixes_the_tokens_is_refused(
    function: Function, words: str
) -> None:
    with pytest.raises(CouldNotRun, match=words):
        attnlab.load(_llama(WAYS["under a new name"](function)))


def test_a_function_registered_after_loading_is_refused_in_the_pass() -> None:
    lab = attnlab.load(_llama("sdpa"))
    WAYS["in place of sdpa"](larger_scores)
    with (
        pytest.raises(CouldNotRun, match="load the model again"),
        attnlab.record(lab, "*.weights"),
    ):
        lab(IDS)


def test_a_registered_function_has_no_mask_to_edit() -> None:
    lab = attnlab.load(_llama(WAYS["under a new name"](larger_scores)))
    assert not [site for site in attnlab.sites.site_names(lab) if site.endswith("mask")]


def test_a_registered_function_taken_for_eager_is_seen() -> None:
    with (
        planted(
            "attnlab.pretrained.backends.registry",
            "if self.registered is not None:\n            return self",
            "",
        ),
        pytest.raises(CouldNotRun, match=r"explicit attention .* differs"),
    ):
        _check_shown(larger_scores, WAYS["under a new name"])
