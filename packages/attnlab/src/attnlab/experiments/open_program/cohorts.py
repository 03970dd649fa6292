"""Models of one kind, trained with many seeds: when each is right on every input, and which heads
it needs."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.func import functional_call

from attnlab import seeds
from attnlab.edits.application import edit
from attnlab.edits.site_edits import MeanHead
from attnlab.experiments.experiment import RunContext
from attnlab.experiments.open_program.config import NAME, OpenProgramConfig
from attnlab.experiments.open_program.targets import Domain, ProgramTarget
from attnlab.models.encoder import Encoder
from attnlab.programs.open_model import OpenModel, model_around, random_model
from attnlab.train import Evaluation, Member, Trained
from attnlab.train.loop import Sampler

ARMS = ("scratch", "frozen", "trainable", "decoy")
"""How the part's block begins: drawn like the rest; the part, left as it is; the part, moved by
training like the rest; the decoy, left as it is. One seed draws the same rest and data for all."""


@dataclass(frozen=True)
class ModelCohort:
    """The models of one kind.

    steps: of each until every input is right; infinite where that was not reached. without_part:
    the share of inputs that each answers right without its compiled heads; without_learned: without
    as many learned heads of the same layers, the mean of all choices. Both are empty from scratch.
    moved: entries that are not as compiled, in all models.
    """

    arm: str
    models: Sequence[Encoder]
    steps: Sequence[float]
    without_part: Sequence[float]
    without_learned: Sequence[float]
    moved: int

    @property
    def solved(self) -> int:
        """How many came to answer every input right."""
        return sum(map(math.isfinite, self.steps))

    def solved_by(self, step: int) -> float:
        """Return the share that answered every input right by a step."""
        return sum(reached <= step for reached in self.steps) / len(self.steps)


def train_cohort(
    target: ProgramTarget, arm: str, config: OpenProgramConfig, context: RunContext
) -> ModelCohort:
    """Train one model for each seed until it answers every input right, and take heads away."""
    made = [initial(target, arm, context.seed, number) for number in range(config.seeds)]
    evaluate, settings, frozen = evaluator_of(target.domain), config.train_config(), None
    if arm in ("frozen", "decoy"):
        frozen = made[0][1]
    members = []
    for number, (model, _) in enumerate(made):
        seed = seeds.stream_seed(context.seed, NAME, target.name, "data", number)
        members.append(
            Member(model, settings, sampler_of(target.domain, config.batch, seed), evaluate)
        )
    loss = loss_of(frozen)
    result = context.train(f"{target.name}-{arm}", members, loss, stop=_is_solved, num_threads=1)
    steps = list(map(_steps_to_solve, result.members))
    for step in result.history.evaluated_steps:
        solved = sum(reached <= step for reached in steps) / len(steps)
        context.record({"step": step, "program": target.name, "arm": arm, "solved": solved})
    models, without_part, without_learned, moved = [], [], [], 0
    for model, opened in made:
        models.append(model)
        if opened is not None:
            moved += sum(opened.moved().values())
            without_part.append(accuracy(model, target.domain, opened.heads))
            others = [accuracy(model, target.domain, heads) for heads in as_many(opened)]
            without_learned.append(fmean(others))
    return ModelCohort(arm, models, steps, without_part, without_learned, moved)


def _steps_to_solve(trained: Trained | None) -> float:
    """Return the steps until every input was right; infinity if that was not reached."""
    if trained is None or not _is_solved([trained.evaluation]):
        return math.inf
    return float(trained.best_step)


def initial(
    target: ProgramTarget, arm: str, seed: int, number: int
) -> tuple[Encoder, OpenModel | None]:
    """Draw a model; around the part or the decoy, except from scratch."""
    model_seed = seeds.stream_seed(seed, NAME, target.name, "model", number)
    if arm == "scratch":
        return random_model(target.config, model_seed), None
    part = target.decoy if arm == "decoy" else target.part
    opened = model_around(part, target.config, seed=model_seed)
    return opened.model, opened


def sampler_of(domain: Domain, batch: int, seed: int) -> Sampler:
    """Return the data of one model: inputs drawn alike from all, with a weight for each answer."""

    def sample(first: int, count: int) -> tuple[Tensor, ...]:
        generator = seeds.generator(seed, first)
        rows = torch.randint(len(domain.ids), (count, batch), generator=generator)
        counted = domain.counted[rows].float()
        weights = counted / counted.sum((1, 2), keepdim=True)
        return domain.ids[rows], domain.real[rows], domain.answers[rows], weights

    return sample


def loss_of(opened: OpenModel | None) -> Callable[..., Tensor]:
    """Return the mean cross-entropy of the answers; the entries of `opened` get no gradient."""

    def loss(
        model: nn.Module, ids: Tensor, real: Tensor, answers: Tensor, weights: Tensor
    ) -> Tensor:
        if opened is None:
            logits = model(ids, real=real)
        else:
            logits = functional_call(model, opened.frozen(model), (ids,), {"real": real})
        logarithms = logits.log_softmax(-1).gather(-1, answers.unsqueeze(-1)).squeeze(-1)
        negative: Tensor = -(logarithms * weights).sum()
        return negative

    return loss


def evaluator_of(domain: Domain) -> Callable[[nn.Module], Evaluation]:
    """Return the evaluation of a model: the share of all inputs, and of answers, that are right."""

    def evaluate(model: nn.Module) -> Evaluation:
        right = model(domain.ids, real=domain.real).argmax(-1) == domain.answers
        inputs = (right | ~domain.counted).all(-1).double().mean()
        answers = (right & domain.counted).sum() / domain.counted.sum()
        figures = {"accuracy": inputs, "answers": answers}
        return Evaluation((inputs, answers), figures)

    return evaluate


def _is_solved(evaluations: Sequence[Evaluation]) -> bool:
    return evaluations[-1].figures["accuracy"] == 1.0


def accuracy(model: Encoder, domain: Domain, heads: Sequence[str] = ()) -> float:
    """Return the share of inputs that are right if some heads say their mean over all inputs."""
    with ExitStack() as stack, torch.no_grad():
        for name in heads:
            layer, head = map(int, name.split("."))
            stack.enter_context(edit(model, MeanHead(layer=layer, head=head)))
        return float(evaluator_of(domain)(model).figures["accuracy"])


def as_many(opened: OpenModel) -> list[tuple[str, ...]]:
    """List all choices of as many learned heads as the part has, from the layers of its heads."""
    layers = {name.split(".")[0] for name in opened.heads}
    beside = [name for name in opened.free_heads if name.split(".")[0] in layers]
    return list(combinations(beside, len(opened.heads)))
