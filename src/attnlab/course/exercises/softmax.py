"""A softmax over any axis that stays finite."""

# %% [course]
import numpy as np
import torch as T

from attnlab.course.exercise import Case, Check, Exercise, Mistake
from attnlab.course.material.attention_mistakes import plus_one_mistake
from attnlab.course.material.numpy_parts import numeric_gradients

# %% [markdown]
# # Softmax
#
# Attention needs shares: numbers from 0 to 1 that sum to 1. The softmax makes them from any
# scores: the exponential of each, divided by the sum of all. The picture shows the shares of four
# scores while their distances grow: the largest takes more and more.
#
# ![shares](softmax.svg)
#
# **Write** `softmax(x, dim=-1)`.
#
# | | shape |
# | --- | --- |
# | `x` | any, at least one axis; a tensor of floating-point numbers |
# | `dim` | the axis along which the answer sums to 1; negative ones count from the end |
# | answer | the shape of `x` |
#
# * Scores of any size give finite shares: −5000 and +5000 alike, and side by side in one tensor.
# * A score of −∞ gets the share 0, exactly. However low the other scores are, they get the rest.
# * Where all scores along `dim` are −∞ the shares are 0, never NaN. (This is how a query behaves
#   that may attend to nothing.)
# * Gradients flow through it.
# * The answer has the dtype of `x`, and `x` stays as it is.
#
# Do not call PyTorch's own softmax or logsumexp.

# %%
import math

import torch


def softmax(x, dim=-1):
    """Return positive shares that sum to 1 along an axis."""
    # >>> solution
    top = x.amax(dim=dim, keepdim=True)
    top = top.masked_fill(top == -math.inf, 0.0)
    grown = torch.exp(x - top)
    total = grown.sum(dim=dim, keepdim=True)
    return grown / total.masked_fill(total == 0, 1.0)
    # <<< solution


# %% [course]
def oracle(x, dim=-1):
    """Compute the shares slice by slice, in Python's own numbers."""
    shares = np.zeros_like(x)
    rows, places = np.moveaxis(x, dim, -1), np.moveaxis(shares, dim, -1)
    for place in np.ndindex(rows.shape[:-1]):
        row = list(map(float, rows[place]))
        if max(row) > -np.inf:
            grown = [np.exp(each - max(row)) for each in row]
            places[place] = [each / sum(grown) for each in grown]
    return shares


def case(x, dim=None, dtype="float32", **more):
    """Compute what the softmax gives; the numbers are rounded to the dtype first."""
    x = x.astype(dtype)
    given = {} if dim is None else {"dim": dim}
    expected = T.from_numpy(oracle(x.astype(float), **given).astype(dtype))
    more = {"expected": expected, "tolerance": 1e-5, **more}
    return Case("softmax", (T.from_numpy(x),), given, **more)


def values(random):
    """Along the last axis."""
    for shape in ((1,), (3,), (2, 5)):
        yield case(random.normal(size=shape))


def axes(random):
    """Along other axes, negative ones too."""
    yield case(random.normal(size=(2, 3)), 0)
    yield case(random.normal(size=(2, 3, 5)), 1)
    yield case(random.normal(size=(3, 5, 2)), -3)


def large(random):
    """Scores whose exponentials are too large or too small, also side by side."""
    near = random.normal(size=(3, 4))
    more = {"tolerance": 1e-3}
    yield case(near[0] + 3000, words="with scores of about 3000", **more)
    yield case(near[0] - 3000, words="with scores of about −3000", **more)
    levels = np.array([[-4000.0], [0.0], [5000.0]])
    yield case(near + levels, words="with rows at different levels", **more)
    for low in (-100.0, -5000.0):
        wide = random.permutation(np.array([low, 1.0, 2.0]))
        yield case(wide, words="with scores far apart", **more)


def minus_infinity(random):
    """Some scores are minus infinity."""
    x = random.normal(size=(2, 4))
    x[0, 1] = x[1, 3] = -np.inf
    yield case(x[:1])
    yield case(x - 30000, words="with all other scores at about −30000", tolerance=1e-2)


def dead(random):
    """All scores of a row are minus infinity."""
    x = random.normal(size=(3, 4))
    x[1] = -np.inf
    yield case(x, words="where the second row is −∞ only")


