"""The wording of errors: what was expected, what came, what to do."""

import pytest
import torch

from attnlab.errors import AttnlabError, WrongUsage
from attnlab.parts.attend import attend
from attnlab.parts.blocks import Block
from attnlab.parts.feed_forward import FeedForward
from attnlab.parts.heads import multi_head_attention, split_heads
from attnlab.parts.norms import make_norm
from attnlab.parts.positions import ConcatenatedPositions, LearnedPositions, sinusoidal_positions
from attnlab.parts.projections import FactorisedProjection, make_projection

from .builders import make_attention, make_block


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype)


def attend_with(mask):
    return attend(zeros(2, 3, 5, 7), zeros(2, 3, 11, 7), zeros(2, 3, 11, 13), mask)


CASES = {
    "too few axes": (
        lambda: attend(zeros(7), zeros(5, 7), zeros(5, 7)),
        "query needs at least two axes, (..., length, width); got shape (7). "
        "Add a length axis with query.unsqueeze(-2).",
    ),
    "integers": (
        lambda: attend(zeros(3, 7), zeros(5, 7, dtype=torch.int64), zeros(5, 7)),
        "key must hold floating-point numbers; got torch.int64. Convert it with key.float().",
    ),
    "widths": (
        lambda: attend(zeros(3, 7), zeros(5, 11), zeros(5, 2)),
        "query and key must have the same width; got 7 and 11. Both are the d_k of the "
        "formula softmax(QKᵀ/√d_k) V.",
    ),
    "no width": (
        lambda: attend(zeros(3, 0), zeros(5, 0), zeros(5, 2)),
        "query and key must be at least 1 wide; got width 0, for which no scores exist.",
    ),
    "lengths": (
        lambda: attend(zeros(3, 7), zeros(5, 7), zeros(11, 2)),
        "key and value must have the same length; got 5 keys and 11 values. Each key needs "
        "its own value.",
    ),
    "precisions": (
        lambda: attend(zeros(3, 7), zeros(5, 7, dtype=torch.float64), zeros(5, 2)),
        "query, key and value must share one dtype; got torch.float32, torch.float64 and "
        "torch.float32. Convert them to one of these first.",
    ),
    "leading axes": (
        lambda: attend(zeros(2, 3, 7), zeros(5, 5, 7), zeros(5, 5, 2)),
        "the leading axes must broadcast together; got query (2), key (5), value (5).",
    ),
    "mask does not broadcast": (
        lambda: attend_with(torch.ones(2, 11).bool()),
        "mask must broadcast to the scores (..., query, key) = (2, 3, 5, 11); got (2, 11). "
        "A padding mask per batch needs shape (batch, 1, 1, key).",
    ),
    "mask with more axes than scores": (
        lambda: attend_with(torch.ones(1, 1, 1, 1, 11).bool()),
        "mask must broadcast to the scores (..., query, key) = (2, 3, 5, 11); got (1, 1, 1, 1, "
        "11). A padding mask per batch needs shape (batch, 1, 1, key).",
    ),
    "integer mask": (
        lambda: attend_with(torch.ones(5, 11, dtype=torch.int64)),
        "a mask is boolean (True = may attend) or float (added to the scores); got torch.int64. "
        "If its ones mean 'may attend', convert it with mask.bool().",
    ),
    "unknown word for a mask": (
        lambda: attend_with("casual"),
        "a mask is a tensor, None or the word \"causal\"; got 'casual'.",
    ),
    "unknown word for a mask of the fused kernel": (
        lambda: attend(zeros(5, 7), zeros(5, 7), zeros(5, 2), "casual", need_weights=False),
        "a mask is a tensor, None or the word \"causal\"; got 'casual'.",
    ),
    "integer mask of the fused kernel": (
        lambda: attend(
            zeros(1, 7),
            zeros(5, 7),
            zeros(5, 2),
            torch.ones(5, dtype=torch.uint8),
            need_weights=False,
        ),
        "a mask is boolean (True = may attend) or float (added to the scores); got torch.uint8. "
        "If its ones mean 'may attend', convert it with mask.bool().",
    ),
    "dropout": (
        lambda: attend(zeros(3, 7), zeros(5, 7), zeros(5, 2), dropout=1.0),
        "dropout is a probability from 0 to below 1; got 1.0.",
    ),
    "split": (
        lambda: split_heads(zeros(3, 7), 2),
        "a width of 7 cannot be split into 2 equal heads.",
    ),
    "d_model": (
        lambda: multi_head_attention(13, 5),
        "d_model must be a multiple of num_heads; got 13 and 5.",
    ),
    "shared heads": (
        lambda: multi_head_attention(28, 4, num_kv_heads=3),
        "num_heads must be a multiple of num_kv_heads; got 4 and 3.",
    ),
    "no heads": (
        lambda: multi_head_attention(8, 0),
        "num_heads must be an integer of at least 1; got 0.",
    ),
    "heads as a truth value": (
        lambda: multi_head_attention(8, True),
        "num_heads must be an integer of at least 1; got True.",
    ),
    "no batch": (
        lambda: make_attention()(zeros(3, 28)),
        "x must have shape (batch, length, d_model); got (3, 28).",
    ),
    "projections": (
        lambda: make_projection("sparse", 8, 2, 4),
        "projections must be one of dense, gated, strict; got 'sparse'.",
    ),
    "no rank": (
        lambda: make_projection("gated", 8, 2, 4),
        "gated projections need a rank; got none.",
    ),
    "rank": (
        lambda: FactorisedProjection(8, 2, 4, rank=0),
        "rank must be an integer of at least 1; got 0.",
    ),
    "temperature": (
        lambda: FactorisedProjection(8, 2, 4, rank=3, temperature=0.0),
        "temperature must be above 0; got 0.0.",
    ),
    "norm": (lambda: make_norm("batch", 8), "norm must be one of layer, rms; got 'batch'."),
    "activation": (
        lambda: FeedForward(8, 16, activation="tanh"),
        "activation must be one of relu, gelu, swiglu; got 'tanh'.",
    ),
    "norm place": (
        lambda: Block(make_attention(), FeedForward(28, 31), d_model=28, norm_place="sandwich"),
        "norm_place must be one of pre, post, none; got 'sandwich'.",
    ),
    "no memory": (
        lambda: make_block(is_decoder=True)(zeros(1, 3, 28, dtype=torch.float64)),
        "a block with cross-attention needs a memory to look at; got none.",
    ),
    "learned positions overrun": (
        lambda: LearnedPositions(5, 8)(zeros(1, 3, 8), offset=3),
        "this model has learned 5 positions; got an input that reaches position 6. "
        "Shorten the input, or build the model with a larger max_length.",
    ),
    "concatenated positions overrun": (
        lambda: ConcatenatedPositions(5, 2)(zeros(1, 7, 8)),
        "this model has learned 5 positions; got an input that reaches position 7. "
        "Shorten the input, or build the model with a larger max_length.",
    ),
    "fixed table": (
        lambda: ConcatenatedPositions(5, 2, fixed=torch.eye(3)),
        "the fixed table must have shape (5, 2); got (3, 3).",
    ),
    "width of sinusoids": (
        lambda: sinusoidal_positions(3, 0),
        "width must be an integer of at least 1; got 0.",
    ),
}


@pytest.mark.parametrize(("do", "message"), CASES.values(), ids=CASES)
def test_an_error_says_what_was_expected_what_came_and_what_to_do(do, message):
    with pytest.raises(WrongUsage) as caught:
        do()
    assert str(caught.value) == message


def test_a_wrong_usage_is_a_value_error_and_one_of_ours():
    assert issubclass(WrongUsage, AttnlabError)
    assert issubclass(WrongUsage, ValueError)
