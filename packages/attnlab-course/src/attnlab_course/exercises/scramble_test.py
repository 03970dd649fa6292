"""Scramble the encoder's input in every order, and see whether the decoder notices."""

# %% [course]
import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise, GivenObject
from attnlab_course.material.pictures import draw_lines
from attnlab_course.material.tensors import inputs_check

# %% [markdown]
# # The scramble test
#
# An encoder without positions holds a set: it cannot know in which order its tokens came. That is a
# claim about all orders, so test it in all of them: put the source's tokens in every order and
# compare what the decoder writes, and its logits, with those of the original. A test that cannot
# fail shows nothing, so a model with positions, which must fail it, belongs to it. The picture has
# both models in all orders of four tokens: how far the logits are from those of the original.
#
# ![orders](scramble_test.svg)
#
# **Write** `scramble_test(model, source, target)`. It returns three whole numbers:
#
# | | |
# | --- | --- |
# | orders | how many orders were tried |
# | same outputs | in how many of them `decode` writes the same as for the original |
# | same logits | in how many of them the logits are those of the original, up to rounding |
#
# | | |
# | --- | --- |
# | `source` | (length,), the encoder's token ids: different tokens, then PAD (id 0), if any |
# | `target` | (length,), the decoder's token ids; they stay as they are |
# | `model(source, target)` | logits (batch, target length, vocabulary) for ids with a batch axis |
# | `decode(model, source)` | what the model writes for one source (length,), a list |
#
# * Every order of the tokens that are not PAD counts, the original one too: n tokens have n!
#   orders. PAD stays at the end.
# * A sum in another order is rounded in another way. So logits count as the same when
#   `torch.allclose` says so with `rtol=1e-6, atol=1e-6`: the last digits may differ, no more.
# * `source` and `target` are not changed.
#
# The model and `decode` are given.

# %%
import itertools

import torch

PAD, START, END = 0, 1, 2


# %%
# Given: leave this cell as it is.
class Reader(torch.nn.Module):
    """Read a source as a mean over its tokens, and say what comes after each target token.

    Args:
        tokens: (vocabulary, width), what each token is.
        positions: (longest, width), what each place of the source adds to it.
        output: (width, vocabulary).
    """

    def __init__(self, tokens, positions, output):
        super().__init__()
        self.tokens, self.positions, self.output = tokens, positions, output

    def forward(self, source, target):
        """Return logits (batch, target length, vocabulary)."""
        real = (source != PAD).unsqueeze(-1)
        x = torch.tanh(self.tokens[source] + self.positions[: source.shape[1]])
        memory = (x * real).sum(dim=1, keepdim=True) / real.sum(dim=1, keepdim=True)
        return torch.tanh(3 * memory + self.tokens[target].cumsum(dim=1)) @ self.output


def decode(model, source, most=3):
    """Return the likeliest tokens for a source (length,), one after the other."""
    written = []
    while len(written) < most:
        logits = model(source[None], torch.tensor([[START, *written]]))
        written.append(int(logits[0, -1].argmax()))
        if written[-1] == END:
            break
    return written


# %%
def scramble_test(model, source, target):
    """Return the numbers of orders, of the same outputs and of the same logits."""
    # >>> solution
    length = int((source != PAD).sum())
    first_output = decode(model, source)
    first_logits = model(source[None], target[None])
    orders = same_outputs = same_logits = 0
    for order in itertools.permutations(range(length)):
        scrambled = source.clone()
        scrambled[:length] = source[list(order)]
        logits = model(scrambled[None], target[None])
        orders += 1
        same_outputs += decode(model, scrambled) == first_output
        same_logits += torch.allclose(logits, first_logits, rtol=1e-6, atol=1e-6)
    return orders, same_outputs, same_logits
    # <<< solution


# %% [hints]
# 1. How many orders do four tokens have, and does one of them show anything about the others?
# 2. `itertools.permutations(range(n))` goes through all orders of n positions.
# 3. Two lines of comparison for each order: lists with ==, logits with `torch.allclose`. Both
#    with what the original gave, computed once before the loop.
# 4. Count the real tokens; keep the original's output and logits; for each order make a new
#    source with its real tokens in that order and PAD behind; compare and count.

