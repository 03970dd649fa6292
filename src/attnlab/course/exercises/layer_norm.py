"""Layer normalization from its formula."""

# %% [course]
import numpy as np
import torch as T

from attnlab.course.exercise import Case, Check, Exercise, Mistake
from attnlab.course.material.attention_mistakes import power_mistake

# %% [markdown]
# # Layer normalization
#
# Sums of many terms drift and grow from layer to layer. Layer normalization brings each position
# back to mean 0 and variance 1, and then lets the model choose a scale and a shift for each column.
# The picture shows two rows before and after.
#
# ![rows](layer_norm.svg)
#
# **Write** the class `LayerNormalization(width, eps=1e-5)`. With the mean and the variance over the
# last axis, its call gives
#
# weight · (x − mean) / √(variance + eps) + bias
#
# | | shape |
# | --- | --- |
# | `weight`, `bias` | (width,); parameters, 1 and 0 at the start |
# | `x` | (…, width) |
# | answer | (…, width) |
#
# * The variance is the mean of the squared distances: divided by width, not by width − 1.
# * eps stands inside the root, so a row of equal numbers becomes `bias`. So does a width of 1.
# * In float64, rows far from 0, such as 100,000,000 ± 10, come out as exactly as others.
# * There may be any number of axes in front of the last. `x` stays as it is.
#
# Do not call PyTorch's own normalizations.

# %%
import torch
from torch import nn


class LayerNormalization(nn.Module):
    """Bring each row to mean 0 and variance 1, then scale and shift it."""

    def __init__(self, width, eps=1e-5):
        super().__init__()
        # >>> solution
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        # <<< solution

    def forward(self, x):
        """(…, width) -> the same."""
        # >>> solution
        mean = x.mean(dim=-1, keepdim=True)
        variance = x.var(dim=-1, keepdim=True, correction=0)
        normal = (x - mean) / torch.sqrt(variance + self.eps)
        return self.weight * normal + self.bias
        # <<< solution


# %% [course]
def oracle(x, weight, bias, eps):
    """Normalize one row after the other."""
    result = np.zeros_like(x)
    for place in np.ndindex(*x.shape[:-1]):
        row = x[place] - x[place].sum() / x.shape[-1]
        result[place] = weight * row / ((row * row).sum() / x.shape[-1] + eps) ** 0.5 + bias
    return result


def case(random, shape, spread=10.0, center=0.0, eps=None, **more):
    """Draw x, weight and bias; eps hardly matters unless the spread is small."""
    x = center + random.normal(size=shape) * spread
    weight, bias = random.normal(size=(2, shape[-1])) + 0.5
    expected = T.from_numpy(oracle(x, weight, bias, eps or 1e-5))
    build = ((shape[-1],), {} if eps is None else {"eps": eps})
    state = {"weight": T.from_numpy(weight), "bias": T.from_numpy(bias)}
    given = {"expected": expected, "tolerance": 1e-4, **more}
    x = T.from_numpy(x)
    return Case("LayerNormalization", (x,), build=build, state=state, **given)


def values(random):
    """Rows of ordinary size, in two batches."""
    yield case(random, (2, 1, 3))
    yield case(random, (3, 5, 7), 20.0, 10.0)


def fresh(random):
    """Parameters as they are at the start."""
    expected = {"weight": T.ones(3).double(), "bias": T.zeros(3).double()}
    yield Case("LayerNormalization", build=((3,), {}), expected=expected, answer="state")
    shapes = {"weight": [3], "bias": [3]}
    yield Case("LayerNormalization", build=((3,), {}), expected=shapes, answer="parameters")


def axes(random):
    """One axis, and four."""
    yield case(random, (5,), words="with one row alone")
    yield case(random, (2, 3, 4, 5), words="with four axes")


def epsilon(random):
    """Rows whose variance is small beside eps, and another eps."""
    yield case(random, (2, 5), 0.003, words="with a variance of about 1e-5", tolerance=1e-6)
    yield case(random, (2, 5), 1.0, eps=0.5, words="with eps 0.5", tolerance=1e-6)


def no_variance(random):
    """Rows of equal numbers, and a width of 1."""
    yield case(random, (2, 3, 1), words="with width 1")
    yield case(random, (2, 3, 5), 0.0, 3.0, words="with rows of equal numbers")


