"""Token embeddings, scaled by the root of their width."""

# %% [course]
import numpy as np
import torch as T

from attnlab.course.exercise import Case, Check, Exercise, Failure, Mistake
from attnlab.course.material.attention_mistakes import power_mistake

# %% [markdown]
# # Token embeddings
#
# Each id of the vocabulary has a row of numbers that is learned. When a row is read, it is
# multiplied by √d_model, so that the positions that are added next do not drown it. The picture
# shows what comes of six ids; equal ids have equal rows.
#
# ![rows](token_embedding.svg)
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


# %% [course]
def case(random, shape, vocabulary, width, **more):
    """Draw ids and a table, and look each id up in a loop."""
    table = random.normal(size=(vocabulary, width))
    ids = random.integers(0, vocabulary, shape)
    if ids.size:
        ids.flat[0] = vocabulary - 1
    expected = np.zeros((*shape, width))
    for place in np.ndindex(*shape):
        expected[place] = [number * width**0.5 for number in table[ids[place]]]
    given = {"expected": T.from_numpy(expected), **more}
    state = {"embedding.weight": T.from_numpy(table)}
    build = ((vocabulary, width), {})
    return Case("TokenEmbedding", (T.from_numpy(ids),), build=build, state=state, **given)


def values(random):
    """Widths that are no squares."""
    yield case(random, (1, 1), 3, 2)
    yield case(random, (2, 3), 11, 5)
    yield case(random, (3, 5), 13, 7)


def parameters(random):
    """The parameter's name and shape."""
    expected = {"embedding.weight": [5, 3]}
    yield Case("TokenEmbedding", build=((5, 3), {}), expected=expected, answer="parameters")


def judge_start(answer):
    """Judge whether the row of id 0 begins like the others."""
    table = answer.get("embedding.weight") if isinstance(answer, dict) else None
    if not isinstance(table, T.Tensor) or table.shape != (5, 3):
        return Failure("expected embedding.weight of shape (5, 3)")
    if table.any() and not table[0].any():
        return Failure("the row of id 0 begins with zeros, and no other row does", "padding row")
    return None


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
    made = case(random, (2, 3), 5, 3)
    call = ("forward", made.args, {})
    yield Case(
        "TokenEmbedding", build=made.build, state=made.state, expected=made.expected,
        methods=(call, call), words="called twice",
    )  # fmt: skip
    yield case(random, (2, 3), 5, 3, training=True, words="in training mode")


def inputs_kept(random):
    """The ids after the call."""
    made = case(random, (2, 5), 7, 3, answer="inputs")
    yield case_with(made, list(made.args))


def case_with(made, expected):
    """The same case with another expected answer."""
    return Case(
        made.call, made.args, build=made.build, state=made.state, expected=expected,
        answer=made.answer,
    )  # fmt: skip


def draw_picture(names):
    """Draw the rows of six ids."""
    from attnlab.draw.pictures.look import new_figure
    from attnlab.draw.pictures.maps import draw_map
    from attnlab.draw.sections import Heatmap

    T.manual_seed(5)
    module = names["TokenEmbedding"](10, 12)
    module.embedding.weight.data.div_(12)
    ids = [2, 7, 4, 7, 1, 0]
    rows = module(T.tensor(ids)).tolist()
    high = max(abs(number) for row in rows for number in row)
    labels = [f"id {number}" for number in ids]
    columns = list(map(str, range(12)))
    shades = Heatmap(
        title="scaled rows", rows=rows, row_labels=labels, column_labels=columns, low=-high,
        high=high, row_title="place", column_title="column",
    )  # fmt: skip
    figure = new_figure(5.6, 3.0)
    picture = draw_map(figure.add_subplot(), shades)
    figure.colorbar(picture, ax=figure.axes[0], fraction=0.04)
    return figure


_LOOK = "self.embedding(ids) * math.sqrt(self.d_model)"
_MADE = "nn.Embedding(vocab_size, d_model)"

