"""One head of a two-layer T5: hooks at its own layer alone, and few calls of ours in a pass."""

import os
import sys

import pytest
import torch

import attnlab
from attnlab.sites import Hook, installed, site_names
from tests.planting import noticed
from tests.pretrained.trying import installed_hooks, tried

pytest.importorskip("transformers")

HOME = os.path.dirname(attnlab.__file__) + os.sep
MAX_CALLS = 1178 // 3  # 1178 were counted when hooks were installed everywhere


@pytest.fixture
def t5():
    return tried("t5").model


def hooked_layers(foreign):
    """Return the blocks of T5 that hold a hook, or a forward of ours, in any module."""
    return {".".join(path.split(".")[:3]) for path in installed_hooks(foreign) if ".block." in path}


def own_calls(run):
    """Count the calls of Python functions of attnlab."""
    count = 0

    def note(frame, event, _):
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(HOME)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


HEADS = {
    "encoder.layers.0.attention": "encoder.block.0",
    "encoder.layers.1.attention": "encoder.block.1",
    "decoder.layers.0.attention": "decoder.block.0",
    "decoder.layers.1.attention": "decoder.block.1",
    "decoder.layers.1.cross_attention": "decoder.block.1",
}


def edited(model, part):
    return attnlab.edit(model, attnlab.ZeroHead(site=part, head=1))


def recorded(model, part):
    return attnlab.record(model, f"{part}.weights")


@pytest.mark.parametrize("looked", [edited, recorded])
@pytest.mark.parametrize("part", HEADS)
def test_one_head_has_hooks_at_its_own_layer_alone(t5, looked, part):
    with looked(t5, part), torch.no_grad():
        t5(**t5.example)
        assert hooked_layers(t5.foreign) == {HEADS[part]}
    assert hooked_layers(t5.foreign) == set()


def check_calls(model):
    for edit in (
        attnlab.ZeroHead(site="decoder.layers.1.attention", head=1),
        attnlab.edits.UniformPattern(site="encoder.layers.0.attention", head=1),
    ):
        with attnlab.edit(model, edit, certify=False), torch.no_grad():
            model(**model.example)
            assert own_calls(lambda: model(**model.example)) <= MAX_CALLS


def test_a_pass_under_one_edit_makes_a_third_of_the_calls(t5):
    check_calls(t5)


def test_hooks_everywhere_are_noticed(t5):
    with noticed("pretrained.model", "if hook.sites is None:", "if True:"):
        check_calls(t5)


class _Everywhere(Hook):
    """Counts the visits of all sites, and cannot say beforehand which."""

    changes = False

    def __init__(self):
        self.found: dict[str, int] = {}

    def wants(self, site):
        return True

    def visit(self, site, value):
        self.found[site] = self.found.get(site, 0) + 1
        return value


def test_a_hook_that_names_no_sites_is_given_all_also_beside_one_head(t5):
    alone, beside = _Everywhere(), _Everywhere()
    with installed(t5, alone), torch.no_grad():
        t5(**t5.example)
    head = attnlab.ZeroHead(site="decoder.layers.1.attention", head=1)
    with attnlab.edit(t5, head, certify=False), installed(t5, beside), torch.no_grad():
        t5(**t5.example)
    lazy = ("mask", "scores", "weights")  # computed later, where no hook may change them
    assert {site for site in site_names(t5) if not site.endswith(lazy)} <= set(alone.found)
    assert alone.found == beside.found
    assert set(alone.found.values()) == {1}


def test_a_second_hook_adds_its_sites_to_those_of_the_first(t5):
    head = attnlab.ZeroHead(site="encoder.layers.0.attention", head=1)
    with attnlab.edit(t5, head, certify=False), torch.no_grad():
        expected = t5(**t5.example)
        with attnlab.record(t5, ["*.residual_between", "logits"]) as recording:
            found = t5(**t5.example)
            assert len(hooked_layers(t5.foreign)) == 4
    assert torch.equal(found, expected)
    assert torch.equal(recording["logits"], expected)
    with attnlab.record(t5, "*") as whole, attnlab.edit(t5, head, certify=False), torch.no_grad():
        t5(**t5.example)
    for site in recording:
        assert torch.equal(recording[site], whole[site]), site


def test_the_other_half_is_read_where_no_block_of_it_is_hooked(t5):
    with attnlab.record(t5, "decoder.layers.1.cross_attention.weights") as one, torch.no_grad():
        t5(**t5.example)
    with attnlab.record(t5, "*") as whole, torch.no_grad():
        t5(**t5.example)
    site = "decoder.layers.1.cross_attention.weights"
    assert one.tokens(site) == whole.tokens(site)
