"""An edit lands, or says why it did not: before anything runs where that can be known."""

import pytest
import torch
from torch import nn

import attnlab.edits as op
from attnlab.edits import edit, editor
from attnlab.edits.effects.effect import effect
from attnlab.edits.targets import find_sites
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look import record
from attnlab.parts import heads
from attnlab.parts.masks import padding_mask
from attnlab.pretrained.attach import attach
from attnlab.sites import Hook, installed
from tests.hooks import no_hook_is_left
from tests.random_models import new_model, random_model, tokens

from .cases import VOCABULARY, WEIGHTS, refused

STREAM, HEADS = "layers.0.residual_after", "layers.0.attention.heads"
BEFORE = [
    (op.ZeroHead(layer=2, head=0), r"layer=2 is out of range: .*: this model has 2 layers"),
    (op.ZeroHead(layer=0, head=4), r"head=4 is out of range: .* has 4 heads, 0 to 3 \(or -4"),
    (op.ZeroHead(layer=0, head="2..7"), r"head='2\.\.7' is out of range"),
    (op.ZeroHead(site="layers.0.atention", head=0), r"did you mean 'layers\.0\.attention'"),
    (op.ZeroSite(site="layers.*.residual_middle"), "no site of this model matches"),
    (op.ZeroSite(site="layers.0.attention.mask"), "use CutEdge, SetMask, ShiftMask or RelaxMask"),
    (op.MeanSite(site="layers.0.attention.weights"), "use SetPattern, UniformPattern or CutEdge"),
    (op.ZeroSite(site=STREAM, head=1), r"axes \(batch, length, d_model\); leave head= out"),
    (op.ZeroSite(site="layers.0.attention.key", step=1), "leave step= out"),
    (op.SwapHeads(layer=0, head=1, other=-3), r"both are head 1 of layers\.0\.attention"),
    (op.Patch(site=WEIGHTS, channel=1, recording={}), r"the last axis of .* are keys; use key="),
    (op.Patch(site=STREAM, recording={}), "the recording has no 'layers.0.residual_after'"),
    (op.FreezePattern(layer=0, recording="/nowhere/at/all"), "there is no recording in"),
    (op.ZeroHead(head=0, query="t99"), "pass the names as vocabulary="),
]


@pytest.mark.parametrize(("wrong", "message"), BEFORE, ids=lambda each: repr(each)[:60])
def test_what_this_model_does_not_have_is_an_error_before_anything_runs(wrong, message):
    model = random_model("decoder")
    with pytest.raises((WrongUsage, CouldNotRun), match=message), edit(model, wrong):
        pytest.fail("the context began")
    assert no_hook_is_left(model)


MISFITS = [
    (op.ZeroSite(site=STREAM, channel=16), r"channel=16 is out of range: .* has 16 channels"),
    (op.AddVector(site=STREAM, vector=torch.ones(5)), r"d_model\) = \(3, 6, 16\); got \(1, 1, 5"),
    (op.AddVector(site="*1.feed_forward.hidden", vector=torch.ones(5)), r"d_ff\) = \(3, 6, 7"),
    (op.SetPattern(pattern=torch.ones(3, 5, 5)), r"= \(\d, 4, 6, 6\); got \(1, 3, 5, 5\)"),
    (op.SetMask(mask=torch.ones(1, 2, 5, 5).bool()), r"= \(\d, 4, 6, 6\); got \(1, 2, 5, 5\)"),
    (op.AddToScores(amount=torch.ones(2, 1, 1)), r"must fit \(batch, head, query, key\)"),
    (op.Patch(site=STREAM, recording={STREAM: torch.ones(3, 6, 8)}), r"got \(3, 6, 8\)"),
    (op.Patch(site=HEADS, recording={HEADS: torch.ones(3, 2, 6, 4)}), "must fit"),
    (op.FreezePattern(layer=0, recording={WEIGHTS: torch.ones(6, 6)}), r"got \(1, 1, 6, 6\)"),
]


@pytest.mark.parametrize(("wrong", "message"), MISFITS, ids=lambda each: repr(each)[:60])
def test_a_tensor_that_does_not_fit_its_site_is_an_error_in_the_first_pass(wrong, message):
    model = random_model("decoder")
    refused(message, model, wrong, tokens())
    assert no_hook_is_left(model)


