"""Say it before you run it: heads written by hand."""

# %% [course]
import itertools
import math

import numpy as np

from attnlab_course.exercise import Check, Exercise
from attnlab_course.material.pictures import draw_lines
from attnlab_course.material.predictions import choice_case, number_case, wrong_answer

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
own_weight = 0.834
two_alike = 0.476
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

# %% [course]
NEAR = 0.005


def weights_of(tokens, Km, Qm, guarded=True):
    """Compute the weights on one-hot tokens."""
    x = np.eye(3)[tokens]
    scores = x @ Qm @ Km.T @ x.T / math.sqrt(Km.shape[1])
    with np.errstate(all="ignore"):
        grown = np.exp(scores - scores.max() if guarded else scores)
        return grown / grown.sum(axis=1, keepdims=True)


def own(random):
    """Scores of 4 / √3 for the own letter, 0 for the others."""
    weight = weights_of([0, 1, 2], 2 * np.eye(3), 2 * np.eye(3))[0, 0]
    mistakes = {}
    for mistake, score in (("no root", 4), ("gain once", 2 / math.sqrt(3))):
        mistakes[mistake] = math.exp(score) / (math.exp(score) + 2)
    yield number_case("own_weight", float(weight), mistakes, NEAR)


def alike(random):
    """Two equal keys share."""
    weight = weights_of([0, 0, 2], 2 * np.eye(3), 2 * np.eye(3))[0, 0]
    alone = weights_of([0, 1, 2], 2 * np.eye(3), 2 * np.eye(3))[0, 0]
    yield number_case("two_alike", float(weight), {"not shared": float(alone)}, NEAR)


def length(random):
    """The gap is the logarithm of the wrong keys over the tolerance: 11.0 after 8.5."""
    factor = math.log(59 * 999) / math.log(5 * 999)
    assert 1 < factor < 1.5
    options = ("ten times as large", "a little larger", "the same")
    mistakes = {"ten times as large": "length counts ten times"}
    yield choice_case("longer", "a little larger", options, mistakes)


def gauge(random):
    """Compare the weights before and after."""
    Km, Qm = random.normal(size=(2, 3, 3))
    R = random.normal(size=(3, 3)) + 3 * np.eye(3)
    before = weights_of([0, 1, 2], Km, Qm)
    assert np.allclose(before, weights_of([0, 1, 2], Km @ R, Qm @ np.linalg.inv(R).T))
    options = ("nothing", "the weights", "only the output")
    yield choice_case("new_numbers", "nothing", options)


def without_positions(random):
    """The outputs of A B and B A are the same, letter by letter, and must not be."""
    Km, Qm = random.normal(size=(2, 3, 3)) * 5
    for one, other in itertools.permutations(range(3), 2):
        here = weights_of([one, other], Km, Qm) @ np.eye(3)[[one, other]]
        there = weights_of([other, one], Km, Qm) @ np.eye(3)[[other, one]]
        assert np.allclose(here, there[::-1])
    right = "only inputs of one letter repeated"
    options = (right, "all inputs", "all but a few inputs")
    yield choice_case("blind", right, options, {"all inputs": "blind sees all"})


def silent(random):
    """Scores of zero."""
    weights = weights_of([0, 1, 2], random.normal(size=(3, 3)), np.zeros((3, 3)))
    assert np.allclose(weights, 1 / 3)
    options = ("zero", "its own value", "the mean of the values")
    yield choice_case("no_queries", options[-1], options)


def too_large(random):
    """exp(924) is more than float64 holds."""
    weights = weights_of([0, 1, 2], 40 * np.eye(3), 40 * np.eye(3), guarded=False)
    assert np.isnan(np.diag(weights)).all()
    mistakes = {"the identity": "overflow unnoticed"}
    yield choice_case("overflow", "nan", ("the identity", "zeros", "nan"), mistakes)


def doubled(random):
    """Values take no part in the scores."""
    options = ("the weights sharpen", "only the output doubles", "both")
    mistakes = {"the weights sharpen": "values sharpen"}
    yield choice_case("double", "only the output doubles", options, mistakes)


