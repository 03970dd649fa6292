"""An encoder block with the normalization after each sum."""

# %% [course]

import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.attention_mistakes import dropout_mistakes
from attnlab_course.material.tensors import sample_state, parameters_check

# %% [markdown]
# # An encoder block
#
# A transformer is a stack of blocks. In each of them the positions first look at one another, then
# each thinks by itself. What a part finds is added to what came in, so nothing is lost, and the sum
# is normalized.
#
# **Write** the class `EncoderBlock(d_model, num_heads, d_ff, dropout=0.1)` from the parts that are
# given, `nn.LayerNorm` and `nn.Dropout`. Its call takes `x` and `mask=None` and returns the new x
# and the weights of attention.
#
# | | shape |
# | --- | --- |
# | `x` | (batch, length, d_model) |
# | `mask` | (length, length) or (batch, 1, length), boolean; **True = may attend** |
# | new x | (batch, length, d_model) |
# | weights | (batch, num_heads, length, length), as `attention` returns them |
#
# The order is that of the first transformer, with the norm after each sum:
#
# * a = norm1(x + dropout(attention of x))
# * new x = norm2(a + dropout(feed-forward of a))
#
# A mask of shape (length, length) holds for all texts. One of shape (batch, 1, length) is a padding
# mask: it says of each text which keys are real, the same for all queries. Attention takes both.
#
# Name the parts `attention`, `feed_forward`, `norm1` and `norm2`; the checks put their parameters
# in by these names. The two norms are two modules, and keep PyTorch's eps. `FeedForward` has its
# own dropout inside, with the same chance. In training with a chance of 1 the block gives
# norm2(norm1(x)).

# %%
import torch
from torch import nn


class SelfAttention(nn.Module):
    """Attention with several heads. It is given; leave it as it is."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.project_in = nn.Linear(d_model, 3 * d_model)
        self.project_out = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        """(batch, length, d_model) -> the same, and weights (batch, head, length, length)."""
        shape = (*x.shape[:2], 3, self.num_heads, -1)
        q, k, v = self.project_in(x).view(shape).permute(2, 0, 3, 1, 4)
        fit = torch.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
        if mask is not None:
            allowed = mask if mask.dim() == 2 else mask.unsqueeze(1)
            fit = fit.masked_fill(allowed.logical_not(), float("-inf"))
        weights = fit.softmax(-1)
        return self.project_out((weights @ v).transpose(1, 2).flatten(2)), weights


class FeedForward(nn.Sequential):
    """Two layers with ReLU and dropout between them. It is given; leave it as it is."""

    def __init__(self, d_model, d_ff, dropout):
        wide, back = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        super().__init__(wide, nn.ReLU(), nn.Dropout(dropout), back)


class EncoderBlock(nn.Module):
    """Attention and feed-forward, each added to its input and normalized."""

    def __init__(self, d_model, num_heads, d_ff, dropout=0.1):
        super().__init__()
        # >>> solution
        self.attention = SelfAttention(d_model, num_heads)
        self.feed_forward = FeedForward(d_model, d_ff, dropout)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        # <<< solution

    def forward(self, x, mask=None):
        """Return the new x, and the weights of attention."""
        # >>> solution
        mixed, weights = self.attention(x, mask)
        x = self.norm1(x + self.dropout(mixed))
        thought = self.feed_forward(x)
        x = self.norm2(x + self.dropout(thought))
        return x, weights
        # <<< solution


# %% [hints]
# 1. What is at a position if a part of the block finds nothing and returns 0?
# 2. Two times the same three steps: a part, a sum with its own input, a norm.
# 3. x → attention → dropout → + x → norm1 = a; a → feed-forward → dropout → + a → norm2.
# 4. Call attention with x and the mask and keep both answers. Overwrite x with the first
#    normalized sum before feed-forward reads it.


# %% [mistakes]
# ## norm before: The norms come before the parts, as in newer models. Here they come after each
# sum.
# -         mixed, weights = self.attention(x, mask)
# -         x = self.norm1(x + self.dropout(mixed))
# -         thought = self.feed_forward(x)
# -         x = self.norm2(x + self.dropout(thought))
# +         mixed, weights = self.attention(self.norm1(x), mask)
# +         x = x + self.dropout(mixed)
# +         x = x + self.dropout(self.feed_forward(self.norm2(x)))
# ## first sum missing: x is not added to what attention found, so what stood there is lost.
# - x = self.norm1(x + self.dropout(mixed))
# + x = self.norm1(self.dropout(mixed))
# ## mask lost: The mask is not handed on to attention.
# - self.attention(x, mask)
# + self.attention(x)
# ## inverted mask: The mask is handed on the wrong way round: True means that a position may be
# attended to.
# - self.attention(x, mask)
# + self.attention(x, None if mask is None else ~mask)


# %% [course]
def case(random, shape, heads, hidden, mask=None, dropout=0.0, show="both", **more):
    """Sample x and all parameters; `show` says which of the two answers is compared."""
    x, width = random.normal(size=shape), shape[-1]
    return Case(
        "EncoderBlock",
        tuple(T.from_numpy(array) for array in (x, mask) if array is not None),
        build=((width, heads, hidden, dropout), {}),
        state=sample_state(random, EncoderBlock(width, heads, hidden), 0.7),
        only={"output": (0,), "weights": (1,), "both": ()}[show],
        **more,
    )


def values(random):
    """Sizes that all differ; only the new x is compared."""
    yield case(random, (1, 2, 4), 1, 3, show="output")
    yield case(random, (2, 5, 6), 3, 7, show="output")


def weights(random):
    """The second part of the answer."""
    yield case(random, (2, 3, 4), 2, 5, show="weights")


def one_position(random):
    """A text of one position."""
    yield case(random, (1, 1, 4), 2, 3, words="with one position")


def masked(random):
    """Masks for all and for each."""
    mask = random.random((5, 5)) < 0.6
    mask |= np.eye(5, dtype=bool)
    mask[0, 1] = False
    yield case(random, (2, 5, 4), 2, 3, mask, show="output", words="with a mask for all texts")
    mask = np.ones((2, 1, 5), bool)
    mask[0, :, 3:] = False
    yield case(random, (2, 5, 4), 2, 3, mask, show="output", words="with a mask for each text")


def dropped(random):
    """Training in which all is dropped, and in which nothing is."""
    for chance in (1.0, 0.0):
        more = {"training": True, "words": f"in training, with dropout {chance:g}"}
        yield case(random, (2, 3, 4), 2, 5, dropout=chance, show="output", **more)


def evaluation(random):
    """Evaluation with a high chance of dropping."""
    yield case(random, (2, 3, 4), 2, 5, dropout=0.9, show="output", words="in evaluation")


EXERCISE = Exercise(
    "An encoder block",
    level=3,
    minutes=25,
    needs=("multi_head", "layer_norm", "feed_forward"),
    checks=(
        Check("values", "gives the right new x", values, points=3),
        parameters_check("has its parts under the names above", "EncoderBlock", (6, 3, 5)),
        Check("weights", "returns the weights of attention", weights),
        Check("mask", "hands the mask to attention", masked),
        Check("dropout", "drops what both parts found, and nothing else", dropped, 2),
        Check("evaluation", "drops nothing in evaluation", evaluation),
        Check("one position", "works with a single position", one_position),
    ),
    mistakes=(dropout_mistakes("mixed")[0],),
    banned=("TransformerEncoderLayer", "TransformerEncoder", "MultiheadAttention"),
    results=("new x", "weights"),
)
