"""A decoder layer: causal self-attention, cross-attention, feed-forward, add & norm after each."""

# %% [course]
from dataclasses import replace

import numpy as np
import torch as T

from attnlab_course.compare import difference
from attnlab_course.exercise import Case, Check, Exercise, Failure
from attnlab_course.material.tensors import built_module, parameters_check, sample_state

# %% [markdown]
# # A decoder layer
#
# A decoder writes a text token by token while it looks at another one. Its layer has three parts:
# the target looks back at itself, then it looks into the source, then each position thinks by
# itself. What each part finds is added to what was there, and the sum is normalized. While it is
# trained, all positions are computed at once, so a token must be kept from seeing those behind it.
#
# **Write** the class `DecoderLayer`. The parts `Attention` and `FeedForward` are given. These names
# are needed, so that weights can be loaded:
#
# | name | what it is |
# | --- | --- |
# | `self_attention`, `cross_attention` | an `Attention` each |
# | `feed_forward` | a `FeedForward` |
# | `norm1`, `norm2`, `norm3` | an `nn.LayerNorm` each, in the order of the three parts |
#
# Called as `layer(target, source, source_mask=None)` it returns three things:
#
# | | shape |
# | --- | --- |
# | `target` | (batch, queries, width) |
# | `source` | (batch, keys, width) |
# | `source_mask` | (batch, keys), boolean; **True = may attend**; None: all |
# | output | (batch, queries, width) |
# | weights of the self-attention | (batch, head, queries, queries) |
# | weights of the cross-attention | (batch, head, queries, keys) |
#
# * Position n of the target sees the positions 0 to n of the target, itself included, and every
#   source token that the mask allows. The mask's row of a text holds for all heads and queries.
# * The order is self-attention, cross-attention, feed-forward. After each: dropout, add to what
#   went in, norm (add & norm, after the part and not before it).
# * `dropout` is the chance of an `nn.Dropout` on what each part found, before it is added; in
#   evaluation mode nothing is dropped.

# %%
import torch
from torch import nn


