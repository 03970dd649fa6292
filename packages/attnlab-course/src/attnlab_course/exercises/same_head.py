"""What of a head's matrices can be known from outside, and when two heads are the same."""

# %% [course]
from attnlab_course.exercise import Case, Check, Exercise, Failure
from attnlab_course.material.pictures import draw_maps
from attnlab_course.material.tensors import inputs_check

# %% [markdown]
# # The same head in other numbers
#
# You designed a head, a neighbor trained one, and the two give the same answers. Yet their matrices
# have nothing in common. That is no accident: attention never sees `Km` and `Qm`, only what they
# make together. In the picture are the queries' matrices of two heads that attend alike on every
# input.
#
# ![two matrices](same_head.svg)
#
# The heads here have no positions, and their tokens are one-hot: token number t is row t of
# the identity. So an input is a sequence of token numbers, as long as you like.
#
#     K = x Km     Q = x Qm     V = x Vm     output = softmax(Q Kᵀ / √qk_dim) V
#
# **Write** three functions of NumPy.
#
# | | shape |
# | --- | --- |
# | `Km`, `Qm` | (tokens, qk_dim) |
# | `Vm` | (tokens, v_dim) |
#
# * `score_table(Km, Qm)`: the scaled score of every token as query (row) with every token as key
#   (column), (tokens, tokens), **less the mean of its row**. Softmax does not see what all keys of
#   a query have in common, so after this nothing is left in the table that cannot be known.
# * `change(Km, Qm, R)`: two other matrices `(new Km, new Qm)` of a head that attends alike: the new
#   `Km` is `Km R`, with R any invertible matrix (qk_dim, qk_dim). Find the new `Qm` that goes with
#   it.
# * `same_head(one, other)`: `True` if two heads, each a tuple `(Km, Qm, Vm)`, have the same weights
#   **and** outputs on every input, else `False`. Their qk_dim may differ. Numbers that are within
#   0.000001 of each other count as equal. Tables and values decide it; no input needs to be tried.
# * What you are given stays as it is.

# %%
import numpy as np


def score_table(Km, Qm):
    """Return the scores of all pairs of tokens, less what softmax does not see."""
    # >>> solution
    scores = Qm @ Km.T / np.sqrt(Km.shape[1])
    return scores - scores.mean(axis=1, keepdims=True)
    # <<< solution


def change(Km, Qm, R):
    """Return other matrices of a head that attends alike, the keys' multiplied by R."""
    # >>> solution
    return Km @ R, Qm @ np.linalg.inv(R).T
    # <<< solution


def same_head(one, other):
    """Whether two heads do the same with every input."""
    # >>> solution
    here, there = (score_table(Km, Qm) for Km, Qm, _ in (one, other))
    closeness = 1e-6
    same_values = one[2].shape == other[2].shape and np.abs(one[2] - other[2]).max() <= closeness
    return bool(same_values and np.abs(here - there).max() <= closeness)
    # <<< solution


# %% [hints]
# 1. In the formula of attention, where do Km and Qm still appear on their own once x is one-hot?
# 2. Q Kᵀ is a product of two matrices with an inner axis of qk_dim. What may you put between
#    them, and cancel again, without changing the product?
# 3. With R between: (Qm X)(Km R)ᵀ = Qm X Rᵀ Kmᵀ. It must be Qm Kmᵀ again, so what must X Rᵀ be?
# 4. Two heads are the same if their centered tables agree and their values agree. A number added
#    to a whole row of scores cancels in the softmax.


# %% [mistakes]
# ## no scaling: The scores are not divided by √qk_dim; two heads of different widths then cannot be
# compared.
# - Qm @ Km.T / np.sqrt(Km.shape[1])
# + Qm @ Km.T
# ## not centered: The mean of each row is still in the table, and softmax does not see it.
# - return scores - scores.mean(axis=1, keepdims=True)
# + return scores
# ## same change for both: Queries and keys are changed alike, which changes the scores unless R is
# a rotation.
# - return Km @ R, Qm @ np.linalg.inv(R).T
# + return Km @ R, Qm @ R
# ## inverse not transposed: The inverse of R is not transposed: write out (Qm X)(Km R)ᵀ and see
# what cancels R.
# - Qm @ np.linalg.inv(R).T
# + Qm @ np.linalg.inv(R)
# ## matrices compared: Km is compared with Km and Qm with Qm. Only what they make together can be
# known.
# - return bool(same_values and np.abs(here - there).max() <= closeness)
# + return bool(
# +         one[0].shape == other[0].shape
# +         and same_values
# +         and np.abs(one[0] - other[0]).max() <= closeness
# +         and np.abs(one[1] - other[1]).max() <= closeness
# +     )
# ## values forgotten: Heads that attend alike but have other values count as the same.
# - return bool(same_values and np.abs(here - there).max() <= closeness)
# + return bool(np.abs(here - there).max() <= closeness)


# %% [course]
def sample(random, tokens, qk_dim, v_dim):
    """Sample the matrices of a head."""
    return tuple(random.normal(size=(tokens, width)) for width in (qk_dim, qk_dim, v_dim))


