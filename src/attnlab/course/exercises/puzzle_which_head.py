"""A puzzle: five heads given as numbers; which of them does what?"""

# %% [course]
from attnlab.course.exercise import Check, Exercise, Mistake
from attnlab.course.material.predictions import choice_case, number_case

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

# %% [course]
GAIN = 12  # divided by the root of four channels: a gap of 6 in the scores

JOBS = {
    "h0": "looks at the next place",
    "h1": "looks at letters equal to its own",
    "h2": "looks at place 0",
    "h3": "looks at the place before its own",
    "h4": "looks at the letter B wherever it stands, and alike at everything where there is none",
}


def mixed(size, random):
    """Return a matrix of whole numbers whose inverse is one of whole numbers, too."""
    change = np.eye(size, dtype=int)
    for _ in range(6):
        one, other = random.choice(size, 2, replace=False)
        change[:, other] += random.choice([-1, 1]) * change[:, one]
    return change


def patterns(job):
    """Return keys and queries, (7, 4), as one would write them for a job."""
    Km, Qm = np.zeros((2, 7, 4), dtype=int)
    letters, places = slice(0, 3), slice(3, 7)
    if job == JOBS["h1"]:
        Km[letters, :3], Qm[letters, :3] = np.eye(3), GAIN * np.eye(3)
    elif job == JOBS["h4"]:
        Km[1, 0], Qm[letters, 0] = 1, GAIN
    else:
        asked = {"h0": [1, 2, 3, 3], "h2": [0, 0, 0, 0], "h3": [0, 0, 1, 2]}
        name = next(name for name, each in JOBS.items() if each == job)
        Km[places], Qm[places] = np.eye(4), GAIN * np.eye(4, dtype=int)[asked[name]]
    return Km, Qm


def make_heads():
    """Make the heads: a pattern each, mixed so that the scores stay and the numbers do not.

    The values of h2 are those of places alone; all others write letters.
    """
    random, made = np.random.default_rng(18), {}
    for name, job in JOBS.items():
        Km, Qm = patterns(job)
        for rows in (slice(0, 3), slice(3, 7)):  # all keys get it, so that softmax cannot see it
            Km[rows] += random.integers(-2, 3, size=4)
        change = mixed(4, random)
        back = np.linalg.inv(change).round().astype(int).T
        Vm = random.integers(-3, 4, size=(7, 3))
        Vm[slice(0, 3) if name == "h2" else slice(3, 7)] = 0
        made[name] = [Km @ change, Qm @ back, Vm]
    return made


def weights_of(matrices, text):
    """Compute the weights of a head on a text."""
    x = np.array([[float(letter == own) for own in "ABC"] for letter in text])
    x = np.hstack([x, np.eye(4)[: len(text)]])
    Km, Qm, _ = matrices
    grown = np.exp(x @ Qm @ Km.T @ x.T / Km.shape[1] ** 0.5)
    return grown / grown.sum(axis=1, keepdims=True)


def every_text():
    """Return all texts of 1 to 4 letters."""
    texts, longest = [], [""]
    for _ in range(4):
        longest = [text + letter for text in longest for letter in "ABC"]
        texts += longest
    return texts


def does(job, matrices):
    """Whether a head gives nearly all of its weight as a job says, on every text."""
    for text in every_text():
        weights = weights_of(matrices, text)
        for place, row in enumerate(weights):
            wanted = {
                "equal": [key for key in range(len(text)) if text[key] == text[place]],
                "previous": [max(place - 1, 0)],
                "first": [0],
            }[job]
            if row[wanted].sum() < 0.9:
                return False
    return True


def is_blind(matrices):
    """Whether the outputs are the same for all texts of four letters."""
    texts = [text for text in every_text() if len(text) == 4]
    outputs = []
    for text in texts:
        x = np.hstack([np.eye(3)[list(map("ABC".index, text))], np.eye(4)])
        outputs.append(weights_of(matrices, text) @ x @ matrices[2])
    return bool(np.allclose(outputs, outputs[0], atol=0.05))


def found(question):
    """Return the one head that is the answer to a question, by trying all."""
    made = make_heads()
    fits = is_blind if question == "blind" else lambda each: does(question, each)
    (name,) = (name for name, each in made.items() if fits(each))
    return name


ANSWERS = {question: found(question) for question in ("equal", "previous", "first", "blind")}
WEIGHT = float(weights_of(make_heads()["h4"], "ABBA")[0, 1])
WRONG_WEIGHTS = {"even": 0.25, "all of it": 1.0}


def question(name):
    """Return the cases of one question about heads."""
    right = ANSWERS[name]
    wrong = {each: f"{name}: {each}" for each in JOBS if each != right}
    return lambda random: [choice_case(name, right, wrong)]


def a_number(random):
    """Ask for the one weight."""
    yield number_case("weight", WEIGHT, WRONG_WEIGHTS, 0.01)


def draw_picture(names):
    """Draw Km of all heads."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 2.6), layout="constrained")
    axes = figure.subplots(1, len(JOBS), sharey=True)
    for each, (name, (Km, _, _)) in zip(axes, names["heads"].items(), strict=True):
        each.imshow(Km, cmap="RdBu", vmin=-6, vmax=6)
        each.set(title=name, xticks=range(4), xlabel="channel")
    axes[0].set_yticks(range(7), [*"ABC", "0", "1", "2", "3"])
    return figure


def wrong_head(name, answer):
    """Return the mistake of naming one head."""
    says = f"In `{name}`: {answer} {JOBS[answer]}. Look at its weights on a few texts."
    if name == "blind":
        says = f"In `blind`: {answer} writes something else if the letters change. Try two texts."
    old = f'{name} = "{ANSWERS[name]}"'
    return Mistake(f"{name}: {answer}", old, f'{name} = "{answer}"', says)


EXERCISE = Exercise(
    "Puzzle: which head does what?",
    level=3,
    minutes=30,
    kind="predict",
    needs=("numpy_transformer", "same_head"),
    checks=(
        Check("equal", "knows the head that looks at equal letters", question("equal"), points=2),
        Check("previous", "knows the head that looks one place back", question("previous")),
        Check("first", "knows the head that looks at place 0", question("first")),
        Check("blind", "knows the head that does not read letters", question("blind"), 2, True),
        Check("weight", "reads a weight off the model", a_number, graded=True),
    ),
    mistakes=(
        *(wrong_head(name, each) for name, own in ANSWERS.items() for each in JOBS if each != own),
        Mistake(
            "even",
            "weight = 0.499",
            "weight = 0.25",
            "In `weight`: h4 does not look everywhere alike on this text.",
        ),
        Mistake(
            "all of it",
            "weight = 0.499",
            "weight = 1.0",
            "In `weight`: h4 does not look at one place only on this text.",
        ),
    ),
    hints=(
        "What did `same_head` say about reading Km and Qm one by one?",
        "Make the table of scores of each head: which rows and columns of it hold something, those "
        "of letters or those of places?",
        "Subtract from each row what all letters share; a number that every key gets is not seen "
        "by softmax.",
        "For `blind` the weights are not enough: where does the head look, and what do the rows of "
        "Vm say there?",
    ),
    picture=draw_picture,
)
