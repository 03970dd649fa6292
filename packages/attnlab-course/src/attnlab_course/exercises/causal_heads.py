"""Causal attention of several heads, from plain matrices, as newer decoders have it."""

# %% [course]
import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.attention_mistakes import axis_mistake, heads_mistakes, mask_mistakes
from attnlab_course.material.tensors import gradients_check, inputs_check

# %% [markdown]
# # Causal heads
#
# A decoder's attention in one function: no biases, no mask to be passed, four matrices. Each head
# attends with its own columns, and no position sees what comes after it.
#
# **Write** `causal_heads(x, query, key, value, output, heads)`. It returns the output.
#
# | | shape |
# | --- | --- |
# | `x` | (…, length, width); there may be no axis in front, or several |
# | `query`, `key`, `value`, `output` | (width, width), each laid out as `nn.Linear` keeps it |
# | `heads` | how many; it divides width |
# | answer | (…, length, width) |
#
# * A matrix laid out that way is (outputs, inputs): a row of it makes one column of the queries.
# * Head 0 has the first width / heads columns of queries, keys and values, head 1 the next, and so
#   on. The heads' results are in the same order before `output` mixes them.
# * Scores are divided by the root of a head's width.
# * Each position attends to itself and to those before it. What comes later has no influence at
#   all, however large the scores are.
# * Gradients flow back to everything that comes in.
# * The answer has the dtype of the inputs, and the inputs stay as they are.
#
# Do not call PyTorch's own attention.

# %%
import math

import torch


def causal_heads(x, query, key, value, output, heads):
    """Return the output of several heads, each of which looks back."""
    # >>> solution
    *front, length, width = x.shape
    size = width // heads

    def split(matrix):
        return (x @ matrix.T).view(*front, length, heads, size).transpose(-3, -2)

    scores = split(query) @ split(key).transpose(-2, -1) / math.sqrt(size)
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    weights = torch.softmax(scores.masked_fill(later, -math.inf), dim=-1)
    mixed = (weights @ split(value)).transpose(-3, -2).reshape(*front, length, width)
    return mixed @ output.T
    # <<< solution


# %% [hints]
# 1. Which axis of (…, length, width) is cut into heads, and where must the new axis stand?
# 2. Project, cut into heads, score, mask the future, softmax, mix, put together, project.
# 3. Each head needs (…, heads, length, size): cut the last axis in two, then exchange it with
#    the length.
# 4. The mask is true above the diagonal; fill the scores there with minus infinity. On the way
#    back, exchange the axes again before the heads are joined.


# %% [mistakes]
# ## one key too many: Each position also sees the next one.
# - triu(1)
# + triu(2)
# ## matrices turned: The matrices are applied the wrong way round: they are (outputs, inputs).
# - (x @ matrix.T)
# + (x @ matrix)
# or
# - (x @ matrix.T)
# - …
# - mixed @ output.T
# + (x @ matrix)
# + …
# + mixed @ output


# %% [course]
def case(random, front, length, width, heads, scale=1.0, dtype=np.float64, change=None, **more):
    """Sample an input and four matrices, which `change` may alter."""
    x = random.normal(size=(*front, length, width))
    matrices = random.normal(size=(4, width, width)) / width**0.5
    matrices[:2] *= scale
    if change is not None:
        change(matrices)
    args = (*(T.from_numpy(array.astype(dtype)) for array in (x, *matrices)), heads)
    return Case("causal_heads", args, **more)


def without_first_keys(matrices):
    """Take the keys of the first of two heads away."""
    matrices[1, :2] = 0.0


def opposed(matrices):
    """Make each key the opposite of its query, so that the score of a position itself is low."""
    matrices[1] = -matrices[0]


def values(random):
    """Several heads on batches."""
    yield case(random, (1,), 2, 4, 2)
    yield case(random, (2,), 3, 10, 5, 1.5)
    yield case(random, (3,), 5, 6, 2, 1.5)
    words = "where all scores of the first head are exactly 0"
    yield case(random, (2,), 3, 4, 2, change=without_first_keys, words=words)
    yield case(random, (2,), 3, 6, 2, dtype=np.float32, words="in float32", tolerance=1e-4)


def edges(random):
    """One head, heads of width 1, one position; no axis in front, and two."""
    yield case(random, (2,), 3, 4, 1, words="with one head")
    yield case(random, (2,), 3, 5, 5, words="with as many heads as columns")
    yield case(random, (2,), 1, 6, 3, words="with one position")
    yield case(random, (), 3, 4, 2, words="without an axis in front")
    yield case(random, (2, 3), 5, 6, 3, words="with two axes in front")


def large(random):
    """Scores of many thousands, and far below 0."""
    words = "with scores in the thousands"
    yield case(random, (2,), 5, 6, 2, 3000.0, words=words, tolerance=1e-5)
    words = "with scores of about −10¹²"
    yield case(random, (2,), 3, 4, 2, 1e6, change=opposed, words=words, tolerance=1e-4)


def gradients(random):
    """What flows back to the input and the four matrices."""
    yield case(random, (1,), 3, 4, 2)


EXERCISE = Exercise(
    "Causal heads",
    level=3,
    minutes=30,
    needs=("multi_head", "causal_mask"),
    checks=(
        Check("values", "gives the right output", values, points=3),
        Check("edges", "takes any number of axes, heads and positions", edges, points=2),
        Check("large", "lets nothing leak through large scores", large),
        gradients_check("gradients", "lets gradients through", gradients),
        inputs_check(values),
    ),
    mistakes=(
        *mask_mistakes(
            "    weights = torch.softmax(scores.masked_fill(later, -math.inf), dim=-1)\n",
            "inverted mask",
            "zero taken for masked",
            "mask multiplied",
            "filled with −10⁹",
            make="mask = ~later",
        ),
        *axis_mistake("torch.softmax(scores.masked_fill(later, -math.inf), dim=-1)"),
        *heads_mistakes(
            (
                ".view(*front, length, heads, size).transpose(-3, -2)",
                ".view(*front, heads, length, size)",
            ),
            (
                "(weights @ split(value)).transpose(-3, -2).reshape(*front, length, width)",
                "(weights @ split(value)).reshape(*front, length, width)",
            ),
            ("math.sqrt(size)", "math.sqrt(width)"),
        ),
    ),
    banned=("scaled_dot_product_attention", "MultiheadAttention", "multi_head_attention_forward"),
)