EXERCISE = Exercise(
    "Token embeddings",
    level=1,
    minutes=10,
    needs=("tokenizer",),
    checks=(
        Check("values", "gives each id its scaled row", values, points=3),
        Check("parameters", "has one parameter, embedding.weight", parameters),
        Check("shapes", "takes ids of any shape", shapes),
        Check("repeat", "gives the same in every call and mode", called_twice, graded=True),
        Check("id 0", "gives id 0 a row like any other", start, graded=True),
        Check("empty", "takes texts of length 0", empty, graded=True),
        Check("inputs", "leaves the ids as they are", inputs_kept, graded=True),
    ),
    mistakes=(
        power_mistake("* math.sqrt(self.d_model)", "self.d_model", "* "),
        Mistake(
            "no scaling",
            _LOOK,
            "self.embedding(ids)",
            "The rows are not scaled: positions of size 1 would drown them.",
        ),
        Mistake(
            "scaled by width",
            "math.sqrt(self.d_model)",
            "self.d_model",
            "The rows are multiplied by the width itself. Its root is asked.",
        ),
        Mistake(
            "divided",
            "* math.sqrt",
            "/ math.sqrt",
            "The rows are divided by √d_model, as the scores of attention are. Here it multiplies.",
        ),
        Mistake(
            "whole root",
            "math.sqrt(self.d_model)",
            "math.isqrt(self.d_model)",
            "The root is rounded to a whole number, so it is right only for 1, 4, 9, 16 …",
        ),
        Mistake(
            "root of vocabulary",
            "math.sqrt(self.d_model)",
            "math.sqrt(self.embedding.num_embeddings)",
            "The factor is the root of the size of the vocabulary, not of the width.",
        ),
        Mistake(
            "root of length",
            "math.sqrt(self.d_model)",
            "math.sqrt(ids.shape[-1])",
            "The factor is the root of the length of the text, not of the width.",
        ),
        Mistake(
            "scaled in place",
            _LOOK,
            "nn.functional.embedding(ids, self.embedding.weight.data.mul_(self.d_model**0.5))",
            "The table itself is scaled, so every further call scales it again.",
        ),
        Mistake(
            "only in training",
            _LOOK,
            "self.embedding(ids) * (1 if self.training else math.sqrt(self.d_model))",
            "In training the rows are not scaled; the model would learn one thing and use another.",
        ),
        Mistake(
            "capped rows",
            _MADE,
            "nn.Embedding(vocab_size, d_model, max_norm=1.0)",
            "Long rows are shortened to length 1 when they are read. They must stay as learned.",
        ),
        Mistake(
            "unit rows",
            "self.embedding(ids) *",
            "nn.functional.normalize(self.embedding(ids), dim=-1) *",
            "Each row is brought to length 1, so what its length says is lost.",
        ),
        Mistake(
            "learned factor",
            _MADE,
            "nn.Embedding(vocab_size, d_model)\n"
            "        self.factor = nn.Parameter(self.embedding.weight[0, :1].detach() * 0 + 1)",
            "There is a second parameter. The factor is fixed and need not be learned.",
        ),
        Mistake(
            "transposed",
            _LOOK,
            "(self.embedding(ids) * math.sqrt(self.d_model)).transpose(-2, -1)",
            "The last two axes are exchanged: the width must come last.",
        ),
        Mistake(
            "no padding row",
            "self.embedding(ids) *",
            "(self.embedding(ids) * (ids != 0)[..., None]) *",
            "Id 0 gives zeros. Its row must come as it is; a mask keeps padding out later.",
        ),
        Mistake(
            "padding row",
            _MADE,
            "nn.Embedding(vocab_size, d_model, padding_idx=0)",
            "The row of id 0 is set apart with `padding_idx`: it begins at 0 and never learns. "
            "Here it is a row like any other.",
        ),
        Mistake(
            "ids changed",
            "return self.embedding(ids)",
            "return self.embedding(ids.remainder_(self.embedding.num_embeddings - 1))",
            "The call changes the ids, which belong to the caller.",
        ),
    ),
    hints=(
        "Which module of `torch.nn` is a table of rows that are looked up by number?",
        "`nn.Embedding` takes ids of any shape and adds an axis at the end.",
        "(…) → look up → (…, d_model) → times one fixed number.",
        "Keep the width in `__init__`, and multiply what the table returns by its root, outside of "
        "the table.",
    ),
    picture=draw_picture,
)
