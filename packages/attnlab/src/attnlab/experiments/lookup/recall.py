"""In-context look-up: models that read facts that are new in every sample, in three variants."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab import seeds
from attnlab.experiments.experiment import Problem, RunContext
from attnlab.experiments.lookup.config import NAME, LookupConfig
from attnlab.experiments.lookup.trainer import train_problem
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.tasks.recall import Facts, RecallTask, Variant
from attnlab.train import Evaluation, Member, Trained
from attnlab.train.loop import Sampler

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
    right or wrong. by_facts: each model's accuracy by number of facts.
    """

    variant: Variant
    models: list[EncoderDecoder]
    trained: list[Trained]
    new: list[float]
    held_out: list[float]
    named: list[float]
    by_facts: dict[int, list[float]]

    @property
    def steps(self) -> int:
        """The steps of the longest training."""
        return max(int(trained.metrics[-1]["step"]) for trained in self.trained)


def build_model(config: LookupConfig, seed: int, index: int = 0) -> EncoderDecoder:
    """Make one model with its initial weights."""
    with seeds.isolated(seed, NAME, "recall", config.reader_variant, index):
        model = EncoderDecoder(config.recall_model_config())
    with torch.no_grad():
        for stack in (model.encoder, model.decoder):
            for parameter in stack.embedding.parameters():
                parameter.mul_(_INITIAL_SCALE)
    return model


def learner(model: EncoderDecoder, config: LookupConfig, seed: int, index: int = 0) -> Member:
    """Make the member that trains one model; all of one seed are evaluated on the same facts."""
    sample, evaluate = make_sampler(config, seed, index), make_evaluator(config, seed)
    return Member(model, config.recall_train_config(), sample, evaluate)


def problem_of(config: LookupConfig, members: list[Member]) -> Problem:
    """Make the problem that members learn; a training ends when its model has solved it."""

    def stop(evaluations: Sequence[Evaluation]) -> bool:
        if config.reader_variant == "loose":
            return len(evaluations) >= _LOOSE_EVALUATIONS and _is_solved(evaluations[-1])
        return evaluations[-1].score >= (1.0, -_LOW_LOSS)

    facts, words = range(1, config.recall_facts + 1), ["key", "value"]
    if config.reader_variant == "bound":
        words = ["fact"]
    return Problem(
        members,
        recall_loss,
        stop,
        _is_solved,
        positions=[f"asks {number}" for number in facts],
        sources=[f"{word} {number}" for number in facts for word in words],
    )


def _is_solved(evaluation: Evaluation) -> bool:
    return evaluation.score[0] == 1.0


def train(config: LookupConfig, context: RunContext, models: list[EncoderDecoder]) -> Recalled:
    """Train models of one variant, and evaluate each on new facts.

    Raises:
        NotFinite: a training diverged.
    """
    variant, seed, trained = config.reader_variant, context.seed, []
    for index, model in enumerate(models):
        # One by one, since side by side all would wait for the slowest.
        context.stage(f"{variant} facts, model {index + 1} of {len(models)}")
        problem = problem_of(config, [learner(model, config, seed, index)])
        label = variant if index == 0 else None
        trained += train_problem(context, f"{variant}-{index}", problem, label)
    context.stage(f"{variant} facts, evaluating")
    return evaluate(config, seed, models, list(filter(None, trained)))


def evaluate(
    config: LookupConfig, seed: int, models: list[EncoderDecoder], trained: list[Trained]
) -> Recalled:
    """Evaluate trained models of one variant on new facts."""
    task, number, variant = config.recall_task(), config.recall_judged, config.reader_variant
    new = task.sample(number, seeds.generator(seed, NAME, "recall judge", variant))
    held_out = task.sample_held_out(number, seeds.generator(seed, NAME, "recall held out", variant))
    return Recalled(
        variant=variant,
        models=models,
        trained=trained,
        new=[accuracy(model, task, new) for model in models],
        held_out=[accuracy(model, task, held_out) for model in models],
        named=[named(model, task, new) for model in models],
        by_facts=_accuracy_by_facts(config, models, seed),
    )


