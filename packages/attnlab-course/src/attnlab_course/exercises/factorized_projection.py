"""A projection made of two thin matrices, a softmax, and a free base matrix."""

# %% [course]
import torch as T

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.pictures import draw_maps
from attnlab_course.material.tensors import sample_state, parameters_check

# %% [markdown]
# # A factorized projection
#
# The small sorter does not keep its query, key and value matrices as they are. Each is made from
# two thin ones, A and B, whose product has a low rank: every row of A B / temperature goes through
# a softmax. By itself that is the *strict* weight. The *gated* weight is this times a free base
# matrix, element by element. The picture shows a strict weight and its gated one.
#
# ![a strict weight and a gated one](factorized_projection.svg)
#
# **Write** the class `FactorizedProjection(width, head_width, rank, temperature=1.0, gated=True)`
# with two methods: `weight()` returns the matrix, `forward(x)` applies it: `x` times the weight.
#
# | | shape |
# | --- | --- |
# | parameter `A` | (width, rank) |
# | parameter `B` | (rank, head_width) |
# | parameter `base` | (width, head_width); only when gated |
# | `weight()` | (width, head_width) |
# | `x` | (…, width), with any number of leading axes |
# | `forward(x)` | (…, head_width) |
#
# * `A`, `B` and `base` are `nn.Parameter`s of these names; there is no other parameter, no buffer
#   and no bias. How they start is up to you: the checks write their own values into them.
# * The softmax runs along the rows: each row of a strict weight sums to 1.
# * The temperature divides A B, before the softmax: a high one makes all weights alike.
# * `weight()` is computed from the parameters as they are when it is called.
# * It stays finite however large A B is.

# %%
import math

import torch
from torch import nn


class FactorizedProjection(nn.Module):
    """A projection of one head, made from A and B, and from a base matrix when gated."""

    def __init__(self, width, head_width, rank, temperature=1.0, gated=True):
        super().__init__()
        # >>> solution
        self.temperature = temperature
        self.A = nn.Parameter(torch.empty(width, rank))
        self.B = nn.Parameter(torch.empty(rank, head_width))
        for matrix in (self.A, self.B):
            nn.init.kaiming_uniform_(matrix, a=math.sqrt(5))
        self.base = None
        if gated:
            self.base = nn.Parameter(torch.empty(width, head_width))
            nn.init.xavier_uniform_(self.base)
        # <<< solution

    def weight(self):
        """Return the matrix that is applied: (width, head_width)."""
        # >>> solution
        mixed = torch.softmax(self.A @ self.B / self.temperature, dim=-1)
        return mixed if self.base is None else mixed * self.base
        # <<< solution

    def forward(self, x):
        """(…, width) -> (…, head_width)."""
        # >>> solution
        return x @ self.weight()
        # <<< solution


# %% [hints]
# 1. Which of the two axes of A B says where a row of the weight begins and ends?
# 2. Three steps: the product over the temperature, a softmax and, when gated, the base.
# 3. A B has the shape (width, head_width), the same as the base: the gate needs no transpose.
# 4. In `weight`: softmax of the divided product along its last axis; then entry by entry times
#    `base` where there is one. `forward` multiplies x from the left.


# %% [mistakes]
# ## temperature after the softmax: The temperature comes after the softmax, so the rows no longer
# sum to 1.
# - torch.softmax(self.A @ self.B / self.temperature, dim=-1)
# + torch.softmax(self.A @ self.B, dim=-1) / self.temperature
# ## gate added: The base matrix is added to the softmax. It should multiply it, entry by entry.
# - else mixed * self.base
# + else mixed + self.base
# ## base always there: A strict projection still has a base matrix. It should have A and B alone.
# -         if gated:
# -             self.base = nn.Parameter(torch.empty(width, head_width))
# -             nn.init.xavier_uniform_(self.base)
# +         self.base = nn.Parameter(torch.ones(width, head_width))
# ## unguarded exponential: The exponential overflows where A B is large. Take the row's maximum
# away first.
# - torch.softmax(self.A @ self.B / self.temperature, dim=-1)
# + torch.exp(self.A @ self.B / self.temperature)
# +         mixed = mixed / mixed.sum(-1, keepdim=True)


# %% [course]
def case(random, width, head_width, rank, x=None, temperature=None, gated=True, scale=1.0, **more):
    """Sample the parameters; ask for the weight, or what it makes of x where there is an x."""
    sizes = width, head_width, rank
    state = sample_state(random, FactorizedProjection(*sizes, gated=gated), scale)
    settings = {} if gated else {"gated": False}
    if temperature is not None:
        settings["temperature"] = temperature
    return Case(
        "FactorizedProjection",
        () if x is None else (T.from_numpy(x),),
        build=(sizes, settings),
        state=state,
        methods=(("weight", (), {}),) if x is None else (),
        **more,
    )


def both(random):
    """Gated and strict weights at temperature 1."""
    for is_gated, words in ((True, ""), (False, "of a strict projection")):
        yield case(random, 2, 3, 2, gated=is_gated, words=words)
        yield case(random, 7, 5, 3, gated=is_gated, words=words)


def temperatures(random):
    """Temperatures other than 1, of both kinds."""
    yield case(random, 3, 2, 2, temperature=0.5, words="at temperature 0.5")
    yield case(random, 5, 3, 2, temperature=2.5, gated=False, words="strict, at temperature 2.5")


def applied(random):
    """The projection applied to inputs with one, two and three axes."""
    yield case(random, 3, 2, 2, x=random.normal(size=(4, 3)))
    yield case(random, 5, 3, 2, x=random.normal(size=(2, 4, 5)))
    yield case(random, 5, 7, 2, x=random.normal(size=5), words="to a single vector")


def large(random):
    """Products so large that an unguarded exponential overflows."""
    yield case(random, 3, 4, 2, scale=100.0, words="where A B is in the thousands")


def narrow(random):
    """A rank of 1, and a head of width 1, whose strict weights are all 1."""
    yield case(random, 4, 1, 2, gated=False, words="for a head of width 1")
    yield case(random, 3, 5, 1, words="of rank 1")


def draw_picture(names):
    """Draw a strict weight and a gated one."""
    T.manual_seed(4)
    projection = names["FactorizedProjection"](6, 3, 3, temperature=0.3)
    base, weight = projection.base.detach(), projection.weight().detach()
    maps = {"strict": weight / base, "base": base, "gated": weight}
    return draw_maps(maps, ("row", "column"), (7.4, 2.8), (-1, 1))


EXERCISE = Exercise(
    "A factorized projection",
    level=2,
    minutes=20,
    needs=("softmax", "attention"),
    checks=(
        Check("weight", "makes the right weight, gated and strict", both, points=4),
        Check("temperature", "divides by the temperature", temperatures),
        Check("applied", "applies its weight to inputs with any leading axes", applied),
        parameters_check(
            "has the required parameters", "FactorizedProjection", (7, 5, 3), (7, 5, 3, 1.0, False)
        ),
        Check("large", "stays finite where A B is large", large),
        Check("narrow", "works with rank 1 and with a head of width 1", narrow),
    ),
    picture=draw_picture,
)