AFTER = [
    (op.ZeroHead(head=0, query=6), "query=6 was never reached; the longest input had 6 positions"),
    (op.ZeroHead(head=0, query=[0, "9.."]), r"query='9\.\.' was never reached"),
    (op.ZeroHead(head=0, row=3), r"row=3 was never reached; .* had 3 rows \(0 to 2\)"),
    (op.ZeroHead(head=0, step=2), r"step=2 was never reached; .* 1 forward passes \(steps 1 to 1"),
    (op.ZeroHead(head=0, query="t10"), "the token 't10' was never among the queries"),
    (op.CutEdge(query=2, key=6), "key=6 was never reached"),
    (op.CutEdge(query=2, key=5), "changed nothing: none of these queries attends to any of these"),
    (op.AddToScores(query=2, key=5, amount=3.0), "changed nothing: the mask blocks all of these"),
    (op.AddToScores(query=2, key="3..", amount=torch.ones(6, 6)), "the mask blocks all of these"),
    (op.RelaxMask(query=5, key="..5"), "changed nothing: all of these queries may attend"),
    (op.ZeroHead(head=0, row=2, query="t7"), "its targets never occurred together"),
    (op.ZeroHead(head=0, step=1, query=-1, row=[0, 5]), "row=5 was never reached"),
    (op.ZeroHead(head=0, query="3..100"), r"query='3\.\.100' was never reached"),
    (op.ZeroHead(head=0, row="-9..-1"), r"row='-9\.\.-1' was never reached"),
]


@pytest.mark.parametrize(("lost", "message"), AFTER, ids=lambda each: repr(each)[:60])
def test_an_edit_that_lands_nowhere_is_an_error_at_the_end(lost, message):
    model, given = random_model("decoder"), tokens(high=7)
    given[0, 0], given[2, 0] = 7, 1
    refused(message, model, lost, given, vocabulary=VOCABULARY, certify=False)
    assert no_hook_is_left(model)


def test_without_a_forward_pass_every_edit_is_lost():
    nowhere = r"landed nowhere: no forward pass ran layers\.0\.attention\.heads"
    refused(nowhere, random_model("decoder"), op.ZeroHead(layer=0, head=0))
    both = random_model("encoder-decoder")
    partly = r"only in part: no forward pass ran decoder\.layers\.0"
    refused(partly, both, op.ZeroHead(head=0), tokens(), run=both.encode)


def test_what_another_hook_supplies_is_not_edited_and_that_is_said():
    class Known(Hook):
        def supply(self, site):
            return torch.zeros(3, 4, 6, 4).double() if site == HEADS else None

    model = random_model("decoder")
    unseen = r"no forward pass ran layers\.0\.attention\.scores"
    with installed(model, Known()):
        refused(unseen, model, op.ScaleScores(layer=0, factor=2.0), tokens())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: op.ZeroHead(layer=0, head=None), "needs head="),
        (lambda: op.ZeroHead(head=0, query=""), "query= takes a number"),
        (lambda: op.ZeroHead(head=0, query=["t1", ".."]), "has no ends; leave query= out for all"),
        (lambda: op.ZeroHead(head=0, key=1), "no key=; it takes layer, site, head, query, row, s"),
        (lambda: op.ZeroHead(head=True), "head= takes a number"),
        (lambda: op.ZeroHead(head=[]), "head= takes a number"),
        (lambda: op.ZeroHead(head="one"), "takes numbers, spans"),
        (lambda: op.ZeroHead(head="23.3"), "Head 23.3 is layer=23, head=3"),
        (lambda: op.ZeroHead("23.3"), "by name; got .* Head 23.3 is layer=23, head=3"),
        (lambda: op.ZeroHead(head=0, query="5..2"), "is empty"),
        (lambda: op.ZeroHead(head=0, site=3), "site= is a path"),
        (lambda: op.ZeroHead(head=0, step="t1"), "step= takes numbers"),
        (lambda: op.ZeroHead(head=0, step=-1), "the last one is not known in time"),
        (lambda: op.ZeroHead(head=0, step="0..2"), "counts forward passes from 1"),
        (op.ZeroSite, "needs site="),
        (lambda: op.ZeroSite(site="hidden", channel="5..2"), "is empty"),
        (lambda: op.ScaleHead(head=0, factor=float("nan")), "finite number"),
        (lambda: op.Temperature(temperature=0), "above 0"),
        (lambda: op.AddToScores(amount=float("inf")), "finite numbers or -inf"),
        (lambda: op.SetPattern(pattern=[[-1.0]]), "weights of 0 or more"),
        (lambda: op.SetPattern(pattern=[[1.0], [1.0, 2.0]]), "nested lists of numbers"),
        (lambda: op.SetMask(mask=torch.ones(2, 2)), "must be boolean"),
        (lambda: op.SetMask(mask="diagonal"), "'causal', 'all' or a boolean tensor"),
        (lambda: op.ShiftMask(by=0.5), "number of keys"),
        (lambda: op.CutEdge(layer=0), "needs query= or key= or both"),
        (lambda: op.CutTokens(query=3, key="t1"), "takes names of tokens"),
        (lambda: op.MeanHead(head=0, over="batch"), "over= 'batch'; known: all, positions, rows"),
        (lambda: op.SwapHeads(head=[0, 1], other=2), "two numbers"),
        (lambda: op.ShufflePattern(seed=-1), "seed must be an integer"),
        (lambda: op.FreezePattern(recording=3), "recording= is a recording"),
        (lambda: op.Patch(site="residual", recording=None), "recording= is a recording"),
        (lambda: op.Patch(recording={"x": torch.ones(1)}), "needs site="),
    ],
)
def test_an_edit_that_makes_no_sense_is_refused_when_it_is_written(wrong, message):
    with pytest.raises(WrongUsage, match=message):
        wrong()


