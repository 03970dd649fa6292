"""Attention within `faster_products`: by our own kernel, the same but for rounding."""

import pytest
import torch

import attnlab
from attnlab import Summarize, record
from attnlab.native.compiler import compiler_name
from attnlab.parts import fused
from attnlab.parts.fused import use_attention_path
from attnlab.parts.linear import matrix_path_probe
from attnlab.pretrained.backends import registry
from attnlab.pretrained.backends.registry import faster_products
from tests.planting import noticed
from tests.pretrained.families import FAMILIES
from tests.pretrained.trying import Tried, tried

pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.skipif(compiler_name() is None, reason="our kernel needs a C++ compiler"),
    pytest.mark.skipif(matrix_path_probe().ratio is None, reason="this torch has no oneDNN path"),
]
OURS = "native_output(query, keys, values, ours, scale)"
SITE = "layers.*.attention.weights"


@pytest.fixture(autouse=True)
def short_ones_too(monkeypatch):
    monkeypatch.setattr(fused, "_FEWEST", 2)
    monkeypatch.setattr(fused, "_FEWEST_SCORES", 1)
    with use_attention_path("native"), torch.no_grad():
        yield


def inputs(*, padded):
    tokens = torch.randint(3, 90, (2, 12), generator=torch.Generator().manual_seed(0))
    real = torch.ones(2, 12, dtype=torch.bool)
    real[0, :4] = False
    return (tokens, {"real": real}) if padded else (tokens, {})


def check(model, monkeypatch, *, padded, quick):
    tokens, options = inputs(padded=padded)
    plain = model(tokens, **options)
    with record(model, SITE, reduce=Summarize(8, 2)) as expected:
        model(tokens, **options)
    counted, real = [], registry.native_output
    monkeypatch.setattr(registry, "native_output", lambda *given: counted.append(1) or real(*given))
    with faster_products(model):
        found = model(tokens, **options)
        assert len(counted) == quick
        with record(model, SITE, reduce=Summarize(8, 2)) as summaries:
            assert torch.equal(model(tokens, **options), found)
        with record(model, ["*.weights", "*.residual_after"]):
            assert torch.equal(model(tokens, **options), found)
    there = torch.ones_like(tokens, dtype=torch.bool) if not padded else options["real"]
    torch.testing.assert_close(found[there], plain[there], rtol=0, atol=1e-5)
    for site in expected:
        for of in ("entropy", "largest"):
            found, usual = getattr(summaries[site], of), getattr(expected[site], of)
            torch.testing.assert_close(found, usual, rtol=1e-4, atol=1e-4)
    # Nothing is left behind, also not where the registry is covered again.
    with record(model, SITE):
        assert torch.equal(model(tokens, **options), plain)
    assert torch.equal(model(tokens, **options), plain)
    assert not registry.is_replaced()


@pytest.mark.parametrize(("name", "padded"), [("gpt2", False), ("llama", True)])
def test_attention_is_ours_while_it_is_asked_for_whoever_looks(monkeypatch, name, padded):
    model = tried(name).model
    check(model, monkeypatch, padded=padded, quick=len(list(model.attention_points())))


def test_where_another_seam_has_to_stand_by_attention_stays_as_it_is(monkeypatch):
    check(tried("falcon").model, monkeypatch, padded=False, quick=0)


def test_one_pass_gives_output_and_summary(monkeypatch):
    model, (tokens, _) = tried("gpt2").model, inputs(padded=False)
    monkeypatch.setattr(registry, "native_output", None)  # whoever calls it a second time fails
    with faster_products(model), record(model, SITE, reduce=Summarize(8, 2)) as summaries:
        model(tokens)
    assert len(summaries) == len(list(model.attention_points()))


def test_a_head_is_taken_out_as_by_hand():
    model, (tokens, _) = tried("llama").model, inputs(padded=False)
    cut = attnlab.ZeroHead(layer=1, head=2)
    with attnlab.edit(model, cut):
        expected = model(tokens)
    with faster_products(model), attnlab.edit(model, cut) as edited:
        found = model(tokens)
    assert edited is not None
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert float((found - model(tokens)).abs().max()) > 1e-3


def test_two_of_them_end_in_any_order():
    first, second = faster_products(tried("gpt2").model), faster_products(tried("llama").model)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert registry.is_replaced()
    second.__exit__(None, None, None)
    assert not registry.is_replaced()


@pytest.mark.parametrize(
    ("old", "new", "padded"),
    [
        ("uses_native_kernel(query, keys, values, ours, scale=scale)", "False", False),
        (OURS, OURS.replace("scale", "1.0"), False),
        (OURS, OURS.replace("ours", "None"), True),
        ("_native[module] -= 1", "pass", False),  # never given back
    ],
)
def test_a_planted_fault_is_seen(monkeypatch, old, new, padded):
    model = Tried(FAMILIES["gpt2"]).model  # one of its own: some faults leave it changed
    with noticed("pretrained.backends.registry", old, new):
        check(model, monkeypatch, padded=padded, quick=len(list(model.attention_points())))


def test_a_pass_that_drops_out_is_left_to_the_model(monkeypatch):
    model, (tokens, _) = tried("gpt2").model, inputs(padded=False)
    monkeypatch.setattr(registry, "native_output", None)
    model.foreign.train()
    try:
        with faster_products(model):
            model(tokens)
    finally:
        model.foreign.eval()
