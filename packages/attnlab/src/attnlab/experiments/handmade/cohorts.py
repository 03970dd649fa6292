"""Cohorts: heads of the design's shape, trained from random weights with many seeds.

The training is SGD with one sequence a step, on the mean squared error over the outputs that count.
The heads of all seeds are trained together: every seed has its own weights and sequences, and takes
the same steps as alone, but for rounding. Shorter sequences are padded; padding is masked.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab import seeds
from attnlab.design import Design, Proof, prove
from attnlab.experiments.experiment import RunContext
from attnlab.experiments.handmade.config import NAME, HandmadeConfig
from attnlab.experiments.sections import finite_or_none
from attnlab.models.single_head import SingleHead, SingleHeadConfig
from attnlab.tasks.vectors import PADDING, VectorTask
from attnlab.train import Evaluation, Member
from attnlab.train.faults import NotFinite
from attnlab.train.loop import Sampler

CLOSE = 0.1
"""The largest distance from its target at which a learned output counts as close."""

BLOCK = 200
"""The number of steps whose mean loss is one point of the curve."""


@dataclass(frozen=True)
class HeadCohort:
    """The learned heads of one task.

    steps, losses: the curve, the mean loss of each block of steps and each seed, (blocks, seeds).
    shares, close: the share of all inputs that each head answers right, by nearest target and by
    distance `CLOSE`.
    """

    task: VectorTask
    heads: list[SingleHead]
    steps: list[int]
    losses: Tensor
    shares: list[float]
    close: list[float]

    @property
    def has_learned_positions(self) -> bool:
        """Were the positions trained with the matrices?"""
        return self.heads[0].config.learned_positions

    @property
    def title(self) -> str:
        """The task, and the kind of positions if there are any."""
        return _title(self.task, self.heads[0].config)

    @property
    def name(self) -> str:
        """The title as a name for files."""
        if self.has_learned_positions:
            return f"learned_{self.task.rule}_positions"
        return f"learned_{self.task.rule}"

    @property
    def finite(self) -> list[SingleHead]:
        """The heads whose training did not diverge."""
        finite = []
        for head in self.heads:
            if all(bool(parameter.isfinite().all()) for parameter in head.parameters()):
                finite.append(head)
        return finite

    @property
    def num_perfect(self) -> int:
        """The number of seeds that answer every input right."""
        return sum(share == 1.0 for share in self.shares)


def _title(task: VectorTask, config: SingleHeadConfig) -> str:
    if config.pos_dim is None:
        return task.rule
    if config.learned_positions:
        return f"{task.rule}, learned positions"
    return f"{task.rule}, one-hot positions"


def initial_head(design: Design, has_learned_positions: bool, seed: int, member: int) -> SingleHead:
    """Make a head of the design's shape with random weights.

    Positions that are not learned are those of the design.
    """
    with seeds.isolated(seed, NAME, design.name, "model", member):
        designed = design.model(torch.float32)
        head = SingleHead(replace(designed.config, learned_positions=has_learned_positions))
    if not has_learned_positions:
        head.positions = designed.positions
    return head


def make_sampler(
    task: VectorTask, seed: int, member: int, dtype: torch.dtype = torch.float32
) -> Sampler:
    """Return the data of one head: vectors, targets, the weights of outputs, and real tokens."""

    def sample(first: int, count: int) -> tuple[Tensor, ...]:
        ids = task.sample(count, seeds.generator(seed, NAME, task.rule, "data", member, first))
        counted = task.counted(ids).to(dtype)
        share = (counted / counted.sum(-1, keepdim=True)).unsqueeze(-1) / task.output_dim
        batch = task.vectors(ids, dtype), task.target(ids, dtype), share, ids != PADDING
        return tuple(part.unsqueeze(1) for part in batch)  # a batch is one sequence

    return sample


def loss(model: nn.Module, x: Tensor, target: Tensor, share: Tensor, real: Tensor) -> Tensor:
    """Return the mean squared error over the outputs that count."""
    output: Tensor = model(x, real=real).output
    return ((output - target).square() * share).sum()


def padded_inputs(task: VectorTask) -> Tensor:
    """List every input once, padded to the longest: ids (inputs, row_length)."""
    rows = []
    for ids in task.inputs_by_length():
        rows.append(F.pad(ids, (0, task.row_length - ids.shape[1]), value=PADDING))
    return torch.cat(rows)


def train_cohort(
    design: Design, config: HandmadeConfig, context: RunContext, *, has_learned_positions: bool
) -> HeadCohort:
    """Train heads of a design's shape, one for each seed, and evaluate each on every input.

    A head whose training diverged is filled with NaN, so that it cannot be mistaken for a trained
    one.
    """
    task, settings = design.task, config.train_config()
    heads, members = [], []
    for number in range(config.seeds):
        head = initial_head(design, has_learned_positions, context.seed, number)
        heads.append(head)
        members.append(Member(head, settings, make_sampler(task, context.seed, number), _evaluate))
    context.stage(f"{_title(task, head.config)}, {config.seeds} seeds")
    name = f"{task.rule}-learned-positions" if has_learned_positions else task.rule
    try:
        training = context.train(name, members, loss, num_threads=1)
        steps, losses = blocks(training.history.steps, training.history.losses)
        trained = training.members
    except NotFinite:
        trained, steps = [None] * config.seeds, [config.steps]
        losses = torch.full((1, config.seeds), math.nan, dtype=torch.float64)
    for head, result in zip(heads, trained, strict=True):
        if result is None:
            for parameter in head.parameters():
                parameter.detach().fill_(math.nan)
    labels = {"task": design.name, "learned_positions": has_learned_positions}
    for step, row in zip(steps, losses.tolist(), strict=True):
        context.record({"step": step, **labels, "loss": finite_or_none(fmean(row))})
    shares = [_share(prove(head, task)) for head in heads]
    close = [_share(prove(head, task, tolerance=CLOSE)) for head in heads]
    return HeadCohort(task, heads, steps, losses, shares, close)


def _evaluate(head: nn.Module) -> Evaluation:
    """Evaluate nothing: a training leaves the last weights, and the proof judges them."""
    return Evaluation((0.0,), {})


def _share(proof: Proof) -> float:
    return 1 - proof.failures / proof.inputs


def blocks(steps: Sequence[int], losses: Sequence[Tensor]) -> tuple[list[int], Tensor]:
    """Average the logged losses of a training by blocks; each is the mean since the one before.

    Returns the last step of each block, and the mean losses (blocks, heads).
    """
    ends, means = list[int](), list[Tensor]()
    since, total = 0, torch.zeros_like(losses[0])
    for before, step, mean in zip([0, *steps], steps, losses, strict=False):
        total = total + mean * (step - before)
        if step % BLOCK == 0 or step == steps[-1]:
            ends.append(step)
            means.append(total / (step - since))
            since, total = step, torch.zeros_like(total)
    return ends, torch.stack(means)
