"""The training and evaluation of the two models, with several seeds on one split."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab import seeds
from attnlab.experiments.experiment import MetricLine, Run
from attnlab.experiments.sentiment.config import NAME, ModelName, SentimentConfig
from attnlab.experiments.sentiment.data import Arrangement
from attnlab.experiments.sentiment.encoding import (
    Coded,
    code,
    epoch_order,
    make_batch,
    ordered_batches,
)
from attnlab.experiments.sentiment.models import build_best, build_mini, build_tokenizer, hide_words
from attnlab.models.encoder import Encoder
from attnlab.tasks.tokenizers import TextTokenizer
from attnlab.train import Evaluation, Member, Trained
from attnlab.train.loop import Draw

_MOST_WATCHED = 1_000  # training texts of an evaluation


@dataclass(frozen=True)
class Prepared:
    """A split as a model reads it; the tokenizer is built from the training texts alone."""

    name: ModelName
    arrangement: Arrangement
    tokenizer: TextTokenizer
    classes: tuple[str, ...]
    train: Coded
    validation: Coded
    test: Coded


@dataclass(frozen=True)
class TrainedModel:
    """One training: the model with its best weights, its curves, and its answers on the test texts.

    probabilities: (texts, classes). correct, and correct_before any training: (texts,) boolean.
    """

    model: Encoder
    trained: Trained
    probabilities: Tensor
    correct: Tensor
    correct_before: Tensor

    @property
    def answers(self) -> Tensor:
        """The answered class of each test text: (texts,)."""
        return self.probabilities.argmax(-1)

    @property
    def accuracy(self) -> float:
        """The accuracy on the test texts."""
        return float(self.correct.double().mean())

    @property
    def epochs(self) -> list[MetricLine]:
        """The evaluations after each epoch."""
        return [line for line in self.trained.metrics if "accuracy" in line]


def prepare(
    name: ModelName, config: SentimentConfig, arrangement: Arrangement, classes: tuple[str, ...]
) -> Prepared:
    """Build a model's tokenizer from the training texts, and encode all texts."""
    tokenizer = build_tokenizer(name, config, arrangement.split.train)
    parts = [code(rows, tokenizer, classes) for rows in arrangement.split]
    return Prepared(name, arrangement, tokenizer, classes, *parts)


def build(prepared: Prepared, config: SentimentConfig, seed: int, member: int) -> Encoder:
    """Make one model with its initial weights."""
    size, num_classes = prepared.tokenizer.vocab_size, len(prepared.classes)
    if prepared.name == "mini":
        return build_mini(config, size, num_classes, seed, member)
    return build_best(config, size, num_classes, prepared.train, seed, member)


def learner(
    model: Encoder, prepared: Prepared, config: SentimentConfig, seed: int, member: int
) -> Member:
    """Make the member that trains one model."""
    name, where = prepared.name, prepared.arrangement.name
    return Member(
        model,
        config.train_config(name, len(prepared.train.ids)),
        make_draw(prepared, config, seed, member),
        make_evaluation(prepared, watched_texts(prepared.train, seed)),
        noise=seeds.stream_seed(seed, NAME, "dropout", name, where, member),
    )


def train_model(
    model: Encoder, prepared: Prepared, config: SentimentConfig, context: Run, member: int
) -> TrainedModel:
    """Train one model on a split, and evaluate it on the test texts."""
    name, where = prepared.name, prepared.arrangement.name
    num_texts = len(prepared.train.ids)
    context.stage(f"{name}, split {where}, training {member + 1} of {config.seeds}")
    correct_before = is_right(model.eval(), prepared.test)

    def record(_: int, line: MetricLine) -> None:
        context.record({"model": name, "split": where, "member": member, **line})

    found = context.train(
        f"{name}-{where.replace(' ', '-')}-{member}",
        [learner(model, prepared, config, context.seed, member)],
        loss,
        stop=stop_after(config.patience_for(num_texts) if name == "mini" else None),
        record=record,
        has_rows=True,
    )
    trained = found.members[0]
    assert trained is not None  # the divergence of a single model raises an error
    return evaluate_on_test(model, prepared, trained, correct_before)


