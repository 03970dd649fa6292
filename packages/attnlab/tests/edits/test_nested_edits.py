"""Edits inside edits: they follow one another, and a pass under both is compared by neither."""

from collections.abc import Sequence
from contextlib import ExitStack

import pytest
import torch
from parts.planting import planted
from torch import Tensor, nn

import attnlab
import attnlab.edits as op
from attnlab.edits import Edit, edit
from attnlab.sites import Hook, installed

from .cases import is_clean, make

DIFFERENT_LAYERS = (
    op.ScaleHead(layer=1, head=0, factor=0.25),
    op.UniformPattern(layer=0, head=1),
    op.ZeroHead(layer=1, head=2),
)
SAME_SITE = (
    op.ScaleHead(layer=1, head=0, factor=0.25),
    op.ScaleHead(layer=1, head=0, factor=3.0),
    op.ZeroHead(layer=1, head=1),
)
TEXT = torch.tensor([[1, 3, 5, 7, 3, 2], [3, 4, 6, 8, 0, 3]])


class Doubled(Hook):
    """A hook of the user's own that changes the stream."""

    sites = frozenset({"layers.0.residual_after"})

    def wants(self, site: str) -> bool:
        return site in self.sites

    def visit(self, site: str, value: Tensor) -> Tensor:
        return value * 2


def nested(model: nn.Module, edits: Sequence[Edit]) -> tuple[Tensor, list[op.Certificate]]:
    with torch.no_grad(), ExitStack() as stack:
        certificates = [stack.enter_context(edit(model, each)) for each in edits]
        output = model(TEXT)
    assert is_clean(model)
    return output, certificates


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
@pytest.mark.parametrize("edits", [DIFFERENT_LAYERS, SAME_SITE])
def test_edits_inside_edits_give_what_all_of_them_give_in_one(kind, edits):
    model = make(kind, 2)
    output, certificates = nested(model, edits)
    with torch.no_grad(), edit(model, *edits):
        together = model(TEXT)
    assert torch.equal(output, together)
    assert not torch.equal(output, model(TEXT))
    for certificate in certificates:
        assert certificate.effects == {}
        assert certificate.edits[0].changed
        assert certificate.parameters_unchanged
        assert "ran under other edits" in str(certificate)


def check_compared_again() -> None:
    model = make("decoder", 0)
    with torch.no_grad(), edit(model, DIFFERENT_LAYERS[1]) as outer:
        model(TEXT)
        with edit(model, DIFFERENT_LAYERS[2]):
            model(TEXT)
        model(TEXT)
    with edit(model, DIFFERENT_LAYERS[1]) as alone:
        model(TEXT)
    assert outer.effects[""].passes == 2
    assert outer.effects[""].largest == alone.effects[""].largest
    assert outer.identity == 0.0
    assert "1 more forward passes" in str(outer)


def test_passes_before_and_after_an_inner_edit_are_compared():
    check_compared_again()


def check_other_hooks() -> None:
    model, silent = make("decoder", 0), op.ScaleHead(head="all", factor=1.0)
    with installed(model, Doubled()), edit(model, silent) as certificate:
        model(TEXT)
    assert certificate.effects == {}
    with edit(model, silent) as certificate, installed(model, Doubled()):
        model(TEXT)
    assert certificate.effects == {}


def test_a_pass_that_another_hook_changes_is_not_compared():
    check_other_hooks()


def check_cache() -> None:
    model, cache = make("decoder", 0), attnlab.parts.Cache()
    with torch.no_grad(), edit(model, DIFFERENT_LAYERS[0]) as outer:
        model(TEXT[:, :2], cache=cache)
        with edit(model, DIFFERENT_LAYERS[2]) as inner:
            model(TEXT[:, 2:4], cache=cache)
        model(TEXT[:, 4:], cache=cache)
    assert outer.effects[""].passes == 1
    assert "2 more forward passes" in str(outer)
    assert inner.effects == {}


def test_passes_on_a_cache_that_an_inner_edit_has_changed_are_not_compared():
    check_cache()


@pytest.mark.parametrize(
    ("old", "new", "check"),
    [
        (" or any(hook.changes for hook in others))", ")", check_other_hooks),
        ("if hook is not self._editor]", "]", check_compared_again),
        ("is_known and _length(twin) == length", "True", check_cache),
    ],
)
def test_faults_planted_in_the_comparison_of_nested_edits_are_caught(old, new, check):
    caught = (AssertionError, ValueError, KeyError, TypeError)
    with planted("attnlab.edits.checks", old, new), pytest.raises(caught):
        check()