def far(random):
    """Rows far from 0."""
    words = "with numbers of about 100,000,000"
    yield case(random, (2, 3, 5), 10.0, 1e8, words=words)


def inputs_kept(random):
    """The input after the call."""
    made = case(random, (2, 3, 5))
    yield Case(
        made.call, made.args, build=made.build, state=made.state, expected=list(made.args),
        answer="inputs",
    )  # fmt: skip


def draw_picture(names):
    """Draw two rows before and after."""
    from attnlab.draw.pictures.charts import lines_figure
    from attnlab.draw.sections import Lines, Series

    random = np.random.default_rng(2)
    x = T.from_numpy(np.stack([5 + random.normal(size=12), -3 + 2.5 * random.normal(size=12)]))
    after = names["LayerNormalization"](12).double()(x)
    places = list(range(12))
    series = [
        Series(name=f"row {number + 1}, {when}", x=places, y=rows[number].tolist())
        for when, rows in (("before", x), ("after", after))
        for number in range(2)
    ]
    drawn = Lines(
        title="two rows before and after", caption="", x_label="column", y_label="number",
        series=series,
    )  # fmt: skip
    return lines_figure(drawn)


_VARIANCE = "x.var(dim=-1, keepdim=True, correction=0)"
_ROOT = "torch.sqrt(variance + self.eps)"
_SCALED = "self.weight * normal + self.bias"
_TAIL = f"normal = (x - mean) / {_ROOT}\n        return {_SCALED}"

