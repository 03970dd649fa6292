"""Say it before you run it: what attention does to scores, masks and ranks."""

# %% [course]
import math

import numpy as np
import torch

from attnlab_course.exercise import Check, Exercise
from attnlab_course.material.numpy_parts import softmax_rows
from attnlab_course.material.predictions import choice_case, number_case, wrong_answer

# %% [markdown]
# # Predict: attention taken apart
#
# Before you measure anything, say what will come out. A prediction that fails teaches more than
# one that was never made. Work with pencil and paper; nothing is to be run. Queries and keys are
# drawn from the standard normal distribution where nothing else is said.
#
# **Fill in** each answer: a number, or one of the words that are offered.
#
# * `score_variance`: queries and keys are 256 wide. What is the variance of a score Q·K before it
#   is divided by anything? (within 10)
# * `largest_unscaled`: such scores of ten keys go into a softmax **undivided**. What is the largest
#   weight, on average? (within 0.12)
# * `largest_scaled`: and if they are divided by √256 first? (within 0.12)
# * `unscaled_gradient`: without the division, does the gradient that passes back through the
#   softmax get `"smaller"`, `"larger"`, or is it the `"same"` as with it?
# * `largest_entropy`: what is the largest entropy, in nats, that the weights over 8 keys can have?
#   (two decimals)
# * `first_weight`: under a causal mask over five positions, what weight does the first query give
#   to the first key?
# * `leak`: masked scores are set to −100 instead of −∞. The scores of the other keys happen to be
#   −150. How much weight goes to the masked keys: `"none"`, `"some"` or `"nearly all"`?
# * `dead_finite`: all keys of a query are masked with −1e9. What are its weights after the
#   softmax: `"zero"`, `"even"` or `"nan"`?
# * `dead_infinite`: and if they are masked with −∞: `"zero"`, `"even"` or `"nan"`?
# * `largest_rank`: 7 queries attend to 5 keys, the values are 6 wide, and the matrix of the values
#   (5 × 6) has rank 3. What is the largest rank that the output (7 × 6) can have?
# * `num_parameters`: how many parameters has multi-head attention of width 12 with 3 heads, its
#   four linear layers with bias?
# * `shuffled`: no positions, no mask, and the tokens of a text are shuffled. Is each token's output
#   the `"same"` as before, or is it `"another"`?
# * `cost`: a text gets twice as long. By which factor does the number of attention weights grow?

# %%
# >>> solution
score_variance = 256
largest_unscaled = 0.93
largest_scaled = 0.32
unscaled_gradient = "smaller"
largest_entropy = 2.08
first_weight = 1.0
leak = "nearly all"
dead_finite = "even"
dead_infinite = "nan"
largest_rank = 3
num_parameters = 624
shuffled = "same"
cost = 4
# --- starter
# score_variance = None
# largest_unscaled = None
# largest_scaled = None
# unscaled_gradient = None  # "smaller", "larger" or "same"
# largest_entropy = None
# first_weight = None
# leak = None  # "none", "some" or "nearly all"
# dead_finite = None  # "zero", "even" or "nan"
# dead_infinite = None  # "zero", "even" or "nan"
# largest_rank = None
# num_parameters = None
# shuffled = None  # "same" or "another"
# cost = None
# <<< solution


# %% [course]
WIDTH, KEYS = 256, 10
CLOSE, NEAR = 0.12, 0.006


def drawn_scores(random):
    """Draw scores of many queries, each on ten keys of its own."""
    query, key = random.normal(size=(300, 1, WIDTH)), random.normal(size=(300, KEYS, WIDTH))
    return (query * key).sum(axis=-1)


def variance(random):
    """Ask for the variance of a sum of products: theirs, as often as there are."""
    yield number_case("score_variance", WIDTH, {"deviation": 16}, 10)


def largest(random):
    """Draw the largest weights with and without scaling."""
    scores = drawn_scores(random)
    for name, root in (("largest_unscaled", 1.0), ("largest_scaled", WIDTH**0.5)):
        right = float(softmax_rows(scores / root).max(axis=-1).mean())
        yield number_case(name, right, tolerance=CLOSE)


def slope_size(weights):
    """Return the size of the softmax's derivative, on average."""
    slopes = weights[:, :, None] * (np.eye(KEYS) - weights[:, None, :])
    return float(np.sqrt((slopes**2).sum(axis=(1, 2))).mean())


def gradient(random):
    """Compare the derivatives of the softmax with and without scaling."""
    scores = drawn_scores(random)
    bare, scaled = (slope_size(softmax_rows(scores / root)) for root in (1.0, WIDTH**0.5))
    right = "smaller" if bare < scaled else "larger"
    options = ("smaller", "same", "larger")
    yield choice_case("unscaled_gradient", right, options, {"larger": "larger gradient"})


def entropy(random):
    """Compute the entropy of even weights."""
    even = np.full(8, 1 / 8)
    right = float(-(even * np.log(even)).sum())
    yield number_case("largest_entropy", right, {"entropy in bits": 3}, NEAR)


