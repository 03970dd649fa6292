"""Watch a model generate: probabilities, choices, and where each head looks."""

# %% [course]
import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise, GivenObject
from attnlab_course.material.tensors import inputs_check

# %% [markdown]
# # Trace a model's steps
#
# To see how a sorter sorts, look at each step as it is made: how likely was each token, which one
# was chosen, and where did each head look while it was?
#
# **Write** `trace(model, prompt, num_tokens, separator=0)`. It generates as before, for one prompt,
# and returns a list with a dict for each step, in order:
#
# | key | |
# | --- | --- |
# | `"probabilities"` | (vocabulary,): the probabilities the choice is made by |
# | `"choice"` | the token that is chosen, an int |
# | `"weights"` | (heads, tokens so far): each head's weights of the last query |
#
# | | |
# | --- | --- |
# | `model(tokens)` | takes ids (1, length), returns two tensors |
# | … logits | (1, length, vocabulary) |
# | … weights | (1, heads, length, length), queries before keys |
# | `prompt` | ids (length,) |
#
# * The separator is forbidden at every step: its probability is 0, and those of the other tokens
#   sum to 1, in the same proportions as before.
# * The choice is the likeliest token. It is appended to what the model reads at the next step.
# * The tokens so far are those that the model has read when it makes the choice; the chosen one is
#   not among them.
#
# `OneLayerModel` below is a model to try it on, and the one your answer is checked with. Leave it
# as it is. It is a plain object without modes: there is no `eval()` to call.

# %%
import math

import torch


class OneLayerModel:
    """One causal layer of attention that returns its weights.

    The tables: token (vocabulary, width), place (longest row, width), query and key
    (heads, width, width), output (heads, width, vocabulary).
    """

    def __init__(self, token, place, query, key, output):
        self.token, self.place = token, place
        self.query, self.key, self.output = query, key, output

    def __call__(self, tokens):
        """(1, length) -> logits (1, length, vocabulary), weights (1, heads, length, length)."""
        length = tokens.shape[1]
        x = (self.token[tokens] + self.place[:length]).unsqueeze(1)
        scores = (x @ self.query) @ (x @ self.key).transpose(-2, -1)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, -math.inf).softmax(-1)
        return (weights @ x @ self.output).sum(1), weights


# %%
def trace(model, prompt, num_tokens, separator=0):
    """Return what happens at each step of generation."""
    # >>> solution
    tokens, steps = prompt.unsqueeze(0), []
    for _ in range(num_tokens):
        logits, weights = model(tokens)
        last = logits[0, -1].detach().clone()
        last[separator] = -math.inf
        shares = torch.softmax(last, dim=-1)
        choice = int(shares.argmax())
        seen = weights[0, :, -1].detach()
        steps.append({"probabilities": shares, "choice": choice, "weights": seen})
        tokens = torch.cat([tokens, torch.tensor([[choice]])], dim=1)
    return steps
    # <<< solution


# %% [hints]
# 1. Which axis of the weights (1, heads, length, length) belongs to the token that looks?
# 2. The loop of `generate`, which also keeps what it sees before it appends the choice.
# 3. Forbid before the softmax, and the rest sums to 1 by itself. The last query is one row in
#    each head: (heads, length).
# 4. For each step: run the model; from the last position's logits, with the separator at minus
#    infinity, a softmax; its largest is the choice. Keep the three, then append.


# %% [mistakes]
# ## separator allowed: The separator is not forbidden: it has a probability, and it can be chosen.
# - last[separator] = -math.inf
# + pass
# ## forbidden in the choice alone: The separator is not chosen, but it still has a probability. The
# choice is made by probabilities in which it has none.
# -         last[separator] = -math.inf
# -         shares = torch.softmax(last, dim=-1)
# -         choice = int(shares.argmax())
# +         shares = torch.softmax(last, dim=-1)
# +         last[separator] = -math.inf
# +         choice = int(last.argmax())
# ## zeroed after the softmax: The separator's probability is set to 0 after the softmax, so the
# others do not sum to 1.
# -         last[separator] = -math.inf
# -         shares = torch.softmax(last, dim=-1)
# +         shares = torch.softmax(last, dim=-1)
# +         shares[separator] = 0.0
# ## not low enough: The separator's logit is set to a small number such as −10, so it keeps some
# probability. Only −∞ leaves none.
# - last[separator] = -math.inf
# + last[separator] = -10.0
# ## weights of the first query: The weights are those of the first query. The last one makes the
# choice.
# - seen = weights[0, :, -1].detach()
# + seen = weights[0, :, 0].detach()


