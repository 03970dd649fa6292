"""The loss of a model that predicts the next token, and how low it can be."""

# %% [course]
import numpy as np
import torch as T

from attnlab.course.exercise import Case, Check, Exercise, Mistake

# %% [markdown]
# # The loss of the next token
#
# A decoder reads a row of tokens and says, at each position, how likely each token is to come
# **next**. It is trained on the cross-entropy: the mean of −log p(the token that did come).
#
# The sorter's rows are `c a b SEP a b c`. Letters drawn at random cannot be foreseen, so even the
# best model keeps some loss. That floor is known before anything is trained.
#
# ![the floor for some rows](next_token_loss.svg)
#
# **Write** two functions.
#
# `next_token_loss(logits, tokens, padding=None)` returns one number, a tensor without axes.
#
# | | shape |
# | --- | --- |
# | `logits` | (batch, length, vocabulary), floating point |
# | `tokens` | (batch, length), whole numbers from 0 |
#
# * The logits at position t are about the token at position t + 1. What the last position says is
#   about nothing that is there, so it does not count; the first token is never predicted.
# * A next token whose id is `padding` does not count. 0 is an id like any other, and None means
#   that there is no padding.
# * The mean is over all tokens of the batch that count, each with the same weight.
# * If no token counts, the loss is 0.
# * It stays exact for logits of any size, and has the dtype of the logits.
# * Logarithms are natural.
#
# `loss_floor(num_letters, num_free, row_length)` returns the lowest possible mean loss, a float,
# over rows of `row_length` tokens: the first `num_free` (at least 1) are letters, each drawn
# uniformly among `num_letters` and by itself; all tokens after them are certain, given those
# before. The mean is over the row_length − 1 tokens that are predicted.
#
# Do not call PyTorch's cross-entropy.

# %%
import math

import torch


def next_token_loss(logits, tokens, padding=None):
    """Return the mean cross-entropy of the next tokens that are not padding."""
    # >>> solution
    log_shares = torch.log_softmax(logits[:, :-1], dim=-1)
    targets = tokens[:, 1:]
    losses = -log_shares.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    counts = torch.ones_like(targets, dtype=torch.bool)
    if padding is not None:
        counts = targets != padding
    return losses[counts].sum() / max(int(counts.sum()), 1)
    # <<< solution


def loss_floor(num_letters, num_free, row_length):
    """Return the lowest mean loss over rows that begin with letters drawn at random."""
    # >>> solution
    return (num_free - 1) * math.log(num_letters) / (row_length - 1)
    # <<< solution


# %% [course]
def oracle(logits, tokens, padding):
    """Compute the loss token by token in NumPy."""
    losses = []
    for row, ids in zip(logits, tokens, strict=True):
        for place in range(1, len(ids)):
            if ids[place] != padding:
                said = row[place - 1]
                largest = max(said)
                total = largest + np.log(sum(np.exp(said - largest)))
                losses.append(total - said[ids[place]])
    return sum(losses) / len(losses) if losses else 0.0


def case(random, batch, length, vocabulary, padding=None, scale=1.0, tokens=None, **more):
    """Draw logits and tokens, and compute the loss."""
    logits = random.normal(size=(batch, length, vocabulary)) * scale
    if tokens is None:
        tokens = random.integers(0, vocabulary, size=(batch, length))
    expected = T.tensor(oracle(logits, tokens, padding), dtype=T.float64)
    settings = {} if padding is None else {"padding": padding}
    given = (T.from_numpy(logits), T.from_numpy(tokens))
    return Case("next_token_loss", given, settings, expected=more.pop("expected", expected), **more)


def values(random):
    """Loss of rows without padding."""
    yield case(random, 1, 2, 3)
    yield case(random, 1, 4, 3)
    yield case(random, 2, 5, 7)
    yield case(random, 3, 4, 5)


def padded(random):
    """Rows that end in padding, of different lengths; its id is not 0."""
    first = np.array([[1, 0, 3, 3], [0, 2, 1, 3]])
    yield case(random, 2, 4, 4, 3, tokens=first, words="where the id 3 is padding")
    second = random.integers(0, 5, size=(3, 7))
    second[0, 2:] = second[1, 5:] = 5
    yield case(random, 3, 7, 6, 5, tokens=second, words="where the id 5 is padding")


def padded_with_zero(random):
    """Padding whose id is 0."""
    tokens = np.array([[2, 1, 0, 0, 0], [1, 3, 3, 2, 0]])
    yield case(random, 2, 5, 4, 0, tokens=tokens, words="where the id 0 is padding")


def only_padding(random):
    """Rows in which nothing is left to predict."""
    tokens = np.array([[1, 2, 2], [0, 2, 2]])
    yield case(random, 2, 3, 3, 2, tokens=tokens, words="where every next token is padding")


