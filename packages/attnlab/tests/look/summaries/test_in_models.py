"""Summaries inside models: recorded in place of the weights, the output the same to the bit."""

import importlib

import pytest
import torch

from attnlab import seeds
from attnlab.look import record
from attnlab.look.summaries import Summarize
from attnlab.native import attention, compiler_name
from attnlab.parts.attend import attend
from attnlab.parts.fused import use_attention_path
from attnlab.parts.heads import share_heads
from attnlab.sites import AttentionCall, OutputSlot
from tests.look.summaries.explicit import case
from tests.look.summaries.test_summarize import BY_QUERY
from tests.random_models import new_model, tokens

SITES = "layers.*.attention.weights"
MASKS = ("none", "causal", "sparse", "bands", "padding", "added")


def decoder(length, positions):
    """A decoder, and tokens for it."""
    heads = {"num_kv_heads": 2, "positions": positions}
    return new_model("decoder", max_length=length, d_model=24, **heads), tokens(2, length)


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_a_recorded_summary_is_that_of_the_recorded_weights_and_the_output_is_untouched(positions):
    model, tokens = decoder(30, positions)
    reduce = Summarize(tiles=7, top=3)
    plain = model(tokens)
    with record(model, SITES, reduce=reduce) as summaries:
        seen = model(tokens)
    with record(model, SITES) as recording:
        model(tokens)
    assert torch.equal(plain, seen)
    assert len(summaries) == 2
    for site, found in summaries.items():
        explicit = reduce.of_weights(recording[site].double())
        for name in (*BY_QUERY, "top_weights", "map_mean", "map_max"):
            error = (getattr(found, name) - getattr(explicit, name)).abs().max()
            assert error < 1e-5 * 30, f"{site} {name}: {error}"
        assert torch.equal(found.cells, torch.tensor([5, 5]))


def test_padding_in_an_encoder_is_never_looked_at():
    model, ids = new_model("encoder", max_length=20, num_heads=2, num_layers=1), tokens(2, 12)
    real = torch.arange(12) < torch.tensor([[12], [5]])
    with record(model, SITES, reduce=Summarize(top=12)) as summaries:
        model(ids, real=real)
    found = summaries["layers.0.attention.weights"]
    assert (found.top_keys[1] < 5).all()
    assert (found.top_keys[0] >= 0).all()
    assert torch.allclose(found.top_weights.sum(-1), torch.ones(2, 2, 12), atol=1e-5)


@pytest.fixture
def native(monkeypatch):
    """The compiled kernel computes every output without weights; what it was asked is listed."""
    if compiler_name() is None:
        pytest.skip("there is no C++ compiler here")
    fused = importlib.import_module("attnlab.parts.fused")
    asked = []
    attend_rows = attention.attend_rows
    for fewest in ("_FEWEST", "_FEWEST_SCORES"):
        monkeypatch.setattr(fused, fewest, 1)
    monkeypatch.setattr(fused, "_pays", lambda mask: True)
    with use_attention_path("native"):
        fused._PATH.is_on()  # compiles and compares, the first time
        monkeypatch.setattr(
            attention, "attend_rows", lambda *a, **k: asked.append(k) or attend_rows(*a, **k)
        )
        yield asked


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_output_and_summary_come_from_one_pass_and_the_output_is_the_same(positions, native):
    model, tokens = decoder(131, positions)
    with torch.no_grad():
        plain = model(tokens)
        assert [(call["value"] is None, call.get("request") is None) for call in native] == [
            (False, True)
        ] * 2
        del native[:]
        with record(model, SITES, reduce=Summarize(tiles=7, top=3)) as summaries:
            assert torch.equal(model(tokens), plain)
        assert [call["request"] is None for call in native] == [False] * 2
        reduce = Summarize(tiles=7, top=3)
        with record(model, SITES, reduce=reduce) as alone, use_attention_path("default"):
            assert torch.allclose(model(tokens), plain, atol=1e-4)
    for site in summaries:
        for one, other in zip(summaries[site], alone[site], strict=True):
            assert torch.allclose(one.float(), other.float(), atol=1e-4)


def check_bits(drawn):
    """Hold outputs that come with a summary against those that come alone."""
    for seed in drawn:
        one = case(seed, kind=MASKS[seed % len(MASKS)])
        with seeds.isolated(seed, "bits"):
            value = torch.randn(*one.key.shape[:-1], (1, 17, 64)[seed % 3])
        inputs, place = (one.query, one.key, value, one.mask, one.scale), OutputSlot()
        Summarize(tiles=one.tiles, top=one.top)(AttentionCall(*inputs, False, place=place))
        shared = (share_heads(each, one.query.shape[1]) for each in (one.key, value))
        plain = attend(one.query, *shared, one.mask, scale=one.scale, need_weights=False)
        assert place.output is not None
        assert torch.equal(place.output, plain.output), f"seed {seed}: other bits"


@pytest.mark.usefixtures("native")
def test_the_output_has_the_same_bits_with_a_summary_and_without():
    check_bits(range(30))


@pytest.mark.slow
@pytest.mark.usefixtures("native")
def test_thousands_of_outputs_have_the_same_bits_with_a_summary_and_without():
    check_bits(range(30, 3000))


@pytest.mark.slow
@pytest.mark.usefixtures("native")
def test_a_summary_that_changes_the_order_of_the_sums_shows(monkeypatch):
    compiled = attention.compiled
    old = "sums.total[lane] += total[v][i];"
    new = "sums.total[lane] += IS_TOLD ? sums.energy[lane] * 1e-6 + total[v][i] : total[v][i];"

    def broken(source, **how):
        assert source.count(old) == 1
        return compiled(source.replace(old, new), **how)

    monkeypatch.setenv("CXXFLAGS", "-O0")
    monkeypatch.setattr(attention, "compiled", broken)
    library = attention.library.__wrapped__()
    monkeypatch.setattr(attention, "library", lambda: library)
    with pytest.raises(AssertionError, match="other bits"):
        check_bits(range(10))


def test_an_output_that_would_be_computed_otherwise_is_left_to_the_attention(native):
    query = torch.randn(1, 2, 40, 8)
    wild = query.clone()
    wild[0, 0, 0, 0] = 1e20
    for call in (
        AttentionCall(query, query, query, None, None, is_explicit=False),
        AttentionCall(wild, query, query, None, None, is_explicit=False, place=OutputSlot()),
        AttentionCall(
            query.requires_grad_(), query, query, None, None, is_explicit=False, place=OutputSlot()
        ),
    ):
        Summarize()(call)
        assert call.place is None or call.place.output is None
    assert all(call.get("value") is None for call in native)
