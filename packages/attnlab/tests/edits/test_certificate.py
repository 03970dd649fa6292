"""The certificate: 0 where nothing changes, true, and no trouble to the model."""

import copy
import functools
import json

import pytest
import torch
from torch import nn

import attnlab
import attnlab.edits as op
from attnlab.edits import checks, edit
from attnlab.edits.certificate import Certificate, Change, OutputChange, RowSums
from attnlab.errors import CouldNotRun
from attnlab.models import generate
from attnlab.parts import Cache
from attnlab.parts.heads import multi_head_attention
from attnlab.seeds import generator, isolated
from attnlab.sites import explicit_attention, site_names
from tests.hooks import no_hook_is_left
from tests.random_models import random_model, tokens
from tests.sampling import sampled

from .cases import Case


@functools.cache
def clay(kind, number, dtype):
    return copy.deepcopy(random_model(kind, number)).to(dtype)


def renewed(model, number):
    """Draw all parameters of a model anew."""
    draw = generator(number, "renewed")
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4, generator=draw)
    return model


def identity_edits(case):
    """Edits that change nothing, at every kind of place."""
    opening = ("mask", "scores", "weights")
    sites = [site for site in site_names(case.model) if not site.endswith(opening)]
    site = sites[case.rng.integers(len(sites))]
    return [
        op.ScaleHead(head="all", factor=1.0),
        op.ScaleSite(site=site, factor=1.0),
        op.AddVector(site=site, vector=torch.zeros(1)),
        op.ScaleScores(factor=1),
        op.Temperature(temperature=1.0),
        op.AddToScores(amount=0.0),
        op.ShiftMask(by=0),
    ]


@pytest.mark.parametrize("start", sampled(range(0, 490, 14), 1))
def test_an_edit_that_changes_nothing_changes_the_output_by_exactly_nothing(start):
    """Random models and inputs; edits of attention compared on the path they open."""
    for number in range(start, start + 14):
        case = Case(number)
        dtype = torch.float32 if number % 2 else torch.float64
        case.model = renewed(clay(case.kind, number % 60, dtype), number)
        if case.kind == "single head" and number % 2:
            case.inputs = tuple(each.astype("float32") for each in case.inputs)
        edits = identity_edits(case)
        one = edits[number % len(edits)]
        with torch.no_grad():
            with explicit_attention(case.model, None if one.suffix in ("scores", "mask") else ()):
                plain, (output, _) = case.run()[0], case.run(one)
            assert torch.equal(output, plain), (number, one)
            if number % 4:
                continue
            _, certificate = case.run(*edits, certify=True)
        assert certificate.identity == 0.0, (number, str(certificate))
        assert certificate.holds
        assert certificate.parameters_unchanged
        assert no_hook_is_left(case.model)


def trained_under_edits(*, certify):
    """Train a copy of a model by one step, within its edits."""
    model = copy.deepcopy(random_model("decoder"))
    edits = (op.ZeroHead(layer=0, head=1), op.UniformPattern(layer=1, head=0))
    with edit(model, *edits, certify=certify):
        model(tokens()).square().mean().backward()
        value = model.layers[0].attention.output.weight
        assert value.grad[:, 4:8].abs().max() == 0.0
        assert value.grad[:, :4].abs().max() > 0.0
        with torch.no_grad():
            value -= 0.1 * value.grad


def test_parameters_that_change_under_edits_end_in_an_error():
    trained_under_edits(certify=False)  # where no certificate is asked for, it may be trained
    with pytest.raises(CouldNotRun, match="the parameters changed"):
        trained_under_edits(certify=True)


def test_the_certificate_leaves_randomness_and_caches_alone():
    with isolated(0):
        model = copy.deepcopy(random_model("decoder")).train()
    for part in model.modules():
        if hasattr(part, "dropout"):
            part.dropout = 0.3
    edits = (op.ZeroHead(layer=0, head=1), op.UniformPattern(layer=1, head=0))
    outputs, states = [], []
    for certify in (True, False):
        with isolated(3), edit(model, *edits, certify=certify) as certificate:
            outputs.append(model(tokens()))
            states.append(torch.get_rng_state())
        if certify:
            assert certificate.identity == 0.0
    assert torch.equal(*outputs)
    assert torch.equal(*states)
    model.eval()
    sampled = []
    for certify in (True, False):
        told = {"temperature": 1.0, "generator": generator(0, "sampling")}
        with edit(model, *edits, certify=certify):
            sampled.append(generate(model, tokens(length=3), 4, **told))
    assert torch.equal(sampled[0].tokens, sampled[1].tokens)
    assert torch.equal(sampled[0].probabilities, sampled[1].probabilities)


