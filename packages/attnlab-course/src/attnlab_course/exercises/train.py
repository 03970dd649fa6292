"""Train for some epochs, validate after each, and keep the best weights."""

# %% [course]
from dataclasses import replace

import numpy as np
import torch as T

from attnlab_course.exercise import Case, Check, Exercise, Failure, GivenObject
from attnlab_course.material.pictures import draw_lines
from attnlab_course.material.tensors import sample_state, shape_failure

# %% [markdown]
# # Training with validation
#
# An epoch is one pass over the training batches. After each epoch the model is asked about texts
# that it never learns from: when their loss goes up again, it begins to learn its training texts by
# heart. So the weights of the best epoch are kept, not the last ones. The picture shows both losses
# of a tiny model; the level marks the epoch whose weights are kept.
#
# ![losses](train.svg)
#
# **Write** `train(model, optimizer, training, validation, epochs)`. It returns the history.
#
# | | |
# | --- | --- |
# | `training`, `validation` | lists of batches `(ids, labels)`; batches may differ in size |
# | `ids`, `labels` | (batch, length) and (batch,) |
# | logits | (batch, classes), what `model(ids)` returns |
# | history | a list, for each epoch a dictionary of three numbers, with the keys below |
#
# * An epoch asks the model about each training batch once, in order and in training mode, and takes
#   a step of the optimizer after each: clear the gradients, cross-entropy, backward, step.
# * Then it asks about each validation batch once, in order, in **evaluation mode and without
#   gradients**. The model learns nothing from them.
# * `"training_loss"` is the mean of the losses of all training texts, each as it was when its
#   batch's turn came; `"validation_loss"` and `"validation_accuracy"` (0 to 1) are means over all
#   validation texts. A text of a small batch counts as much as one of a large batch.
# * In the end the model has the weights of the epoch with the lowest validation loss, the first of
#   them if there are several. In which mode it ends does not matter. `epochs` is 1 or more.
#
# The model and `run_training` are given; the checks call `run_training`.

# %%
import copy
import math

import torch
from torch import nn
from torch.nn import functional as F


# %%
# Given: leave this cell as it is. The model notes its calls.
class TextModel(nn.Module):
    """Classify texts by the mean of their embeddings."""

    def __init__(self, vocab_size, width, classes):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.output = nn.Linear(width, classes)
        self.calls = []

    def forward(self, ids):
        """Return logits (batch, classes) for ids (batch, length)."""
        self.calls.append([self.training, torch.is_grad_enabled()])
        return self.output(self.embedding(ids).mean(dim=1))

    def load_state_dict(self, *args, **settings):
        """Load parameters, and note that some were loaded."""
        self.is_loaded = True
        return super().load_state_dict(*args, **settings)


