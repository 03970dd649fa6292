"""Masks of foreign models: those that hold no numbers, rows that may attend to nothing."""

import math
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import attnlab
import attnlab.edits as op
from attnlab.errors import CouldNotRun
from attnlab.pretrained.attach import attach
from tests.pretrained.families import each_of
from tests.pretrained.trying import tried
from tests.pretrained.written import Attention

BATCH, LENGTH, WIDTH, HEADS = 3, 6, 16, 4
TOKENS = torch.randint(3, 50, (2, 7), generator=torch.Generator().manual_seed(0))
PADDING = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
PADDING[1] = True
PADDING[2, -2:] = True


def vectors():
    return torch.randn(BATCH, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1))


class Projected(Attention):
    """Attention of four heads with its own way to attend, and perhaps padding."""

    def __init__(self, attend):
        torch.manual_seed(0)
        super().__init__()
        self.attend = attend

    def scores(self, x):
        query, key, _ = self.parts(x)
        return query @ key.mT / math.sqrt(WIDTH // HEADS)

    def forward(self, x, padding=None):
        return self.out(self.attend(*self.parts(x), padding).transpose(1, 2).flatten(2))


BIASES = {
    ("lower right", 2): causal_lower_right(2, LENGTH),
    ("lower right", LENGTH): causal_lower_right(LENGTH, LENGTH),
    ("upper left", 2): causal_upper_left(2, LENGTH),
    ("upper left", LENGTH): causal_upper_left(LENGTH, LENGTH),
}


@pytest.mark.parametrize("is_flat", [False, True])
@pytest.mark.parametrize("named", BIASES)
def test_a_causal_bias_of_torch_is_the_triangle_that_it_stands_for(named, is_flat):
    corner, queries = named

    def attend(query, key, value, _):
        parts = [query[:, :, -queries:], key, value]
        if is_flat:
            parts = [part.flatten(0, 1) for part in parts]
        found = F.scaled_dot_product_attention(*parts, attn_mask=BIASES[named])
        return found.unflatten(0, (-1, HEADS)) if is_flat else found

    foreign, x = Projected(attend).eval(), vectors()
    model = attach(foreign, example=(x,))
    allowed = torch.ones(queries, LENGTH, dtype=torch.bool)
    allowed = allowed.tril(LENGTH - queries if corner == "lower right" else 0)
    scores = foreign.scores(x)[:, :, -queries:].masked_fill(~allowed, -math.inf)
    with torch.no_grad(), attnlab.record(model, "*") as recording:
        found = foreign(x)
    assert torch.equal(found, foreign(x))
    (site,) = (site for site in recording if site.endswith("weights"))
    assert (recording[site] - scores.softmax(-1)).abs().max() < 1e-6
    scores[:, 1, -1, 0] = -math.inf
    value = foreign.parts(x)[2]
    expected = foreign.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))
    at = site.rpartition(".")[0]
    with attnlab.edit(model, op.CutEdge(site=at, head=1, query=-1, key=0)) as certificate:
        edited = foreign(x)
    assert (edited - expected).abs().max() < 1e-6
    assert certificate.holds
    assert certificate.identity == 0.0


def added(padding, blocked):
    mask = torch.zeros(padding.shape).masked_fill(padding, blocked)
    return mask[:, None, None].expand(-1, -1, LENGTH, -1)


def fused(blocked):
    def attend(query, key, value, padding):
        mask = None
        if padding is not None:
            mask = ~padding[:, None, None].expand(-1, -1, LENGTH, -1)
            mask = mask if blocked is None else added(padding, blocked)
        return F.scaled_dot_product_attention(query, key, value, mask)

    return attend


