"""The loss of a model that predicts the next token, and how low it can be."""

# %% [course]
from dataclasses import replace

import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.pictures import draw_lines
from attnlab_course.material.tensors import gradients_check

# %% [markdown]
# # The loss of the next token
#
# A decoder reads a row of tokens and says, at each position, how likely each token is to come
# **next**. It is trained on the cross-entropy: the mean of −log p(the token that did come).
#
# The sorter's rows are `c a b SEP a b c`. Letters drawn at random cannot be foreseen, so even the
# best model keeps some loss. That floor is known before anything is trained.
#
# ![the floor for some rows](next_token_loss.svg)
#
# **Write** two functions.
#
# `next_token_loss(logits, tokens, padding=None)` returns one number, a tensor without axes.
#
# | | shape |
# | --- | --- |
# | `logits` | (batch, length, vocabulary), floating point |
# | `tokens` | (batch, length), whole numbers from 0 |
#
# * The logits at position t are about the token at position t + 1. What the last position says is
#   about nothing that is there, so it does not count; the first token is never predicted.
# * A next token whose id is `padding` does not count. 0 is an id like any other, and None means
#   that there is no padding.
# * The mean is over all tokens of the batch that count, each with the same weight.
# * If no token counts, the loss is 0.
# * It stays exact for logits of any size, and has the dtype of the logits.
# * Logarithms are natural.
#
# `loss_floor(num_letters, num_free, row_length)` returns the lowest possible mean loss, a float,
# over rows of `row_length` tokens: the first `num_free` (at least 1) are letters, each drawn
# uniformly among `num_letters` and by itself; all tokens after them are certain, given those
# before. The mean is over the row_length − 1 tokens that are predicted.
#
# Do not call PyTorch's cross-entropy.

# %%
import math

import torch


def next_token_loss(logits, tokens, padding=None):
    """Return the mean cross-entropy of the next tokens that are not padding."""
    # >>> solution
    log_shares = torch.log_softmax(logits[:, :-1], dim=-1)
    targets = tokens[:, 1:]
    losses = -log_shares.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    counts = torch.ones_like(targets, dtype=torch.bool)
    if padding is not None:
        counts = targets != padding
    return losses[counts].sum() / max(int(counts.sum()), 1)
    # <<< solution


def loss_floor(num_letters, num_free, row_length):
    """Return the lowest mean loss over rows that begin with letters drawn at random."""
    # >>> solution
    return (num_free - 1) * math.log(num_letters) / (row_length - 1)
    # <<< solution


# %% [hints]
# 1. The logits at position 0 have read one token. Which token are they about?
# 2. Cut both: all logits but the last position, all tokens but the first. Now they face each
#    other.
# 3. −log softmax(z)[i] = log Σ exp(z) − z[i], and the sum can be taken without overflow if the
#    maximum of z is taken out first. `gather` picks one number from each row.
# 4. Make a boolean of the tokens that count, sum the losses there, divide by how many there are,
#    or by 1 if there are none. For the floor: how many of the random letters are predicted at
#    all, and what does each cost at best?


# %% [mistakes]
# ## not shifted: Each position is compared with its own token, which the model has already read.
# -     log_shares = torch.log_softmax(logits[:, :-1], dim=-1)
# -     targets = tokens[:, 1:]
# +     log_shares = torch.log_softmax(logits, dim=-1)
# +     targets = tokens
# ## padding in the divisor: Padding adds no loss, but it still counts in what the sum is divided
# by.
# - return losses[counts].sum() / max(int(counts.sum()), 1)
# + return (losses * counts).sum() / counts.numel()
# ## padding 0 taken for none: A padding id of 0 is taken for no padding at all: 0 is false in an
# `if`.
# - if padding is not None:
# + if padding:
# ## division by zero: Where every next token is padding, it divides by zero and the loss is NaN.
# - return losses[counts].sum() / max(int(counts.sum()), 1)
# + return losses[counts].mean()
# ## log of a softmax: The logarithm is taken of a softmax that has become 0, so the loss is
# infinite. Take the logarithm of the sum of exponentials instead.
# - torch.log_softmax(logits[:, :-1], dim=-1)
# + torch.log(torch.softmax(logits[:, :-1], dim=-1))
# ## mean of means: Each row has a mean of its own, and the mean of these is taken. Then a token of
# a short row counts more than one of a long row.
# - return losses[counts].sum() / max(int(counts.sum()), 1)
# + return ((losses * counts).sum(1) / counts.sum(1).clamp(min=1)).mean()