def gradients(random):
    """What flows back."""
    x = random.normal(size=(2, 3)).astype("float32")
    expected = [T.from_numpy(each.astype("float32")) for each in numeric_gradients(oracle, [x])]
    yield case(x, expected=expected, answer="gradients", words="(its gradients)", tolerance=1e-4)


def dtypes(random):
    """Numbers of float64."""
    yield case(random.normal(size=(2, 3)), dtype="float64", words="with float64")


def inputs_kept(random):
    """The input after the call."""
    made = case(random.normal(size=(2, 3)))
    words = "(its input, after the call)"
    yield Case("softmax", made.args, expected=list(made.args), answer="inputs", words=words)


def draw_picture(names):
    """Draw the shares of four scores while their distances grow."""
    from attnlab.draw.pictures.charts import lines_figure
    from attnlab.draw.sections import Lines, Series

    factors = np.linspace(0, 5, 51)
    scores = T.from_numpy(factors)[:, None] * T.tensor([0.0, 0.5, 0.8, 1.0])
    shares = names["softmax"](scores).numpy()
    labels = ("score 0", "score 0.5", "score 0.8", "score 1")
    series = [
        Series(name=name, x=factors, y=shares[:, n], style="line") for n, name in enumerate(labels)
    ]
    section = Lines(
        title="Shares of four scores",
        caption="The largest takes more and more.",
        x_label="all scores multiplied by",
        y_label="share",
        series=series,
        from_zero=True,
    )
    return lines_figure(section)


_TOP = "x.amax(dim=dim, keepdim=True)"
_GUARD = "total.masked_fill(total == 0, 1.0)"
_TOTAL = "grown.sum(dim=dim, keepdim=True)"
_BODY = f"""    top = {_TOP}
    top = top.masked_fill(top == -math.inf, 0.0)
    grown = torch.exp(x - top)
    total = {_TOTAL}
"""
_WHOLE = f"{_BODY}    return grown / {_GUARD}\n"
_LOWEST = "top.masked_fill(top == -math.inf, 0.0)"

