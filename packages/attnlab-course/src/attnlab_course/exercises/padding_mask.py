"""Masks that keep padding out, alone and joined with the causal one."""

# %% [course]
import torch as T

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.tensors import inputs_check

# %% [markdown]
# # The padding mask
#
# Texts of different lengths go into one batch by filling the short ones up with padding at their
# end. Padding is no text: no query may attend to it, or a verdict would change with the company a
# text keeps. The picture shows where the queries of a text of four tokens may look, in a batch of
# six columns, when the future is hidden as well.
#
# ![padding and future](padding_mask.svg)
#
# **Write** two functions. Both take `lengths`, a tensor of whole numbers, one for each text, and
# `longest`, the number of columns; without it, that of the longest text. **True = may attend.**
#
# | | gives | shape |
# | --- | --- | --- |
# | `padding_mask(lengths, longest=None)` | what is no padding | (batch, keys) |
# | `joined_mask(lengths, longest=None)` | and no future either | (batch, queries, keys) |
#
# * A text of length n fills the first n columns. One of length 0 has none; one that is longer than
#   `longest` was cut, and fills all.
# * In `joined_mask` a query may attend to a key that is no padding **and** not in its future. There
#   are as many queries as keys, and a query may attend to itself.
# * Only keys are masked. A query that is padding itself still may attend to the text before it: its
#   output is thrown away later, and this way it never has nothing to attend to.
# * The masks are boolean tensors. `lengths` stays as it is.

# %%
import torch


def padding_mask(lengths, longest=None):
    """Return which keys of each text are no padding."""
    # >>> solution
    longest = int(lengths.max()) if longest is None else longest
    return torch.arange(longest) < lengths[:, None]
    # <<< solution


def joined_mask(lengths, longest=None):
    """Return which keys each query may attend to: no padding, and none in its future."""
    # >>> solution
    real = padding_mask(lengths, longest)
    size = real.shape[1]
    causal = torch.ones(size, size, dtype=torch.bool).tril()
    return causal & real[:, None, :]
    # <<< solution


# %% [hints]
# 1. A text has three tokens and is in a row of five columns. Which column numbers are tokens?
# 2. A column is a token where its number is smaller than the text's length. How do shapes
#    (columns,) and (batch, 1) meet in a comparison?
# 3. padding (batch, keys) → (batch, 1, keys); causal (queries, keys); joined (batch, queries,
#    keys). Which logical operation joins two conditions that must both hold?
# 4. Compare torch.arange(longest) with the lengths as a column. In the joined mask the new axis
#    stands for the queries, so that all of them get the same keys.


# %% [mistakes]
# ## one too many: One column of padding counts as text. Positions begin at 0: a text of length n
# ends at n − 1.
# - torch.arange(longest) < lengths[:, None]
# + torch.arange(longest) <= lengths[:, None]
# ## inverted mask: The mask is the wrong way round: True is at the padding, and here True means may
# attend.
# - torch.arange(longest) < lengths[:, None]
# + torch.arange(longest) >= lengths[:, None]
# ## numbers in place of truths: The mask holds the numbers 0 and 1; it should hold the booleans
# True and False.
# - return torch.arange(longest) < lengths[:, None]
# + return (torch.arange(longest) < lengths[:, None]).long()
# ## either is enough: A key is allowed if it is no padding or not in the future. Both must hold.
# - causal & real[:, None, :]
# + causal | real[:, None, :]
# ## queries masked: Queries that are padding are masked, so they have nothing to attend to. It is
# the keys that should be masked, for every query.
# - causal & real[:, None, :]
# + causal & real[:, :, None]


# %% [course]
def case(call, lengths, longest=None, **more):
    """Ask for a mask."""
    args = (T.tensor(lengths),) if longest is None else (T.tensor(lengths), longest)
    return Case(call, args, **more)


def sample_ids(random, batch, most):
    """Sample lengths that are not all the same; neither the first nor the last is the longest."""
    lengths = list(map(int, random.integers(1, most, size=batch)))
    lengths[1] = most
    return lengths


def keys(random):
    """As many columns as the longest text has tokens."""
    yield case("padding_mask", [2])
    yield case("padding_mask", [1, 3, 2])
    yield case("padding_mask", sample_ids(random, 4, 7))


def columns(random):
    """More columns than any text needs, in both masks."""
    yield case("padding_mask", [1, 2], 3)
    yield case("joined_mask", [1, 2, 1], 4)
    yield case("padding_mask", sample_ids(random, 3, 4), 7)
    yield case("joined_mask", sample_ids(random, 2, 3), 5)


def both(random):
    """Padding and future."""
    yield case("joined_mask", [2])
    yield case("joined_mask", [1, 3, 2])
    yield case("joined_mask", sample_ids(random, 5, 4))


def empty(random):
    """A text without tokens."""
    lengths = [0, 2, int(random.integers(1, 4))]
    for call in ("padding_mask", "joined_mask"):
        yield case(call, lengths, words="with a text of length 0")


def cut(random):
    """A text that is longer than the columns."""
    lengths = [5, 2, int(random.integers(3, 7))]
    for call in ("padding_mask", "joined_mask"):
        yield case(call, lengths, 3, words="with a text that is longer")


def draw_picture(names):
    """Draw where the queries of a text of four tokens may look in six columns."""
    from attnlab.draw.attention import draw_head

    mask = names["joined_mask"](T.tensor([4]), 6)[0]
    tokens = ["the", "plot", "is", "thin", "[PAD]", "[PAD]"]
    return draw_head(mask / mask.sum(dim=-1, keepdim=True), tokens=tokens)


EXERCISE = Exercise(
    "The padding mask",
    level=2,
    minutes=15,
    needs=("causal_mask",),
    checks=(
        Check("keys", "tells tokens from padding", keys, points=2),
        Check("joined", "joins padding and future", both, points=2),
        Check("columns", "makes the requested number of columns", columns),
        Check("no text", "takes a text of length 0", empty),
        Check("cut text", "takes a text longer than the columns", cut),
        inputs_check(cut, "lengths"),
    ),
    picture=draw_picture,
)
