"""Say it before you run it: heads written by hand."""

# %% [course]
from attnlab.course.exercise import Check, Exercise, Mistake
from attnlab.course.material.predictions import choice_case, number_case

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
import itertools
import math

import numpy as np

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
    power = math.exp(4), math.exp(2 / math.sqrt(3))
    no_root, once = (each / (each + 2) for each in power)
    wrong = {"no root": no_root, "gain once": once, "even": 1 / 3, "certain": 1.0}
    yield number_case("own_weight", float(weight), wrong, NEAR)


def alike(random):
    """Two equal keys share."""
    weight = weights_of([0, 0, 2], 2 * np.eye(3), 2 * np.eye(3))[0, 0]
    alone = weights_of([0, 1, 2], 2 * np.eye(3), 2 * np.eye(3))[0, 0]
    wrong = {"not shared": float(alone), "halved": float(alone / 2), "half": 0.5}
    yield number_case("two_alike", float(weight), wrong, NEAR)


def length(random):
    """The gap is the logarithm of the wrong keys over the tolerance: 11.0 after 8.5."""
    factor = math.log(59 * 999) / math.log(5 * 999)
    assert 1 < factor < 1.5
    wrong = {
        "ten times as large": "length counts ten times",
        "the same": "length does not count",
    }
    yield choice_case("longer", "a little larger", wrong)


def gauge(random):
    """Compare the weights before and after."""
    Km, Qm = random.normal(size=(2, 3, 3))
    R = random.normal(size=(3, 3)) + 3 * np.eye(3)
    before = weights_of([0, 1, 2], Km, Qm)
    assert np.allclose(before, weights_of([0, 1, 2], Km @ R, Qm @ np.linalg.inv(R).T))
    wrong = {
        "the weights": "gauge seen in the weights",
        "only the output": "gauge seen in the output",
    }
    yield choice_case("new_numbers", "nothing", wrong)


def without_positions(random):
    """The outputs of A B and B A are the same, letter by letter, and must not be."""
    Km, Qm = random.normal(size=(2, 3, 3)) * 5
    for one, other in itertools.permutations(range(3), 2):
        here = weights_of([one, other], Km, Qm) @ np.eye(3)[[one, other]]
        there = weights_of([other, one], Km, Qm) @ np.eye(3)[[other, one]]
        assert np.allclose(here, there[::-1])
    wrong = {"all inputs": "blind sees all", "all but a few inputs": "blind sees most"}
    yield choice_case("blind", "only inputs of one letter repeated", wrong)


def silent(random):
    """Scores of zero."""
    weights = weights_of([0, 1, 2], random.normal(size=(3, 3)), np.zeros((3, 3)))
    assert np.allclose(weights, 1 / 3)
    wrong = {"zero": "no queries, no output", "its own value": "no queries, itself"}
    yield choice_case("no_queries", "the mean of the values", wrong)


def too_large(random):
    """exp(924) is more than float64 holds."""
    weights = weights_of([0, 1, 2], 40 * np.eye(3), 40 * np.eye(3), guarded=False)
    assert np.isnan(np.diag(weights)).all()
    wrong = {"the identity": "overflow unnoticed", "zeros": "overflow to zero"}
    yield choice_case("overflow", "nan", wrong)


def doubled(random):
    """Values take no part in the scores."""
    wrong = {"the weights sharpen": "values sharpen", "both": "values do both"}
    yield choice_case("double", "only the output doubles", wrong)


def reordered(random):
    """Outputs move with their tokens."""
    Km, Qm = random.normal(size=(2, 3, 3))
    tokens, turn = np.array([0, 1, 2]), [2, 0, 1]
    outputs = weights_of(tokens, Km, Qm) @ np.eye(3)[tokens]
    moved = weights_of(tokens[turn], Km, Qm) @ np.eye(3)[tokens[turn]]
    assert np.allclose(outputs[turn], moved)
    wrong = {"stay where they are": "order unseen", "all change": "order changes all"}
    yield choice_case("order", "are put into the same order", wrong)


def widened(random):
    """The root grows, the products do not."""
    narrow, wide = 2 * np.eye(3), 2 * np.eye(3, 12)
    flat, sharp = (weights_of([0, 1, 2], each, each)[0, 0] for each in (wide, narrow))
    assert flat < sharp
    wrong = {"sharper": "zeros sharpen", "the same": "zeros do nothing"}
    yield choice_case("wider", "flatter", wrong)


def draw_picture(names):
    """Draw the weight of one right key among three over its gap."""
    from matplotlib.figure import Figure

    gaps = np.linspace(0, 10, 81)
    figure = Figure(figsize=(4.8, 2.8), layout="constrained")
    axes = figure.add_subplot(xlabel="score above the others", ylabel="attention weight")
    axes.plot(gaps, np.exp(gaps) / (np.exp(gaps) + 2))
    axes.set(ylim=(0, 1.03), title="One right key among three")
    return figure