def test_a_certificate_tells_what_happened_in_text_and_in_plain_values():
    model, given = random_model("decoder"), tokens()
    cut = op.CutEdge(layer=1, query=4, key=1, renormalize=False)
    with edit(model, op.ZeroHead(layer=0, head=1, row=2), cut) as certificate:
        output = model(given).detach()
        model(given)
    plain = model(given).detach()
    assert certificate.calls == {"layers.0.attention.heads": 2, "layers.1.attention.weights": 2}
    first, second = certificate.edits
    assert (first.values, first.changed) == (2 * 6 * 4, 2 * 6 * 4)
    assert (second.values, second.changed) == (2 * 3 * 4, 2 * 3 * 4)
    effect = certificate.effects[""]
    assert (effect.passes, effect.values) == (2, 2 * output.numel())
    assert effect.largest == pytest.approx(float((output - plain).abs().max()), abs=1e-12)
    assert effect.mean == pytest.approx(float((output - plain).abs().mean()), abs=1e-12)
    rows = certificate.rows["layers.1.attention.weights"]
    assert (rows.rows, rows.off, rows.dead) == (2 * 3 * 4 * 6, 2 * 3 * 4, 0)
    assert 0 < rows.least < rows.most < 1
    assert rows.because == [repr(cut)]
    assert rows.first == (0, 0, 4)
    assert str(certificate).splitlines()[0] == "2 edits, native backend"
    for words in (
        "(layer=0, head=1, row=2): 2 calls at layers.0.attention.heads, 48 of 48 values changed",
        "24 of 144 sum to",
        f"because of {cut}; the first is row 0, head 1.0, query 4",
        "output of 2 forward passes: changed by",
        "no-op edits at the same sites, in the first: 0 (must be exactly 0)",
        "parameters: unchanged",
    ):
        assert words in str(certificate)
    assert json.loads(json.dumps(certificate.to_mapping(), allow_nan=False))["holds"] is True


def test_a_channel_of_a_head_and_of_the_logits_is_counted():
    model = random_model("decoder")
    for site, head in (("layers.0.attention.heads", {"head": 2}), ("logits", {})):
        with edit(model, op.ScaleSite(site=site, channel=1, factor=2.0, **head)) as certificate:
            model(tokens())
        assert certificate.holds
        assert certificate.edits[0].changed == certificate.edits[0].values == 3 * 6


def test_the_figures_of_rows_edits_and_outputs_are_those_of_all_passes_not_of_the_last():
    for sums in ((0.5, 1.25, 1.5), (1.5, 1.25, 0.5)):
        found = RowSums()
        for total in sums:
            found.count(torch.tensor([[[[1.0, 0.0], [total, 0.0]]]]), None)
        assert (found.least, found.most) == (0.5, 1.5)
        assert (found.rows, found.off, found.first) == (6, 3, (0, 0, 1))
    above = RowSums()
    above.count(torch.tensor([[[[0.75, 0.5], [1.0, 0.5]]]]), None)
    assert (above.least, above.most) == (1.25, 1.5)
    change, certificate = Change("an edit"), Certificate(backend="native")
    for moved in (1.0, 4.0, 2.0):
        before = torch.zeros(1, 1, 2)
        certificate.count_edit(change, "a.heads", before, before + moved, None)
    assert (change.values, change.changed, change.largest) == (6, 6, 4.0)
    output = OutputChange()
    output.add(5.0, 5.0, 10)
    output.add(1.0, 1.0, 30)
    assert (output.largest, output.mean, output.passes, output.values) == (5.0, 2.0, 2, 40)


def test_a_certificate_that_was_not_asked_for_says_so():
    model = random_model("decoder")
    with edit(model, op.ZeroHead(layer=0, head=1), certify=False) as certificate:
        model(tokens())
    assert certificate.calls == {"layers.0.attention.heads": 1}
    assert certificate.identity is None
    assert "not checked: anything but that the edits landed" in str(certificate)


def test_attention_too_large_to_open_is_not_opened_for_the_check_alone(monkeypatch):
    monkeypatch.setattr(checks, "_MAX_EXPLICIT_BYTES", 100)
    model = random_model("decoder")
    with edit(model, op.CutEdge(query=3, key=1)) as certificate:
        model(tokens())
    assert certificate.identity is None
    assert any("takes 3,456 bytes" in each for each in certificate.not_checked)


