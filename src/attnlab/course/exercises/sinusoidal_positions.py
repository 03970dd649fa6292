"""Sinusoidal position encoding."""

# %% [course]
import math as m

import numpy as np
import torch as T

from attnlab.course.exercise import Case, Check, Exercise, Mistake

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


# %% [course]
NEAR = 1e-4  # what single precision leaves of an angle


def oracle(length, width):
    """Compute the table number by number."""
    table = np.zeros((length, width))
    for position in range(length):
        for column in range(width):
            angle = position / 10000 ** (2 * (column // 2) / width)
            table[position, column] = m.cos(angle) if column % 2 else m.sin(angle)
    return table


def case(random, shape, longest, dtype=np.float64, **more):
    """Draw x and add the table to each element of the batch."""
    x = random.normal(size=shape).astype(dtype)
    expected = (x + oracle(shape[1], shape[2])).astype(dtype)
    build = ((longest, shape[2]), {})
    given = {"expected": T.from_numpy(expected), "tolerance": NEAR, **more}
    return Case("SinusoidalPositions", (T.from_numpy(x),), build=build, **given)


def values(random):
    """Even widths, lengths below the longest."""
    yield case(random, (1, 2, 2), 5)
    yield case(random, (2, 7, 4), 11)
    yield case(random, (3, 5, 8), 13)


def table(random):
    """The buffer as it is saved, and no parameter."""
    made = {"build": ((5, 6), {}), "tolerance": NEAR}
    expected = {"table": T.from_numpy(oracle(5, 6))}
    yield Case("SinusoidalPositions", expected=expected, answer="state", **made)
    yield Case("SinusoidalPositions", expected={}, answer="parameters", **made)


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


def inputs_kept(random):
    """The input after the call."""
    x = T.from_numpy(random.normal(size=(2, 3, 4)))
    build = ((5, 4), {})
    yield Case("SinusoidalPositions", (x,), build=build, expected=[x], answer="inputs")


def draw_picture(names):
    """Draw the table of a narrow encoding."""
    from attnlab.draw.pictures.charts import lines_figure
    from attnlab.draw.sections import Lines, Series

    rows = names["SinusoidalPositions"](48, 32).table
    places = list(range(48))
    waves = [
        Series(name=f"column {column}", x=places, y=rows[:, column].tolist())
        for column in (0, 8, 16, 24)
    ]
    title = "quick waves and slow ones"
    drawn = Lines(title=title, caption="", x_label="position", y_label="added number", series=waves)
    return lines_figure(drawn)


_ANGLE = "10000 ** (even / d_model)"
_ADD = "x + self.table[:length].to(x.dtype)"
_REGISTER = 'self.register_buffer("table", table)'
_COSINE = "torch.cos(angle[:, : d_model // 2])"

EXERCISE = Exercise(
    "Sinusoidal positions",
    level=2,
    minutes=25,
    checks=(
        Check("values", "adds the right pattern", values, points=3),
        Check("table", "keeps its table as a buffer, and has no parameter", table),
        Check("full length", "takes a length up to the longest", full_length),
        Check("odd widths", "takes widths that are odd", odd_widths, points=2, graded=True),
        Check("too long", "raises a ValueError above the longest length", too_long, graded=True),
        Check("dtype", "answers in the dtype of x", dtype_kept, graded=True),
        Check("inputs", "leaves its input as it is", inputs_kept, graded=True),
    ),
    mistakes=(
        Mistake(
            "parentheses missing",
            _ANGLE,
            "(10000.0**even / d_model)",
            "A power comes before a division: `10000 ** i / d` divides the power and not the "
            "exponent. Parentheses are missing.",
            also=("10000.0**even / d_model",),
        ),
        Mistake(
            "exchanged",
            "table[:, 0::2] = torch.sin(angle)\n"
            "        table[:, 1::2] = torch.cos(angle[:, : d_model // 2])",
            "table[:, 0::2] = torch.cos(angle)\n"
            "        table[:, 1::2] = torch.sin(angle[:, : d_model // 2])",
            "Sine and cosine are exchanged: the even columns are sines.",
        ),
        Mistake(
            "side by side",
            "table[:, 0::2] = torch.sin(angle)\n"
            "        table[:, 1::2] = torch.cos(angle[:, : d_model // 2])",
            "table = torch.cat([torch.sin(angle), torch.cos(angle[:, : d_model // 2])], 1).float()",
            "All sines come first and all cosines after them. They must take turns.",
        ),
        Mistake(
            "all sines",
            _COSINE,
            "torch.sin(angle[:, : d_model // 2])",
            "The odd columns are sines as well, so each pair holds the same number twice.",
        ),
        Mistake(
            "half exponent",
            _ANGLE,
            "10000 ** (even / 2 / d_model)",
            "The exponent is i / d_model where it should be 2i / d_model: the waves are too quick.",
        ),
        Mistake(
            "doubled exponent",
            _ANGLE,
            "10000 ** (2 * even / d_model)",
            "The exponent is twice too large: 2i is the even column itself, not its double.",
        ),
        Mistake(
            "own angle",
            _COSINE,
            "torch.cos(position / 10000 ** ((even[: d_model // 2] + 1) / d_model))",
            "The cosine has an angle of its own. Both columns of a pair share one angle.",
        ),
        Mistake(
            "smaller base",
            _ANGLE,
            "1000 ** (even / d_model)",
            "The slowest waves are too quick: is the base 10000?",
        ),
        Mistake(
            "turned exponent",
            "position / 10000",
            "position * 10000",
            "The waves get quicker with the columns, where they should get slower: the angle is "
            "divided by the power.",
        ),
        Mistake(
            "from one",
            "torch.arange(0, max_length, dtype",
            "torch.arange(1, max_length + 1, dtype",
            "Positions are counted from 1. The first is 0: its sines are 0, its cosines 1.",
        ),
        Mistake(
            "odd width fails",
            _COSINE,
            "torch.cos(angle)",
            "With an odd width there is one cosine fewer than there are sines.",
        ),
        Mistake(
            "odd width cut",
            "torch.sin(angle)\n",
            "torch.nn.functional.pad(torch.sin(angle[:, : d_model // 2]), (0, d_model % 2))\n",
            "With an odd width the last column is left at 0. It is a sine.",
        ),
        Mistake(
            "learned",
            _REGISTER,
            "self.table = nn.Parameter(table)",
            "The table is a parameter, so training changes it. It is fixed.",
        ),
        Mistake(
            "no buffer",
            _REGISTER,
            "self.table = table",
            "The table is not saved with the module: it is a plain attribute, or a buffer "
            "with persistent=False.",
        ),
        Mistake(
            "table alone",
            _ADD,
            "(x * 0 + self.table[:length]).to(x.dtype)",
            "The positions are returned alone. They are added to x.",
        ),
        Mistake(
            "scaled again",
            _ADD,
            "x * x.shape[-1] ** 0.5 + self.table[:length].to(x.dtype)",
            "x is multiplied by √d_model here. That is done where tokens are looked up.",
        ),
        Mistake(
            "by batch",
            _ADD,
            "x + self.table[(torch.arange(len(x)) % len(self.table))][:, None].to(x.dtype)",
            "The pattern follows the batch, not the position: every text gets one row throughout.",
        ),
        Mistake(
            "wider dtype",
            _ADD,
            "x + self.table[:length]",
            "x in a smaller dtype comes back in the table's. Bring the table to the dtype of x.",
        ),
        Mistake(
            "in place",
            _ADD,
            "x.add_(self.table[:length].to(x.dtype))",
            "x itself is changed. Who called may still need it.",
        ),
        Mistake(
            "no limit",
            "if length > len(self.table):",
            "if False:",
            "Too long a text gets no ValueError. With a table of one row it even passes unseen.",
        ),
        Mistake(
            "limit too low",
            "if length > len(self.table):",
            "if length >= len(self.table):",
            "A text exactly as long as the table is refused.",
        ),
        Mistake(
            "starts again",
            "if length > len(self.table):\n"
            '            raise ValueError(f"at most {len(self.table)} positions; got {length}")\n'
            "        return x + self.table[:length]",
            "return x + self.table[torch.arange(length) % len(self.table)]",
            "Positions beyond the table start again at its first row, so two places look the same.",
        ),
    ),
    hints=(
        "How many different angles does one position have, if two columns share one?",
        "Column of positions (max_length, 1) against row of even columns (d_model / 2, rounded "
        "up): their quotient is the table of angles.",
        "Slices with a step fill every second column: `[:, 0::2]` and `[:, 1::2]`. With an odd "
        "width the second slice is one column narrower.",
        "Fill a table of zeros with the sines and the cosines, register it as a buffer, and in "
        "`forward` refuse what is too long, then add as many rows as x is long.",
    ),
    banned=(),
    picture=draw_picture,
)
