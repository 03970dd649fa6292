"""A softmax over any axis that stays finite."""

# %% [course]
import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.pictures import draw_lines
from attnlab_course.material.tensors import gradients_check, inputs_check

# %% [markdown]
# # Softmax
#
# Attention needs shares: numbers from 0 to 1 that sum to 1. The softmax makes them from any
# scores: the exponential of each, divided by the sum of all. The picture shows the shares of four
# scores while their distances grow: the largest takes more and more.
#
# ![shares](softmax.svg)
#
# **Write** `softmax(x, dim=-1)`.
#
# | | shape |
# | --- | --- |
# | `x` | any, at least one axis; a tensor of floating-point numbers |
# | `dim` | the axis along which the answer sums to 1; negative ones count from the end |
# | answer | the shape of `x` |
#
# * Scores of any size give finite shares: −5000 and +5000 alike, and side by side in one tensor.
# * A score of −∞ gets the share 0, exactly. However low the other scores are, they get the rest.
# * Where all scores along `dim` are −∞ the shares are 0, never NaN. (This is how a query behaves
#   that may attend to nothing.)
# * Gradients flow through it.
# * The answer has the dtype of `x`, and `x` stays as it is.
#
# Do not call PyTorch's own softmax or logsumexp.

# %%
import math

import torch


def softmax(x, dim=-1):
    """Return positive shares that sum to 1 along an axis."""
    # >>> solution
    top = x.amax(dim=dim, keepdim=True)
    top = top.masked_fill(top == -math.inf, 0.0)
    grown = torch.exp(x - top)
    total = grown.sum(dim=dim, keepdim=True)
    return grown / total.masked_fill(total == 0, 1.0)
    # <<< solution


# %% [hints]
# 1. The exponential of 3000 is no number any more. What can be taken off all scores without
#    changing their shares?
# 2. Multiplying all exponentials by one factor changes no share, and subtracting from all scores
#    is such a factor. Which number makes the largest exponential 1?
# 3. Largest along `dim`, exponential of the difference, sum along `dim`, quotient. Keep the axis
#    (keepdim) each time, so that shapes (…, n, …) and (…, 1, …) meet.
# 4. Two guards for −∞: where the largest score is −∞ subtract 0 in its place, and where the sum
#    is 0 divide by 1.


# %% [mistakes]
# ## one more in the sum: A 1 is added to the sum of the exponentials, so the weights sum to less
# than 1.
# - grown.sum(dim=dim, keepdim=True)
# + (grown.sum(dim=dim, keepdim=True) + 1.0)
# or
# -     top = x.amax(dim=dim, keepdim=True)
# -     top = top.masked_fill(top == -math.inf, 0.0)
# -     grown = torch.exp(x - top)
# -     total = grown.sum(dim=dim, keepdim=True)
# +     grown = torch.exp(x)
# +     total = grown.sum(dim=dim, keepdim=True) + 1.0
# ## no exponential: The scores are divided by their sum, and not their exponentials, which are
# positive.
# -     top = x.amax(dim=dim, keepdim=True)
# -     top = top.masked_fill(top == -math.inf, 0.0)
# -     grown = torch.exp(x - top)
# -     total = grown.sum(dim=dim, keepdim=True)
# -     return grown / total.masked_fill(total == 0, 1.0)
# +     return x / x.sum(dim=dim, keepdim=True)
# ## always axis 1: The softmax always runs over axis 1, whatever `dim` is.
# -     top = x.amax(dim=dim, keepdim=True)
# +     dim = min(1, x.dim() - 1)
# +     top = x.amax(dim=dim, keepdim=True)
# or
# +     dim = 1
# +     top = x.amax(dim=dim, keepdim=True)
# ## nothing subtracted: The exponentials are taken of the scores as they come. Of large scores they
# are too large for a number, or all 0.
# - x.amax(dim=dim, keepdim=True)
# + torch.zeros(1)
# or
# -     top = x.amax(dim=dim, keepdim=True)
# -     top = top.masked_fill(top == -math.inf, 0.0)
# -     grown = torch.exp(x - top)
# -     total = grown.sum(dim=dim, keepdim=True)
# -     return grown / total.masked_fill(total == 0, 1.0)
# +     return torch.exp(x) / torch.exp(x).sum(dim=dim, keepdim=True)
# ## one largest for all: The largest score of the whole tensor is subtracted everywhere. In a row
# that lies far below it all exponentials are 0: each row needs its own.
# - x.amax(dim=dim, keepdim=True)
# + x.max()
# or
# -     top = x.amax(dim=dim, keepdim=True)
# -     top = top.masked_fill(top == -math.inf, 0.0)
# -     grown = torch.exp(x - top)
# -     total = grown.sum(dim=dim, keepdim=True)
# -     return grown / total.masked_fill(total == 0, 1.0)
# +     grown = torch.exp(x - x.max())
# +     return grown / grown.sum(dim=dim, keepdim=True)
# ## always the last axis: The sum runs over the last axis whatever `dim` says.
# - grown.sum(dim=dim, keepdim=True)
# + grown.sum(dim=-1, keepdim=True)
# or
# -     top = x.amax(dim=dim, keepdim=True)
# +     dim = -1
# +     top = x.amax(dim=dim, keepdim=True)
# ## NaN where nothing is left: Where all scores are −∞ the answer is NaN: −∞ minus −∞ is no number.
# - top.masked_fill(top == -math.inf, 0.0)
# + top


