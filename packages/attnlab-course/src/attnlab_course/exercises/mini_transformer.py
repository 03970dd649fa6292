"""A classifier of texts, put together from an embedding and blocks that are given."""

# %% [course]
from dataclasses import replace
from functools import partial

import numpy as np
import torch as T

from attnlab_course.compare import difference
from attnlab_course.exercise import Case, Check, Exercise, Failure
from attnlab_course.material.tensors import (
    built_module,
    sample_state,
    parameters_check,
    shape_failure,
)

# %% [markdown]
# # A mini transformer
#
# Now the parts become a model that gives a verdict on a text: embed the tokens, let blocks mix
# them, normalize, take the mean over the text and turn it into one number for each class. The
# embedding and the block are given below, so only the model is left to write. Watch the padding:
# texts of a batch are filled up with PAD (id 0) to the same length, and PAD is no part of a text.
#
# **Write** the class `MiniTransformer`. Its parts have these names, so that weights can be loaded:
#
# | name | what it is |
# | --- | --- |
# | `embedding` | an `Embedding` |
# | `blocks` | an `nn.ModuleList` of different `Block` objects, one a layer; there may be none |
# | `norm` | an `nn.LayerNorm` over the width, after the last block |
# | `output` | an `nn.Linear` from the width to the classes |
#
# and no other part has parameters. Called with token ids, it returns the logits and the weights:
#
# | | shape |
# | --- | --- |
# | `ids` | (batch, length), integers; each text begins with real tokens, then PAD |
# | logits | (batch, classes), as `output` gives them |
# | weights | a list, for each layer (batch, head, query, key), as its block returns them |
#
# * The mask comes from the ids: every token that is not PAD is real, the unknown word (id 1) too.
#   **True = may attend.** Each block gets it as it is, of shape (batch, length).
# * The order is embedding, blocks one after the other, `norm`, mean, `output`.
# * The mean is over the real tokens of each text, the first one included. PAD is not averaged in:
#   more PAD behind a text changes nothing.
# * `dropout` goes to the embedding and to each block. There is no other dropout. In training with a
#   chance of 0 nothing is dropped; with a chance of 1 all that the parts found is.

# %%
import torch
from torch import nn

PAD, UNK = 0, 1


# %%
# Given: leave these two classes as they are.
class Embedding(nn.Module):
    """Add what a token is to where it stands."""

    def __init__(self, vocab_size, width, longest, dropout):
        super().__init__()
        self.token = nn.Embedding(vocab_size, width)
        self.position = nn.Embedding(longest, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids):
        """Return (batch, length, width) for ids (batch, length)."""
        positions = self.position(torch.arange(ids.shape[1]))
        return self.dropout(self.token(ids) + positions)


class Block(nn.Module):
    """Attention and a feed-forward network, with add & norm after each."""

    def __init__(self, width, heads, hidden, dropout):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm1 = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width)
        )
        self.norm2 = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask=None):
        """Return (batch, length, width) and the weights (batch, head, query, key).

        `mask` is (batch, length), True = may attend; None where all may.
        """
        hidden_keys = None if mask is None else ~mask
        mixed, weights = self.attention(
            x, x, x, key_padding_mask=hidden_keys, average_attn_weights=False
        )
        x = self.norm1(x + self.dropout(mixed))
        return self.norm2(x + self.dropout(self.feed_forward(x))), weights


