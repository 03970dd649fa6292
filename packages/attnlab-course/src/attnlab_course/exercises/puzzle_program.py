"""A puzzle: what does this head compute? Write it down as a program."""

# %% [course]
import itertools

from attnlab_course.exercise import Case, Check, Exercise, Failure

# %% [markdown]
# # Puzzle: the program in the head
#
# One head, finished and given as numbers. It reads a text of one to five letters A, B and C, with
# a start token in front, and gives one number for each letter: nearly +1 or nearly −1. It follows a
# rule, and the rule is a short one. The picture shows its outputs for a few texts.
#
# ![outputs](puzzle_program.svg)
#
# **Write** `program(text)`: it returns the list of the numbers, `1` or `-1`, one for each letter of
# the text. It must follow the head's rule, not its arithmetic:
#
# * It is right on **all 363 texts** of one to five letters A, B and C.
# * It follows the same rule on longer texts, and with any other capital letters, which the head
#   itself cannot read. An empty text gives an empty list.
#
# Run `model(text)` as often as you like. Guess, then look for a text that could prove you wrong: a
# rule that fits all texts of three letters can still be another one.

# %%
import numpy as np


def matrix(text):
    """Read a matrix of whole numbers, its rows ended by `/`."""
    return np.array([row.split() for row in text.split("/")], dtype=np.float64)


Km = matrix(
    "1 -1 0 0 0 0 0 1 0 / 0 1 0 0 0 0 0 0 0 / 1 -1 1 0 0 0 -1 1 0 / "
    "0 -1 0 1 1 1 -1 0 1 / 0 0 0 0 0 0 0 0 0 / 0 0 0 0 1 1 -2 0 1 / "
    "0 0 -1 0 0 1 -1 0 0 / 0 0 0 0 0 0 1 0 0 / 0 -1 -1 0 0 1 -1 1 0 / "
    "0 0 0 0 0 1 -1 0 1"
)
Qm = matrix(
    "36 0 -36 18 0 -36 0 0 36 / 0 36 0 54 0 0 0 36 0 / "
    "0 0 36 18 0 36 0 0 -36 / 0 0 0 0 0 0 0 0 0 / "
    "0 0 0 0 0 0 0 0 0 / 0 0 -108 216 -108 -324 -108 0 108 / "
    "0 0 -108 216 -108 -324 -108 0 108 / 0 0 -108 108 0 -324 -108 0 108 / "
    "108 0 -108 108 0 -216 -108 -108 0 / 108 0 0 0 108 0 0 -108 -108"
)
Vm = matrix("-1 / -1 / -1 / 1 / 0 / 0 / 0 / 0 / 0 / 0")


def model(text):
    """Return the head's output at each letter, rounded."""
    tokens = np.eye(4)[[3, *map("ABC".index, text)]]
    x = np.hstack([tokens, np.eye(6)[: len(tokens)]])
    scores = (x @ Qm) @ (x @ Km).T / np.sqrt(Km.shape[1])
    grown = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (grown / grown.sum(axis=1, keepdims=True) @ x @ Vm)[1:, 0].round(3)


# %%
def program(text):
    """Return 1 or -1 for each letter, by the rule that the head follows."""
    # >>> solution
    numbers = []
    for place, letter in enumerate(text):
        earlier = text[: max(place - 1, 0)]
        numbers.append(-1 if letter in earlier else 1)
    return numbers
    # <<< solution


# %%
def every(texts):
    """Write down the program's answers to many texts; leave it as it is."""
    answers = [" ".join(f"{number:+g}" for number in program(text)) for text in texts]
    return "\n".join(answers)


# %% [hints]
# 1. Which of two texts that differ in one letter get different outputs, and at which place?
# 2. Does a letter's number depend on what stands behind it? Does it depend on the name of the
#    letter, or only on which letters are equal? Answer these two before you guess.
# 3. Collect the texts of four letters whose last number is −1. What do the last letter and an
#    equal one have in common, and which distance never counts?
# 4. Print Qm Kmᵀ and look at the block of places: which keys does a place refuse to see?