# %% [course]
def case(
    random,
    letters,
    num_tokens,
    heads,
    *,
    vocabulary=5,
    separator=None,
    lean=-2.0,
    level=0.0,
    only=(),
    words="",
):
    """Sample a model and a prompt that ends in the separator; ask for its steps.

    `lean` raises the separator's logit, `level` every logit; `only` these keys are compared.
    """
    width, end = 4, separator or 0
    shapes = {
        "token": (vocabulary, width),
        "place": (letters + num_tokens + 1, width),
        "query": (heads, width, width),
        "key": (heads, width, width),
        "output": (heads, width, vocabulary),
    }
    tables = {}
    for name, shape in shapes.items():
        tables[name] = (random.normal(size=shape) * 0.7).astype(np.float32).astype(np.float64)
    tables["place"][:, 0] = 1.0
    tables["token"][:, 0] = 0.0
    tables["output"][:, 0] += level / heads
    tables["output"][:, 0, end] += lean / heads
    others = [i for i in range(vocabulary) if i != end]
    prompt = np.array([*random.choice(others, size=letters), end])
    model = GivenObject(
        "OneLayerModel", tuple(T.from_numpy(table).float() for table in tables.values())
    )
    args = (model, T.from_numpy(prompt), num_tokens)
    settings = {} if separator is None else {"separator": separator}
    return Case("trace", args, settings, only=tuple(only), words=words, tolerance=1e-5)


def choices(random):
    """The tokens that are chosen."""
    yield case(random, 3, 3, 2, only=["choice"], lean=-30.0)


def probabilities(random):
    """Probabilities, where the separator is very unlikely anyway."""
    yield case(random, 2, 2, 2, only=["probabilities"], lean=-30.0)


def weights(random):
    """Weights of the last query."""
    for letters, new, heads in ((2, 1, 2), (4, 2, 3)):
        yield case(random, letters, new, heads, only=["weights"], lean=-30.0)


def forbidden(random):
    """A separator that would be the likeliest."""
    only = ["probabilities", "choice"]
    yield case(random, 3, 1, 2, only=only, lean=8.0)
    words = "where every logit is about -30"
    yield case(random, 3, 1, 2, only=only, lean=8.0, level=-30.0, words=words)
    words = "where the separator is the likeliest token by far"
    yield case(random, 3, 2, 2, only=only, lean=1e4, words=words)


def one_head(random):
    """A model with a single head."""
    yield case(random, 3, 2, 1, lean=-30.0, words="with a single head")


def no_steps(random):
    """No step at all."""
    yield case(random, 3, 0, 2, words="with num_tokens=0")


def other_separator(random):
    """A separator with another id."""
    yield case(random, 3, 2, 2, vocabulary=7, separator=4, lean=3.0, words="with separator=4")


EXERCISE = Exercise(
    "Trace a model's steps",
    level=3,
    minutes=25,
    needs=("generate", "multi_head"),
    checks=(
        Check("choices", "tells what is chosen at each step", choices, points=2),
        Check("probabilities", "tells the probabilities", probabilities, points=2),
        Check("weights", "tells where each head looks from the last token", weights, points=2),
        Check("separator", "forbids the separator", forbidden, points=2),
        Check("one head", "works with a single head", one_head),
        Check("no step", "returns an empty list for num_tokens=0", no_steps),
        Check("other id", "takes another separator", other_separator),
        inputs_check(one_head, "prompt"),
    ),
)
