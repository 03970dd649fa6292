"""Scaled dot-product attention with a mask."""

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
from attnlab.course.material.numpy_parts import numeric_gradients

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


# %% [course]
def oracle(query, key, value, mask=None):
    """Compute attention in plain loops over NumPy arrays, one query at a time."""
    batch, queries, width = query.shape
    weights = np.zeros((batch, queries, key.shape[1]))
    output = np.zeros((batch, queries, value.shape[2]))
    for b in range(batch):
        for q in range(queries):
            may = np.ones(key.shape[1], bool)
            if mask is not None:
                may = mask[q] if mask.ndim == 2 else mask[b, q]
            if may.any():
                scores = np.array([query[b, q] @ k for k in key[b][may]]) / width**0.5
                grown = np.exp(scores - scores.max())
                weights[b, q, may] = grown / grown.sum()
                output[b, q] = weights[b, q] @ value[b]
    return output, weights


def case(query, key, value, mask=None, dtype="float32", **more):
    """Compute what attention gives; the arrays are rounded to the dtype first."""
    arrays = [each.astype(dtype) for each in (query, key, value)]
    expected = oracle(*(each.astype(float) for each in arrays), mask)
    given = list(map(T.from_numpy, arrays))
    if mask is not None:
        given.append(T.from_numpy(mask))
    expected = [T.from_numpy(each.astype(dtype)) for each in expected]
    return Case("attention", tuple(given), **{"expected": expected, "tolerance": 1e-5, **more})


def draw(random, batch, queries, keys, width, value_width):
    """Draw query, key and value."""
    shapes = ((queries, width), (keys, width), (keys, value_width))
    return [random.normal(size=(batch, *shape)) for shape in shapes]


def values(random):
    """Sizes that all differ, and one position alone."""
    yield case(*draw(random, 1, 1, 1, 3, 2), words="with one query and one key")
    yield case(*draw(random, 1, 2, 3, 4, 5))
    yield case(*draw(random, 2, 5, 3, 7, 4))


def masked(random):
    """Masks that leave each query the first key, shared by the batch."""
    for queries, keys in ((2, 3), (4, 6)):
        mask = random.random((queries, keys)) < 0.5
        mask[:, 0] = True
        mask[0, 1] = False
        yield case(*draw(random, 2, queries, keys, 3, 2), mask)
    query, key, value = draw(random, 1, 2, 3, 4, 2)
    key[:, 0] = 0.0
    words = "where a key that is not masked has a score of exactly 0"
    yield case(query, key, value, np.array([[True, True, False], [True, False, True]]), words=words)


def mask_each(random):
    """A mask for each element of the batch."""
    mask = random.random((3, 4, 5)) < 0.5
    mask[..., 2] = True
    mask[1, 0] = ~mask[0, 0]
    mask[1, 0, 2] = True
    yield case(*draw(random, 3, 4, 5, 3, 2), mask, words="with a mask for each of the batch")


def dead_rows(random):
    """A query that may attend to no key."""
    mask = np.ones((3, 4), bool)
    mask[1] = False
    given = draw(random, 2, 3, 4, 3, 2)
    yield case(*given, mask, words="where the second query may attend to no key")


def large_scores(random):
    """Scores so large that an unguarded exponential overflows; whole numbers, so exact ones."""

    def whole(queries, keys, large):
        query, key, value = draw(random, 1, queries, keys, 4, 2)
        query = random.integers(1, 9, size=query.shape) * large
        key = -random.integers(2, 9, size=key.shape)
        key[:, 0] = -1  # so the first key, which a query may not attend to, has the largest score
        return query, key, value

    yield case(*whole(3, 5, 2.0**11), words="with scores of some thousands")
    mask = np.array([[False, True, True], [True, False, True]])
    yield case(*whole(2, 3, 2.0**20), mask, words="with scores of about −10⁷, masked")
    yield case(*whole(2, 3, 2.0**40), mask, words="with scores of about −10¹³, masked")


def gradients(random):
    """What flows back, also where a query may attend to no key."""
    for mask in (None, np.array([[True, False, True], [False, False, False]])):
        arrays = [each.astype("float32") for each in draw(random, 1, 2, 3, 4, 2)]
        slopes = numeric_gradients(lambda *given, mask=mask: oracle(*given, mask)[0], arrays)
        expected = [T.from_numpy(each.astype("float32")) for each in slopes]
        words = "" if mask is None else "where the second query may attend to no key"
        more = {"answer": "gradients", "words": f"{words} (its gradients)".strip()}
        yield case(*arrays, mask, expected=expected, **{**more, "tolerance": 1e-4})


def dtypes(random):
    """Inputs of float64."""
    yield case(*draw(random, 1, 2, 3, 4, 2), dtype="float64", words="with float64")


def inputs_kept(random):
    """The inputs after the call."""
    made = case(*draw(random, 1, 2, 2, 3, 2), np.array([[True, False], [True, True]]))
    words = "(its inputs, after the call)"
    yield Case("attention", made.args, expected=list(made.args), answer="inputs", words=words)


def draw_picture(names):
    """Draw the weights of six queries on five keys."""
    from attnlab.draw.attention import draw_head

    random = np.random.default_rng(3)
    query, key = (T.from_numpy(random.normal(size=(1, n, 4)) * 1.5) for n in (6, 5))
    weights = names["attention"](query, key, key)[1][0]
    return draw_head(weights, tokens=([f"q{n}" for n in range(6)], [f"k{n}" for n in range(5)]))


