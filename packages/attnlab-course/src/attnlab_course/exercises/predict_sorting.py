"""Say it before you run it: what a small sorter is, and what it can do."""

# %% [course]
from attnlab_course.material.predictions import Prediction, prediction

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
floor = 0.3662
num_parameters = 45
hot_entry = 0.3333
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


# %% [hints]
# 1. Which of the row's seven tokens does the model predict, and which of those are random?
# 2. A softmax of equal scores is even; of scores that lie far apart it is one-hot.
# 3. The loss of a uniform draw of n is log n at best. Entropies add, and the mean divides by the
#    number of predictions.
# 4. Take the rank-1 product with rows 0, b and 2b: are (1, 1, 1), exp(b) and exp(2b) multiples
#    of one another, or sums of each other?

# %% [course]
NEAR = 0.006  # so that two decimals are enough

QUESTIONS = (
    Prediction("num_inputs", num_inputs, "counts the inputs"),
    Prediction("num_answers", num_answers, "counts the answers"),
    Prediction("floor", floor, "knows the lowest loss", near=NEAR, points=2),
    Prediction("num_parameters", num_parameters, "counts the parameters"),
    Prediction("hot_entry", hot_entry, "knows a weight at a high temperature", near=NEAR),
    Prediction(
        "cold_row",
        cold_row,
        "knows a weight at a low temperature",
        ("even", "one-hot", "zero"),
    ),
    Prediction("largest_rank", largest_rank, "knows the rank of a strict weight", points=2),
    Prediction("tokens_seen", tokens_seen, "knows what a head can look at"),
    Prediction("midway_rate", midway_rate, "knows the rate halfway", near=NEAR),
)

WRONG = {
    ("num_inputs", 9): "Each of three places has three letters to choose from, whatever the others "
    "have.",
    ("num_answers", 27): "Different inputs share an answer: `cab` and `bca` are both sorted to "
    "`abc`.",
    ("floor", 0.549): "The first letter is random as well, but no position predicts it.",
    ("floor", 0.314): "Rows have seven tokens, but the first of them is not predicted.",
    ("floor", 0.528): "That is in bits. In nats the logarithm is the natural one.",
    ("num_parameters", 27): "A and B are counted. A gated projection also has a base matrix.",
    ("cold_row", "even"): "Near 0 the temperature makes differences larger, not smaller.",
    ("largest_rank", 1): "A softmax bends each row in its own way: rows that are multiples of one "
    "another before it need not be after it.",
}

EXERCISE = prediction(
    "Predict: learning to sort",
    QUESTIONS,
    WRONG,
    level=3,
    minutes=20,
    needs=("factorized_projection", "next_token_loss", "learning_rate"),
)
