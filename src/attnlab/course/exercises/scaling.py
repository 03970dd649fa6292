"""What the division by the root of the width is for, measured."""

# %% [course]
import numpy as np
import torch as T

from attnlab.course.exercise import Case, Check, Exercise, Mistake
from attnlab.course.material.attention_mistakes import root_mistakes

# %% [markdown]
# # Why divide by √width?
#
# A score is a sum of as many products as queries and keys are wide. The wider they are, the larger
# the scores, until the softmax gives one key everything: then hardly any gradient flows. Here you
# measure it, with and without the division. The picture shows what comes out over four widths,
# each the mean over many draws.
#
# ![largest weight and width](scaling.svg)
#
# **Write** three functions. The draws are given, so your numbers can be compared.
#
# | | takes | gives |
# | --- | --- | --- |
# | `entropy(weights)` | (…, keys) | the entropy of each row, (…), in nats: −Σ w ln w |
# | `measure(query, key)` | (draws, queries, width), (draws, keys, width) | four numbers |
# | `scaling(draws)` | a list of pairs (query, key) of several widths | five lists |
#
# `measure` makes attention weights twice, takes means over all draws and all queries, and returns
# a dictionary:
#
# * `"largest"`: the mean of the largest weight of each row, scores divided by √width;
# * `"entropy"`: the mean of the entropy of each row, scores divided by √width;
# * `"largest unscaled"` and `"entropy unscaled"`: the same, scores not divided.
#
# `scaling` returns a dictionary as well: `"width"` and the four names of `measure`, each with the
# list of its values, in the order of the pairs.
#
# A weight of 0 adds nothing to an entropy, as w ln w goes to 0 with w; it must give no NaN. Use
# natural logarithms and add nothing inside them. The inputs stay as they are.

# %%
import math

import torch


def make_draws(widths, draws=100, tokens=10, seed=0):
    """Draw normal queries and keys of several widths, to try your functions with."""
    source = torch.Generator().manual_seed(seed)
    shapes = [(draws, tokens, width) for width in widths]
    return [
        (torch.randn(shape, generator=source), torch.randn(shape, generator=source))
        for shape in shapes
    ]


# %%
def entropy(weights):
    """Return the entropy of each row of weights, in nats."""
    # >>> solution
    return -torch.xlogy(weights, weights).sum(dim=-1)
    # <<< solution


def measure(query, key):
    """Return the mean largest weight and the mean entropy, with and without scaling."""
    # >>> solution
    scores = query @ key.transpose(-2, -1)
    scaled = torch.softmax(scores / math.sqrt(query.shape[-1]), dim=-1)
    unscaled = torch.softmax(scores, dim=-1)
    return {
        "largest": float(scaled.amax(dim=-1).mean()),
        "entropy": float(entropy(scaled).mean()),
        "largest unscaled": float(unscaled.amax(dim=-1).mean()),
        "entropy unscaled": float(entropy(unscaled).mean()),
    }
    # <<< solution


def scaling(draws):
    """Return the measures of several widths, each as a list."""
    # >>> solution
    found = {"width": []}
    for query, key in draws:
        found["width"].append(query.shape[-1])
        for name, number in measure(query, key).items():
            found.setdefault(name, []).append(number)
    return found
    # <<< solution


# %% [course]
def rows_of(query, key, scale):
    """Give the weights of every query of every draw, one at a time."""
    for queries, keys in zip(query, key, strict=True):
        for each in queries:
            scores = np.array([each @ other for other in keys]) / scale
            grown = np.exp(scores - scores.max())
            yield grown / grown.sum()


def row_entropy(row):
    """Sum over the weights that are not 0."""
    return -sum(float(w) * np.log(w) for w in row if w > 0)


def oracle(query, key):
    """Measure in plain loops."""
    found = {}
    for ending, scale in (("", query.shape[-1] ** 0.5), (" unscaled", 1.0)):
        rows = list(rows_of(query, key, scale))
        found["largest" + ending] = float(np.mean([row.max() for row in rows]))
        found["entropy" + ending] = float(np.mean(list(map(row_entropy, rows))))
    return found


