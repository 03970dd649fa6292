"""Rotary positions, as in LLaMA."""

# %% [course]
import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.pictures import draw_maps
from attnlab_course.material.tensors import inputs_check

# %% [markdown]
# # Rotary positions
#
# Instead of adding a pattern to the input, newer models turn queries and keys. Pairs of columns
# are points in a plane, and each is turned by an angle that grows with its position. The product
# of a query and a key then depends on how far apart they are, and on nothing else. The picture
# shows the products of one row at 24 positions with itself at the others.
#
# ![products](rotary_positions.svg)
#
# **Write** `rotate(x, offset=0, base=10000.0)`.
#
# | | shape |
# | --- | --- |
# | `x` | (…, length, width); width is even |
# | answer | (…, length, width) |
#
# * **Halves**, as Hugging Face's LLaMA has it: column i of the first half is paired with column
#   i + width / 2.
# * Row p (counted from 0) is at position p + `offset`. Pair i is turned by the angle
#   (p + offset) · base^(−2i / width), i counted from 0.
# * Turning the pair (a, b) by an angle gives (a cos − b sin, a sin + b cos).
# * The answer has the dtype of `x`. Angles are computed in float32 at least: float16 cannot even
#   count to 2049. `x` stays as it is.
# * There may be no axis in front, or several, such as batch and head.

# %%
import torch


def rotate(x, offset=0, base=10000.0):
    """Turn each pair of columns by an angle that grows with the position."""
    # >>> solution
    length, width = x.shape[-2:]
    half = width // 2
    position = torch.arange(offset, offset + length, dtype=torch.float64)
    pair = torch.arange(half, dtype=torch.float64)
    angle = position[:, None] * base ** (-2 * pair / width)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
    # <<< solution


# %% [hints]
# 1. Which column is the partner of column 0 if width is 8? And of column 3?
# 2. One angle for each position and each pair: a table of shape (length, width / 2).
# 3. positions (length, 1) · speeds (width / 2,) → angles; x → two halves (…, length, width / 2);
#    then the formula of a turn, and both halves side by side again.
# 4. Axes in front need no care: sine and cosine have the shape (length, width / 2) and
#    broadcast. Compute them in a wide dtype, then bring them to that of x.

# %% [mistakes]
# ## parentheses missing: A power comes before a division: `base ** (2 * i) / width` divides the
# power and not the exponent. Parentheses are missing.
# - position[:, None] * base ** (-2 * pair / width)
# + position[:, None] / (base ** (2 * pair) / width)
# ## neighbors: Neighboring columns are paired. That is rotary too, but here the halves are paired.
# -     a, b = x[..., :half], x[..., half:]
# -     return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
# +     a, b = x[..., 0::2], x[..., 1::2]
# +     return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
# ## backward: The pairs are turned the other way round: which of the two sines is subtracted?
# - torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
# + torch.cat([a * cos + b * sin, b * cos - a * sin], dim=-1)
# ## half exponent: The exponent is i / width where it should be 2i / width: all pairs turn too
# fast.
# - -2 * pair
# + -pair
# ## offset ignored: `offset` is not used, so what is generated next always is at position 0.
# - torch.arange(offset, offset + length, dtype=torch.float64)
# + torch.arange(length, dtype=torch.float64)
# ## narrow angles: Angles are computed in the dtype of x. Far from the start half precision has no
# such numbers: compute in float32 and bring sine and cosine back.
# - cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
# + angle = position.to(x.dtype)[:, None] * (base ** (-2 * pair / width)).to(x.dtype)
# +     cos, sin = angle.cos(), angle.sin()

# %% [course]
NEAR = 1e-4  # what single precision leaves of an angle


def case(random, shape, dtype=np.float64, settings=None, words="", tolerance=NEAR):
    """Sample x, and turn it."""
    args = (T.from_numpy(random.normal(size=shape).astype(dtype)),)
    return Case("rotate", args, settings or {}, words=words, tolerance=tolerance)


def values(random):
    """Batches of rows."""
    yield case(random, (1, 2, 2))
    yield case(random, (2, 3, 4))
    yield case(random, (3, 5, 6))


def fronts(random):
    """No axis in front, and two."""
    yield case(random, (5, 4), words="without an axis in front")
    yield case(random, (2, 3, 5, 8), words="with batch and head in front")


def offsets(random):
    """A first position other than 0."""
    yield case(random, (2, 1, 4), settings={"offset": 3}, words="of one row, at position 3")
    yield case(random, (2, 5, 6), settings={"offset": 7}, words="from position 7")


def bases(random):
    """Another base."""
    yield case(random, (2, 5, 6), settings={"base": 100.0}, words="with base 100")


def first(random):
    """Position 0, where nothing turns."""
    yield case(random, (2, 1, 6), words="of one row, at position 0")


def single(random):
    """Single precision."""
    yield case(random, (2, 5, 6), np.float32, words="in float32")


def half(random):
    """Half precision, far from the start."""
    settings = {"offset": 3001}
    words = "in float16, from position 3001"
    yield case(random, (2, 5, 6), np.float16, settings, tolerance=1e-2, words=words)


def draw_picture(names):
    """Draw the products of one row at 24 positions."""
    row = np.random.default_rng(6).normal(size=16)
    turned = names["rotate"](T.from_numpy(np.tile(row / np.linalg.norm(row), (24, 1))))
    places = [str(place) if place % 4 == 0 else " " for place in range(24)]
    maps = {"products of one row with itself": turned @ turned.T}
    return draw_maps(maps, ("position", "position"), (4.6, 4.2), (-1.0, 1.0), (places, places))


EXERCISE = Exercise(
    "Rotary positions",
    level=3,
    minutes=25,
    needs=("sinusoidal_positions",),
    checks=(
        Check("values", "turns each pair by the right angle", values, points=3),
        Check("first", "leaves position 0 as it is", first, side=True),
        Check("axes", "takes any axes in front", fronts),
        Check("offset", "begins at another position", offsets),
        Check("base", "takes another base", bases),
        Check("single", "keeps single precision", single),
        Check("half", "has exact angles in half precision", half, points=2),
        inputs_check(values),
    ),
    picture=draw_picture,
)
