"""Give each token back: the first matrices written by hand."""

# %% [course]
from dataclasses import replace
from functools import partial

from attnlab_course.exercise import Check, Exercise
from attnlab_course.material.weight_mistakes import diagnosis, gain_mistakes, is_near, near
from attnlab_course.material.weights import HeadTrial, float32_words, judge_weights
from attnlab.tasks.vectors import VectorTask

# %% [markdown]
# # By hand: every token finds itself
#
# Nothing is trained here. You write the weights of one head yourself, as numbers, so that it gives
# every token back. The tokens A, B and C are the one-hot vectors (1, 0, 0), (0, 1, 0), (0, 0, 1);
# an input is a sequence of 1 to 6 of them, and the output at each place must be the token of that
# place. There are no positions: the head has to find a token by what it is.
#
#     K = x Km     Q = x Qm     V = x Vm     output = softmax(Q Kᵀ / √qk_dim) V
#
# The picture shows where a head should look on the input C A A B: at its own letter, wherever
# that stands.
#
# ![where to look](identity.svg)
#
# **Write** three matrices of NumPy. `weights()` hands them in; leave it as it is.
#
# | | shape |
# | --- | --- |
# | `Km`, `Qm` | (3, qk_dim), any qk_dim up to 64 |
# | `Vm` | (3, 3) |
#
# * Every component of every output is at most **0.001** away from its target, on **all 1,092
#   inputs** of 1 to 6 letters, not on some of them. Softmax never gives a weight of exactly 1: find
#   out how far the right scores must stand above the wrong ones.
# * At every place, each equal letter gets more weight than any other one.
# * It is judged in float64 by a softmax that does not overflow. In float32, in which models are
#   usually run, the outputs are the same within 0.001. So numbers may be large, but finite, and
#   not enormous.
#
# Your `NumpyTransformer` is the tool to try your matrices out.

# %%
import numpy as np

# >>> solution
gain = 20.0
Km = np.eye(3)
Qm = gain * np.eye(3)
Vm = np.eye(3)
# --- starter
# Km = None  # (3, qk_dim): makes keys
# Qm = None  # (3, qk_dim): makes queries
# Vm = None  # (3, 3): makes values
# <<< solution


# %%
def weights():
    """Hand in the matrices."""
    return [Km, Qm, Vm]


# %% [hints]
# 1. The score of a query and a key is a dot product. When is the dot product of two one-hot
#    vectors large?
# 2. With V = x nothing is left to do for the values; the work is in the scores. A score of 1 for
#    the right key and 0 for the wrong ones: which weights does softmax make of that?
# 3. Let the right key stand g above the others, after the division. Among n keys, one of them
#    right, the wrong ones get (n - 1) / (n - 1 + e^g) together.
# 4. Set that to 0.001 with the longest input, solve for g, and remember that your scores are
#    divided by √qk_dim before softmax sees them.

# %% [mistakes]
# ## no letter stands out: All keys have the same score, so each token looks everywhere alike and
# the output is the mean of all values.
# - Km = np.eye(3)
# + Km = np.ones((3, 3))
# ## away from its letter: The sign of the scores is wrong: each token looks at every letter but its
# own.
# - Qm = gain * np.eye(3)
# + Qm = -gain * np.eye(3)
# ## looks at another letter: The keys of the letters are exchanged: a query finds another letter
# than its own.
# - Km = np.eye(3)
# + Km = np.eye(3)[[1, 2, 0]]
# ## wrong values: It looks at the right tokens, but the rows of Vm are not what should come out of
# A, B and C.
# - Vm = np.eye(3)
# + Vm = np.full((3, 3), 1 / 3)
# ## gain in the values: The gain is in the wrong matrix: large values do not make attention
# sharper, large scores do.
# - Qm = gain * np.eye(3)
# - Vm = np.eye(3)
# + Qm = np.eye(3)
# + Vm = gain * np.eye(3)

# %% [course]
TASK = VectorTask("identity", longest=6)
is_right = partial(is_near, TASK)


def gain_in_values(head):
    """Take from Vm what is too large, and multiply the queries by it."""
    size = float(np.abs(head.Vm).max())
    return replace(head.louder(size), Vm=head.Vm / size) if size > 1.5 else None


def ordered(order):
    """Return the change that gives the keys of the letters another order."""
    return lambda head: replace(head, Km=head.Km[order])


ORDERS = ([0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0])
REPAIRS = (
    ("gain in the values", gain_in_values),
    ("away from its letter", lambda head: head.louder(-1e6)),
    *(("looks at another letter", ordered(order)) for order in ORDERS),
)


def look(head):
    """Say where no letter stands out: all keys have the same score."""
    is_even = np.ptp(head.Qm @ head.Km.T, axis=1).max() < 1e-6
    return "no letter stands out" if is_even else None


diagnose = diagnosis(is_right, (1, 2, 3), np.eye(3), REPAIRS, look)


def looks(head):
    """Ask every place to give each equal letter more weight than any other."""
    for run in HeadTrial(head, TASK).runs:
        same = run.ids[:, :, None] == run.ids[:, None, :]
        least = np.where(same, run.weights, np.inf).min(axis=-1)
        most = np.where(same, -np.inf, run.weights).max(axis=-1)
        wrong = ~(least > most)
        if wrong.any():
            row, place = np.argwhere(wrong)[0]
            shown = f"{most[row, place]:.3f}, the least of its own letter {least[row, place]:.3f}"
            text = TASK.text(run.ids[row].tolist())
            return f"on {text}, at place {place + 1}, another letter gets the weight {shown}"
    return None


judged = partial(judge_weights, TASK, diagnose=diagnose)
SHORT, LONG = near(TASK, (1, 2, 3)), near(TASK, (4, 5, 6))
FLOAT32 = partial(float32_words, task=TASK)


def draw_picture(names):
    """Draw where each place should look, equal letters alike."""
    from attnlab.draw.attention import draw_head

    text = "CAAB"
    same = np.array([[float(one == other) for other in text] for one in text])
    return draw_head(same / same.sum(axis=1, keepdims=True), tokens=list(text))


EXERCISE = Exercise(
    "By hand: every token finds itself",
    level=2,
    minutes=25,
    kind="weights",
    whole=True,
    needs=("numpy_transformer",),
    checks=(
        Check("alone", "gives a single token back", judged(near(TASK, (1,)))),
        Check("looks", "looks at its own letter most", judged(looks), points=2),
        Check("short", "is within 0.001 up to 3 letters", judged(SHORT), points=2),
        Check("long", "is within 0.001 from 4 to 6 letters", judged(LONG), 2),
        Check("float32", "gives the same in float32", judged(FLOAT32), side=True),
    ),
    mistakes=(*gain_mistakes(20.0, 5.0, 8.6, 14.0),),
    picture=draw_picture,
)