def test_edit_takes_edits():
    model, one = random_model("decoder"), op.ZeroHead(head=0)
    for edited, edits, message in (
        (model, (), "at least one edit"),
        (model, "ZeroHead", "at least one edit"),
        (model, [one], "takes a model"),
        (tokens(), one, "takes a model, then edits; got a Tensor"),
        (random_model("single head", 0), op.ZeroHead(head=0, site="x"), "leave site= out"),
        (torch.nn.Linear(2, 2), one, "Linear has no sites"),
        (model, op.CutEdge(query="all", key=0), "no token is called 'all'"),
    ):
        refused(message, edited, edits, vocabulary=VOCABULARY)


def test_a_layer_of_several_attentions_must_be_told_apart():
    model = random_model("encoder-decoder")
    several = r"layer 0 has encoder\.layers\.0\.attention and .*cross_attention; choose with"
    refused(several, model, op.ZeroHead(layer=0, head=1))
    with pytest.raises(WrongUsage) as refusal:
        find_sites(model, suffix="", site=None, layer=0, who="Half")
    assert str(refusal.value).count("layers.0") == 1  # not every site's part, one after another
    counts = {"cross_attention": 1, "*": 3, "decoder.*": 2, "encoder.layers.0.attention": 1}
    for site, count in counts.items():
        with edit(model, op.ZeroHead(layer=0, site=site, head=1)) as certificate:
            model(tokens(), tokens(length=4))
        assert len(certificate.calls) == count


@pytest.mark.parametrize("word", ["all", "none", "3", "-"])
@pytest.mark.parametrize("side", ["query", "key"])
def test_a_word_that_is_an_option_elsewhere_is_a_token_among_positions(word, side):
    """`all` once meant every edge: an edit of one token changed the others."""
    model, given = random_model("decoder"), torch.tensor([[0, 1, 2, 3]])
    names = [*VOCABULARY[:3], word]
    cut = op.CutEdge(layer=0, **{"query": "t2", "key": "t1", side: word})
    if side == "key":
        given = torch.tensor([[0, 3, 2, 1]])
    again = op.edits_from_json(op.edits_to_json([cut]))
    site = "layers.0.attention.mask"
    with edit(model, *again, vocabulary=names), record(model, site) as recording:
        model(given)
    allowed = recording[site][0, 0]
    query, key = (3, 1) if side == "query" else (2, 1)
    expected = torch.ones(4, 4, dtype=torch.bool).tril()
    expected[query, key] = False
    assert torch.equal(allowed, expected)
    assert eval(repr(cut), vars(op)) == cut


def test_everything_is_said_by_leaving_it_out():
    assert op.CutEdge(query="t1", key=None) == op.CutEdge(query="t1")
    everything = dict.fromkeys(("layer", "head", "row", "step"), "all")
    assert op.ScaleScores(factor=2.0, **everything) == op.ScaleScores(factor=2.0)
    assert repr(op.ZeroHead(head="all")) == "ZeroHead(head='all')"
    with pytest.raises(WrongUsage, match="needs query= or key= or both"):
        op.CutEdge(query=None, key=None)


SIZES = {"d_model": 8, "num_heads": 4, "num_layers": 1, "d_ff": 4}
LONG = new_model("decoder", max_length=2048, **SIZES)


@torch.no_grad()
def test_pairs_that_do_not_fit_into_memory_are_refused_with_figures(monkeypatch):
    made = []
    monkeypatch.setattr(editor, "free_memory", lambda device: 10**8)
    monkeypatch.setattr(torch.Tensor, "softmax", lambda *args, **named: made.append(args))
    monkeypatch.setattr(heads, "as_tensor", lambda *args: made.append(args))
    words = r"layers\.0\.attention looks .*, 64\.0 MiB, .*, 640\.0 MiB; 95\.4 MiB are free\. Give"
    temperature, cut = op.Temperature(head=1, temperature=2.0), op.CutEdge(head=1, key=0)
    for wrong in (op.UniformPattern(layer=0), temperature, cut):
        with pytest.raises(CouldNotRun, match=words), edit(LONG.eval(), wrong, certify=False):
            LONG(torch.zeros(1, 2048, dtype=torch.int64))
    assert made == []


