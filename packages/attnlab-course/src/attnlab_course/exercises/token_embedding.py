"""Token embeddings, scaled by the root of their width."""

# %% [course]
from dataclasses import replace

import torch as T

from attnlab_course.exercise import Case, Check, Exercise, Failure
from attnlab_course.material.attention_mistakes import power_mistake
from attnlab_course.material.tensors import inputs_check, parameters_check, shape_failure

# %% [markdown]
# # Token embeddings
#
# Each id of the vocabulary has a row of numbers that is learned. When a row is read, it is
# multiplied by √d_model, so that the positions that are added next do not drown it.
#
# **Write** the class `TokenEmbedding(vocab_size, d_model)`. Its one parameter is that of an
# `nn.Embedding` named `embedding`, so it is called `embedding.weight`.
#
# | | shape |
# | --- | --- |
# | `embedding.weight` | (vocab_size, d_model) |
# | `ids` | any shape (…), whole numbers from 0 to vocab_size − 1 |
# | answer | (…, d_model) |
#
# * The answer at a place is the row of its id, times √d_model. Id 0 has a row like any other:
#   it begins like the others and learns like them.
# * How the rows begin is left to `nn.Embedding`.
# * There may be no id at all: a text of length 0 gives an answer of shape (…, 0, d_model).
# * A call changes neither the parameter nor the ids, and is the same in training and evaluation.

# %%
import math

from torch import nn


class TokenEmbedding(nn.Module):
    """Look up a row for each id."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        # >>> solution
        self.d_model = d_model
        self.embedding = nn.Embedding(vocab_size, d_model)
        # <<< solution

    def forward(self, ids):
        """Return the rows of the ids, scaled."""
        # >>> solution
        return self.embedding(ids) * math.sqrt(self.d_model)
        # <<< solution


# %% [hints]
# 1. Which module of `torch.nn` is a table of rows that are looked up by number?
# 2. `nn.Embedding` takes ids of any shape and adds an axis at the end.
# 3. (…) → look up → (…, d_model) → times one fixed number.
# 4. Keep the width in `__init__`, and multiply what the table returns by its root, outside of
#    the table.


# %% [mistakes]
# ## scaled by width: The rows are multiplied by the width itself. It should be its root.
# - math.sqrt(self.d_model)
# + self.d_model
# ## scaled in place: The table itself is scaled, so every further call scales it again.
# - self.embedding(ids) * math.sqrt(self.d_model)
# + nn.functional.embedding(ids, self.embedding.weight.data.mul_(self.d_model**0.5))
# ## padding row: The row of id 0 is set apart with `padding_idx`: it begins at 0 and never learns.
# Here it is a row like any other.
# - nn.Embedding(vocab_size, d_model)
# + nn.Embedding(vocab_size, d_model, padding_idx=0)


# %% [course]
def case(random, shape, vocabulary, width, **more):
    """Sample ids and a table, and look each id up."""
    table = random.normal(size=(vocabulary, width))
    ids = random.integers(0, vocabulary, shape)
    if ids.size:
        ids.flat[0] = vocabulary - 1
    return Case(
        "TokenEmbedding",
        (T.from_numpy(ids),),
        build=((vocabulary, width), {}),
        state={"embedding.weight": T.from_numpy(table)},
        **more,
    )


def values(random):
    """Widths that are no squares."""
    yield case(random, (1, 1), 3, 2)
    yield case(random, (2, 3), 11, 5)
    yield case(random, (3, 5), 13, 7)


def judge_start(answer):
    """Judge whether the row of id 0 begins like the others."""
    table = answer["embedding.weight"]
    if table.any() and not table[0].any():
        return Failure("the row of id 0 begins with zeros, and no other row does", "padding row")
    return shape_failure(table, (5, 3))


def start(random):
    """The table as it is at the start."""
    words = "as it is at the start"
    yield Case("TokenEmbedding", build=((5, 3), {}), judge=judge_start, answer="state", words=words)


def shapes(random):
    """Ids of one text, and of many."""
    yield case(random, (4,), 7, 3, words="with the ids of one text, without a batch")
    yield case(random, (2, 3, 5), 7, 3, words="with two axes in front of the text")


def empty(random):
    """A text without ids."""
    yield case(random, (2, 0), 7, 3, words="with texts of length 0")


def called_twice(random):
    """The second of two calls, and the table after a call."""
    made = case(random, (2, 3), 5, 3, words="called twice")
    yield replace(made, args=(), methods=(("forward", made.args, {}),) * 2)
    yield case(random, (2, 3), 5, 3, training=True, words="in training mode")


EXERCISE = Exercise(
    "Token embeddings",
    level=1,
    minutes=10,
    needs=("tokenizer",),
    checks=(
        Check("values", "gives each id its scaled row", values, points=3),
        parameters_check("has one parameter, embedding.weight", "TokenEmbedding", (5, 3)),
        Check("shapes", "takes ids of any shape", shapes),
        Check("repeat", "gives the same in every call and mode", called_twice),
        Check("id 0", "gives id 0 a row like any other", start),
        Check("empty", "takes texts of length 0", empty),
        inputs_check(values),
    ),
    mistakes=(*power_mistake("* math.sqrt(self.d_model)", "self.d_model"),),
)
