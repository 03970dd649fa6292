"""Sinusoidal position encoding."""

# %% [course]
import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.pictures import draw_lines
from attnlab_course.material.tensors import inputs_check

# %% [markdown]
# # Sinusoidal positions
#
# Attention does not know the order of its inputs, so each position gets a pattern of its own that
# is added to what stands there. The patterns are waves: quick ones in the first columns, slow ones
# in the last. The picture shows four columns of 32 over 48 positions.
#
# ![waves](sinusoidal_positions.svg)
#
# **Write** the class `SinusoidalPositions(max_length, d_model)`. Its call takes `x` and returns x
# plus the first rows of the table.
#
# | | shape |
# | --- | --- |
# | `table` | (max_length, d_model) |
# | `x` | (batch, length, d_model) |
# | answer | (batch, length, d_model) |
#
# * Position p, columns 2i and 2i + 1, both counted from 0: the even column holds
#   sin(p / 10000^(2i / d_model)), the odd column the cosine of the same angle.
# * `d_model` may be odd; then the last column is a sine without its cosine. It may be 1.
# * The table is a buffer named `table`: it is not learned, but is moved and saved with the module.
#   There are no parameters.
# * The answer has the dtype of `x`, whatever dtype the table has. `x` stays as it is.
# * A length above `max_length` raises a `ValueError`.

# %%
import torch
from torch import nn