EXERCISE = Exercise(
    "Layer normalization",
    level=2,
    minutes=20,
    checks=(
        Check("values", "normalizes, scales and shifts each row", values, points=3),
        Check("parameters", "begins with a weight of 1 and a bias of 0", fresh),
        Check("axes", "takes any number of axes", axes),
        Check("eps", "has eps inside the root, and takes another", epsilon, points=2, graded=True),
        Check("no variance", "gives the bias for rows of equal numbers", no_variance, graded=True),
        Check("far", "is exact for rows far from 0", far, graded=True),
        Check("inputs", "leaves its input as it is", inputs_kept, graded=True),
    ),
    mistakes=(
        Mistake(
            "eps as a floor",
            _ROOT,
            "torch.sqrt(variance.clamp(min=self.eps))",
            "eps is only the least that is divided by. It is added to the variance.",
            also=("torch.sqrt(variance).clamp(min=self.eps)",),
        ),
        Mistake(
            "parentheses missing",
            "(x - mean) / torch",
            "x - mean / torch",
            "Only the mean is divided, not x − mean: a division comes before a subtraction. "
            "Parentheses are missing.",
            also=((_TAIL, f"return self.weight * x - mean / {_ROOT} + self.bias"),),
        ),
        Mistake(
            "eps added at the end",
            f"(x - mean) / {_ROOT}",
            "(x - mean) / torch.sqrt(variance) + self.eps",
            "eps is added to the quotient, since a division comes before a sum. It belongs under "
            "the root.",
            also=(
                (
                    _TAIL,
                    "normal = (x - mean) / torch.sqrt(variance)\n"
                    "        return self.weight * normal + self.eps + self.bias",
                ),
            ),
        ),
        power_mistake(f"/ {_ROOT}", "(variance + self.eps)"),
        Mistake(
            "unbiased",
            "correction=0",
            "correction=1",
            "The variance is divided by width − 1. PyTorch's `var` and `std` do so unless told.",
        ),
        Mistake(
            "eps outside",
            _ROOT,
            "(torch.sqrt(variance) + self.eps)",
            "eps is added to the root. It belongs inside it.",
        ),
        Mistake(
            "no eps",
            _ROOT,
            "torch.sqrt(variance)",
            "eps is missing: a row of equal numbers is divided by 0.",
        ),
        Mistake(
            "fixed eps",
            "self.eps = eps",
            "self.eps = 1e-5",
            "eps is always 1e-5, whatever is asked.",
        ),
        Mistake(
            "eps squared",
            "variance + self.eps",
            "variance + self.eps**2",
            "eps is squared inside the root.",
        ),
        Mistake(
            "unbiased and outside",
            f"{_VARIANCE}\n        normal = (x - mean) / {_ROOT}",
            "x.var(dim=-1, keepdim=True)\n"
            "        normal = (x - mean) / (torch.sqrt(variance) + self.eps)",
            "The formula of a well-known tutorial: `std` of PyTorch plus eps. It divides by "
            "width − 1 and has eps outside the root.",
        ),
        Mistake(
            "first axis",
            "mean = x.mean(dim=-1, keepdim=True)\n        variance = " + _VARIANCE,
            "mean = x.mean(dim=0, keepdim=True)\n"
            "        variance = x.var(dim=0, keepdim=True, correction=0)",
            "The mean runs over the batch: the answer for one text depends on the others.",
        ),
        Mistake(
            "positions",
            "mean = x.mean(dim=-1, keepdim=True)\n        variance = " + _VARIANCE,
            "axis = max(x.dim() - 2, 0)\n"
            "        mean = x.mean(dim=axis, keepdim=True)\n"
            "        variance = x.var(dim=axis, keepdim=True, correction=0)",
            "The mean runs over the positions. It runs over the columns, the last axis.",
        ),
        Mistake(
            "whole text",
            "mean = x.mean(dim=-1, keepdim=True)\n        variance = " + _VARIANCE,
            "axes = tuple(range(1, x.dim())) or (0,)\n"
            "        mean = x.mean(dim=axes, keepdim=True)\n"
            "        variance = x.var(dim=axes, keepdim=True, correction=0)",
            "All positions of a text are normalized together. Each has its own mean.",
        ),
        Mistake(
            "axis 1",
            "mean = x.mean(dim=-1, keepdim=True)\n        variance = " + _VARIANCE,
            "mean = x.mean(dim=1, keepdim=True)\n"
            "        variance = x.var(dim=1, keepdim=True, correction=0)",
            "The mean runs over axis 1. The columns are the last axis, however many there are.",
        ),
        Mistake(
            "everything",
            "mean = x.mean(dim=-1, keepdim=True)\n        variance = " + _VARIANCE,
            "mean, variance = x.mean(), x.var(correction=0)",
            "One mean and one variance are taken of all numbers. Each row has its own.",
        ),
        Mistake(
            "mean kept",
            "normal = (x - mean) /",
            "normal = x /",
            "The mean is not taken away.",
        ),
        Mistake(
            "mean square",
            _VARIANCE,
            "(x * x).mean(dim=-1, keepdim=True)",
            "The root is that of the mean square of x; the variance is about the mean.",
        ),
        Mistake(
            "by variance",
            _ROOT,
            "(variance + self.eps)",
            "x is divided by the variance. Its root is missing.",
        ),
        Mistake(
            "cancelled",
            _VARIANCE,
            "((x * x).mean(dim=-1, keepdim=True) - mean * mean).clamp(min=0)",
            "The variance is the mean of squares minus the square of the mean. Far from 0 these "
            "are two huge numbers, and their difference is noise.",
        ),
        Mistake(
            "no weight",
            "self.weight * normal",
            "normal",
            "`weight` is not used.",
        ),
        Mistake(
            "no bias",
            "normal + self.bias",
            "normal",
            "`bias` is not added.",
        ),
        Mistake(
            "bias scaled",
            _SCALED,
            "self.weight * (normal + self.bias)",
            "`bias` is added before the scaling, so it is scaled as well.",
        ),
        Mistake(
            "exchanged",
            _SCALED,
            "self.bias * normal + self.weight",
            "`weight` and `bias` are exchanged.",
        ),
        Mistake(
            "starts at zero",
            "torch.ones(width)",
            "torch.zeros(width)",
            "`weight` begins at 0, so a fresh module answers 0 everywhere.",
        ),
        Mistake(
            "random start",
            "torch.ones(width)",
            "torch.randn(width)",
            "`weight` begins with random numbers. It begins with 1.",
        ),
        Mistake(
            "in place",
            "normal = (x - mean) /",
            "normal = x.sub_(mean) /",
            "The mean is taken away in place: the input changes for who called.",
        ),
    ),
    hints=(
        "How many means does a text of five positions have: one, five, or one for each column?",
        "`keepdim=True` keeps the last axis with size 1, so that (…, 1) meets (…, width).",
        "mean (…, 1) → distances (…, width) → mean of their squares (…, 1) → add eps → root.",
        "Two parameters of shape (width,). Divide the distances by the root, then scale and shift. "
        "Which correction does `var` make unless you say another?",
    ),
    banned=("LayerNorm", "layer_norm", "native_layer_norm", "RMSNorm", "GroupNorm", "group_norm"),
    picture=draw_picture,
)
