"""Eighty families of transformers: what is seen at their hook points is what their own code
computes, to the last bits. By default a sample of them, of every kind."""

import pytest
import torch

import attnlab
from tests.pretrained.families import FAMILIES, each_family, each_of
from tests.pretrained.table import DOCUMENT, document, looked, opened
from tests.pretrained.trying import InFull, Tried, furthest, head_zeroed, recorded_weights, tried

pytest.importorskip("transformers")


@each_family
def test_weights_are_the_model_s_own_looked_at_and_to_the_bit_where_they_are_computed_openly(name):
    assert looked(name) <= 1e-6
    weights, output = opened(name)
    assert weights <= (0.0 if FAMILIES[name].is_exact else 1e-6)
    assert output <= (0.0 if FAMILIES[name].is_exact else 1e-5)


@each_of(
    (name for name, family in FAMILIES.items() if family.in_double),
    always=["gemma3", "bloom", "t5"],
)
def test_weights_in_float64_are_the_model_s_own_to_twelve_places(name):
    each = Tried(FAMILIES[name], torch.float64)
    is_made = all(point.is_lazy for _, point in each.model.attention_points())
    if is_made:
        with InFull():
            own = each.own_weights
    found, _ = recorded_weights(each)
    assert {weights.dtype for weights in found} <= {
        torch.float64,
        torch.float64 if is_made else torch.float32,
    }
    assert furthest(found, own if is_made else each.own_weights) <= 1e-12


@each_family
def test_looking_at_everything_leaves_the_output_as_it_is(name):
    each = tried(name)
    with attnlab.record(each.model, "*"):
        found = each.run()
    assert torch.equal(found, each.plain)


def _zeroed_by_hand(each, point, head):
    """The output when a head's slice is zeroed before the output projection."""
    if each.family.name != "xlnet":
        with head_zeroed(each, point, head):
            return each.run()
    anatomy, number = each.place(point.rpartition(".")[0])
    path = anatomy.blocks.replace("*", str(number)) + ".rel_attn.o"
    with torch.no_grad():  # it multiplies with a parameter, (d_model, head, width)
        parameter = each.foreign.get_parameter(path)
        kept = parameter.detach().clone()
        parameter[:, head] = 0.0
        found = each.run()
        parameter.copy_(kept)
    return found


@each_family
def test_a_head_zeroed_is_its_slice_zeroed_before_the_output_projection(name):
    each = tried(name)
    for number, point in enumerate(each.points):
        head = number % each.heads(point)
        with attnlab.edit(each.model, attnlab.ZeroHead(site=point, head=head), certify=False):
            found = each.run()
        assert not torch.equal(found, each.plain)
        assert torch.equal(found, _zeroed_by_hand(each, point, head))


@pytest.mark.slow
def test_the_table_in_the_documents_is_what_is_measured():
    assert DOCUMENT.read_text(encoding="utf-8") == document(), (
        "write it anew: cd packages/attnlab && python -m tests.pretrained.table"
    )
