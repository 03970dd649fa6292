"""Give the first token everywhere: attention by position, written by hand."""

# %% [course]
from dataclasses import replace
from functools import partial

from attnlab_course.exercise import Check, Exercise
from attnlab_course.material.weight_mistakes import diagnosis, gain_mistakes, is_near, near
from attnlab_course.material.weights import HeadTrial, float32_words, judge_weights
from attnlab.tasks.vectors import VectorTask

# %% [markdown]
# # By hand: everything looks at the first place
#
# A second head by hand. Its input is again a sequence of one-hot tokens A, B and C, 1 to 4 long; at
# every place the output must be the **first** token. What the first token is must not matter for
# the search, only where it stands. So this head needs positions, and you choose them too.
#
#     K = [x ; pos] Km     Q = [x ; pos] Qm     V = [x ; pos] Vm
#     output = softmax(Q Kᵀ / √qk_dim) V
#
# Row by row, the first three rows of each matrix belong to A, B and C, the others to the components
# of the position. The picture shows where a head should look on C A B A.
#
# ![where to look](copy_first.svg)
#
# **Write** four matrices of NumPy. `weights()` hands them in; leave it as it is.
#
# | | shape |
# | --- | --- |
# | `pos` | (4 or more, pos_dim), row 0 for the first place; any pos_dim up to 60 |
# | `Km`, `Qm` | (3 + pos_dim, qk_dim), any qk_dim up to 64 |
# | `Vm` | (3 + pos_dim, 3) |
#
# * Every component of every output is at most **0.001** away from its target, on **all 120
#   inputs** of 1 to 4 letters.
# * At every place, the first key gets more than half of the weight, whatever the letters are.
# * It is judged in float64 by a softmax that does not overflow. In float32 the outputs are the same
#   within 0.001.

# %%
import numpy as np

# >>> solution
gain = 25.0
pos = np.eye(4)
ask = np.tile([1.0, 0.0, 0.0, 0.0], (4, 1))
Km = np.vstack([np.zeros((3, 4)), np.eye(4)])
Qm = np.vstack([np.zeros((3, 4)), gain * ask])
Vm = np.vstack([np.eye(3), np.zeros((4, 3))])
# --- starter
# pos = None  # (4, pos_dim): a row for each place
# Km = None  # (3 + pos_dim, qk_dim): makes keys
# Qm = None  # (3 + pos_dim, qk_dim): makes queries
# Vm = None  # (3 + pos_dim, 3): makes values
# <<< solution


# %%
def weights():
    """Hand in the matrices."""
    return [Km, Qm, Vm, pos]


# %% [hints]
# 1. Which part of [x ; pos] should a key show here, and which part should it hide?
# 2. All places ask the same question. What must every row of a query be that is made of a
#    position, and which row of Km answers it?
# 3. With one-hot positions the matrices fall into blocks: three rows for letters, the rest for
#    places. Two of the six blocks are zero for the scores, and one for the values.
# 4. The gain follows as in `identity`, with one right key against three wrong ones; mind how
#    wide your queries are.

# %% [mistakes]
# ## looks at itself: Every place looks at itself: its query asks for its own position.
# - ask = np.tile([1.0, 0.0, 0.0, 0.0], (4, 1))
# + ask = np.eye(4)
# ## looks at the second place: Every place looks at the second: rows are counted from 0.
# - ask = np.tile([1.0, 0.0, 0.0, 0.0], (4, 1))
# + ask = np.tile([0.0, 1.0, 0.0, 0.0], (4, 1))
# ## letters in the scores: The letters have a part in the keys, so that where it looks depends on
# what stands there. Only the position should count.
# - Km = np.vstack([np.zeros((3, 4)), np.eye(4)])
# + Km = np.vstack([2 * np.eye(4)[[0, 1, 2]], np.eye(4)])
# ## positions leak: It looks at the right place, but the position comes out with the token: what do
# the last rows of Vm add?
# - Vm = np.vstack([np.eye(3), np.zeros((4, 3))])
# + Vm = np.vstack([np.eye(3), np.eye(4, 3)])
# ## wrong values: It looks at the right place, but the first rows of Vm are not what should come
# out of A, B and C.
# - Vm = np.vstack([np.eye(3), np.zeros((4, 3))])
# + Vm = np.vstack([np.ones((3, 3)), np.zeros((4, 3))])

# %% [course]
TASK, LETTERS = VectorTask("copy_first", longest=4), 3
is_right = partial(is_near, TASK)


def without_letters(head):
    """Let neither keys nor queries see the letters."""
    blind = np.ones((len(head.Km), 1))
    blind[:LETTERS] = 0
    return replace(head, Km=head.Km * blind, Qm=head.Qm * blind)


PATTERNS = {(0, 1, 2, 3): "looks at itself", (1, 1, 1, 1): "looks at the second place"}


def look(head):
    """Name the pattern of places that each clearly prefers, letters left out."""
    rows = np.concatenate([np.zeros((4, LETTERS)), head.pos[:4]], axis=1)
    scores = (rows @ head.Qm) @ (rows @ head.Km).T / head.root
    second, first = np.sort(scores, axis=1)[:, -2:].T
    return (
        PATTERNS.get(tuple(scores.argmax(axis=1).tolist())) if (first - second > 1).all() else None
    )


REPAIRS = [("letters in the scores", without_letters)]
diagnose = diagnosis(is_right, (1, 2), np.eye(LETTERS), REPAIRS, look)


def looks(head):
    """Ask every place to give the first key more than half of the weight."""
    for run in HeadTrial(head, TASK).runs:
        wrong = ~(run.weights[..., 0] > 0.5)
        if wrong.any():
            row, place = np.argwhere(wrong)[0]
            text, shown = TASK.text(run.ids[row].tolist()), run.weights[row, place, 0]
            return f"on {text}, place {place + 1} gives the first key the weight {shown:.3f}"
    return None


judged = partial(judge_weights, TASK, diagnose=diagnose, positions=4)
SHORT, LONG = near(TASK, (1, 2)), near(TASK, (3, 4))
FLOAT32 = partial(float32_words, task=TASK)


def draw_picture(names):
    """Draw where each place should look."""
    from attnlab.draw.attention import draw_head

    weights = np.zeros((4, 4))
    weights[:, 0] = 1
    return draw_head(weights, tokens=list("CABA"))


_KEYS, _QUERIES = "Km = np.vstack([np.zeros((3, 4)), np.eye(4)])", "gain * ask])"

EXERCISE = Exercise(
    "By hand: everything looks at the first place",
    level=3,
    minutes=30,
    kind="weights",
    whole=True,
    needs=("identity",),
    checks=(
        Check("alone", "gives a single token back", judged(near(TASK, (1,)))),
        Check("looks", "looks at the first place", judged(looks), points=2),
        Check("short", "is within 0.001 up to 2 letters", judged(SHORT), points=2),
        Check("long", "is within 0.001 with 3 and 4 letters", judged(LONG), 2),
        Check("float32", "gives the same in float32", judged(FLOAT32), side=True),
    ),
    mistakes=(*gain_mistakes(25.0, 3.0, 8.1, 15.0),),
    picture=draw_picture,
)
