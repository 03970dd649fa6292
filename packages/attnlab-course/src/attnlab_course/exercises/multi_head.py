"""Multi-head attention as a module."""

# %% [course]
import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.attention_mistakes import (
    axis_mistake,
    heads_mistakes,
    mask_mistakes,
    power_mistake,
    root_mistakes,
)
from attnlab_course.material.tensors import sample_state, mask_check, parameters_check

# %% [markdown]
# # Several heads
#
# One softmax has one mean to give. With several heads a layer attends to several things at once:
# queries, keys and values are cut into as many parts as there are heads, each part attends by
# itself, and the results are put side by side and mixed. The picture shows what two heads of an
# untrained layer do with the same five vectors.
#
# ![two heads](multi_head.svg)
#
# **Write** `MultiHead(width, heads)`, a `torch.nn.Module` that is called with `(x, mask=None)` and
# returns the output and the weights.
#
# | | shape |
# | --- | --- |
# | `x` | (batch, length, width) |
# | `mask` | (length, length), or (batch, length, length), boolean; **True = may attend** |
# | output | (batch, length, width) |
# | weights | (batch, heads, length, length): batch, head, query, key |
#
# * It has four linear layers from width to width, all with bias: `query`, `key`, `value` and
#   `output`, by these names (so `query.weight`, `query.bias` and so on), and no other parameters.
# * Each head is `size` = width / heads wide. Head 0 has the first `size` columns of queries, keys
#   and values, head 1 the next ones, and so on. The heads' results are in the same order before
#   `output` mixes them.
# * Scores are divided by √size.
# * The mask is the same for all heads; one with three axes has one matrix for each of the batch.
# * A masked key gets the weight 0. A query that may attend to no key gets weights of 0, so the
#   mean of its values is 0, never NaN.
# * Where `heads` does not divide `width`, `MultiHead(width, heads)` raises a `ValueError`.
#
# Do not call PyTorch's own attention.

# %%
import math

import torch
from torch import nn


class MultiHead(nn.Module):
    """Attention of several heads side by side."""

    def __init__(self, width, heads):
        super().__init__()
        # >>> solution
        if width % heads:
            raise ValueError(f"{heads} heads do not divide a width of {width}")
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        # <<< solution

    def forward(self, x, mask=None):
        """Return the output and the weights of every head."""
        # >>> solution
        batch, length, width = x.shape
        size = width // self.heads

        def split(vectors):
            return vectors.view(batch, length, self.heads, size).transpose(1, 2)

        query, key, value = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = query @ key.transpose(-2, -1) / math.sqrt(size)
        if mask is not None:
            mask = mask if mask.ndim == 2 else mask[:, None]
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, dim=-1)
        if mask is not None:
            weights = weights.masked_fill(~mask, 0.0)
        mixed = (weights @ value).transpose(1, 2).reshape(batch, length, width)
        return self.output(mixed), weights
        # <<< solution


# %% [hints]
# 1. Two heads, width 6: which columns of a query belong to the second head, for every position?
# 2. All heads can be computed at once if the head is an axis of its own, in front of the length.
#    Which order of axes do you have after a view, and which do you need?
# 3. (batch, length, width) → (batch, length, heads, size) → (batch, heads, length, size); scores
#    (batch, heads, length, length); and the same way back, transpose first.
# 4. A mask (batch, length, length) needs an axis for the heads: (batch, 1, length, length). Then
#    attention as you have written it, and the layer `output` over the merged heads.


# %% [mistakes]
# Of homework, and of common copies of multi-head attention.
# ## batch and heads mixed: Batch and heads change places where the heads are put together, so texts
# are mixed. The heads' axis must change places with the length.
# - (weights @ value).transpose(1, 2).reshape(batch, length, width)
# + (weights @ value).transpose(0, 1).reshape(batch, length, width)
# or
# + (weights @ value).permute(2, 0, 1, 3).reshape(batch, length, width)
# ## softmax over heads: The softmax runs over the heads, so they compete. The keys must.
# - torch.softmax(scores, dim=-1)
# + torch.softmax(scores, dim=1)
# ## heads interleaved: A head gets every second or third column, as the columns are cut into (size,
# heads). Its columns are neighbors: cut them into (heads, size).
# - vectors.view(batch, length, self.heads, size).transpose(1, 2)
# - …
# - (weights @ value).transpose(1, 2).reshape(batch, length, width)
# + vectors.view(batch, length, size, self.heads).permute(0, 3, 1, 2)
# + …
# + (weights @ value).permute(0, 2, 3, 1).reshape(batch, length, width)
# or
# - vectors.view(batch, length, self.heads, size).transpose(1, 2)
# + vectors.view(batch, length, size, self.heads).permute(0, 3, 1, 2)
# ## mask without heads: A mask with three axes meets (batch, heads, length, length) without an axis
# for the heads, so its axis of the batch is taken for theirs.
# -             mask = mask if mask.ndim == 2 else mask[:, None]
# ## mean over heads: The weights are the mean over the heads. Each head has weights of its own.
# - return self.output(mixed), weights
# + return self.output(mixed), weights.mean(dim=1)


