"""The feed-forward part of a block."""

# %% [course]
from functools import partial

import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.attention_mistakes import dropout_mistakes
from attnlab_course.material.pictures import draw_lines
from attnlab_course.material.tensors import (
    built_module,
    sample_state,
    dropped_failure,
    inputs_check,
    parameters_check,
)

# %% [markdown]
# # Feed-forward
#
# After attention has mixed the positions, each position thinks by itself: a wide layer, ReLU, and
# a layer back. All positions go through the same two layers, and none sees another. The picture
# shows how the one number of a width-1 module comes out, over what goes in: straight pieces, with
# a bend for each hidden unit.
#
# ![bends](feed_forward.svg)
#
# **Write** the class `FeedForward(d_model, d_ff, dropout=0.1)` with two `nn.Linear`, named `inner`
# and `outer`.
#
# | | shape |
# | --- | --- |
# | `inner.weight`, `inner.bias` | (d_ff, d_model), (d_ff,) |
# | `outer.weight`, `outer.bias` | (d_model, d_ff), (d_model,) |
# | `x` | (…, d_model) |
# | answer | (…, d_model) |
#
# * `inner`, then ReLU, then dropout, then `outer`. Dropout comes once, between the layers: with a
#   chance of 1 the answer in training is `outer.bias`, since nothing is dropped after `outer`.
# * In evaluation nothing is dropped. `x` stays as it is; it is not added to the answer.

# %%
import torch
from torch import nn


class FeedForward(nn.Module):
    """Two layers with ReLU between them, for each position by itself."""

    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        # >>> solution
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)
        # <<< solution

    def forward(self, x):
        """(…, d_model) -> the same."""
        # >>> solution
        hidden = torch.relu(self.inner(x))
        return self.outer(self.dropout(hidden))
        # <<< solution


# %% [hints]
# 1. What would two linear layers in a row be worth without something between them?
# 2. `nn.Linear` works on the last axis and leaves all others alone.
# 3. (…, d_model) → inner → (…, d_ff) → ReLU → dropout → outer → (…, d_model).
# 4. Three attributes in `__init__`; in `forward` four calls, from the inside to the outside.


# %% [mistakes]
# ## no activation: There is no ReLU, so both layers together are one linear map.
# - torch.relu(self.inner(x))
# + self.inner(x)
# ## residual: x is added to the answer. The block does that, not this part of it.
# - return self.outer(self.dropout(hidden))
# + return x + self.outer(self.dropout(hidden))
# ## dropped last: Dropout comes after the second layer. It comes before it, on the hidden numbers.
# - return self.outer(self.dropout(hidden))
# + return self.dropout(self.outer(hidden))
# ## another activation: Another function bends the hidden numbers, such as GELU. Here it is ReLU.
# - torch.relu(self.inner(x))
# + nn.functional.gelu(self.inner(x))
# or
# + nn.functional.silu(self.inner(x))
# or
# + torch.tanh(self.inner(x))
# or
# + torch.sigmoid(self.inner(x))
# or
# + nn.functional.leaky_relu(self.inner(x))


# %% [course]
def case(x, hidden, state, dropout=0.0, **more):
    """One call with these parameters; the default dropout where it is None."""
    build = ((x.shape[-1], hidden), {} if dropout is None else {"dropout": dropout})
    return Case("FeedForward", (T.from_numpy(x),), build=build, state=state, **more)


def sample_case(random, shape, hidden, dropout=0.0, **more):
    """One call with random parameters."""
    state = sample_state(random, FeedForward(shape[-1], hidden))
    return case(random.normal(size=shape), hidden, state, dropout, **more)


def values(random):
    """Sizes that all differ."""
    yield sample_case(random, (1, 1, 2), 3)
    yield sample_case(random, (2, 3, 5), 11)


def probe(random):
    """Layers that hand each number on, so that the answer is the activation itself."""
    x = np.array([[-30.0, -3.0, -1.0, -0.2, 0.0], [0.3, 1.0, 2.0, 7.0, 50.0]])
    x = (x + random.uniform(0, 0.1, x.shape))[None]
    state = {f"{name}.weight": T.eye(5).double() for name in ("inner", "outer")}
    state |= {f"{name}.bias": T.zeros(5).double() for name in ("inner", "outer")}
    yield case(x, 5, state, words="with layers that hand each number on")


def axes(random):
    """One row alone, and four axes."""
    yield sample_case(random, (3,), 7, words="with one row alone")
    yield sample_case(random, (2, 1, 3, 5), 7, words="with four axes")


def evaluation(random):
    """Evaluation with a high chance of dropping."""
    yield sample_case(random, (2, 3, 5), 7, 0.9, words="in evaluation")


def extremes(random):
    """Chances for which training has one answer."""
    state = sample_state(random, FeedForward(3, 5))
    x = random.normal(size=(2, 4, 3))
    for chance in (1.0, 0.0):
        words = f"in training, with a chance of {chance:g}"
        yield case(x, 5, state, chance, training=True, words=words)
    state = state | {"outer.weight": T.zeros(3, 5).double()}
    words = "in training, with a chance of 1 in 2, where outer.weight is 0"
    yield case(x, 5, state, 0.5, training=True, words=words)


def shares(random):
    """How many hidden numbers are dropped; the outer layer hands them on."""
    width = 13
    state = sample_state(random, FeedForward(width, width))
    state = {name: tensor.abs() for name, tensor in state.items()}
    state |= {"outer.weight": T.eye(width).double(), "outer.bias": T.zeros(width).double()}
    x = np.abs(random.normal(size=(7, 17, width)))
    whole = built_module(FeedForward, case(x, width, state))(T.from_numpy(x)).detach().numpy()
    for chance, dropout, words in ((0.25, 0.25, "1 in 4"), (0.1, None, "the default chance")):
        judge = partial(dropped_failure, whole=whole, chance=chance, what="hidden numbers")
        words = f"in training, with {words}"
        yield case(x, width, state, dropout, judge=judge, training=True, words=words)


def draw_picture(names):
    """Draw what a module of width 1 with four hidden units answers."""
    T.manual_seed(3)
    module = names["FeedForward"](1, 4).eval()
    x = T.linspace(-2, 2, 81)
    answer = module(x[:, None])[:, 0].detach()
    title = "four hidden units, one number in, one out"
    return draw_lines(title, ("x", "answer"), x, {"answer": answer})


EXERCISE = Exercise(
    "Feed-forward",
    level=1,
    minutes=10,
    checks=(
        Check("values", "gives the right answer for each position", values, points=2),
        parameters_check("has two layers with a bias, inner and outer", "FeedForward", (3, 5)),
        Check("evaluation", "drops nothing in evaluation", evaluation),
        Check("extremes", "drops between the layers", extremes),
        Check("activation", "bends as ReLU does", probe),
        Check("axes", "takes any number of axes", axes),
        Check("shares", "drops the right share and enlarges the rest", shares),
        inputs_check(values),
    ),
    mistakes=(*dropout_mistakes("hidden"),),
    picture=draw_picture,
)