def first(random):
    """Compute the first row under a causal mask."""
    scores = np.where(np.tri(5, dtype=bool), random.normal(size=(5, 5)), -np.inf)
    right = float(softmax_rows(scores)[0, 0])
    yield number_case("first_weight", right, {"even first row": 0.2}, NEAR)


def leaks(random):
    """Compute the weight of a key that is filled with −100."""
    masked = float(softmax_rows(np.array([-150.0, -150.0, -100.0]))[-1])
    right = "nearly all" if masked > 0.99 else "some"
    yield choice_case("leak", right, ("none", "some", "nearly all"), {"none": "no leak"})


def dead(random):
    """Share out a row that is filled with one number, as PyTorch does."""
    mistakes = {"dead_finite": {}, "dead_infinite": {"zero": "infinite is zero"}}
    for name, fill in (("dead_finite", -1e9), ("dead_infinite", -math.inf)):
        row = torch.softmax(torch.full((4,), fill), dim=-1)
        right = "nan" if row.isnan().all() else "even"
        yield choice_case(name, right, ("zero", "even", "nan"), mistakes[name])


def rank(random):
    """Measure the rank of an output over values of rank 3."""
    value = random.normal(size=(5, 3)) @ random.normal(size=(3, 6))
    weights = softmax_rows(random.normal(size=(7, 5)))
    right = int(np.linalg.matrix_rank(weights @ value))
    yield number_case("largest_rank", right, tolerance=NEAR)


def parameters(random):
    """Count four layers."""
    layer = 12 * 12 + 12
    yield number_case("num_parameters", 4 * layer, {"no biases": 4 * 144}, NEAR)


def shuffles(random):
    """Shuffle the tokens, and look at the output of one of them."""
    x, order = random.normal(size=(6, 4)), random.permutation(6)
    before, after = (softmax_rows(rows @ rows.T) @ rows for rows in (x, x[order]))
    right = "same" if np.allclose(before[order], after) else "another"
    yield choice_case("shuffled", right, ("same", "another"))


def costs(random):
    """Count the weights of a text and of one twice as long."""
    yield number_case("cost", 20 * 20 / (10 * 10), {"linear": 2}, NEAR)


EXERCISE = Exercise(
    "Predict: attention taken apart",
    kind="predict",
    level=2,
    minutes=25,
    needs=("attention", "causal_mask", "multi_head"),
    checks=(
        Check("score variance", "knows how far scores spread", variance),
        Check("largest weight", "knows what scaling does to the weights", largest, points=2),
        Check("entropy", "knows the largest entropy", entropy),
        Check("first row", "knows the first row under a causal mask", first),
        Check("parameters", "counts the parameters", parameters),
        Check("cost", "knows how the weights grow with the text", costs),
        Check("gradient", "knows what becomes of the gradient", gradient, graded=True),
        Check("leak", "knows when a finite fill leaks", leaks, graded=True),
        Check("dead rows", "knows a query without keys", dead, points=2, graded=True),
        Check("rank", "knows the rank of an output", rank, graded=True),
        Check("shuffled", "knows what order means without positions", shuffles, graded=True),
    ),
    mistakes=(
        wrong_answer(
            "deviation",
            "score_variance = 256",
            "16",
            "That is how far scores spread, their standard deviation. The variance is its square.",
        ),
        wrong_answer(
            "larger gradient",
            'unscaled_gradient = "smaller"',
            '"larger"',
            "Where one weight is almost 1 and the others almost 0, what does a small change of a "
            "score alter?",
        ),
        wrong_answer(
            "entropy in bits",
            "largest_entropy = 2.08",
            "3",
            "That is in bits. Nats take the natural logarithm.",
        ),
        wrong_answer(
            "even first row",
            "first_weight = 1.0",
            "0.2",
            "That would be an even row over all five. How many of them may the first query see?",
        ),
        wrong_answer(
            "no leak",
            'leak = "nearly all"',
            '"none"',
            "A softmax knows differences only. Which of the scores is the largest here?",
        ),
        wrong_answer(
            "infinite is zero",
            'dead_infinite = "nan"',
            '"zero"',
            "The exponentials are 0 indeed. Then they are divided by their sum.",
        ),
        wrong_answer(
            "no biases",
            "num_parameters = 624",
            "576",
            "The four matrices are counted. Each layer has a bias as well.",
        ),
        wrong_answer(
            "linear",
            "cost = 4",
            "2",
            "There are twice as many queries. How many keys does each of them have?",
        ),
    ),
    hints=(
        "Which questions are about differences between scores, and which about counts?",
        "A softmax sees differences only: equal scores give even weights, whatever their size. "
        "How far apart are ten scores of the standard deviation you found?",
        "An output row is a weighted mean of rows of the values, so the output is a product of "
        "two matrices. A layer from width to width has width² + width parameters.",
        "For the entropy put equal weights into −Σ w ln w. For queries without keys write out "
        "exp(s − max) / Σ exp(s − max) with the number that stands there.",
    ),
)
