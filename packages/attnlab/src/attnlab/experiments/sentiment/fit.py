"""The training and evaluation of the two models, with several seeds on one split."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab import seeds
from attnlab.errors import not_none
from attnlab.experiments.experiment import MetricLine, RunContext
from attnlab.experiments.sentiment.baseline import TrainedBaseline, train_baselines
from attnlab.experiments.sentiment.comparison import Accuracy, accuracy_of
from attnlab.experiments.sentiment.config import NAME, ModelName, SentimentConfig
from attnlab.experiments.sentiment.data import Arrangement
from attnlab.experiments.sentiment.models import (
    EncodedTexts,
    build_best,
    build_mini,
    build_tokenizer,
    code,
    epoch_order,
    hide_words,
    make_batch,
    ordered_batches,
)
from attnlab.models.encoder import Encoder
from attnlab.tasks.tokenizers import TextTokenizer
from attnlab.train import Evaluation, Member, Trained
from attnlab.train.loop import Sampler

_MOST_WATCHED = 1_000  # training texts of an evaluation


@dataclass(frozen=True)
class Prepared:
    """A split as a model reads it; the tokenizer is built from the training texts alone."""

    name: ModelName
    arrangement: Arrangement
    tokenizer: TextTokenizer
    classes: tuple[str, ...]
    train: EncodedTexts
    validation: EncodedTexts
    test: EncodedTexts


@dataclass(frozen=True)
class TrainedModel:
    """One training: the model with its best weights, its curves, and its answers on the test texts.

    probabilities: (texts, classes). correct_before any training: (texts,) boolean.
    """

    model: Encoder
    trained: Trained
    probabilities: Tensor
    correct_before: Tensor

    @property
    def epochs(self) -> list[MetricLine]:
        """The evaluations after each epoch."""
        return [line for line in self.trained.metrics if "accuracy" in line]


@dataclass(frozen=True)
class SplitOutcome:
    """The results on one split: each model's trainings, and the baselines."""

    prepared: Mapping[ModelName, Prepared]
    models: Mapping[ModelName, list[TrainedModel]]
    baselines: list[TrainedBaseline]

    @property
    def arrangement(self) -> Arrangement:
        """The split."""
        return next(iter(self.prepared.values())).arrangement

    @property
    def labels(self) -> Tensor:
        """The class of each test text: (texts,)."""
        return next(iter(self.prepared.values())).test.labels

    @functools.cached_property
    def answers(self) -> dict[str, Tensor]:
        """The answered classes of each model and baseline: (trainings, texts)."""
        answers: dict[str, Tensor] = {}
        for name, trained in self.models.items():
            answers[name] = torch.stack([model.probabilities for model in trained]).argmax(-1)
        for baseline in self.baselines:
            answers[baseline.name] = baseline.answers.unsqueeze(0)
        return answers

    @functools.cached_property
    def correct(self) -> dict[str, Tensor]:
        """Which test texts each model and baseline answers right: (trainings, texts)."""
        return {name: answers == self.labels for name, answers in self.answers.items()}

    def accuracy(self, name: str) -> Accuracy:
        """Return the accuracy of a model, mean of its trainings, or of a baseline."""
        return accuracy_of(self.correct[name])

    def correct_before(self, name: ModelName) -> Tensor:
        """Return which test texts are right before any training: (trainings, texts)."""
        return torch.stack([model.correct_before for model in self.models[name]])


def prepare(
    name: ModelName, config: SentimentConfig, arrangement: Arrangement, classes: tuple[str, ...]
) -> Prepared:
    """Build a model's tokenizer from the training texts, and encode all texts."""
    tokenizer = build_tokenizer(name, config, arrangement.split.train)
    parts = [code(rows, tokenizer, classes) for rows in arrangement.split]
    return Prepared(name, arrangement, tokenizer, classes, *parts)


def build_classifier(
    prepared: Prepared, config: SentimentConfig, seed: int, member: int
) -> Encoder:
    """Make one model with its initial weights."""
    size, num_classes = prepared.tokenizer.vocab_size, len(prepared.classes)
    if prepared.name == "mini":
        return build_mini(config, size, num_classes, seed, member)
    return build_best(config, size, num_classes, prepared.train, seed, member)


def train_all(
    config: SentimentConfig,
    context: RunContext,
    prepared: Mapping[ModelName, Prepared],
    main: Encoder | None = None,
) -> SplitOutcome:
    """Train everything on one split; `main` is the first main model, if it is built already."""
    models: dict[ModelName, list[TrainedModel]] = {}
    for name, prepared_split in prepared.items():
        made = [
            build_classifier(prepared_split, config, context.seed, member)
            for member in range(config.seeds)
        ]
        if main is not None and name == config.main:
            made[0] = main
        models[name] = []
        for member, model in enumerate(made):
            models[name].append(train_model(model, prepared_split, config, context, member))
    context.stage(f"baselines, split {prepared_split.arrangement.name}")
    baselines = []
    if config.baseline:
        baselines = train_baselines(prepared_split.arrangement.split, prepared_split.classes)
    return SplitOutcome(prepared, models, baselines)


