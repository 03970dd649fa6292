"""Errors: what was expected, what came, what to do."""

import re

import pytest
import torch

from attnlab.errors import AttnlabError, WrongUsage
from attnlab.parts.attend import attend
from attnlab.parts.blocks import Block
from attnlab.parts.feed_forward import FeedForward
from attnlab.parts.heads import multi_head_attention, split_heads
from attnlab.parts.norms import make_norm
from attnlab.parts.positions import ConcatenatedPositions, LearnedPositions, sinusoidal_positions
from attnlab.parts.projections import FactorizedProjection, make_projection
from tests.random_models import make_attention, make_block


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype)


def masked(mask, **options):
    return attend(zeros(2, 3, 5, 7), zeros(2, 3, 11, 7), zeros(2, 3, 11, 13), mask, **options)


LONG = torch.int64
CASES = [
    (lambda: attend(zeros(7), zeros(5, 7), zeros(5, 7)), "got shape (7). Add a length axis"),
    (lambda: attend(zeros(3, 7), zeros(5, 7, dtype=LONG), zeros(5, 7)), "key.float()"),
    (lambda: attend(zeros(3, 7), zeros(5, 11), zeros(5, 2)), "the same width; got 7 and 11"),
    (lambda: attend(zeros(3, 0), zeros(5, 0), zeros(5, 2)), "got width 0"),
    (lambda: attend(zeros(3, 7), zeros(5, 7), zeros(11, 2)), "got 5 keys and 11 values"),
    (lambda: attend(zeros(3, 7), zeros(5, 7).double(), zeros(5, 2)), "must share one dtype"),
    (lambda: attend(zeros(2, 3, 7), zeros(5, 5, 7), zeros(5, 5, 2)), "got query (2), key (5)"),
    (lambda: attend(zeros(3, 7), zeros(5, 7), zeros(5, 2), dropout=1.0), "got 1.0"),
    (lambda: masked(torch.ones(2, 11).bool()), "= (2, 3, 5, 11); got (2, 11)"),
    (lambda: masked(torch.ones(1, 1, 1, 1, 11).bool()), "got (1, 1, 1, 1, 11)"),
    (lambda: masked(torch.ones(5, 11, dtype=LONG)), "got torch.int64"),
    (lambda: masked(torch.ones(11, dtype=LONG), need_weights=False), "mask.bool()"),
    (lambda: masked("casual"), "got 'casual'"),
    (lambda: masked("casual", need_weights=False), "got 'casual'"),
    (lambda: split_heads(zeros(3, 7), 2), "a width of 7 cannot be split into 2"),
    (lambda: multi_head_attention(13, 5), "a multiple of num_heads; got 13 and 5"),
    (lambda: multi_head_attention(28, 4, num_kv_heads=3), "num_kv_heads; got 4 and 3"),
    (lambda: multi_head_attention(8, 0), "num_heads must be an integer of at least 1; got 0"),
    (lambda: multi_head_attention(8, True), "got True"),
    (lambda: make_attention()(zeros(3, 28)), "(batch, length, d_model); got (3, 28)"),
    (lambda: make_projection("sparse", 8, 2, 4), "dense, gated, strict; got 'sparse'"),
    (lambda: make_projection("gated", 8, 2, 4), "need a rank"),
    (lambda: FactorizedProjection(8, 2, 4, rank=0), "rank must be an integer of at least 1"),
    (lambda: FactorizedProjection(8, 2, 4, rank=3, temperature=0.0), "above 0; got 0.0"),
    (lambda: make_norm("batch", 8), "layer, rms; got 'batch'"),
    (lambda: FeedForward(8, 16, activation="tanh"), "relu, gelu, swiglu; got 'tanh'"),
    (
        lambda: Block(make_attention(), FeedForward(28, 31), d_model=28, norm_place="sandwich"),
        "pre, post, none; got 'sandwich'",
    ),
    (lambda: make_block(is_decoder=True)(zeros(1, 3, 28).double()), "needs a memory"),
    (lambda: LearnedPositions(5, 8)(zeros(1, 3, 8), offset=3), "learned 5 positions"),
    (lambda: ConcatenatedPositions(5, 2)(zeros(1, 7, 8)), "reaches position 7"),
    (lambda: ConcatenatedPositions(5, 2, fixed=torch.eye(3)), "shape (5, 2); got (3, 3)"),
    (lambda: sinusoidal_positions(3, 0), "width must be an integer of at least 1; got 0"),
]


@pytest.mark.parametrize(("call", "fact"), CASES, ids=[fact for _, fact in CASES])
def test_an_error_says_what_was_expected_and_what_came(call, fact):
    with pytest.raises(WrongUsage, match=re.escape(fact)):
        call()


def test_a_wrong_usage_is_a_value_error_and_one_of_ours():
    assert issubclass(WrongUsage, AttnlabError)
    assert issubclass(WrongUsage, ValueError)
