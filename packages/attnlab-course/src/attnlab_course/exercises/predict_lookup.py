"""Say what a model that looks things up will do before you run it."""

# %% [course]
import math

import numpy as np

from attnlab_course.exercise import Check, Exercise, Mistake
from attnlab_course.material.numpy_parts import softmax_rows
from attnlab_course.material.predictions import choice_case, number_case

# %% [markdown]
# # Looking things up: say it before you run it
#
# An encoder reads a few tokens, a decoder says the value that belongs to a key among them. The
# encoder has no positions. Eight questions about it: answer each from what you know, then check,
# and run the thing where an answer surprises you. Shares may be off by 0.01, counts must be right.
# The picture shows a cross-attention map of two target tokens on five source tokens.
#
# ![map](predict_lookup.svg)
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


# %% [course]
SAME = ("the same", "different")


def looked_up(random, positions):
    """Let one query look at a set and at its reordering; return both outputs."""
    source, query = random.normal(size=(5, 4)), random.normal(size=(1, 4))
    places = random.normal(size=(5, 4)) * positions
    rows = [source[order] + places for order in ([0, 1, 2, 3, 4], [3, 0, 4, 2, 1])]
    return [softmax_rows(query @ x.T) @ x**3 for x in rows]


def ask_orders(random):
    """Question 1."""
    yield number_case("orders", math.factorial(5), {"pairs of places": 10})


def ask_scrambled(random):
    """Question 2, tried."""
    right = "the same" if np.allclose(*looked_up(random, 0.0)) else "different"
    yield choice_case("scrambled", right, SAME, {"different": "order seen without positions"})


def ask_digits(random):
    """Question 3: sums of the same numbers in many orders."""
    numbers = random.normal(size=20).tolist()
    sums = {sum(random.permutation(numbers).tolist()) for _ in range(100)}
    options = ("exactly equal", "equal up to rounding")
    right = options[len(sums) > 1]
    yield choice_case("to_the_last_digit", right, options, {options[0]: "rounding forgotten"})


def ask_control(random):
    """Question 4, tried."""
    right = "the same" if np.allclose(*looked_up(random, 1.0)) else "different"
    yield choice_case("control", right, SAME)


def ask_two_facts(random):
    """Question 5: of the two ways to pair the keys with the values, one fits."""
    yield number_case("two_facts", 1 / 2, {"pairs seen in a set": 1.0}, 0.01)


def ask_bound(random):
    """Question 6: a query for each key, on sums of a key and a value."""
    keys, values = np.eye(8)[:4], np.eye(8)[4:]
    order = random.permutation(4)
    source = keys + values[order]
    output = softmax_rows(keys @ source.T * 50) @ source
    right = "always" if (output[:, 4:].argmax(axis=1) == order).all() else "by chance"
    yield choice_case("bound_facts", right, ("always", "by chance"), {"by chance": "unbound"})


def ask_fixed(random):
    """Question 7: a table of the facts, as weights, gives the value from the key alone."""
    yield choice_case("fixed_facts", "yes", ("yes", "no"), {"no": "learned by heart unnoticed"})


def ask_weights(random):
    """Question 8."""
    heads, queries, keys = 4, 2, 5
    mistakes = {"heads left out": queries * keys, "a map of the source": heads * keys * keys}
    yield number_case("weights", heads * queries * keys, mistakes)


def draw_picture(names):
    """Draw a cross-attention map."""
    from attnlab.draw.attention import draw_head

    shares = softmax_rows(np.random.default_rng(1).normal(size=(2, 5)) * 2)
    columns = [f"source {n + 1}" for n in range(5)]
    return draw_head(shares, tokens=(["target 1", "target 2"], columns))


EXERCISE = Exercise(
    "Say it first: looking things up",
    level=3,
    minutes=15,
    kind="predict",
    needs=("cross_attention", "scramble_test"),
    checks=(
        Check("orders", "counts the orders of five tokens", ask_orders),
        Check("scrambled", "says what a set does not show", ask_scrambled),
        Check("last digit", "says how exactly logits agree", ask_digits),
        Check("control", "says what positions change", ask_control),
        Check("two facts", "says what a set of single tokens can tell", ask_two_facts),
        Check("bound facts", "says what bound pairs can tell", ask_bound),
        Check("fixed facts", "says where fixed facts can be kept", ask_fixed),
        Check("weights", "counts the weights of a map", ask_weights),
    ),
    mistakes=(
        Mistake(
            "pairs of places",
            "orders = 120",
            "orders = 10",
            "That is the number of pairs that could be swapped. Orders are many more.",
        ),
        Mistake(
            "order seen without positions",
            'scrambled = "the same"',
            'scrambled = "different"',
            "Nothing in the encoder tells where a token stood: keys and values come from the "
            "tokens alone, and a weighted sum has no order.",
        ),
        Mistake(
            "rounding forgotten",
            '"equal up to rounding"',
            '"exactly equal"',
            "Floating-point sums depend a little on their order, in the last digits. A test with "
            "== fails by chance.",
        ),
        Mistake(
            "pairs seen in a set",
            "two_facts = 0.5",
            "two_facts = 1.0",
            "The set is the same whether ALICE goes with GREEN or with RED: what belongs together "
            "is not in it.",
        ),
        Mistake(
            "unbound",
            'bound_facts = "always"',
            'bound_facts = "by chance"',
            "A token now carries its key and its value together: it is found by the one and gives "
            "the other, wherever it stands.",
        ),
        Mistake(
            "learned by heart unnoticed",
            'fixed_facts = "yes"',
            'fixed_facts = "no"',
            "If a key always has the same value, the value can be kept in the weights. The "
            "accuracy on such data does not show that anything is looked up.",
        ),
        Mistake(
            "heads left out",
            "weights = 40",
            "weights = 10",
            "That is one head's map. There are four.",
        ),
        Mistake(
            "a map of the source",
            "weights = 40",
            "weights = 100",
            "That is a self-attention of the source. In cross-attention the target asks.",
        ),
    ),
    hints=(
        "Which of these questions is about order, and which about what belongs together?",
        "2 to 4: follow one token through key and value, and ask where its place would come in. "
        "5: write down both ways in which two keys can have two values, and look at the sets.",
        "7: what can a model that saw the same fact a thousand times do without reading it?",
    ),
    picture=draw_picture,
)