# %%
# Given: leave these two classes as they are.
class Attention(nn.Module):
    """Let tokens attend to tokens, with PyTorch's multi-head attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.inner = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, asking, read, mask=None):
        """Return the output (batch, queries, width) and the weights (batch, head, queries, keys).

        `mask` is (queries, keys) or (batch, queries, keys), True = may attend. It may have size 1
        in place of batch or queries.
        """
        hidden = None
        if mask is not None:
            full = mask.expand(len(asking), asking.shape[1], read.shape[1])
            hidden = ~full.repeat_interleave(self.heads, dim=0)
        return self.inner(asking, read, read, attn_mask=hidden, average_attn_weights=False)


class FeedForward(nn.Module):
    """Let each position think by itself."""

    def __init__(self, width, hidden):
        super().__init__()
        self.wide = nn.Linear(width, hidden)
        self.narrow = nn.Linear(hidden, width)

    def forward(self, x):
        """Return (batch, length, width) for (batch, length, width)."""
        return self.narrow(torch.relu(self.wide(x)))


# %%
class DecoderLayer(nn.Module):
    """Look back, look into the source, think."""

    def __init__(self, width, heads, hidden, dropout=0.1):
        super().__init__()
        # >>> solution
        self.self_attention = Attention(width, heads)
        self.cross_attention = Attention(width, heads)
        self.feed_forward = FeedForward(width, hidden)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.norm3 = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        # <<< solution

    def forward(self, target, source, source_mask=None):
        """Return the output, the weights of the self-attention and of the cross-attention."""
        # >>> solution
        length = target.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        change, self_weights = self.self_attention(target, target, causal)
        x = self.norm1(target + self.dropout(change))
        may = None if source_mask is None else source_mask[:, None, :]
        change, cross_weights = self.cross_attention(x, source, may)
        x = self.norm2(x + self.dropout(change))
        x = self.norm3(x + self.dropout(self.feed_forward(x)))
        return x, self_weights, cross_weights
        # <<< solution


# %% [hints]
# 1. Three times the same pattern: which part, which input, which norm?
# 2. A causal mask is a square of the target's length, with True where the key is not behind the
#    query. `Attention` takes it as it is.
# 3. The source's mask (batch, keys) holds for every query: give it an axis of size 1 in the
#    middle.
# 4. Self-attention of the target with the causal mask, add, norm1; cross-attention of that
#    result with the source and its mask, add, norm2; feed-forward of that, add, norm3.


# %% [mistakes]
# ## no causal mask: The self-attention has no mask, so each token sees those behind it: while it is
# trained, the model can copy its answer.
# - self.self_attention(target, target, causal)
# + self.self_attention(target, target)
# ## sees the future only: The mask is the wrong way round: each token sees those behind it and not
# those before it.
# - .tril()
# + .triu()
# or
# + .tril().logical_not()
# ## source mask ignored: The cross-attention does not get the mask, so PAD of the source is read.
# - self.cross_attention(x, source, may)
# + self.cross_attention(x, source)
# ## inverted source mask: The mask of the source is read the wrong way round: True means that a
# token may be attended to.
# - source_mask[:, None, :]
# + ~source_mask[:, None, :]
# ## norm before the part: The last norm comes before the feed-forward network (pre-norm). Here it
# comes after the sum.
# - x = self.norm3(x + self.dropout(self.feed_forward(x)))
# + x = x + self.dropout(self.feed_forward(self.norm3(x)))
# ## weights in the wrong order: The parts of the answer are in the wrong order: first the output,
# then the weights of the self-attention, then those of the cross-attention.
# - return x, self_weights, cross_weights
# + return x, cross_weights, self_weights
# or
# + return self_weights, cross_weights, x
# or
# + return cross_weights, self_weights, x
# or
# + return self_weights, x, cross_weights


# %% [course]
def case(random, batch, queries, keys, mask=None, wanted=(0, 1, 2), dropout=0.1, **more):
    """Sample a layer, a target and a source."""
    width, heads, hidden = 6, 2, 5
    target, source = (random.normal(size=(batch, n, width)) for n in (queries, keys))
    args = [target, source] if mask is None else [target, source, np.array(mask)]
    return Case(
        "DecoderLayer",
        tuple(map(T.from_numpy, args)),
        build=((width, heads, hidden), {"dropout": dropout}),
        state=sample_state(random, DecoderLayer(width, heads, hidden)),
        only=wanted,
        **more,
    )


def output(random):
    """A target of one token, where nothing can be seen too early."""
    yield case(random, 1, 1, 2, wanted=(0,), words="with a target of one token")
    yield case(random, 3, 1, 4, wanted=(0,), words="with targets of one token")


def causal(random):
    """Longer targets: the weights of the self-attention."""
    yield case(random, 2, 4, 3, wanted=(1,), words="looking at the weights of the self-attention")


def source_mask(random):
    """Padding in the source: the weights of the cross-attention of the first token."""
    mask = [[True, True, False], [True, False, False]]
    words = "looking at the weights of the cross-attention"
    yield case(random, 2, 1, 3, mask, wanted=(2,), words=words)


def last_token(random):
    """The last of several tokens, which sees all others with or without a causal mask."""
    made = case(random, 2, 3, 5)
    right = built_module(DecoderLayer, made)(*made.args)[0][:, -1].detach()

    def judge(answer):
        if not isinstance(answer, list) or len(answer) != 3:
            return Failure("expected three results: the output and the weights of two attentions")
        if not isinstance(answer[0], T.Tensor) or answer[0].ndim != 3:
            return Failure("expected the output (batch, queries, width)")
        return difference(right, answer[0][:, -1], 1e-6, "the last token's output")

    words = "looking at the last of three tokens"
    yield replace(made, judge=judge, words=words)


def weights(random):
    """The weights, in their order."""
    yield case(random, 1, 1, 2, wanted=(1, 2), words="looking at the weights of both attentions")


def no_dropout(random):
    """Training mode with a dropout of 0."""
    words = "in training mode with dropout=0.0"
    yield case(random, 1, 1, 2, wanted=(0,), dropout=0.0, training=True, words=words)


EXERCISE = Exercise(
    "A decoder layer",
    level=4,
    minutes=30,
    needs=("cross_attention", "encoder_block", "causal_mask"),
    checks=(
        Check("output", "puts the three parts one after the other", output, points=3),
        Check("causal", "lets no token see those behind it", causal, points=2),
        Check("source mask", "keeps the padding of the source out", source_mask, points=2),
        Check("last token", "is right for the last of several tokens", last_token),
        Check("weights", "returns the weights of both attentions in order", weights),
        parameters_check("has its parts under the names above", "DecoderLayer", (6, 2, 5)),
        Check("dropout", "passes `dropout` on", no_dropout),
    ),
    banned=("TransformerDecoderLayer",),
    results=("output", "self-attention weights", "cross-attention weights"),
)