def large(random):
    """Logits that overflow an exponential, or make a share of 0."""
    yield case(random, 1, 3, 4, scale=1000.0, words="with logits of some thousands")
    yield case(random, 2, 4, 3, scale=1e5, words="with logits of a hundred thousand")


def gradients(random):
    """Gradients of the logits: shares less the one that came, over the number that counts."""
    made = case(random, 2, 4, 3)
    logits, tokens = (each.numpy() for each in made.args)
    expected = np.zeros_like(logits)
    for row, place in np.ndindex(2, 3):
        grown = np.exp(logits[row, place] - logits[row, place].max())
        expected[row, place] = grown / grown.sum()
        expected[row, place, tokens[row, place + 1]] -= 1
    words = "in its gradient"
    expected = [T.from_numpy(expected / 6)]
    yield Case("next_token_loss", made.args, answer="gradients", expected=expected, words=words)


def dtypes(random):
    """Logits of 32 bits."""
    made = case(random, 2, 3, 5)
    given = (made.args[0].float(), made.args[1])
    expected = made.expected.float()
    yield Case(
        "next_token_loss", given, expected=expected, tolerance=1e-4, words="with float32 logits"
    )


def floors(random):
    """The floor of rows with two, three and many letters."""
    for letters, free, length in ((3, 3, 7), (2, 2, 5), (26, 5, 13), (4, 7, 17)):
        expected = sum(np.log(letters) for _ in range(1, free)) / (length - 1)
        yield Case("loss_floor", (letters, free, length), expected=float(expected))


def floor_at_zero(random):
    """Rows in which nothing is left to chance."""
    yield Case("loss_floor", (5, 1, 4), expected=0.0, words="with one free letter, the first")
    yield Case("loss_floor", (1, 4, 9), expected=0.0, words="with a single letter to draw from")


def draw_picture(names):
    """Draw the floor against the length of the answer."""
    from attnlab.draw.pictures.charts import lines_figure
    from attnlab.draw.sections import Lines, Series

    lengths = range(1, 13)
    series = [
        Series(
            name=f"{letters} letters",
            x=list(lengths),
            y=[names["loss_floor"](letters, n, 2 * n + 1) for n in lengths],
        )
        for letters in (2, 3, 26)
    ]
    labels = {"x_label": "letters of an input", "y_label": "nats per token", "caption": ""}
    return lines_figure(Lines(title="The lowest loss of a sorter", series=series, **labels))


_LOG = "torch.log_softmax(logits[:, :-1], dim=-1)"
_SHARES = "torch.softmax(logits[:, :-1], dim=-1)"
_MEAN = "return losses[counts].sum() / max(int(counts.sum()), 1)"
_COUNTS = "counts = targets != padding"
_FLOOR = "return (num_free - 1) * math.log(num_letters) / (row_length - 1)"