def evaluate_on_test(
    model: Encoder, prepared: Prepared, trained: Trained, correct_before: Tensor
) -> TrainedModel:
    """Evaluate a trained model on the test texts."""
    probabilities = answer(model, prepared.test)
    correct = probabilities.argmax(-1) == prepared.test.labels
    return TrainedModel(model, trained, probabilities, correct, correct_before)


def watched_texts(train: Coded, seed: int) -> Coded:
    """Draw the training texts of an evaluation; a file may be ordered by class."""
    order = torch.randperm(len(train.ids), generator=seeds.generator(seed, NAME, "watched"))
    places = order[:_MOST_WATCHED].sort().values
    return Coded([train.ids[place] for place in places.tolist()], train.labels[places])


def make_evaluation(prepared: Prepared, watched: Coded) -> Callable[[nn.Module], Evaluation]:
    """Return the evaluation that chooses the best epoch: by validation accuracy, then loss."""

    def judge(model: nn.Module) -> Evaluation:
        found = _measured(model, prepared.validation)
        seen = _measured(model, watched)
        figures = {
            "accuracy": found[0],
            "validation_loss": found[1],
            "train_accuracy": seen[0],
            "train_loss": seen[1],
        }
        return Evaluation((found[0], -found[1]), figures)

    return judge


def is_right(model: nn.Module, coded: Coded) -> Tensor:
    """Which texts does a model answer right? (texts,) boolean."""
    return answer(model, coded).argmax(-1) == coded.labels


@torch.no_grad()
def answer(model: nn.Module, coded: Coded) -> Tensor:
    """Return the probability of each class for each text: (texts, classes)."""
    order: list[int] = []
    found: list[Tensor] = []
    for places, batch in ordered_batches(coded):
        order += places
        found.append(model(batch.tokens, real=batch.real).softmax(-1))
    return torch.cat(found)[torch.tensor(order).argsort()]


def make_draw(prepared: Prepared, config: SentimentConfig, seed: int, member: int) -> Draw:
    """Return the data of one training: all texts in a new order in each epoch."""
    name = prepared.name
    batch_size = config.batch_size if name == "mini" else config.best_batch_size
    steps = -(-len(prepared.train.ids) // batch_size)
    purpose = (NAME, "data", name, prepared.arrangement.name, member)

    @functools.lru_cache(maxsize=1)
    def order(epoch: int) -> list[list[int]]:
        return epoch_order(prepared.train, batch_size, seeds.generator(seed, *purpose, epoch))

    def draw(first: int, count: int) -> list[tuple[Tensor, ...]]:
        batches: list[tuple[Tensor, ...]] = []
        for step in range(first, first + count):
            batch = make_batch(prepared.train, order(step // steps)[step % steps])
            if name == "best":
                generator = seeds.generator(seed, *purpose, "hidden", step)
                batch = hide_words(batch, config.word_dropout, generator)
            batches.append(batch)
        return batches

    return draw


def loss(model: nn.Module, tokens: Tensor, real: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of the classes."""
    return F.cross_entropy(model(tokens, real=real), labels)


def stop_after(patience: int | None) -> Callable[[Sequence[Evaluation]], bool] | None:
    """Return what ends a training: so many epochs without a better evaluation."""
    if patience is None:
        return None

    def stop(evaluations: Sequence[Evaluation]) -> bool:
        scores = [each.score for each in evaluations]
        return len(scores) - 1 - scores.index(max(scores)) >= patience

    return stop


@torch.no_grad()
def _measured(model: nn.Module, coded: Coded) -> tuple[float, float]:
    """Return accuracy and mean loss."""
    probabilities = answer(model, coded)
    picked = probabilities.gather(1, coded.labels.unsqueeze(-1)).clamp(min=1e-12)
    accuracy = (probabilities.argmax(-1) == coded.labels).double().mean()
    return float(accuracy), float(-picked.log().mean())