def run_training(model, training, validation, epochs, rate):
    """Call your function; return its history, the parameters and how the model was used."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    model.is_loaded = False
    history = train(model, optimizer, training, validation, epochs)
    return history, dict(model.named_parameters()), model.calls, model.is_loaded


# %%
def train(model, optimizer, training, validation, epochs):
    """Train, keep the best weights in the model, and return the history."""
    # >>> solution
    history, best_loss, best = [], math.inf, None
    for _ in range(epochs):
        model.train()
        total = texts = 0
        for ids, labels in training:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(ids), labels)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
            texts += len(labels)
        training_loss = total / texts
        model.eval()
        total = right = texts = 0
        with torch.no_grad():
            for ids, labels in validation:
                logits = model(ids)
                total += F.cross_entropy(logits, labels).item() * len(labels)
                right += (logits.argmax(dim=-1) == labels).sum().item()
                texts += len(labels)
        validation_loss, accuracy = total / texts, right / texts
        history.append(
            {
                "training_loss": training_loss,
                "validation_loss": validation_loss,
                "validation_accuracy": accuracy,
            }
        )
        if validation_loss < best_loss:
            best_loss = validation_loss
            best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return history
    # <<< solution


# %% [hints]
# 1. What may differ between training and validating, beside the texts? There are two things.
# 2. A model's mode stays as it is until it is changed. `state_dict` shows the parameters
#    themselves, which go on changing.
# 3. To get means over texts from means over batches: multiply each by the batch's size, add up,
#    divide by the number of texts.
# 4. For each epoch: training mode; a step for each batch; evaluation mode; under no_grad the
#    validation; an entry for the history; a copy of the weights if the loss is the lowest so
#    far. After the last epoch load the copy.

# %% [mistakes]
# ## best weights by reference: What was kept as the best weights changed with every later step:
# `state_dict` returns references to the parameters, not a copy.
# - best = copy.deepcopy(model.state_dict())
# + best = model.state_dict()
# ## not back in training mode: After the first validation the model stays in evaluation mode, so
# from the second epoch on no dropout works.
# -     for _ in range(epochs):
# -         model.train()
# +     model.train()
# +     for _ in range(epochs):
# ## validation batches counted alike: The validation figures are means over batches, so that of a
# small batch counts more.
# -                 total += F.cross_entropy(logits, labels).item() * len(labels)
# -                 right += (logits.argmax(dim=-1) == labels).sum().item()
# -                 texts += len(labels)
# +                 total += F.cross_entropy(logits, labels).item()
# +                 right += (logits.argmax(dim=-1) == labels).double().mean().item()
# +                 texts += 1

# %% [course]
VOCAB, WIDTH, CLASSES = 9, 3, 2
E, W, B = "embedding.weight", "output.weight", "output.bias"
KEYS = ("training_loss", "validation_loss", "validation_accuracy")


def sample(random):
    """Sample the parameters of a model, as arrays."""
    state = sample_state(random, TextModel(VOCAB, WIDTH, CLASSES))
    return {name: tensor.numpy() for name, tensor in state.items()}


def ask(state, batch):
    """Return the mean loss of a batch, how many are right, and the gradients."""
    ids, labels = batch
    hidden = state[E][ids].mean(axis=1)
    logits = hidden @ state[W].T + state[B]
    logits -= logits.max(axis=1, keepdims=True)
    grown = np.exp(logits)
    total = grown.sum(axis=1, keepdims=True)
    losses = np.log(total[:, 0]) - logits[range(len(labels)), labels]
    error = (grown / total - np.eye(CLASSES)[labels]) / len(labels)
    slopes = {E: np.zeros_like(state[E]), W: error.T @ hidden, B: error.sum(axis=0)}
    np.add.at(slopes[E], ids, (error @ state[W])[:, None] / ids.shape[1])
    return losses.mean(), (logits.argmax(axis=1) == labels).sum(), slopes


def oracle(state, training, validation, epochs, rate):
    """Train by hand; return the history and the weights after each epoch."""
    history, states = [], []
    for _ in range(epochs):
        losses = []
        for batch in training:
            loss, _, slopes = ask(state, batch)
            losses += [loss] * len(batch[1])
            state = {name: array - rate * slopes[name] for name, array in state.items()}
        replies = [(*ask(state, batch)[:2], len(batch[1])) for batch in validation]
        count = sum(size for *_, size in replies)
        entry = {
            "training_loss": float(np.mean(losses)),
            "validation_loss": float(sum(loss * size for loss, _, size in replies) / count),
            "validation_accuracy": float(sum(right for _, right, _ in replies) / count),
        }
        history.append(entry)
        states.append(state)
    return history, states


def sample_batches(random, sizes, vocab=VOCAB):
    """Sample batches of these sizes, each with texts of one length."""
    batches = []
    for number, size in enumerate(sizes):
        ids = random.integers(vocab, size=(size, 2 + number % 2))
        batches.append((ids, random.integers(CLASSES, size=size)))
    return batches


def case(random, sizes, epochs, wanted, is_special=None, rate=1.0, **more):
    """Sample a model and its data; draw again until the history is of the kind that is wanted."""
    while True:
        state = sample(random)
        training, validation = (sample_batches(random, part) for part in sizes)
        if is_special is is_telling:  # the first batch again, with the opposite labels
            training.append((training[0][0], 1 - training[0][1]))
        history, states = oracle(state, training, validation, epochs, rate)
        if is_special is None or is_special(history, states):
            return made_case(state, (training, validation), epochs, wanted, rate, **more)


def made_case(state, parts, epochs, wanted, rate, **more):
    """Ask for the training of a model on these batches, and compare what is wanted."""
    tensors = {name: T.from_numpy(array) for name, array in state.items()}
    model = GivenObject("TextModel", (VOCAB, WIDTH, CLASSES), state=tensors)
    data = [[tuple(map(T.from_numpy, batch)) for batch in part] for part in parts]
    only = (("history", "best", "calls").index(wanted),)
    return Case("run_training", (model, *data, epochs, rate), only=only, tolerance=1e-5, **more)


def one_epoch(random):
    """One epoch over batches of one size, and of different sizes."""
    yield case(random, ((2,), (3,)), 1, "history")
    yield case(random, ((2, 2), (3, 3)), 1, "history")

    def is_uneven(history, states):  # so that the mean of the accuracies can be told
        return 0 < history[0]["validation_accuracy"] < 1

    words = "with batches of 4 and 1 texts"
    yield case(random, ((4, 1), (4, 1)), 1, "history", is_uneven, words=words)


def is_bumpy(history, states):
    """Whether the validation loss goes up after the first epoch, which is not the last."""
    losses = [entry["validation_loss"] for entry in history]
    return losses[1] > losses[0] + 1e-3


def epochs(random):
    """Several epochs."""
    yield case(random, ((3, 3), (5,)), 3, "history", is_bumpy, words="over three epochs")


def is_telling(history, states):
    """Whether the best epoch is clearly another one than by any other rule."""
    training, losses, accuracy = (np.array([entry[key] for entry in history]) for key in KEYS)
    best, trained = states[losses.argmin()][E], states[training.argmin()][E]
    others = [states[n][E] for n in (-1, training.argmin(), losses.argmax(), accuracy.argmax())]
    pairs = [(best, other) for other in others] + [(trained, states[-1][E])]
    are_apart = all(np.abs(one - other).max() > 1e-2 for one, other in pairs)
    return are_apart and np.diff(np.sort(losses)[:2])[0] > 1e-3


def best_weights(random):
    """A validation loss that goes up in the end."""
    words = "where the validation loss is lowest before the last epoch"
    yield case(random, ((2, 2), (5,)), 6, "best", is_telling, rate=2.0, words=words)


def ties(random):
    """Two epochs with the same validation loss, 0; only the weights of the second are refused.

    The last token is in validation texts only, so its row can be chosen in the end: with it both
    classes are told apart by 1000 after two epochs, and are exchanged after the third.
    """
    leads = np.zeros((3, WIDTH))
    while np.linalg.cond(leads) > 1e6:
        state = sample(random)
        training = sample_batches(random, (3, 3), VOCAB - 1)
        last = [(np.full((2, 2), VOCAB - 1), np.array([1, 1]))]
        _, states = oracle(state, training, last, 3, 1.0)
        leads = np.array([weights[W][1] - weights[W][0] for weights in states])
    state[E][-1] = np.linalg.solve(leads, [1000.0, 1000.0, -1000.0])
    second = states[1][E]

    def judge(answer):
        table = answer[1][E]
        if np.allclose(table[:-1], second[:-1], 1e-5, 1e-5):
            return Failure("it ends with the weights of the second epoch; the first is as good")
        return shape_failure(table, second.shape)

    made = made_case(state, (training, last), 3, "best", 1.0)
    words = "where the first two of three epochs have the same validation loss, 0"
    yield replace(made, judge=judge, words=words)


def modes(random):
    """How the model is asked."""
    words = "noting for each call of the model whether it was in training mode, with gradients"
    yield case(random, ((2, 2), (3, 3)), 2, "calls", words=words)


def draw_picture(names):
    """Draw the losses of a tiny model that begins to learn by heart."""
    from attnlab.draw.sections import Level

    random, curves = np.random.default_rng(2), {}
    parts = [sample_batches(random, sizes) for sizes in ((7, 7), (9,))]
    history, _ = oracle(sample(random), *parts, 14, 0.3)
    for name in ("training", "validation"):
        curves[name] = [entry[f"{name}_loss"] for entry in history]
    levels = [Level(name="lowest validation loss", y=min(curves["validation"]))]
    labels = ("epoch", "loss (nats per text)")
    return draw_lines("Fourteen epochs", labels, range(1, 15), curves, levels=levels)


EXERCISE = Exercise(
    "Training with validation",
    level=3,
    minutes=40,
    needs=("training_step", "batches"),
    checks=(
        Check("one epoch", "tells the losses and the accuracy of an epoch", one_epoch, points=2),
        Check("epochs", "goes on learning from epoch to epoch", epochs, points=2),
        Check("best weights", "ends with the weights of the best epoch", best_weights, points=2),
        Check("ties", "keeps the first of several best epochs", ties, side=True),
        Check("modes", "trains and validates in the right mode", modes),
    ),
    picture=draw_picture,
)