def written(blocked):
    def attend(query, key, value, padding):
        scores = query @ key.mT / math.sqrt(WIDTH // HEADS)
        if padding is not None:
            scores = scores + added(padding, blocked)
        return scores.softmax(-1) @ value

    return attend


LOWEST = torch.finfo(torch.float32).min


@pytest.mark.parametrize(
    ("attend", "expected", "with_padding"),
    [
        (fused(None), 0.0, False),
        (fused(None), 0.0, True),  # already in the example
        (fused(-math.inf), 0.0, False),
        (fused(-math.inf), 0.0, True),
        (fused(LOWEST), 1 / LENGTH, False),
        (written(-math.inf), math.nan, False),
        (written(LOWEST), 1 / LENGTH, False),
    ],
)
def test_a_row_that_sees_nothing_is_recorded_as_the_model_has_it(attend, expected, with_padding):
    foreign, x = Projected(attend).eval(), vectors()
    model = attach(foreign, example=(x, PADDING) if with_padding else (x,))
    with torch.no_grad(), attnlab.record(model, "*") as recording:
        found = foreign(x, PADDING)
    torch.testing.assert_close(found, foreign(x, PADDING), rtol=0, atol=0, equal_nan=True)
    weights = recording["layers.0.attention.weights"]
    torch.testing.assert_close(weights[1], torch.full_like(weights[1], expected), equal_nan=True)
    scores = foreign.scores(x)[2, ..., :-2]
    torch.testing.assert_close(weights[2, ..., :-2], scores.softmax(-1))
    value = foreign.parts(x)[2]  # the recorded weights make the recorded heads
    heads = recording["layers.0.attention.heads"]
    torch.testing.assert_close(weights @ value, heads, equal_nan=True)


@pytest.mark.parametrize("needs_weights", [False, True])
def test_multi_head_attention_of_padding_alone_is_recorded_as_torch_computes_it(needs_weights):
    torch.manual_seed(0)
    foreign, x = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval(), vectors()
    model = attach(foreign, example=(x, x, x))
    options = {"need_weights": needs_weights, "average_attn_weights": False}
    with attnlab.record(model, "*") as recording:
        _, own = foreign(x, x, x, key_padding_mask=PADDING, **options)
    weights = recording["layers.0.attention.weights"]
    if needs_weights:
        assert own[1].isnan().all()
        torch.testing.assert_close(weights, own, rtol=0, atol=1e-6, equal_nan=True)
    else:
        assert torch.equal(weights[1], torch.zeros_like(weights[1]))
        assert torch.equal(recording["layers.0.attention.heads"][1], torch.zeros(HEADS, LENGTH, 4))
    with attnlab.edit(model, op.Temperature(temperature=1.0)) as certificate:
        output, _ = foreign(x, x, x, key_padding_mask=PADDING)
    assert certificate.identity == 0.0
    assert output[1].isnan().all()


@contextmanager
def softmax_with(change):
    """Change the scores of every softmax by hand."""
    real = F.softmax
    F.softmax = lambda scores, *args, **options: real(change(scores), *args, **options)
    try:
        yield
    finally:
        F.softmax = real


@each_of(
    ["bloom", "mpt", "gptj", "xglm", "gpt_neo", "deberta"], always=["bloom", "gpt_neo", "deberta"]
)
def test_a_cut_edge_gives_the_logits_of_minus_infinity_in_the_model_s_own_softmax(name):
    model = tried(name).model
    foreign = model.foreign
    assert {each.backend for each in model.backends} == {"softmax"}

    def without_edge(scores):
        cut = scores.clone()
        cut[..., 5, 2] = -math.inf
        return cut

    with torch.no_grad():
        plain = foreign(TOKENS).logits
        with softmax_with(without_edge):
            expected = foreign(TOKENS).logits
        with (
            attnlab.edit(model, op.CutEdge(query=5, key=2)) as certificate,
            attnlab.record(model, "*") as recording,
        ):
            found = foreign(TOKENS).logits
    changes = float((expected - plain).abs().max())
    assert changes > 1e-4
    assert (found - expected).abs().max() <= 1e-6 * max(changes, 1.0)
    assert certificate.holds
    assert certificate.identity == 0.0
    for site in recording:
        if site.endswith("weights"):
            assert float(recording[site][..., 5, 2].abs().max()) == 0.0
            assert bool(recording.blocked(site)[5, 2])


def test_one_head_of_one_input_of_a_written_attention_is_cut():
    foreign, x = Projected(written(-math.inf)).eval(), vectors()
    model = attach(foreign, example=(x,))
    scores = foreign.scores(x)
    scores[2, 1, 3, 4] = -math.inf
    edit = op.CutEdge(head=1, row=2, query=3, key=4)
    with attnlab.edit(model, edit) as certificate, attnlab.record(model, "*") as recording:
        foreign(x)
    torch.testing.assert_close(recording["layers.0.attention.weights"], scores.softmax(-1))
    assert certificate.holds
    causal = foreign.scores(x).masked_fill(torch.ones(6, 6).triu(1).bool(), -math.inf)
    with attnlab.edit(model, op.SetMask(mask="causal")), attnlab.record(model, "*") as recording:
        foreign(x)
    torch.testing.assert_close(recording["layers.0.attention.weights"], causal.softmax(-1))
    assert torch.equal(
        recording["layers.0.attention.mask"].expand(BATCH, 1, 6, 6)[0, 0],
        torch.ones(6, 6).tril().bool(),
    )


def test_an_edit_that_cuts_a_whole_row_leaves_dead_rows_of_the_model_alone():
    foreign, x = Projected(written(-math.inf)).eval(), vectors()
    model = attach(foreign, example=(x,))
    with (
        attnlab.edit(model, op.CutEdge(row=2, query=0)) as certificate,
        attnlab.record(model, "*weights") as recording,
    ):
        foreign(x, PADDING)
    weights = recording["layers.0.attention.weights"]
    assert torch.equal(weights[2, :, 0], torch.zeros(HEADS, LENGTH))
    assert weights[1].isnan().all()
    assert not weights[0].isnan().any()
    assert not weights[2].isnan().any()
    assert certificate.off_target == []


@pytest.mark.parametrize("edit", [op.RelaxMask(), op.ShiftMask(by=1), op.SetMask(mask="all")])
def test_what_a_model_has_overwritten_is_not_opened_and_the_refusal_says_so(edit):
    model = tried("bloom").model
    with (
        torch.no_grad(),
        pytest.raises(CouldNotRun, match="has overwritten their scores before its softmax"),
        attnlab.edit(model, edit),
    ):
        model(TOKENS)