def wrong(name, variable, right, answer, says):
    """Return the mistake of giving one answer."""
    return Mistake(name, f"{variable} = {right}", f"{variable} = {answer}", says)


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
        wrong(
            "no root",
            "own_weight",
            "0.834",
            "0.965",
            "In `own_weight` the score was not divided by √3: it is 4 / 1.73.",
        ),
        wrong(
            "gain once",
            "own_weight",
            "0.834",
            "0.613",
            "In `own_weight` the factor 2 counts twice, once in the key and once in the query.",
        ),
        wrong(
            "even",
            "own_weight",
            "0.834",
            "1 / 3",
            "In `own_weight` all three keys would have to score alike; A scores higher with A.",
        ),
        wrong(
            "certain",
            "own_weight",
            "0.834",
            "1.0",
            "In `own_weight`: softmax never gives all of the weight to one key while the others "
            "have finite scores.",
        ),
        wrong(
            "not shared",
            "two_alike",
            "0.476",
            "0.834",
            "In `two_alike` a second A asks for its share: equal keys get equal weight.",
        ),
        wrong(
            "halved",
            "two_alike",
            "0.476",
            "0.417",
            "In `two_alike` you halved the weight of a single A. But with two right keys and one "
            "wrong one, the wrong one gets less, too.",
        ),
        wrong(
            "half",
            "two_alike",
            "0.476",
            "0.5",
            "In `two_alike` C still gets its share, small as it is.",
        ),
        wrong(
            "length counts ten times",
            "longer",
            '"a little larger"',
            '"ten times as large"',
            "In `longer`: weights fall with the exponential of the gap, so ten times as many "
            "keys cost only the logarithm of 10 more.",
        ),
        wrong(
            "length does not count",
            "longer",
            '"a little larger"',
            '"the same"',
            "In `longer`: every further wrong key takes its share, so the right one must stand "
            "out a little more.",
        ),
        wrong(
            "gauge seen in the weights",
            "new_numbers",
            '"nothing"',
            '"the weights"',
            "In `new_numbers`: the scores hold only Qm Kmᵀ, in which R and its inverse cancel.",
        ),
        wrong(
            "gauge seen in the output",
            "new_numbers",
            '"nothing"',
            '"only the output"',
            "In `new_numbers`: the output is made of the weights and Vm, and neither changes.",
        ),
        wrong(
            "blind sees all",
            "blind",
            '"only inputs of one letter repeated"',
            '"all inputs"',
            "In `blind`: without positions A B and B A have the same outputs for the same "
            "letters, whatever Km and Qm are; yet they ask for different ones.",
        ),
        wrong(
            "blind sees most",
            "blind",
            '"only inputs of one letter repeated"',
            '"all but a few inputs"',
            "In `blind`: every input with two different letters can be put into another order "
            "that asks for something else; a head without positions cannot serve both.",
        ),
        wrong(
            "no queries, no output",
            "no_queries",
            '"the mean of the values"',
            '"zero"',
            "In `no_queries`: scores of 0 are equal scores, and weights still sum to 1.",
        ),
        wrong(
            "no queries, itself",
            "no_queries",
            '"the mean of the values"',
            '"its own value"',
            "In `no_queries`: nothing prefers the own token; without queries keys are alike.",
        ),
        wrong(
            "overflow unnoticed",
            "overflow",
            '"nan"',
            '"the identity"',
            "In `overflow`: the score is 1600 / √3 ≈ 924, and float64 ends near exp(709). "
            "Infinity divided by infinity is not a number.",
        ),
        wrong(
            "overflow to zero",
            "overflow",
            '"nan"',
            '"zeros"',
            "In `overflow`: the wrong keys become 0 (1 / infinity), but the right one is "
            "infinity divided by infinity.",
        ),
        wrong(
            "values sharpen",
            "double",
            '"only the output doubles"',
            '"the weights sharpen"',
            "In `double`: values take no part in the scores; larger queries or keys sharpen.",
        ),
        wrong(
            "values do both",
            "double",
            '"only the output doubles"',
            '"both"',
            "In `double`: the output doubles, but values take no part in the scores.",
        ),
        wrong(
            "order unseen",
            "order",
            '"are put into the same order"',
            '"stay where they are"',
            "In `order`: the output of a token does not change, and it stands where its token "
            "stands. So it moves along.",
        ),
        wrong(
            "order changes all",
            "order",
            '"are put into the same order"',
            '"all change"',
            "In `order`: without positions a token's output depends on which tokens there are, "
            "not on where they stand.",
        ),
        wrong(
            "zeros sharpen",
            "wider",
            '"flatter"',
            '"sharper"',
            "In `wider`: the products stay as they are and are divided by a larger root.",
        ),
        wrong(
            "zeros do nothing",
            "wider",
            '"flatter"',
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