def test_what_needs_no_pairs_or_few_of_them_is_not_refused(monkeypatch):
    monkeypatch.setattr(editor, "free_memory", lambda device: 0)
    with torch.no_grad(), edit(LONG.eval(), op.ZeroHead(layer=0, head=1), certify=False):
        LONG(torch.zeros(1, 2048, dtype=torch.int64))
    with torch.no_grad(), edit(LONG.eval(), op.UniformPattern(layer=0)):
        LONG(tokens())


def test_scores_that_are_changed_by_nothing_have_landed_where_the_mask_lets_look():
    model = random_model("decoder")
    edits = op.AddToScores(query=2, key="1..5", amount=0.0), op.ScaleScores(factor=1.0, key=5)
    with edit(model, *edits) as certificate:
        model(tokens())
    assert certificate.holds


def test_scores_added_to_where_everything_is_blocked_by_padding_land_nowhere():
    model = random_model("decoder")
    run = lambda: model(tokens(), mask=padding_mask([5, 4, 3], 6))  # noqa: E731
    blocked = r"key=5.*changed nothing: the mask blocks"
    refused(blocked, model, op.AddToScores(key=5, amount=1.0), run=run)


@pytest.mark.parametrize("names", [VOCABULARY, "t{}".format], ids=["a list", "a function"])
def test_a_token_that_no_input_has_is_refused_before_any_pass(names, monkeypatch):
    model, ids = random_model("decoder"), tokens(high=9)
    ids[:, 0] = 1
    effect(model, ids, op.ZeroHead(head=0, query="t1"), vocabulary=names)
    generated = op.CutEdge(key=["t1", "t10"])  # t10 may be generated
    with pytest.raises(WrongUsage, match="was never among the keys"):
        effect(model, ids % 2, generated, num_tokens=1, vocabulary=names)
    monkeypatch.setattr(type(model), "forward", lambda *_: pytest.fail("a pass was made"))
    with pytest.raises(WrongUsage, match="the token 't10' is not in the input"):
        effect(model, ids, op.CutEdge(key=["t1", "t10"]), vocabulary=names)


def test_a_source_and_its_target_are_both_inputs():
    model = random_model("encoder-decoder")
    source = tokens(length=8) % 2
    target = tokens(length=3) % 2 + 2
    source[:, 0], target[:, 0] = 0, 2
    right = op.CutEdge(site="cross_attention", query="t2", key="t0")
    effect(model, (source, target), right, vocabulary=VOCABULARY)
    with pytest.raises(WrongUsage, match="'t4' is not in the input"):
        effect(model, (source, target), op.CutEdge(query="t4"), vocabulary=VOCABULARY)


@pytest.mark.parametrize(
    ("far", "message"),
    [
        (op.ZeroHead(head=0, query=6), r"query=6 is out of range; the longest input has 6 positio"),
        (op.CutEdge(query=[0, -7], key=0), r"query=-7 is out of range"),
        (op.CutEdge(key="3..6"), r"key='3\.\.6' is out of range"),
        (op.ZeroHead(head=0, row=3), r"row=3 is out of range; the batch has 3 rows, 0 to 2"),
    ],
)
def test_a_position_that_no_input_has_is_refused_before_any_pass(far, message, monkeypatch):
    model = random_model("decoder")
    effect(model, tokens(), op.ZeroHead(head=0, query=[5, -6], row="0..2"))
    monkeypatch.setattr(type(model), "forward", lambda *_: pytest.fail("a pass was made"))
    with pytest.raises(WrongUsage, match=message):
        effect(model, tokens(), far)


def test_a_generated_position_is_no_mistake():
    model, generated = random_model("decoder"), op.ZeroHead(head=0, query=6)
    assert effect(model, tokens(), generated, num_tokens=2).certificate.holds


def test_positions_of_a_model_that_adds_some_are_left_to_the_pass():
    class WithClassToken(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(9, 8)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

        def forward(self, ids):
            text = self.embed(ids)
            return self.layer(torch.cat((torch.zeros_like(text[:, :1]), text), 1))

    model = attach(WithClassToken().eval(), example=[tokens(high=9)])
    assert effect(model, tokens(high=9), op.ZeroHead(head=0, query=6)).certificate.holds