def other_numbers(random, head):
    """Return the same head with other Km and Qm."""
    Km, Qm, Vm = head
    R = random.normal(size=(Km.shape[1],) * 2) + 2 * np.eye(Km.shape[1])
    return Km @ R, np.linalg.solve(R, Qm.T).T, Vm


def wider(random, head):
    """Return the same head with more channels, whose keys are zero."""
    Km, Qm, Vm = head
    widths = Km.shape[1], Km.shape[1] + 2
    Km = np.hstack([Km, np.zeros((len(Km), 2))])
    Qm = np.hstack([Qm, random.normal(size=(len(Qm), 2))]) * (widths[1] / widths[0]) ** 0.5
    return other_numbers(random, (Km, Qm, Vm))


def shifted(random, head):
    """Return a head whose queries add a number to all of their keys: not to be seen."""
    Km, Qm, Vm = head
    return other_numbers(random, (Km + random.normal(size=Km.shape[1]), Qm, Vm))


def tables(random):
    """Tables of all sizes."""
    for tokens, qk_dim in ((2, 1), (3, 5), (5, 2)):
        Km, Qm, _ = sample(random, tokens, qk_dim, 1)
        yield Case("score_table", (Km, Qm))


def changes(random):
    """Changes by diagonal matrices and by any."""
    for tokens, size in ((2, 1), (4, 3), (3, 5)):
        Km, Qm, _ = sample(random, tokens, size, 1)
        R = random.normal(size=(size, size)) + 3 * np.eye(size)
        yield Case("change", (Km, Qm, R))


def decision(one, other, right, words):
    """Ask whether two heads are the same."""

    def judge(answer):
        decisions = np.asarray(answer).ravel()
        if decisions.dtype == bool and decisions.tolist() == [right]:
            return None
        return Failure(f"expected {right}, got {answer}")

    return Case("same_head", (one, other), judge=judge, words=words)


def equals(random):
    """The head itself, and with other numbers."""
    one = sample(random, 3, 2, 4)
    yield decision(one, tuple(matrix.copy() for matrix in one), True, "for a head and itself")
    louder = (4 * one[0], one[1] / 4, one[2])
    yield decision(one, louder, True, "with the keys times 4 and the queries divided by 4")
    other = other_numbers(random, one)
    yield decision(one, other, True, "for a head and its change by R")


def others(random):
    """Heads that are not the same: any two, and the same with keys and queries exchanged."""
    one = sample(random, 3, 2, 4)
    yield decision(one, sample(random, 3, 2, 4), False, "for two heads drawn by chance")
    exchanged = (one[1], one[0], one[2])
    yield decision(one, exchanged, False, "for a head and one with Km and Qm exchanged")


def other_values(random):
    """The same attention with other values."""
    Km, Qm, Vm = sample(random, 4, 3, 2)
    other = other_numbers(random, (Km, Qm, Vm + 0.1 * np.eye(4, 2)))
    yield decision((Km, Qm, Vm), other, False, "where only Vm differs")
    other = other_numbers(random, (Km, Qm, Vm[:, :1]))
    yield decision((Km, Qm, Vm), other, False, "where v_dim differs")


def unseen(random):
    """The same for softmax, though the products differ."""
    one = sample(random, 4, 3, 2)
    words = "where queries add a number to all of their keys"
    yield decision(one, shifted(random, one), True, words)


def widths(random):
    """The same with more channels, and nearly the same with more channels."""
    one = sample(random, 3, 2, 4)
    yield decision(one, wider(random, one), True, "where one has more channels")
    Km, Qm, Vm = (np.hstack([matrix, 0 * matrix[:, :2]]) for matrix in one)
    other = Km, Qm, Vm[:, :4]
    yield decision(one, other, False, "where channels of zeros make the scores smaller")


def small_differences(random):
    """Tables that differ by little, but by more than rounding."""
    Km, Qm, Vm = sample(random, 3, 2, 4)
    Km, Qm = Km / 2, Qm / 2
    other = Km + 2e-3 * random.choice([-1, 1], size=Km.shape) * np.eye(3, 2), Qm, Vm
    yield decision((Km, Qm, Vm), other, False, "where a key differs by two thousandths")


def draw_picture(names):
    """Draw Qm of two heads that are the same."""
    random = np.random.default_rng(4)
    one = sample(random, 4, 3, 2)
    other = other_numbers(random, one)
    maps = {"Qm, yours": one[1], "Qm, your neighbor's": other[1]}
    return draw_maps(maps, ("token", "channel"), (5.4, 2.8), (-2, 2))


EXERCISE = Exercise(
    "The same head in other numbers",
    level=3,
    minutes=35,
    needs=("numpy_transformer", "identity"),
    checks=(
        Check("table", "gives the table of scores", tables, points=2),
        Check("change", "finds the queries that go with the changed keys", changes, points=2),
        Check("equal heads", "knows a head again in other numbers", equals, side=True),
        Check("other heads", "tells different heads apart", others, side=True),
        Check("values", "compares the values too", other_values, side=True),
        Check("unseen", "overlooks what softmax does not see", unseen, side=True),
        Check("widths", "compares heads of different qk_dim", widths),
        Check("small differences", "sees small differences", small_differences, side=True),
        inputs_check(changes),
    ),
    picture=draw_picture,
)
