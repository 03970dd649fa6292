"""The gated feed-forward part of newer models."""

# %% [course]
import math as m

import numpy as np
import torch as T

from attnlab.course.exercise import Case, Check, Exercise, Mistake
from attnlab.course.material.tensors import as_tensors

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


# %% [course]
def gate(z):
    """Compute swish of one number without overflow."""
    if z >= 0:
        return z / (1 + m.exp(-z))
    return z * m.exp(z) / (1 + m.exp(z))


def slope(z):
    """Compute the derivative of swish at one number."""
    share = 1 / (1 + m.exp(-z)) if z >= 0 else m.exp(z) / (1 + m.exp(z))
    return share * (1 + z * (1 - share))


def case(random, shape, hidden, **more):
    """Draw x and three matrices, and compute unit by unit."""
    width = shape[-1]
    x = random.normal(size=shape)
    opens, ups = random.normal(size=(2, hidden, width))
    downs = random.normal(size=(width, hidden))
    expected = np.zeros(shape)
    for place in np.ndindex(*shape[:-1]):
        for unit in range(hidden):
            passed = gate(float(opens[unit] @ x[place])) * (ups[unit] @ x[place])
            expected[place] += passed * downs[:, unit]
    state = {"gate.weight": opens, "up.weight": ups, "down.weight": downs}
    state = as_tensors(state)
    given = {"expected": T.from_numpy(expected), **more}
    build = ((width, hidden), {})
    return Case("SwiGLU", (T.from_numpy(x),), build=build, state=state, **given)


def values(random):
    """Sizes that all differ."""
    yield case(random, (1, 1, 2), 3)
    yield case(random, (2, 3, 5), 7)


def gates(random):
    """The gate alone, on ordinary numbers."""
    for shape in ((1,), (3, 4), (2, 3, 5)):
        z = random.normal(size=shape) * 2
        expected = T.from_numpy(np.vectorize(gate)(z))
        yield Case("swish", (T.from_numpy(z),), expected=expected)


def parameters(random):
    """The names and shapes."""
    expected = {"gate.weight": [5, 3], "up.weight": [5, 3], "down.weight": [3, 5]}
    yield Case("SwiGLU", build=((3, 5), {}), expected=expected, answer="parameters")


def axes(random):
    """One row alone, and four axes."""
    yield case(random, (3,), 7, words="with one row alone")
    yield case(random, (2, 1, 3, 5), 7, words="with four axes")


def large(random):
    """Numbers whose exponentials overflow, and the gradient there."""
    z = np.array([-1000.0, -800.0, -30.0, 30.0, 800.0, 1000.0]) + random.uniform(0, 1, 6)
    expected = T.from_numpy(np.vectorize(gate)(z))
    yield Case("swish", (T.from_numpy(z),), expected=expected, words="of very large numbers")
    words = "of very large numbers, and its gradient"
    weighted = np.vectorize(slope)(z) * np.cos(np.arange(6))
    expected = [T.from_numpy(weighted)]
    given = (T.from_numpy(z),)
    yield Case("swish", given, expected=expected, answer="gradients", words=words)


def single(random):
    """Single precision."""
    z = random.normal(size=(2, 3)).astype(np.float32)
    expected = T.from_numpy(np.vectorize(gate)(z.astype(np.float64)).astype(np.float32))
    yield Case("swish", (T.from_numpy(z),), expected=expected, words="in float32")


def inputs_kept(random):
    """The inputs after the call."""
    z = T.from_numpy(random.normal(size=(2, 3)))
    yield Case("swish", (z,), expected=[z], answer="inputs")


def draw_picture(names):
    """Draw swish beside ReLU."""
    from attnlab.draw.pictures.charts import lines_figure
    from attnlab.draw.sections import Lines, Series

    z = T.linspace(-6, 4, 101)
    curves = (("swish", names["swish"](z)), ("ReLU", z.clamp(min=0)))
    series = [Series(name=name, x=z.tolist(), y=y.tolist()) for name, y in curves]
    drawn = Lines(
        title="a soft gate and a hard one", caption="", x_label="z", y_label="answer",
        series=series,
    )  # fmt: skip
    return lines_figure(drawn)


_SILU = "z * torch.sigmoid(z)"
_OPENED = "swish(self.gate(x))"
_PRODUCT = "self.down(opened * self.up(x))"

