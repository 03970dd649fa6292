"""A puzzle: the sharpest pattern is not the head that matters."""

# %% [course]
from attnlab.course.exercise import Case, Check, Exercise, Mistake
from attnlab.course.material.predictions import choice_case

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
    for each in inputs:
        moved = result(heads, readout, each, {name: mean}) - result(heads, readout, each)
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

# %% [course]
READ = (0, 1)  # channels of the stream that are read, before it is mixed


def mixed(size, random):
    """Return a matrix of whole numbers whose inverse is one of whole numbers, too."""
    change = np.eye(size, dtype=int)
    for _ in range(7):
        one, other = random.choice(size, 2, replace=False)
        change[:, other] += random.choice([-1, 1]) * change[:, one]
    return change


def make_model():
    """Make the heads and the readout: [Km, Qm, Vm] each, on letters (3) and places (4).

    h0 looks at place 0 and writes a constant. h1 looks softly at equal letters and writes where
    nothing is read. h2 looks sharply at the place before and writes where nothing is read. h3 looks
    softly at other letters and writes what is read. In the end the stream is mixed, so that no
    channel by itself is read or not.
    """
    random = np.random.default_rng(3)
    names, widths = ("h0", "h1", "h2", "h3"), (4, 4, 5)
    made = {name: [np.zeros((7, width), dtype=int) for width in widths] for name in names}
    for name, places, gain in (("h0", [0, 0, 0, 0], 8), ("h2", [0, 0, 1, 2], 20)):
        made[name][0][3:], made[name][1][3:] = np.eye(4), gain * np.eye(4, dtype=int)[places]
    for name, gain in (("h1", 5), ("h3", -3)):
        made[name][0][:3, :3], made[name][1][:3, :3] = np.eye(3), gain * np.eye(3)
    made["h0"][2][3:, READ] = [3, -2]
    made["h1"][2][:3, 2:] = random.integers(-4, 5, size=(3, 3))
    made["h2"][2][:3, 2:] = random.integers(-4, 5, size=(3, 3))
    made["h3"][2][:3] = [[2, -1, 1, 0, 0], [-1, 2, 0, 1, 0], [0, -2, 0, 0, 1]]
    readout = np.zeros((5, 2), dtype=int)
    readout[READ, READ] = 1
    change = mixed(5, random)
    back = np.linalg.inv(change).round().astype(int)
    for head in made.values():
        head[2] = head[2] @ change
    return made, back @ readout


def weights_of(head, x):
    """Compute a head's weights."""
    grown = np.exp(x @ head[1] @ head[0].T @ x.T / len(head[0][0]) ** 0.5)
    return grown / grown.sum(axis=1, keepdims=True)


def measured(heads, readout, name, inputs, *, to_mean):
    """Compute what taking a head out changes: its own part of the result, and nothing else.

    The result is a sum over the heads, so that a head's change is its own output less what takes
    its place, times the readout.
    """
    written = np.array([weights_of(heads[name], x) @ x @ heads[name][2] for x in inputs])
    place = written.reshape(-1, written.shape[-1]).mean(axis=0) if to_mean else 0.0
    return float(np.abs((written - place) @ readout).max())


def texts():
    """Return all inputs of the shipped model."""
    rows = np.eye(3)[np.array(np.meshgrid(*[range(3)] * 4, indexing="ij")).reshape(4, -1).T]
    return np.concatenate([rows, np.broadcast_to(np.eye(4), (len(rows), 4, 4))], axis=-1)


def facts():
    """Return, of each head: the least of its largest weights, and its two effects."""
    heads, readout = make_model()
    found = {}
    for name, head in heads.items():
        sharp = min(weights_of(head, x).max(axis=1).min() for x in texts())
        effects = [measured(heads, readout, name, texts(), to_mean=mean) for mean in (False, True)]
        found[name] = (float(sharp), *effects)
    return found


FACTS = facts()
SHARPEST = max(FACTS, key=lambda name: FACTS[name][0])
(CONSTANT,) = (name for name, (_, zero, mean) in FACTS.items() if zero > 0.1 and mean < 0.01)
(MATTERS,) = (name for name, (_, _, mean) in FACTS.items() if mean > 0.1)


def model(random, names, length, width, stream, numbers):
    """Draw a model of any size."""
    heads = {}
    for name in names:
        sizes = (width, 3), (width, 3), (width, stream)
        heads[name] = [random.normal(size=size) for size in sizes]
    return heads, random.normal(size=(stream, numbers))


def case(call, heads, readout, name, inputs, words=""):
    """Ask for an effect."""
    right = measured(heads, readout, name, inputs, to_mean=call == "mean_effect")
    return Case(call, (heads, readout, name, inputs), expected=right, words=words)


def drawn(call):
    """Ask for effects in models drawn by chance; the last inputs are the largest."""

    def cases(random):
        for name, names, count, sizes in (
            ("a", "ab", 2, (2, 3, 2, 1)),
            ("q", "pqr", 5, (3, 2, 7, 4)),
        ):
            heads, readout = model(random, list(names), *sizes)
            inputs = (
                random.normal(size=(count, *sizes[:2])) * np.linspace(1, 4, count)[:, None, None]
            )
            yield case(call, heads, readout, name, inputs)
            yield case(call, heads, -readout, name, inputs)

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
        args = (heads, readout, "a", inputs)
        yield Case(call, args, expected=[readout, inputs], answer="inputs")


def question(variable, right):
    """Return the cases of one question."""
    wrong = {name: f"{variable}: {name}" for name in FACTS if name != right}
    return lambda random: [choice_case(variable, right, wrong)]