def sample_facts(config: LookupConfig, seed: int, index: int, block: int) -> tuple[Facts, Tensor]:
    """Draw the facts of one block of steps of one model's training.

    From 1 to `most` of the facts of a sample are present, the others are padding: a model learns to
    read from few facts, and then reads more. They are at random positions: when only the first ones
    were filled at first, the others were learned late or never (8 of 45 models of ordered facts got
    stuck; 0 of 40 with random positions).

    Returns:
        The facts, (step × batch, …), and which are present, (step × batch, facts).
    """
    task, shape = config.recall_task(), (_BLOCK, config.recall_batch_size)
    generator = seeds.generator(seed, NAME, "recall data", task.variant, index, block)
    facts = task.sample_training(shape[0] * shape[1], generator)
    steps = torch.arange(block * _BLOCK, (block + 1) * _BLOCK)
    most = (1 + steps // config.recall_ramp).clamp(max=task.num_facts)
    number = 1 + (torch.rand(shape, generator=generator) * most.unsqueeze(-1)).long()
    places = torch.rand(*shape, task.num_facts, generator=generator).argsort(-1)
    return facts, (places < number.unsqueeze(-1)).flatten(0, 1)


def make_sampler(config: LookupConfig, seed: int, index: int = 0) -> Sampler:
    """Return the data of one model: sources, their real tokens, questions, and right answers.

    The steps asked for at once are of one block, as those of a training are.
    """
    task = config.recall_task()

    def sample(first: int, count: int) -> tuple[Tensor, ...]:
        block, start = divmod(first, _BLOCK)
        assert start + count <= _BLOCK
        facts, is_there = sample_facts(config, seed, index, block)
        source = task.source(facts)
        real = is_there.repeat_interleave(source.shape[1] // task.num_facts, -1)
        wanted = task.answers(facts).masked_fill(~is_there.gather(1, facts.which), _UNASKED)
        parts = source, real, task.questions(facts), wanted
        by_step = (part.reshape(_BLOCK, -1, *part.shape[1:]) for part in parts)
        return tuple(part[start : start + count] for part in by_step)

    return sample


def recall_loss(
    model: nn.Module, source: Tensor, real: Tensor, questions: Tensor, wanted: Tensor
) -> Tensor:
    """Return the mean cross-entropy of the answers to questions whose fact is present."""
    logits = model(source, questions, real=real)
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=_UNASKED)


def make_evaluator(config: LookupConfig, seed: int) -> Callable[[nn.Module], Evaluation]:
    """Return the evaluation of a model: its accuracy on new facts, then its loss.

    Loose words cannot be read: a model can only learn to answer with one of the values shown, so
    the share of those counts instead of the accuracy.
    """
    task = config.recall_task()
    watched = task.sample(WATCHED, seeds.generator(seed, NAME, "recall watch", task.variant))

    def evaluate(model: nn.Module) -> Evaluation:
        logits, wanted = model(task.source(watched), task.questions(watched)), task.answers(watched)
        loss, choices = F.cross_entropy(logits.flatten(0, 1), wanted.flatten()), logits.argmax(-1)
        right = (choices == wanted).double().mean()
        shown = (choices == watched.values + task.num_keys).any(-1).double().mean()
        best = shown if task.variant == "loose" else right
        return Evaluation((best, -loss), {"accuracy": right, "watched_loss": loss, "named": shown})  # type: ignore[arg-type, dict-item]

    return evaluate


def accuracy(model: EncoderDecoder, task: RecallTask, facts: Facts) -> float:
    """Return the share of questions whose likeliest answer is right."""
    return _share(_answers(model, task, facts) == task.answers(facts))


def named(model: EncoderDecoder, task: RecallTask, facts: Facts) -> float:
    """Return the share of questions whose likeliest answer is one of the values shown."""
    return _share((_answers(model, task, facts) == facts.values + task.num_keys).any(-1))


def _share(hits: Tensor) -> float:
    return float(hits.double().mean())


@torch.no_grad()
def _answers(model: EncoderDecoder, task: RecallTask, facts: Facts) -> Tensor:
    """Return the likeliest answers to the questions, computed in parts: (batch, asked) ids."""
    parts = map(Facts, *(torch.split(facts_part, 500) for facts_part in facts))
    return torch.cat(
        [
            model(task.source(facts_part), task.questions(facts_part)).argmax(-1)
            for facts_part in parts
        ]
    )


def _accuracy_by_facts(
    config: LookupConfig, models: list[EncoderDecoder], seed: int
) -> dict[int, list[float]]:
    """Return the accuracy by number of facts; with positions, up to the number of the training."""
    task, num_samples, shares = config.recall_task(), max(10, config.recall_judged // 4), {}
    most = min(task.num_keys, task.num_values)
    if task.variant == "ordered":
        most = min(most, task.num_facts)
    for number in sorted({*_FACTS_TESTED, task.num_facts}):
        if number <= most:
            shorter = replace(task, num_facts=number)
            facts = shorter.sample(num_samples, seeds.generator(seed, NAME, "by facts", number))
            shares[number] = [accuracy(model, shorter, facts) for model in models]
    return shares
