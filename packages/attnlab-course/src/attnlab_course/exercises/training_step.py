"""One step of training: clear, loss, backward, clip, step."""

# %% [course]
from dataclasses import replace

import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise, GivenObject
from attnlab_course.material.tensors import sample_state

# %% [markdown]
# # A training step
#
# Training is one small step, many times: ask the model, measure how wrong it is, find out which way
# each parameter should move, and move it a little. Each of the five parts is a line, and a wrong
# order still runs and still prints numbers that look like a loss.
#
# **Write** `training_step(model, optimizer, ids, targets, max_norm)`. It takes one step and returns
# the loss before the step, as a number.
#
# | | shape |
# | --- | --- |
# | `ids` | (batch, length), what the model gets |
# | logits | (batch, length, vocabulary), what `model(ids)` returns |
# | `targets` | (batch, length), the right token at each position; PAD (id 0) fills the rest |
#
# * The model may come in evaluation mode; the step is made in training mode. Ask the model once.
# * Gradients that are left from before do not count.
# * The loss is the cross-entropy, the mean over all targets of the batch that are not PAD. A target
#   that is PAD does not count at all. There is at least one other.
# * If the norm of all gradients taken together is larger than `max_norm`, they are scaled down to
#   it; otherwise they stay.
# * Then the optimizer makes one step.
#
# The model and `take_steps` are given; the checks call `take_steps`.

# %%
import torch
from torch import nn
from torch.nn import functional as F

PAD = 0


# %%
# Given: leave this cell as it is. The checks start from known parameters.
class TinyModel(nn.Module):
    """Give each token logits by itself. In training mode `drop` blanks every second column.

    `calls` counts how often it was called.
    """

    def __init__(self, vocab_size, width, drop=False):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.output = nn.Linear(width, vocab_size)
        self.drop = drop
        self.calls = 0

    def forward(self, ids):
        """Return logits (batch, length, vocabulary) for ids (batch, length)."""
        self.calls += 1
        hidden = self.embedding(ids)
        if self.training and self.drop:
            hidden = hidden * (torch.arange(hidden.shape[-1]) % 2)
        return self.output(hidden)