EXERCISE = Exercise(
    "The loss of the next token",
    level=2,
    minutes=25,
    needs=("softmax",),
    checks=(
        Check("values", "gives the right loss", values, points=3),
        Check("padding", "leaves padding out", padded, points=2),
        Check("floor", "knows the lowest loss", floors, points=2),
        Check("padding 0", "takes 0 for an id like any other", padded_with_zero, graded=True),
        Check(
            "only padding", "gives 0 where no token counts", only_padding, graded=True, side=True
        ),
        Check("large", "stays exact with large logits", large, graded=True),
        Check("gradients", "has the right gradient", gradients, graded=True),
        Check("dtype", "keeps the dtype of the logits", dtypes, graded=True),
        Check("no chance", "knows when the floor is 0", floor_at_zero, graded=True, side=True),
    ),
    mistakes=(
        Mistake(
            "not shifted",
            f"{_LOG}\n    targets = tokens[:, 1:]",
            "torch.log_softmax(logits, dim=-1)\n    targets = tokens",
            "Each position is compared with its own token, which the model has already read.",
        ),
        Mistake(
            "shifted the wrong way",
            f"{_LOG}\n    targets = tokens[:, 1:]",
            "torch.log_softmax(logits[:, 1:], dim=-1)\n    targets = tokens[:, :-1]",
            "Each position is compared with the token before it. Which one comes next?",
        ),
        Mistake(
            "one pair left out",
            f"{_LOG}\n    targets = tokens[:, 1:]",
            "torch.log_softmax(logits[:, :-1][:, 1:], dim=-1)\n    targets = tokens[:, 2:]",
            "The second token of each row is not counted, though the first position predicts it.",
        ),
        Mistake(
            "only the last token",
            f"{_LOG}\n    targets = tokens[:, 1:]",
            "torch.log_softmax(logits[:, -2:-1], dim=-1)\n    targets = tokens[:, -1:]",
            "Only the last token of each row is counted. Every position predicts one.",
        ),
        Mistake(
            "mean over the batch only",
            _MEAN,
            "return (losses * counts).sum() / len(tokens)",
            "The losses of a row are summed and divided by the number of rows, so long rows cost "
            "more. The mean is over tokens.",
        ),
        Mistake(
            "sum",
            _MEAN,
            "return (losses * counts).sum()",
            "The losses are summed. Their mean is asked.",
        ),
        Mistake(
            "mean of the rows' means",
            _MEAN,
            "return ((losses * counts).sum(1) / counts.sum(1).clamp(min=1)).mean()",
            "Each row has the same weight, however much of it is padding. Each token should have.",
        ),
        Mistake(
            "padding counted",
            _COUNTS,
            "pass",
            "Padding is counted as if it were there to be predicted.",
        ),
        Mistake(
            "padding in the divisor",
            _MEAN,
            "return (losses * counts).sum() / counts.numel()",
            "Padding adds no loss, but it still counts in what the sum is divided by.",
        ),
        Mistake(
            "padding of the input",
            _COUNTS,
            "counts = tokens[:, :-1] != padding",
            "Positions that read padding are left out. Leave out those that should predict it.",
        ),
        Mistake(
            "padding 0 taken for none",
            "if padding is not None:",
            "if padding:",
            "A padding id of 0 is taken for no padding at all: 0 is false in an `if`.",
        ),
        Mistake(
            "division by zero",
            _MEAN,
            "return losses[counts].mean()",
            "Where every next token is padding, it divides by zero and the loss is NaN.",
        ),
        Mistake(
            "log of a softmax",
            _LOG,
            f"torch.log({_SHARES})",
            "The logarithm is taken of a softmax that has become 0, so the loss is infinite. Take "
            "the logarithm of the sum of exponentials instead.",
        ),
        Mistake(
            "epsilon in the logarithm",
            _LOG,
            f"torch.log({_SHARES} + 1e-9)",
            "A small number is added inside the logarithm. It hides the infinity, but the loss can "
            "no longer grow beyond about 20.",
        ),
        Mistake(
            "clipped shares",
            _LOG,
            f"torch.log({_SHARES}.clamp(min=1e-12))",
            "The shares are kept from becoming 0. That hides the infinity, but the loss can no "
            "longer grow beyond about 27, and no gradient comes from there.",
        ),
        Mistake(
            "logarithm to the base 2",
            _LOG,
            f"{_LOG} / math.log(2)",
            "The loss is in bits. Take natural logarithms.",
        ),
        Mistake(
            "softmax over positions",
            _LOG,
            "torch.log_softmax(logits[:, :-1], dim=1)",
            "The softmax runs over the positions. It should run over the vocabulary.",
        ),
        Mistake(
            "no softmax",
            _LOG,
            "logits[:, :-1]",
            "The logits are taken for logarithms of shares. They need not sum to anything.",
        ),
        Mistake(
            "first letter in the floor",
            "return (num_free - 1) *",
            "return num_free *",
            "The floor counts the first letter, but no position predicts it.",
        ),
        Mistake(
            "floor over all tokens",
            "math.log(num_letters) / (row_length - 1)",
            "math.log(num_letters) / row_length",
            "The floor is spread over all tokens of a row. One less is predicted.",
        ),
        Mistake(
            "floor in bits",
            "math.log(num_letters) / (row_length - 1)",
            "math.log2(num_letters) / (row_length - 1)",
            "The floor is in bits. Take the natural logarithm.",
        ),
        Mistake(
            "floor not averaged",
            _FLOOR,
            "return (num_free - 1) * math.log(num_letters)",
            "The floor is that of a whole row. Its mean over the predicted tokens is asked.",
        ),
        Mistake(
            "floor of the letters alone",
            _FLOOR,
            "return math.log(num_letters)",
            "The floor is that of a position that predicts a random letter. At the others the best "
            "model loses nothing.",
        ),
    ),
    hints=(
        "The logits at position 0 have read one token. Which token are they about?",
        "Cut both: all logits but the last position, all tokens but the first. Now they face each "
        "other.",
        "−log softmax(z)[i] = log Σ exp(z) − z[i], and the sum can be taken without overflow if "
        "the maximum of z is taken out first. `gather` picks one number from each row.",
        "Make a boolean of the tokens that count, sum the losses there, divide by how many there "
        "are, or by 1 if there are none. For the floor: how many of the random letters are "
        "predicted at all, and what does each cost at best?",
    ),
    banned=("cross_entropy", "CrossEntropyLoss", "nll_loss", "NLLLoss"),
    picture=draw_picture,
)
