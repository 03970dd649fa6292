"""The same head as a PyTorch module, vectorized and ready to be trained."""

# %% [course]
import torch as T

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.attention_mistakes import root_mistakes
from attnlab_course.material.tensors import (
    sample_state,
    gradients_check,
    inputs_check,
    parameters_check,
)

# %% [markdown]
# # The head in PyTorch
#
# The head of `numpy_transformer` again, now as a module whose matrices can be learned. It must
# compute the very same: a designed head and a learned one can only be compared if the two
# programs agree.
#
#     K = [x ; pos] Km     Q = [x ; pos] Qm     V = [x ; pos] Vm
#     output = softmax(Q Kᵀ / √qk_dim) V
#
# **Write** the class `TorchTransformer(input_dim, qk_dim, v_dim, pos_dim=None, max_seq_len=10)`, an
# `nn.Module` called on `seq` of shape (length, input_dim), one sequence without a batch. It returns
# the output, (length, v_dim), alone.
#
# | name | what it is | shape |
# | --- | --- | --- |
# | `Km`, `Qm` | `nn.Linear` without bias | `.weight` is (qk_dim, input_dim + pos_dim) |
# | `Vm` | `nn.Linear` without bias | `.weight` is (v_dim, input_dim + pos_dim) |
# | `pos` | `nn.Parameter`, a row for each place | (max_seq_len, pos_dim) |
#
# * Where `pos_dim` is `None` there are no positions, and `pos` is `None`.
# * The position stands behind the token: `[x ; pos]`. The first token gets row 0 of `pos`. Rows
#   that a short input does not reach have no effect, whatever is in them.
# * With positions, an input longer than `max_seq_len` raises a `ValueError`.
# * Without positions, any length is fine, and `max_seq_len` may be `None`.
# * A length of 1 gives shape (1, v_dim).
# * The output has the dtype of the module, float64 after `.double()`, and gradients reach the
#   input. The input stays as it is.
# * The order in which you make the layers does not matter: checks write the weights by name.
#
# Do not call PyTorch's own attention.

# %%
import math

import torch
from torch import nn


class TorchTransformer(nn.Module):
    """One head, with a table of positions or none."""

    def __init__(self, input_dim, qk_dim, v_dim, pos_dim=None, max_seq_len=10):
        super().__init__()
        # >>> solution
        width = input_dim + (pos_dim or 0)
        self.Km = nn.Linear(width, qk_dim, bias=False)
        self.Qm = nn.Linear(width, qk_dim, bias=False)
        self.Vm = nn.Linear(width, v_dim, bias=False)
        self.pos = None
        if pos_dim is not None:
            self.pos = nn.Parameter(torch.randn(max_seq_len, pos_dim))
        # <<< solution

    def forward(self, seq):
        """(length, input_dim) -> (length, v_dim)."""
        # >>> solution
        x = seq
        if self.pos is not None:
            if len(x) > len(self.pos):
                raise ValueError(f"there are {len(self.pos)} positions; got {len(x)} tokens")
            x = torch.cat([x, self.pos[: len(x)]], dim=1)
        keys, queries, values = self.Km(x), self.Qm(x), self.Vm(x)
        scores = queries @ keys.T / math.sqrt(keys.shape[1])
        return torch.softmax(scores, dim=1) @ values
        # <<< solution


# %% [hints]
# 1. What of your NumPy head was a number, and what was a matrix that should be learned?
# 2. A linear layer computes x Wᵀ: what has shape (width, qk_dim) in NumPy lies transposed in its
#    `.weight`. The rest is the same four lines.
# 3. Shapes: `[x ; pos]` (length, input_dim + pos_dim), keys and queries (length, qk_dim),
#    weights (length, length), output (length, v_dim). A softmax needs to know its axis.
# 4. Make `pos` only where there is a pos_dim; elsewhere let it be None, and ask for that in
#    `forward` before you join anything or compare lengths.


# %% [mistakes]
# ## positions first: The positions are in front of the tokens, so that the columns of the weights
# meet the wrong features.
# - torch.cat([x, self.pos[: len(x)]], dim=1)
# + torch.cat([self.pos[: len(x)], x], dim=1)
# ## too long is cut: An input with more tokens than positions is cut in silence instead of refused.
# -                 raise ValueError(f
# +                 x = x[: len(self.pos)]
# +                 str(f


# %% [course]
def case(random, sizes, length, *, scale=1.0, change=None, **more):
    """Return what a module of these sizes gives for a sequence of this length."""
    state = sample_state(random, TorchTransformer(*sizes))
    if change is not None:
        change(state)
    x = random.normal(size=(length, sizes[0])) * scale
    return Case("TorchTransformer", (T.from_numpy(x),), build=(sizes, {}), state=state, **more)


def without(random):
    """No positions, all sizes different."""
    for length, sizes in ((2, (2, 1, 1)), (3, (2, 5, 4)), (7, (3, 2, 5))):
        yield case(random, sizes, length)


def full(random):
    """With positions, as many tokens as there are."""
    for length, sizes in ((2, (2, 1, 1, 3, 2)), (5, (3, 4, 2, 7, 5))):
        yield case(random, sizes, length, words="with as many tokens as positions")


def shorter(random):
    """Fewer tokens than positions; the rows that are left over hold no numbers."""

    def spoil(state):
        state["pos"][3:] = math.nan

    yield case(random, (2, 3, 1, 2, 5), 2, words="with fewer tokens than positions")
    yield case(random, (2, 3, 4, 5, 7), 3, change=spoil, words="where unused positions are NaN")


def one_token(random):
    """A single token."""
    yield case(random, (3, 2, 5), 1, words="with one token")
    yield case(random, (3, 2, 5, 4, 2), 1, words="with one token and positions")


def too_long(random):
    """One token more than there are positions."""
    words = "with 4 tokens and 3 positions"
    yield case(random, (2, 3, 1, 2, 3), 4, raises=("ValueError",), words=words)


def any_length(random):
    """No positions: no limit."""
    yield case(random, (2, 3, 1), 13, words="without positions, 13 tokens")
    words = "without positions, where max_seq_len is None"
    yield case(random, (2, 3, 1, None, None), 3, words=words)


def large(random):
    """Scores of some thousands."""
    yield case(random, (3, 2, 5), 4, scale=300.0, words="with scores of many thousands")


def gradients(random):
    """Gradients of the input."""
    yield case(random, (2, 3, 2, 2, 4), 3)


EXERCISE = Exercise(
    "The head in PyTorch",
    level=2,
    minutes=30,
    needs=("numpy_transformer",),
    checks=(
        Check("no positions", "gives the right output without positions", without, points=2),
        Check("positions", "puts the positions behind the tokens", full, points=2),
        Check("short input", "leaves positions it does not reach alone", shorter, points=2),
        parameters_check(
            "has the required parameters", "TorchTransformer", (2, 3, 5), (2, 3, 5, 7, 4), points=2
        ),
        Check("one token", "works with a single token", one_token),
        Check("too long", "refuses more tokens than positions", too_long),
        Check("any length", "takes any length without positions", any_length),
        Check("large scores", "stays finite with large scores", large),
        gradients_check("gradients", "lets gradients reach its input", gradients),
        inputs_check(full),
    ),
    mistakes=(*root_mistakes("/ math.sqrt(keys.shape[1])", "keys.shape[1]", "len(seq)"),),
    banned=("scaled_dot_product_attention", "MultiheadAttention", "multi_head_attention_forward"),
)
