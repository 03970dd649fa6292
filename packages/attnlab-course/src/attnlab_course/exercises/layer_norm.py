"""Layer normalization from its formula."""

# %% [course]
import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.attention_mistakes import eps_mistakes, power_mistake
from attnlab_course.material.pictures import draw_lines
from attnlab_course.material.tensors import inputs_check

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


# %% [hints]
# 1. How many means does a text of five positions have: one, five, or one for each column?
# 2. `keepdim=True` keeps the last axis with size 1, so that (…, 1) meets (…, width).
# 3. mean (…, 1) → distances (…, width) → mean of their squares (…, 1) → add eps → root.
# 4. Two parameters of shape (width,). Divide the distances by the root, then scale and shift.
#    Which correction does `var` make unless you say another?


# %% [mistakes]
# Of the Annotated Transformer and its copies, and of homework.
# ## parentheses missing: Only the mean is divided, not x − mean: a division comes before a
# subtraction. Parentheses are missing.
# - (x - mean) / torch
# + x - mean / torch
# or
# -         normal = (x - mean) / torch.sqrt(variance + self.eps)
# -         return self.weight * normal + self.bias
# +         return self.weight * x - mean / torch.sqrt(variance + self.eps) + self.bias
# ## no parameters: `weight` and `bias` are not both parameters of the module. Make each an
# `nn.Parameter`: a plain tensor is none, so no training changes it and it is not saved.
# -         self.weight = nn.Parameter(torch.ones(width))
# -         self.bias = nn.Parameter(torch.zeros(width))
# +         self.weight = torch.ones(width)
# +         self.bias = torch.zeros(width)
# or
# - self.weight = nn.Parameter(torch.ones(width))
# + self.weight = torch.ones(width)
# or
# - self.bias = nn.Parameter(torch.zeros(width))
# + self.bias = torch.zeros(width)
# ## unbiased: The variance is divided by width − 1. PyTorch's `var` and `std` do so unless told.
# - correction=0
# + correction=1
# ## unbiased and outside: The formula of a well-known tutorial: `std` of PyTorch plus eps. It
# divides by width − 1 and has eps outside the root.
# -         variance = x.var(dim=-1, keepdim=True, correction=0)
# -         normal = (x - mean) / torch.sqrt(variance + self.eps)
# +         variance = x.var(dim=-1, keepdim=True)
# +         normal = (x - mean) / (torch.sqrt(variance) + self.eps)
# ## mean of squares: The variance is the mean of the squares less the square of the mean. Of
# numbers far from 0 these are two large numbers, and hardly a digit of their difference is right.
# - x.var(dim=-1, keepdim=True, correction=0)
# + (x**2).mean(dim=-1, keepdim=True) - mean**2
# ## narrowed to float32: `x.float()` brings float16 to float32, and float64 down to it: of numbers
# far from 0 it leaves too few digits. Widen what is narrower, and nothing else.
# -         mean = x.mean(dim=-1, keepdim=True)
# +         x = x.float()
# +         mean = x.mean(dim=-1, keepdim=True)


# %% [course]
def case(random, shape, spread=10.0, center=0.0, eps=None, words="", tolerance=1e-4):
    """Sample x, weight and bias; eps hardly matters unless the spread is small."""
    x = center + random.normal(size=shape) * spread
    weight, bias = random.normal(size=(2, shape[-1])) + 0.5
    return Case(
        "LayerNormalization",
        (T.from_numpy(x),),
        build=((shape[-1],), {} if eps is None else {"eps": eps}),
        state={"weight": T.from_numpy(weight), "bias": T.from_numpy(bias)},
        words=words,
        tolerance=tolerance,
    )


def values(random):
    """Rows of ordinary size, in two batches."""
    yield case(random, (2, 1, 3))
    yield case(random, (3, 5, 7), 20.0, 10.0)


def fresh(random):
    """Parameters as they are at the start."""
    for answer in ("state", "parameters"):
        yield Case("LayerNormalization", build=((3,), {}), answer=answer)


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


def draw_picture(names):
    """Draw two rows before and after."""
    random = np.random.default_rng(2)
    x = T.from_numpy(np.stack([5 + random.normal(size=12), -3 + 2.5 * random.normal(size=12)]))
    after = names["LayerNormalization"](12).double()(x).detach()
    curves = {}
    for number in (0, 1):
        curves[f"row {number + 1}, before"] = x[number]
        curves[f"row {number + 1}, after"] = after[number]
    return draw_lines("two rows before and after", ("column", "number"), range(12), curves)


_ROOT = "torch.sqrt(variance + self.eps)"

EXERCISE = Exercise(
    "Layer normalization",
    level=2,
    minutes=20,
    checks=(
        Check("values", "normalizes, scales and shifts each row", values, points=3),
        Check("parameters", "begins with a weight of 1 and a bias of 0", fresh),
        Check("axes", "takes any number of axes", axes),
        Check("eps", "has eps inside the root, and takes another", epsilon, points=2),
        Check("no variance", "gives the bias for rows of equal numbers", no_variance),
        Check("far", "is exact for rows far from 0", far),
        inputs_check(values),
    ),
    mistakes=(
        *eps_mistakes("variance", "self.eps"),
        *power_mistake(f"/ {_ROOT}", "(variance + self.eps)"),
    ),
    banned=("LayerNorm", "layer_norm", "native_layer_norm", "RMSNorm", "GroupNorm", "group_norm"),
    picture=draw_picture,
)
