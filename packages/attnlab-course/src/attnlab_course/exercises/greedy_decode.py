"""Write a text token by token, always taking the likeliest."""

# %% [course]
import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise, GivenObject
from attnlab_course.material.pictures import draw_maps

# %% [markdown]
# # Greedy decoding
#
# While it is trained, a decoder is given the right text. Now it must write one itself: it begins
# with a start token, says which token comes next, and is asked again with that token behind the
# others. The picture shows what such a model says at each step: the probabilities of the next
# token, from top to bottom. Where the end token is the likeliest, it is done.
#
# ![steps](greedy_decode.svg)
#
# **Write** `greedy_decode(model, source, start, end, most)`. It returns a list of
# lists of integers.
#
# | | |
# | --- | --- |
# | `source` | (batch, source length), token ids |
# | `model(source, target)` | logits (batch, target length, vocabulary) |
# | `target` | (batch, target length), the ids so far, whole numbers |
# | `start`, `end` | the ids of the start and of the end token |
# | `most` | how many tokens may be written for a text, `end` included; 1 or more |
#
# * The logits at a position are those of the token that comes **after** it.
# * The target begins with `start`. Then it grows by the likeliest next token. The model is always
#   given all tokens so far.
# * A text is done when `end` is the likeliest, or when it has `most` tokens. Texts of a batch may
#   be done at different times; the others go on.
# * The result has a list for each text: its tokens, without `start`, without `end`, and with
#   nothing that comes after it. It may be empty.
# * When all texts are done, the model is not asked again.
#
# The class `TableModel` is given; the checks decode with it.

# %%
import torch


# %%
# Given: leave this class as it is. It reads its answers from a table.
class TableModel(torch.nn.Module):
    """Tell the next token from the first source token and all target tokens so far.

    Args:
        table: (source vocabulary, sums, vocabulary), the logits for each sum of the target's ids.
        most_calls: how often it may be asked; None for any number.
    """

    def __init__(self, table, most_calls=None):
        super().__init__()
        self.table = table
        self.calls_left = most_calls

    def forward(self, source, target):
        """Return logits (batch, target length, vocabulary)."""
        if self.calls_left is not None:
            if self.calls_left == 0:
                raise RuntimeError("the model is asked although every text is done")
            self.calls_left -= 1
        sums = target.cumsum(dim=1) % self.table.shape[1]
        return self.table[source[:, :1], sums]


# %%
def greedy_decode(model, source, start, end, most):
    """Return the tokens written for each source."""
    # >>> solution
    target = torch.full((len(source), 1), start)
    is_done = torch.zeros(len(source), dtype=torch.bool)
    for _ in range(most):
        logits = model(source, target)
        chosen = logits[:, -1].argmax(dim=-1)
        target = torch.cat([target, chosen[:, None]], dim=1)
        is_done |= chosen == end
        if is_done.all():
            break
    texts = []
    for row in target[:, 1:].tolist():
        texts.append(row[: row.index(end)] if end in row else row)
    return texts
    # <<< solution


# %% [hints]
# 1. At which position do the logits say what comes after everything written so far?
# 2. Keep the target as ids (batch, length), begin with a column of `start`, and add a column in
#    every step.
# 3. Note for each text whether it has said the end, and leave the loop when all have. What a
#    text says after its end can be cut off later.
# 4. Up to `most` times: logits of the target, argmax at the last position, append, note who is
#    done. Then for each row the tokens behind the start and before the first end.

# %% [mistakes]
# ## does not stop: What comes after the end token is kept, with the end token in it.
# - row[: row.index(end)] if end in row else row
# + row
# ## end kept: The end token is part of the result; it only says that the text is done.
# - row[: row.index(end)] if
# + row[: row.index(end) + 1] if
# ## start kept: The start token is part of the result. The model did not write it.
# - target[:, 1:].tolist()
# + target.tolist()
# ## first position: The next token is read at the first position. What comes after the whole target
# is said at its last position.
# - logits[:, -1]
# + logits[:, 0]
# ## stops with the first: All texts stop when the first of them is done; the others must go on.
# - is_done.all()
# + is_done.any()
# ## last token only: The model gets the last token only, so it does not know what it has written
# before.
# - model(source, target)
# + model(source, target[:, -1:])
# ## start and end kept: The start and the end token are part of the result. The model did not write
# the one, and the other only says that the text is done.
# - target[:, 1:].tolist()
# - …
# - row[: row.index(end)] if
# + target.tolist()
# + …
# + row[: row.index(end) + 1] if


