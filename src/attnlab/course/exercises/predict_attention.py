"""Say it before you run it: what attention does to scores, masks and ranks."""

# %% [course]
import numpy as np

from attnlab.course.exercise import Check, Exercise, Mistake
from attnlab.course.material.predictions import choice_case, number_case

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
_CLOSE, _NEAR = 0.12, 0.006


def shares(scores):
    """Share out the scores of each row; a row of −∞ gives NaN, as a softmax does."""
    with np.errstate(invalid="ignore"):
        grown = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return grown / grown.sum(axis=-1, keepdims=True)


def drawn_scores(random):
    """Draw scores of many queries, each on ten keys of its own."""
    query, key = random.normal(size=(300, 1, WIDTH)), random.normal(size=(300, KEYS, WIDTH))
    return (query * key).sum(axis=-1)


def variance(random):
    """The variance of a sum of products: theirs, as often as there are."""
    one_product = 1.0
    wrong = {"variance of one": 1, "deviation": 16, "twice": 512}
    yield number_case("score_variance", WIDTH * one_product, wrong, 10)


def largest(random):
    """Draw the largest weights with and without scaling."""
    scores = drawn_scores(random)
    bare = float(shares(scores).max(axis=-1).mean())
    wrong = {"even without scaling": 1 / KEYS, "half without scaling": 0.5}
    yield number_case("largest_unscaled", bare, wrong, _CLOSE)
    scaled = float(shares(scores / WIDTH**0.5).max(axis=-1).mean())
    wrong = {"even with scaling": 1 / KEYS, "peaked with scaling": 1.0, "too peaked": 0.6}
    yield number_case("largest_scaled", scaled, wrong, _CLOSE)


def slope_size(weights):
    """The size of the softmax's derivative, on average."""
    slopes = weights[:, :, None] * (np.eye(KEYS) - weights[:, None, :])
    return float(np.sqrt((slopes**2).sum(axis=(1, 2))).mean())


def gradient(random):
    """Compare the derivatives of the softmax with and without scaling."""
    scores = drawn_scores(random)
    dies = slope_size(shares(scores)) < slope_size(shares(scores / WIDTH**0.5))
    right = "smaller" if dies else "larger"
    wrong = {"larger": "larger gradient", "same": "same gradient"}
    yield choice_case("unscaled_gradient", right, wrong)


def entropy(random):
    """The entropy of even weights."""
    even = np.full(8, 1 / 8)
    right = float(-(even * np.log(even)).sum())
    wrong = {"entropy in bits": 3, "entropy of one": 1, "number of keys": 8, "entropy zero": 0}
    yield number_case("largest_entropy", right, wrong, _NEAR)


def first(random):
    """The first row under a causal mask."""
    scores = np.where(np.tri(5, dtype=bool), random.normal(size=(5, 5)), -np.inf)
    wrong = {"even first row": 0.2, "nothing to see": 0.0}
    yield number_case("first_weight", float(shares(scores)[0, 0]), wrong, _NEAR)


def leaks(random):
    """The weight of keys that are filled with −100."""
    masked = float(shares(np.array([-150.0, -150.0, -100.0]))[-1])
    right = "nearly all" if masked > 0.99 else "some"
    yield choice_case("leak", right, {"none": "no leak", "some": "some leak"})


def dead(random):
    """A row that is filled with one number."""
    words = {}
    for name, fill in (("dead_finite", -1e9), ("dead_infinite", -np.inf)):
        row = shares(np.full((1, 4), fill))
        words[name] = "nan" if np.isnan(row).all() else "even"
    wrong = {"zero": "finite is zero", "nan": "finite is NaN"}
    yield choice_case("dead_finite", words["dead_finite"], wrong)
    wrong = {"zero": "infinite is zero", "even": "infinite is even"}
    yield choice_case("dead_infinite", words["dead_infinite"], wrong)


def rank(random):
    """Ranks of outputs over values of rank 3."""
    value = random.normal(size=(5, 3)) @ random.normal(size=(3, 6))
    weights = shares(random.normal(size=(7, 5)))
    right = int(np.linalg.matrix_rank(weights @ value))
    wrong = {"rank of the weights": 5, "rank of the width": 6, "rank of the queries": 7}
    yield number_case("largest_rank", right, wrong, _NEAR)


def parameters(random):
    """Count four layers."""
    layer = np.empty((12, 12)).size + np.empty(12).size
    wrong = {
        "no biases": 4 * 144,
        "no output layer": 3 * layer,
        "layers for each head": 12 * layer,
        "narrow layers": 4 * (12 * 4 + 4),
    }
    yield number_case("num_parameters", 4 * layer, wrong, _NEAR)


def shuffles(random):
    """Shuffle the tokens, and look at the output of one of them."""
    x = random.normal(size=(6, 4))
    order = random.permutation(6)
    before, after = shares(x @ x.T) @ x, shares(x[order] @ x[order].T) @ x[order]
    is_same = np.allclose(before[order], after)
    yield choice_case("shuffled", "same" if is_same else "other", {"another": "order matters"})


def costs(random):
    """Count the weights of a text and of one twice as long."""
    right = np.empty((20, 20)).size / np.empty((10, 10)).size
    yield number_case("cost", right, {"linear": 2, "cubic": 8}, _NEAR)


