"""In-context look-up: models that must read facts which are new in every sample, in three ways of writing them."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab import seeds
from attnlab.experiments.experiment import Run
from attnlab.experiments.lookup.config import NAME, LookupConfig
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.tasks.recall import Facts, RecallTask, Variant
from attnlab.train.loop import Judgement, Observer, Trained, train

__all__ = ["Recalled", "accuracy", "build_recall_model", "named", "train_variant"]

_INITIAL_SCALE = 0.3
"""Initial embeddings are made smaller, for in a large residual stream what attention adds is not heard: measured,
ordered facts were then learned in some hundred steps, and not in 1,000 without."""

_WATCHED = 500  # samples that a training is watched by
_LOW_LOSS = 0.004  # nats, below which a model that is always right is also sure, of pairs it never saw too
_UNASKED = -100  # stands for the answer to a question whose fact is not there
_LOOSE_STEPS = 400  # that a model of loose words, which can learn no more, is trained for at least
_FACTS_TESTED = (1, 2, 4, 8, 16, 32)


class Recalled(NamedTuple):
    """The models of one variant, and what they answer on facts that are new.

    new: each model's accuracy on facts drawn from all there are · held_out: on pairs that never occurred in training ·
    named: each model's share of answers to new facts that are one of the values shown, right or wrong.
    by_facts: each model's accuracy on other numbers of facts than it was trained on · pairs (key, value): which pairs
    occurred in the training of any of them · asked_held_out: which held-out pairs were asked in judging.
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


def build_recall_model(config: LookupConfig, variant: Variant, seed: int, index: int = 0) -> EncoderDecoder:
    """Make one model with its initial weights."""
    with seeds.isolated(seed, NAME, "recall", variant, index):
        model = EncoderDecoder(config.recall_model_config(variant))
    with torch.no_grad():
        for stack in (model.encoder, model.decoder):
            for parameter in stack.embedding.parameters():
                parameter.mul_(_INITIAL_SCALE)
    return model


def train_variant(config: LookupConfig, variant: Variant, context: Run, models: list[EncoderDecoder]) -> Recalled:
    """Train models, and judge each on facts that are new.

    Raises:
        CouldNotRun: a training broke.
    """
    task = config.recall_task(variant)
    pairs = torch.zeros(task.num_keys, task.num_values, dtype=torch.bool)
    watched = task.sample(_WATCHED, seeds.generator(context.seed, NAME, "recall watch", variant))
    trained = []
    for index, model in enumerate(models):
        # One by one, for each ends when it can read: side by side, all would wait for the slowest.
        context.stage(f"{variant} facts, model {index + 1} of {len(models)}")
        generator = seeds.generator(context.seed, NAME, "recall data", variant, index)
        trained.append(
            _trained(model, config, generator, observer=context.observer, task=task, watched=watched, pairs=pairs)
        )
    steps = max(each.metrics[-1]["step"] for each in trained)
    number, seed = config.recall_judged, context.seed
    new = task.sample(number, seeds.generator(seed, NAME, "recall judge", variant))
    held_out = task.sample_held_out(number, seeds.generator(seed, NAME, "recall held out", variant))
    asked = torch.zeros_like(pairs)
    asked[held_out.keys.gather(1, held_out.which), held_out.values.gather(1, held_out.which)] = True
    return Recalled(
        variant=variant,
        models=[model.eval() for model in models],
        trained=trained,
        new=[accuracy(model, task, new) for model in models],
        held_out=[accuracy(model, task, held_out) for model in models],
        named=[named(model, task, new) for model in models],
        by_facts=_accuracy_by_facts(config, variant, models, seed),
        pairs=pairs,
        asked_held_out=asked,
        steps=steps,
        samples=steps * config.recall_batch_size,
    )