# %%
class MiniTransformer(nn.Module):
    """Classify texts of token ids."""

    def __init__(self, vocab_size, width, heads, layers, hidden, classes, longest=32, dropout=0.1):
        super().__init__()
        # >>> solution
        self.embedding = Embedding(vocab_size, width, longest, dropout)
        self.blocks = nn.ModuleList(Block(width, heads, hidden, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, classes)
        # <<< solution

    def forward(self, ids):
        """Return the logits (batch, classes) and the list of the weights of all layers."""
        # >>> solution
        mask = ids != PAD
        x = self.embedding(ids)
        all_weights = []
        for block in self.blocks:
            x, weights = block(x, mask)
            all_weights.append(weights)
        x = self.norm(x)
        real = mask.unsqueeze(-1)
        mean = (x * real).sum(dim=1) / real.sum(dim=1)
        return self.output(mean), all_weights
        # <<< solution


# %% [hints]
# 1. Which positions of a batch are real text, and how do you see it in the ids alone?
# 2. One mask serves twice: each block needs it, and the mean needs it again.
# 3. For the mean, bring the mask to the shape (batch, length, 1): then it can blank out rows of
#    (batch, length, width), and its sum over the length counts the real tokens.
# 4. Embed; for each block replace x by what the block makes of x and the mask, and keep the
#    weights in a list; normalize; sum of the real rows divided by their number; the linear
#    layer.


# %% [mistakes]
# ## PAD averaged in: The mean is over all positions, so PAD is averaged in and the verdict depends
# on how long the batch happens to be.
# - mean = (x * real).sum(dim=1) / real.sum(dim=1)
# + mean = x.mean(dim=1)
# ## divided by the length: The sum leaves PAD out, but it is divided by the whole length and not by
# the number of real tokens.
# - mean = (x * real).sum(dim=1) / real.sum(dim=1)
# + mean = (x * real).sum(dim=1) / x.shape[1]
# ## mask ignored: The blocks do not get the mask, so real tokens look at PAD.
# - block(x, mask)
# + block(x)
# ## inverted mask: The mask is handed to the blocks the wrong way round: True means that a token
# may be attended to.
# - block(x, mask)
# + block(x, ~mask)
# ## one block shared: All layers are one and the same block: a list times a number repeats the
# object and makes no new ones.
# - nn.ModuleList(Block(width, heads, hidden, dropout) for _ in range(layers))
# + nn.ModuleList([Block(width, heads, hidden, dropout)] * layers)
# ## plain list: The blocks are in a plain list, where the model does not find their parameters:
# they are neither loaded nor learned.
# - nn.ModuleList(Block(width, heads, hidden, dropout) for _ in range(layers))
# + [Block(width, heads, hidden, dropout) for _ in range(layers)]
# ## softmax at the end: These are probabilities. Logits are what `output` gives, without a softmax;
# the loss takes the softmax itself.
# - self.output(mean), all_weights
# + torch.softmax(self.output(mean), dim=-1), all_weights


# %% [course]
def case(random, texts, heads=2, size=3, layers=1, wanted="logits", pad=0, dropout=0.1, **more):
    """Ask for texts, each a list of ids; PAD fills the shorter ones and follows the longest."""
    width, classes = heads * size, 3
    build = ((11, width, heads, layers, 5, classes), {"longest": 13, "dropout": dropout})
    ids = np.zeros((len(texts), max(map(len, texts)) + pad), np.int64)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = text
    made = Case(
        "MiniTransformer",
        (T.from_numpy(ids),),
        build=build,
        state=sample_state(random, MiniTransformer(*build[0], longest=13)),
        only=(0,) if wanted == "logits" else (1,),
        **more,
    )
    if wanted != "padded":
        return made
    right = built_module(MiniTransformer, made)(*made.args)[1]
    return replace(made, judge=partial(padded_failure, right, list(map(len, texts))))


def padded_failure(expected, lengths, answer):
    """Compare the weights of the queries that are real tokens, PAD among their keys included."""
    _, got = answer
    if not isinstance(got, list) or len(got) != len(expected):
        return Failure(f"expected the weights of {len(expected)} layers, in a list")
    for layer, (right, weights) in enumerate(zip(expected, got, strict=True)):
        failure = shape_failure(weights, right.shape)
        for text, length in enumerate(lengths):
            where = f"text {text}, layer {layer}: the weights of its {length} real tokens"
            rows = right[text, :, :length].detach()
            failure = failure or difference(rows, weights[text, :, :length], 1e-6, where)
        if failure:
            return failure
    return None


def sample_texts(random, *lengths):
    """Sample texts of known words."""
    return [random.integers(2, 11, size=length).tolist() for length in lengths]


def one_layer(random):
    """Texts of one length; one has unknown words, one is a single token."""
    yield case(random, sample_texts(random, 2), heads=1, size=2)
    yield case(random, sample_texts(random, 4, 4))
    yield case(random, [[2, 1, 5, 1]], words="with unknown words (id 1) in the text")
    yield case(random, sample_texts(random, 1), words="with a single token")


def padded_mean(random):
    """No block at all, so that only the mean can be wrong."""
    texts = sample_texts(random, 2, 3)
    yield case(random, texts, layers=0, words="with texts of 2 and 3 tokens and no block")
    yield case(random, texts, layers=0, pad=4, words="with 4 more PAD behind each text")


def padded_attention(random):
    """Texts of several lengths through two layers."""
    yield case(random, sample_texts(random, 4, 2), layers=2, wanted="padded", pad=1)


def many_layers(random):
    """Blocks that all differ, and the weights of each."""
    yield case(random, sample_texts(random, 3), layers=2, words="with two layers")
    yield case(random, sample_texts(random, 3, 3), layers=2, wanted="weights")


def extremes(random):
    """A model in training mode that drops nothing, and one that drops all."""
    words = "in training, with a dropout of 0"
    yield case(random, sample_texts(random, 3), dropout=0.0, training=True, words=words)
    words = "in training, with a dropout of 1"
    yield case(random, sample_texts(random, 3), dropout=1.0, training=True, words=words)


EXERCISE = Exercise(
    "A mini transformer",
    level=4,
    minutes=40,
    needs=("input_embedding", "encoder_block"),
    checks=(
        Check("logits", "gives the right logits with one layer", one_layer, points=3),
        Check("padding in the mean", "averages over real tokens only", padded_mean, points=2),
        Check("padding in attention", "lets no token look at PAD", padded_attention, points=2),
        Check("layers", "has different blocks, and returns the weights of all", many_layers),
        parameters_check(
            "has its parts under the names above", "MiniTransformer", (11, 6, 2, 2, 5, 3, 13)
        ),
        Check("dropout", "passes `dropout` on, and drops nothing else", extremes),
    ),
    results=("logits", "weights"),
)
