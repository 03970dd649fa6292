"""Edits inside edits: each certificate speaks of its own change alone."""

from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import attnlab
import attnlab.edits as op
from attnlab.edits import edit
from attnlab.models import generate
from attnlab.sites import installed
from tests.hooks import Change, no_hook_is_left
from tests.random_models import random_model, tokens
from tests.sampling import sampled

SCALE, ZERO = op.ScaleHead(layer=1, head=0, factor=0.25), op.ZeroHead(layer=1, head=0)
DIFFERENT_LAYERS = (SCALE, op.UniformPattern(layer=0, head=1), op.ZeroHead(layer=1, head=2))
SAME_SITE = (SCALE, ZERO, ZERO)
BY_NAME_AND_END = (
    op.CutEdge(layer=0, query=-1, key="t3"),
    op.CutEdge(layer=1, query="t3", key=0),
    op.RedirectToFirst(layer=0, head=1, query=-1),
)
TEXT = torch.tensor([[1, 3, 5, 7, 3, 2], [3, 4, 6, 8, 0, 3]])
NAMES = [f"t{number}" for number in range(11)]


def read(model):
    return model(TEXT)


Pass = Callable[[nn.Module], Tensor]


def within(model, edits, run=read):
    """What comes out under some edits, one inside another, and no certificate."""
    with torch.no_grad(), ExitStack() as stack:
        for each in edits:
            stack.enter_context(edit(model, each, vocabulary=NAMES, certify=False))
        return run(model).detach()


def distance(one, other):
    return float((one - other).abs().max())


def certificates(model, edits, run=read):
    with ExitStack() as stack:
        found = [stack.enter_context(edit(model, each, vocabulary=NAMES)) for each in edits]
        output = run(model).detach()
    assert no_hook_is_left(model)
    return output, found


def check_each(model, edits, run=read, *, is_foreign=False):
    """Each of some edits inside one another is told its own change."""
    output, found = certificates(model, edits, run)
    steps = [within(model, edits[:count], run) for count in range(len(edits) + 1)]
    assert distance(output, steps[-1]) <= (1e-6 if is_foreign else 0.0)
    for (before, after), certificate in zip(pairwise(steps), found, strict=True):
        largest = certificate.effects[""].largest
        assert largest == pytest.approx(distance(before, after), abs=1e-5 if is_foreign else 1e-12)
        assert certificate.identity == 0.0
        assert certificate.holds
    return found


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
@pytest.mark.parametrize("edits", [DIFFERENT_LAYERS, SAME_SITE, BY_NAME_AND_END])
def test_each_of_three_edits_inside_one_another_is_told_its_own_change(kind, edits):
    if kind == "encoder" and edits is BY_NAME_AND_END:
        edits = edits[1:]
    found = check_each(random_model(kind, 2), edits)
    assert all(set(certificate.calls.values()) == {1} for certificate in found)
    assert found[0].effects[""].largest > 0
    if edits is SAME_SITE:  # the second zeroed what the third is given
        assert (found[2].effects[""].largest, found[2].edits[0].changed) == (0, 0)


def test_edits_that_end_in_another_order_than_they_began_speak_of_what_was_there():
    model = random_model("decoder")
    first, second = DIFFERENT_LAYERS[:2]
    opened = [edit(model, first), edit(model, second)]
    one, two = (each.__enter__() for each in opened)
    model(TEXT)
    before = two.effects[""].largest
    opened[0].__exit__(None, None, None)
    largest = one.effects[""].largest
    with torch.no_grad():
        model(TEXT)
    opened[1].__exit__(None, None, None)
    plain, only_first, only_second, both = (
        within(model, edits) for edits in ([], [first], [second], [first, second])
    )
    assert largest == pytest.approx(distance(plain, only_first), abs=1e-12)
    assert one.effects[""].passes == 1
    assert before == pytest.approx(distance(only_first, both), abs=1e-12)
    alone = distance(plain, only_second)
    assert two.effects[""].largest == pytest.approx(max(before, alone), abs=1e-12)
    assert no_hook_is_left(model)


def test_a_part_that_is_edited_inside_an_edit_of_the_whole_speaks_for_itself():
    model, ids = random_model("encoder-decoder"), tokens()
    outer = op.ZeroHead(site="encoder.layers.0.attention", head=1)
    inner = op.UniformPattern(site="layers.0.cross_attention", head=0)
    seen = []
    keep = model.decoder.register_forward_hook(lambda *passed: seen.append(passed[2].detach()))
    within(model, [outer], lambda model: model(ids, ids))
    with edit(model.decoder, inner, certify=False):
        within(model, [outer], lambda model: model(ids, ids))
    keep.remove()
    plain, outer_only = (
        within(model, edits, lambda model: model(ids, ids)) for edits in ([], [outer])
    )
    with edit(model, outer) as around, edit(model.decoder, inner) as certificate:
        model(ids, ids)
    assert certificate.effects[""].largest == pytest.approx(distance(*seen), abs=1e-12)
    assert around.effects[""].largest == pytest.approx(distance(plain, outer_only), abs=1e-12)
    assert around.effects[""].largest != pytest.approx(certificate.effects[""].largest)


