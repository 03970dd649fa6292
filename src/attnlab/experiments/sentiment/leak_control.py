"""A control for leaks: two short trainings that differ in nothing but the test texts."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from attnlab import seeds
from attnlab.experiments.experiment import Run
from attnlab.experiments.sentiment import fit
from attnlab.experiments.sentiment.config import NAME, ModelName, SentimentConfig
from attnlab.experiments.sentiment.data import Arrangement, Data
from attnlab.tasks.texts import LabelledText, Split

EPOCHS = 2
_MOST_TRAINING, _MOST_HELD = 400, 100  # texts of the short training, and of each part held out


@dataclass(frozen=True)
class LeakControl:
    """The differences between the trainings, such as "weights of best", and the sizes."""

    differences: list[str]
    num_training: int
    num_exchanged: int


def exchange_test_texts(config: SentimentConfig, data: Data, context: Run) -> LeakControl:
    """Train each model shortly, with the test texts and with nonsense instead, and compare."""
    parts = zip(data.fair.split, (_MOST_TRAINING, _MOST_HELD, _MOST_HELD), strict=True)
    split = Split(*(_drawn(part, most, context.seed) for part, most in parts))
    exchanged = split._replace(test=_nonsense(split.test, data.classes))
    short = dataclasses.replace(config, seeds=1, epochs=EPOCHS, best_epochs=EPOCHS, patience=EPOCHS)
    quiet = Run(context.seed, context.observer)
    differences = []
    names: list[ModelName] = ["mini", "best"]
    for name in names:
        one = _course(name, short, split, data.classes, quiet)
        other = _course(name, short, exchanged, data.classes, quiet)
        differences += [f"{what} of {name}" for what in one if one[what] != other[what]]
    return LeakControl(differences, len(split.train), len(split.test))


def _course(
    name: ModelName, config: SentimentConfig, split: Split, classes: tuple[str, ...], context: Run
) -> dict[str, object]:
    """Train a model from the texts; return everything that must not depend on the test texts."""
    prepared = fit.prepare(name, config, Arrangement("of a few texts", split, 0), classes)
    model = fit.build(prepared, config, context.seed, 0)
    found: dict[str, object] = {
        "tokenizer": prepared.tokenizer.to_mapping(),
        "initial weights": _bytes_of(model),
    }
    trained = fit.train_model(model, prepared, config, context, 0).trained
    return found | {
        "losses": trained.metrics,
        "best step": trained.best_step,
        "weights": _bytes_of(model),
    }


def _bytes_of(model: nn.Module) -> list[bytes]:
    return [value.numpy().tobytes() for value in model.state_dict().values()]


def _drawn(rows: Sequence[LabelledText], most: int, seed: int) -> list[LabelledText]:
    order = torch.randperm(len(rows), generator=seeds.generator(seed, NAME, "unseen"))[:most]
    return [rows[place] for place in order.tolist()]


def _nonsense(rows: Sequence[LabelledText], classes: Sequence[str]) -> list[LabelledText]:
    """Replace each row by a text of other words, of varying length, and with the next class."""
    after = dict(zip(classes, [*classes[1:], classes[0]], strict=True))
    return [
        LabelledText(f"zq{number} xw " * (1 + number % 3), after[row.label])
        for number, row in enumerate(rows)
    ]
