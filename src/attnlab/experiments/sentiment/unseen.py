"""A control for leaks: a short training, done twice, between which nothing but the test texts is exchanged."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from attnlab import seeds
from attnlab.experiments.experiment import Run
from attnlab.experiments.sentiment import training
from attnlab.experiments.sentiment.config import NAME, ModelName, SentimentConfig
from attnlab.experiments.sentiment.data import Arrangement, Data
from attnlab.tasks.texts import LabelledText, Split

__all__ = ["EPOCHS", "Unseen", "exchange_test_texts"]

EPOCHS = 2
_MOST_TRAINING, _MOST_HELD = 400, 100  # texts of the short training, and of each part held out


class Unseen(NamedTuple):
    """What came out differently, such as "weights of best", and how many texts there were."""

    differences: list[str]
    num_training: int
    num_exchanged: int


def exchange_test_texts(config: SentimentConfig, data: Data, context: Run) -> Unseen:
    """Train each model shortly, with the test texts and with nonsense of other labels in their place, and compare."""
    parts = zip(data.fair.split, (_MOST_TRAINING, _MOST_HELD, _MOST_HELD), strict=True)
    split = Split(*(_drawn(part, most, context.seed) for part, most in parts))
    exchanged = split._replace(test=_nonsense(split.test, data.classes))
    short = dataclasses.replace(config, seeds=1, epochs=EPOCHS, best_epochs=EPOCHS, patience=EPOCHS)
    quiet = Run(context.seed, context.observer)
    differences = []
    names: list[ModelName] = ["mini", "best"]
    for name in names:
        one, other = (_course(name, short, each, data.classes, quiet) for each in (split, exchanged))
        differences += [f"{what} of {name}" for what in one if one[what] != other[what]]
    return Unseen(differences, len(split.train), len(split.test))


def _course(
    name: ModelName, config: SentimentConfig, split: Split, classes: tuple[str, ...], context: Run
) -> dict[str, object]:
    """Go all the way from the texts to a trained model, and write down what must not depend on the test texts."""
    prepared = training.prepare(name, config, Arrangement("of a few texts", split, 0), classes)
    model = training.build(prepared, config, context.seed, 0)
    found: dict[str, object] = {"tokenizer": prepared.tokenizer.to_mapping(), "initial weights": _bytes_of(model)}
    trained = training.train_model(model, prepared, config, context, 0).trained
    return found | {"losses": trained.metrics, "best step": trained.best_step, "weights": _bytes_of(model)}


def _bytes_of(model: nn.Module) -> list[bytes]:
    return [value.numpy().tobytes() for value in model.state_dict().values()]


def _drawn(rows: Sequence[LabelledText], most: int, seed: int) -> list[LabelledText]:
    order = torch.randperm(len(rows), generator=seeds.generator(seed, NAME, "unseen"))[:most]
    return [rows[place] for place in order.tolist()]


def _nonsense(rows: Sequence[LabelledText], classes: Sequence[str]) -> list[LabelledText]:
    """Write a text of other words for each row, some longer than others, with the class after its own."""
    after = dict(zip(classes, [*classes[1:], classes[0]], strict=True))
    return [LabelledText(f"zq{number} xw " * (1 + number % 3), after[row.label]) for number, row in enumerate(rows)]
