"""Greedy generation, with a token that may come only once."""

# %% [course]
import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise, GivenObject
from attnlab_course.material.tensors import inputs_check

# %% [markdown]
# # Generate, one token after another
#
# A trained decoder continues a row: it reads all tokens so far, the likeliest next one is appended,
# and it reads again. The sorter's rows have one separator, between the letters and the answer, so
# once it is in a row it may not be chosen again.
#
# **Write** `generate(model, prompt, num_tokens, separator=0)`.
#
# | | |
# | --- | --- |
# | `model(tokens)` | takes ids (batch, length) and returns logits (batch, length, vocabulary) |
# | `prompt` | ids (batch, length), whole numbers |
# | `num_tokens` | how many tokens to append to each row; may be 0 |
# | returns | ids (batch, length + num_tokens): the prompts, and what was appended |
#
# * The logits at the last position are about the next token. Take the largest.
# * In a row in which `separator` stands already, in the prompt or among what was appended, it may
#   not be chosen; in a row without it, it may. Each row of the batch is judged by itself.
# * The model reads every token so far, separators too, each time.
# * The prompt stays as it is.
#
# `TableModel` below is a small model to try it on, and the one your answer is checked with. Leave
# it as it is. Its logits depend on every token so far. It is a plain object without modes: there is
# no `eval()` to call.

# %%
import math

import torch


class TableModel:
    """Tables: what a token asks for next, what it leaves behind, what its place adds.

    Try it with TableModel(torch.randn(4, 4), torch.randn(4, 4), torch.randn(9, 4)).
    """

    def __init__(self, following, memory, place):
        self.following, self.memory, self.place = following, memory, place

    def __call__(self, tokens):
        """(batch, length) -> (batch, length, vocabulary)."""
        remembered = self.memory[tokens].cumsum(1)
        return self.following[tokens] + remembered + self.place[: tokens.shape[1]]


# %%
def generate(model, prompt, num_tokens, separator=0):
    """Append tokens to each prompt, the likeliest first, and return the whole rows."""
    # >>> solution
    tokens = prompt
    for _ in range(num_tokens):
        logits = model(tokens)[:, -1].detach().clone()
        has_separator = (tokens == separator).any(dim=1)
        logits[has_separator, separator] = -math.inf
        chosen = logits.argmax(dim=-1, keepdim=True)
        tokens = torch.cat([tokens, chosen], dim=1)
    return tokens
    # <<< solution


# %% [hints]
# 1. Which of the model's positions has read the whole row?
# 2. A loop: read the row, take the logits of its last position, forbid, choose, append.
# 3. To forbid, give the separator a logit that nothing can be below. For which rows? A boolean
#    for each row, (batch,), says whether the separator is in it.
# 4. Index the logits (batch, vocabulary) with that boolean and the separator's id. The choice
#    needs the shape (batch, 1) before it can be joined to the rows along axis 1.


# %% [mistakes]
# ## never forbids: The separator may be chosen again and again. A row may have one.
# - logits[has_separator, separator] = -math.inf
# ## forbids for the whole batch: As soon as one row has a separator, it is forbidden in all rows.
# - has_separator = (tokens == separator).any(dim=1)
# + has_separator = (tokens == separator).any().expand(len(tokens))
# ## logit of zero: The separator's logit is set to 0, which is still the largest if the others are
# below.
# - logits[has_separator, separator] = -math.inf
# + logits[has_separator, separator] = 0.0
# ## not low enough: The separator's logit is set to a large negative number, which can still be the
# largest of them.
# - logits[has_separator, separator] = -math.inf
# + logits[has_separator, separator] = -1e6
# ## feeds only the last token: The model is shown only the last token. It should read the whole row
# so far.
# - model(tokens)
# + model(tokens[:, -1:])
# ## returns only what is new: Only the appended tokens are returned. The prompt belongs to the row.
# -     return tokens
# +     return tokens[:, prompt.shape[1] :]
# ## always forbids: The separator is never chosen. A row that has none yet may get one.
# - logits[has_separator, separator]
# + logits[:, separator]


