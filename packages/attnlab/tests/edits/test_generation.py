"""Edits while text is generated: the same with a key/value cache and without, by step, by place."""

import pytest
import torch

import attnlab.edits as op
from attnlab.edits import edit
from attnlab.errors import WrongUsage
from attnlab.models import generate
from attnlab.seeds import generator
from tests.random_models import random_model, tokens

from .cases import VOCABULARY, WEIGHTS, Case, changed, refused

MASK = (torch.rand(16, 16, generator=generator(0, "mask")) > 0.4).tril()
PATTERN = torch.rand(1, 4, 16, 16, generator=generator(1, "pattern")).tril()
EDITS_OF_A_GENERATION = [
    op.ZeroHead(layer=0, head=1, query=6),
    op.ZeroHead(layer=0, head=[1, 2], query=-1),
    op.ScaleHead(layer=0, head=0, factor=2.0, step=3),
    op.ResampleHead(layer=0, head=2),
    op.CutEdge(layer=0, query=6, key=2),
    op.CutEdge(layer=0, query=-1, key=-2),
    op.CutEdge(layer=0, key=-1, step=2),
    op.CutEdge(layer=0, key=0, renormalize=False),
    op.SetMask(layer=0, mask=MASK, row=1),
    op.ShiftMask(layer=0, by=-1),
    op.Temperature(layer=0, temperature=0.3, step="2.."),
    op.UniformPattern(layer=0, step=[1, 4]),
    op.ShufflePattern(layer=0),
    op.RedirectToFirst(layer=0, query="3.."),
    op.FreezePattern(layer=0, recording={WEIGHTS: PATTERN}),
    op.ZeroValue(layer=0, key=1, head=2),
    op.AddVector(site="layers.0.residual_after", vector=torch.ones(16) * 0.7, query="4.."),
    op.ScaleSite(site="embedding", factor=2.0, query=-1),
    op.ScaleSite(site="layers.0.attention.value", factor=0.5),
    op.ZeroSite(site="logits", query="..5"),
    op.CutEdge(layer=0, key={"t1", "t2"}),
]


def generated(model, edits, *, use_cache, kind="decoder"):
    prompt, source = tokens(length=5, high=4), tokens(length=6, seed=1, high=4)
    prompt[:, 0], prompt[:, 1], source[:, 0], source[:, 1] = 1, 2, 1, 2
    with edit(model, *edits, vocabulary=VOCABULARY) as certificate:
        predictor = model if kind == "decoder" else model.conditioned(source)
        found = generate(predictor, prompt, 5, use_cache=use_cache)
    assert certificate.holds, str(certificate)
    return found


def generates_alike(kind, number, edited):
    model = random_model(kind, number)
    cached, anew = (generated(model, [edited], use_cache=c, kind=kind) for c in (True, False))
    assert torch.equal(cached.tokens, anew.tokens)
    assert (cached.probabilities - anew.probabilities).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("kind", "edited"),
    [
        *(("decoder", each) for each in EDITS_OF_A_GENERATION),
        *(("encoder-decoder", each) for each in EDITS_OF_A_GENERATION[::4]),
    ],
    ids=repr,
)
def test_the_same_edits_generate_the_same_with_a_cache_and_without(kind, edited):
    told = edited._told()
    if kind == "encoder-decoder":
        if "site" in told:
            told["site"] = told["site"] if told["site"] == "logits" else f"decoder.{told['site']}"
        else:
            told["site"] = "decoder.layers.*.attention"
        if "recording" in told:
            told["recording"] = {f"decoder.{WEIGHTS}": told["recording"][WEIGHTS]}
    edited = type(edited)(**told)
    generates_alike(kind, {"decoder": 1, "encoder-decoder": 4}[kind], edited)


@pytest.mark.parametrize(
    "edited",
    [
        op.CutEdge(site="cross_attention", key=-1, query=-1),
        op.CutEdge(site="cross_attention", key={"t1", "t2"}),
        op.CutTokens(site="cross_attention", query="t2", key="t1"),
        op.UniformPattern(site="cross_attention", step=3),
        op.ZeroHead(site="encoder.*", head=1, query=2),
        op.ZeroValue(site="cross_attention", head=1, key=-1),
    ],
    ids=repr,
)
def test_cross_attention_is_edited_alike_with_a_cache_and_without(edited):
    generates_alike("encoder-decoder", 4, edited)


def test_a_step_is_a_forward_pass():
    model, given = random_model("decoder"), [tokens(seed=seed) for seed in range(3)]
    plain = [model(each) for each in given]
    with edit(model, op.ZeroHead(layer=0, head=0, step=2)):
        is_plain = [
            torch.equal(model(each), before) for each, before in zip(given, plain, strict=True)
        ]
    assert is_plain == [True, False, True]


def test_names_mean_their_places_in_each_row_whatever_form_the_vocabulary_has():
    model = random_model("decoder")
    given = torch.tensor([[1, 2, 3, 2], [2, 0, 0, 3]])
    plain = model(given)
    for vocabulary in (VOCABULARY, dict(enumerate(VOCABULARY)), lambda token: f"t{token}"):
        with edit(model, op.ZeroHead(layer=1, head="all", query="t2"), vocabulary=vocabulary):
            output = model(given)
        assert torch.equal(changed(output, plain), given == 2)
    wrong = op.ZeroHead(head=0, query="T2")
    refused("no token is called 'T2'; did you mean 't2'", model, wrong, vocabulary=VOCABULARY)


def test_tokens_of_several_parts_go_by_any_of_their_names_or_by_all():
    model = random_model("encoder")
    given = torch.tensor([[[1, 2], [3, 4], [2, 2]]])
    plain = model(given)
    for name, places in (("t2", [True, False, True]), ("t1+t2", [True, False, False])):
        zero = op.ZeroSite(site="layers.1.residual_after", query=name)
        with edit(model, zero, vocabulary=VOCABULARY):
            assert changed(model(given), plain)[0].tolist() == places


def test_vectors_have_no_names():
    case = Case(4)
    with pytest.raises(WrongUsage, match="vectors have no names"):
        case.run(op.ZeroHead(head=0, query="t1"), vocabulary=VOCABULARY)


def test_a_mean_over_positions_is_refused_under_a_cache():
    model = random_model("decoder")
    cached = lambda: generate(model, tokens(), 3)  # noqa: E731
    refused("under a key/value cache a mean over", model, op.MeanHead(head=1), run=cached)
    with edit(model, op.MeanHead(head=1)):
        generate(model, tokens(), 3, use_cache=False)
