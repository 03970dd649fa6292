"""The history of each member of a training: its loss over time, and its evaluations."""

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.display import displayed

_NUMBERS = ("losses", "norms", "rates")

MetricsLine = dict[str, Any]
"""A line of metrics: the step, a whole number, and figures by name."""


class Evaluation(NamedTuple):
    """The result of an evaluation: `score` decides which model is best (greater is better),
    `figures` are recorded.

    An evaluator may return 0-d tensors; the training turns them into numbers.
    """

    score: tuple[float, ...]
    figures: Mapping[str, float]


@displayed
class History:
    """The history of a training: for each time of a note, a number for each member.

    Attributes:
        steps: when the loss was written down, (times,).
        losses: mean training loss since the time before, (times, member); likewise norms and rates,
            of the last step.
        evaluated_steps: when the members were evaluated, (times,); the loss was written down then,
        too. evaluations: each member's, in order. ends: the step after which a member was no longer
        trained (it had enough, or broke); None
            for none.
        faults: why a member broke; None for none.
    """

    def __init__(self, num_members: int) -> None:
        self.num_members = num_members
        self.steps: list[int] = []
        self.losses: list[Tensor] = []
        self.norms: list[Tensor] = []
        self.rates: list[Tensor] = []
        self.evaluated_steps: list[int] = []
        self.evaluations: list[list[Evaluation]] = [[] for _ in range(num_members)]
        self.ends: list[int | None] = [None] * num_members
        self.faults: list[str | None] = [None] * num_members
        self._stacked = torch.empty(num_members, 0, 3)

    def note(self, step: int, losses: Tensor, norms: Tensor, rates: Tensor) -> None:
        """Add a note: (member,) each."""
        self.steps.append(step)
        self.losses.append(losses.double())
        self.norms.append(norms.double())
        self.rates.append(rates.double())

    def is_active(self, member: int) -> bool:
        """Is a member still trained?"""
        return self.ends[member] is None

    def best(self, member: int) -> tuple[int, Evaluation] | None:
        """Return a member's best evaluation, the first of equals, and its step; None before the
        first."""
        member_evaluations = zip(self.evaluated_steps, self.evaluations[member], strict=False)
        return max(member_evaluations, key=lambda evaluated: evaluated[1].score, default=None)

    def lines(self, member: int) -> list[MetricsLine]:
        """Return a member's lines of metrics, in order."""
        lines: list[MetricsLine] = []
        if self.steps:
            for time, numbers in enumerate(self._numbers()[member].tolist()):
                lines += self._lines(time, member, numbers)
        return lines

    def lines_of(self, time: int) -> Iterator[tuple[int, MetricsLine]]:
        """Yield the lines of one note: (member, line), member by member."""
        rows = torch.stack((self.losses[time], self.norms[time], self.rates[time]), -1)
        for member, numbers in enumerate(rows.tolist()):
            for line in self._lines(time, member, numbers):
                yield member, line

    def table(self, figure: str) -> Tensor:
        """Return one figure of the evaluations: (times, member), NaN after a member's end."""
        shape = (len(self.evaluated_steps), self.num_members)
        table = torch.full(shape, math.nan, dtype=torch.float64)
        for member, evaluations in enumerate(self.evaluations):
            values = [evaluation.figures[figure] for evaluation in evaluations]
            table[: len(evaluations), member] = torch.tensor(values, dtype=torch.float64)
        return table

    def figures(self) -> list[str]:
        """Return the names of the figures of the evaluations."""
        evaluations = itertools.chain.from_iterable(self.evaluations)
        return list(next(evaluations, Evaluation((), {})).figures)

    def to_state(self) -> tuple[dict[str, Tensor], dict[str, object]]:
        """Return the history as tensors and plain values, for a file."""
        tensors = {}
        if self.steps:
            for name in _NUMBERS:
                tensors[f"history.{name}"] = torch.stack(getattr(self, name))
        names = self.figures()
        flat = list(itertools.chain(*self.evaluations))
        if flat:
            scores = [evaluation.score for evaluation in flat]
            figures = [[evaluation.figures[name] for name in names] for evaluation in flat]
            tensors["history.scores"] = torch.tensor(scores, dtype=torch.float64)
            tensors["history.figures"] = torch.tensor(figures, dtype=torch.float64)
        facts: dict[str, object] = {
            "logged": self.steps,
            "evaluated": self.evaluated_steps,
            "judgements": list(map(len, self.evaluations)),
            "figures": names,
            "ends": self.ends,
            "faults": self.faults,
        }
        return tensors, facts

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> "History":
        """Restore a history."""
        history = cls(len(facts["ends"]))
        history.steps, history.evaluated_steps = list(facts["logged"]), list(facts["evaluated"])
        history.ends, history.faults = list(facts["ends"]), list(facts["faults"])
        if history.steps:
            for name in _NUMBERS:
                getattr(history, name).extend(tensors[f"history.{name}"].unbind())
        if any(facts["judgements"]):
            scores, figures = tensors["history.scores"], tensors["history.figures"]
            rows = zip(scores.tolist(), figures.tolist(), strict=True)
            for evaluations, count in zip(history.evaluations, facts["judgements"], strict=True):
                for score, values in itertools.islice(rows, count):
                    by_name = dict(zip(facts["figures"], values, strict=True))
                    evaluations.append(Evaluation(tuple(score), by_name))
        return history

    def _numbers(self) -> Tensor:
        """All losses, norms and rates: (member, times, 3); cached, since each member reads its
        own."""
        if self._stacked.shape[1] != len(self.steps):
            kept = [torch.stack(getattr(self, name), 1) for name in _NUMBERS]
            self._stacked = torch.stack(kept, -1)
        return self._stacked

    def _lines(self, time: int, member: int, numbers: Sequence[float]) -> Iterator[MetricsLine]:
        """Yield the lines of a member at one note; none after its end."""
        step, end = self.steps[time], self.ends[member]
        if end is not None and step > end:
            return
        loss, norm, rate = numbers
        if math.isfinite(loss) and math.isfinite(norm):
            yield {"step": step, "loss": loss, "learning_rate": rate, "gradient_norm": norm}
        place = bisect_left(self.evaluated_steps, step)
        is_evaluated = place < len(self.evaluated_steps) and self.evaluated_steps[place] == step
        if is_evaluated and place < len(self.evaluations[member]):
            yield {"step": step, **self.evaluations[member][place].figures}


def plain_evaluations(
    evaluation: Evaluation, members: Sequence[int] | None = None
) -> list[Evaluation]:
    """Convert an evaluation's tensors to numbers: of one model or, from (member, …), of each
    member."""
    columns = []
    for value in (*evaluation.score, *evaluation.figures.values()):
        numbers = torch.as_tensor(value, dtype=torch.float64)
        columns.append([float(numbers)] if members is None else numbers[list(members)].tolist())
    count = len(evaluation.score)
    evaluations = []
    for row in zip(*columns, strict=True):
        figures = dict(zip(evaluation.figures, row[count:], strict=True))
        evaluations.append(Evaluation(tuple(row[:count]), figures))
    return evaluations


def summary(values: Tensor) -> dict[str, float]:
    """Return the median of the finite losses, (member,), and, of several, their quartiles."""
    finite = values[torch.isfinite(values)].double()
    if not len(finite):
        return {}
    if len(values) == 1:
        return {"loss": float(finite)}
    shares = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    low, median, high = finite.quantile(shares).tolist()
    return {"loss": median, "loss_low": low, "loss_high": high}