# %% [course]
def case(random, batch, length, width, heads, mask=None, has_keys=True, words=""):
    """Sample parameters and inputs; without keys, all scores are exactly 0."""
    state = sample_state(random, MultiHead(width, heads), scale=0.6)
    for part in ("weight", "bias"):
        state[f"key.{part}"] *= has_keys
    x = random.normal(size=(batch, length, width))
    return Case(
        "MultiHead",
        tuple(T.from_numpy(array) for array in (x, mask) if array is not None),
        build=((width, heads), {}),
        state=state,
        words=words,
    )


def values(random):
    """Several heads without a mask."""
    yield case(random, 1, 2, 4, 2)
    yield case(random, 2, 3, 10, 5)
    yield case(random, 3, 5, 8, 2)


def edges(random):
    """One head, heads of width 1, one position."""
    yield case(random, 1, 3, 4, 1, words="with one head")
    yield case(random, 2, 3, 4, 4, words="with as many heads as columns")
    yield case(random, 1, 1, 6, 3, words="with one position")


def some_mask(random, *shape):
    """Sample a mask that leaves every query one key and takes one from the first."""
    mask = random.random(shape) < 0.5
    mask[..., 1] = True
    mask[..., 0, 0] = False
    return mask


def masked(random):
    """A mask for the whole batch."""
    yield case(random, 1, 2, 4, 2, some_mask(random, 2, 2))
    yield case(random, 2, 4, 6, 3, some_mask(random, 4, 4))
    words = "where all scores are exactly 0"
    yield case(random, 2, 4, 6, 3, some_mask(random, 4, 4), has_keys=False, words=words)


def mask_per_batch(random):
    """A mask for each of the batch, also where there are as many heads as texts."""
    for batch, heads in ((2, 2), (3, 2), (3, 3)):
        mask = some_mask(random, batch, 4, 4)
        mask[1, 0] = ~mask[0, 0]
        mask[1, 0, 2] = True
        words = f"with a mask for each of the batch of {batch}"
        yield case(random, batch, 4, 6, heads, mask, words=words)


def dead_rows(random):
    """A query that may attend to no key."""
    mask = np.ones((3, 3), bool)
    mask[1] = False
    yield case(random, 2, 3, 4, 2, mask, words="where the second query may attend to no key")


def not_divisible(random):
    """Heads that do not divide the width."""
    for width, heads in ((4, 3), (7, 2)):
        build = ((width, heads), {})
        yield Case("MultiHead", build=build, answer="parameters", raises=("ValueError",))


def draw_picture(names):
    """Draw the weights of two heads of an untrained layer."""
    from attnlab.draw.attention import draw_heads

    with T.random.fork_rng(devices=[]):
        T.manual_seed(4)
        layer = names["MultiHead"](8, 2)
        x = T.randn(1, 5, 8) * 3
    with T.no_grad():
        weights = layer(x)[1]
    return draw_heads({"layers.0.attention.weights": weights})


_MERGE = "(weights @ value).transpose(1, 2).reshape(batch, length, width)"
_ROOT = "/ math.sqrt(size)"
_MAKE = "mask = mask if mask.ndim == 2 else mask[:, None]"
_MASKED = f"""        if mask is not None:
            {_MAKE}
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, dim=-1)
        if mask is not None:
            weights = weights.masked_fill(~mask, 0.0)
"""


EXERCISE = Exercise(
    "Several heads",
    level=3,
    minutes=40,
    needs=("attention", "causal_mask"),
    checks=(
        Check("values", "gives the right output and weights", values, points=3),
        parameters_check("has the four layers by their names", "MultiHead", (4, 2), (6, 3)),
        mask_check("mask", "keeps masked keys out of every head", masked, points=2),
        Check("mask per batch", "takes a mask for each of the batch", mask_per_batch),
        mask_check("dead rows", "gives 0 where a query sees no key", dead_rows),
        Check("edges", "works with one head, narrow heads, one position", edges),
        Check("division", "refuses heads that do not divide the width", not_divisible),
    ),
    mistakes=(
        *heads_mistakes(
            (
                "vectors.view(batch, length, self.heads, size).transpose(1, 2)",
                "vectors.view(batch, self.heads, length, size)",
            ),
            (_MERGE, "(weights @ value).reshape(batch, length, width)"),
            (_ROOT, "/ math.sqrt(width)"),
        ),
        *root_mistakes(_ROOT, "size", "length")[2:],
        *power_mistake(_ROOT, "size"),
        *mask_mistakes(_MASKED, guard="mask is not None", make=_MAKE),
        *axis_mistake("torch.softmax(scores, dim=-1)"),
    ),
    banned=("scaled_dot_product_attention", "MultiheadAttention", "multi_head_attention_forward"),
    picture=draw_picture,
    results=("output", "weights"),
)
