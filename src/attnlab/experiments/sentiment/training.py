"""Training and judging the two models: several seeds on one split, each with its curves and its answers."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab import seeds
from attnlab.experiments.experiment import Run
from attnlab.experiments.sentiment.coding import Coded, code, epoch_order, make_batch, ordered_batches
from attnlab.experiments.sentiment.config import NAME, ModelName, SentimentConfig
from attnlab.experiments.sentiment.data import Arrangement
from attnlab.experiments.sentiment.models import build_best, build_mini, build_tokenizer, hide_words
from attnlab.models.encoder import Encoder
from attnlab.tasks.tokenizers import TextTokenizer
from attnlab.train import Judgement, Member, Trained
from attnlab.train.loop import Draw

__all__ = [
    "Prepared",
    "TrainedModel",
    "answer",
    "build",
    "is_right",
    "learner",
    "loss",
    "make_draw",
    "make_judge",
    "prepare",
    "put_to_test",
    "stop_after",
    "train_model",
    "watched_texts",
]

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
    def answers(self) -> Tensor:
        """The class that each test text is put into: (texts,)."""
        return self.probabilities.argmax(-1)

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


def learner(model: Encoder, prepared: Prepared, config: SentimentConfig, seed: int, member: int) -> Member:
    """Make what one model learns from."""
    name, where = prepared.name, prepared.arrangement.name
    return Member(
        model,
        config.train_config(name, len(prepared.train.ids)),
        make_draw(prepared, config, seed, member),
        make_judge(prepared, watched_texts(prepared.train, seed)),
        noise=seeds.stream_seed(seed, NAME, "dropout", name, where, member),
    )


def train_model(model: Encoder, prepared: Prepared, config: SentimentConfig, context: Run, member: int) -> TrainedModel:
    """Train one model on a split, and put it to the test texts."""
    name, where = prepared.name, prepared.arrangement.name
    num_texts = len(prepared.train.ids)
    context.stage(f"{name}, split {where}, training {member + 1} of {config.seeds}")
    correct_before = is_right(model.eval(), prepared.test)

    def record(_: int, line: dict[str, Any]) -> None:
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
    assert trained is not None  # a training of one that breaks is an error
    return put_to_test(model, prepared, trained, correct_before)


def put_to_test(model: Encoder, prepared: Prepared, trained: Trained, correct_before: Tensor) -> TrainedModel:
    """Put a trained model to the test texts."""
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


def is_right(model: nn.Module, coded: Coded) -> Tensor:
    """Say which texts a model gets right: (texts,) boolean."""
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
    """Return the data of one training: each epoch goes once through the texts, in a new order."""
    name = prepared.name
    batch_size = config.batch_size if name == "mini" else config.best_batch_size
    steps = -(-len(prepared.train.ids) // batch_size)
    purpose = (NAME, "data", name, prepared.arrangement.name, member)

    @functools.lru_cache(maxsize=1)  # the order depends on the epoch alone, so it may as well be kept for all of it
    def order(epoch: int) -> list[list[int]]:
        return epoch_order(prepared.train, batch_size, seeds.generator(seed, *purpose, epoch))

    def draw(first: int, count: int) -> list[tuple[Tensor, ...]]:
        batches: list[tuple[Tensor, ...]] = []
        for step in range(first, first + count):
            batch = make_batch(prepared.train, order(step // steps)[step % steps])
            if name == "best":
                batch = hide_words(batch, config.word_dropout, seeds.generator(seed, *purpose, "hidden", step))
            batches.append(batch)
        return batches

    return draw


def loss(model: nn.Module, tokens: Tensor, real: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of the classes."""
    return F.cross_entropy(model(tokens, real=real), labels)


def stop_after(patience: int | None) -> Callable[[Sequence[Judgement]], bool] | None:
    """Return what ends a training: so many epochs without a better one; None for nothing."""
    if patience is None:
        return None

    def stop(judgements: Sequence[Judgement]) -> bool:
        scores = [each.score for each in judgements]
        return len(scores) - 1 - scores.index(max(scores)) >= patience

    return stop


@torch.no_grad()
def _measured(model: nn.Module, coded: Coded) -> tuple[float, float]:
    """Return accuracy and mean loss."""
    probabilities = answer(model, coded)
    picked = probabilities.gather(1, coded.labels.unsqueeze(-1)).clamp(min=1e-12)
    return float((probabilities.argmax(-1) == coded.labels).double().mean()), float(-picked.log().mean())
