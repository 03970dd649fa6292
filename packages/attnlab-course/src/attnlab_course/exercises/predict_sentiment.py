"""Say what a classifier of texts will do before you run it."""

# %% [course]
import math

import numpy as np

from attnlab_course.exercise import Check, Exercise, Mistake
from attnlab_course.material.numpy_parts import softmax_rows
from attnlab_course.material.predictions import choice_case, number_case

# %% [markdown]
# # A verdict on a text: say it before you run it
#
# Eight questions about the mini transformer and its training. Answer each from what you know, then
# check, and run the thing where an answer surprises you. Numbers may be off by 0.01, counts
# must be right. The picture shows a head that hides PAD.
#
# ![a head](predict_sentiment.svg)
#
# Set each variable to a word in quotes or a number.
#
# 1. `seen`: there are 20 texts, each ten times. The 200 are mixed and a fifth is held out for
#    validation. How many of the validation texts are also in training?
#    "almost all", "about a fifth" or "almost none"
# 2. `memory_accuracy`: a model has learned its training texts by heart and knows nothing else. It
#    says "good" of every text it has not seen. What is its accuracy (0 to 1) on a validation part
#    of ten new texts, five good and five bad?
# 3. `first_loss`: the logits of a new model are all equal. What is its cross-entropy in nats with
#    two classes?
# 4. `confidence`: the two logits are 2 and 0. Which probability has the first class?
# 5. `block_size`: how many parameters has a block of width 64: four projections 64 → 64, a
#    feed-forward network 64 → 256 → 64, all with biases, and two layer norms with gain and bias?
#    More heads change nothing about it.
# 6. `more_padding`: a model hides PAD from attention but takes the mean over all positions. Three
#    more PAD are put behind a text. Its logits are "the same" or "different"?
# 7. `word_order`: a model has no positions and any number of blocks in which every token sees all
#    others, and takes the mean over them. For "not good but bad" and "not bad but good" its
#    logits are "the same" or "different"?
# 8. `unknown_words`: two texts differ in one word, and the vocabulary has neither of the two words.
#    The logits are "the same" or "different"?

# %%
# >>> solution
seen = "almost all"
memory_accuracy = 0.5
first_loss = 0.6931
confidence = 0.8808
block_size = 49984
more_padding = "different"
word_order = "the same"
unknown_words = "the same"
# --- starter
# seen = None  # "almost all", "about a fifth" or "almost none"
# memory_accuracy = None  # a number
# first_loss = None  # a number
# confidence = None  # a number
# block_size = None  # a whole number
# more_padding = None  # "the same" or "different"
# word_order = None  # "the same" or "different"
# unknown_words = None  # "the same" or "different"
# <<< solution


# %% [course]
SAME = ("the same", "different")


def ask_seen(random):
    """Question 1, measured."""
    shares = {"almost none": 0.0, "about a fifth": 0.2, "almost all": 1.0}
    orders = [random.permutation(200) % 20 for _ in range(20)]
    share = np.mean([np.isin(order[:40], order[40:]).mean() for order in orders])
    right = min(shares, key=lambda words: abs(shares[words] - share))
    yield choice_case("seen", right, tuple(shares), {"about a fifth": "a fifth is seen"})


def ask_memory(random):
    """Question 2: the verdict is right where the text happens to be good."""
    yield number_case("memory_accuracy", 5 / 10, {"memory taken for skill": 1.0}, 0.01)


def ask_loss(random):
    """Question 3."""
    mistakes = {"a probability for a loss": 0.5, "bits for nats": 1.0}
    yield number_case("first_loss", -math.log(1 / 2), mistakes, 0.01)


def ask_confidence(random):
    """Question 4."""
    right = math.exp(2) / (math.exp(2) + math.exp(0))
    yield number_case("confidence", right, {"share of the logits": 1.0}, 0.01)


def ask_size(random):
    """Question 5."""
    width, hidden = 64, 256
    matrices = 4 * width * width + 2 * width * hidden
    biases, norms = 4 * width + hidden + width, 2 * 2 * width
    right = matrices + biases + norms
    yield number_case("block_size", right, {"biases left out": matrices + norms})


