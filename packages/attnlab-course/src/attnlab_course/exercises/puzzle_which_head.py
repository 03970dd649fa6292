"""A puzzle: five heads given as numbers; which of them does what?"""

# %% [course]
from attnlab_course.material.pictures import draw_maps
from attnlab_course.material.predictions import Prediction, prediction

# %% [markdown]
# # Puzzle: which head does what?
#
# Here is a small model that is already finished: five heads side by side, on texts of up to four
# letters A, B and C. Every head has its own little job, but its matrices were mixed, so that
# little is to be seen in them one by one. In the picture is `Km` of all five.
#
# ![five matrices](puzzle_which_head.svg)
#
# **Write** the answers into the variables: names of heads such as `"h3"`, and a number.
#
# | variable | question |
# | --- | --- |
# | `equal` | Which head looks at letters equal to its own, wherever they stand? |
# | `previous` | Which head looks at the place before its own, and at place 0 from place 0? |
# | `first` | Which head looks at place 0 from everywhere? |
# | `blind` | Which head has the same output whatever the letters of the text are? |
# | `weight` | On the text ABBA, how much weight does h4 at place 0 give place 1, within 0.01? |
#
# * The rows of the matrices belong to A, B, C, then to the places 0, 1, 2, 3; `encode` makes
#   `[x ; pos]` of a text. A head computes `softmax(Q Kᵀ / 2) V`, with four channels.
# * "Looks at" means: gives it nearly all of the weight, on every text.
# * Two of the answers may be the same head, and a head may be the answer to no question.
#
# Run anything you like: `heads["h0"]` is the list `[Km, Qm, Vm]`.

# %%
import numpy as np


def matrix(text):
    """Read a matrix of whole numbers, its rows ended by `/`."""
    return np.array([row.split() for row in text.split("/")], dtype=np.float64)


heads = {
    "h0": [
        matrix("2 -2 0 -1 / 2 -2 0 -1 / 2 -2 0 -1 / 3 -2 3 -4 / 2 -1 3 -4 / 2 -1 2 -2 / 2 -2 2 -3"),
        matrix(
            "0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 0 12 -12 -12 / 0 0 12 12 / 0 0 -24 -12 / 0 0 -24 -12"
        ),
        matrix("1 2 -2 / 1 2 1 / -2 1 0 / 0 0 0 / 0 0 0 / 0 0 0 / 0 0 0"),
    ],
    "h1": [
        matrix("4 2 -2 4 / 5 2 -2 6 / 4 1 -1 5 / -2 1 2 -3 / -2 1 2 -3 / -2 1 2 -3 / -2 1 2 -3"),
        matrix("12 0 0 -12 / -12 12 0 12 / 24 -12 12 -12 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0"),
        matrix("-2 2 -1 / -1 1 -2 / 1 -1 -2 / 0 0 0 / 0 0 0 / 0 0 0 / 0 0 0"),
    ],
    "h2": [
        matrix("-3 0 1 0 / -3 0 1 0 / -3 0 1 0 / -1 -3 4 6 / -2 -2 4 6 / -3 -3 5 7 / -1 -4 5 8"),
        matrix(
            "0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 12 0 36 -24 / 12 0 36 -24 / 12 0 36 -24 / 12 0 36 -24"
        ),
        matrix("0 0 0 / 0 0 0 / 0 0 0 / -2 0 1 / -1 1 3 / 1 1 1 / -2 3 -2"),
    ],
    "h3": [
        matrix(
            "-4 -4 -2 -10 / -4 -4 -2 -10 / -4 -4 -2 -10 / "
            "-1 1 -1 0 / -2 1 -1 -1 / -1 1 0 0 / -3 -1 -2 -5"
        ),
        matrix(
            "0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 12 0 -12 0 / 12 0 -12 0 / -12 12 0 0 / -12 -24 12 12"
        ),
        matrix("3 2 -2 / -3 -2 -3 / 2 0 3 / 0 0 0 / 0 0 0 / 0 0 0 / 0 0 0"),
    ],
    "h4": [
        matrix(
            "-5 0 -3 -3 / -2 0 -1 -3 / -5 0 -3 -3 / "
            "-6 -1 -4 0 / -6 -1 -4 0 / -6 -1 -4 0 / -6 -1 -4 0"
        ),
        matrix("12 0 -12 0 / 12 0 -12 0 / 12 0 -12 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0"),
        matrix("-3 2 1 / 1 1 2 / 0 -2 -2 / 0 0 0 / 0 0 0 / 0 0 0 / 0 0 0"),
    ],
}


def encode(text):
    """Return [x ; pos] of a text: (length, 7)."""
    letters = np.eye(3)[list(map("ABC".index, text))]
    return np.hstack([letters, np.eye(4)[: len(text)]])


# %%
# >>> solution
equal = "h1"
previous = "h3"
first = "h2"
blind = "h2"
weight = 0.499
# --- starter
# equal = None
# previous = None
# first = None
# blind = None
# weight = None
# <<< solution

# %% [hints]
# 1. What did `same_head` say about reading Km and Qm one by one?
# 2. Make the table of scores of each head: which rows and columns of it hold something, those of
#    letters or those of places?
# 3. Subtract from each row what all letters share; a number that every key gets is not seen by
#    softmax.
# 4. For `blind` the weights are not enough: where does the head look, and what do the rows of Vm
#    say there?

# %% [course]
JOBS = {
    "h0": "looks at the next place",
    "h1": "looks at letters equal to its own",
    "h2": "looks at place 0",
    "h3": "looks at the place before its own",
    "h4": "looks at the letter B wherever it stands, and alike at everything where there is none",
}
"""What the heads do. Only h2 writes by place; the others write letters."""


QUESTIONS = (
    Prediction("equal", equal, "knows the head that looks at equal letters", tuple(JOBS), points=2),
    Prediction("previous", previous, "knows the head that looks one place back", tuple(JOBS)),
    Prediction("first", first, "knows the head that looks at place 0", tuple(JOBS)),
    Prediction("blind", blind, "knows the head that does not read letters", tuple(JOBS), points=2),
    Prediction("weight", weight, "reads a weight off the model", near=0.01),
)

WRONG = {}
for head, job in JOBS.items():
    for question in QUESTIONS[:3]:
        if head != question.right:
            says = f"{head} {job}. Look at its weights on a few texts."
            WRONG[question.variable, head] = says
    if head != blind:
        WRONG["blind", head] = (
            "This head writes something else if the letters change. Try two texts."
        )


def draw_picture(names):
    """Draw Km of all heads."""
    maps = {name: matrices[0] for name, matrices in names["heads"].items()}
    labels = [*"ABC", "0", "1", "2", "3"], None
    return draw_maps(maps, ("letter or place", "channel"), (10, 2.6), (-6, 6), labels)


EXERCISE = prediction(
    "Puzzle: which head does what?",
    QUESTIONS,
    WRONG,
    level=3,
    minutes=30,
    needs=("numpy_transformer", "same_head"),
    picture=draw_picture,
)
