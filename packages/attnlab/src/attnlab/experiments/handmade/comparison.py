"""Comparisons of heads: score tables, weights and outputs are comparable, matrices are not."""

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab import seeds
from attnlab.design import Design, gauge_change, score_table
from attnlab.errors import not_none
from attnlab.experiments.handmade.cohorts import HeadCohort, padded_inputs
from attnlab.experiments.handmade.config import NAME
from attnlab.models.single_head import SingleHead
from attnlab.tasks.vectors import PADDING, VectorTask

_MOST_COMPARED = 20  # heads of a cohort


@dataclass(frozen=True)
class CohortComparison:
    """A cohort compared with its design; each list has a number for each head.

    raw: correlation of the entries of Km, absolute. table: that of the score tables. raw_among,
    table_among: the same between each head and the next one. attention, largest_attention: mean and
    largest total variation distance (0: the same weights, 1: no common key) over all queries of all
    inputs. output: mean distance of the outputs.
    """

    raw: list[float]
    table: list[float]
    raw_among: list[float]
    table_among: list[float]
    attention: list[float]
    largest_attention: list[float]
    output: list[float]


def compare(design: Design, cohort: HeadCohort) -> CohortComparison:
    """Compare the learned heads of a task with the design (the finite ones, at most 20)."""
    task, model = design.task, design.model()
    weights, outputs = _answers(model, task)
    key, table = model.matrices().Km, score_table(model.matrices(), task).scores
    keys, tables = list[Tensor](), list[Tensor]()
    comparison = CohortComparison([], [], [], [], [], [], [])
    for head in cohort.finite[:_MOST_COMPARED]:
        double = SingleHead.from_matrices(*head.matrices())
        keys.append(double.matrices().Km)
        tables.append(score_table(double.matrices(), task).scores)
        comparison.raw.append(abs(_correlation(key, keys[-1])))
        comparison.table.append(_correlation(table, tables[-1]))
        own_weights, own_outputs = _answers(double, task)
        distance = (weights - own_weights).abs().sum(-1) / 2
        comparison.attention.append(float(distance.mean()))
        comparison.largest_attention.append(float(distance.max()))
        comparison.output.append(float((outputs - own_outputs).abs().amax(-1).mean()))
    for pair in itertools.pairwise(keys):
        comparison.raw_among.append(abs(_correlation(*pair)))
    for pair in itertools.pairwise(tables):
        comparison.table_among.append(_correlation(*pair))
    return comparison


@dataclass(frozen=True)
class GaugeEffect:
    """The relative change of Km, and the largest change of any weight and output of any input."""

    raw: float
    weights: float
    outputs: float


def gauge_effect(model: SingleHead, task: VectorTask, seed: int) -> GaugeEffect:
    """Replace Km, Qm by Km R, Qm R⁻ᵀ in float64, for a random R, and measure what changes.

    R is a rotation whose columns are stretched by factors from 1/e to e.
    """
    matrices = SingleHead.from_matrices(*model.matrices()).matrices()
    size = matrices.Km.shape[1]
    source = seeds.generator(seed, NAME, "gauge", task.rule)
    turn, _ = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64, generator=source))
    stretch = torch.rand(size, dtype=torch.float64, generator=source).mul(2).sub(1).exp()
    changed = gauge_change(matrices, turn * stretch)
    weights, outputs = _answers(SingleHead.from_matrices(*matrices), task)
    new_weights, new_outputs = _answers(SingleHead.from_matrices(*changed), task)
    return GaugeEffect(
        float((changed.Km - matrices.Km).norm() / matrices.Km.norm()),
        float((new_weights - weights).abs().max()),
        float((new_outputs - outputs).abs().max()),
    )


def _answers(model: SingleHead, task: VectorTask) -> tuple[Tensor, Tensor]:
    """Return the weights and outputs of each query that counts, over all inputs."""
    ids = padded_inputs(task)
    counted = task.counted(ids)
    with torch.no_grad():
        output = model(task.vectors(ids, torch.float64), real=ids != PADDING)
    return not_none(output.weights).squeeze(1)[counted], output.output[counted]


def _correlation(first: Tensor, second: Tensor) -> float:
    known = ~(first.isnan() | second.isnan())
    return float(torch.corrcoef(torch.stack((first[known], second[known])))[0, 1])
