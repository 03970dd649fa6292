"""What the claims measure: the effect of padding, sums of weights, and a control for leaks.

The control compares two short trainings that differ in nothing but the test texts.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from attnlab import seeds
from attnlab.experiments.experiment import Run
from attnlab.experiments.sentiment import fit
from attnlab.experiments.sentiment.config import MODELS, NAME, ModelName, SentimentConfig
from attnlab.experiments.sentiment.data import Arrangement, Data
from attnlab.experiments.sentiment.fit import Outcome
from attnlab.experiments.sentiment.models import Coded, make_batch
from attnlab.look.recording import record
from attnlab.tasks.texts import LabelledText, Split

PADDINGS = (1, 7, 64)
"""Tokens of padding added to a text."""
_MOST_PADDED = 100  # texts that are read with other paddings
_MOST_WEIGHED = 64  # texts whose weights are summed
_EPOCHS = 2
_MOST_TRAINING, _MOST_HELD = 400, 100  # texts of the short training, and of each part held out


@dataclass
class PaddingEffect:
    """The effect of padding: the largest difference of a logit, and the verdicts that changed.

    pads: the PAD tokens that were added, over all texts and paddings, by model.
    """

    difference: float = 0.0
    turned: int = 0
    num_texts: int = 0
    pads: Counter[str] = field(default_factory=Counter)


@dataclass
class WeightSums:
    """Sums of attention weights: largest distance from 1, and largest weight on PAD."""

    from_one: float = 0.0
    on_padding: float = 0.0
    num_rows: int = 0
    pads: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class LeakControl:
    """The differences between the trainings, such as "weights of best", and the sizes."""

    differences: list[str]
    num_training: int
    num_exchanged: int
    num_epochs: int = _EPOCHS


@torch.no_grad()
def padding_changes(outcome: Outcome) -> PaddingEffect:
    """Compare the logits of texts without padding and with padding of several lengths.

    Texts are cut to half of the maximal length, so that there is room for padding.
    """
    effect = PaddingEffect()
    for name, prepared in outcome.prepared.items():
        model, most = outcome.models[name][0].model, prepared.tokenizer.max_length
        ids_of = [ids[: most // 2] for ids in prepared.test.ids[:_MOST_PADDED]]
        coded = Coded(ids_of, prepared.test.labels[:_MOST_PADDED])
        effect.num_texts = len(ids_of)
        for place, ids in enumerate(ids_of):
            alone = model(ids.unsqueeze(0), real=torch.ones(1, len(ids), dtype=torch.bool))[0]
            for more in PADDINGS:
                batch = make_batch(coded, [place], length=min(len(ids) + more, most))
                padded = model(batch.tokens, real=batch.real)[0]
                effect.difference = max(effect.difference, float((padded - alone).abs().max()))
                effect.turned += int(padded.argmax() != alone.argmax())
                effect.pads[name] += int((~batch.real).sum())
    return effect


@torch.no_grad()
def sum_weights(outcome: Outcome) -> WeightSums:
    """Sum every row of weights, in pairs of a whole text and one cut to half."""
    sums = WeightSums()
    for name, prepared in outcome.prepared.items():
        model, most = outcome.models[name][0].model, prepared.tokenizer.max_length
        whole = prepared.test.ids[:_MOST_WEIGHED]
        ids_of = [ids[: most // 2] if place % 2 else ids for place, ids in enumerate(whole)]
        coded = Coded(ids_of, prepared.test.labels[:_MOST_WEIGHED])
        for first in range(0, len(ids_of), 2):
            pair = range(first, min(first + 2, len(ids_of)))
            length = 1 + max(len(ids_of[place]) for place in pair)
            batch = make_batch(coded, pair, length=min(length, most))
            sums.pads[name] += int((~batch.real).sum())
            with record(model, "layers.*.attention.weights") as recording:
                model(batch.tokens, real=batch.real)
            for weights in recording.values():
                on_padding = weights * ~batch.real[:, None, None, :]
                from_one = (weights.sum(-1) - 1.0).abs()
                sums.from_one = max(sums.from_one, float(from_one.max()))
                sums.on_padding = max(sums.on_padding, float(on_padding.max()))
                sums.num_rows += weights[..., 0].numel()
    return sums


def exchange_test_texts(config: SentimentConfig, data: Data, context: Run) -> LeakControl:
    """Train each model shortly, with the test texts and with nonsense instead, and compare."""
    parts = zip(data.fair.split, (_MOST_TRAINING, _MOST_HELD, _MOST_HELD), strict=True)
    split = Split(*(_drawn(part, most, context.seed) for part, most in parts))
    exchanged = split._replace(test=_nonsense(split.test, data.classes))
    short = dataclasses.replace(
        config, seeds=1, epochs=_EPOCHS, best_epochs=_EPOCHS, patience=_EPOCHS
    )
    quiet = Run(context.seed, context.observer)
    differences = []
    for name in MODELS:
        one = _course(name, short, split, data.classes, quiet)
        other = _course(name, short, exchanged, data.classes, quiet)
        differences += [f"{what} of {name}" for what in one if one[what] != other[what]]
    return LeakControl(differences, len(split.train), len(split.test))


def _course(
    name: ModelName, config: SentimentConfig, split: Split, classes: tuple[str, ...], context: Run
) -> dict[str, object]:
    """Train a model from the texts; return everything that must not depend on the test texts."""
    prepared = fit.prepare(name, config, Arrangement("of a few texts", split), classes)
    model = fit.build(prepared, config, context.seed, 0)
    initial = _bytes_of(model)
    trained = fit.train_model(model, prepared, config, context, 0).trained
    return {
        "tokenizer": prepared.tokenizer.to_mapping(),
        "initial weights": initial,
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
    differences = []
    for number, row in enumerate(rows):
        text = f"zq{number} xw " * (1 + number % 3)
        differences.append(LabelledText(text, after[row.label]))
    return differences
