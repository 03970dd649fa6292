"""From recordings to what is drawn: tokens, masks, weights on demand, and summaries."""

import numpy as np
import pytest
import torch

from attnlab.draw.attention import draw_head, to_patterns
from attnlab.draw.attention.recordings import to_drawable, why_unjoined
from attnlab.draw.view import view_page
from attnlab.draw.view.maps import fit_maps
from attnlab.errors import WrongUsage
from attnlab.look import record
from attnlab.look.summaries import Summarize
from attnlab.models.generation import generate
from tests.random_models import new_model

from ..view.reading import check_maps, read_head

SITES = "layers.*.attention.weights"


@pytest.fixture(scope="module")
def model():
    return new_model("decoder", vocab_size=5, max_length=64, d_model=8, num_heads=2)


@pytest.fixture(scope="module")
def tokens():
    return torch.arange(100).reshape(2, 50) * 7 % 5


def recorded(model, tokens, **options):
    with record(model, SITES, vocabulary="abcde", **options) as recording, torch.no_grad():
        model(tokens)
    return recording


def test_weights_are_those_of_the_recording_read_on_demand(model, tokens, monkeypatch):
    recording = recorded(model, tokens)
    with monkeypatch.context() as patch:
        made = lambda self, site: pytest.fail("made a whole map")  # noqa: E731
        patch.setattr(type(recording), "__getitem__", made)
        patterns = to_patterns(recording, 1)
    assert [pattern.site for pattern in patterns] == list(recording)
    assert patterns[0].blocked == "causal"
    assert patterns[0].key_tokens == tuple("abcde"[token] for token in tokens[1])
    for pattern in patterns:
        assert np.allclose(
            np.nan_to_num(pattern.whole(1)), recording[pattern.site][1, 1], atol=1e-7
        )
    for pattern in patterns:  # the reference of the check needs them whole
        object.__setattr__(pattern, "weights", recording[pattern.site][1])
    check_maps(fit_maps(to_patterns(recording, 1), max_bytes=10**7), patterns)


def test_the_steps_of_a_cached_generation_are_joined_or_it_is_said_why_not(model):
    with record(model, [SITES, "logits"], vocabulary="abcde") as recording:
        tokens = generate(model, torch.tensor([[0, 1, 2]]), 6).tokens[:, :-1]
    patterns = to_patterns(recording)
    expected = to_patterns(recorded(model, tokens))
    for pattern, whole in zip(patterns, expected, strict=True):
        assert (pattern.shape, pattern.query_tokens) == ((2, 8, 8), whole.query_tokens)
        assert pattern.blocked == "causal"
        assert np.allclose(
            np.nan_to_num(pattern.whole(1)), np.nan_to_num(whole.whole(1)), atol=1e-6
        )
    assert why_unjoined(recording) == why_unjoined(patterns) == ""
    with record(model, SITES, vocabulary="abcde", reduce=Summarize(tiles=8)) as recording:
        generate(model, torch.tensor([[0, 1, 2]]), 6)
    page = view_page(recording)
    assert "The last step alone, whose first query is at place 7 of the input. layers.0" in page
    assert "was reduced" in why_unjoined(recording)


def test_summaries_are_shown_as_they_are(model, tokens):
    recording = recorded(model, tokens, reduce=Summarize(tiles=8))
    exact = recorded(model, tokens)
    drawables = to_drawable(recording, 1)
    packed = fit_maps(drawables, max_bytes=10**7)
    (group,) = packed["groups"]
    assert packed["maps"] == ["mean", "largest"]
    assert (tuple(group["cells"]), group["rows"]) == ((7, 7), 8)
    expected = fit_maps(to_patterns(exact, 1), max_bytes=10**7)["groups"][0]["layers"]
    for layer, site in enumerate(exact):
        for head in range(2):
            for kind, values in enumerate((recording[site].map_mean, recording[site].map_max)):
                found, bounds = read_head(packed, 0, 0, layer, head, kind)
                there = ~np.isnan(found)
                assert (there == np.tril(np.ones((8, 8), bool))).all()
                off = np.abs(found - values[1, head].numpy())[there]
                assert (off <= bounds[there] * (1 + 1e-5) + 1e-9).all()
            told, own = (
                layers[layer]["heads"][head]["facts"][0] for layers in (group["layers"], expected)
            )
            assert told == pytest.approx({name: own[name] for name in told}, rel=1e-4)
            assert len(told) == 6
    assert "<dt>Model</dt><dd>decoder</dd>" in view_page(recording)


def test_summaries_are_pooled_further_where_they_do_not_fit(model, tokens):
    recording = recorded(model, tokens, reduce=Summarize(tiles=25))
    exact = recorded(model, tokens)["layers.1.attention.weights"][0, 1].numpy()
    packed = fit_maps(to_drawable(recording), max_bytes=7_000)
    (group,) = packed["groups"]
    side = group["cells"][0]
    assert side > 2
    mean, bounds = read_head(packed, 0, 0, 1, 1, 0)
    for i in range(group["rows"]):
        for j in range(i + 1):
            square = exact[i * side : (i + 1) * side, j * side : (j + 1) * side]
            assert abs(mean[i, j] - square.mean()) <= bounds[i, j] + 1e-6


def test_summaries_have_no_weights_to_draw(model, tokens):
    recording = recorded(model, tokens, reduce=Summarize(tiles=8))
    with pytest.raises(WrongUsage, match=r"holds summaries, not weights; .* draw_long_map"):
        draw_head(recording)
    with pytest.raises(WrongUsage, match="weights and summaries cannot be shown on one page"):
        fit_maps([*to_drawable(recording), *to_patterns(recorded(model, tokens))], max_bytes=10**7)
