"""Say it before you run it: what a small sorter is, and what it can do."""

# %% [course]
import itertools
import math

import numpy as np

from attnlab_course.exercise import Check, Exercise, Mistake
from attnlab_course.material.numpy_parts import softmax_rows
from attnlab_course.material.predictions import choice_case, number_case

# %% [markdown]
# # Predict: learning to sort
#
# Before you train the sorter, say what it must be like. It reads `c a b SEP`, three letters of the
# alphabet a, b, c and the separator, and continues with the same letters in order. It is trained to
# predict every next token of such rows of seven. It has one causal layer with two heads of width 3,
# and a model width of 6. Its projections are softmax(A B / temperature) over rows, by itself
# (*strict*) or times a free base matrix, entry by entry (*gated*).
#
# **Fill in** each answer below: a number, or one of the words that are offered. Work it out with
# pencil and paper; two right decimals are enough. Nothing is to be run.
#
# * `num_inputs`: how many different inputs of three letters are there?
# * `num_answers`: and how many different answers?
# * `floor`: the letters of a row are drawn uniformly. What is the lowest possible mean loss, in
#   nats, over the predicted tokens of a row?
# * `num_parameters`: how many parameters has one gated projection of one head, of rank 3, from
#   width 6 to width 3?
# * `hot_entry`: a strict weight (6 × 3) at a temperature of a million: what is each entry, nearly?
# * `cold_row`: a strict weight at a temperature near 0, its A B without equal entries: is a row
#   nearly `"even"`, `"one-hot"` or `"zero"`?
# * `largest_rank`: A is 6 × 1 and B is 1 × 3, so A B has rank 1. What is the largest rank that the
#   strict weight made of them can have?
# * `tokens_seen`: the model is about to choose the second letter of its answer. At how many tokens
#   can a head look?
# * `midway_rate`: the learning rate falls along half a cosine from its peak to a tenth of it. What
#   share of the peak is it halfway?

# %%
# >>> solution
num_inputs = 27
num_answers = 10
floor = 0.366
num_parameters = 45
hot_entry = 0.333
cold_row = "one-hot"
largest_rank = 3
tokens_seen = 5
midway_rate = 0.55
# --- starter
# num_inputs = None
# num_answers = None
# floor = None
# num_parameters = None
# hot_entry = None
# cold_row = None  # "even", "one-hot" or "zero"
# largest_rank = None
# tokens_seen = None
# midway_rate = None
# <<< solution


# %% [course]
NEAR = 0.006  # so that two decimals are enough
ROWS = list(itertools.product("abc", repeat=3))


def inputs(random):
    """Count the inputs."""
    yield number_case("num_inputs", len(ROWS), {"three times three": 9}, NEAR)


def outputs(random):
    """Count the answers."""
    right = len({tuple(sorted(row)) for row in ROWS})
    yield number_case("num_answers", right, {"as many answers as inputs": len(ROWS)}, NEAR)


def floors(random):
    """Compute the entropy of the tokens that are predicted, from all rows."""
    entropy = math.log(len(ROWS)) - math.log(len({row[0] for row in ROWS}))
    mistakes = {
        "first letter counted": math.log(len(ROWS)) / 6,
        "seven predictions": entropy / 7,
        "floor in bits": entropy / 6 / math.log(2),
    }
    yield number_case("floor", entropy / 6, mistakes, NEAR)


def counts(random):
    """Count the parameters of a gated projection."""
    a, b, base = 6 * 3, 3 * 3, 6 * 3
    yield number_case("num_parameters", a + b + base, {"base not counted": a + b}, NEAR)


def hot(random):
    """Make a weight at a temperature of a million."""
    product = random.normal(size=(6, 3)) @ random.normal(size=(3, 3)) / 1e6
    yield number_case("hot_entry", float(softmax_rows(product).mean()), tolerance=NEAR)


def cold(random):
    """Ask for the kind of row at a temperature near 0."""
    yield choice_case("cold_row", "one-hot", ("even", "one-hot", "zero"), {"even": "cold is even"})


def ranks(random):
    """Measure the rank of strict weights made of rank 1."""
    ranks = []
    for _ in range(20):
        product = random.normal(size=(6, 1)) @ random.normal(size=(1, 3)) * 2
        ranks.append(int(np.linalg.matrix_rank(softmax_rows(product))))
    yield number_case("largest_rank", max(ranks), {"rank kept": 1}, NEAR)


def seen(random):
    """Count the tokens that a causal head may look at."""
    yield number_case("tokens_seen", len(["c", "a", "b", "SEP", "a"]), tolerance=NEAR)


def midway(random):
    """Compute the rate halfway."""
    right = 0.1 + 0.9 * (1 + math.cos(math.pi / 2)) / 2
    yield number_case("midway_rate", right, tolerance=NEAR)


EXERCISE = Exercise(
    "Predict: learning to sort",
    kind="predict",
    level=3,
    minutes=20,
    needs=("factorized_projection", "next_token_loss", "learning_rate"),
    checks=(
        Check("inputs", "counts the inputs", inputs),
        Check("answers", "counts the answers", outputs),
        Check("floor", "knows the lowest loss", floors, points=2),
        Check("parameters", "counts the parameters", counts),
        Check("hot", "knows a weight at a high temperature", hot, graded=True),
        Check("cold", "knows a weight at a low temperature", cold, graded=True),
        Check("rank", "knows the rank of a strict weight", ranks, points=2, graded=True),
        Check("tokens seen", "knows what a head can look at", seen, graded=True),
        Check("rate", "knows the rate halfway", midway, graded=True),
    ),
    mistakes=(
        Mistake(
            "three times three",
            "num_inputs = 27",
            "num_inputs = 9",
            "Each of three places has three letters to choose from, whatever the others have.",
        ),
        Mistake(
            "as many answers as inputs",
            "num_answers = 10",
            "num_answers = 27",
            "Different inputs share an answer: `cab` and `bca` are both sorted to `abc`.",
        ),
        Mistake(
            "first letter counted",
            "floor = 0.366",
            "floor = 0.549",
            "The first letter is random as well, but no position predicts it.",
        ),
        Mistake(
            "seven predictions",
            "floor = 0.366",
            "floor = 0.314",
            "Rows have seven tokens, but the first of them is not predicted.",
        ),
        Mistake(
            "floor in bits",
            "floor = 0.366",
            "floor = 0.528",
            "That is in bits. In nats the logarithm is the natural one.",
        ),
        Mistake(
            "base not counted",
            "num_parameters = 45",
            "num_parameters = 27",
            "A and B are counted. A gated projection also has a base matrix.",
        ),
        Mistake(
            "cold is even",
            'cold_row = "one-hot"',
            'cold_row = "even"',
            "Near 0 the temperature makes differences larger, not smaller.",
        ),
        Mistake(
            "rank kept",
            "largest_rank = 3",
            "largest_rank = 1",
            "A softmax bends each row in its own way: rows that are multiples of one another "
            "before it need not be after it.",
        ),
    ),
    hints=(
        "Which of the row's seven tokens does the model predict, and which of those are random?",
        "A softmax of equal scores is even; of scores that lie far apart it is one-hot.",
        "The loss of a uniform draw of n is log n at best. Entropies add, and the mean divides by "
        "the number of predictions.",
        "Take the rank-1 product with rows 0, b and 2b: are (1, 1, 1), exp(b) and exp(2b) "
        "multiples of one another, or sums of each other?",
    ),
)