def draw_picture(names):
    """Draw the patterns of the four heads."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 2.5), layout="constrained")
    x = names["encode"]("CABA")
    for axes, (name, head) in zip(figure.subplots(1, 4), names["HEADS"].items(), strict=True):
        axes.imshow(names["pattern"](head, x), cmap="Blues", vmin=0, vmax=1)
        axes.set(title=name, xlabel="key", ylabel="query")
        axes.set_xticks(range(4), "CABA")
        axes.set_yticks(range(4), "CABA")
    return figure


SAYS = {
    "sharpest": "weights are not the ones nearest to 0 and 1: take the largest weight of each row.",
    "constant": "two effects are not those of a head that always says the same: print all eight.",
    "matters": "letters do not reach the result: what changes if it always writes its mean?",
}


def wrong_head(variable, right, answer):
    """Return the mistake of naming one head."""
    says = f"In `{variable}`: {answer}'s {SAYS[variable]}"
    if variable == "matters" and answer == SHARPEST:
        says = f"In `matters`: {answer} has the sharpest pattern, but is what it writes ever read?"
    return Mistake(
        f"{variable}: {answer}", f'{variable} = "{right}"', f'{variable} = "{answer}"', says
    )


ANSWERS = {"sharpest": SHARPEST, "constant": CONSTANT, "matters": MATTERS}
_CHANGE = "change = result(heads, readout, x, {name: zero}) - result(heads, readout, x)"
_MEAN = "mean = np.broadcast_to(outputs.mean(axis=(0, 1)), outputs[0].shape)"

EXERCISE = Exercise(
    "Puzzle: the decoy",
    level=4,
    minutes=40,
    needs=("puzzle_which_head",),
    checks=(
        Check("effect", "measures what taking a head out changes", drawn("effect"), points=2),
        Check("mean effect", "measures what its mean changes", drawn("mean_effect"), points=2),
        Check("sharpest", "knows the sharpest pattern", question("sharpest", SHARPEST)),
        Check("unread", "finds no effect where nothing is read", unread, graded=True),
        Check("always the same", "measures a head that never changes", constants, graded=True),
        Check(
            "constant",
            "knows the head that always says the same",
            question("constant", CONSTANT),
            graded=True,
        ),
        Check("matters", "knows the head that matters", question("matters", MATTERS), 2, True),
        Check("inputs", "leaves what it is given as it is", inputs_kept, graded=True),
    ),
    mistakes=(
        Mistake(
            "one input",
            "for x in inputs:",
            "for x in inputs[:1]:",
            "`effect` looks at the first input only; a head may act on others.",
        ),
        Mistake(
            "sign kept",
            "largest = max(largest, np.abs(change).max())",
            "largest = max(largest, change.max())",
            "`effect` overlooks changes below 0.",
        ),
        Mistake(
            "mean change",
            "largest = max(largest, np.abs(change).max())",
            "largest += np.abs(change).mean() / len(inputs)",
            "`effect` returns the mean change; the largest is asked for.",
        ),
        Mistake(
            "stream compared",
            _CHANGE,
            "change = head_output(heads[name], x)",
            "`effect` compares what is written into the stream, not what is read from it: a decoy "
            "writes much that is never read.",
        ),
        Mistake(
            "all others out",
            _CHANGE,
            "change = result({name: heads[name]}, readout, x, {name: zero})"
            " - result(heads, readout, x)",
            "`effect` takes all heads out at once.",
        ),
        Mistake(
            "weights made even",
            "zero = np.zeros_like(head_output(heads[name], x))",
            "zero = np.full((len(x), len(x)), 1 / len(x)) @ x @ heads[name][2]",
            "`effect` makes the pattern even instead of the output zero.",
        ),
        Mistake(
            "mean of each input",
            "for each in inputs:",
            "for each in inputs:\n"
            "        mean = np.broadcast_to(head_output(heads[name], each).mean(axis=0), "
            "outputs[0].shape)",
            "`mean_effect` takes a mean for each input; it should be one vector for all.",
        ),
        Mistake(
            "mean of each place",
            _MEAN,
            "mean = outputs.mean(axis=0)",
            "`mean_effect` takes a mean for each place; it should be one vector for all.",
        ),
        Mistake(
            "one number",
            _MEAN,
            "mean = np.full(outputs[0].shape, outputs.mean())",
            "`mean_effect` takes one number as the mean of all channels of the stream; each "
            "channel has its own.",
        ),
        Mistake(
            "median",
            "outputs.mean(axis=(0, 1))",
            "np.median(outputs, axis=(0, 1))",
            "`mean_effect` uses the median.",
        ),
        Mistake(
            "zero again",
            _MEAN,
            "mean = np.zeros(outputs[0].shape)",
            "`mean_effect` puts zero in the place of the output, as `effect` does.",
        ),
        *(
            wrong_head(variable, right, name)
            for variable, right in ANSWERS.items()
            for name in FACTS
            if name != right
        ),
    ),
    hints=(
        "If you may change one head's output and look at the result, what must you keep the same?",
        "`result` takes outputs in place of a head's own: what do you give it for zero, and of "
        "which shape?",
        "For the mean, collect the outputs of all inputs first: (inputs, length, stream). Which "
        "axes must go so that one vector (stream,) is left?",
        "Print both effects of all four heads in one table. A large first and a tiny second number "
        "are a constant; two tiny ones a decoy.",
    ),
    picture=draw_picture,
)