def draw(random, draws, queries, keys, width):
    """Draw normal queries and keys."""
    return random.normal(size=(draws, queries, width)), random.normal(size=(draws, keys, width))


def tensors(arrays):
    """Turn arrays into tensors."""
    return tuple(map(T.from_numpy, arrays))


def entropies(random):
    """Weights of some shapes."""
    for shape in ((3,), (2, 4), (3, 2, 5)):
        weights = random.dirichlet(np.ones(shape[-1]), size=shape[:-1])
        expected = np.apply_along_axis(row_entropy, -1, weights)
        yield Case("entropy", (T.from_numpy(weights),), expected=T.from_numpy(np.array(expected)))


def zeros(random):
    """Weights of which some are exactly 0."""
    row = np.array([0.0, *random.dirichlet(np.ones(3))])
    expected = T.tensor([row_entropy(row), 0.0], dtype=T.float64)
    weights = T.from_numpy(np.stack([row, [1.0, 0, 0, 0]]))
    yield Case("entropy", (weights,), expected=expected, words="of weights that hold a 0")


def measures(random):
    """One width, and means over draws and queries."""
    for sizes in ((1, 1, 2, 3), (1, 3, 4, 5), (3, 2, 5, 7)):
        arrays = draw(random, *sizes)
        yield Case("measure", tensors(arrays), expected=oracle(*arrays))


def several(random):
    """Several widths, in the order they come."""
    for widths in ((2,), (5, 3, 11)):
        pairs = [draw(random, 2 + n, 3, 4 + n, width) for n, width in enumerate(widths)]
        every = [oracle(*pair) for pair in pairs]
        expected = {name: [each[name] for each in every] for name in every[0]}
        given = (list(map(tensors, pairs)),)
        yield Case("scaling", given, expected={"width": list(widths), **expected})


def inputs_kept(random):
    """The inputs after the call."""
    given = tensors(draw(random, 1, 2, 3, 5))
    words = "(its inputs, after the call)"
    yield Case("measure", given, expected=list(given), answer="inputs", words=words)


def draw_picture(names):
    """Draw the largest weight over the width, with and without scaling."""
    from attnlab.draw.pictures.charts import lines_figure
    from attnlab.draw.sections import Lines, Series

    widths = [4, 16, 64, 256]
    found = names["scaling"](names["make_draws"](widths, draws=20))
    series = [
        Series(name="divided by √width", x=widths, y=found["largest"]),
        Series(name="not divided", x=widths, y=found["largest unscaled"]),
    ]
    section = Lines(
        title="Largest weight among ten keys",
        caption="Without the division one key takes everything.",
        x_label="width",
        y_label="largest attention weight",
        series=series,
        x_log=True,
        from_zero=True,
    )
    return lines_figure(section)


_XLOGY = "-torch.xlogy(weights, weights).sum(dim=-1)"
_SCALED = "torch.softmax(scores / math.sqrt(query.shape[-1]), dim=-1)"
_LARGEST = "float(scaled.amax(dim=-1).mean())"
_ENTROPY = "float(entropy(scaled).mean())"
_BARE = "float(unscaled.amax(dim=-1).mean())"