_ROOT = "/ math.sqrt(query.shape[-1])"
_FILL = "scores.masked_fill(~mask, -math.inf)"
_SOFTMAX = "torch.softmax(scores, dim=-1)"
_ZEROED = "weights.masked_fill(~mask, 0.0)"
_ANSWER = "weights @ value, weights\n"
_MASKED = f"""    if mask is not None:
        scores = {_FILL}
    weights = {_SOFTMAX}
    if mask is not None:  # for a query that may attend to no key
        weights = {_ZEROED}
"""


def _masked(before, after):
    """Return the masked softmax with other lines before and after the softmax."""
    text = f"    weights = {_SOFTMAX}\n"
    if before:
        text = f"    if mask is not None:\n        scores = {before}\n" + text
    if after:
        text += f"    if mask is not None:\n        weights = {after}\n"
    return text


_MISTAKES = (
    *root_mistakes(_ROOT, "query.shape[-1]", "query.shape[-2]", "key.shape[-2]"),
    *mask_mistakes(_MASKED, _masked, lowest=1e12),
    plus_one_mistake(
        _SOFTMAX,
        "scores.exp() / (1 + scores.exp().sum(dim=-1, keepdim=True))",
        "(grown := (scores - scores.amax(dim=-1, keepdim=True)).exp())"
        " / (1 + grown.sum(dim=-1, keepdim=True))",
    ),
    swapped_mistake(_ANSWER, "weights, weights @ value\n"),
    Mistake(
        "scaled after the softmax",
        _MASKED,
        _masked(_FILL.replace("scores", "(scores * math.sqrt(query.shape[-1]))"), _ZEROED)
        + "    weights = weights / math.sqrt(query.shape[-1])\n",
        "The weights are divided by √width after the softmax, so they no longer sum to 1. The "
        "scores must be divided before it.",
    ),
    Mistake(
        "scaled by the value width",
        _ROOT,
        "/ math.sqrt(value.shape[-1])",
        "The scores are divided by the root of the values' width; it must be the width of queries "
        "and keys.",
    ),
    Mistake(
        "softmax over queries",
        _SOFTMAX,
        "torch.softmax(scores, dim=-2)",
        "The softmax runs over the queries: the columns sum to 1. Each query's row must.",
    ),
    Mistake(
        "softmax over the batch",
        _SOFTMAX,
        "torch.softmax(scores, dim=0)",
        "The softmax runs over the batch, so its elements compete. The keys must.",
    ),
    Mistake(
        "NaN in the gradients",
        _MASKED,
        _masked(
            "scores + torch.zeros(mask.shape).to(scores).masked_fill(~mask, -math.inf)",
            "torch.nan_to_num(weights)",
        ),
        "The NaN of a query that may attend to no key is replaced after the softmax, and comes "
        "back in the gradients. It must not arise in the first place.",
    ),
    Mistake(
        "mask of the first",
        _FILL,
        f"{_FILL.replace('~mask', '~(mask if mask.ndim == 2 else mask[0])')}",
        "All elements of the batch get the mask of the first.",
    ),
    Mistake(
        "inputs changed",
        "query @ key",
        "query.div_(math.sqrt(query.shape[-1])) * math.sqrt(query.shape[-1]) @ key",
        "The query is changed in place: the caller's tensor is another one after the call.",
    ),
    Mistake(
        "always float32",
        _ANSWER,
        "(weights @ value).float(), weights.float()\n",
        "The answer is float32 whatever comes in; it should keep the dtype of the inputs.",
    ),
    Mistake(
        "gradient lost",
        _ANSWER,
        "weights.detach() @ value, weights\n",
        "No gradient flows back to query and key: the weights are cut off from them.",
    ),
    Mistake(
        "scores returned",
        _ANSWER,
        "weights @ value, scores\n",
        "The scores are returned in place of the weights.",
    ),
)


EXERCISE = Exercise(
    "Scaled dot-product attention",
    level=1,
    minutes=25,
    needs=("softmax",),
    checks=(
        Check("values", "gives the right output and weights", values, points=3),
        Check("mask", "keeps masked keys out", masked, points=2),
        Check("mask per batch", "takes a mask for each element of the batch", mask_each),
        Check("dead rows", "gives 0 where a query may attend to no key", dead_rows, graded=True),
        Check("large scores", "is right with large scores", large_scores, graded=True),
        Check("gradients", "gives gradients, without NaN", gradients, graded=True),
        Check("dtype", "keeps the dtype of its inputs", dtypes, graded=True),
        Check("inputs", "leaves its inputs as they are", inputs_kept, graded=True),
    ),
    mistakes=_MISTAKES,
    hints=(
        "Which two shapes must be multiplied so that each query meets each key?",
        "Three steps: scores of shape (batch, queries, keys); softmax over one of these axes; "
        "then a product with the values.",
        "Divide by the root of the last size of `query`, and mask before the softmax: what must a "
        "score be so that its exponential is 0?",
        "Fill masked scores with −∞, take the softmax over the keys, and set masked weights to 0 "
        "once more. For which queries does the last step matter?",
    ),
    banned=("scaled_dot_product_attention", "MultiheadAttention", "multi_head_attention_forward"),
    picture=draw_picture,
)
