"""Say it before you run it: what a small sorter is, and what it can do."""

# %% [course]
import itertools
import math

import numpy as np

from attnlab.course.exercise import Check, Exercise, Mistake
from attnlab.course.material.predictions import choice_case, number_case

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
_NEAR = 0.006  # so that two decimals are enough


def inputs(random):
    """Count the inputs."""
    right = len(list(itertools.product("abc", repeat=3)))
    wrong = {
        "three times three": 9,
        "inputs without repeats": len(list(itertools.permutations("abc"))),
        "inputs without order": len(
            {tuple(sorted(each)) for each in itertools.product("abc", repeat=3)}
        ),
    }
    yield number_case("num_inputs", right, wrong, _NEAR)


def outputs(random):
    """Count the answers."""
    every = list(itertools.product("abc", repeat=3))
    right = len({tuple(sorted(each)) for each in every})
    wrong = {"as many answers as inputs": len(every), "one answer": 1, "sets of letters": 7}
    yield number_case("num_answers", right, wrong, _NEAR)


def floors(random):
    """Compute the entropy of what is predicted, from all rows."""
    rows = list(itertools.product("abc", repeat=3))
    entropy = math.log(len(rows)) - math.log(len({row[0] for row in rows}))
    wrong = {
        "first letter counted": math.log(len(rows)) / 6,
        "seven predictions": entropy / 7,
        "both of these": math.log(len(rows)) / 7,
        "no floor": 0.0,
        "guessing everywhere": math.log(3),
        "floor in bits": entropy / 6 / math.log(2),
        "floor of a row": entropy,
    }
    yield number_case("floor", entropy / 6, wrong, _NEAR)


def counts(random):
    """Count the parameters of a gated projection."""
    a, b, base = np.empty((6, 3)), np.empty((3, 3)), np.empty((6, 3))
    wrong = {
        "base not counted": a.size + b.size,
        "dense matrix": base.size,
        "A twice": 2 * a.size + base.size,
    }
    yield number_case("num_parameters", a.size + b.size + base.size, wrong, _NEAR)


def hot(random):
    """Make a weight at a temperature of a million."""
    product = random.normal(size=(6, 3)) @ random.normal(size=(3, 3)) / 1e6
    grown = np.exp(product)
    right = float((grown / grown.sum(1, keepdims=True)).mean())
    wrong = {"hot is zero": 0.0, "hot is one": 1.0, "hot columns": 1 / 6, "hot matrix": 1 / 18}
    yield number_case("hot_entry", right, wrong, _NEAR)


def cold(random):
    """Ask for the kind of row at a temperature near 0."""
    wrong = {"even": "cold is even", "zero": "cold is zero"}
    yield choice_case("cold_row", "one-hot", wrong)


def ranks(random):
    """Measure the rank of strict weights made of rank 1."""
    found = []
    for _ in range(20):
        grown = np.exp(random.normal(size=(6, 1)) @ random.normal(size=(1, 3)) * 2)
        found.append(int(np.linalg.matrix_rank(grown / grown.sum(1, keepdims=True))))
    yield number_case(
        "largest_rank", max(found), {"rank kept": 1, "rank of six": 6, "rank plus one": 2}, _NEAR
    )


def seen(random):
    """Count the tokens that a causal head may look at."""
    wrong = {"only the letters": 3, "without itself": 4, "the whole row": 7, "its own choice": 6}
    yield number_case("tokens_seen", len(["c", "a", "b", "SEP", "a"]), wrong, _NEAR)