EXERCISE = Exercise(
    "Why divide by √width?",
    level=2,
    minutes=25,
    needs=("attention",),
    checks=(
        Check("entropy", "gives the entropy of each row", entropies),
        Check("measure", "measures one width", measures, points=3),
        Check("several widths", "measures several widths in order", several),
        Check("zero weights", "takes a weight of 0 as no entropy", zeros, graded=True),
        Check("inputs", "leaves its inputs as they are", inputs_kept, graded=True),
    ),
    mistakes=(
        *root_mistakes("/ math.sqrt(query.shape[-1])", "query.shape[-1]", "query.shape[-2]"),
        Mistake(
            "entropy in bits",
            _XLOGY,
            "-torch.xlogy(weights, weights).sum(dim=-1) / math.log(2)",
            "The entropy is in bits: the logarithm is that of base 2. Nats take the natural one.",
        ),
        Mistake(
            "sign of the entropy",
            _XLOGY,
            "torch.xlogy(weights, weights).sum(dim=-1)",
            "The entropy is negative: logarithms of shares are, so a minus belongs in front.",
        ),
        Mistake(
            "mean in place of the sum",
            _XLOGY,
            "-torch.xlogy(weights, weights).mean(dim=-1)",
            "The entropy is divided by the number of keys: it is a sum over the keys, no mean.",
        ),
        Mistake(
            "share of the largest entropy",
            _XLOGY,
            "-torch.xlogy(weights, weights).sum(dim=-1) / math.log(weights.shape[-1])",
            "The entropy is divided by the largest one possible, ln(keys). Asked for are nats.",
        ),
        Mistake(
            "logarithms alone",
            _XLOGY,
            "-weights.log().sum(dim=-1)",
            "The logarithms are summed without their weights.",
        ),
        Mistake(
            "0 times ln 0",
            _XLOGY,
            "-(weights * weights.log()).sum(dim=-1)",
            "A weight of 0 gives NaN: its logarithm is −∞, and 0 times −∞ is no number.",
        ),
        Mistake(
            "something inside the logarithm",
            _XLOGY,
            "-(weights * (weights + 1e-3).log()).sum(dim=-1)",
            "A small number is added inside the logarithm, which makes every entropy too small.",
        ),
        Mistake(
            "softmax over queries",
            _SCALED,
            "torch.softmax(scores / math.sqrt(query.shape[-1]), dim=-2)",
            "The softmax of the scaled scores runs over the queries: a query's row does not sum "
            "to 1.",
        ),
        Mistake(
            "largest of all",
            _LARGEST,
            "float(scaled.max())",
            "The largest weight is that of all rows together; asked for is the mean of the "
            "largest of each row.",
        ),
        Mistake(
            "largest of the mean",
            _LARGEST,
            "float(scaled.mean(dim=0).amax(dim=-1).mean())",
            "The draws are averaged before the largest weight is taken. The order matters: "
            "averages of draws are more even than any draw.",
        ),
        Mistake(
            "entropy of the mean",
            _ENTROPY,
            "float(entropy(scaled.mean(dim=(0, 1))))",
            "The weights are averaged before their entropy is taken, and averages are more even "
            "than rows. Take the mean of the entropies.",
        ),
        Mistake(
            "entropies summed",
            _ENTROPY,
            "float(entropy(scaled).sum())",
            "The entropies of all rows are summed; asked for is their mean.",
        ),
        Mistake(
            "first draw only",
            _LARGEST,
            "float(scaled[0].amax(dim=-1).mean())",
            "Only the first draw counts in the largest weight.",
        ),
        Mistake(
            "swapped",
            _SCALED + "\n    unscaled = torch.softmax(scores, dim=-1)",
            "torch.softmax(scores, dim=-1)\n"
            "    unscaled = torch.softmax(scores / math.sqrt(query.shape[-1]), dim=-1)",
            "The numbers with and without scaling are swapped.",
        ),
        Mistake(
            "sorted by width",
            "in draws:",
            "in sorted(draws, key=lambda pair: pair[0].shape[-1]):",
            "The widths are sorted; the lists should be in the order of the draws.",
        ),
        Mistake(
            "inputs changed",
            "query @ key",
            "query.mul_(2) / 2 @ key",
            "The query is changed in place: a second call measures something else.",
        ),
        Mistake(
            "least weight",
            _BARE,
            "float(unscaled.amin(dim=-1).mean())",
            "Without scaling the least weight of each row is taken, not the largest.",
        ),
    ),
    hints=(
        "How many products does one score sum? And how does the spread of a sum of independent "
        "numbers grow with how many they are?",
        "Work row by row: first one number for each row of weights (its largest, its entropy), "
        "then the mean of these numbers.",
        "weights (draws, queries, keys) → largest or entropy along the last axis (draws, queries) "
        "→ mean, a single number. torch.xlogy or a torch.where keeps 0 · ln 0 at 0.",
        "In `scaling`, begin with an empty list for each name, go through the pairs, and append "
        "what `measure` gives under its name. The width is the last size of a query.",
    ),
    picture=draw_picture,
)