# %% [mistakes]
# ## opposite signs: The signs are exchanged.
# - numbers.append(-1 if letter in earlier else 1)
# + numbers.append(1 if letter in earlier else -1)
# ## any earlier one: You say −1 where an equal letter stands anywhere before it. Try AA.
# - earlier = text[: max(place - 1, 0)]
# + earlier = text[:place]
# ## directly before: You say −1 where the same letter stands directly before it. Try AA.
# - earlier = text[: max(place - 1, 0)]
# + earlier = text[max(place - 1, 0) : place]
# ## two before: You compare a letter with the one two places before it, and that fits all texts of
# three letters. Try ABCA.
# - earlier = text[: max(place - 1, 0)]
# + earlier = text[max(place - 2, 0) : max(place - 1, 0)]
# ## exactly one: You say −1 where exactly one earlier letter is equal. Try AABA.
# - numbers.append(-1 if letter in earlier else 1)
# + numbers.append(-1 if earlier.count(letter) == 1 else 1)

# %% [course]
RULED = ["".join(text) for n in range(1, 6) for text in itertools.product("ABC", repeat=n)]
"""The texts that the head can read; its numbers were made for the solution's rule."""


def case(texts):
    """Ask for the answers to some texts, and name the first that is wrong."""

    def judge(answer):
        lines = answer.split("\n") if isinstance(answer, str) else []
        if len(lines) != len(texts):
            return Failure("every(texts) must stay as it is")
        for text, line in zip(texts, lines, strict=True):
            right = every([text])
            if line != right and text in RULED:
                return Failure(f"on {text}: the head says {right}, the program {line}")
            if line != right:
                return Failure(f"on {text or 'the empty text'}: the rule is not {line}")
        return None

    return Case("every", (texts,), judge=judge)


def of_length(*lengths):
    """Return the case of all texts of these lengths."""
    texts = [text for text in RULED if len(text) in lengths]
    return lambda random: [case(texts)]


def sample_texts(random, letters, lengths):
    """Sample texts."""
    sizes = random.choice(lengths, size=40)
    return ["".join(random.choice(list(letters), size)) for size in sizes]


def longer(random):
    """Texts that are longer than the head can read."""
    yield case(sample_texts(random, "ABC", (6, 7, 9, 12)))


def other_letters(random):
    """Texts of other letters."""
    yield case(sample_texts(random, "DXZQ", (3, 4, 5)))


def nothing(random):
    """The empty text."""
    yield case([""])


def draw_picture(names):
    """Draw the outputs for a few short texts."""
    from matplotlib.figure import Figure

    texts = ["ABC", "AAB", "ABA", "ABAB", "CCBA"]
    figure = Figure(figsize=(4.4, 2.9), layout="constrained")
    axes = figure.add_subplot(title="Output at each letter", xlim=(-0.5, 3.5), ylim=(4.5, -0.5))
    axes.set(xlabel="place", xticks=range(4), ylabel="text")
    axes.set_yticks(range(5), texts)
    for row, text in enumerate(texts):
        for place, value in enumerate(names["model"](text)):
            color = "tab:blue" if value > 0 else "tab:red"
            axes.text(place, row, f"{text[place]} {value:+.0f}", color=color, ha="center")
    return figure


EXERCISE = Exercise(
    "Puzzle: the program in the head",
    level=4,
    whole=True,
    minutes=40,
    needs=("unique", "puzzle_which_head"),
    checks=(
        Check("short", "is right on all texts of up to 3 letters", of_length(1, 2, 3), points=2),
        Check("four", "is right on all texts of 4 letters", of_length(4), points=2),
        Check("five", "is right on all texts of 5 letters", of_length(5), points=2),
        Check("longer", "follows the rule on longer texts", longer),
        Check("other letters", "takes any capital letter", other_letters),
        Check("nothing", "gives an empty list for an empty text", nothing, side=True),
    ),
    picture=draw_picture,
)
