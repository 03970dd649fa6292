"""One attention head made of matrices, in NumPy: the readable reference of the hand designs."""

# %% [course]
from dataclasses import replace

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.attention_mistakes import root_mistakes
from attnlab_course.material.tensors import inputs_check

# %% [markdown]
# # One head in NumPy
#
# A whole transformer, small enough to write its weights by hand: one head, no mask, no residual
# stream, no norm. With it you will design heads in the next exercises, so let it be plain and
# exact.
#
#     K = [x ; pos] Km     Q = [x ; pos] Qm     V = [x ; pos] Vm
#     output = softmax(Q Kᵀ / √qk_dim) V
#
# The position is not added to the token, it stands **behind** it: `[x ; pos]` is row by row the
# token's vector followed by the position's.
#
# **Write** the class `NumpyTransformer(Km, Qm, Vm, pos=None)`; an object of it is called on `x` and
# returns the output.
#
# | | shape |
# | --- | --- |
# | `Km`, `Qm` | (width, qk_dim) |
# | `Vm` | (width, v_dim) |
# | `pos` | (longest, pos_dim), row 0 for the first place; or None: no positions |
# | `x` | (length, input_dim), one sequence without a batch; input_dim + pos_dim = width |
# | output | (length, v_dim) |
#
# * `x` may be shorter than the table of positions; the rows that are left over are not used.
# * `x` longer than the table raises a `ValueError`.
# * Everything is computed in float64, also where `x` and the matrices come in float32 or as whole
#   numbers.
# * Scores of many thousands give finite numbers and no warning.
# * A call changes neither `x` nor the object: the next call gives what it would have given.

# %%
import numpy as np


class NumpyTransformer:
    """One head made of three matrices, and a table of positions or none."""

    def __init__(self, Km, Qm, Vm, pos=None):
        # >>> solution
        self.Km, self.Qm, self.Vm = Km, Qm, Vm
        self.pos = pos
        # <<< solution

    def __call__(self, x):
        """(length, input_dim) -> (length, v_dim)."""
        # >>> solution
        x = np.asarray(x, dtype=np.float64)
        if self.pos is not None:
            if len(x) > len(self.pos):
                raise ValueError(f"there are {len(self.pos)} positions; got {len(x)} tokens")
            x = np.concatenate([x, self.pos[: len(x)]], axis=1)
        keys, queries, values = x @ self.Km, x @ self.Qm, x @ self.Vm
        scores = queries @ keys.T / np.sqrt(keys.shape[1])
        axis = 1
        grown = np.exp(scores - scores.max(axis=axis, keepdims=True))
        weights = grown / grown.sum(axis=axis, keepdims=True)
        return weights @ values
        # <<< solution


# %% [hints]
# 1. Which of the three products need the positions, and when do they come in?
# 2. Make `[x ; pos]` once, first; from there on nothing knows about positions any more. How many
#    rows of the table does an input of 3 tokens need?
# 3. Shapes: `[x ; pos]` (length, width), keys and queries (length, qk_dim), scores (length,
#    length) with a row for each query, values (length, v_dim).
# 4. A softmax does not change if you take the same number off all scores of a row. Which number
#    makes every exponential at most 1? Keep the axis, so that it is one number a row.


# %% [mistakes]
# ## over queries: The softmax runs over the queries: each column sums to 1 where each row should.
# - axis = 1
# + axis = 0
# ## positions first: The positions are in front of the tokens, so that the rows of the matrices
# meet the wrong features.
# - np.concatenate([x, self.pos[: len(x)]], axis=1)
# + np.concatenate([self.pos[: len(x)], x], axis=1)
# ## unguarded softmax: The exponential of large scores overflows: what can be taken off a row
# without changing its softmax?
# - np.exp(scores - scores.max(axis=axis, keepdims=True))
# + np.exp(scores)