EXERCISE = Exercise(
    "Softmax",
    level=1,
    minutes=15,
    checks=(
        Check("values", "gives the right shares", values, points=2),
        Check("axis", "sums to 1 along the axis that is asked for", axes),
        Check("large scores", "stays finite with large scores", large),
        Check("minus infinity", "gives a score of −∞ no share", minus_infinity),
        Check("nothing left", "gives 0 where all scores are −∞", dead, graded=True),
        Check("gradients", "lets gradients through", gradients, graded=True),
        Check("dtype", "keeps the dtype of its input", dtypes, graded=True),
        Check("input", "leaves its input as it is", inputs_kept, graded=True),
    ),
    mistakes=(
        plus_one_mistake(
            _TOTAL,
            f"({_TOTAL} + 1.0)",
            (
                _BODY,
                "    grown = torch.exp(x)\n    total = grown.sum(dim=dim, keepdim=True) + 1.0\n",
            ),
        ),
        Mistake(
            "always axis 1",
            f"    top = {_TOP}\n",
            f"    dim = min(1, x.dim() - 1)\n    top = {_TOP}\n",
            "The softmax always runs over axis 1, whatever `dim` is.",
            also=(f"    dim = 1\n    top = {_TOP}\n",),
        ),
        Mistake(
            "always axis 0",
            f"    top = {_TOP}\n",
            f"    dim = 0\n    top = {_TOP}\n",
            "The softmax always runs over axis 0, whatever `dim` is.",
        ),
        Mistake(
            "nothing subtracted",
            _TOP,
            "torch.zeros(1)",
            "The exponentials are taken of the scores as they come. Of large scores they are too "
            "large for a number, or all 0.",
            also=((_WHOLE, "    return torch.exp(x) / torch.exp(x).sum(dim=dim, keepdim=True)\n"),),
        ),
        Mistake(
            "one largest for all",
            _TOP,
            "x.max()",
            "The largest score of the whole tensor is subtracted everywhere. In a row that lies "
            "far below it all exponentials are 0: each row needs its own.",
            also=(
                (
                    _WHOLE,
                    "    grown = torch.exp(x - x.max())\n"
                    "    return grown / grown.sum(dim=dim, keepdim=True)\n",
                ),
            ),
        ),
        Mistake(
            "least subtracted",
            _TOP,
            "x.amin(dim=dim, keepdim=True)",
            "The least score is subtracted, so the largest exponential can still overflow.",
        ),
        Mistake(
            "largest size subtracted",
            _TOP,
            "x.abs().amax(dim=dim, keepdim=True)",
            "The largest absolute value is subtracted; where scores are negative that is not the "
            "largest score.",
        ),
        Mistake(
            "mean subtracted",
            _TOP,
            "x.mean(dim=dim, keepdim=True)",
            "The mean is subtracted. Scores far above it still overflow, and with a score of −∞ "
            "the mean is −∞.",
        ),
        Mistake(
            "always the last axis",
            _TOTAL,
            "grown.sum(dim=-1, keepdim=True)",
            "The sum runs over the last axis whatever `dim` says.",
            also=((f"    top = {_TOP}\n", f"    dim = -1\n    top = {_TOP}\n"),),
        ),
        Mistake(
            "one sum for all",
            _TOTAL,
            "grown.sum()",
            "All shares of the tensor sum to 1 together; those along `dim` should.",
        ),
        Mistake(
            "axis lost",
            _TOTAL,
            "grown.sum(dim=dim)",
            "The sum has lost its axis, so it does not meet the scores it belongs to.",
        ),
        Mistake(
            "wrong base",
            "torch.exp(x - top)",
            "torch.exp2(x - top)",
            "The powers are those of 2; the softmax takes powers of e.",
        ),
        Mistake(
            "sign turned",
            "torch.exp(x - top)",
            "torch.exp(top - x)",
            "The largest score gets the least share: the sign in the exponential is turned.",
        ),
        Mistake(
            "length in place of the sum",
            _TOTAL,
            "grown.norm(dim=dim, keepdim=True)",
            "The exponentials are divided by their Euclidean length; then their squares sum to 1.",
        ),
        Mistake(
            "NaN where nothing is left",
            _LOWEST,
            "top",
            "Where all scores are −∞ the answer is NaN: −∞ minus −∞ is no number.",
        ),
        Mistake(
            "even where nothing is left",
            _LOWEST + "\n",
            "top.masked_fill(top == -math.inf, 0.0)\n"
            "    x = x.masked_fill((x == -math.inf).all(dim=dim, keepdim=True), 0.0)\n",
            "Where all scores are −∞ the shares are even; they should be 0.",
        ),
        Mistake(
            "−∞ clamped",
            _LOWEST + "\n",
            "top.clamp(min=-1e4)\n    x = x.clamp(min=-1e4)\n",
            "Scores of −∞ are raised to some large negative number. Where the other scores are "
            "lower still, they take the share.",
        ),
        Mistake(
            "input changed",
            "torch.exp(x - top)",
            "torch.exp(x.sub_(top))",
            "The input is changed in place: the caller's tensor is another one after the call.",
        ),
        Mistake(
            "always float32",
            f"grown / {_GUARD}",
            f"(grown / {_GUARD}).float()",
            "The answer is float32 whatever comes in; it should keep the dtype of the input.",
        ),
        Mistake(
            "gradient lost",
            "torch.exp(x - top)",
            "torch.exp((x - top).detach())",
            "No gradient flows back to the scores: they are cut off on the way.",
        ),
    ),
    hints=(
        "The exponential of 3000 is no number any more. What can be taken off all scores without "
        "changing their shares?",
        "Multiplying all exponentials by one factor changes no share, and subtracting from all "
        "scores is such a factor. Which number makes the largest exponential 1?",
        "Largest along `dim`, exponential of the difference, sum along `dim`, quotient. Keep the "
        "axis (keepdim) each time, so that shapes (…, n, …) and (…, 1, …) meet.",
        "Two guards for −∞: where the largest score is −∞ subtract 0 in its place, and where the "
        "sum is 0 divide by 1.",
    ),
    banned=("softmax", "log_softmax", "Softmax", "LogSoftmax", "softmin", "Softmin", "logsumexp"),
    picture=draw_picture,
)