class SinusoidalPositions(nn.Module):
    """Add a pattern of sines and cosines to each position."""

    def __init__(self, max_length, d_model):
        super().__init__()
        # >>> solution
        position = torch.arange(0, max_length, dtype=torch.float64)[:, None]
        even = torch.arange(0, d_model, 2, dtype=torch.float64)
        angle = position / 10000 ** (even / d_model)
        table = torch.zeros(max_length, d_model)
        table[:, 0::2] = torch.sin(angle)
        table[:, 1::2] = torch.cos(angle[:, : d_model // 2])
        self.register_buffer("table", table)
        # <<< solution

    def forward(self, x):
        """Return x plus the pattern of each position."""
        # >>> solution
        length = x.shape[1]
        if length > len(self.table):
            raise ValueError(f"at most {len(self.table)} positions; got {length}")
        return x + self.table[:length].to(x.dtype)
        # <<< solution


# %% [hints]
# 1. How many different angles does one position have, if two columns share one?
# 2. Column of positions (max_length, 1) against row of even columns (d_model / 2, rounded up):
#    their quotient is the table of angles.
# 3. Slices with a step fill every second column: `[:, 0::2]` and `[:, 1::2]`. With an odd width
#    the second slice is one column narrower.
# 4. Fill a table of zeros with the sines and the cosines, register it as a buffer, and in
#    `forward` refuse what is too long, then add as many rows as x is long.

# %% [mistakes]
# Of homework, and of the usual code, which takes even widths alone.
# ## parentheses missing: A power comes before a division: `10000 ** i / d` divides the power and
# not the exponent. Parentheses are missing.
# - 10000 ** (even / d_model)
# + (10000.0**even / d_model)
# or
# + 10000.0**even / d_model
# ## exchanged: Sine and cosine are exchanged: the even columns are sines.
# -         table[:, 0::2] = torch.sin(angle)
# -         table[:, 1::2] = torch.cos(angle[:, : d_model // 2])
# +         table[:, 0::2] = torch.cos(angle)
# +         table[:, 1::2] = torch.sin(angle[:, : d_model // 2])
# ## side by side: All sines come first and all cosines after them. They must take turns.
# -         table[:, 0::2] = torch.sin(angle)
# -         table[:, 1::2] = torch.cos(angle[:, : d_model // 2])
# +         table = torch.cat([torch.sin(angle), torch.cos(angle[:, : d_model // 2])], 1).float()
# ## half exponent: The exponent is i / d_model where it should be 2i / d_model: the waves are too
# quick.
# - 10000 ** (even / d_model)
# + 10000 ** (even / 2 / d_model)
# ## odd width fails: With an odd width there is one cosine fewer than there are sines.
# - torch.cos(angle[:, : d_model // 2])
# + torch.cos(angle)
# ## learned: The table is a parameter, so training changes it. It is fixed.
# - self.register_buffer("table", table)
# + self.table = nn.Parameter(table)
# ## exponent doubled: The exponent has a factor 2 too many: columns 2i and 2i + 1 have 2i /
# d_model, where 2i is the number of the column already.
# - 10000 ** (even / d_model)
# + 10000 ** (2 * even / d_model)
# or
# -         table[:, 0::2] = torch.sin(angle)
# -         table[:, 1::2] = torch.cos(angle[:, : d_model // 2])
# +         column = torch.arange(d_model, dtype=torch.float64)
# +         angle = position / 10000 ** (2 * column / d_model)
# +         table[:, 0::2] = torch.sin(angle[:, 0::2])
# +         table[:, 1::2] = torch.cos(angle[:, 1::2])
# ## own exponents: Each column has an exponent of its own. A sine and the cosine behind it share
# one.
# -         table[:, 0::2] = torch.sin(angle)
# -         table[:, 1::2] = torch.cos(angle[:, : d_model // 2])
# +         column = torch.arange(d_model, dtype=torch.float64)
# +         angle = position / 10000 ** (column / d_model)
# +         table[:, 0::2] = torch.sin(angle[:, 0::2])
# +         table[:, 1::2] = torch.cos(angle[:, 1::2])
# ## batch taken for length: The first axis is taken for the positions, as in code whose texts lie
# in columns. Here it is the batch, and the second is the length.
# - return x + self.table[:length].to(x.dtype)
# + return x + self.table[: len(x)].unsqueeze(1).to(x.dtype)


# %% [course]
NEAR = 1e-4  # what single precision leaves of an angle


def case(random, shape, longest, dtype=np.float64, words=""):
    """Sample x."""
    x = T.from_numpy(random.normal(size=shape).astype(dtype))
    build = ((longest, shape[2]), {})
    return Case("SinusoidalPositions", (x,), build=build, words=words, tolerance=NEAR)


def values(random):
    """Even widths, lengths below the longest."""
    yield case(random, (1, 2, 2), 5)
    yield case(random, (2, 7, 4), 11)
    yield case(random, (3, 5, 8), 13)


def table(random):
    """The buffer as it is saved, and no parameter."""
    for answer in ("state", "parameters"):
        yield Case("SinusoidalPositions", build=((5, 6), {}), answer=answer, tolerance=NEAR)


def odd_widths(random):
    """A sine without its cosine."""
    yield case(random, (1, 3, 1), 5, words="with d_model 1")
    yield case(random, (2, 5, 3), 7)
    yield case(random, (2, 4, 7), 9)


def full_length(random):
    """As long as allowed."""
    yield case(random, (2, 1, 4), 1, words="with one position, the only one there is")
    yield case(random, (2, 7, 4), 7, words="as long as it may be")


def too_long(random):
    """Longer than the table."""
    for longest, length in ((3, 5), (1, 2)):
        x = T.from_numpy(random.normal(size=(2, length, 4)))
        build = ((longest, 4), {})
        yield Case("SinusoidalPositions", (x,), build=build, raises=("ValueError",))


def dtype_kept(random):
    """A table in double precision, x in single."""
    words = "with x in float32, after .double()"
    yield case(random, (2, 3, 4), 5, np.float32, words=words)


def draw_picture(names):
    """Draw the table of a narrow encoding."""
    rows = names["SinusoidalPositions"](48, 32).table
    waves = {f"column {column}": rows[:, column] for column in (0, 8, 16, 24)}
    axes = ("position", "added number")
    return draw_lines("quick waves and slow ones", axes, range(48), waves)


EXERCISE = Exercise(
    "Sinusoidal positions",
    level=2,
    minutes=25,
    checks=(
        Check("values", "adds the right pattern", values, points=3),
        Check("table", "keeps its table as a buffer, and has no parameter", table),
        Check("full length", "takes a length up to the longest", full_length),
        Check("odd widths", "takes widths that are odd", odd_widths, points=2),
        Check("too long", "raises a ValueError above the longest length", too_long),
        Check("dtype", "answers in the dtype of x", dtype_kept),
        inputs_check(values),
    ),
    picture=draw_picture,
)
