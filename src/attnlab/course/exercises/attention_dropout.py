"""Attention with any axes in front, dropout on its weights, and half precision."""

# %% [course]
import numpy as np
import torch as T

from attnlab.course.exercise import Case, Check, Exercise, Failure, Mistake
from attnlab.course.material.attention_mistakes import (
    mask_mistakes,
    plus_one_mistake,
    root_mistakes,
    swapped_mistake,
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


# %% [course]
def oracle(query, key, value, mask=None):
    """Compute attention in plain loops, one query at a time, whatever axes are in front."""
    *front, queries, width = query.shape
    weights = np.zeros((*front, queries, key.shape[-2]))
    may = np.broadcast_to(True if mask is None else mask, weights.shape)
    output = np.zeros((*front, queries, value.shape[-1]))
    for place in np.ndindex(*front, queries):
        outer = place[:-1]
        scores = np.array([query[place] @ each for each in key[outer]]) / width**0.5
        if may[place].any():
            scores = np.where(may[place], scores, -np.inf)
            grown = np.exp(scores - scores.max())
            weights[place] = grown / grown.sum()
            output[place] = weights[place] @ value[outer]
    return output, weights


def case(random, front, sizes, mask=None, dtype=np.float64, low=False, zero_key=False, **more):
    """Draw query, key and value for sizes (queries, keys, width, value width)."""
    queries, keys, width, value_width = sizes
    shapes = (queries, width), (keys, width), (keys, value_width)
    drawn = [random.normal(size=(*front, *shape)).astype(dtype) for shape in shapes]
    if zero_key:
        drawn[1][..., 0, :] = 0.0
    if low:
        drawn[0], drawn[1] = -1e6 - 1e6 * np.abs(drawn[0]), 1 + np.abs(drawn[1])
    expected = oracle(*(each.astype(np.float64) for each in drawn), mask)
    given = {"expected": [T.from_numpy(each.astype(dtype)) for each in expected], **more}
    args = list(map(T.from_numpy, drawn))
    if mask is not None:
        args.append(T.from_numpy(mask))
    return Case("attention", tuple(args), **given)


def open_mask(random, *shape):
    """Draw a mask that leaves each query the first key and takes the second from the first."""
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


def masked(random):
    """Masks that broadcast."""
    yield case(random, (2,), (3, 4, 5, 2), open_mask(random, 3, 4))
    words = "where a key that is not masked has a score of exactly 0"
    yield case(random, (2,), (3, 4, 5, 2), open_mask(random, 3, 4), zero_key=True, words=words)
    words = "with a mask of shape (batch, 1, 1, keys)"
    yield case(random, (2, 3), (4, 5, 3, 2), open_mask(random, 2, 1, 1, 5), words=words)


def dead_rows(random):
    """A query that may attend to no key."""
    mask = np.ones((3, 4), bool)
    mask[1] = False
    yield case(random, (2,), (3, 4, 3, 2), mask, words="where the second query sees no key")


def all_dropped(random):
    """Chances for which there is one answer: 1, and one at which nothing is dropped."""
    for front, sizes in (((1,), (1, 2, 3, 2)), ((2, 3), (2, 5, 3, 4))):
        made = case(random, front, sizes)
        expected = [T.zeros_like(made.expected[0]), made.expected[1]]
        words = "with dropout 1"
        yield Case("attention", made.args, {"dropout": 1.0}, expected=expected, words=words)
        settings, words = {"dropout": 1e-12}, "with a dropout of nearly 0"
        yield case(random, front, sizes, settings=settings, words=words)


def judge_dropped(weights, answer):
    """Judge an output that holds the used weights twice, side by side."""
    keys = weights.shape[-1]
    shapes = [(*weights.shape[:-1], 2 * keys), weights.shape]
    if not isinstance(answer, list) or [tuple(getattr(a, "shape", ())) for a in answer] != shapes:
        return Failure(f"expected two tensors, of the shapes {shapes[0]} and {shapes[1]}")
    used, shown = (each.numpy() for each in answer)
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
    if np.allclose(first, np.where(gone, 0, weights)):
        return Failure("the weights that stay are not made larger", "not made larger")
    if not np.allclose(first, np.where(gone, 0, weights / 0.75)):
        return Failure("the weights that stay must be those without dropout, / (1 − dropout)")
    return None


def shares(random):
    """Values that make the output show the used weights."""
    queries, keys = 47, 29
    drawn = [random.normal(size=(1, size, 3)) for size in (queries, keys)]
    value = np.concatenate([np.eye(keys)] * 2, axis=1)[None]
    _, weights = oracle(*drawn, value)
    args = tuple(map(T.from_numpy, (*drawn, value)))
    yield Case(
        "attention", args, {"dropout": 0.25}, words="with dropout 1 in 4",
        judge=lambda answer: judge_dropped(weights, answer),
    )  # fmt: skip


def half(random):
    """Half precision, masked."""
    more = {"tolerance": 5e-3, "words": "in float16"}
    yield case(random, (2,), (3, 4, 5, 2), open_mask(random, 3, 4), np.float16, **more)


def low_scores(random):
    """Scores far below a small stand-in for minus infinity."""
    mask = open_mask(random, 3, 4)
    words = "with scores of about minus a million, masked"
    yield case(random, (2,), (3, 4, 5, 2), mask, low=True, words=words)


def inputs_kept(random):
    """The inputs after the call."""
    made = case(random, (2,), (3, 4, 5, 2), open_mask(random, 3, 4))
    yield Case("attention", made.args, expected=list(made.args), answer="inputs")


def draw_picture(names):
    """Draw the whole weights and the used ones."""
    from attnlab.draw.pictures.look import new_figure
    from attnlab.draw.pictures.maps import draw_map
    from attnlab.draw.sections import Heatmap

    random = np.random.default_rng(4)
    query, key = (T.from_numpy(random.normal(size=(1, 6, 4))) for _ in range(2))
    T.manual_seed(2)
    used, shown = names["attention"](query, key, T.eye(6).double()[None], dropout=0.3)
    figure = new_figure(6.4, 3.0)
    places = list(map(str, range(6)))
    for number, (title, rows) in enumerate((("returned", shown), ("used", used))):
        shades = Heatmap.of_weights(title, rows[0].clamp(max=1).tolist(), places, places)
        draw_map(figure.add_subplot(1, 2, number + 1), shades)
    return figure


_ROOT = "/ math.sqrt(query.shape[-1])"
_SOFTMAX = "torch.softmax(scores, dim=-1)"
_MASKED = f"""    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = {_SOFTMAX}
    if mask is not None:
        weights = torch.nan_to_num(weights, nan=0.0)
"""
_DROP = "torch.nn.functional.dropout(weights, dropout)"
_RETURN = "return used @ value, weights"


def _masked(before, after):
    """Return the masked softmax with other scores and weights."""
    lines = f"    if mask is not None:\n        scores = {before}\n" if before else ""
    lines += f"    weights = {_SOFTMAX}\n"
    return lines + (f"    if mask is not None:\n        weights = {after}\n" if after else "")


EXERCISE = Exercise(
    "Attention with dropout",
    level=2,
    minutes=25,
    needs=("attention",),
    checks=(
        Check("values", "gives the right output and weights", values, points=2),
        Check("axes", "takes any axes in front", fronts),
        Check("mask", "takes masks that broadcast", masked, points=2),
        Check("all dropped", "drops all with dropout 1, and nothing with nearly 0", all_dropped),
        Check("shares", "drops each weight by itself, and shows none", shares, 2, graded=True),
        Check("dead rows", "gives 0 where a query sees no key", dead_rows, graded=True),
        Check("half", "works in half precision", half, graded=True),
        Check("low scores", "keeps masked keys out when scores are low", low_scores, graded=True),
        Check("inputs", "leaves its inputs as they are", inputs_kept, graded=True),
    ),
    mistakes=(
        *root_mistakes(_ROOT, "query.shape[-1]", "query.shape[-2]", "key.shape[-2]"),
        *mask_mistakes(
            _MASKED, _masked, lowest=1e6, leave_out=("mask after the softmax, rescaled",)
        ),
        plus_one_mistake(
            _SOFTMAX,
            "scores.exp() / (1 + scores.exp().sum(dim=-1, keepdim=True))",
            "(grown := (scores - scores.amax(dim=-1, keepdim=True)).exp())"
            " / (1 + grown.sum(dim=-1, keepdim=True))",
        ),
        swapped_mistake(_RETURN, "return weights, used @ value"),
        Mistake(
            "over queries",
            "dim=-1)",
            "dim=-2)",
            "The softmax runs over the queries: the columns sum to 1 and the rows do not.",
        ),
        Mistake(
            "no axis",
            "dim=-1)",
            "dim=0 if scores.dim() in (1, 3) else 1)",
            "The softmax runs over axis 0 or 1, as `F.softmax` chooses where it is told no axis.",
        ),
        Mistake(
            "third axis",
            "dim=-1)",
            "dim=min(2, scores.dim() - 1))",
            "The softmax runs over axis 2. With more axes in front that is not the keys.",
        ),
        Mistake(
            "fixed axes",
            "key.transpose(-2, -1)",
            "key.transpose(1, 2)",
            "Axes 1 and 2 are exchanged. Count from the end, so that axes in front do not matter.",
        ),
        Mistake(
            "never dropped",
            _DROP,
            "weights",
            "Nothing is dropped.",
        ),
        Mistake(
            "shown after dropout",
            _RETURN,
            "return used @ value, used",
            "The weights come back as they are after dropout, so their rows do not sum to 1.",
        ),
        Mistake(
            "output dropped",
            f"{_DROP}\n    {_RETURN}",
            "weights\n"
            "    return torch.nn.functional.dropout(used @ value, dropout), weights",
            "Dropout is applied to the output. It belongs on the weights.",
        ),
        Mistake(
            "scores dropped",
            f"{_SOFTMAX}\n    if mask is not None:",
            "torch.softmax(torch.nn.functional.dropout(scores, dropout), dim=-1)\n"
            "    dropout = 0.0\n"
            "    if mask is not None:",
            "Dropout is applied to the scores. A score of 0 still gets weight.",
        ),
        Mistake(
            "chance kept",
            "(weights, dropout)",
            "(weights, 1 - dropout if dropout else 0.0)",
            "`dropout` is the chance to be dropped, not the chance to stay.",
        ),
        Mistake(
            "not made larger",
            _DROP,
            "weights * (torch.rand_like(weights) >= dropout)",
            "The weights that stay are not divided by 1 − dropout.",
        ),
        Mistake(
            "made whole",
            _DROP,
            "torch.nn.functional.normalize(torch.nn.functional.dropout(weights, dropout), 1, -1)",
            "The weights that stay are made to sum to 1 again. They are divided by 1 − dropout.",
        ),
        Mistake(
            "single precision",
            "query @ key.transpose",
            "query.float() @ key.float().transpose",
            "Everything is brought to float32 and stays there: the weights do not fit the values.",
        ),
        Mistake(
            "in place",
            "scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])",
            "scores = query.div_(math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)",
            "The query is divided in place: the input changes for who called.",
        ),
    ),
    hints=(
        "Which weights does the reader of a picture want, and which mix the values?",
        "Count axes from the end, -1 and -2, and what is in front does not matter.",
        "scores (…, queries, keys) → mask → softmax over the last axis → a dropped copy → times "
        "the values.",
        "`torch.nn.functional.dropout` drops and enlarges. Keep what you gave it: that is what you "
        "return.",
    ),
    banned=("scaled_dot_product_attention", "MultiheadAttention", "multi_head_attention_forward"),
    picture=draw_picture,
)  # fmt: skip
