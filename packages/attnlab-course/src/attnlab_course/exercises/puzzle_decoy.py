"""A puzzle: the sharpest pattern is not the head that matters."""

# %% [course]
from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.pictures import draw_maps
from attnlab_course.material.predictions import Prediction
from attnlab_course.material.tensors import inputs_case

# %% [markdown]
# # Puzzle: the decoy
#
# Four heads write into one stream, and a readout turns the stream into two numbers at each place.
# One head has a pattern so sharp that every eye goes to it. Does it do the work? A pattern cannot
# tell; taking the head out can. In the picture are the patterns of the four heads on the text CABA.
#
# ![patterns](puzzle_decoy.svg)
#
# **Write** two functions that measure, and use them to fill in three variables.
#
# * `effect(heads, readout, name, inputs)` takes a head out: its output becomes **zero**. It returns
#   the largest change, without its sign, of any number that comes out, over all inputs, places and
#   components.
# * `mean_effect(heads, readout, name, inputs)` returns the same where the head's output becomes its
#   **mean over all inputs and places** instead: one vector, the same everywhere. A head that always
#   says the same then changes nothing.
#
# | | what it is |
# | --- | --- |
# | `heads` | a dict: name → the list `[Km, Qm, Vm]` |
# | a head's output | `head_output([Km, Qm, Vm], x)`: (length, stream) |
# | `readout` | (stream, numbers) |
# | `inputs` | an array (inputs, length, width) |
# | result | a Python float |
#
# | variable | question, about `HEADS`, `READOUT` and `every_input()` |
# | --- | --- |
# | `sharpest` | Which head has the sharpest pattern: whose weights are nearest to 0 and 1? |
# | `constant` | Which head has an effect if it becomes zero, and none if it becomes its mean? |
# | `matters` | Which one head must know the letters for the result to be right? |
#
# The two functions are also put to other models, with other names of heads. Inputs, heads and
# readout stay as they are.

# %%
import itertools

import numpy as np


def matrix(text):
    """Read a matrix of whole numbers, its rows ended by `/`."""
    return np.array([row.split() for row in text.split("/")], dtype=np.float64)


HEADS = {
    "h0": [
        matrix("0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 1 0 0 0 / 0 1 0 0 / 0 0 1 0 / 0 0 0 1"),
        matrix("0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 8 0 0 0 / 8 0 0 0 / 8 0 0 0 / 8 0 0 0"),
        matrix(
            "0 0 0 0 0 / 0 0 0 0 0 / 0 0 0 0 0 / "
            "3 0 0 -2 -3 / 3 0 0 -2 -3 / 3 0 0 -2 -3 / 3 0 0 -2 -3"
        ),
    ],
    "h1": [
        matrix("1 0 0 0 / 0 1 0 0 / 0 0 1 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0"),
        matrix("5 0 0 0 / 0 5 0 0 / 0 0 5 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0"),
        matrix(
            "3 7 0 -7 1 / -3 1 1 -1 7 / 4 2 -1 -2 -6 / "
            "0 0 0 0 0 / 0 0 0 0 0 / 0 0 0 0 0 / 0 0 0 0 0"
        ),
    ],
    "h2": [
        matrix("0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 1 0 0 0 / 0 1 0 0 / 0 0 1 0 / 0 0 0 1"),
        matrix("0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 20 0 0 0 / 20 0 0 0 / 0 20 0 0 / 0 0 20 0"),
        matrix(
            "1 -2 -5 2 -4 / 2 1 -1 -1 -3 / -2 -5 -1 5 -1 / "
            "0 0 0 0 0 / 0 0 0 0 0 / 0 0 0 0 0 / 0 0 0 0 0"
        ),
    ],
    "h3": [
        matrix("1 0 0 0 / 0 1 0 0 / 0 0 1 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0"),
        matrix("-3 0 0 0 / 0 -3 0 0 / 0 0 -3 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0"),
        matrix(
            "2 1 1 -2 -1 / -1 -1 0 3 0 / -1 0 1 -2 2 / "
            "0 0 0 0 0 / 0 0 0 0 0 / 0 0 0 0 0 / 0 0 0 0 0"
        ),
    ],
}
READOUT = matrix("2 0 / -1 1 / 0 0 / 0 1 / 1 0")


def encode(text):
    """Return [x ; pos] of a text of four letters: (4, 7)."""
    return np.hstack([np.eye(3)[list(map("ABC".index, text))], np.eye(4)])


def every_input():
    """Return all texts of four letters: (81, 4, 7)."""
    return np.array(list(map(encode, itertools.product("ABC", repeat=4))))


def pattern(head, x):
    """Return a head's weights on one input: (length, length)."""
    Km, Qm, _ = head
    scores = (x @ Qm) @ (x @ Km).T / np.sqrt(Km.shape[1])
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def head_output(head, x):
    """Return what a head writes into the stream: (length, stream)."""
    return pattern(head, x) @ x @ head[2]


def result(heads, readout, x, instead=None):
    """Return the numbers that come out for one input: (length, numbers).

    `instead` gives the outputs of some heads in place of their own: name -> (length, stream).
    """
    outputs = {name: head_output(head, x) for name, head in heads.items()}
    outputs.update(instead or {})
    return sum(outputs.values()) @ readout


# %%
def effect(heads, readout, name, inputs):
    """Return how much the result changes at most where a head is taken out."""
    # >>> solution
    largest = 0.0
    for x in inputs:
        zero = np.zeros_like(head_output(heads[name], x))
        change = result(heads, readout, x, {name: zero}) - result(heads, readout, x)
        largest = max(largest, np.abs(change).max())
    return float(largest)
    # <<< solution


