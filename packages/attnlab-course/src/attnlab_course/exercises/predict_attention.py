"""Say it before you run it: what attention does to scores, masks and ranks."""

# %% [course]
from attnlab_course.material.predictions import Prediction, prediction

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
largest_entropy = 2.079
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


# %% [hints]
# 1. Which questions are about differences between scores, and which about counts?
# 2. A softmax sees differences only: equal scores give even weights, whatever their size. How
#    far apart are ten scores of the standard deviation you found?
# 3. An output row is a weighted mean of rows of the values, so the output is a product of two
#    matrices. A layer from width to width has width² + width parameters.
# 4. For the entropy put equal weights into −Σ w ln w. For queries without keys write out exp(s −
#    max) / Σ exp(s − max) with the number that stands there.

# %% [course]
SLOPES, FILLS = ("smaller", "same", "larger"), ("zero", "even", "nan")

QUESTIONS = (
    Prediction("score_variance", score_variance, "knows how far scores spread", near=10),
    Prediction(
        "largest_unscaled",
        largest_unscaled,
        "knows what scaling does to the weights",
        near=0.12,
        check="largest weight",
    ),
    Prediction("largest_scaled", largest_scaled, "", near=0.12, check="largest weight"),
    Prediction("largest_entropy", largest_entropy, "knows the largest entropy", near=0.007),
    Prediction("first_weight", first_weight, "knows the first row under a causal mask", near=0.006),
    Prediction("num_parameters", num_parameters, "counts the parameters"),
    Prediction("cost", cost, "knows how the weights grow with the text"),
    Prediction(
        "unscaled_gradient", unscaled_gradient, "knows what becomes of the gradient", SLOPES
    ),
    Prediction("leak", leak, "knows when a finite fill leaks", ("none", "some", "nearly all")),
    Prediction("dead_finite", dead_finite, "knows a query without keys", FILLS, check="dead rows"),
    Prediction("dead_infinite", dead_infinite, "", FILLS, check="dead rows"),
    Prediction("largest_rank", largest_rank, "knows the rank of an output"),
    Prediction(
        "shuffled", shuffled, "knows what order means without positions", ("same", "another")
    ),
)

WRONG = {
    ("score_variance", 16): "That is how far scores spread, their standard deviation. The variance "
    "is its square.",
    ("unscaled_gradient", "larger"): "Where one weight is almost 1 and the others almost 0, what "
    "does a small change of a score alter?",
    ("largest_entropy", 3): "That is in bits. Nats take the natural logarithm.",
    ("first_weight", 0.2): "That would be an even row over all five. How many of them may the "
    "first query see?",
    ("leak", "none"): "A softmax knows differences only. Which of the scores is the largest here?",
    ("dead_infinite", "zero"): "The exponentials are 0 indeed. Then they are divided by their sum.",
    ("num_parameters", 576): "The four matrices are counted. Each layer has a bias as well.",
    ("cost", 2): "There are twice as many queries. How many keys does each of them have?",
}

EXERCISE = prediction(
    "Predict: attention taken apart",
    QUESTIONS,
    WRONG,
    level=2,
    minutes=25,
    needs=("attention", "causal_mask", "multi_head"),
)
