"""Edits change what they mean and nothing else, and leave nothing behind."""

import copy
import json
import warnings
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

import attnlab.edits as op
from attnlab.edits import edit, targets
from attnlab.errors import WrongUsage
from attnlab.look import record
from attnlab.parts.masks import causal_mask, padding_mask
from attnlab.seeds import generator
from tests.hooks import no_hook_is_left
from tests.random_models import random_model, tokens

from .cases import WEIGHTS, refused


def test_nothing_stays_behind_also_after_an_error_and_in_two_models_at_once():
    first, second = random_model("decoder"), random_model("decoder", 1)
    plain = second(tokens())
    with pytest.raises(KeyError), edit(first, op.ZeroHead(layer=0, head=0)):
        raise KeyError("on the way")
    with edit(first, op.ZeroHead(layer=0, head=0)):
        assert no_hook_is_left(second)
        assert torch.equal(second(tokens()), plain)
        with edit(second, op.ZeroHead(layer=1, head=1)):
            assert not torch.equal(second(tokens()), plain)
        first(tokens())
    for bad in (tokens(high=12, low=11), tokens(length=17)):
        refused(r"token ids|at most 16", first, op.ZeroHead(head=0), bad)
    assert no_hook_is_left(first)
    assert no_hook_is_left(second)
    assert torch.equal(second(tokens()), plain)


def test_an_error_inside_is_not_hidden_behind_an_edit_that_did_not_land():
    lost = edit(random_model("decoder"), op.ZeroHead(head=0, query=9))
    with pytest.raises(ZeroDivisionError), lost:
        raise ZeroDivisionError


def test_the_ways_of_saying_a_place_mean_the_same():
    model, given = random_model("decoder"), tokens()
    outputs = []
    ways = (([1, 2], [2, 3, 4]), ("1..2", "2..4"), (["-3..-2"], ["-4..-2"]), ({1, -2}, range(2, 5)))
    for heads, places in ways:
        with edit(model, op.ZeroHead(layer=0, head=heads, query=places)):
            outputs.append(model(given))
    assert all(torch.equal(output, outputs[0]) for output in outputs)


def test_edits_of_one_site_follow_one_another_in_the_order_given():
    model, given, site = random_model("decoder", 2), tokens(), "layers.0.residual_after"
    double = op.ScaleSite(site=site, factor=2.0)
    add = op.AddVector(site=site, vector=torch.ones(16))
    seen = []
    for edits in ((double, add), (add, double)):
        with record(model, site) as recording, edit(model, *edits):
            model(given)
        seen.append(recording[site])
    with record(model, site) as recording:
        model(given)
    assert torch.equal(seen[0], recording[site] * 2 + 1)
    assert torch.equal(seen[1], (recording[site] + 1) * 2)


@pytest.mark.parametrize("records_first", [False, True])
def test_a_recording_shows_what_went_on_whichever_came_first(records_first):
    model, given = random_model("decoder"), tokens()
    pattern = op.UniformPattern(layer=0, head=1)
    recording = record(model, "layers.*.attention.weights")
    both = [recording, edit(model, pattern)]
    with ExitStack() as stack:
        for each in both if records_first else both[::-1]:
            stack.enter_context(each)
        model(given)
    assert len(recording.all(WEIGHTS)) == 1  # the certificate's own passes are nobody's business
    uniform = torch.tensor([0.25] * 4 + [0.0] * 2).double()
    assert torch.allclose(recording[WEIGHTS][0, 1, 3], uniform)
    assert recording.edits == [pattern.to_json()]


def test_a_recording_may_be_named_by_its_folder(tmp_path):
    model, clean, other = random_model("decoder"), tokens(), tokens(seed=5)
    with record(model, "layers.0.attention.weights") as recording:
        model(clean)
    recording.save(tmp_path / "clean")
    named = op.FreezePattern(layer=0, recording=str(tmp_path / "clean"))
    whole = op.FreezePattern(layer=0, recording=recording)
    outputs = []
    for each in (named, whole, op.Edit.from_json(json.loads(json.dumps(named.to_json())))):
        with edit(model, each):
            outputs.append(model(other))
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])
    assert named.to_json()["recording"] == str(tmp_path / "clean")