# %% [course]
def sample_tables(random, vocabulary, length, separator=0, lean=0.0):
    """Sample a model's tables; lean makes it choose the separator more often.

    They hold multiples of 2⁻¹⁶, whose sums are exact in float32, as models give their logits.
    """
    shapes = {"following": vocabulary, "memory": vocabulary, "place": length}
    tables = {}
    for name, rows in shapes.items():
        tables[name] = np.round(random.normal(size=(rows, vocabulary)) * 2.0**16) / 2.0**16
    tables["place"][:, separator] += lean
    return tables


def case(tables, prompt, num_tokens, separator=None, **more):
    """Ask for a continuation of prompts by a model with these tables."""
    prompt = np.asarray(prompt)
    model = GivenObject("TableModel", tuple(T.tensor(table).float() for table in tables.values()))
    settings = {} if separator is None else {"separator": separator}
    return Case("generate", (model, T.from_numpy(prompt), num_tokens), settings, **more)


def letters(random, batch, length, vocabulary):
    """Sample prompts of letters, without the separator 0."""
    return random.integers(1, vocabulary, size=(batch, length))


def free(random):
    """One row, whose model never chooses the separator by itself."""
    for length, new in ((1, 1), (3, 5)):
        tables = sample_tables(random, 7, 9, lean=-100.0)
        yield case(tables, letters(random, 1, length, 7), new)


def batches(random):
    """Several rows at once."""
    tables = sample_tables(random, 7, 11, lean=-100.0)
    yield case(tables, letters(random, 5, 4, 7), 3, words="for several prompts")


def after_separator(random):
    """Prompts that end in the separator, and a model that would repeat it."""
    for length, new in ((2, 1), (3, 4)):
        prompt = letters(random, 1, length, 5)
        prompt[0, -1] = 0
        words = "after a prompt that ends in the separator"
        yield case(sample_tables(random, 5, 7, lean=100.0), prompt, new, words=words)
    prompt = letters(random, 1, 4, 7)
    prompt[0, 1] = 0
    words = "where the separator stands within the prompt"
    yield case(sample_tables(random, 7, 7, lean=100.0), prompt, 3, words=words)


def own_separator(random):
    """Prompts without a separator, which the model itself puts there."""
    words = "where the model puts the separator itself"
    for new in (1, 4):
        tables = sample_tables(random, 5, 7, lean=100.0)
        yield case(tables, letters(random, 1, 3, 5), new, words=words)


def rows_apart(random):
    """Rows with and without the separator in one batch."""
    prompt = letters(random, 3, 3, 7)
    prompt[1, 2] = 0
    words = "where one row of three has a separator"
    yield case(sample_tables(random, 7, 7, lean=100.0), prompt, 1, words=words)
    yield case(sample_tables(random, 7, 7, lean=100.0), prompt, 4, words=words)


def other_separator(random):
    """A separator with another id."""
    prompt = letters(random, 2, 3, 6)
    prompt[:, -1] = 3
    tables = sample_tables(random, 6, 7, 3, lean=100.0)
    yield case(tables, prompt, 4, 3, words="with separator=3")


def deep_logits(random):
    """Logits that are all far below zero, where the separator is forbidden."""
    prompt = letters(random, 2, 3, 5)
    prompt[:, -1] = 0
    for scale in (2.0**7, 2.0**20, 2.0**30):
        tables = sample_tables(random, 5, 7, lean=100.0)
        tables["place"] -= 128.0
        tables = {name: table * scale for name, table in tables.items()}
        yield case(tables, prompt, 3, words="with logits far below zero")


def nothing_new(random):
    """No token to append."""
    yield case(sample_tables(random, 5, 9), letters(random, 2, 3, 5), 0, words="with num_tokens=0")


EXERCISE = Exercise(
    "Generate, one token after another",
    level=2,
    minutes=25,
    needs=("next_token_loss",),
    checks=(
        Check("one row", "continues a row", free, points=3),
        Check("separator", "puts no second separator", after_separator, points=2),
        Check("batch", "continues several rows at once", batches),
        Check("own separator", "lets a model put the first separator", own_separator),
        Check("each row", "judges each row by itself", rows_apart),
        Check("other id", "takes another separator", other_separator),
        Check("deep logits", "forbids it however low all logits are", deep_logits),
        Check("nothing new", "returns the prompt for num_tokens=0", nothing_new),
        inputs_check(batches, "prompt"),
    ),
)
