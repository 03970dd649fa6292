"""What the division by the root of the width is for, measured."""

# %% [course]
import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise
from attnlab_course.material.attention_mistakes import root_mistakes
from attnlab_course.material.pictures import draw_lines
from attnlab_course.material.tensors import inputs_check

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
    measures = {"width": []}
    for query, key in draws:
        measures["width"].append(query.shape[-1])
        for name, number in measure(query, key).items():
            measures.setdefault(name, []).append(number)
    return measures
    # <<< solution


# %% [hints]
# 1. How many products does one score sum? And how does the spread of a sum of independent
#    numbers grow with how many they are?
# 2. Work row by row: first one number for each row of weights (its largest, its entropy), then
#    the mean of these numbers.
# 3. weights (draws, queries, keys) → largest or entropy along the last axis (draws, queries) →
#    mean, a single number. torch.xlogy or a torch.where keeps 0 · ln 0 at 0.
# 4. In `scaling`, begin with an empty list for each name, go through the pairs, and append what
#    `measure` gives under its name. The width is the last size of a query.


# %% [mistakes]
# ## entropy in bits: The entropy is in bits: the logarithm is that of base 2. Nats take the natural
# one.
# - -torch.xlogy(weights, weights).sum(dim=-1)
# + -torch.xlogy(weights, weights).sum(dim=-1) / math.log(2)
# ## 0 times ln 0: A weight of 0 gives NaN: its logarithm is −∞, and 0 times −∞ is no number.
# - -torch.xlogy(weights, weights).sum(dim=-1)
# + -(weights * weights.log()).sum(dim=-1)


# %% [course]
def sample(random, draws, queries, keys, width):
    """Sample normal queries and keys."""
    return random.normal(size=(draws, queries, width)), random.normal(size=(draws, keys, width))


def tensors(arrays):
    """Turn arrays into tensors."""
    return tuple(map(T.from_numpy, arrays))


def entropies(random):
    """Weights of some shapes."""
    for shape in ((3,), (2, 4), (3, 2, 5)):
        weights = random.dirichlet(np.ones(shape[-1]), size=shape[:-1])
        yield Case("entropy", (T.from_numpy(weights),))


def zeros(random):
    """Weights of which some are exactly 0."""
    weights = np.array([[0.0, *random.dirichlet(np.ones(3))], [1.0, 0, 0, 0]])
    yield Case("entropy", (T.from_numpy(weights),), words="of weights that hold a 0")


def measures(random):
    """One width, and means over draws and queries."""
    for sizes in ((1, 1, 2, 3), (1, 3, 4, 5), (3, 2, 5, 7)):
        yield Case("measure", tensors(sample(random, *sizes)))


def several(random):
    """Several widths, in the order they come."""
    for widths in ((2,), (5, 3, 11)):
        pairs = [sample(random, 2 + n, 3, 4 + n, width) for n, width in enumerate(widths)]
        yield Case("scaling", (list(map(tensors, pairs)),))


def draw_picture(names):
    """Draw the largest weight over the width, with and without scaling."""
    widths = [4, 16, 64, 256]
    measures = names["scaling"](names["make_draws"](widths, draws=20))
    names_of = {"divided by √width": "largest", "not divided": "largest unscaled"}
    curves = {name: measures[key] for name, key in names_of.items()}
    axes, scales = ("width", "largest attention weight"), {"x_log": True, "from_zero": True}
    return draw_lines("Largest weight among ten keys", axes, widths, curves, **scales)


EXERCISE = Exercise(
    "Why divide by √width?",
    level=2,
    minutes=25,
    needs=("attention",),
    checks=(
        Check("entropy", "gives the entropy of each row", entropies),
        Check("measure", "measures one width", measures, points=3),
        Check("several widths", "measures several widths in order", several),
        Check("zero weights", "takes a weight of 0 as no entropy", zeros),
        inputs_check(measures),
    ),
    mistakes=(
        *root_mistakes("/ math.sqrt(query.shape[-1])", "query.shape[-1]", "query.shape[-2]"),
    ),
    picture=draw_picture,
)