def midway(random):
    """Compute the rate halfway."""
    right = 0.1 + 0.9 * (1 + math.cos(math.pi / 2)) / 2
    wrong = {
        "down to zero": 0.5,
        "half of the fall": 0.45,
        "quarter of a cosine": math.cos(math.pi / 4),
    }
    yield number_case("midway_rate", right, wrong, _NEAR)


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
            "inputs without repeats",
            "num_inputs = 27",
            "num_inputs = 6",
            "That counts the orders of three different letters. A letter may come again.",
        ),
        Mistake(
            "inputs without order",
            "num_inputs = 27",
            "num_inputs = 10",
            "That counts what there is after sorting. Before it, order makes a difference.",
        ),
        Mistake(
            "as many answers as inputs",
            "num_answers = 10",
            "num_answers = 27",
            "Different inputs share an answer: `cab` and `bca` are both sorted to `abc`.",
        ),
        Mistake(
            "one answer",
            "num_answers = 10",
            "num_answers = 1",
            "`abc` is not the only answer: letters may come again, as in `aab`.",
        ),
        Mistake(
            "sets of letters",
            "num_answers = 10",
            "num_answers = 7",
            "That counts which letters occur. How often each of them does makes a difference too.",
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
            "both of these",
            "floor = 0.366",
            "floor = 0.471",
            "The first token is not predicted: it is neither a loss nor one of the number that the "
            "mean is over.",
        ),
        Mistake(
            "no floor",
            "floor = 0.366",
            "floor = 0.0",
            "The second and third letter cannot be foreseen, yet they are predicted and counted.",
        ),
        Mistake(
            "guessing everywhere",
            "floor = 0.366",
            "floor = 1.0986",
            "That is the loss at a random letter. The separator and the answer can be known.",
        ),
        Mistake(
            "floor in bits",
            "floor = 0.366",
            "floor = 0.528",
            "That is in bits. In nats the logarithm is the natural one.",
        ),
        Mistake(
            "floor of a row",
            "floor = 0.366",
            "floor = 2.197",
            "That is the loss of a whole row. Its mean over the predicted tokens is asked.",
        ),
        Mistake(
            "base not counted",
            "num_parameters = 45",
            "num_parameters = 27",
            "A and B are counted. A gated projection also has a base matrix.",
        ),
        Mistake(
            "dense matrix",
            "num_parameters = 45",
            "num_parameters = 18",
            "That is a plain matrix. Here A, B and the base are all learned.",
        ),
        Mistake(
            "A twice",
            "num_parameters = 45",
            "num_parameters = 54",
            "B goes from the rank to the head's width, not from the model's width.",
        ),
        Mistake(
            "hot is zero",
            "hot_entry = 0.333",
            "hot_entry = 0.0",
            "A B / temperature is near 0. What is the softmax of a row of zeros?",
        ),
        Mistake(
            "hot is one",
            "hot_entry = 0.333",
            "hot_entry = 1.0",
            "The exponentials are near 1, but each row is then divided by its sum.",
        ),
        Mistake(
            "hot columns",
            "hot_entry = 0.333",
            "hot_entry = 0.167",
            "Columns would sum to 1 then. The softmax is over rows.",
        ),
        Mistake(
            "hot matrix",
            "hot_entry = 0.333",
            "hot_entry = 0.0556",
            "The whole matrix would sum to 1 then. Each row does.",
        ),
        Mistake(
            "cold is even",
            'cold_row = "one-hot"',
            'cold_row = "even"',
            "Near 0 the temperature makes differences larger, not smaller.",
        ),
        Mistake(
            "cold is zero",
            'cold_row = "one-hot"',
            'cold_row = "zero"',
            "A softmax always sums to 1. Where does it all go when one score is far ahead?",
        ),
        Mistake(
            "rank kept",
            "largest_rank = 3",
            "largest_rank = 1",
            "A softmax bends each row in its own way: rows that are multiples of one another "
            "before it need not be after it.",
        ),
        Mistake(
            "rank plus one",
            "largest_rank = 3",
            "largest_rank = 2",
            "That would be so if the softmax only added a constant. Its exponential is no straight "
            "line.",
        ),
        Mistake(
            "rank of six",
            "largest_rank = 3",
            "largest_rank = 6",
            "A matrix with three columns cannot have a rank above 3.",
        ),
        Mistake(
            "only the letters",
            "tokens_seen = 5",
            "tokens_seen = 3",
            "A causal head looks at everything so far: the separator and the answer's first letter "
            "as well.",
        ),
        Mistake(
            "without itself",
            "tokens_seen = 5",
            "tokens_seen = 4",
            "The last token so far may look at itself too.",
        ),
        Mistake(
            "its own choice",
            "tokens_seen = 5",
            "tokens_seen = 6",
            "The letter that is being chosen is not there yet.",
        ),
        Mistake(
            "the whole row",
            "tokens_seen = 5",
            "tokens_seen = 7",
            "Later tokens are hidden by the causal mask, and they are not written yet.",
        ),
        Mistake(
            "down to zero",
            "midway_rate = 0.55",
            "midway_rate = 0.5",
            "That is halfway between the peak and 0. The rate ends at a tenth.",
        ),
        Mistake(
            "half of the fall",
            "midway_rate = 0.55",
            "midway_rate = 0.45",
            "That is how far it has fallen. What is left?",
        ),
        Mistake(
            "quarter of a cosine",
            "midway_rate = 0.55",
            "midway_rate = 0.707",
            "That is a quarter of a period. Half of one is symmetric about its middle.",
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
