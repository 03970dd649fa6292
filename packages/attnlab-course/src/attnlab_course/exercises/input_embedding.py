"""Tokens, positions and dropout: what a transformer's first block reads."""

# %% [course]
from dataclasses import replace
from functools import partial

import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise, Failure
from attnlab_course.material.attention_mistakes import dropout_mistakes
from attnlab_course.material.tensors import built_module, dropped_failure, parameters_check

# %% [markdown]
# # The input of a transformer
#
# What the first block reads is the scaled row of each token plus the pattern of its position. In
# training, dropout sets a share of these numbers to 0 and makes the others larger, so that the
# model does not lean on any one of them.
#
# **Write** the class `InputEmbedding(vocab_size, d_model, max_length, dropout=0.1)` from the two
# parts that are given and `nn.Dropout`.
#
# | | shape |
# | --- | --- |
# | `ids` | (batch, length), whole numbers |
# | answer | (batch, length, d_model) |
#
# * Dropout comes last, once, over the sum. Each number is dropped by itself with the chance
#   `dropout`; the others are divided by 1 − `dropout`.
# * In evaluation nothing is dropped. With a chance of 0 training gives the same as evaluation, and
#   with a chance of 1 it gives zeros.
# * The tokens are an attribute named `tokens`, so that the only parameter is called
#   `tokens.weight`.

# %%
import torch
from torch import nn


class Tokens(nn.Module):
    """A scaled row for each id. It is given; leave it as it is."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab_size, d_model) / d_model)

    def forward(self, ids):
        """(batch, length) -> (batch, length, d_model)."""
        return self.weight[ids] * self.weight.shape[1] ** 0.5


class Positions(nn.Module):
    """A fixed pattern for each position, added to x. It is given; leave it as it is."""

    def __init__(self, max_length, d_model):
        super().__init__()
        column = torch.arange(d_model)
        slow = 10000.0 ** (-(column - column % 2) / d_model)
        angle = torch.arange(max_length)[:, None] * slow + column % 2 * torch.pi / 2
        self.register_buffer("table", angle.sin(), persistent=False)

    def forward(self, x):
        """(batch, length, d_model) -> the same."""
        return x + self.table[: x.shape[1]]


class InputEmbedding(nn.Module):
    """Turn ids into what the first block reads."""

    def __init__(self, vocab_size, d_model, max_length, dropout=0.1):
        super().__init__()
        # >>> solution
        self.tokens = Tokens(vocab_size, d_model)
        self.positions = Positions(max_length, d_model)
        self.dropout = nn.Dropout(dropout)
        # <<< solution

    def forward(self, ids):
        """(batch, length) -> (batch, length, d_model)."""
        # >>> solution
        x = self.positions(self.tokens(ids))
        return self.dropout(x)
        # <<< solution


# %% [hints]
# 1. In which order do ids, rows, positions and dropped numbers come?
# 2. A module that is an attribute of a module is trained, saved, and told the mode with it.
# 3. (batch, length) → tokens → (batch, length, d_model) → positions → the same → dropout.
# 4. Three attributes in `__init__`, the first named `tokens`; three calls in `forward`, each
#    taking what the one before returned.

# %% [mistakes]
# ## dropped before: Only the tokens are dropped: the positions are added after the dropout.
# -         x = self.positions(self.tokens(ids))
# -         return self.dropout(x)
# +         return self.positions(self.dropout(self.tokens(ids)))
# ## chance lost: The chance is not handed on, so half of the numbers are always dropped: that is
# PyTorch's default.
# - nn.Dropout(dropout)
# + nn.Dropout()

# %% [course]
NEAR = 1e-4  # what single precision leaves of an angle


def case(random, shape, vocabulary, width, dropout, judge=None, words=""):
    """Sample ids and a table; `judge` gets what evaluation gives, before the answer."""
    table = random.normal(size=(vocabulary, width))
    made = Case(
        "InputEmbedding",
        (T.from_numpy(random.integers(0, vocabulary, shape)),),
        build=((vocabulary, width, shape[1] + 2), {} if dropout is None else {"dropout": dropout}),
        state={"tokens.weight": T.from_numpy(table)},
        training=words.startswith("in training"),
        words=words,
        tolerance=NEAR,
    )
    if judge is None:
        return made
    whole = built_module(InputEmbedding, made)(*made.args).detach().numpy()
    return replace(made, judge=partial(judge, whole))


def values(random):
    """Sizes that all differ, nothing dropped."""
    yield case(random, (1, 1), 3, 2, 0.0)
    yield case(random, (2, 5), 7, 3, 0.0)
    yield case(random, (3, 4), 11, 6, 0.0)


def evaluation(random):
    """Evaluation with a high chance of dropping."""
    yield case(random, (2, 3), 5, 7, 0.9, words="in evaluation")


def extremes(random):
    """Chances for which training has one answer."""
    yield case(random, (2, 3), 5, 4, 1.0, words="in training, with a chance of 1")
    yield case(random, (2, 3), 5, 4, 0.0, words="in training, with a chance of 0")


def judge_share(whole, answer):
    """Judge which numbers were dropped, and whether the others were enlarged."""
    failure = dropped_failure(answer, whole, 0.25, "numbers", (NEAR, NEAR))
    if failure is None and np.isin((answer == 0).double().mean(dim=-1), (0, 1)).all():
        return Failure("whole positions were dropped; each number is dropped by itself")
    return failure


def shares(random):
    """How many numbers are dropped, and what is left."""
    words = "in training, with a chance of 1 in 4"
    yield case(random, (7, 11), 13, 16, 0.25, judge_share, words)


def judge_default(whole, answer):
    """Judge only how many numbers were dropped."""
    share = float((answer == 0).double().mean())
    if 0.04 < share < 0.16:
        return None
    return Failure(f"expected about 10% of the numbers dropped, got {share:.1%}")


def default_share(random):
    """The chance where none is passed."""
    words = "in training, with the default chance"
    yield case(random, (7, 11), 13, 16, None, judge_default, words)


EXERCISE = Exercise(
    "The input of a transformer",
    level=2,
    minutes=15,
    needs=("token_embedding", "sinusoidal_positions"),
    checks=(
        Check("values", "adds up tokens and positions", values, points=2),
        Check("evaluation", "drops nothing in evaluation", evaluation),
        parameters_check("has one parameter, tokens.weight", "InputEmbedding", (5, 3, 7)),
        Check("extremes", "drops all with a chance of 1, nothing with 0", extremes, points=2),
        Check("shares", "drops the right share and enlarges the rest", shares),
        Check("default", "drops one in ten by default", default_share),
    ),
    mistakes=(*dropout_mistakes("x"),),
)