def _trained(
    model: EncoderDecoder,
    config: LookupConfig,
    generator: torch.Generator,
    *,
    observer: Observer | None,
    task: RecallTask,
    watched: Facts,
    pairs: Tensor,
) -> Trained:
    """Train one model, and mark in `pairs` which pairs its training shows."""
    is_loose = task.variant == "loose"
    num_steps = 0

    def loss(model: nn.Module, generator: torch.Generator) -> Tensor:
        nonlocal num_steps
        num_steps += 1
        facts = task.sample_training(config.recall_batch_size, generator)
        # From 1 to `most` of the facts are there, the others padding: few facts teach how to read, and more are then
        # read alike. They stand anywhere: where the first places alone were filled at first, the others were learned
        # late or never (8 of 45 models of ordered facts were stuck; of 40 with facts anywhere, none).
        most = min(task.num_facts, 1 + (num_steps - 1) // config.recall_ramp)
        number = torch.randint(1, most + 1, (len(facts.keys), 1), generator=generator)
        places = torch.rand(len(number), task.num_facts, generator=generator).argsort(-1)
        is_there = places < number  # anywhere, so that every place learns from the first step
        pairs[facts.keys[is_there], facts.values[is_there]] = True
        is_asked, answers = is_there.gather(1, facts.which), task.answers(facts)
        source = task.source(facts)
        real = is_there.repeat_interleave(source.shape[1] // task.num_facts, -1)
        logits = model(source, task.questions(facts), real=real)
        return F.cross_entropy(
            logits.flatten(0, 1), answers.masked_fill(~is_asked, _UNASKED).flatten(), ignore_index=_UNASKED
        )

    def judge(model: nn.Module) -> Judgement:
        logits, wanted = model(task.source(watched), task.questions(watched)), task.answers(watched)
        loss = float(F.cross_entropy(logits.flatten(0, 1), wanted.flatten()))
        right = float((logits.argmax(-1) == wanted).double().mean())
        shown = float((logits.argmax(-1) == watched.values + task.num_keys).any(-1).double().mean())
        figures = {"accuracy": right, "watched_loss": loss, "named": shown}
        return Judgement((shown if is_loose else right, -loss), figures)

    def has_learned(judgement: Judgement) -> bool:
        if is_loose:
            return judgement.figures["named"] == 1.0 and num_steps >= _LOOSE_STEPS
        return judgement.score >= (1.0, -_LOW_LOSS)

    return train(
        model,
        config.recall_train_config(),
        loss=loss,
        judge=judge,
        generator=generator,
        stop=has_learned,
        observer=observer,
        num_threads=1,
    )


@torch.no_grad()
def accuracy(model: EncoderDecoder, task: RecallTask, facts: Facts) -> float:
    """Return the share of questions whose likeliest answer is right."""
    right = [
        model(task.source(part), task.questions(part)).argmax(-1) == task.answers(part)
        for part in (Facts(*parts) for parts in zip(*(torch.split(each, 500) for each in facts), strict=True))
    ]
    return float(torch.cat(right).double().mean())


@torch.no_grad()
def named(model: EncoderDecoder, task: RecallTask, facts: Facts) -> float:
    """Return the share of questions whose likeliest answer is one of the values shown, whichever."""
    found = [
        (model(task.source(part), task.questions(part)).argmax(-1) == part.values + task.num_keys).any(-1)
        for part in (Facts(*parts) for parts in zip(*(torch.split(each, 500) for each in facts), strict=True))
    ]
    return float(torch.cat(found).double().mean())


def _accuracy_by_facts(
    config: LookupConfig, variant: Variant, models: list[EncoderDecoder], seed: int
) -> dict[int, list[float]]:
    """Judge on other numbers of facts; a model that is told positions knows no others than it was trained on."""
    most = min(config.recall_keys, config.recall_values)
    if variant == "ordered":
        most = min(most, config.recall_facts)
    found = {}
    for number in sorted({*_FACTS_TESTED, config.recall_facts}):
        if number <= most:
            task = config.recall_task(variant, num_facts=number)
            facts = task.sample(max(10, config.recall_judged // 4), seeds.generator(seed, NAME, "by facts", number))
            found[number] = [accuracy(model, task, facts) for model in models]
    return found