def take_steps(model, ids, targets, max_norm, rate, steps, left_over=False):
    """Take some steps with your function; return the results.

    These are the losses, the parameters afterwards, and how often the model was called.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    if left_over:
        model(ids).square().sum().backward()
    model.calls = 0
    losses = [training_step(model, optimizer, ids, targets, max_norm) for _ in range(steps)]
    losses = [float(torch.as_tensor(loss).detach()) for loss in losses]
    return losses, dict(model.named_parameters()), model.calls


# %%
def training_step(model, optimizer, ids, targets, max_norm):
    """Take one step and return the loss before it."""
    # >>> solution
    model.train()
    optimizer.zero_grad()
    logits = model(ids)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return loss.item()
    # <<< solution


# %% [hints]
# 1. Which of the five parts needs what another one leaves behind? That fixes the order.
# 2. PyTorch adds gradients up until they are cleared, and a model stays in the mode it was put
#    in last.
# 3. `F.cross_entropy` wants (tokens, vocabulary) and (tokens,), and can be told which target to
#    leave out.
# 4. Training mode; clear; logits and loss; backward; clip the norm; step; return the loss as a
#    plain number.


# %% [mistakes]
# ## gradients accumulate: Gradients of earlier steps are still there: PyTorch adds new ones to the
# old.
# - optimizer.zero_grad()
# + pass
# ## step before backward: The optimizer finds no gradients, so nothing moves: it steps before
# backward has made them, or they are cleared in between.
# -     loss.backward()
# -     nn.utils.clip_grad_norm_(model.parameters(), max_norm)
# -     optimizer.step()
# +     optimizer.step()
# +     loss.backward()
# +     nn.utils.clip_grad_norm_(model.parameters(), max_norm)
# ## left in evaluation mode: The model is in evaluation mode, so its dropout does nothing while it
# learns.
# - model.train()
# + model.eval()
# ## axes mixed up: The logits are brought to another shape by `reshape` or `view`, which keeps the
# order of the numbers and so mixes tokens up. Axes are exchanged by `transpose`.
# - logits.flatten(0, 1), targets.flatten()
# + logits.reshape(len(ids), logits.shape[-1], -1), targets
# ## softmax before the loss: The loss gets probabilities. It takes the softmax itself and wants the
# logits.
# - logits.flatten(0, 1)
# + torch.softmax(logits, dim=-1).flatten(0, 1)
# ## no clipping: Gradients that are too large are not scaled down: they are not clipped, or clipped
# before backward has made them, or after the step.
# - nn.utils.clip_grad_norm_(model.parameters(), max_norm)
# + pass
# ## values clipped: Each number of the gradients is clipped by itself, which changes their
# direction. The norm of all of them together should be.
# - clip_grad_norm_
# + clip_grad_value_
# ## clipped one by one: Each parameter is clipped by its own norm. It should be the norm of all
# together.
# - nn.utils.clip_grad_norm_(model.parameters(), max_norm)
# + [nn.utils.clip_grad_norm_(own, max_norm) for own in model.parameters()]


# %% [course]
def case(random, batch, length, pads=0, max_norm=1e3, steps=1, drop=False, **more):
    """Sample a model and a batch, with PAD at the end of the rows but the first."""
    vocab, width = 7, 4
    state = sample_state(random, TinyModel(vocab, width), 1.5)
    ids, targets = random.integers(1, vocab, size=(2, batch, length))
    for row in range(1, batch):
        ids[row, length - pads - row + 1 :] = targets[row, length - pads - row + 1 :] = 0
    if not pads:
        ids, targets = np.maximum(ids, 1), np.maximum(targets, 1)
    model = GivenObject("TinyModel", (vocab, width, drop), state=state)
    return Case(
        "take_steps",
        (model, T.from_numpy(ids), T.from_numpy(targets), max_norm, 0.3, steps),
        only=(0, 1),
        tolerance=1e-5,
        **more,
    )


def one_step(random):
    """Targets everywhere, gradients that are small enough."""
    yield case(random, 1, 2)
    yield case(random, 3, 4)


def fresh_gradients(random):
    """Several steps, and gradients that are there before the first."""
    yield case(random, 1, 3, steps=2, words="over two steps")
    words = "where gradients are left from before"
    yield case(random, 1, 3, settings={"left_over": True}, words=words)


def padding(random):
    """Rows of different lengths."""
    yield case(random, 3, 5, pads=1, words="with PAD among the targets")


def clipping(random):
    """Gradients of a norm above the largest."""
    yield case(random, 2, 3, max_norm=0.05, words="with gradients that are too large")


def training_mode(random):
    """A model that blanks columns in training mode only."""
    yield case(random, 2, 3, drop=True, words="with a model that came in evaluation mode")


def asked_once(random):
    """How often the model is asked, in two steps."""
    made = case(random, 1, 3, steps=2, words="counting how often the model is asked in two steps")
    yield replace(made, only=(2,))


def one_target(random):
    """A single token."""
    yield case(random, 1, 1, words="with a single token")


EXERCISE = Exercise(
    "A training step",
    level=2,
    minutes=20,
    needs=("next_token_loss",),
    checks=(
        Check("step", "returns the loss and moves the parameters", one_step, points=3),
        Check("fresh gradients", "begins without old gradients", fresh_gradients, points=2),
        Check("padding", "leaves targets that are PAD out of the loss", padding, points=2),
        Check("clipping", "scales gradients that are too large down", clipping),
        Check("training mode", "puts the model in training mode", training_mode),
        Check("asked once", "asks the model once in each step", asked_once),
        Check("one token", "works for a single token", one_target),
    ),
)
