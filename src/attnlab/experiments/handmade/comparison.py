"""Comparisons of heads: score tables, weights and outputs are comparable, matrices are not."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnlab import seeds
from attnlab.design import Design, gauge_change, score_table
from attnlab.experiments.handmade.cohorts import Cohort
from attnlab.experiments.handmade.config import NAME
from attnlab.models.single_head import SingleHead
from attnlab.parts.numpy_transformer import NumpyTransformer
from attnlab.tasks.vectors import VectorTask

_MOST_COMPARED = 20  # heads of a cohort
_WIDEST = 9


@dataclass(frozen=True)
class Comparison:
    """A cohort compared with its design; each list has a number for each head.

    raw: correlation of the entries of Km. table: correlation of the score tables. raw_among,
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


def compare(design: Design, cohort: Cohort) -> Comparison:
    """Compare the learned heads of a task with the design (the finite ones, at most 20)."""
    task = design.task
    hand = design.model()
    heads = [SingleHead.from_matrices(*head.matrices()) for head in cohort.finite[:_MOST_COMPARED]]
    tables = [score_table(head.matrices(), task).scores for head in (hand, *heads)]
    keys = [head.matrices().Km for head in (hand, *heads)]
    found = Comparison([], [], [], [], [], [], [])
    wanted = _everything(hand, task)
    for index, head in enumerate(heads, 1):
        found.raw.append(_correlation(keys[0], keys[index]))
        found.table.append(_correlation(tables[0], tables[index]))
        if index > 1:
            found.raw_among.append(_correlation(keys[index - 1], keys[index]))
            found.table_among.append(_correlation(tables[index - 1], tables[index]))
        got = _everything(head, task)
        distance = torch.cat(
            [(a - b).abs().sum(-1) / 2 for a, b in zip(wanted.weights, got.weights, strict=True)]
        )
        outputs = torch.cat(
            [(a - b).abs().amax(-1) for a, b in zip(wanted.outputs, got.outputs, strict=True)]
        )
        found.attention.append(float(distance.mean()))
        found.largest_attention.append(float(distance.max()))
        found.output.append(float(outputs.mean()))
    return found


@dataclass(frozen=True)
class CountingWay:
    """Mean scores of a letter for itself, the same letter elsewhere, others and CLS; and values."""

    itself: float
    likes: float
    others: float
    cls: float
    letter_value: float
    cls_value: float


def counting_way(cohort: Cohort) -> CountingWay:
    """Return the mean scores and values by which learned heads solve `unique`."""
    found = []
    for head in cohort.finite:
        matrices = head.matrices()
        table = score_table(matrices, cohort.task)
        kinds: dict[str, list[float]] = {"itself": [], "likes": [], "others": [], "cls": []}
        for query, row in zip(table.queries, table.scores.tolist(), strict=True):
            for key, score in zip(table.keys, row, strict=True):
                if not math.isnan(score):
                    kinds[_key_kind(query, key)].append(score)
        assert matrices.pos is not None
        letters = matrices.Vm[: cohort.task.input_dim]
        positions = matrices.pos @ matrices.Vm[cohort.task.input_dim :]
        letter_value = float(letters[: cohort.task.letters].mean() + positions[1:].mean())
        cls_value = float(letters[cohort.task.letters] + positions[0])
        scores = [math.fsum(each) / len(each) for each in kinds.values()]
        found.append([*scores, letter_value, cls_value])
    return CountingWay(*(math.fsum(each) / len(each) for each in zip(*found, strict=True)))


def _key_kind(query: str, key: str) -> str:
    if key == "CLS":
        return "cls"
    if key == query:
        return "itself"
    return "likes" if key[0] == query[0] else "others"


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
    before = _everything(SingleHead.from_matrices(*matrices), task)
    after = _everything(SingleHead.from_matrices(*changed), task)
    return GaugeEffect(
        float((changed.Km - matrices.Km).norm() / matrices.Km.norm()),
        max(float((a - b).abs().max()) for a, b in zip(before.weights, after.weights, strict=True)),
        max(float((a - b).abs().max()) for a, b in zip(before.outputs, after.outputs, strict=True)),
    )


def largest_difference(draws: int, seed: int) -> float:
    """Return the largest difference of NumPy's and PyTorch's outputs over random heads, in float64.

    Widths and inputs are random too; every other head has positions; the inputs have every length
    from 1 to the longest.
    """
    source = np.random.default_rng(seeds.stream_seed(seed, NAME, "agreement"))
    largest = 0.0
    for draw in range(draws):
        input_dim, qk_dim, v_dim, pos_dim, longest = source.integers(1, _WIDEST + 1, 5).tolist()
        width = input_dim + (pos_dim if draw % 2 else 0)
        Km, Qm, Vm = (source.normal(size=(width, size)) for size in (qk_dim, qk_dim, v_dim))
        pos = source.normal(size=(longest, pos_dim)) if draw % 2 else None
        reference = NumpyTransformer(Km, Qm, Vm, pos)
        model = SingleHead.from_matrices(Km, Qm, Vm, pos)
        for length in range(1, longest + 1):
            x = source.normal(size=(length, input_dim))
            with torch.no_grad():
                got = model(torch.from_numpy(x).unsqueeze(0)).output[0].numpy()
            difference = float(np.abs(reference(x) - got).max())
            largest = max(largest, difference) if math.isfinite(difference) else math.inf
    return largest


def usual_failures(design: Design) -> int:
    """Count the inputs that fail NumPy's usual comparison.

    |output - target| ≤ 1e-8 + 1e-3 |target| allows a thousandth for ones, but a hundred-millionth
    for zeros.
    """
    task, model = design.task, design.model()
    wrong = 0
    for ids in task.inputs_by_length():
        with torch.no_grad():
            output = model(task.vectors(ids, torch.float64)).output
        target = task.target(ids, torch.float64)
        fits = (output - target).abs() <= 1e-8 + 1e-3 * target.abs()
        wrong += int((~(fits.all(-1) | ~task.counted(ids)).all(-1)).sum())
    return wrong


@dataclass(frozen=True)
class _Everything:
    """Weights and outputs of each query that counts, one tensor for each length."""

    weights: list[Tensor]
    outputs: list[Tensor]


def _everything(model: SingleHead, task: VectorTask) -> _Everything:
    found = _Everything([], [])
    for ids in task.inputs_by_length():
        with torch.no_grad():
            answer = model(task.vectors(ids, torch.float64))
        counted = task.counted(ids)
        assert answer.weights is not None
        found.weights.append(answer.weights.squeeze(1)[counted])
        found.outputs.append(answer.output[counted])
    return found


def _correlation(first: Tensor, second: Tensor) -> float:
    known = ~(first.isnan() | second.isnan())
    return float(torch.corrcoef(torch.stack((first[known], second[known])))[0, 1])
