"""Learned counterparts: the same head as the design's, from random weights, by plain gradient descent.

One sequence a step, mean squared error over the outputs that count, SGD. The heads of all seeds are trained together,
their matrices stacked (seed, width, …): every seed has its own weights and draws its own sequences, and ends where it
would have ended alone, but for rounding (a test says so). Shorter sequences are padded, and nobody looks at padding.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab import seeds
from attnlab.design import Design, Proof, prove
from attnlab.experiments.handmade.config import NAME, HandmadeConfig
from attnlab.models.single_head import Matrices, SingleHead, SingleHeadConfig
from attnlab.tasks.vectors import PADDING, VectorTask

__all__ = ["BLOCK", "CLOSE", "Cohort", "initial_head", "sequences", "train_cohort", "train_stacked"]

CLOSE = 0.1
"""Learned outputs this near their targets count as close."""

BLOCK = 200
"""Steps whose sequences are drawn at once, and whose mean loss is one point of the curve."""


class Cohort(NamedTuple):
    """The learned heads of one task.

    steps and losses: the curve, mean loss of each block of steps and each seed (blocks, seeds) · right and close: of
    each head, its proof by nearest target and by distance `CLOSE` over all inputs.
    """

    task: VectorTask
    has_learned_positions: bool
    heads: list[SingleHead]
    steps: list[int]
    losses: Tensor
    right: list[Proof]
    close: list[Proof]

    @property
    def title(self) -> str:
        """Its task, and where its positions come from if it has any."""
        if self.heads[0].positions is None:
            return self.task.rule
        return f"{self.task.rule}, {'learned' if self.has_learned_positions else 'one-hot'} positions"

    @property
    def name(self) -> str:
        """The title as a name for files."""
        return f"learned_{self.task.rule}{'_positions' if self.has_learned_positions else ''}"

    @property
    def finite(self) -> list[SingleHead]:
        """The heads whose training did not break."""
        return [head for head in self.heads if all(bool(torch.isfinite(each).all()) for each in head.parameters())]

    @property
    def shares(self) -> list[float]:
        """Of each seed, the share of all inputs that come out right."""
        return [1 - proof.failures / proof.inputs for proof in self.right]

    @property
    def num_perfect(self) -> int:
        """How many seeds get every input right."""
        return sum(proof.holds for proof in self.right)


def initial_head(design: Design, has_learned_positions: bool, seed: int, member: int) -> SingleHead:
    """Make a head of the design's shape with random weights; positions that are not learned are the design's."""
    with seeds.isolated(seed, NAME, design.name, "model", member):
        drawn = design.model(torch.float32)
        config = SingleHeadConfig(**{**drawn.config.to_mapping(), "learned_positions": has_learned_positions})
        head = SingleHead(config)
    if head.positions is not None and drawn.positions is not None and not has_learned_positions:
        head.positions.weight.copy_(drawn.positions.weight)
    return head


def sequences(task: VectorTask, seed: int, member: int, steps: int) -> list[Tensor]:
    """Draw the sequences of one seed's training, in blocks: ids (steps of the block, row_length)."""
    generator = seeds.generator(seed, NAME, task.rule, "data", member)
    return [task.sample(min(BLOCK, steps - start), generator).to(torch.int8) for start in range(0, steps, BLOCK)]


def train_cohort(
    design: Design,
    config: HandmadeConfig,
    seed: int,
    *,
    has_learned_positions: bool,
    tell: Callable[[int, Sequence[float]], None] = lambda step, losses: None,
) -> Cohort:
    """Train the counterparts of a design, one for each seed, and put each to every input."""
    task = design.task
    heads = [initial_head(design, has_learned_positions, seed, member) for member in range(config.seeds)]
    drawn = [sequences(task, seed, member, config.steps) for member in range(config.seeds)]
    blocks = [torch.stack(block, 1) for block in zip(*drawn, strict=True)]
    heads, losses = train_stacked(task, heads, blocks, config.learning_rate, tell=tell)
    return Cohort(
        task,
        has_learned_positions,
        heads,
        [min(BLOCK * (index + 1), config.steps) for index in range(len(blocks))],
        losses,
        [prove(head, task) for head in heads],
        [prove(head, task, tolerance=CLOSE) for head in heads],
    )


def train_stacked(
    task: VectorTask,
    heads: Sequence[SingleHead],
    blocks: Sequence[Tensor],
    learning_rate: float,
    *,
    tell: Callable[[int, Sequence[float]], None] = lambda step, losses: None,
) -> tuple[list[SingleHead], Tensor]:
    """Train heads together, a sequence each a step: blocks of ids (steps, head, row_length).

    Returns the trained heads, and the mean loss of each block and head: (blocks, heads).
    """
    is_learned = heads[0].config.learned_positions
    dtype = heads[0].query.weight.dtype
    each = [head.matrices() for head in heads]
    Km, Qm, Vm = (torch.stack([getattr(one, name) for one in each]) for name in ("Km", "Qm", "Vm"))
    pos = None if each[0].pos is None else torch.stack([one.pos for one in each if one.pos is not None])
    trained = [matrix for matrix in (Km, Qm, Vm, pos if is_learned else None) if matrix is not None]
    for matrix in trained:
        matrix.requires_grad_()
    optimiser = torch.optim.SGD(trained, lr=learning_rate, fused=True)
    scale = 1 / math.sqrt(Km.shape[-1])
    curve, done = [], 0
    for block in blocks:
        ids = block.long()
        vectors = task.vectors(ids, dtype)
        targets = task.target(ids.flatten(0, 1), dtype).view(*ids.shape, -1)
        counted = task.counted(ids).to(dtype)
        shares = (counted / counted.sum(-1, keepdim=True)).unsqueeze(-1) / task.output_dim
        blocked = torch.zeros(ids.shape, dtype=dtype).masked_fill(ids == PADDING, -math.inf).unsqueeze(-2)
        losses = []
        for x, target, share, mask in zip(vectors, targets, shares, blocked, strict=True):
            rows = x if pos is None else torch.cat((x, pos), -1)
            scores = torch.baddbmm(mask, rows @ Qm, (rows @ Km).transpose(1, 2), alpha=scale)
            output = scores.softmax(-1) @ (rows @ Vm)
            loss = ((output - target).square() * share).sum((1, 2))  # each head's own; the sum parts them again
            loss.sum().backward()
            optimiser.step()
            optimiser.zero_grad()
            losses.append(loss.detach())
        curve.append(torch.stack(losses).mean(0))
        done += len(block)
        tell(done, curve[-1].tolist())
    found = []
    for index, head in enumerate(heads):
        own = Matrices(*(None if each is None else each[index].detach() for each in (Km, Qm, Vm, pos)))  # type: ignore[arg-type]
        found.append(SingleHead.from_matrices(*own, learned_positions=head.config.learned_positions, dtype=dtype))
    return found, torch.stack(curve)