def test_generation_through_an_encoder_decoder_is_certified_by_its_halves():
    model = random_model("encoder-decoder")
    edits = op.ZeroHead(site="cross_attention", head=1), op.ZeroHead(site="encoder.*", head=0)
    with edit(model, *edits) as certificate:
        generate(model.conditioned(tokens()), tokens(length=2), 3)
    assert set(certificate.effects) == {"encoder", "decoder"}
    assert certificate.identity == 0.0


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_certificate_speaks_for_every_pass_not_for_the_first_alone(use_cache):
    model, prompt = random_model("decoder"), tokens(length=3)
    late = op.CutEdge(query=3, key=1)  # the first pass reads the positions 0 to 2
    with edit(model, late) as certificate:
        found = generate(model, prompt, 4, use_cache=use_cache).tokens
    with torch.no_grad():
        plain = torch.stack([model(found[:, : 3 + step])[:, -1] for step in range(4)])
        with edit(model, late, certify=False):
            edited = torch.stack([model(found[:, : 3 + step])[:, -1] for step in range(4)])
    assert torch.equal(edited[0], plain[0])
    effect = certificate.effects[""]
    assert effect.passes == 4
    assert effect.largest == pytest.approx(float((edited - plain).abs().max()), abs=1e-12)
    assert effect.largest > 0
    assert effect.kernel is None  # a mask is edited without opening anything
    if use_cache:  # each pass puts out what it was given anew: all of the prompt, then one position
        with torch.no_grad(), edit(model, late, certify=False):
            whole = model(found[:, :-1])
        with torch.no_grad():
            apart = (whole - model(found[:, :-1])).abs()
        assert effect.mean == pytest.approx(float(apart.mean()), abs=1e-12)


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
def test_what_an_edit_did_in_an_earlier_pass_is_still_its_doing_where_a_cache_holds_it(kind):
    model, largest = random_model(kind, 0), {}
    path = "" if kind == "decoder" else "decoder"
    early = op.ZeroHead(site=f"{path}.layers.0.attention".lstrip("."), head=1, step=1)
    for use_cache in (True, False):
        with edit(model, early) as certificate:
            predictor = model if kind == "decoder" else model.conditioned(tokens())
            generate(predictor, tokens(length=3), 4, use_cache=use_cache)
        largest[use_cache] = certificate.effects[path].largest
        assert certificate.effects[path].passes == 4
    assert largest[True] == pytest.approx(largest[False], abs=1e-12)


def test_passes_that_go_on_from_a_cache_filled_before_the_edit_are_counted_as_not_compared():
    model, cache, ids = random_model("decoder"), Cache(), tokens()
    model(ids[:, :3], cache=cache)
    with edit(model, op.ZeroHead(layer=0, head=1)) as certificate:
        model(ids)
        model(ids[:, 3:4], cache=cache)
        model(ids[:, 4:], cache=cache)
    assert certificate.effects[""].passes == 1
    unsaid = "not checked: what the edits did to the output of 2 more forward passes"
    assert unsaid in str(certificate)
    cache = Cache()
    model(ids[:, :3], cache=cache)
    with edit(model, op.ZeroHead(layer=0, head=1)) as certificate:
        model(ids[:, 3:], cache=cache)
    assert certificate.identity is None
    assert "continued a cache that existed before" in str(certificate)


def test_under_autocast_an_open_attention_is_as_exact_as_a_fused_one():
    model = random_model("decoder", 0, torch.float32)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        with edit(model, op.Temperature(temperature=1.0)) as certificate:
            output = model(tokens())
        with attnlab.record(model, ["*scores", "*weights"]) as recording:
            model(tokens())
    assert certificate.identity == 0.0
    assert all(rows.off == 0 for rows in certificate.rows.values())
    half = 2**-7 * float(output.abs().max())  # what half precision can tell
    assert certificate.effects[""].kernel <= half
    assert {recording[site].dtype for site in recording} == {torch.float32}


def test_an_attention_alone_is_edited_with_a_certificate():
    part = multi_head_attention(8, 2)
    with torch.no_grad(), edit(part, op.Temperature(temperature=1.0)) as certificate:
        part(torch.randn(1, 3, 8, generator=generator(0, "part")))
    assert certificate.identity == 0.0
