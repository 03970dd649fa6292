"""Attention functions that users register with transformers, or put in place of its own."""

import pytest
import torch
from torch import Tensor, nn

import attnlab
from attnlab.errors import CouldNotRun
from tests.planting import noticed
from tests.pretrained.families import FAMILIES

pytest.importorskip("transformers")
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

IDS = torch.tensor([[5, 7, 11, 13, 17, 19, 23], [29, 31, 37, 41, 43, 47, 53]])
NOTHING = attnlab.edits.ScaleScores(layer=0, head=0, factor=1.0)
MADE: list[Tensor] = []
"""The weights that a function made, in order."""


def _scores(query, key, scaling):
    """Scores and which of them are in the future."""
    scores = scaling * query @ key.repeat_interleave(query.shape[1] // key.shape[1], 1).mT
    return scores, torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)


def _mixed(weights, value):
    MADE.append(weights)
    value = value.repeat_interleave(weights.shape[1] // value.shape[1], 1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def open_function(weights, name):
    """An attention function whose weights are made from scores and what is in the future."""

    def function(module, query, key, value, mask, **more):
        return _mixed(weights(*_scores(query, key, more["scaling"])), value)

    function.__name__ = function.__qualname__ = name
    return function


def masked(scores, future):
    return scores.masked_fill(future, float("-inf"))


def with_sink(scores, future):
    scores = masked(scores, future)
    return torch.cat((scores, torch.ones_like(scores[..., :1])), -1).softmax(-1)[..., :-1]


def divided(scores, future):
    raised = masked(scores, future).exp()
    return raised / raised.sum(-1, keepdim=True)


def softmax_of(change, name):
    return open_function(lambda scores, future: masked(change(scores), future).softmax(-1), name)


larger_scores = softmax_of(lambda scores: 1.7 * scores, "larger_scores")
soft_cap = softmax_of(lambda scores: 2.0 * (scores / 2.0).tanh(), "soft_cap")
sinks = open_function(with_sink, "sinks")
no_mask = open_function(lambda scores, _: scores.softmax(-1), "no_mask")
by_hand = open_function(divided, "by_hand")
mask_after = open_function(lambda s, future: s.softmax(-1).masked_fill(future, 0.0), "mask_after")


def fused_with_a_window(module, query, key, value, mask, **more):
    scores, future = _scores(query, key, more["scaling"])
    seen = ~future & ~future.mT.roll(2, 0).tril(-2)
    heads = nn.functional.scaled_dot_product_attention(query, key, value, seen, enable_gqa=True)
    MADE.append(scores.masked_fill(~seen, float("-inf")).softmax(-1))
    return heads.transpose(1, 2).contiguous(), None


def fused_of_transformers(module, query, key, value, mask, **more):
    scores, future = _scores(1.5 * query, key, more["scaling"])
    MADE.append(scores.masked_fill(future, float("-inf")).softmax(-1))
    return sdpa_attention_forward(module, 1.5 * query, key, value, mask, **more)


SHOWN = [larger_scores, soft_cap, sinks, no_mask, fused_with_a_window, fused_of_transformers]


def gated(module, query, key, value, mask, **more):
    heads, weights = larger_scores(module, query, key, value, mask, **more)
    return heads * query.transpose(1, 2).sigmoid(), weights


REFUSED = [
    (by_hand, r"registered \(by_hand\), in which no softmax can be seen"),
    (mask_after, "something other than these weights mixes the tokens"),
    (gated, "something other than these weights mixes the tokens"),
]


WAYS = {
    "under a new name": (AttentionInterface.register, "mine"),
    "in place of sdpa": (ALL_ATTENTION_FUNCTIONS.__setitem__, "sdpa"),
    "in place of sdpa for all": (AttentionInterface.register, "sdpa"),
    "in place of eager": (ALL_ATTENTION_FUNCTIONS.__setitem__, "eager"),
}


@pytest.fixture(autouse=True)
def _registry_as_before():
    mappings = ALL_ATTENTION_FUNCTIONS._local_mapping, AttentionInterface._global_mapping
    before = [dict(mapping) for mapping in mappings]
    yield
    assert set(mappings[1]) >= set(before[1])
    for mapping, entries in zip(mappings, before, strict=True):
        mapping.clear()
        mapping.update(entries)


def _llama(function, way="under a new name"):
    register, name = WAYS[way]
    register(name, function)
    model = FAMILIES["llama"].build()
    model.set_attn_implementation(name)
    return model


@pytest.mark.parametrize(
    ("function", "way"),
    [(function, "under a new name") for function in SHOWN]
    + [(function, way) for way in list(WAYS)[1:] for function in (soft_cap, fused_with_a_window)],
)
@torch.no_grad()
def test_what_a_registered_function_computes_is_shown_and_goes_on(function, way):
    model = _llama(function, way)
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


@pytest.mark.parametrize(("function", "words"), REFUSED)
def test_a_registered_function_whose_weights_mix_no_tokens_is_refused(function, words):
    with pytest.raises(CouldNotRun, match=words):
        attnlab.load(_llama(function))


def test_a_function_registered_after_loading_is_refused_in_the_pass():
    lab = attnlab.load(FAMILIES["llama"].build())
    ALL_ATTENTION_FUNCTIONS["sdpa"] = larger_scores
    with (
        pytest.raises(CouldNotRun, match="load the model again"),
        attnlab.record(lab, "*.weights"),
    ):
        lab(IDS)


def test_a_registered_function_has_no_mask_to_edit():
    lab = attnlab.load(_llama(larger_scores))
    assert not [site for site in attnlab.sites.site_names(lab) if site.endswith("mask")]


def test_a_registered_function_taken_for_eager_is_seen():
    line = "if self.registered is not None:\n            return self"
    with noticed("pretrained.backends.registry", line, ""):
        test_what_a_registered_function_computes_is_shown_and_goes_on(
            larger_scores, "under a new name"
        )