# %% [mistakes]
# ## exactly equal: The logits are compared to the last digit. A sum in another order is rounded in
# another way, so a right model fails by chance.
# - torch.allclose(logits, first_logits, rtol=1e-6, atol=1e-6)
# + torch.equal(logits, first_logits)
# ## too tolerant: The tolerance is so large that real differences count as rounding.
# - torch.allclose(logits, first_logits, rtol=1e-6, atol=1e-6)
# + torch.allclose(logits, first_logits, rtol=0.01, atol=0.01)
# ## outputs for logits: Only the likeliest tokens are compared where the logits should be: the
# likeliest token can stay while all numbers change.
# - torch.allclose(logits, first_logits, rtol=1e-6, atol=1e-6)
# + torch.equal(logits.argmax(dim=-1), first_logits.argmax(dim=-1))
# ## one order only: Only one other order is tried. A claim about every order needs every order.
# - itertools.permutations(range(length))
# + [list(range(length))[::-1]]
# ## PAD scrambled too: PAD is scrambled like a token. It is no part of the text and stays at the
# end.
# - int((source != PAD).sum())
# + len(source)

# %% [course]
VOCAB, WIDTH = 9, 11


def oracle(parts, source, target):
    """Tell for each order: is the output the same, how far are the logits off, the likeliest?"""
    model, target = Reader(*map(T.from_numpy, parts)), T.tensor([target])
    same, gaps, likeliest = [], [], []
    for order in map(T.tensor, itertools.permutations(source)):
        others, output = model(order[None], target)[0], decode(model, order)
        if not same:  # the original order
            logits, first_output = others, output
        same.append(output == first_output)
        gaps.append(float((others - logits).abs().max()))
        likeliest.append(bool((others.argmax(dim=1) == logits.argmax(dim=1)).all()))
    return np.array(same), np.array(gaps), np.array(likeliest)


def sample_parts(random, size, positions):
    """Sample a model, and a source of some tokens."""
    tokens = random.normal(size=(VOCAB, WIDTH))
    places = random.normal(size=(7, WIDTH)) * positions
    output = random.normal(size=(WIDTH, VOCAB))
    source = (random.permutation(VOCAB - 3)[:size] + 3).tolist()
    return (tokens, places, output), source


def case(random, size, positions=0.0, pad=0, accept=None, **more):
    """Sample a model and a source until the outputs in all orders are of the kind wanted."""
    for _ in range(1000):
        parts, source = sample_parts(random, size, positions)
        target = random.integers(3, VOCAB, size=3).tolist()
        same, gaps, likeliest = oracle(parts, source, target)
        if accept is None or accept(same, gaps, likeliest):
            break
    ids = T.tensor(source + [0] * pad)
    model = GivenObject("Reader", tuple(map(T.from_numpy, parts)))
    return Case("scramble_test", (model, ids, T.tensor(target)), **more)


def no_positions(random):
    """An encoder that holds a set."""
    yield case(random, 2, words="with two tokens and no positions")

    def is_rounded(same, gaps, likeliest):
        return (gaps > 0).sum() > 8

    words = "with four tokens and no positions"
    yield case(random, 4, accept=is_rounded, words=words)


def control(random):
    """An encoder with positions, which must be caught."""

    def is_mixed(same, gaps, likeliest):
        some = 1 < same.sum() < len(same) - 1 and not same[-1]
        return some and 1 < likeliest.sum() < len(same) and np.sort(gaps)[1] > 0.1

    yield case(random, 3, 3.0, accept=is_mixed, words="with positions in the encoder")


def faint_positions(random):
    """Positions so faint that the outputs stay the same."""

    def is_faint(same, gaps, likeliest):
        return same.all() and np.sort(gaps)[1] > 2e-5 and gaps.max() < 0.01

    words = "with faint positions in the encoder"
    yield case(random, 3, 1e-3, accept=is_faint, words=words)


def padded(random):
    """PAD behind the tokens."""
    yield case(random, 3, pad=1, words="with PAD behind the tokens")


def one_token(random):
    """A single token."""
    yield case(random, 1, words="with a single token")


def draw_picture(names):
    """Draw the differences of the logits in all orders, for both models."""
    random = np.random.default_rng(3)
    parts, source = sample_parts(random, 4, 1.0)
    curves = {}
    for name, positions in (("without positions", 0 * parts[1]), ("with positions", parts[1])):
        _, curves[name], _ = oracle((parts[0], positions, parts[2]), source, [3, 4])
    axes = ("order", "largest difference of a logit")
    return draw_lines("The 24 orders of four tokens", axes, range(1, 25), curves, from_zero=True)


EXERCISE = Exercise(
    "The scramble test",
    level=3,
    minutes=25,
    needs=("greedy_decode",),
    checks=(
        Check("no positions", "finds no order that a set would notice", no_positions, points=2),
        Check("control", "finds the orders that positions tell apart", control, points=2),
        Check("faint positions", "sees small differences of the logits", faint_positions),
        Check("padding", "leaves PAD at the end", padded),
        Check("one token", "works for a single token", one_token),
        inputs_check(padded),
    ),
    picture=draw_picture,
    results=("orders", "same outputs", "same logits"),
)
