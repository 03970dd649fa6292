"""In-context look-up: models that read facts that are new in every sample, in three variants."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab import seeds
from attnlab.experiments.experiment import Run
from attnlab.experiments.lookup.config import NAME, LookupConfig
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.tasks.recall import Facts, RecallTask, Variant
from attnlab.train import Evaluation, Member, Trained
from attnlab.train.loop import Draw

_INITIAL_SCALE = 0.3
"""The scale of initial embeddings: in a large residual stream the output of attention is lost.
Measured: ordered facts are learned in some hundred steps with it, and not in 1,000 without."""

WATCHED = 500  # samples of an evaluation during training
_LOW_LOSS = 0.004  # nats; below, a model that is always right is also sure, of new pairs too
_BLOCK = 50  # steps whose facts are drawn at once
_UNASKED = -100  # the target of a question whose fact is missing
_LOOSE_EVALUATIONS = 8  # of a model of loose words before it may stop (400 steps)
_FACTS_TESTED = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Recalled:
    """The models of one variant, and their answers on new facts.

    new: each model's accuracy on facts drawn from all pairs. held_out: on pairs that never occurred
    in training. named: each model's share of answers to new facts that are one of the values shown,
    right or wrong. by_facts: each model's accuracy by number of facts. pairs: which pairs occurred
    in the training of any model, (key, value). asked_held_out: which held-out pairs were asked in
    the evaluation.
    """

    variant: Variant
    models: list[EncoderDecoder]
    trained: list[Trained]
    new: list[float]
    held_out: list[float]
    named: list[float]
    by_facts: dict[int, list[float]]
    pairs: Tensor
    asked_held_out: Tensor
    steps: int
    samples: int


def build_recall_model(
    config: LookupConfig, variant: Variant, seed: int, index: int = 0
) -> EncoderDecoder:
    """Make one model with its initial weights."""
    with seeds.isolated(seed, NAME, "recall", variant, index):
        model = EncoderDecoder(config.recall_model_config(variant))
    with torch.no_grad():
        for stack in (model.encoder, model.decoder):
            for parameter in stack.embedding.parameters():
                parameter.mul_(_INITIAL_SCALE)
    return model


def recall_learner(
    model: EncoderDecoder, config: LookupConfig, variant: Variant, seed: int, index: int = 0
) -> Member:
    """Make the member that trains one model; all of one seed are evaluated on the same facts."""
    draw = make_recall_draw(config, variant, seed, index)
    judge = make_recall_evaluation(config, variant, seed)
    return Member(model, config.recall_train_config(), draw, judge)


def train_variant(
    config: LookupConfig, variant: Variant, context: Run, models: list[EncoderDecoder]
) -> Recalled:
    """Train models, and evaluate each on new facts.

    Raises:
        NotFinite: a training diverged.
    """
    trained: list[Trained] = []
    for index, model in enumerate(models):
        # One by one, since side by side all would wait for the slowest.
        context.stage(f"{variant} facts, model {index + 1} of {len(models)}")
        record = None
        if index == 0:
            record = lambda member, line: context.record({"model": variant, **line})  # noqa: E731
        member = recall_learner(model, config, variant, context.seed, index)
        found = context.train(
            f"{variant}-{index}",
            [member],
            recall_loss,
            stop=recall_stop(variant),
            record=record,
            num_threads=1,
        )
        trained.extend(each for each in found.members if each is not None)
    context.stage(f"{variant} facts, evaluating")
    return evaluate_variant(config, variant, context.seed, models, trained)


def evaluate_variant(
    config: LookupConfig,
    variant: Variant,
    seed: int,
    models: list[EncoderDecoder],
    trained: list[Trained],
) -> Recalled:
    """Evaluate trained models of one variant on new facts."""
    task, number = config.recall_task(variant), config.recall_judged
    lengths = [each.metrics[-1]["step"] for each in trained]
    pairs = torch.zeros(task.num_keys, task.num_values, dtype=torch.bool)
    for index, length in enumerate(lengths):
        pairs |= shown_pairs(config, variant, seed, index, length)
    new = task.sample(number, seeds.generator(seed, NAME, "recall judge", variant))
    held_out = task.sample_held_out(number, seeds.generator(seed, NAME, "recall held out", variant))
    asked = torch.zeros_like(pairs)
    asked[held_out.keys.gather(1, held_out.which), held_out.values.gather(1, held_out.which)] = True
    return Recalled(
        variant=variant,
        models=models,
        trained=trained,
        new=[accuracy(model, task, new) for model in models],
        held_out=[accuracy(model, task, held_out) for model in models],
        named=[named(model, task, new) for model in models],
        by_facts=_accuracy_by_facts(config, variant, models, seed),
        pairs=pairs,
        asked_held_out=asked,
        steps=max(lengths),
        samples=max(lengths) * config.recall_batch_size,
    )


class Drawn(NamedTuple):
    """Facts of some steps, (steps, batch, …), and which are present, (steps, batch, facts)."""

    facts: Facts
    is_there: Tensor


def draw_facts(config: LookupConfig, variant: Variant, seed: int, index: int, block: int) -> Drawn:
    """Draw the facts of one block of steps of one model's training.

    From 1 to `most` of the facts of a sample are present, the others are padding: a model learns to
    read from few facts, and then reads more. They are at random positions: when only the first ones
    were filled at first, the others were learned late or never (8 of 45 models of ordered facts got
    stuck; 0 of 40 with random positions).
    """
    task, shape = config.recall_task(variant), (_BLOCK, config.recall_batch_size)
    generator = seeds.generator(seed, NAME, "recall data", variant, index, block)
    facts = task.sample_training(shape[0] * shape[1], generator)
    steps = torch.arange(block * _BLOCK, (block + 1) * _BLOCK)
    most = (1 + steps // config.recall_ramp).clamp(max=task.num_facts)
    number = 1 + (torch.rand(shape, generator=generator) * most.unsqueeze(-1)).long()
    places = torch.rand(*shape, task.num_facts, generator=generator).argsort(-1)
    return Drawn(Facts(*(part.view(*shape, -1) for part in facts)), places < number.unsqueeze(-1))


def make_recall_draw(config: LookupConfig, variant: Variant, seed: int, index: int = 0) -> Draw:
    """Return the data of one model: sources, their real tokens, questions, and right answers."""
    task = config.recall_task(variant)

    @functools.lru_cache(maxsize=1)
    def batches(block: int) -> tuple[Tensor, ...]:
        drawn = draw_facts(config, variant, seed, index, block)
        facts = Facts(*(part.flatten(0, 1) for part in drawn.facts))
        is_there = drawn.is_there.flatten(0, 1)
        source = task.source(facts)
        real = is_there.repeat_interleave(source.shape[1] // task.num_facts, -1)
        wanted = task.answers(facts).masked_fill(~is_there.gather(1, facts.which), _UNASKED)
        parts = source, real, task.questions(facts), wanted
        return tuple(part.reshape(_BLOCK, -1, *part.shape[1:]) for part in parts)

    def draw(first: int, count: int) -> tuple[Tensor, ...]:
        blocks = range(first // _BLOCK, (first + count - 1) // _BLOCK + 1)
        start = first - blocks[0] * _BLOCK
        parts = zip(*(batches(block) for block in blocks), strict=True)
        return tuple(torch.cat(part)[start : start + count] for part in parts)

    return draw


def shown_pairs(
    config: LookupConfig, variant: Variant, seed: int, index: int, steps: int
) -> Tensor:
    """Return which pairs the first steps of a training show, drawn again: (key, value)."""
    shown = torch.zeros(config.recall_keys, config.recall_values, dtype=torch.bool)
    for first in range(0, steps, _BLOCK):
        facts, is_there = draw_facts(config, variant, seed, index, first // _BLOCK)
        is_there[steps - first :] = False
        shown[facts.keys[is_there], facts.values[is_there]] = True
    return shown


def recall_loss(
    model: nn.Module, source: Tensor, real: Tensor, questions: Tensor, wanted: Tensor
) -> Tensor:
    """Return the mean cross-entropy of the answers to questions whose fact is present."""
    logits = model(source, questions, real=real)
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=_UNASKED)


def make_recall_evaluation(
    config: LookupConfig, variant: Variant, seed: int
) -> Callable[[nn.Module], Evaluation]:
    """Return the evaluation of a model: its accuracy on new facts, then its loss.

    Loose words cannot be read: a model can only learn to answer with one of the values shown, so
    the share of those counts instead of the accuracy.
    """
    task = config.recall_task(variant)
    watched = task.sample(WATCHED, seeds.generator(seed, NAME, "recall watch", variant))

    def judge(model: nn.Module) -> Evaluation:
        logits, wanted = model(task.source(watched), task.questions(watched)), task.answers(watched)
        loss, found = F.cross_entropy(logits.flatten(0, 1), wanted.flatten()), logits.argmax(-1)
        right = (found == wanted).double().mean()
        shown = (found == watched.values + task.num_keys).any(-1).double().mean()
        score = (shown if variant == "loose" else right, -loss)
        return Evaluation(score, {"accuracy": right, "watched_loss": loss, "named": shown})  # type: ignore[arg-type, dict-item]

    return judge


def recall_stop(variant: Variant) -> Callable[[Sequence[Evaluation]], bool]:
    """Return what ends a training: the model has solved the problem."""
    if variant == "loose":
        return lambda evaluations: (
            len(evaluations) >= _LOOSE_EVALUATIONS and evaluations[-1].figures["named"] == 1.0
        )
    return lambda evaluations: evaluations[-1].score >= (1.0, -_LOW_LOSS)


@torch.no_grad()
def accuracy(model: EncoderDecoder, task: RecallTask, facts: Facts) -> float:
    """Return the share of questions whose likeliest answer is right."""
    right = [answer == task.answers(part) for part, answer in _answered(model, task, facts)]
    return float(torch.cat(right).double().mean())


@torch.no_grad()
def named(model: EncoderDecoder, task: RecallTask, facts: Facts) -> float:
    """Return the share of questions whose likeliest answer is one of the values shown."""
    found = [
        (answer == part.values + task.num_keys).any(-1)
        for part, answer in _answered(model, task, facts)
    ]
    return float(torch.cat(found).double().mean())


def _answered(
    model: EncoderDecoder, task: RecallTask, facts: Facts
) -> Iterator[tuple[Facts, Tensor]]:
    """Yield parts of the facts with the likeliest answers to their questions."""
    for parts in zip(*(torch.split(each, 500) for each in facts), strict=True):
        part = Facts(*parts)
        yield part, model(task.source(part), task.questions(part)).argmax(-1)


def _accuracy_by_facts(
    config: LookupConfig, variant: Variant, models: list[EncoderDecoder], seed: int
) -> dict[int, list[float]]:
    """Return the accuracy by number of facts; with positions, up to the number of the training."""
    most = min(config.recall_keys, config.recall_values)
    if variant == "ordered":
        most = min(most, config.recall_facts)
    found = {}
    for number in sorted({*_FACTS_TESTED, config.recall_facts}):
        if number <= most:
            task = config.recall_task(variant, num_facts=number)
            facts = task.sample(
                max(10, config.recall_judged // 4), seeds.generator(seed, NAME, "by facts", number)
            )
            found[number] = [accuracy(model, task, facts) for model in models]
    return found