EXERCISE = Exercise(
    "SwiGLU",
    level=2,
    minutes=15,
    needs=("feed_forward",),
    checks=(
        Check("values", "gives the right answer for each position", values, points=3),
        Check("swish", "has the right gate", gates, points=2),
        Check("parameters", "has three layers without bias", parameters),
        Check("axes", "takes any number of axes", axes, graded=True),
        Check("large", "has a gate and a gradient that stay finite", large, points=2, graded=True),
        Check("single", "keeps single precision", single, graded=True),
        Check("inputs", "leaves the gate's input as it is", inputs_kept, graded=True),
    ),
    mistakes=(
        Mistake(
            "exchanged",
            f"{_OPENED}\n        return {_PRODUCT}",
            "swish(self.up(x))\n        return self.down(opened * self.gate(x))",
            "`gate` and `up` are exchanged: swish belongs on the gate.",
        ),
        Mistake(
            "plain gate",
            _OPENED,
            "torch.sigmoid(self.gate(x))",
            "The gate is a sigmoid, as in the first gated units. Here it is swish.",
        ),
        Mistake(
            "sigmoid",
            _SILU,
            "torch.sigmoid(z)",
            "`swish` is a sigmoid: it must be multiplied by z once more.",
        ),
        Mistake(
            "gelu",
            _SILU,
            "nn.functional.gelu(z)",
            "`swish` is GELU, which looks alike and is another function.",
        ),
        Mistake(
            "steeper",
            _SILU,
            "z * torch.sigmoid(1.702 * z)",
            "The gate is the steeper one that replaces GELU. swish has no factor.",
        ),
        Mistake(
            "relu",
            _SILU,
            "torch.relu(z)",
            "`swish` is ReLU: it gives exactly 0 below 0, where swish dips and comes back.",
        ),
        Mistake(
            "turned sign",
            _SILU,
            "z * torch.sigmoid(-z)",
            "The sign in the exponential is turned: the gate closes where it should open.",
        ),
        Mistake(
            "overflow",
            _SILU,
            "z * torch.exp(z) / (1 + torch.exp(z))",
            "e^z overflows for large z, and infinity divided by infinity is NaN.",
        ),
        Mistake(
            "gradient overflow",
            _SILU,
            "z / (1 + torch.exp(-z))",
            "The value is right, but for very negative z e^(−z) is infinite and the gradient NaN.",
        ),
        Mistake(
            "cut off",
            _SILU,
            "z.clamp(-20, 20) * torch.sigmoid(z)",
            "z is cut off at 20 to keep the exponential small: large numbers come out too small.",
        ),
        Mistake(
            "gated after",
            f"{_OPENED}\n        return {_PRODUCT}",
            "self.gate(x)\n        return self.down(swish(opened * self.up(x)))",
            "swish comes after the product. It is applied to the gate alone.",
        ),
        Mistake(
            "both gated",
            _PRODUCT,
            "self.down(opened * swish(self.up(x)))",
            "swish is applied to both layers. `up` has no activation.",
        ),
        Mistake(
            "added",
            "opened * self.up(x)",
            "opened + self.up(x)",
            "Gate and numbers are added. They are multiplied.",
        ),
        Mistake(
            "no gate",
            _PRODUCT,
            "self.down(swish(self.up(x)))",
            "The gate is not used: this is a plain feed-forward part.",
        ),
        Mistake(
            "one layer",
            "opened * self.up(x)",
            "opened * self.gate(x)",
            "One layer is used for both. `up` is never asked.",
        ),
        Mistake(
            "plus one",
            "opened * self.up(x)",
            "opened * (self.up(x) + 1)",
            "1 is added to what `up` gives.",
        ),
        Mistake(
            "residual",
            f"return {_PRODUCT}",
            f"return x + {_PRODUCT}",
            "x is added to the answer. The block does that, not this part of it.",
        ),
        Mistake(
            "biases",
            "self.down = nn.Linear(d_ff, d_model, bias=False)",
            "self.down = nn.Linear(d_ff, d_model)",
            "`down` has a bias. None of the three has.",
        ),
        Mistake(
            "gate bias",
            "self.gate = nn.Linear(d_model, d_ff, bias=False)",
            "self.gate = nn.Linear(d_model, d_ff)",
            "`gate` has a bias. None of the three has.",
        ),
        Mistake(
            "two thirds",
            "self.gate = nn",
            "d_ff = 2 * d_ff // 3\n        self.gate = nn",
            "The hidden width is cut to two thirds. Who calls does that; here `d_ff` is meant.",
        ),
        Mistake(
            "double precision",
            _SILU,
            "z * torch.sigmoid(z.double())",
            "The gate answers in float64, whatever it is given.",
        ),
        Mistake(
            "in place",
            _SILU,
            "z.mul_(torch.sigmoid(z)) if not z.requires_grad else z * torch.sigmoid(z)",
            "The gate writes its answer into z, which belongs to who called.",
        ),
    ),
    hints=(
        "How many matrices does a plain feed-forward part have, and which one is new here?",
        "1 / (1 + e^(−z)) has a name of its own, and PyTorch's is careful with large numbers.",
        "x (…, d_model) → two layers side by side (…, d_ff) → product → (…, d_model).",
        "Apply the gate's function to one of the two, multiply number by number, and hand the "
        "product to the third layer.",
    ),
    banned=("silu", "SiLU"),
    picture=draw_picture,
)