# %% [course]
START, END, VOCAB, SUMS = 1, 2, 7, 31
LONG = 9  # tokens of a text that has no end


def sample_table(random, sources, lengths):
    """Sample a table until the texts written from it have these lengths; LONG has no end.

    PAD is never the likeliest, so that no two sums are equal for its sake.
    """
    while True:
        table = random.normal(size=(sources, SUMS, VOCAB)) * 2
        table[..., 0] = -9
        model, source = TableModel(T.from_numpy(table)), T.arange(sources)[:, None]
        texts = greedy_decode(model, source, START, END, LONG)
        if list(map(len, texts)) == lengths and not end_together(table):
            return table


def end_together(table):
    """Whether a second text says the end in the very step in which the first says it again."""
    if len(table) != 2:
        return False
    written = [[START], [START]]
    ended = []
    for _ in range(LONG):
        for rows, text in zip(table, written, strict=True):
            text.append(int(rows[sum(text) % SUMS].argmax()))
        ended.append(all(text[-1] == END for text in written))
    return any(ended)


def case(random, lengths, most, most_calls=None, **more):
    """Decode one text for each length."""
    table = sample_table(random, len(lengths), lengths)
    source = np.stack([np.arange(len(lengths)), random.integers(VOCAB, size=len(lengths))], axis=1)
    model = GivenObject("TableModel", (T.from_numpy(table).float(), most_calls))
    args = (model, T.from_numpy(source), START, END, most)
    return Case("greedy_decode", args, **more)


def one_text(random):
    """A text that ends."""
    yield case(random, [1], 9)
    yield case(random, [3], 9)


def longest(random):
    """A text that does not end in time."""
    yield case(random, [LONG], 4, words="with most=4 and a text that goes on")
    yield case(random, [LONG], 1, words="with most=1 and a text that goes on")


def batch(random):
    """Texts that end at different times."""
    yield case(random, [2, 4, 1], 9, words="with three texts of different lengths")


def empty(random):
    """A text that ends at once."""
    yield case(random, [0], 5, words="where the first token is already the end")


def calls(random):
    """A model that may be asked as often as is needed."""
    words = "with a model that may be asked three times"
    yield case(random, [2], 40, most_calls=3, words=words)
    words = "with texts that need two and four calls, and a model that may be asked six times"
    yield case(random, [1, 3], 40, most_calls=6, words=words)


def draw_picture(names):
    """Draw the probabilities of the next token, step by step."""
    table = T.from_numpy(sample_table(np.random.default_rng(6), 1, [4]))
    model, source, target = names["TableModel"](table), T.zeros(1, 1, dtype=T.int64), [START]
    target += names["greedy_decode"](model, source, START, END, LONG)[0]
    shares = T.softmax(model(source, T.tensor([target]))[0], dim=-1)
    words = ["PAD", "start", "end", "a", "b", "c", "d"]
    labels = [f"after {words[token]}" for token in target], words
    maps = {"Probability of the next token": shares}
    return draw_maps(maps, ("step", "next token"), (5.0, 3.4), labels=labels)


EXERCISE = Exercise(
    "Greedy decoding",
    level=3,
    minutes=25,
    needs=("decoder_layer",),
    checks=(
        Check("one text", "writes a text and stops at its end", one_text, points=3),
        Check("most", "stops when there are enough tokens", longest, points=2),
        Check("batch", "lets texts of a batch end at different times", batch, points=2),
        Check("empty", "gives an empty text where the end comes first", empty),
        Check("calls", "asks the model no more than needed", calls),
    ),
    picture=draw_picture,
)
