"""Training and judging the two models: several seeds on one split, each with its curves and its answers."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab import seeds
from attnlab.experiments.experiment import Run
from attnlab.experiments.sentiment.coding import Batch, Coded, code, epoch_batches, ordered_batches
from attnlab.experiments.sentiment.config import NAME, ModelName, SentimentConfig
from attnlab.experiments.sentiment.data import Arrangement
from attnlab.experiments.sentiment.models import build_best, build_mini, build_tokenizer, hide_words
from attnlab.models.encoder import Encoder
from attnlab.tasks.tokenizers import TextTokenizer
from attnlab.train.loop import Judgement, Trained, train

__all__ = ["Prepared", "TrainedModel", "answer", "build", "make_judge", "prepare", "train_model", "watched_texts"]

_MOST_WATCHED = 1_000  # training texts on which the accuracy is watched


class Prepared(NamedTuple):
    """A split as a model reads it; the tokenizer has seen the training texts alone."""

    name: ModelName
    arrangement: Arrangement
    tokenizer: TextTokenizer
    classes: tuple[str, ...]
    train: Coded
    validation: Coded
    test: Coded


class TrainedModel(NamedTuple):
    """One training: the model with its best weights, its curves, and its answers on the test texts.

    probabilities: (texts, classes) · correct and correct_before, which is before any training: (texts,) boolean.
    """

    model: Encoder
    trained: Trained
    probabilities: Tensor
    correct: Tensor
    correct_before: Tensor

    @property
    def accuracy(self) -> float:
        """Share of the test texts that are right."""
        return float(self.correct.double().mean())

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """What was judged after each epoch."""
        return [line for line in self.trained.metrics if "accuracy" in line]


def prepare(name: ModelName, config: SentimentConfig, arrangement: Arrangement, classes: tuple[str, ...]) -> Prepared:
    """Build a model's tokenizer from the training texts, and code all texts."""
    tokenizer = build_tokenizer(name, config, arrangement.split.train)
    parts = [code(rows, tokenizer, classes) for rows in arrangement.split]
    return Prepared(name, arrangement, tokenizer, classes, *parts)


def build(prepared: Prepared, config: SentimentConfig, seed: int, member: int) -> Encoder:
    """Make one model with its initial weights."""
    size, num_classes = prepared.tokenizer.vocab_size, len(prepared.classes)
    if prepared.name == "mini":
        return build_mini(config, size, num_classes, seed, member)
    return build_best(config, size, num_classes, prepared.train, seed, member)


def train_model(
    model: Encoder, prepared: Prepared, config: SentimentConfig, context: Run, member: int, *, is_main: bool
) -> TrainedModel:
    """Train one model on a split, and put it to the test texts."""
    name, where = prepared.name, prepared.arrangement.name
    num_texts = len(prepared.train.ids)
    context.stage(f"{name}, split {where}, training {member + 1} of {config.seeds}")
    correct_before = answer(model.eval(), prepared.test).argmax(-1) == prepared.test.labels

    def record(line: dict[str, Any]) -> None:
        context.record({"model": name, "split": where, "member": member, **line})

    with seeds.isolated(context.seed, NAME, "dropout", name, where, member):
        trained = train(
            model,
            config.train_config(name, num_texts),
            loss=_make_loss(prepared, config),
            judge=make_judge(prepared, watched_texts(prepared.train, context.seed)),
            generator=seeds.generator(context.seed, NAME, "data", name, where, member),
            stop=_make_stop(config.patience_for(num_texts) if name == "mini" else None),
            observer=context.observer,
            folder=context.checkpoints if is_main else None,
            record=record,
        )
    probabilities = answer(model, prepared.test)
    correct = probabilities.argmax(-1) == prepared.test.labels
    return TrainedModel(model, trained, probabilities, correct, correct_before)


def watched_texts(train: Coded, seed: int) -> Coded:
    """Draw the training texts on which the accuracy is watched; a file's order may follow its classes."""
    drawn = torch.randperm(len(train.ids), generator=seeds.generator(seed, NAME, "watched"))[:_MOST_WATCHED]
    places = drawn.sort().values
    return Coded([train.ids[place] for place in places.tolist()], train.labels[places])


def make_judge(prepared: Prepared, watched: Coded) -> Callable[[nn.Module], Judgement]:
    """Return what chooses the best epoch: the validation texts' accuracy, then their loss."""

    def judge(model: nn.Module) -> Judgement:
        found = _measured(model, prepared.validation)
        seen = _measured(model, watched)
        figures = {"accuracy": found[0], "validation_loss": found[1], "train_accuracy": seen[0], "train_loss": seen[1]}
        return Judgement((found[0], -found[1]), figures)

    return judge


@torch.no_grad()
def answer(model: nn.Module, coded: Coded) -> Tensor:
    """Return the probability of each class for each text: (texts, classes)."""
    order: list[int] = []
    found: list[Tensor] = []
    for places, batch in ordered_batches(coded):
        order += places
        found.append(model(batch.tokens, real=batch.real).softmax(-1))
    return torch.cat(found)[torch.tensor(order).argsort()]


def _make_loss(prepared: Prepared, config: SentimentConfig) -> Callable[[nn.Module, torch.Generator], Tensor]:
    """Return the loss of a training step: each epoch goes once through the texts, in a new order."""
    batch_size = config.batch_size if prepared.name == "mini" else config.best_batch_size
    batches: Iterator[Batch] = iter(())

    def loss(model: nn.Module, generator: torch.Generator) -> Tensor:
        nonlocal batches
        batch = next(batches, None)
        if batch is None:
            batches = epoch_batches(prepared.train, batch_size, generator)
            batch = next(batches)
        if prepared.name == "best":
            batch = hide_words(batch, config.word_dropout, generator)
        return F.cross_entropy(model(batch.tokens, real=batch.real), batch.labels)

    return loss


def _make_stop(patience: int | None) -> Callable[[Judgement], bool] | None:
    if patience is None:
        return None
    scores: list[tuple[float, ...]] = []

    def stop(judgement: Judgement) -> bool:
        scores.append(judgement.score)
        return len(scores) - 1 - scores.index(max(scores)) >= patience

    return stop


@torch.no_grad()
def _measured(model: nn.Module, coded: Coded) -> tuple[float, float]:
    """Return accuracy and mean loss."""
    probabilities = answer(model, coded)
    picked = probabilities.gather(1, coded.labels.unsqueeze(-1)).clamp(min=1e-12)
    return float((probabilities.argmax(-1) == coded.labels).double().mean()), float(-picked.log().mean())