def reordered(random):
    """Outputs move with their tokens."""
    Km, Qm = random.normal(size=(2, 3, 3))
    tokens, turn = np.array([0, 1, 2]), [2, 0, 1]
    outputs = weights_of(tokens, Km, Qm) @ np.eye(3)[tokens]
    moved = weights_of(tokens[turn], Km, Qm) @ np.eye(3)[tokens[turn]]
    assert np.allclose(outputs[turn], moved)
    right = "are put into the same order"
    yield choice_case("order", right, (right, "stay where they are", "all change"))


def widened(random):
    """The root grows, the products do not."""
    narrow, wide = 2 * np.eye(3), 2 * np.eye(3, 12)
    flat, sharp = (weights_of([0, 1, 2], keys, keys)[0, 0] for keys in (wide, narrow))
    assert flat < sharp
    mistakes = {"the same": "zeros do nothing"}
    yield choice_case("wider", "flatter", ("sharper", "flatter", "the same"), mistakes)


def draw_picture(names):
    """Draw the weight of one right key among three over its gap."""
    gaps = np.linspace(0, 10, 81)
    weight = np.exp(gaps) / (np.exp(gaps) + 2)
    axes = ("score above the others", "attention weight")
    return draw_lines("One right key among three", axes, gaps, {"right key": weight})


EXERCISE = Exercise(
    "Before you run it: heads by hand",
    level=2,
    minutes=20,
    kind="predict",
    needs=("identity", "copy_first"),
    checks=(
        Check("own weight", "knows the weight of a token on itself", own),
        Check("two alike", "knows the weight where a letter stands twice", alike, graded=True),
        Check("longer", "knows how the gain grows with the length", length),
        Check("new numbers", "knows what a change of Km and Qm changes", gauge),
        Check(
            "blind", "knows what cannot be done without positions", without_positions, graded=True
        ),
        Check("no queries", "knows what queries of zero give", silent),
        Check("overflow", "knows what an unguarded softmax gives", too_large, graded=True),
        Check("double", "knows what Vm has an effect on", doubled),
        Check("order", "knows what another order of tokens does", reordered, graded=True),
        Check("wider", "knows what empty channels do", widened, graded=True),
    ),
    mistakes=(
        wrong_answer(
            "no root",
            "own_weight = 0.834",
            "0.965",
            "In `own_weight` the score was not divided by √3: it is 4 / 1.73.",
        ),
        wrong_answer(
            "gain once",
            "own_weight = 0.834",
            "0.613",
            "In `own_weight` the factor 2 counts twice, once in the key and once in the query.",
        ),
        wrong_answer(
            "not shared",
            "two_alike = 0.476",
            "0.834",
            "In `two_alike` a second A asks for its share: equal keys get equal weight.",
        ),
        wrong_answer(
            "length counts ten times",
            'longer = "a little larger"',
            '"ten times as large"',
            "In `longer`: weights fall with the exponential of the gap, so ten times as many "
            "keys cost only the logarithm of 10 more.",
        ),
        wrong_answer(
            "blind sees all",
            'blind = "only inputs of one letter repeated"',
            '"all inputs"',
            "In `blind`: without positions A B and B A have the same outputs for the same "
            "letters, whatever Km and Qm are; yet they ask for different ones.",
        ),
        wrong_answer(
            "overflow unnoticed",
            'overflow = "nan"',
            '"the identity"',
            "In `overflow`: the score is 1600 / √3 ≈ 924, and float64 ends near exp(709). "
            "Infinity divided by infinity is not a number.",
        ),
        wrong_answer(
            "values sharpen",
            'double = "only the output doubles"',
            '"the weights sharpen"',
            "In `double`: values take no part in the scores; larger queries or keys sharpen.",
        ),
        wrong_answer(
            "zeros do nothing",
            'wider = "flatter"',
            '"the same"',
            "In `wider`: the products stay as they are, but √qk_dim grows from √3 to √12.",
        ),
    ),
    hints=(
        "For each question: is it about scores, about weights, or about values?",
        "Write out the scores of A B C for the first question before you reach for softmax; then "
        "the second needs one number changed.",
        "With m right keys at a score g and w wrong ones at 0, a right key weighs "
        "e^g / (m e^g + w). Most of the number questions are this line.",
        "For questions of order, take A B and B A and compare what each of the two letters sees.",
    ),
    picture=draw_picture,
)
