"""Scaled dot-product attention with a mask."""

# %% [course]
import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.attention_mistakes import axis_mistake, mask_mistakes, root_mistakes
from attnlab_course.material.tensors import dtypes_fit, gradients_check, inputs_check, mask_check

# %% [markdown]
# # Attention
#
# Every query looks at all keys and takes the mean of their values, weighted by how well key and
# query fit: softmax(Q Kᵀ / √width) V. The picture shows the weights of six queries on five keys
# where nothing is masked. Each row sums to 1.
#
# ![weights](attention.svg)
#
# **Write** `attention(query, key, value, mask=None)`. It returns the output and the weights.
#
# | | shape |
# | --- | --- |
# | `query` | (batch, queries, width) |
# | `key` | (batch, keys, width) |
# | `value` | (batch, keys, value width) |
# | `mask` | (queries, keys) or (batch, queries, keys), boolean; **True = may attend** |
# | output | (batch, queries, value width) |
# | weights | (batch, queries, keys) |
#
# * A masked key gets the weight 0, exactly, however large or small the scores are; the weights of
#   the other keys sum to 1.
# * A query that may attend to no key gets weights of 0 and an output of 0, never NaN.
# * Gradients flow back to query, key and value, and they hold no NaN either.
# * Scores of many thousands give finite weights.
# * The answer has the dtype of the inputs, and the inputs stay as they are.
#
# Do not call PyTorch's own attention.

# %%
import math

import torch


def attention(query, key, value, mask=None):
    """Return the output and the weights of scaled dot-product attention."""
    # >>> solution
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.softmax(scores, dim=-1)
    if mask is not None:  # for a query that may attend to no key
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ value, weights
    # <<< solution


# %% [hints]
# 1. Which two shapes must be multiplied so that each query meets each key?
# 2. Three steps: scores of shape (batch, queries, keys); softmax over one of these axes; then a
#    product with the values.
# 3. Divide by the root of the last size of `query`, and mask before the softmax: what must a
#    score be so that its exponential is 0?
# 4. Fill masked scores with −∞, take the softmax over the keys, and set masked weights to 0 once
#    more: what would a query get that may attend to no key?


# %% [mistakes]
# ## gradient cut off: The weights are cut off from the gradient, as by `detach`. Query and key
# learn through them.
# - weights = torch.softmax(scores, dim=-1)
# + weights = torch.softmax(scores, dim=-1).detach()
# ## input changed: `query` is changed in place, as by `/=`. It belongs to the caller.
# -     scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
# +     query /= math.sqrt(query.shape[-1])
# +     scores = query @ key.transpose(-2, -1)
# ## nothing subtracted: The exponentials are taken of the scores as they come. Of large scores they
# are too large for a number, or all 0.
# - torch.softmax(scores, dim=-1)
# + torch.exp(scores) / torch.exp(scores).sum(dim=-1, keepdim=True)


# %% [course]
def case(arrays, mask=None, dtype="float32", words=""):
    """Ask for attention."""
    args = [T.from_numpy(array.astype(dtype)) for array in arrays]
    if mask is not None:
        args.append(T.from_numpy(mask))
    return Case("attention", tuple(args), words=words, tolerance=1e-5)


def sample(random, batch, queries, keys, width, value_width):
    """Sample query, key and value."""
    shapes = ((queries, width), (keys, width), (keys, value_width))
    return [random.normal(size=(batch, *shape)) for shape in shapes]


def values(random):
    """Sizes that all differ, and one position alone."""
    yield case(sample(random, 1, 1, 1, 3, 2), words="with one query and one key")
    yield case(sample(random, 1, 2, 3, 4, 5))
    yield case(sample(random, 2, 5, 3, 7, 4))


