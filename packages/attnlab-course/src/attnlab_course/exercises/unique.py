"""Mark the tokens that occur once: attention by content and position, written by hand."""

# %% [course]
from functools import partial

from attnlab_course.exercise import Check, Exercise
from attnlab_course.material.weight_mistakes import (
    add_scores,
    diagnosis,
    gain_mistakes,
    louder_words,
)
from attnlab_course.material.weights import (
    HeadTrial,
    counts_output,
    float32_words,
    judge_weights,
    targets,
)
from attnlab.tasks.vectors import VectorTask

# %% [markdown]
# # By hand: who is here only once?
#
# The third head by hand says of each letter whether it occurs once. In front of 1 to 4 letters A, B
# and C stands a fourth token, CLS, which is always there and whose own output is ignored. At every
# letter the one number that comes out must be **above 0 where the letter occurs once, below 0
# where it is repeated**: of CLS A B A the three letters give −, +, −.
#
#     K = [x ; pos] Km     Q = [x ; pos] Qm     V = [x ; pos] Vm
#     output = softmax(Q Kᵀ / √qk_dim) V
#
# The tokens are one-hot in the order A, B, C, CLS. The picture shows where a head could look on
# CLS A B A.
#
# ![where to look](unique.svg)
#
# **Write** four matrices of NumPy. `weights()` hands them in; leave it as it is.
#
# | | shape |
# | --- | --- |
# | `pos` | (5 or more, pos_dim), row 0 for the place of CLS; any pos_dim from 1 to 60 |
# | `Km`, `Qm` | (4 + pos_dim, qk_dim), any qk_dim up to 64 |
# | `Vm` | (4 + pos_dim, 1) |
#
# * You need not use the positions: `pos` may be all zeros.
# * The sign is right at every letter of **all 120 inputs**; an output of 0 (less than 0.000001) has
#   no sign and is wrong.
# * The answer is clear: every output is at least **0.5** away from 0.
# * It is judged in float64 by a softmax that does not overflow. In float32 the outputs are the same
#   within 0.001.

# %%
import numpy as np

# >>> solution
gain = 60.0
pos = np.vstack([np.zeros((1, 4)), np.eye(4)])
equal, itself, fallback = 1.0, -2.0, 0.5
Km = np.eye(8)
Qm = np.zeros((8, 8))
Qm[:3, :3] = gain * equal * np.eye(3)
Qm[4:, 4:] = gain * itself * np.eye(4)
Qm[:3, 3] = gain * fallback
Vm = np.array([[-1.0, -1.0, -1.0, 1.0, 0.0, 0.0, 0.0, 0.0]]).T
# --- starter
# pos = None  # (5, pos_dim): a row for CLS and for each place of a letter
# Km = None  # (4 + pos_dim, qk_dim): makes keys
# Qm = None  # (4 + pos_dim, qk_dim): makes queries
# Vm = None  # (4 + pos_dim, 1): makes values
# <<< solution


# %%
def weights():
    """Hand in the matrices."""
    return [Km, Qm, Vm, pos]


# %% [hints]
# 1. Where should a letter look that has an equal one elsewhere, and where one that has none?
# 2. Three wishes, one score: equal letters attract, one's own place repels, and CLS attracts a
#    little. Give each wish its own channels of queries and keys.
# 3. Channels: three for the letters, one for CLS, one for each place of a letter. Keys just say
#    what they are; the queries say how much they like it.
# 4. Let equal letters score S, one's own place −2S, and CLS something between 0 and S. Then the
#    values only have to say: seen a letter, or seen CLS.

# %% [mistakes]
# ## sees itself: Each letter finds itself among the equal ones, and takes itself for a repetition.
# - equal, itself, fallback = 1.0, -2.0, 0.5
# + equal, itself, fallback = 1.0, 0.0, 0.5
# ## CLS is no fallback: A letter that finds no equal one looks at the other letters: nothing draws
# it to CLS.
# - equal, itself, fallback = 1.0, -2.0, 0.5
# + equal, itself, fallback = 1.0, -2.0, 0.0
# ## CLS too strong: CLS draws every letter, also those that have an equal one: its score must stand
# between that of an equal letter and that of another.
# - equal, itself, fallback = 1.0, -2.0, 0.5
# + equal, itself, fallback = 1.0, -2.0, 1.5
# ## wrong values: It looks at the right tokens, but the first rows of Vm are not what A, B, C and
# CLS should say.
# - Vm = np.array([[-1.0, -1.0, -1.0, 1.0, 0.0, 0.0, 0.0, 0.0]]).T
# + Vm = np.array([[1.0, 1.0, 1.0, -1.0, 0.0, 0.0, 0.0, 0.0]]).T
# ## positions leak: It looks at the right tokens, but the position comes out with them: what do the
# last rows of Vm add?
# - Vm = np.array([[-1.0, -1.0, -1.0, 1.0, 0.0, 0.0, 0.0, 0.0]]).T
# + Vm = np.array([[-1.0, -1.0, -1.0, 1.0, 2.0, 2.0, 2.0, 2.0]]).T