def _slip(name, right, wrong, says):
    """A wrong prediction: its name, the right line, what is said in its place, and why not."""
    variable = right.partition(" = ")[0]
    return Mistake(name, right, f"{variable} = {wrong}", says)


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
        _slip(
            "variance of one",
            "score_variance = 256",
            "1",
            "One product has this variance. A score sums many of them.",
        ),
        _slip(
            "deviation",
            "score_variance = 256",
            "16",
            "That is how far scores spread, their standard deviation. The variance is its square.",
        ),
        _slip(
            "twice",
            "score_variance = 256",
            "512",
            "A product of two standard normal numbers has no larger variance than each of them.",
        ),
        _slip(
            "even without scaling",
            "largest_unscaled = 0.93",
            "0.1",
            "That is what ten equal scores give. How far do scores lie apart at this width, and "
            "what does an exponential make of it?",
        ),
        _slip(
            "half without scaling",
            "largest_unscaled = 0.93",
            "0.5",
            "The best two scores are many units apart as a rule. How much is e to this distance?",
        ),
        _slip(
            "even with scaling",
            "largest_scaled = 0.32",
            "0.1",
            "Equal weights need equal scores. Divided scores still differ, by about 1.",
        ),
        _slip(
            "peaked with scaling",
            "largest_scaled = 0.32",
            "1.0",
            "One key has everything only if its score is far ahead. Divided scores differ by about "
            "1.",
        ),
        _slip(
            "too peaked",
            "largest_scaled = 0.32",
            "0.6",
            "The best of ten scores is about 1.5 ahead of their mean. The nine others count too.",
        ),
        _slip(
            "larger gradient",
            'unscaled_gradient = "smaller"',
            '"larger"',
            "Where one weight is almost 1 and the others almost 0, what does a small change of a "
            "score alter?",
        ),
        _slip(
            "same gradient",
            'unscaled_gradient = "smaller"',
            '"same"',
            "The slope of a softmax is w (1 − w) for a weight w: it depends on how peaked the "
            "weights are.",
        ),
        _slip(
            "entropy in bits",
            "largest_entropy = 2.08",
            "3",
            "That is in bits. Nats take the natural logarithm.",
        ),
        _slip(
            "entropy of one",
            "largest_entropy = 2.08",
            "1",
            "The weights sum to this. Their entropy is −Σ w ln w; for which weights is it largest?",
        ),
        _slip(
            "number of keys",
            "largest_entropy = 2.08",
            "8",
            "That is how many keys there are; an entropy is a logarithm of such a number.",
        ),
        _slip(
            "entropy zero",
            "largest_entropy = 2.08",
            "0",
            "That is the least: all weight on one key. Which weights are as undecided as possible?",
        ),
        _slip(
            "even first row",
            "first_weight = 1.0",
            "0.2",
            "That would be an even row over all five. How many of them may the first query see?",
        ),
        _slip(
            "nothing to see",
            "first_weight = 1.0",
            "0.0",
            "A position may attend to itself under a causal mask.",
        ),
        _slip(
            "no leak",
            'leak = "nearly all"',
            '"none"',
            "A softmax knows differences only. Which of the scores is the largest here?",
        ),
        _slip(
            "some leak",
            'leak = "nearly all"',
            '"some"',
            "The scores lie 50 apart. What is e⁻⁵⁰?",
        ),
        _slip(
            "finite is zero",
            'dead_finite = "even"',
            '"zero"',
            "After a softmax a row sums to 1. Who gets it if all scores are equal?",
        ),
        _slip(
            "finite is NaN",
            'dead_finite = "even"',
            '"nan"',
            "A finite number minus itself is 0, and its exponential is a good number.",
        ),
        _slip(
            "infinite is zero",
            'dead_infinite = "nan"',
            '"zero"',
            "The exponentials are 0 indeed. Then they are divided by their sum.",
        ),
        _slip(
            "infinite is even",
            'dead_infinite = "nan"',
            '"even"',
            "Equal scores share evenly if their difference is 0. What is −∞ minus −∞?",
        ),
        _slip(
            "rank of the weights",
            "largest_rank = 3",
            "5",
            "The weights can have this rank. The output is their product with the values.",
        ),
        _slip(
            "rank of the width",
            "largest_rank = 3",
            "6",
            "The output has so many columns, but each of its rows is a mean of the values' rows.",
        ),
        _slip(
            "rank of the queries",
            "largest_rank = 3",
            "7",
            "More queries make more rows, not more directions: each row is a mean of the values.",
        ),
        _slip(
            "no biases",
            "num_parameters = 624",
            "576",
            "The four matrices are counted. Each layer has a bias as well.",
        ),
        _slip(
            "no output layer",
            "num_parameters = 624",
            "468",
            "Queries, keys and values are counted. A fourth layer mixes the heads.",
        ),
        _slip(
            "layers for each head",
            "num_parameters = 624",
            "1872",
            "Heads share the layers: each takes some of their columns, not layers of its own.",
        ),
        _slip(
            "narrow layers",
            "num_parameters = 624",
            "208",
            "That is the share of one head. All heads together are as wide as the model.",
        ),
        _slip(
            "order matters",
            'shuffled = "same"',
            '"another"',
            "Each token's output is a mean over a set of keys. Without positions, does anything in "
            "it know the order?",
        ),
        _slip(
            "linear",
            "cost = 4",
            "2",
            "There are twice as many queries. How many keys does each of them have?",
        ),
        _slip(
            "cubic",
            "cost = 4",
            "8",
            "A weight belongs to a query and a key: two lengths, not three.",
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
