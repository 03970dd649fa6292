"""Cross-attention: the decoder looks into what the encoder has read."""

# %% [course]
import numpy as np
import torch as T

from attnlab.course.exercise import Case, Check, Exercise, Mistake
from attnlab.course.material.attention_mistakes import (
    mask_mistakes,
    plus_one_mistake,
    root_mistakes,
    swapped_mistake,
)
from attnlab.course.material.numpy_parts import attend_heads
from attnlab.course.material.tensors import as_tensors

# %% [markdown]
# # Cross-attention
#
# In self-attention a text looks at itself. In cross-attention one text looks at another: each token
# of the target, which is being written, looks things up in the source, which has been read. The
# target asks, the source answers. The picture shows one head: four target tokens look at six source
# tokens, the last two of which are PAD.
#
# ![weights](cross_attention.svg)
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


# %% [course]
PARTS = ("query", "key", "value", "output")


def oracle(state, target, source, heads, may):
    """Attend text by text and head by head."""
    outputs, weights = [], []
    for asking, read, mask in zip(target, source, may, strict=True):
        query, key, value = (
            rows @ state[f"{name}.weight"].T + state[f"{name}.bias"]
            for name, rows in (("query", asking), ("key", read), ("value", read))
        )
        allowed = np.broadcast_to(mask, (len(asking), len(read)))
        joined, own = attend_heads(query, key, value, heads, allowed)
        outputs.append(joined @ state["output.weight"].T + state["output.bias"])
        weights.append(own)
    return [T.from_numpy(np.array(outputs)), T.from_numpy(np.array(weights))]


def case(
    random,
    batch,
    queries,
    keys,
    heads=2,
    size=3,
    mask=None,
    scale=1.0,
    has_keys=True,
    is_doubled=False,
    **more,
):
    """Draw a layer, a target and a source; without keys, all scores are exactly 0."""
    width = heads * size
    state = {}
    for name in PARTS:
        state[f"{name}.weight"] = random.normal(size=(width, width)) / width**0.5
        state[f"{name}.bias"] = random.normal(size=width)
    for part in ("weight", "bias"):
        state[f"key.{part}"] *= has_keys
    target = random.normal(size=(batch, queries, width)) * scale
    source = random.normal(size=(batch, keys, width))
    if is_doubled:
        state["key.bias"] *= 0.0
        source[:, 1] = 2 * source[:, 0]
    may = np.ones((batch, keys), bool) if mask is None else np.array(mask)
    given = [target, source] if mask is None else [target, source, may]
    args = tuple(map(T.from_numpy, given))
    more.setdefault("expected", oracle(state, target, source, heads, may))
    if more.get("answer") == "inputs":
        more["expected"] = list(args)
    state = as_tensors(state)
    return Case("CrossAttention", args, build=((width, heads), {}), state=state, **more)


def one_head(random):
    """A single head."""
    yield case(random, 1, 1, 2, heads=1, size=2)
    yield case(random, 2, 3, 5, heads=1, size=4, words="with one head")


def several_heads(random):
    """Several heads of several columns."""
    yield case(random, 2, 3, 5, heads=3, size=2, words="with three heads")


def padded(random):
    """A mask for each text; as many queries as keys, so that a mask of the target also fits."""
    mask = [[True, True, True, False], [True, False, False, False]]
    yield case(random, 2, 4, 4, heads=1, mask=mask, words="with PAD in the sources")
    words = "with PAD in the sources, where all scores are exactly 0"
    yield case(random, 2, 4, 4, heads=1, mask=mask, has_keys=False, words=words)


def dead_rows(random):
    """A source that is PAD only."""
    mask = [[True, False, True], [False, False, False]]
    yield case(random, 2, 2, 3, heads=1, mask=mask, words="where the second source is PAD only")


def large_scores(random):
    """Scores far below what stands for minus infinity at times."""
    words = "with scores in the millions, masked, the second twice the first"
    mask = [[True, False, False]]
    yield case(random, 1, 17, 3, heads=1, mask=mask, scale=1e7, is_doubled=True, words=words)


def inputs_kept(random):
    """The inputs after the call."""
    mask = [[True, False]]
    yield case(random, 1, 3, 2, heads=1, mask=mask, answer="inputs")


def one_source(random):
    """A source of one token."""
    yield case(random, 1, 3, 1, heads=1, words="with a source of one token")


def draw_picture(names):
    """Draw one head with padding in the source."""
    from attnlab.draw.attention import draw_head

    T.manual_seed(4)
    layer = names["CrossAttention"](8, 2)
    target, source = T.randn(1, 4, 8) * 3, T.randn(1, 6, 8) * 3
    _, weights = layer(target, source, T.tensor([[True] * 4 + [False] * 2]))
    rows = [f"target {n + 1}" for n in range(4)]
    columns = [*(f"source {n + 1}" for n in range(4)), "PAD", "PAD"]
    return draw_head(weights[0].detach(), tokens=(rows, columns))


_ROOT = "/ math.sqrt(query.shape[-1])"
_MASKED = """        if source_mask is not None:
            scores = scores.masked_fill(~source_mask[:, None, None, :], -math.inf)
        weights = torch.softmax(scores, dim=-1)
        if source_mask is not None:
            weights = weights.nan_to_num(0.0)
"""
_SPLIT = "x.unflatten(-1, (self.heads, -1)).transpose(1, 2)"


def _masked(before, after):
    """Return the masked softmax with other scores and weights."""
    lines = f"""        if source_mask is not None:
            mask = source_mask[:, None, None, :]
            scores = {before or "scores"}
        weights = torch.softmax(scores, dim=-1)
"""
    if after:
        lines += f"        if source_mask is not None:\n            weights = {after}\n"
    return lines


