"""Machinery that lies, models that copies and threads come from, texts that keys are not of."""

import copy
import threading

import pytest
import torch
from torch import nn

import attnlab.edits as op
from attnlab.edits import edit, edits_from_json, edits_to_json
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look import record
from attnlab.parts.heads import multi_head_attention
from attnlab.seeds import isolated
from attnlab.sites import SitedModule
from tests.hooks import no_hook_is_left
from tests.random_models import random_model, tokens

from .cases import refused

HEAD = op.ZeroHead(layer=0, head=1)


class Looker(SitedModule):
    """A model whose queries are of what it reads and whose keys are of something else."""

    sites = ("embedding",)

    def __init__(self, *, has_prefix=False):
        super().__init__()
        with isolated(0, "looker"):
            self.look = multi_head_attention(8, 2)
        self.has_prefix = has_prefix

    def forward(self, ids, memory=None):
        self.announce(ids)
        x = nn.functional.one_hot(ids, 8).float()
        if self.has_prefix:
            x = torch.cat((torch.zeros_like(x[:, :1]), x), 1)
        return self.look(x, memory).output


def _cut(model, inputs, **targets):
    """Which weights are zero under a cut, (query, key), and what the recording calls both sides."""
    with edit(model, op.CutEdge(**targets)), record(model, "look.weights") as recording:
        model(*inputs)
    return recording["look.weights"][0, 0] == 0, recording.tokens("look.weights")


@pytest.mark.parametrize("length", [5, 7, 3])
def test_keys_are_counted_from_their_own_end_whatever_the_attention_is_called(length):
    cut, _ = _cut(Looker(), (tokens(2, 5, high=8), torch.randn(2, length, 8)), key=-1)
    assert cut.nonzero().tolist() == [[query, length - 1] for query in range(5)]


def test_keys_of_another_text_have_none_of_this_ones_names():
    model, inputs = Looker(), (tokens(2, 5, high=8), torch.randn(2, 7, 8))
    named = op.CutEdge(key="a")
    refused("give positions", model, named, *inputs, vocabulary=list("abcdefgh"))
    assert no_hook_is_left(model)


def test_positions_that_a_model_puts_before_what_it_reads_take_no_names_from_it():
    cut, sides = _cut(Looker(has_prefix=True), (tokens(2, 5, high=8),), query=-1, key=0)
    assert cut.nonzero().tolist() == [[5, 0]]
    assert sides.query == sides.key == [f"[{place}]" for place in range(6)]


def test_layers_are_those_after_the_word_where_a_path_holds_other_numbers_too():
    model = nn.Sequential(random_model("decoder"))
    with edit(model, op.ZeroHead(layer=1, head=0)) as certificate:
        model(tokens())
    assert certificate.calls == {"0.layers.1.attention.heads": 1}


def test_a_copy_made_under_an_edit_is_not_part_of_its_certificate():
    model = random_model("decoder")
    with edit(model, HEAD) as certificate:
        other = copy.deepcopy(model)
        other(tokens(length=4))
        assert not certificate.effects
        model(tokens())
    assert certificate.effects[""].largest > 0


def test_after_a_pass_that_was_interrupted_the_next_one_is_compared():
    model = random_model("decoder")

    def interrupt(*_):
        raise KeyboardInterrupt

    handle = model.layers[1].register_forward_pre_hook(interrupt)
    with edit(model, HEAD) as certificate:
        with pytest.raises(KeyboardInterrupt):
            model(tokens())
        handle.remove()
        model(tokens())
    assert certificate.identity == 0.0
    assert no_hook_is_left(model)


class _Greedy(op.ScaleSite):
    def change(self, values, context):
        context.whole[1] += 5
        return values * self.factor


def test_an_edit_of_the_stream_that_reaches_into_another_row_is_caught():
    greedy = _Greedy(site="layers.0.residual_after", factor=2.0, row=0)
    model = random_model("decoder")
    with pytest.raises(CouldNotRun, match="row 1 changed, but no"), edit(model, greedy):
        model(tokens())


def test_two_threads_at_once_under_one_edit_are_refused():
    model, both, errors = random_model("decoder"), threading.Barrier(2), []

    def work():
        both.wait()
        try:
            model(tokens())
        except WrongUsage as error:
            errors.append(str(error))
        both.wait()

    with edit(model, HEAD, certify=False):
        threads = [threading.Thread(target=work) for _ in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        model(tokens())  # they have ended
    assert len(errors) == 1
    assert "one thread at a time" in errors[0]


def _nested(depth):
    found = 1.0
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "form",
    [
        "[" * 100_000,
        '[{"edit": "ZeroHead", "head": 0, "head": 1}]',
        [{"edit": "SetPattern", "pattern": {"tensor": _nested(5000), "dtype": "float64"}}],
        [{"edit": "SetPattern", "pattern": {"tensor": [[1.0], [1.0, 2.0]], "dtype": "float64"}}],
        [{"edit": "ZeroHead", "head": _nested(5000)}],
        [{"edit": "ScaleHead", "head": 0, "factor": {"number": "abc"}}],
        [{"edit": "ScaleHead", "head": 0, "factor": 10**400}],
        [{"edit": "ScaleHead", "head": 0, "factor": 10**300}],
        [{"edit": "AddVector", "site": "x", "vector": {"tensor": [10**400], "dtype": "float64"}}],
        [{"edit": "CutEdge", "query": 10**30, "key": 0}],
        [{"edit": "ZeroHead", "head": "3.." + "9" * 5000}],
        [{"edit": "ZeroHead", "head": 0, "query": list(range(100_000))}],
        [{"edit": "ZeroHead", "head": 0, "step": 10**30}],
        [{"edit": "ShiftMask", "by": 10**30}],
        [{"edit": "FreezePattern", "recording": {"values": {"layers.0.attention.weights": 5}}}],
    ],
)
def test_hostile_edits_are_refused_in_a_sentence(form):
    with pytest.raises(WrongUsage) as caught:
        edits_from_json(form)
    assert len(str(caught.value)) < 500


def test_a_vector_of_any_kind_of_number_comes_back_from_json():
    for dtype in (torch.int32, torch.int8, torch.uint8, torch.int64, torch.float16):
        one = op.AddVector(site="embedding", vector=torch.ones(16, dtype=dtype))
        assert edits_from_json(edits_to_json([one])) == [one]
    assert len({op.ScaleHead(head=0, factor=1), op.ScaleHead(head=0, factor=1.0)}) == 1
