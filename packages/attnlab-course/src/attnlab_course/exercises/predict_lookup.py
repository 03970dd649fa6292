"""Say what a model that looks things up will do before you run it."""

# %% [course]
from attnlab_course.material.predictions import Prediction, prediction

# %% [markdown]
# # Looking things up: say it before you run it
#
# An encoder reads a few tokens, a decoder says the value that belongs to a key among them. The
# encoder has no positions. Eight questions about it: answer each from what you know, then check,
# and run the thing where an answer surprises you. Shares may be off by 0.01, counts must be right.
#
# Set each variable to a word in quotes or a number.
#
# 1. `orders`: in how many orders can five different source tokens stand, the original one included?
# 2. `scrambled`: the source is put in another order. What the decoder writes is
#    "the same" or "different"?
# 3. `to_the_last_digit`: after such a reordering the logits, computed with floating-point numbers,
#    are always "exactly equal" or "equal up to rounding"?
# 4. `control`: now the encoder gets positions and is trained again. After a reordering the logits
#    are "the same" or "different"?
# 5. `two_facts`: the source is the set of single tokens {ALICE, GREEN, CHAIR, RED}: two keys, each
#    with its value, drawn afresh for every text, and no positions. How often is the best possible
#    model right about the value of ALICE, as a share (0 to 1)?
# 6. `bound_facts`: now each source token is a key and its value added up as one vector. The best
#    model of the same kind is right "always" or "by chance"?
# 7. `fixed_facts`: in the training data ALICE always goes with GREEN, and only one fact is in each
#    source. After training, the value GREEN is hidden from the source of a test text. Could a model
#    that makes no mistake on whole texts still say GREEN? "yes" or "no"
# 8. `weights`: how many numbers has the cross-attention map of one text: two target tokens, five
#    source tokens, four heads?

# %%
# >>> solution
orders = 120
scrambled = "the same"
to_the_last_digit = "equal up to rounding"
control = "different"
two_facts = 0.5
bound_facts = "always"
fixed_facts = "yes"
weights = 40
# --- starter
# orders = None  # a whole number
# scrambled = None  # "the same" or "different"
# to_the_last_digit = None  # "exactly equal" or "equal up to rounding"
# control = None  # "the same" or "different"
# two_facts = None  # a number
# bound_facts = None  # "always" or "by chance"
# fixed_facts = None  # "yes" or "no"
# weights = None  # a whole number
# <<< solution


# %% [hints]
# 1. Which of these questions is about order, and which about what belongs together?
# 2. 2 to 4: follow one token through key and value, and ask where its place would come in. 5:
#    write down both ways in which two keys can have two values, and look at the sets.
# 3. 7: what can a model that saw the same fact a thousand times do without reading it?

# %% [course]
SAME, DIGITS = ("the same", "different"), ("exactly equal", "equal up to rounding")
CHANCE = ("always", "by chance")

QUESTIONS = (
    Prediction("orders", orders, "counts the orders of five tokens"),
    Prediction("scrambled", scrambled, "says what a set does not show", SAME),
    Prediction("to_the_last_digit", to_the_last_digit, "says how exactly logits agree", DIGITS),
    Prediction("control", control, "says what positions change", SAME),
    Prediction("two_facts", two_facts, "says what a set of single tokens can tell", near=0.01),
    Prediction("bound_facts", bound_facts, "says what bound pairs can tell", CHANCE),
    Prediction("fixed_facts", fixed_facts, "says where fixed facts can be kept", ("yes", "no")),
    Prediction("weights", weights, "counts the weights of a map"),
)

WRONG = {
    ("orders", 10): "That is the number of pairs that could be swapped. Orders are many more.",
    ("scrambled", "different"): "Nothing in the encoder tells where a token stood: keys and values "
    "come from the tokens alone, and a weighted sum has no order.",
    (
        "to_the_last_digit",
        "exactly equal",
    ): "Floating-point sums depend a little on their order, in "
    "the last digits. A test with == fails by chance.",
    ("two_facts", 1.0): "The set is the same whether ALICE goes with GREEN or with RED: what "
    "belongs together is not in it.",
    ("bound_facts", "by chance"): "A token now carries its key and its value together: it is found "
    "by the one and gives the other, wherever it stands.",
    ("fixed_facts", "no"): "If a key always has the same value, the value can be kept in the "
    "weights. The accuracy on such data does not show that anything is looked up.",
    ("weights", 10): "That is one head's map. There are four.",
    ("weights", 100): "That is a self-attention of the source. In cross-attention the target asks.",
}

EXERCISE = prediction(
    "Say it first: looking things up",
    QUESTIONS,
    WRONG,
    level=3,
    minutes=15,
    needs=("cross_attention", "scramble_test"),
)