EXERCISE = Exercise(
    "Cross-attention",
    level=3,
    minutes=25,
    needs=("multi_head", "padding_mask"),
    checks=(
        Check("one head", "lets the target look at the source", one_head, points=2),
        Check("heads", "gives each head its own columns", several_heads, points=2),
        Check("source mask", "keeps the padding of each source out", padded, points=2),
        Check("dead rows", "gives 0 where a source is PAD only", dead_rows, graded=True),
        Check("large scores", "masks exactly with large scores", large_scores, graded=True),
        Check("inputs", "leaves its inputs as they are", inputs_kept, graded=True),
        Check("one source token", "works with a source of one token", one_source, graded=True),
    ),
    mistakes=(
        Mistake(
            "target and source swapped",
            "query = self.split(self.query(target))\n        key = self.split(self.key(source))\n"
            "        value = self.split(self.value(source))",
            "query = self.split(self.query(source))\n        key = self.split(self.key(target))\n"
            "        value = self.split(self.value(target))",
            "Target and source are swapped: the source asks and the target answers. Queries come "
            "from the target.",
        ),
        Mistake(
            "self-attention",
            "self.key(source))\n        value = self.split(self.value(source))",
            "self.key(target))\n        value = self.split(self.value(target))",
            "Keys and values come from the target too, so it never sees the source.",
        ),
        Mistake(
            "values from the target",
            "self.value(source)",
            "self.value(target)",
            "The values come from the target. What is looked at and what is read are both the "
            "source.",
        ),
        Mistake(
            "mask of the target",
            "source_mask[:, None, None, :]",
            "source_mask[:, None, :, None]",
            "The mask lies along the queries, as if it were one of the target. It belongs to the "
            "keys.",
        ),
        *mask_mistakes(_MASKED, _masked, lowest=1e6),
        *root_mistakes(_ROOT, "query.shape[-1]", "query.shape[-2]", "key.shape[-2]"),
        plus_one_mistake(
            "torch.softmax(scores, dim=-1)",
            "scores.exp() / (1 + scores.exp().sum(dim=-1, keepdim=True))",
            "(grown := (scores - scores.amax(dim=-1, keepdim=True)).exp())"
            " / (1 + grown.sum(dim=-1, keepdim=True))",
        ),
        swapped_mistake("self.output(joined), weights", "weights, self.output(joined)"),
        Mistake(
            "softmax over the heads",
            "dim=-1)",
            "dim=1)",
            "The softmax runs over the heads, so they compete. The source's tokens must.",
        ),
        Mistake(
            "batch and heads mixed",
            "mixed.transpose(1, 2).flatten(2)",
            "mixed.transpose(0, 1).reshape(target.shape)",
            "Batch and heads change places where the heads are joined, so texts are mixed. The "
            "heads' axis must change places with the queries'.",
            also=(
                "mixed.permute(2, 0, 1, 3).reshape(target.shape)",
                "mixed.permute(1, 2, 0, 3).reshape(target.shape)",
                "mixed.permute(2, 1, 0, 3).reshape(target.shape)",
            ),
        ),
        Mistake(
            "scaled by the whole width",
            "math.sqrt(query.shape[-1])",
            "math.sqrt(query.shape[-1] * self.heads)",
            "The scores are divided by the root of the whole width; each head has only its part.",
        ),
        Mistake(
            "softmax over the queries",
            "dim=-1)",
            "dim=-2)",
            "The softmax runs over the queries: each column sums to 1 where each row should.",
        ),
        Mistake(
            "heads split without a transpose",
            _SPLIT,
            "x.reshape(x.shape[0], self.heads, x.shape[1], -1)",
            "The heads are cut out with one reshape, which mixes positions and columns. First "
            "split the width, then move the heads in front.",
        ),
        Mistake(
            "heads take turns",
            _SPLIT,
            "x.unflatten(-1, (-1, self.heads)).permute(0, 3, 1, 2)",
            "Each head takes every so-manyth column; neighboring columns belong together.",
        ),
        Mistake(
            "heads joined without a transpose",
            "mixed.transpose(1, 2).flatten(2)",
            "mixed.reshape(target.shape)",
            "The heads are joined with one reshape, which mixes positions. First move the heads "
            "back behind the positions.",
        ),
        Mistake(
            "no output projection",
            "return self.output(joined), weights",
            "return joined, weights",
            "The joined heads do not go through `output`.",
        ),
        Mistake(
            "heads averaged",
            "self.output(joined), weights",
            "self.output(joined), weights.mean(dim=1)",
            "The weights are averaged over the heads; each head is wanted by itself.",
        ),
        Mistake(
            "target changed in place",
            "query = self.split(self.query(target))",
            "query = self.split(self.query(target))\n        target *= 0",
            "The target is changed in place. It belongs to the caller.",
        ),
    ),
    hints=(
        "Who asks here, and who has the answers? Which of the three projections belongs to whom?",
        "It is the attention you know, with two lengths: the scores are (batch, head, queries, "
        "keys), one row for each target token.",
        "The mask (batch, keys) must meet (batch, head, queries, keys): give it two new axes of "
        "size 1 in the middle.",
        "Project; split into heads; scaled scores; minus infinity where the source is masked; "
        "softmax over the keys; zeros for rows without any; mix the values; join; `output`.",
    ),
    banned=("scaled_dot_product_attention", "MultiheadAttention", "multi_head_attention_forward"),
    picture=draw_picture,
)
