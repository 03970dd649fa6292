"""A mask that keeps the future out, and weights under it."""

# %% [course]
import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.attention_mistakes import axis_mistake, mask_mistakes
from attnlab_course.material.tensors import inputs_check

# %% [markdown]
# # The causal mask
#
# A model that continues a text must not see what comes after a position while it learns to predict
# it. So each position attends to itself and to what came before. The picture shows weights under
# such a mask: everything above the diagonal is exactly 0.
#
# ![causal weights](causal_mask.svg)
#
# **Write** two functions.
#
# `causal_mask(queries, keys=None)` takes two lengths and returns a boolean mask of shape
# (queries, keys); **True = may attend**.
#
# * Row q, column k: may query q attend to key k?
# * Without `keys` there are as many keys as queries, and query q may attend to the keys 0 … q.
# * With more keys than queries, the queries are the **last** positions of the keys. (That is so
#   when a model writes on and has kept the keys of what it wrote before.) The last query may
#   always attend to every key. There are never fewer keys than queries.
#
# `causal_weights(scores)` takes scores of shape (…, queries, keys) and returns attention weights
# of the same shape and dtype, under that mask.
#
# * Each row sums to 1. A weight of the future is 0, exactly, however large its score is.
# * The scores are taken as they are, without scaling, and stay as they are.

# %%
import math

import torch


def causal_mask(queries, keys=None):
    """Return which keys each query may attend to: none that lie in its future."""
    # >>> solution
    keys = queries if keys is None else keys
    mask = torch.ones(queries, keys, dtype=torch.bool)
    return mask.tril(diagonal=keys - queries)
    # <<< solution


def causal_weights(scores):
    """Return attention weights that look at no key of the future."""
    # >>> solution
    mask = causal_mask(*scores.shape[-2:])
    return torch.softmax(scores.masked_fill(~mask, -math.inf), dim=-1)
    # <<< solution


# %% [hints]
# 1. Which keys may the very first query see? And the last one?
# 2. Write the rule for one query and one key as an inequality between two positions. Where in
#    the text does query q stand when there are more keys than queries?
# 3. Positions of queries as a column (queries, 1), of keys as a row (1, keys): comparing them
#    gives (queries, keys). Or take the lower triangle of a matrix of True.
# 4. Query q is at position q + keys − queries. For the weights: fill what the mask forbids with
#    −∞, then the softmax over the last axis.


# %% [mistakes]
# ## sees the future: The triangle is the wrong one: each position sees itself and the future.
# - mask.tril(diagonal=keys - queries)
# + mask.triu(diagonal=keys - queries)
# ## not itself: A position may not attend to itself here; it should. The first one is left with
# nothing.
# - mask.tril(diagonal=keys - queries)
# + mask.tril(diagonal=keys - queries - 1)
# ## one too many: Each position also sees the next one, which is what it should predict.
# - mask.tril(diagonal=keys - queries)
# + mask.tril(diagonal=keys - queries + 1)
# ## True means hidden: `causal_mask` is the wrong way round: True stands where attending is
# forbidden; here True means may attend.
# - return mask.tril(diagonal=keys - queries)
# + return ~mask.tril(diagonal=keys - queries)
# or
# - mask.tril(diagonal=keys - queries)
# - …
# - masked_fill(~mask,
# + mask.triu(diagonal=keys - queries + 1)
# + …
# + masked_fill(mask,
# or
# - mask.tril(diagonal=keys - queries)
# - …
# - masked_fill(~mask,
# + mask.triu(diagonal=1)
# + …
# + masked_fill(mask,
# ## scaled: The scores are divided by a root. Here they are taken as they are.
# - torch.softmax(scores.masked_fill
# + torch.softmax((scores / scores.shape[-1] ** 0.5).masked_fill
# ## queries first: With more keys than queries the queries are taken as the first positions. They
# are the last ones.
# - mask.tril(diagonal=keys - queries)
# + mask.tril()


# %% [course]
def mask_case(queries, keys=None):
    """Ask for a mask."""
    return Case("causal_mask", (queries,) if keys is None else (queries, keys))


def weights_case(scores, dtype="float32", words=""):
    """Ask for weights."""
    args = (T.from_numpy(scores.astype(dtype)),)
    return Case("causal_weights", args, words=words, tolerance=1e-5)


def square(random):
    """As many keys as queries."""
    for length in (1, 2, int(random.integers(3, 6)), 7):
        yield mask_case(length)


def weights(random):
    """Square scores of two and of four axes."""
    for shape in ((1, 1), (3, 3), (2, 3, 5, 5)):
        yield weights_case(random.normal(size=shape))
    zero = random.normal(size=(3, 3))
    zero[1, 0] = zero[2, 2] = 0.0
    yield weights_case(zero, words="where two of the past have a score of exactly 0")


def large_future(random):
    """The future has by far the largest scores, or the past very low ones."""
    scores = np.tril(random.normal(size=(3, 3)))
    future = np.triu(np.full((3, 3), 5000.0), 1)
    yield weights_case(scores + future, words="where the future has scores of 5000")
    low = np.where(future > 0, 0.0, -(2.0**40) * random.integers(1, 9, size=(3, 3)))
    yield weights_case(low, words="where the past has scores of about −10¹²")


def more_keys(random):
    """More keys than queries, in the mask and in the weights."""
    yield mask_case(1, 3)
    yield mask_case(2, int(random.integers(4, 7)))
    yield mask_case(3, 3)
    yield weights_case(random.normal(size=(2, 5)))
    yield weights_case(random.normal(size=(3, 2, 4)))


def dtypes(random):
    """Scores of float64."""
    yield weights_case(random.normal(size=(3, 3)), dtype="float64", words="with float64")


def draw_picture(names):
    """Draw the causal weights of six positions."""
    from attnlab.draw.attention import draw_head

    scores = T.from_numpy(np.random.default_rng(5).normal(size=(6, 6)))
    return draw_head(names["causal_weights"](scores), tokens=[f"{n}" for n in range(6)])


EXERCISE = Exercise(
    "The causal mask",
    level=1,
    minutes=15,
    needs=("attention",),
    checks=(
        Check("mask", "lets each query see itself and the past", square, points=2),
        Check("weights", "gives weights under the mask", weights, points=2),
        Check("more keys", "takes the queries as the last of the keys", more_keys),
        Check("large scores", "keeps the future out whatever its scores", large_future),
        Check("dtype", "keeps the dtype of the scores", dtypes),
        inputs_check(weights, "scores"),
    ),
    mistakes=(
        *axis_mistake("torch.softmax(scores.masked_fill(~mask, -math.inf), dim=-1)"),
        *mask_mistakes(
            "    return torch.softmax(scores.masked_fill(~mask, -math.inf), dim=-1)\n",
            "inverted mask",
            "zero taken for masked",
            "mask multiplied",
            "mask after the softmax",
            "filled with −10⁹",
            end="return weights",
        ),
    ),
    picture=draw_picture,
)
