"""Eighty families of transformers: what is seen at their hook points is what their own code
computes, to the last bits. By default a sample of them, of every kind."""

import pytest
import torch
from torch import Tensor

import attnlab
from tests.pretrained.families import FAMILIES, SAMPLE, each_family
from tests.pretrained.table import DOCUMENT, document, looked, opened, unchanged
from tests.pretrained.trying import Tried, changed_at, difference, recorded_weights, tried

pytest.importorskip("transformers")

_IN_DOUBLE = [
    pytest.param(name, marks=() if name in SAMPLE else pytest.mark.slow)
    for name, family in FAMILIES.items()
    if family.in_double
]


@each_family
def test_weights_that_are_only_looked_at_are_the_model_s_own(name: str) -> None:
    assert looked(name) <= 1e-6


@each_family
def test_weights_that_are_computed_openly_are_the_model_s_own_to_the_bit(name: str) -> None:
    assert opened(name) <= (0.0 if FAMILIES[name].is_exact else 1e-6)


@pytest.mark.parametrize("name", _IN_DOUBLE)
def test_weights_in_float64_are_the_model_s_own_to_twelve_places(name: str) -> None:
    each = tried(name, torch.float64)
    is_made = all(point.is_lazy for _, point in each.model.attention_points())
    own = each.weights_in_full() if is_made else each.own_weights
    found = recorded_weights(each, openly=False)
    assert {weights.dtype for weights in found} <= {
        torch.float64,
        torch.float32 if not is_made else torch.float64,
    }
    assert max(difference(one, other) for one, other in zip(found, own, strict=True)) <= 1e-12


@each_family
def test_looking_at_everything_leaves_the_output_as_it_is(name: str) -> None:
    each = tried(name)
    with attnlab.record(each.model, "*"):
        found = each.run()
    assert torch.equal(found, each.plain)


@each_family
def test_edits_that_change_nothing_leave_the_eager_output_as_it_is(name: str) -> None:
    assert unchanged(name) <= (0.0 if FAMILIES[name].is_exact else 1e-5)


def _zeroed_by_hand(each: Tried, point: str, head: int) -> Tensor:
    """The output when a head's slice is zeroed before the output projection, by a hook of the
    test's own."""
    anatomy, number = each.place(point.rpartition(".")[0])
    heads = each.heads(point)
    projection = anatomy.cross if point.endswith("cross_attention") else anatomy.projection
    if not projection:  # xlnet has none: it multiplies with a parameter, (d_model, head, width)
        with torch.no_grad():
            parameter = each.foreign.get_parameter(
                anatomy.blocks.replace("*", str(number)) + ".rel_attn.o"
            )
            kept = parameter.detach().clone()
            parameter[:, head] = 0.0
            found = each.run()
            parameter.copy_(kept)
        return found

    def zero(value: Tensor, block: int) -> Tensor | None:
        if block != number:
            return None
        width = value.shape[-1] // heads
        return value.clone().index_fill(-1, torch.arange(head * width, (head + 1) * width), 0.0)

    with changed_at(each.foreign, anatomy, f"in {projection}", zero):
        return each.run()


@each_family
def test_a_head_zeroed_is_its_slice_zeroed_before_the_output_projection(name: str) -> None:
    each = tried(name)
    for number, point in enumerate(each.points):
        head = number % each.heads(point)
        with attnlab.edit(each.model, attnlab.ZeroHead(site=point, head=head)):
            found = each.run()
        assert not torch.equal(found, each.plain)
        assert torch.equal(found, _zeroed_by_hand(each, point, head))


@pytest.mark.slow
def test_the_table_in_the_documents_is_what_is_measured() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), (
        "write it anew: cd packages/attnlab && python -m tests.pretrained.table"
    )