# %% [course]
def case(x, dim=None, dtype="float32", words="", tolerance=1e-5):
    """Ask for the shares of some numbers."""
    settings = {} if dim is None else {"dim": dim}
    args = (T.from_numpy(x.astype(dtype)),)
    return Case("softmax", args, settings, words=words, tolerance=tolerance)


def values(random):
    """Along the last axis."""
    for shape in ((1,), (3,), (2, 5)):
        yield case(random.normal(size=shape))


def axes(random):
    """Along other axes, negative ones too."""
    yield case(random.normal(size=(2, 3)), 0)
    yield case(random.normal(size=(2, 3, 5)), 1)
    yield case(random.normal(size=(3, 5, 2)), -3)


def large(random):
    """Scores whose exponentials are too large or too small, also side by side."""
    near = random.normal(size=(3, 4))
    for level in (3000, -3000):
        yield case(near[0] + level, words=f"of about {level}", tolerance=1e-3)
    near += np.array([[-4000.0], [0.0], [5000.0]])
    yield case(near, words="with rows at different levels", tolerance=1e-3)
    for low in (-100.0, -5000.0):
        yield case(random.permutation([low, 1.0, 2.0]), words="far apart", tolerance=1e-3)


def minus_infinity(random):
    """Some scores are minus infinity."""
    x = random.normal(size=(2, 4))
    x[0, 1] = x[1, 3] = -np.inf
    yield case(x[:1])
    yield case(x - 30000, words="with all other scores at about −30000", tolerance=1e-2)


def dead(random):
    """All scores of a row are minus infinity."""
    x = np.vstack([random.normal(size=(2, 4)), np.full(4, -np.inf)])
    yield case(x, words="where the last row is −∞ only")


def gradients(random):
    """What flows back."""
    yield case(random.normal(size=(2, 3)))


def dtypes(random):
    """Numbers of float64."""
    yield case(random.normal(size=(2, 3)), dtype="float64", words="with float64")


def draw_picture(names):
    """Draw the shares of four scores while their distances grow."""
    factors, scores = np.linspace(0, 5, 51), (0.0, 0.5, 0.8, 1.0)
    shares = names["softmax"](T.from_numpy(factors)[:, None] * T.tensor(scores))
    curves = {f"score {score:g}": shares[:, n] for n, score in enumerate(scores)}
    axes = ("all scores multiplied by", "share")
    return draw_lines("Shares of four scores", axes, factors, curves, from_zero=True)


EXERCISE = Exercise(
    "Softmax",
    level=1,
    minutes=15,
    checks=(
        Check("values", "gives the right shares", values, points=2),
        Check("axis", "sums to 1 along the requested axis", axes),
        Check("large scores", "stays finite with large scores", large),
        Check("minus infinity", "gives a score of −∞ no share", minus_infinity),
        Check("nothing left", "gives 0 where all scores are −∞", dead),
        gradients_check("gradients", "lets gradients through", gradients),
        Check("dtype", "keeps the dtype of its input", dtypes),
        inputs_check(values, "input"),
    ),
    banned=("softmax", "log_softmax", "Softmax", "LogSoftmax", "softmin", "Softmin", "logsumexp"),
    picture=draw_picture,
)