def train_model(
    model: Encoder, prepared: Prepared, config: SentimentConfig, context: RunContext, member: int
) -> TrainedModel:
    """Train one model on a split, and evaluate it on the test texts."""
    name, where = prepared.name, prepared.arrangement.name
    context.stage(f"{name}, split {where}, training {member + 1} of {config.seeds}")
    before = is_right(model.eval(), prepared.test)
    learner = Member(
        model,
        config.train_config(name, len(prepared.train.ids)),
        make_sampler(prepared, config, context.seed, member),
        make_evaluator(prepared, watched_texts(prepared.train, context.seed)),
        noise=seeds.stream_seed(context.seed, NAME, "dropout", name, where, member),
    )
    result = context.train(
        f"{name}-{where.replace(' ', '-')}-{member}",
        [learner],
        loss,
        stop=stop_rule(prepared, config),
        record=lambda _, line: context.record(
            {"model": name, "split": where, "member": member, **line}
        ),
    )
    trained = not_none(result.members[0])  # the divergence of a single model raises an error
    return TrainedModel(model, trained, class_answers(model, prepared.test), before)


def watched_texts(train: EncodedTexts, seed: int) -> EncodedTexts:
    """Draw the training texts of an evaluation; a file may be ordered by class."""
    order = torch.randperm(len(train.ids), generator=seeds.generator(seed, NAME, "watched"))
    places = order[:_MOST_WATCHED].sort().values
    return EncodedTexts([train.ids[place] for place in places.tolist()], train.labels[places])


def make_evaluator(prepared: Prepared, watched: EncodedTexts) -> Callable[[nn.Module], Evaluation]:
    """Return the evaluation that chooses the best epoch: by validation accuracy, then loss."""

    def evaluate(model: nn.Module) -> Evaluation:
        accuracy, validation_loss = _measured(model, prepared.validation)
        train_accuracy, train_loss = _measured(model, watched)
        figures = {
            "accuracy": accuracy,
            "validation_loss": validation_loss,
            "train_accuracy": train_accuracy,
            "train_loss": train_loss,
        }
        return Evaluation((accuracy, -validation_loss), figures)

    return evaluate


def is_right(model: nn.Module, coded: EncodedTexts) -> Tensor:
    """Which texts does a model answer right? (texts,) boolean."""
    return class_answers(model, coded).argmax(-1) == coded.labels


@torch.no_grad()
def class_answers(model: nn.Module, coded: EncodedTexts) -> Tensor:
    """Return the probability of each class for each text: (texts, classes)."""
    order: list[int] = []
    probabilities: list[Tensor] = []
    for places, batch in ordered_batches(coded):
        order += places
        probabilities.append(model(batch.tokens, real=batch.real).softmax(-1))
    return torch.cat(probabilities)[torch.tensor(order).argsort()]


def make_sampler(prepared: Prepared, config: SentimentConfig, seed: int, member: int) -> Sampler:
    """Return the data of one training: all texts in a new order in each epoch."""
    name, batch_size = prepared.name, config.batch_size_of(prepared.name)
    steps = -(-len(prepared.train.ids) // batch_size)
    purpose = (NAME, "data", name, prepared.arrangement.name, member)

    @functools.lru_cache(maxsize=1)
    def order(epoch: int) -> list[list[int]]:
        return epoch_order(prepared.train, batch_size, seeds.generator(seed, *purpose, epoch))

    def sample(first: int, count: int) -> list[tuple[Tensor, ...]]:
        batches: list[tuple[Tensor, ...]] = []
        for step in range(first, first + count):
            batch = make_batch(prepared.train, order(step // steps)[step % steps])
            if name == "best":
                generator = seeds.generator(seed, *purpose, "hidden", step)
                batch = hide_words(batch, config.word_dropout, generator)
            batches.append(batch)
        return batches

    return sample


def loss(model: nn.Module, tokens: Tensor, real: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of the classes."""
    return F.cross_entropy(model(tokens, real=real), labels)


def stop_rule(
    prepared: Prepared, config: SentimentConfig
) -> Callable[[Sequence[Evaluation]], bool] | None:
    """Return what ends a training: so many epochs without a better evaluation."""
    patience = config.patience_for(prepared.name, len(prepared.train.ids))
    if patience is None:
        return None

    def stop(evaluations: Sequence[Evaluation]) -> bool:
        scores = [evaluation.score for evaluation in evaluations]
        return len(scores) - 1 - scores.index(max(scores)) >= patience

    return stop


@torch.no_grad()
def _measured(model: nn.Module, coded: EncodedTexts) -> tuple[float, float]:
    """Return accuracy and mean loss."""
    probabilities = class_answers(model, coded)
    picked = probabilities.gather(1, coded.labels.unsqueeze(-1)).clamp(min=1e-12)
    accuracy = (probabilities.argmax(-1) == coded.labels).double().mean()
    return float(accuracy), float(-picked.log().mean())