# %% [course]
def head(random, input_dim, qk_dim, v_dim, pos_dim=0, longest=0):
    """Sample the matrices of a head; without positions where pos_dim is 0."""
    width = input_dim + pos_dim
    Km, Qm = (random.normal(size=(width, qk_dim)) for _ in range(2))
    pos = random.normal(size=(longest, pos_dim)) if pos_dim else None
    return Km, Qm, random.normal(size=(width, v_dim)), pos


def case(matrices, x, **more):
    """Ask for the output of the head with these matrices."""
    return Case("NumpyTransformer", (x,), build=(matrices, {}), **more)


def without(random):
    """No positions, all sizes different."""
    for length, sizes in ((2, (2, 1, 1)), (3, (2, 5, 4)), (7, (3, 2, 5)), (1, (3, 2, 5))):
        yield case(head(random, *sizes), random.normal(size=(length, sizes[0])))


def positions(random):
    """As many tokens as positions."""
    for length, sizes in ((2, (1, 2, 1, 2)), (5, (3, 4, 2, 7)), (1, (3, 2, 5, 4))):
        yield case(head(random, *sizes, length), random.normal(size=(length, sizes[0])))


def shorter(random):
    """Fewer tokens than positions."""
    words = "with fewer tokens than positions"
    for length, sizes in ((2, (2, 3, 1, 2)), (4, (2, 5, 3, 4))):
        yield case(head(random, *sizes, 7), random.normal(size=(length, sizes[0])), words=words)


def too_long(random):
    """One token more than there are positions."""
    x, words = random.normal(size=(4, 2)), "with 4 tokens and 3 positions"
    build = (head(random, 2, 3, 1, 2, 3), {})
    yield Case("NumpyTransformer", (x,), build=build, raises=("ValueError",), words=words)


def large(random):
    """Scores of some thousands, near each other; then far apart from row to row."""
    Km, Qm = (np.vstack([random.normal(size=(2, 2)) / 100, [100, 0]]) for _ in range(2))
    near = np.column_stack([random.normal(size=(4, 2)), np.ones(4)])
    matrices = Km, Qm, random.normal(size=(3, 5)), None
    yield case(matrices, near, words="with scores of some thousands")
    Km, Qm, Vm, pos = head(random, 3, 2, 4)
    x = random.normal(size=(5, 3)) * np.array([[1], [1], [30], [300], [3000]])
    yield case((Km * 20, Qm, Vm, pos), x, words="with scores of many thousands")


def other_numbers(random):
    """Tokens and matrices as whole numbers and as float32."""
    whole = np.eye(3, dtype=np.int64)[random.permutation([0, 1, 2, 1])]
    Km, Qm, Vm = (random.integers(-3, 4, size=(3, width)) for width in (2, 2, 5))
    yield case((Km, Qm, Vm, None), whole, words="with whole numbers")
    single = (*map(np.float32, head(random, 3, 2, 4)[:3]), None)
    yield case(single, np.float32(np.eye(3) / 3), words="in float32", tolerance=1e-10)


def called_again(random):
    """A short sequence first, then a longer one."""
    made = case(head(random, 2, 3, 1, 3, 5), random.normal(size=(5, 2)))
    calls = tuple(("__call__", (x,), {}) for x in (random.normal(size=(2, 2)), *made.args))
    yield replace(made, args=(), methods=calls, words="at the second call, with more tokens")


EXERCISE = Exercise(
    "One head in NumPy",
    level=2,
    minutes=25,
    needs=("softmax", "attention"),
    checks=(
        Check("no positions", "gives the right output without positions", without, points=2),
        Check("whole table", "puts the positions behind the tokens", positions, points=2),
        Check("short input", "takes fewer tokens than there are positions", shorter, points=2),
        Check("too long", "refuses more tokens than positions", too_long),
        Check("large scores", "stays finite with large scores", large),
        Check("float64", "computes in float64 whatever it is given", other_numbers),
        Check("second call", "gives the same at the next call", called_again),
        inputs_check(without),
    ),
    mistakes=(
        *root_mistakes("/ np.sqrt(keys.shape[1])", "keys.shape[1]", "len(queries)", root="np.sqrt"),
    ),
)
