"""Cross-attention: the decoder looks into what the encoder has read."""

# %% [course]
import torch as T

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.attention_mistakes import axis_mistake, heads_mistakes, mask_mistakes
from attnlab_course.material.tensors import inputs_check, parameters_check, sample_state

# %% [markdown]
# # Cross-attention
#
# In self-attention a text looks at itself. In cross-attention one text looks at another: each token
# of the target, which is being written, looks things up in the source, which has been read. The
# target asks, the source answers.
#
# **Write** the class `CrossAttention(width, heads)`. Its parts are four `nn.Linear(width, width)`
# with biases, named `query`, `key`, `value` and `output`. Called as
# `layer(target, source, source_mask=None)` it returns the output and the weights.
#
# | | shape |
# | --- | --- |
# | `target` | (batch, queries, width) |
# | `source` | (batch, keys, width); its length may differ from the target's |
# | `source_mask` | (batch, keys), boolean; **True = may attend**; None: all may be attended to |
# | output | (batch, queries, width) |
# | weights | (batch, head, queries, keys) |
#
# * Queries are made from the target, keys and values from the source.
# * Head number h has the h-th `width / heads` neighboring columns of queries, keys and values. The
#   scores are divided by the root of a head's width.
# * The mask has a row for each text and no axis of heads or queries: it holds for all of them.
# * A masked source token gets the weight 0, exactly, also when scores are in the millions.
# * If a text's source is masked as a whole, its weights are 0, and its output is what `output`
#   makes of zeros; never NaN.
# * The heads are put side by side again, in order, and go through `output`.
#
# Do not call PyTorch's own attention.

# %%
import math

import torch
from torch import nn


class CrossAttention(nn.Module):
    """Let target tokens attend to source tokens."""

    def __init__(self, width, heads):
        super().__init__()
        # >>> solution
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        # <<< solution

    def forward(self, target, source, source_mask=None):
        """Return the output and the weights (batch, head, queries, keys)."""
        # >>> solution
        query = self.split(self.query(target))
        key = self.split(self.key(source))
        value = self.split(self.value(source))
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        if source_mask is not None:
            scores = scores.masked_fill(~source_mask[:, None, None, :], -math.inf)
        weights = torch.softmax(scores, dim=-1)
        if source_mask is not None:
            weights = weights.nan_to_num(0.0)
        mixed = weights @ value
        joined = mixed.transpose(1, 2).flatten(2)
        return self.output(joined), weights

    def split(self, x):
        """Turn (batch, length, width) into (batch, head, length, width of a head)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        # <<< solution


# %% [hints]
# 1. Who asks here, and who has the answers? Which of the three projections belongs to whom?
# 2. It is the attention you know, with two lengths: the scores are (batch, head, queries, keys),
#    one row for each target token.
# 3. The mask (batch, keys) must meet (batch, head, queries, keys): give it two new axes of size
#    1 in the middle.
# 4. Project; split into heads; scaled scores; minus infinity where the source is masked; softmax
#    over the keys; zeros for rows without any; mix the values; join; `output`.


# %% [mistakes]
# ## target and source swapped: Target and source are swapped: the source asks and the target
# answers. Queries come from the target.
# -         query = self.split(self.query(target))
# -         key = self.split(self.key(source))
# -         value = self.split(self.value(source))
# +         query = self.split(self.query(source))
# +         key = self.split(self.key(target))
# +         value = self.split(self.value(target))
# ## mask of the target: The mask lies along the queries, as if it were one of the target. It
# belongs to the keys.
# - source_mask[:, None, None, :]
# + source_mask[:, None, :, None]


# %% [course]
def case(random, batch, queries, keys, heads=1, size=3, mask=None, change=None, words=""):
    """Sample a layer, a target and a source, which `change` may alter."""
    width = heads * size
    state = sample_state(random, CrossAttention(width, heads), width**-0.5)
    target, source = (random.normal(size=(batch, length, width)) for length in (queries, keys))
    if change is not None:
        change(state, target, source)
    args = [T.from_numpy(target), T.from_numpy(source)]
    return Case(
        "CrossAttention",
        tuple(args if mask is None else [*args, T.tensor(mask)]),
        build=((width, heads), {}),
        state=state,
        words=words,
    )


def one_head(random):
    """A single head."""
    yield case(random, 1, 1, 2, size=2)
    yield case(random, 2, 3, 5, size=4)
    yield case(random, 1, 3, 1, words="with a source of one token")


def several_heads(random):
    """Several heads of several columns."""
    yield case(random, 2, 3, 5, heads=3, size=2, words="with three heads")


def without_keys(state, target, source):
    """Make all scores exactly 0."""
    state["key.weight"] *= 0.0
    state["key.bias"] *= 0.0


def large_and_doubled(state, target, source):
    """Make scores of millions, the second twice the first."""
    target *= 1e7
    state["key.bias"] *= 0.0
    source[:, 1] = 2 * source[:, 0]


def padded(random):
    """A mask for each text; as many queries as keys, so that a mask of the target also fits."""
    mask = [[True, True, True, False], [True, False, False, False]]
    yield case(random, 2, 4, 4, mask=mask, words="with PAD in the sources")
    words = "with PAD in the sources, where all scores are exactly 0"
    yield case(random, 2, 4, 4, mask=mask, change=without_keys, words=words)


def dead_rows(random):
    """A source that is PAD only."""
    mask = [[True, False, True], [False, False, False]]
    yield case(random, 2, 2, 3, mask=mask, words="where the second source is PAD only")


def large_scores(random):
    """Scores far below what stands for minus infinity at times."""
    words = "with scores in the millions, masked, the second twice the first"
    mask = [[True, False, False]]
    yield case(random, 1, 17, 3, mask=mask, change=large_and_doubled, words=words)


_MASKED = """        if source_mask is not None:
            scores = scores.masked_fill(~source_mask[:, None, None, :], -math.inf)
        weights = torch.softmax(scores, dim=-1)
        if source_mask is not None:
            weights = weights.nan_to_num(0.0)
"""


EXERCISE = Exercise(
    "Cross-attention",
    level=3,
    minutes=25,
    needs=("multi_head", "padding_mask"),
    checks=(
        Check("one head", "lets the target look at the source", one_head, points=2),
        Check("heads", "gives each head its own columns", several_heads, points=2),
        Check("source mask", "keeps the padding of each source out", padded, points=2),
        Check("dead rows", "gives 0 where a source is PAD only", dead_rows),
        Check("large scores", "masks exactly with large scores", large_scores),
        parameters_check("has the four layers by their names", "CrossAttention", (4, 2), (6, 3)),
        inputs_check(padded),
    ),
    mistakes=(
        *mask_mistakes(
            _MASKED,
            guard="source_mask is not None",
            make="mask = source_mask[:, None, None, :]",
        ),
        *axis_mistake("torch.softmax(scores, dim=-1)"),
        *heads_mistakes(
            (
                "x.unflatten(-1, (self.heads, -1)).transpose(1, 2)",
                "x.reshape(x.shape[0], self.heads, x.shape[1], -1)",
            ),
            ("mixed.transpose(1, 2).flatten(2)", "mixed.reshape(target.shape)"),
            ("math.sqrt(query.shape[-1])", "math.sqrt(query.shape[-1] * self.heads)"),
        ),
    ),
    banned=("scaled_dot_product_attention", "MultiheadAttention", "multi_head_attention_forward"),
    results=("output", "weights"),
)