def test_patterns_of_longer_and_shorter_texts_fit_where_nothing_is_lost():
    model = random_model("decoder")
    with record(model, "layers.*.attention.weights") as recording:
        model(tokens(batch=1))
    with edit(model, op.FreezePattern(recording=recording)):
        model(tokens(length=4))
    with edit(model, op.FreezePattern(recording=recording, query="..5")):
        model(tokens(length=8))
    frozen = op.FreezePattern(recording=recording)
    refused("has 6 positions; position 6 is beyond them", model, frozen, tokens(length=8))
    encoder = random_model("encoder")
    with record(encoder, "layers.*.attention.weights") as recording:
        encoder(tokens(batch=1))
    for frozen, length in (
        (op.FreezePattern(recording=recording), 4),
        (op.FreezePattern(recording=recording, query="..5"), 8),
    ):
        misfit = rf"must fit \(batch, head, query, key\) = \(3, 4, {length}, {length}\); got"
        refused(misfit, encoder, frozen, tokens(length=length))


def test_resampled_rows_are_never_ones_own_and_the_same_everywhere():
    model, given = random_model("decoder"), tokens(batch=7, seed=3)
    sites = ["layers.0.attention.heads", "layers.1.attention.heads"]
    with record(model, sites[0]) as plain:
        model(given)
    drawn = []
    for seed in (0, 1):
        with record(model, sites) as recording, edit(model, op.ResampleHead(head=1, seed=seed)):
            model(given)
        own, found = plain[sites[0]][:, 1], recording[sites[0]][:, 1]
        donors = [[row for row in range(7) if torch.equal(found[to], own[row])] for to in range(7)]
        assert all(len(each) == 1 for each in donors)
        assert sorted(donors) == [[row] for row in range(7)]
        assert all(each != [to] for to, each in enumerate(donors))
        drawn.append(donors)
    assert drawn[0] != drawn[1]
    refused("values are taken from another row", model, op.ResampleHead(head=1), given[:1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_stay_what_they_are(dtype):
    model, given = copy.deepcopy(random_model("decoder")).to(dtype), tokens()
    plain = model(given)
    edits = [
        op.ZeroHead(layer=0, head=1),
        op.MeanHead(layer=1, head=1),
        op.CutEdge(layer=0, query=4, key=1),
        op.UniformPattern(layer=1, head=0),
        op.AddToScores(layer=0, key=0, amount=1.5),
        op.AddVector(site="layers.0.residual_after", vector=torch.ones(16, dtype=torch.float64)),
    ]
    with edit(model, *edits) as certificate:
        output = model(given)
    assert output.dtype == dtype
    assert output.isfinite().all()
    assert not torch.equal(output, plain)
    assert certificate.holds, str(certificate)


def test_padding_and_rows_that_may_look_at_nothing_stay_zeros():
    model, given = random_model("encoder"), tokens()
    real = torch.tensor([[True] * 6, [True] * 4 + [False] * 2, [False] * 6])
    first = op.RedirectToFirst(layer=1, head=0)
    edits = (op.UniformPattern(layer=0), op.ShufflePattern(layer=1), first)
    with record(model, "*attention.weights") as recording, edit(model, *edits) as certificate:
        assert model(given, real=real).isfinite().all()
    for site in recording:
        weights = recording[site]
        assert not weights[1, ..., 4:].any()
        assert not weights[2].any()
        assert torch.allclose(weights[:2].sum(-1), torch.ones(()).double())
    assert {rows.dead for rows in certificate.rows.values()} == {4 * 6}


GRADIENTS = [
    op.ScaleHead(head=0, factor=2.0),
    op.CutEdge(query=2, key=1),
    op.CutEdge(query=2, key=1, renormalize=False),
    op.AddToScores(amount=-float("inf"), key=1, query=0),
    op.ShufflePattern(),
    op.MeanHead(head=0),
    op.AddVector(site="output", vector=torch.ones(2).double()),
]


@pytest.mark.parametrize("edited", GRADIENTS, ids=repr)
def test_gradients_flow_through_edits_as_through_what_they_compute(edited):
    model = random_model("single head", 1)
    x = torch.randn(2, 3, 3, generator=generator(0, "gradient")).double().requires_grad_()

    def run(x):
        with edit(model, edited, certify=False):
            return model(x).output

    assert torch.autograd.gradcheck(run, (x,), raise_exception=False)


def test_many_members_at_once_are_edited_alike():
    members = [random_model("decoder", number) for number in (0, 60)]
    given = tokens()
    base = copy.deepcopy(members[0]).to("meta")
    parameters, buffers = stack_module_state(members)
    cut, uniform = op.CutEdge(layer=0, query=3, key=1), op.UniformPattern(layer=1, head=0)
    edits = (op.ZeroHead(layer=0, head=1), uniform, cut)
    with edit(base, *edits) as certificate, warnings.catch_warnings():
        together = vmap(lambda p, b: functional_call(base, (p, b), (given,)))(parameters, buffers)
    for member, output in zip(members, together, strict=True):
        with edit(member, *edits):
            assert (member(given) - output).abs().max() < 1e-12
    assert certificate.holds
    assert certificate.identity is None


@pytest.mark.parametrize("over", ["positions", "all"])
@pytest.mark.parametrize("form", ["padding", "with causality", "target"])
def test_means_leave_out_the_padding_that_a_mask_tells_of(form, over):
    """A padded row's mean was once taken over its padding too."""
    kind = "encoder-decoder" if form == "target" else "decoder"
    model, ids, lengths = random_model(kind, 0), tokens(), [2, 6, 4]
    mask = padding_mask(lengths, 6)
    mask = mask & causal_mask(6) if form == "with causality" else mask
    site = "decoder.layers.0.attention" if kind == "encoder-decoder" else "layers.0.attention"
    name = "target_mask" if kind == "encoder-decoder" else "mask"
    edited = op.MeanHead(site=site, head=1, over=over)

    def run(chosen, **more):
        given = (
            (tokens(seed=1)[chosen], ids[chosen]) if kind == "encoder-decoder" else (ids[chosen],)
        )
        return model(*given, **more)

    with torch.no_grad(), record(model, f"{site}.heads") as recording:
        run(slice(None), **{name: mask})
    with torch.no_grad(), edit(model, edited), record(model, f"{site}.heads") as under:
        run(slice(None), **{name: mask})
    own = [row[1, :length] for row, length in zip(recording[f"{site}.heads"], lengths, strict=True)]
    means = [each.mean(0) for each in own] if over == "positions" else [torch.cat(own).mean(0)] * 3
    for row, (mean, length) in enumerate(zip(means, lengths, strict=True)):
        found = under[f"{site}.heads"][row, 1, :length]
        assert torch.allclose(found, mean.expand_as(found), atol=1e-12), (row, length)


class Halved(op.Edit):
    """An edit of one's own that changes what it is given in place."""

    def change(self, values, context):
        return values.mul_(0.5)


class Forgetful(op.Edit):
    """An edit that forgets to return the values."""

    def change(self, values, context):
        values.mul_(0.5)


class Narrowing(op.Edit):
    """An edit that returns values of another shape."""

    def change(self, values, context):
        return values[..., :-1]


def test_an_edit_of_ones_own_may_change_its_values_in_place():
    model, site = random_model("decoder", 1), "layers.0.residual_after"
    with edit(model, op.ScaleSite(site=site, query=2, factor=0.5)) as expected:
        output = model(tokens())
    with edit(model, Halved(site=site, query=2)) as certificate:
        assert torch.equal(model(tokens()), output)
    (change,), (other,) = certificate.edits, expected.edits
    assert change.changed == other.changed > 0


@pytest.mark.parametrize(
    ("kind", "words"), [(Forgetful, "returned a NoneType; have it return"), (Narrowing, "of shape")]
)
def test_an_edit_of_ones_own_that_returns_no_values_that_fit_is_told(kind, words):
    refused(words, random_model("decoder", 1), kind(site="layers.0.residual_after"), tokens())


def test_a_list_of_tensors_of_one_whole_number_is_a_list_of_numbers():
    assert targets.normal("head", [torch.tensor(True)]) == 1
    assert targets.normal("head", [torch.tensor(2), 3]) == (2, 3)
    assert targets.normal("head", [np.int64(4)]) == 4
    for item in (torch.tensor(1.5), torch.tensor([1, 2]), True, 1.0):
        with pytest.raises(WrongUsage, match="head= takes a number"):
            targets.normal("head", [item])