def mean_effect(heads, readout, name, inputs):
    """Return how much the result changes at most where a head always writes its mean."""
    # >>> solution
    outputs = np.array([head_output(heads[name], x) for x in inputs])
    mean = np.broadcast_to(outputs.mean(axis=(0, 1)), outputs[0].shape)
    largest = 0.0
    for text in inputs:
        moved = result(heads, readout, text, {name: mean}) - result(heads, readout, text)
        largest = max(largest, np.abs(moved).max())
    return float(largest)
    # <<< solution


# %%
# >>> solution
sharpest = "h2"
constant = "h0"
matters = "h3"
# --- starter
# sharpest = None
# constant = None
# matters = None
# <<< solution


# %% [hints]
# 1. If you may change one head's output and look at the result, what must you keep the same?
# 2. `result` takes outputs in place of a head's own: what do you give it for zero, and of which
#    shape?
# 3. For the mean, collect the outputs of all inputs first: (inputs, length, stream). Which axes
#    must go so that one vector (stream,) is left?
# 4. Print both effects of all four heads in one table. A large first and a tiny second number
#    are a constant; two tiny ones a decoy.


# %% [mistakes]
# ## one input: `effect` looks at the first input only; a head may act on others.
# - for x in inputs:
# + for x in inputs[:1]:
# ## stream compared: `effect` compares what is written into the stream, not what is read from it: a
# decoy writes much that is never read.
# - change = result(heads, readout, x, {name: zero}) - result(heads, readout, x)
# + change = head_output(heads[name], x)
# ## mean of each input: `mean_effect` takes a mean for each input; it should be one vector for all.
# - for text in inputs:
# + for text in inputs:
# +         mean = np.broadcast_to(head_output(heads[name], text).mean(axis=0), outputs[0].shape)
# ## the decoy: In `matters`: h2 has the sharpest pattern, but is what it writes ever read?
# - matters = "h3"
# + matters = "h2"


# %% [course]
def model(random, names, length, width, stream, numbers):
    """Sample a model of any size."""
    heads = {}
    for name in names:
        sizes = (width, 3), (width, 3), (width, stream)
        heads[name] = [random.normal(size=size) for size in sizes]
    return heads, random.normal(size=(stream, numbers))


def case(call, heads, readout, name, inputs, words=""):
    """Ask for an effect."""
    return Case(call, (heads, readout, name, inputs), words=words)


def random_models(call):
    """Ask for effects in models drawn by chance; the last inputs are the largest."""

    def cases(random):
        for names, count, sizes in (("ab", 2, (2, 3, 2, 1)), ("pqr", 5, (3, 2, 7, 4))):
            heads, readout = model(random, list(names), *sizes)
            inputs = random.normal(size=(count, *sizes[:2]))
            inputs *= np.linspace(1, 4, count)[:, None, None]
            yield case(call, heads, readout, names[-2], inputs)
            yield case(call, heads, -readout, names[-2], inputs)

    return cases


def unread(random):
    """Ask for the effects of a head whose output is not read."""
    heads, readout = model(random, ["loud", "other"], 3, 4, 5, 2)
    basis = np.linalg.svd(readout.T)[2][2:]  # directions of the stream that the readout maps to 0
    heads["loud"][2] = 9 * heads["loud"][2] @ basis.T @ basis
    inputs, words = random.normal(size=(3, 3, 4)), "for a head whose output is not read"
    for call in ("effect", "mean_effect"):
        yield case(call, heads, readout, "loud", inputs, words)


def constants(random):
    """Ask for the effects of a head that always says the same."""
    heads, readout = model(random, ["same", "other"], 3, 4, 5, 2)
    heads["same"][2][:3] = 0
    inputs, words = random.normal(size=(3, 3, 4)), "for a head that always says the same"
    inputs[..., 3] = 1
    for call in ("effect", "mean_effect"):
        yield case(call, heads, readout, "same", inputs, words)


def inputs_kept(random):
    """The inputs after both calls."""
    heads, readout = model(random, ["a", "b"], 2, 3, 2, 1)
    inputs = random.normal(size=(2, 2, 3))
    for call in ("effect", "mean_effect"):
        yield inputs_case(case(call, heads, readout, "a", inputs))


def question(variable, right, mistakes):
    """Return the cases of one question."""
    case = Prediction(variable, right, "", tuple(HEADS)).case(mistakes)
    return lambda random: [case]


def draw_picture(names):
    """Draw the patterns of the four heads."""
    x = names["encode"]("CABA")
    maps = {name: names["pattern"](head, x) for name, head in names["HEADS"].items()}
    return draw_maps(maps, ("query", "key"), (10, 2.6), labels=("CABA", "CABA"))


EXERCISE = Exercise(
    "Puzzle: the decoy",
    level=4,
    minutes=40,
    needs=("puzzle_which_head",),
    checks=(
        Check(
            "effect", "measures what taking a head out changes", random_models("effect"), points=2
        ),
        Check(
            "mean effect", "measures what its mean changes", random_models("mean_effect"), points=2
        ),
        Check("sharpest", "knows the sharpest pattern", question("sharpest", sharpest, {})),
        Check("unread", "finds no effect where nothing is read", unread),
        Check("always the same", "measures a head that never changes", constants),
        Check(
            "constant",
            "knows the head that always says the same",
            question("constant", constant, {}),
        ),
        Check(
            "matters",
            "knows the head that matters",
            question("matters", matters, {"h2": "the decoy"}),
            2,
            True,
        ),
        Check("inputs", "leaves what it is given as it is", inputs_kept),
    ),
    picture=draw_picture,
)