def masked(random):
    """A mask alone, and one shared by the batch."""
    mask = np.array([[True, False, True, False], [False, True, True, False]])
    yield case(sample(random, 1, 2, 4, 2, 1), mask)
    mask = random.random((4, 6)) < 0.5
    mask[:, 0] = True
    mask[0, 1] = False
    yield case(sample(random, 2, 4, 6, 3, 2), mask)
    query, key, value = sample(random, 1, 2, 3, 4, 2)
    key[:, 0] = 0.0
    mask = np.array([[True, True, False], [True, False, True]])
    words = "where a key that is not masked has a score of exactly 0"
    yield case((query, key, value), mask, words=words)


def mask_per_batch(random):
    """A mask for each element of the batch."""
    mask = random.random((2, 3, 4)) < 0.5
    mask[1, 0] = ~mask[0, 0]
    mask[..., 2] = True
    yield case(sample(random, 2, 3, 4, 2, 1), mask, words="with a mask for each of the batch")


DEAD = np.array([[True, False, True], [False, False, False]])


def dead_rows(random):
    """A query that may attend to no key."""
    yield case(sample(random, 1, 2, 3, 2, 1), DEAD, words="where the second query sees no key")


def large_scores(random):
    """Scores so large that an unguarded exponential overflows; whole numbers, so exact ones."""
    masks = None, *[np.array([[False, True, True], [True, False, True]])] * 2
    sizes = (11, "some thousands"), (20, "about −10⁷, masked"), (40, "about −10¹³, masked")
    for mask, (power, size) in zip(masks, sizes, strict=True):
        query, key, value = sample(random, 1, 2, 3, 4, 2)
        query = random.integers(1, 9, size=query.shape) * 2.0**power
        key = -random.integers(2, 9, size=key.shape)
        key[:, 0] = -1  # so the first key, which a query may not attend to, has the largest score
        yield case((query, key, value), mask, words=f"with scores of {size}")


def gradients(random):
    """What flows back, also where a query may attend to no key."""
    arrays = sample(random, 1, 2, 3, 4, 2)
    yield case(arrays)
    yield case(arrays, DEAD, words="where the second query sees no key")


def dtypes(random):
    """Inputs of float64."""
    yield case(sample(random, 1, 2, 3, 4, 2), dtype="float64", words="with float64")


def draw_picture(names):
    """Draw the weights of six queries on five keys."""
    from attnlab.draw.attention import draw_head

    random = np.random.default_rng(3)
    query, key = (T.from_numpy(random.normal(size=(1, n, 4)) * 1.5) for n in (6, 5))
    weights = names["attention"](query, key, key)[1][0]
    return draw_head(weights, tokens=([f"q{n}" for n in range(6)], [f"k{n}" for n in range(5)]))


_MASKED = """    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.softmax(scores, dim=-1)
    if mask is not None:  # for a query that may attend to no key
        weights = weights.masked_fill(~mask, 0.0)
"""


EXERCISE = Exercise(
    "Scaled dot-product attention",
    level=1,
    minutes=25,
    needs=("softmax",),
    checks=(
        Check("values", "gives the right output and weights", values, points=3),
        mask_check("mask", "keeps masked keys out", masked, points=2),
        mask_check("mask per batch", "takes a mask for each element of the batch", mask_per_batch),
        mask_check("dead rows", "gives 0 where a query may attend to no key", dead_rows),
        Check("large scores", "is right with large scores", large_scores),
        gradients_check("gradients", "gives gradients, without NaN", gradients),
        Check("dtype", "keeps the dtype of its inputs", dtypes, relation=dtypes_fit),
        inputs_check(masked),
    ),
    mistakes=(
        *root_mistakes(
            "/ math.sqrt(query.shape[-1])",
            "query.shape[-1]",
            "query.shape[-2]",
            "key.shape[-2]",
            "value.shape[-1]",
        ),
        *mask_mistakes(_MASKED, guard="mask is not None"),
        *axis_mistake("torch.softmax(scores, dim=-1)"),
    ),
    banned=("scaled_dot_product_attention", "MultiheadAttention", "multi_head_attention_forward"),
    picture=draw_picture,
    results=("output", "weights"),
)
