"""Attention with any axes in front, dropout on its weights, and half precision."""

# %% [course]
from dataclasses import replace
from functools import partial

import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise, Failure
from attnlab_course.material.attention_mistakes import axis_mistake, mask_mistakes, root_mistakes
from attnlab_course.material.pictures import draw_maps
from attnlab_course.material.tensors import (
    inputs_check,
    kept_failure,
    mask_check,
    shape_failure,
)

# %% [markdown]
# # Attention with dropout
#
# In training, some of the attention weights are dropped, so that no query leans on one key alone.
# What is used is then no longer what you want to look at: dropped rows do not sum to 1. So the
# values are mixed with the dropped weights, and the whole ones are returned. The picture shows
# both.
#
# ![weights](attention_dropout.svg)
#
# **Write** `attention(query, key, value, mask=None, dropout=0.0)`. It returns the output and the
# weights.
#
# | | shape |
# | --- | --- |
# | `query` | (…, queries, width) |
# | `key` | (…, keys, width) |
# | `value` | (…, keys, value width) |
# | `mask` | boolean, any shape that broadcasts to (…, queries, keys); **True = may attend** |
# | output | (…, queries, value width) |
# | weights | (…, queries, keys) |
#
# * Weights are the softmax of query · key / √width. There may be no axis in front, or several.
# * Each weight is dropped by itself with the chance `dropout`, and the others are divided by
#   1 − `dropout`. With a chance of 1 the output is 0. The function has no mode: it drops whenever
#   the chance is above 0.
# * The returned weights are those **before** dropout.
# * A masked key gets the weight 0, exactly. A query that may attend to no key gets weights and an
#   output of 0, never NaN.
# * The answer has the dtype of the inputs, float16 included, and the inputs stay as they are.
#
# Do not call PyTorch's own attention.

# %%
import math

import torch


def attention(query, key, value, mask=None, dropout=0.0):
    """Return the output, and the weights as they were before dropout."""
    # >>> solution
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.softmax(scores, dim=-1)
    if mask is not None:
        weights = torch.nan_to_num(weights, nan=0.0)
    used = torch.nn.functional.dropout(weights, dropout)
    return used @ value, weights
    # <<< solution


# %% [hints]
# 1. Which weights does the reader of a picture want, and which mix the values?
# 2. Count axes from the end, -1 and -2, and what is in front does not matter.
# 3. scores (…, queries, keys) → mask → softmax over the last axis → a dropped copy → times the
#    values.
# 4. `torch.nn.functional.dropout` drops and enlarges. Keep what you gave it: that is what you
#    return.


# %% [mistakes]
# ## fixed axes: Axes 1 and 2 are exchanged. Count from the end, so that axes in front do not
# matter.
# - key.transpose(-2, -1)
# + key.transpose(1, 2)
# ## shown after dropout: The weights come back as they are after dropout, so their rows do not sum
# to 1.
# - return used @ value, weights
# + return used @ value, used
# ## output dropped: Dropout is applied to the output. It belongs on the weights.
# -     used = torch.nn.functional.dropout(weights, dropout)
# -     return used @ value, weights
# +     used = weights
# +     return torch.nn.functional.dropout(used @ value, dropout), weights
# ## not made larger: The weights that stay are not divided by 1 − dropout.
# - torch.nn.functional.dropout(weights, dropout)
# + weights * (torch.rand_like(weights) >= dropout)


# %% [course]
def case(random, front, sizes, mask=None, dtype=np.float64, change=None, **more):
    """Sample query, key and value for sizes (queries, keys, width, value width)."""
    queries, keys, width, value_width = sizes
    shapes = (queries, width), (keys, width), (keys, value_width)
    arrays = [random.normal(size=(*front, *shape)).astype(dtype) for shape in shapes]
    if change is not None:
        change(*arrays)
    args = [T.from_numpy(array) for array in (*arrays, mask) if array is not None]
    return Case("attention", tuple(args), **more)


def open_mask(random, *shape):
    """Sample a mask that leaves each query the first key and takes the second from the first."""
    mask = random.random(shape) < 0.6
    mask[..., 0] = True
    mask[..., 0, 1] = False
    return mask


def values(random):
    """One axis in front."""
    yield case(random, (1,), (1, 2, 3, 2))
    yield case(random, (2,), (5, 3, 7, 4))


def fronts(random):
    """No axis in front, two, three."""
    yield case(random, (), (3, 4, 5, 2), words="without an axis in front")
    yield case(random, (2, 3), (4, 5, 3, 7), words="with two axes in front")
    yield case(random, (2, 1, 3), (4, 2, 5, 3), words="with three axes in front")


def no_score(query, key, value):
    """Give the first key a score of exactly 0."""
    key[..., 0, :] = 0.0


