"""The gated feed-forward part of newer models."""

# %% [course]
import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.pictures import draw_lines
from attnlab_course.material.tensors import (
    sample_state,
    gradients_case,
    inputs_check,
    parameters_check,
)

# %% [markdown]
# # SwiGLU
#
# In newer models the feed-forward part has two layers side by side. One makes numbers, the other
# decides how much of each is let through, and their product goes back through a third. The gate
# is a soft one: swish(z) = z / (1 + e^(−z)), also called SiLU. The picture shows it.
#
# ![gate](swiglu.svg)
#
# **Write** `swish(z)` and the class `SwiGLU(d_model, d_ff)`. The class has three `nn.Linear`
# **without bias**, named `gate`, `up` and `down`, and gives
#
# down( swish(gate(x)) · up(x) )
#
# | | shape |
# | --- | --- |
# | `gate.weight`, `up.weight` | (d_ff, d_model) |
# | `down.weight` | (d_model, d_ff) |
# | `x` | (…, d_model) |
# | answer | (…, d_model) |
#
# * `swish` takes a tensor of any shape. It is finite for numbers of −1000 and 1000, and so is its
#   gradient. It keeps the dtype, and leaves z as it is.
# * `d_ff` is the hidden width itself; nothing is rounded.
#
# Do not call PyTorch's own `silu`.

# %%
import torch
from torch import nn


def swish(z):
    """Return z / (1 + exp(−z))."""
    # >>> solution
    return z * torch.sigmoid(z)
    # <<< solution


class SwiGLU(nn.Module):
    """A feed-forward part with a gate."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        # >>> solution
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)
        # <<< solution

    def forward(self, x):
        """(…, d_model) -> the same."""
        # >>> solution
        opened = swish(self.gate(x))
        return self.down(opened * self.up(x))
        # <<< solution


# %% [hints]
# 1. How many matrices does a plain feed-forward part have, and which one is new here?
# 2. 1 / (1 + e^(−z)) has a name of its own, and PyTorch's is careful with large numbers.
# 3. x (…, d_model) → two layers side by side (…, d_ff) → product → (…, d_model).
# 4. Apply the gate's function to one of the two, multiply number by number, and hand the product
#    to the third layer.


# %% [mistakes]
# ## exchanged: `gate` and `up` are exchanged: swish belongs on the gate.
# -         opened = swish(self.gate(x))
# -         return self.down(opened * self.up(x))
# +         opened = swish(self.up(x))
# +         return self.down(opened * self.gate(x))
# ## plain gate: The gate is a sigmoid, as in the first gated units. Here it is swish.
# - swish(self.gate(x))
# + torch.sigmoid(self.gate(x))
# ## gelu: `swish` is GELU, which looks alike and is another function.
# - z * torch.sigmoid(z)
# + nn.functional.gelu(z)
# ## overflow: e^z overflows for large z, and infinity divided by infinity is NaN.
# - z * torch.sigmoid(z)
# + z * torch.exp(z) / (1 + torch.exp(z))
# ## gradient overflow: The value is right, but for very negative z e^(−z) is infinite and the
# gradient NaN.
# - z * torch.sigmoid(z)
# + z / (1 + torch.exp(-z))


# %% [course]
def gate_case(z, words=""):
    """Ask for the gate alone."""
    return Case("swish", (T.from_numpy(z),), words=words)


def case(random, shape, hidden, words=""):
    """Sample x and three matrices."""
    sizes = shape[-1], hidden
    return Case(
        "SwiGLU",
        (T.from_numpy(random.normal(size=shape)),),
        build=(sizes, {}),
        state=sample_state(random, SwiGLU(*sizes)),
        words=words,
    )


def values(random):
    """Sizes that all differ."""
    yield case(random, (1, 1, 2), 3)
    yield case(random, (2, 3, 5), 7)


def gates(random):
    """The gate alone, on ordinary numbers."""
    for shape in ((1,), (3, 4), (2, 3, 5)):
        yield gate_case(random.normal(size=shape) * 2)


def axes(random):
    """One row alone, and four axes."""
    yield case(random, (3,), 7, words="with one row alone")
    yield case(random, (2, 1, 3, 5), 7, words="with four axes")


def large(random):
    """Numbers whose exponentials overflow, and the gradient there."""
    z = np.array([-1000.0, -800.0, -30.0, 30.0, 800.0, 1000.0]) + random.uniform(0, 1, 6)
    made = gate_case(z, "of very large numbers")
    yield made
    yield gradients_case(made)


def single(random):
    """Single precision."""
    yield gate_case(random.normal(size=(2, 3)).astype(np.float32), "in float32")


def draw_picture(names):
    """Draw swish beside ReLU."""
    z = T.linspace(-6, 4, 101)
    curves = {"swish": names["swish"](z), "ReLU": z.clamp(min=0)}
    return draw_lines("a soft gate and a hard one", ("z", "answer"), z, curves)


EXERCISE = Exercise(
    "SwiGLU",
    level=2,
    minutes=15,
    needs=("feed_forward",),
    checks=(
        Check("values", "gives the right answer for each position", values, points=3),
        Check("swish", "has the right gate", gates, points=2),
        parameters_check("has three layers without bias", "SwiGLU", (3, 5)),
        Check("axes", "takes any number of axes", axes),
        Check("large", "has a gate and a gradient that stay finite", large, points=2),
        Check("single", "keeps single precision", single),
        inputs_check(gates),
    ),
    banned=("silu", "SiLU"),
    picture=draw_picture,
)
