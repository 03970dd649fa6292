"""Say it before you run it: heads written by hand."""

# %% [course]
import numpy as np

from attnlab_course.material.pictures import draw_lines
from attnlab_course.material.predictions import Prediction, prediction

# %% [markdown]
# # Before you run it: heads by hand
#
# Say first what will happen, then try it: what surprises you is what you learn. All heads here are
# single heads on the one-hot tokens A, B, C, with `output = softmax(Q Kᵀ / √qk_dim) V`. Unless
# said otherwise Km and Qm are 3 × 3 and there are no positions. The picture shows what the weight
# of one right key among three becomes as its score rises above the others.
#
# ![weight](predict_handmade.svg)
#
# **Write** your answers into the variables. Texts must be one of those in quotes; numbers count as
# right within 0.005 of the true value. Paper, pencil and a calculator for `exp` are fair.
#
# 1. `own_weight`: Km = Qm = 2 I. On the input A B C, which weight does A put on itself?
# 2. `two_alike`: the same head on A A C. Which weight does the first A put on itself?
# 3. `longer`: a design of `identity` that is just good enough for 6 letters is to serve 60. Its
#    gain must become "a little larger", "ten times as large" or can stay "the same".
# 4. `new_numbers`: Km becomes Km R and Qm becomes Qm R⁻ᵀ, R any invertible matrix. What changes:
#    "nothing", "the weights" or "only the output"?
# 5. `blind`: copy_first without positions, with Km and Qm of your choice. Can it be right on
#    "all inputs", "only inputs of one letter repeated" or "all but a few inputs"?
# 6. `no_queries`: Qm = 0. Each output is "the mean of the values", "zero" or "its own value".
# 7. `overflow`: Km = Qm = 40 I, and a softmax that computes exp(score) / sum exp(score) in float64
#    without taking off the maximum. On A B C it gives "nan", "the identity" or "zeros".
# 8. `double`: Vm is doubled. "the weights sharpen", "only the output doubles" or "both".
# 9. `order`: no positions. The tokens of the input are put into another order. The outputs
#    "are put into the same order", "stay where they are" or "all change".
# 10. `wider`: Km and Qm get 9 more channels, all zero: 3 × 12. The attention becomes "flatter",
#    "sharper" or stays "the same".

# %%
# >>> solution
own_weight = 0.8343
two_alike = 0.4763
longer = "a little larger"
new_numbers = "nothing"
blind = "only inputs of one letter repeated"
no_queries = "the mean of the values"
overflow = "nan"
double = "only the output doubles"
order = "are put into the same order"
wider = "flatter"
# --- starter
# own_weight = None
# two_alike = None
# longer = None
# new_numbers = None
# blind = None
# no_queries = None
# overflow = None
# double = None
# order = None
# wider = None
# <<< solution

# %% [hints]
# 1. For each question: is it about scores, about weights, or about values?
# 2. Write out the scores of A B C for the first question before you reach for softmax; then the
#    second needs one number changed.
# 3. With m right keys at a score g and w wrong ones at 0, a right key weighs e^g / (m e^g + w).
#    Most of the number questions are this line.
# 4. For questions of order, take A B and B A and compare what each of the two letters sees.

# %% [course]
NEAR = 0.005
LONGER = ("ten times as large", "a little larger", "the same")
NUMBERS = ("nothing", "the weights", "only the output")
BLIND = ("all inputs", "only inputs of one letter repeated", "all but a few inputs")
QUERIES = ("zero", "its own value", "the mean of the values")
DOUBLE = ("the weights sharpen", "only the output doubles", "both")
ORDER = ("are put into the same order", "stay where they are", "all change")

QUESTIONS = (
    Prediction("own_weight", own_weight, "knows the weight of a token on itself", near=NEAR),
    Prediction("two_alike", two_alike, "knows the weight where a letter stands twice", near=NEAR),
    Prediction("longer", longer, "knows how the gain grows with the length", LONGER),
    Prediction("new_numbers", new_numbers, "knows what a change of Km and Qm changes", NUMBERS),
    Prediction("blind", blind, "knows what cannot be done without positions", BLIND),
    Prediction("no_queries", no_queries, "knows what queries of zero give", QUERIES),
    Prediction(
        "overflow",
        overflow,
        "knows what an unguarded softmax gives",
        ("the identity", "zeros", "nan"),
    ),
    Prediction("double", double, "knows what Vm has an effect on", DOUBLE),
    Prediction("order", order, "knows what another order of tokens does", ORDER),
    Prediction("wider", wider, "knows what empty channels do", ("sharper", "flatter", "the same")),
)

WRONG = {
    ("own_weight", 0.9647): "In `own_weight` the score was not divided by √3: it is 4 / 1.73.",
    (
        "own_weight",
        0.6134,
    ): "In `own_weight` the factor 2 counts twice, once in the key and once in the query.",
    ("two_alike", 0.8343): "In `two_alike` a second A asks for its share: equal keys get equal "
    "weight.",
    ("longer", "ten times as large"): "In `longer`: weights fall with the exponential of the gap, "
    "so ten times as many keys cost only the logarithm of 10 more.",
    ("blind", "all inputs"): "In `blind`: without positions A B and B A have the same outputs for "
    "the same letters, whatever Km and Qm are; yet they ask for different ones.",
    ("overflow", "the identity"): "In `overflow`: the score is 1600 / √3 ≈ 924, and float64 ends "
    "near exp(709). Infinity divided by infinity is not a number.",
    ("double", "the weights sharpen"): "In `double`: values take no part in the scores; larger "
    "queries or keys sharpen.",
    (
        "wider",
        "the same",
    ): "In `wider`: the products stay as they are, but √qk_dim grows from √3 to √12.",
}


def draw_picture(names):
    """Draw the weight of one right key among three over its gap."""
    gaps = np.linspace(0, 10, 81)
    weight = np.exp(gaps) / (np.exp(gaps) + 2)
    axes = ("score above the others", "attention weight")
    return draw_lines("One right key among three", axes, gaps, {"right key": weight})


EXERCISE = prediction(
    "Before you run it: heads by hand",
    QUESTIONS,
    WRONG,
    level=2,
    minutes=20,
    needs=("identity", "copy_first"),
    picture=draw_picture,
)