# %% [course]
def case(random, batch, length, vocabulary, padding=None, scale=1.0, tokens=None, **more):
    """Sample logits and tokens, and compute the loss."""
    dtype = more.pop("dtype", np.float64)
    logits = (random.normal(size=(batch, length, vocabulary)) * scale).astype(dtype)
    if tokens is None:
        tokens = random.integers(0, vocabulary, size=(batch, length))
    settings = {} if padding is None else {"padding": padding}
    args = (T.from_numpy(logits), T.from_numpy(tokens))
    return Case("next_token_loss", args, settings, **more)


def values(random):
    """Rows without padding, ordinary logits first, then large ones and float32."""
    for sizes in ((1, 2, 3), (1, 4, 3), (2, 5, 7), (3, 4, 5)):
        yield case(random, *sizes)
    yield case(random, 2, 3, 5, dtype=np.float32, words="with float32 logits", tolerance=1e-4)
    for scale in (1e3, 1e5):
        yield case(random, 2, 4, 3, scale=scale, words=f"with logits of about {scale:,.0f}")


def padded(random):
    """Rows that end in padding, of different lengths."""
    first = np.array([[1, 0, 3, 3], [0, 2, 1, 3]])
    yield case(random, 2, 4, 4, 3, tokens=first, words="where the id 3 is padding")
    second = random.integers(0, 5, size=(3, 7))
    second[0, 2:] = second[1, 5:] = 5
    yield case(random, 3, 7, 6, 5, tokens=second, words="where the id 5 is padding")
    third = np.array([[2, 1, 0, 0, 0], [1, 3, 3, 2, 0]])
    yield case(random, 2, 5, 4, 0, tokens=third, words="where the id 0 is padding")


def with_others(random):
    """The same rows, also with other logits between padding, and as if there were none."""
    for padded_case in padded(random):
        logits, tokens = padded_case.args
        is_inside = tokens == padded_case.settings["padding"]
        is_inside[:, :-1] &= is_inside[:, 1:].clone()
        others = T.where(is_inside[..., None], logits.flip(-1) + 1, logits)
        yield padded_case
        yield replace(padded_case, args=(others, tokens), beside=True)
        yield replace(padded_case, settings={}, beside=True)


def padding_is_out(cases, losses):
    """Whatever the logits between padding are, the loss is the same; without padding it is not."""
    right, other, whole = (T.stack(losses[start::3]) for start in range(3))
    return T.allclose(right, other) and not T.isclose(right, whole).any()


def only_padding(random):
    """Rows in which nothing is left to predict."""
    tokens = np.array([[1, 2, 2], [0, 2, 2]])
    yield case(random, 2, 3, 3, 2, tokens=tokens, words="where every next token is padding")


def gradients(random):
    """Gradients of the logits."""
    yield case(random, 2, 4, 3)


def floors(random):
    """The floor of rows with two, three and many letters, and where nothing is left to chance."""
    for letters, free, length in ((3, 3, 7), (2, 2, 5), (26, 5, 13), (4, 7, 17)):
        yield Case("loss_floor", (letters, free, length))
    yield Case("loss_floor", (5, 1, 4), words="with one free letter, the first")
    yield Case("loss_floor", (1, 4, 9), words="with a single letter to draw from")


def draw_picture(names):
    """Draw the floor against the length of the answer."""
    floor, lengths = names["loss_floor"], range(1, 13)
    curves = {}
    for letters in (2, 3, 26):
        curves[f"{letters} letters"] = [floor(letters, n, 2 * n + 1) for n in lengths]
    axes = ("letters of an input", "nats per token")
    return draw_lines("The lowest loss of a sorter", axes, lengths, curves)


EXERCISE = Exercise(
    "The loss of the next token",
    level=2,
    minutes=25,
    needs=("softmax",),
    checks=(
        Check("values", "gives the right loss", values, points=4),
        Check("padding", "leaves padding out", with_others, points=2, relation=padding_is_out),
        Check("floor", "knows the lowest loss", floors, points=2),
        Check("only padding", "gives 0 where no token counts", only_padding, side=True),
        gradients_check("gradients", "has the right gradient", gradients),
    ),
    banned=("cross_entropy", "CrossEntropyLoss", "nll_loss", "NLLLoss"),
    picture=draw_picture,
)