def low_scores(query, key, value):
    """Make all scores about minus a million."""
    query[:], key[:] = -1e6 - 1e6 * np.abs(query), 1 + np.abs(key)


def masked(random):
    """Masks that broadcast."""
    sizes, mask = (3, 4, 5, 2), open_mask(random, 3, 4)
    yield case(random, (2,), sizes, mask)
    words = "where a key that is not masked has a score of exactly 0"
    yield case(random, (2,), sizes, mask, change=no_score, words=words)
    words = "with scores of about minus a million, masked"
    yield case(random, (2,), sizes, mask, change=low_scores, words=words)
    words = "with a mask of shape (batch, 1, 1, keys)"
    yield case(random, (2, 3), (4, 5, 3, 2), open_mask(random, 2, 1, 1, 5), words=words)


def dead_rows(random):
    """A query that may attend to no key."""
    mask = np.ones((3, 4), bool)
    mask[1] = False
    yield case(random, (2,), (3, 4, 3, 2), mask, words="where the second query sees no key")


def all_dropped(random):
    """Chances for which there is one answer: 1, and one at which nothing is dropped."""
    made = case(random, (2, 3), (2, 5, 3, 4), settings={"dropout": 1.0}, words="with dropout 1")
    yield made
    yield replace(made, settings={"dropout": 1e-12}, words="with a dropout of nearly 0")


def judge_dropped(weights, answer):
    """Judge an output that holds the used weights twice, side by side."""
    keys = weights.shape[-1]
    output, shown = answer
    failure = shape_failure(output, (*weights.shape[:-1], 2 * keys))
    failure = failure or shape_failure(shown, weights.shape)
    if failure:
        return failure
    used, shown = output.numpy(), shown.numpy()
    first, gone = used[..., :keys], used[..., :keys] == 0
    if not np.allclose(first, used[..., keys:]):
        return Failure("the output was dropped, not the weights", "output dropped")
    if np.allclose(first, shown) and gone.any():
        return Failure("the returned weights have dropped ones among them", "shown after dropout")
    if not np.allclose(shown, weights):
        return Failure("the returned weights are not those without dropout")
    if abs(gone.mean() - 0.25) > 0.06:
        return Failure(f"expected about 25% of the weights dropped, got {gone.mean():.1%}")
    if gone.all(axis=-1).any() or (gone == gone[:, :1]).all():
        return Failure("each weight must be dropped by itself, not a row or a column at once")
    return kept_failure(first, weights, 0.25, "weights")


def shares(random):
    """Values that make the output show the used weights."""
    query, key = (T.from_numpy(random.normal(size=(1, size, 3))) for size in (47, 29))
    args = query, key, T.cat([T.eye(29).double()] * 2, dim=1)[None]
    judge = partial(judge_dropped, attention(*args)[1].numpy())
    yield Case("attention", args, {"dropout": 0.25}, judge=judge, words="with dropout 1 in 4")


def half(random):
    """Half precision, masked."""
    more = {"tolerance": 5e-3, "words": "in float16"}
    yield case(random, (2,), (3, 4, 5, 2), open_mask(random, 3, 4), np.float16, **more)


def draw_picture(names):
    """Draw the whole weights and the used ones."""
    random = np.random.default_rng(4)
    query, key = (T.from_numpy(random.normal(size=(1, 6, 4))) for _ in range(2))
    T.manual_seed(2)
    used, shown = names["attention"](query, key, T.eye(6).double()[None], dropout=0.3)
    return draw_maps({"returned": shown[0], "used": used[0]}, ("query", "key"), (6.8, 3.0))


_MASKED = """    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.softmax(scores, dim=-1)
    if mask is not None:
        weights = torch.nan_to_num(weights, nan=0.0)
"""


EXERCISE = Exercise(
    "Attention with dropout",
    level=2,
    minutes=25,
    needs=("attention",),
    checks=(
        Check("values", "gives the right output and weights", values, points=2),
        Check("axes", "takes any axes in front", fronts),
        mask_check("mask", "takes masks that broadcast", masked, points=2),
        Check("all dropped", "drops all with dropout 1, and nothing with nearly 0", all_dropped),
        Check("shares", "drops each weight by itself, and shows none", shares, 2),
        mask_check("dead rows", "gives 0 where a query sees no key", dead_rows),
        Check("half", "works in half precision", half),
        inputs_check(masked),
    ),
    mistakes=(
        *mask_mistakes(_MASKED, guard="mask is not None"),
        root_mistakes("/ math.sqrt(query.shape[-1])", "query.shape[-1]", "query.shape[-2]")[0],
        *axis_mistake("torch.softmax(scores, dim=-1)"),
    ),
    banned=("scaled_dot_product_attention", "MultiheadAttention", "multi_head_attention_forward"),
    picture=draw_picture,
    results=("output", "weights"),
)
