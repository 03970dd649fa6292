"""The residual stream and the feed-forward part, as hooks at each family's own modules see them."""

import re
from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.errors import WrongUsage
from attnlab.pretrained.attach import attach
from attnlab.sites import site_names
from tests.pretrained.families import FAMILIES, Anatomy, each_family, stirred
from tests.pretrained.trying import changed_at, difference, logits_of, split, tried
from tests.sampling import sampled

pytest.importorskip("transformers")

SITES: dict[str, Callable[[Anatomy], str]] = {
    "residual_before": lambda anatomy: "in ",
    "residual_after": lambda anatomy: "out ",
    "residual_between": lambda anatomy: anatomy.between,
    "residual_after_cross": lambda anatomy: anatomy.after_cross,
    "attention.output": lambda anatomy: anatomy.output or anatomy.projection,
    "cross_attention.output": lambda anatomy: anatomy.cross,
    "feed_forward.hidden": lambda anatomy: anatomy.hidden and f"in {anatomy.hidden}",
    "feed_forward.output": lambda anatomy: anatomy.added,
}

PARTS = ("attention.output", "feed_forward.hidden", "feed_forward.output")
UNTOLD: dict[str, tuple[str, ...]] = {
    "granite": ("residual_between", *PARTS),  # what is added is halved first, by no module
    "beit": ("feed_forward.hidden",),  # what is added is scaled by a parameter of the block's own
}
"""Sites that a survey cannot tell, though a reader of the family's code could."""


@cache
def _expected(each):
    """What hooks of the test's own see at every part, by the name of its site."""
    seen: dict[str, Tensor] = {}
    for site, where in SITES.items():
        if site not in UNTOLD.get(each.family.name, ()):
            seen |= {f"{block}.{site}": value for block, value in each.own(where).items()}
    return seen


@each_family
def test_every_stream_is_seen_as_hooks_of_one_s_own_see_it(name):
    each = tried(name)
    expected = _expected(each)
    with attnlab.record(each.model, "*") as recording:
        output = each.run()
    kept = {site for site in recording if site.rpartition(".")[2] not in _NOT_STREAMS}
    assert kept == set(expected)
    for site in kept:
        found = recording[site]
        own = expected[site].reshape(found.shape)
        # Equal, or equal but for the rounding of one sum.
        assert torch.allclose(found, own, rtol=1e-5, atol=1e-5 * float(own.abs().max())), site
    first = {block.rpartition("layers.")[0]: block for block in reversed(each.blocks)}
    for site in recording:
        if site.endswith("embedding"):
            block = first[site.removesuffix("embedding")]
            assert torch.equal(recording[site], recording[f"{block}.residual_before"])
    if "logits" in recording:
        assert torch.equal(recording["logits"], output)


_NOT_STREAMS = (
    "query",
    "key",
    "value",
    "mask",
    "scores",
    "weights",
    "heads",
    "embedding",
    "logits",
)


def one_of_each_kind(each, *ends):
    """Sites with these ends: of each kind in a stack one, in one block after another."""
    kinds: dict[str, list[str]] = {}
    for site in _expected(each):
        if site.endswith(ends):
            kinds.setdefault(re.sub(r"\d+", "*", site), []).append(site)
    return [sites[number % len(sites)] for number, sites in enumerate(kinds.values())]


@each_family
def test_a_vector_added_at_a_stream_is_added_by_hand(name):
    each = tried(name)
    sites = one_of_each_kind(each, "residual_before", "residual_between", "after_cross")
    assert sites
    for number, site in enumerate(sites):
        width = _expected(each)[site].shape[-1]
        vector = torch.randn(width, generator=torch.Generator().manual_seed(1))
        edit = attnlab.edits.AddVector(site=site, vector=vector)
        with attnlab.edit(each.model, edit, certify=not number) as certificate:
            found = each.run()
        assert number or certificate.failures == []
        assert not torch.equal(found, each.plain)
        by_hand = _added_by_hand(each, site, vector)
        size = max(float(by_hand.abs().max()), difference(by_hand, each.plain))  # one may cancel
        assert difference(found, by_hand) <= 2e-5 * size, site


def _added_by_hand(each, site, vector):
    """The output when a vector is added to what goes into the stream there."""
    block, _, own = site.rpartition(".")
    anatomy, number = each.place(block)
    where = {
        "residual_before": "in ",
        "residual_between": anatomy.between,
        "residual_after_cross": anatomy.after_cross,
    }[own]
    if own != "residual_before" and split(where)[0] == "in":
        # The stream goes on past the module that is given it: the vector belongs to what attention
        # adds to it.
        where = (
            anatomy.cross if own == "residual_after_cross" else anatomy.output or anatomy.projection
        )

    def add(value, index):
        return value + vector if index == number else None

    with changed_at(each.foreign, anatomy, where, add):
        return each.run()


@each_family
def test_an_edit_at_the_feed_forward_part_reaches_the_output_as_one_by_hand(name):
    each = tried(name)
    for index, site in enumerate(one_of_each_kind(each, *PARTS)):
        block = site.rpartition(".")[0].rpartition(".")[0]
        anatomy, number = each.place(block)
        where = SITES[site.removeprefix(f"{block}.")](anatomy)
        edit = attnlab.edits.ScaleSite(site=site, factor=0.5)
        with attnlab.edit(each.model, edit, certify=not index) as certificate:
            found = each.run()

        def halve(value, index, number=number):
            return value * 0.5 if index == number else None

        with changed_at(each.foreign, anatomy, where, halve):
            by_hand = each.run()
        assert index or certificate.failures == []
        assert torch.equal(found, by_hand), site
        assert not torch.equal(found, each.plain), site


@pytest.mark.parametrize(
    "name", sampled(["gptj", "granite", "gpt_neox", "phi", "falcon", "cohere"], 2)
)
def test_a_stream_that_is_not_there_is_asked_for_in_vain_and_it_is_said(name):
    each = tried(name)
    assert "layers.0.residual_between" not in site_names(each.model)
    with pytest.raises(WrongUsage, match="no site of this model matches"):
        attnlab.record(each.model, "layers.0.residual_between").__enter__()


def test_blocks_that_do_not_attend_keep_their_numbers():
    import transformers

    settings = {**FAMILIES["llama"].settings, "layer_types": ["conv", "full_attention"]}
    mixed = transformers.Lfm2Config(**settings)
    model = attach(stirred(transformers.Lfm2ForCausalLM(mixed)))
    assert [path for path, _ in model.attention_points()] == ["layers.1.attention"]
    assert "layers.0.residual_after" in site_names(model)


def test_logits_can_be_edited():
    each = tried("llama")
    with attnlab.edit(each.model, attnlab.edits.ScaleSite(site="logits", factor=2.0)):
        assert torch.equal(each.run(), each.plain * 2.0)
    assert torch.equal(each.plain, logits_of(each.foreign(**each.inputs)))
