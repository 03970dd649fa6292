"""Say what a classifier of texts will do before you run it."""

# %% [course]
from attnlab_course.material.predictions import Prediction, prediction

# %% [markdown]
# # A verdict on a text: say it before you run it
#
# Eight questions about the mini transformer and its training. Answer each from what you know, then
# check, and run the thing where an answer surprises you. Numbers may be off by 0.01, counts
# must be right.
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


# %% [hints]
# 1. Which of the questions can be answered by counting, without any model?
# 2. 1: when is a text missing in training altogether? 3 and 4: write the softmax down. 5: a
#    linear layer from a to b has a·b weights and b biases.
# 3. 6 to 8: ask of each step (ids, embedding, attention, mean) whether its input differs.

# %% [course]
SAME, SEEN = ("the same", "different"), ("almost all", "about a fifth", "almost none")

QUESTIONS = (
    Prediction("seen", seen, "says what a split of copies leaks", SEEN),
    Prediction(
        "memory_accuracy", memory_accuracy, "says what memory is worth on new texts", near=0.01
    ),
    Prediction("first_loss", first_loss, "says the loss of a model that knows nothing", near=0.01),
    Prediction("confidence", confidence, "turns logits into a probability", near=0.01),
    Prediction("block_size", block_size, "counts a block's parameters"),
    Prediction("more_padding", more_padding, "says what padding does to a mean", SAME),
    Prediction("word_order", word_order, "says what a model without positions sees", SAME),
    Prediction("unknown_words", unknown_words, "says what becomes of unknown words", SAME),
)

WRONG = {
    ("seen", "about a fifth"): "A fifth is the share that is held out. A text is new to the model "
    "only if all ten of its copies were held out together: how likely is that?",
    ("memory_accuracy", 1.0): "That is its accuracy on texts it has seen. None of these ten is "
    "among them.",
    ("first_loss", 0.5): "That is the probability of the right class. The loss is minus its "
    "logarithm.",
    ("first_loss", 1.0): "That is the loss in bits, with the logarithm to base 2. Nats have the "
    "natural one.",
    ("confidence", 1.0): "Logits are no shares: it is their exponentials that are divided by their "
    "sum.",
    ("block_size", 49408): "The biases of the linear layers are missing: one number for each "
    "output.",
    (
        "more_padding",
        "the same",
    ): "Attention does not see PAD, but the mean does: with more PAD the words weigh less.",
    ("word_order", "different"): "Both texts have the same words. Without positions nothing tells "
    "where a word stands, and a mean does not know an order.",
}

EXERCISE = prediction(
    "Say it first: a verdict on a text",
    QUESTIONS,
    WRONG,
    level=2,
    minutes=15,
    needs=("mini_transformer", "batches"),
)