# %% [course]
TASK, CLS, LEAST, CLEAR = VectorTask("unique", longest=4), 3, 1e-6, 0.5
VALUES = np.array([[-1.0], [-1.0], [-1.0], [1.0]])
GAPS = (2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


def failing(head, lengths=None, least=CLEAR, kinds=(-1, 1)):
    """Return the first output that does not stand on its side of 0, in words; None without any."""
    for letters, run in enumerate(HeadTrial(head, TASK).runs, start=1):
        if lengths is not None and letters not in lengths:
            continue
        target = targets(TASK, run.ids)[..., 0]
        counts = counts_output(TASK, run.ids) & np.isin(target, kinds)
        wrong = counts & ~(run.output[..., 0] * target >= least)
        if wrong.any():
            row, place = np.argwhere(wrong)[0]
            text = TASK.text(run.ids[row].tolist())
            side = "above" if target[row, place] > 0 else "below"
            wanted = f"at least {least:g} {side} 0" if least > LEAST else f"a number {side} 0"
            got = run.output[row, place, 0]
            return f"on {text}, at letter {place}: expected {wanted}, got {got:.4g}"
    return None


def is_right(head, lengths=None):
    """Whether every output is clear and on its side of 0."""
    return failing(head, lengths) is None


def added(query, keys):
    """Return a table of scores with 1 at these pairs of features."""
    table = np.zeros((TASK.input_dim + TASK.row_length,) * 2)
    table[query, keys] = 1.0
    return table


OWN_PLACE = added(range(4, 9), range(4, 9))
TO_CLS = added(range(3), CLS)


def with_scores(table, sizes, head):
    """Add scores of any of these sizes; None where none of them makes the design right."""
    changed = (add_scores(head, TASK, size * table) for size in sizes)
    return next(filter(is_right, changed), None)


REPAIRS = (
    ("sees itself", partial(with_scores, OWN_PLACE, [-1000.0])),
    ("CLS is no fallback", partial(with_scores, TO_CLS, GAPS)),
    ("CLS too strong", partial(with_scores, TO_CLS, [-gap for gap in GAPS])),
)


diagnose = diagnosis(is_right, (1, 2), VALUES, REPAIRS)


def judged(**settings):
    """Return the only case there is: the matrices, judged by one criterion."""

    def criterion(head):
        words = failing(head, **settings)
        return None if words is None else words + louder_words(head, is_right)

    return judge_weights(TASK, criterion, diagnose, positions=5)


def in_float32():
    """Return the only case there is, judged by its outputs in float32."""
    criterion = partial(float32_words, task=TASK)
    return judge_weights(TASK, criterion, diagnose, positions=5)


def draw_picture(names):
    """Draw where each token could look: at its likes elsewhere, or at CLS."""
    from attnlab.draw.attention import draw_head

    weights = np.zeros((4, 4))
    for query, key in ((0, 0), (1, 3), (2, 0), (3, 1)):
        weights[query, key] = 1
    return draw_head(weights, tokens=["CLS", "A", "B", "A"])


EXERCISE = Exercise(
    "By hand: who is here only once?",
    level=4,
    minutes=45,
    kind="weights",
    whole=True,
    needs=("identity", "copy_first"),
    checks=(
        Check("alone", "is above 0 for a single letter", judged(lengths=(1,), least=LEAST)),
        Check(
            "repeated",
            "is below 0 where a letter is repeated, up to 3 letters",
            judged(lengths=(1, 2, 3), least=LEAST, kinds=(-1,)),
        ),
        Check(
            "once",
            "is above 0 where a letter occurs once, up to 3 letters",
            judged(lengths=(2, 3), least=LEAST, kinds=(1,)),
            points=2,
        ),
        Check("long", "is right with 4 letters", judged(lengths=(4,), least=LEAST), 2),
        Check("clear", "is at least 0.5 away from 0", judged(), points=2),
        Check("float32", "gives the same in float32", in_float32(), side=True),
    ),
    mistakes=(*gain_mistakes(60.0, 3.0, 4.5, 9.0),),
    picture=draw_picture,
)