def test_an_edit_without_a_certificate_is_no_part_of_those_around_and_inside():
    model = random_model("decoder")
    first, second, third = DIFFERENT_LAYERS
    with edit(model, first) as one, edit(model, second, certify=False), edit(model, third) as two:
        model(TEXT)
    steps = [within(model, DIFFERENT_LAYERS[:count]) for count in range(4)]
    assert one.effects[""].largest == pytest.approx(distance(steps[0], steps[1]), abs=1e-12)
    assert two.effects[""].largest == pytest.approx(distance(steps[2], steps[3]), abs=1e-12)


def test_what_another_hook_changes_is_no_doing_of_an_edit():
    model, silent = random_model("decoder"), op.ScaleHead(head="all", factor=1.0)
    doubled = Change("layers.0.residual_after", lambda value: value * 2)
    with installed(model, doubled), edit(model, silent) as certificate:
        model(TEXT)
    assert certificate.effects[""].largest == 0
    with edit(model, silent) as certificate, installed(model, doubled):
        model(TEXT)
    assert certificate.effects[""].largest == 0


def test_with_a_cache_only_the_first_pass_of_nested_edits_is_compared_and_that_is_said():
    edits = (op.ZeroHead(layer=0, head=1), op.CutEdge(layer=1, query="2..", key=0))
    (text, with_cache), (again, without) = (
        certificates(
            random_model("decoder"),
            edits,
            lambda model, use_cache=use_cache: (
                generate(model, TEXT[:, :3], 4, use_cache=use_cache).tokens
            ),
        )
        for use_cache in (True, False)
    )
    assert torch.equal(text, again)
    assert [certificate.effects[""].passes for certificate in without] == [4, 4]
    for certificate in with_cache:
        assert certificate.effects[""].passes in (1, 4)
        assert certificate.effects[""].largest > 0
    assert with_cache[0].effects[""].passes == 1
    assert "3 more forward passes" in str(with_cache[0])


def test_passes_on_a_cache_that_an_inner_edit_joined_late_are_not_compared():
    model, cache = random_model("decoder"), attnlab.parts.Cache()
    with torch.no_grad(), edit(model, DIFFERENT_LAYERS[0]) as outer:
        model(TEXT[:, :2], cache=cache)
        with edit(model, DIFFERENT_LAYERS[2]) as inner:
            model(TEXT[:, 2:4], cache=cache)
        model(TEXT[:, 4:], cache=cache)
    assert outer.effects[""].passes == 1
    assert "2 more forward passes" in str(outer)
    assert inner.effects == {}


@pytest.mark.parametrize("name", sampled(["t5", "gpt2", "llama", "bert"], 1))
def test_edits_inside_edits_of_pretrained_models_are_told_their_own_change(name):
    pytest.importorskip("transformers")
    from tests.pretrained.trying import logits_of, tried

    family = tried(name)
    site = family.points[-1]
    edits = (
        op.ScaleHead(site=site, head=0, factor=3.0),
        op.UniformPattern(site=family.points[0], head=1),
        op.ZeroHead(site=site, head=0),
    )
    run = torch.no_grad()(lambda _: logits_of(family.foreign(**family.inputs)))
    found = check_each(family.model, edits, run, is_foreign=True)
    assert all(certificate.effects[""].largest > 1e-4 for certificate in found)


def test_a_pretrained_model_that_generates_tells_nested_edits_their_own_change():
    pytest.importorskip("transformers")
    from tests.pretrained.trying import tried

    family = tried("llama")
    ids = torch.tensor([[5, 9, 4, 7], [8, 5, 6, 9]])
    outer = op.ScaleHead(layer=0, head=1, factor=5.0, step=2)
    inner = op.ZeroHead(layer=0, head=0, query="5")
    told = {"do_sample": False, "pad_token_id": 0, "max_new_tokens": 4, "min_new_tokens": 4}
    with (
        attnlab.edit(family.model, outer, vocabulary=str) as around,
        attnlab.edit(family.model, inner, vocabulary=str) as inside,
    ):
        text = family.foreign.generate(input_ids=ids, **told)[:, :-1]

    def passes(*edits):
        found = []
        with torch.no_grad(), ExitStack() as stack:
            for each in edits:
                stack.enter_context(edit(family.model, each, vocabulary=str, certify=False))
            for length in range(4, 8):
                output = family.foreign(input_ids=text[:, :length], use_cache=False)
                found.append(output.logits[:, -1])
        return torch.stack(found)

    first, both = passes(outer), passes(outer, inner)
    assert (around.effects[""].passes, inside.effects[""].passes) == (1, 4)
    last = family.foreign(input_ids=text, use_cache=False).logits.detach()
    assert last.shape[1] == 7
    assert around.effects[""].largest == 0.0  # it begins in the second step
    assert inside.effects[""].largest >= distance(first, both) - 1e-4