def ask_padding(random):
    """Question 6: a mean over all positions, with more PAD rows in it."""
    real, pad = random.normal(size=(4, 3)), random.normal(size=(1, 3))
    means = [np.concatenate([real, pad.repeat(n, axis=0)]).mean(axis=0) for n in (1, 4)]
    right = "the same" if np.allclose(*means) else "different"
    mistakes = {"the same": "the mean left out of account"}
    yield choice_case("more_padding", right, SAME, mistakes)


def ask_order(random):
    """Question 7: attention without positions and a mean, on a reordered text."""
    table = dict(zip(["not", "good", "but", "bad"], random.normal(size=(4, 3)), strict=True))
    means = []
    for text in ("not good but bad", "not bad but good"):
        x = np.array([table[word] for word in text.split()])
        means.append((softmax_rows(x @ x.T) @ x).mean(axis=0))
    right = "the same" if np.allclose(*means) else "different"
    yield choice_case("word_order", right, SAME, {"different": "order seen without positions"})


def ask_unknown(random):
    """Question 8: the ids of two texts."""
    ids = {"<UNK>": 1, "a": 3, "film": 4}
    texts = [[ids.get(word, 1) for word in f"a {word} film".split()] for word in ("gory", "lush")]
    yield choice_case("unknown_words", "the same" if texts[0] == texts[1] else "different", SAME)


def draw_picture(names):
    """Draw a head on a text with padding."""
    from attnlab.draw.attention import draw_head

    scores = np.random.default_rng(2).normal(size=(7, 7)) * 1.5
    scores[:, 5:] = -np.inf
    words = ["CLS", "not", "good", "but", "bad", "PAD", "PAD"]
    return draw_head(softmax_rows(scores), tokens=words)


EXERCISE = Exercise(
    "Say it first: a verdict on a text",
    level=2,
    minutes=15,
    kind="predict",
    needs=("mini_transformer", "batches"),
    checks=(
        Check("seen", "says what a split of copies leaks", ask_seen),
        Check("memory", "says what memory is worth on new texts", ask_memory),
        Check("first loss", "says the loss of a model that knows nothing", ask_loss),
        Check("confidence", "turns logits into a probability", ask_confidence),
        Check("block size", "counts a block's parameters", ask_size),
        Check("more padding", "says what padding does to a mean", ask_padding),
        Check("word order", "says what a model without positions sees", ask_order),
        Check("unknown words", "says what becomes of unknown words", ask_unknown),
    ),
    mistakes=(
        Mistake(
            "a fifth is seen",
            'seen = "almost all"',
            'seen = "about a fifth"',
            "A fifth is the share that is held out. A text is new to the model only if all ten of "
            "its copies were held out together: how likely is that?",
        ),
        Mistake(
            "memory taken for skill",
            "memory_accuracy = 0.5",
            "memory_accuracy = 1.0",
            "That is its accuracy on texts it has seen. None of these ten is among them.",
        ),
        Mistake(
            "a probability for a loss",
            "first_loss = 0.6931",
            "first_loss = 0.5",
            "That is the probability of the right class. The loss is minus its logarithm.",
        ),
        Mistake(
            "bits for nats",
            "first_loss = 0.6931",
            "first_loss = 1.0",
            "That is the loss in bits, with the logarithm to base 2. Nats have the natural one.",
        ),
        Mistake(
            "share of the logits",
            "confidence = 0.8808",
            "confidence = 1.0",
            "Logits are no shares: it is their exponentials that are divided by their sum.",
        ),
        Mistake(
            "biases left out",
            "block_size = 49984",
            "block_size = 49408",
            "The biases of the linear layers are missing: one number for each output.",
        ),
        Mistake(
            "the mean left out of account",
            'more_padding = "different"',
            'more_padding = "the same"',
            "Attention does not see PAD, but the mean does: with more PAD the words weigh less.",
        ),
        Mistake(
            "order seen without positions",
            'word_order = "the same"',
            'word_order = "different"',
            "Both texts have the same words. Without positions nothing tells where a word stands, "
            "and a mean does not know an order.",
        ),
    ),
    hints=(
        "Which of the questions can be answered by counting, without any model?",
        "1: when is a text missing in training altogether? 3 and 4: write the softmax down. 5: a "
        "linear layer from a to b has a·b weights and b biases.",
        "6 to 8: ask of each step (ids, embedding, attention, mean) whether its input differs.",
    ),
    picture=draw_picture,
)
