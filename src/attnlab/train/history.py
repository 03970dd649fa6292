"""What a training leaves behind of each member: its loss along the way, and its judgements."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.display import displayed

__all__ = ["History", "Judgement", "plain", "summary"]


class Judgement(NamedTuple):
    """What a judge says of a model: `score` decides which is best (greater is better), `figures` are written down.

    A judge may return 0-d tensors; the training turns them into numbers.
    """

    score: tuple[float, ...]
    figures: Mapping[str, float]


@displayed
class History:
    """The course of a training: for each time it was looked at, a number for each member.

    Attributes:
        steps: when the loss was written down, (times,).
        losses: mean training loss since the time before, (times, member); likewise norms and rates, of the last step.
        judged_steps: when the members were judged, (times,); the loss was written down then, too.
        judgements: each member's, in order.
        ends: the step after which a member was no longer trained (it had enough, or broke); None for none.
        faults: why a member broke; None for none.
    """

    def __init__(self, num_members: int) -> None:
        self.num_members = num_members
        self.steps: list[int] = []
        self.losses: list[Tensor] = []
        self.norms: list[Tensor] = []
        self.rates: list[Tensor] = []
        self.judged_steps: list[int] = []
        self.judgements: list[list[Judgement]] = [[] for _ in range(num_members)]
        self.ends: list[int | None] = [None] * num_members
        self.faults: list[str | None] = [None] * num_members
        self._stacked = torch.empty(num_members, 0, 3)

    def note(self, step: int, losses: Tensor, norms: Tensor, rates: Tensor) -> None:
        """Write down a time: (member,) each."""
        self.steps.append(step)
        self.losses.append(losses.double())
        self.norms.append(norms.double())
        self.rates.append(rates.double())

    def is_active(self, member: int) -> bool:
        """Say whether a member still learns."""
        return self.ends[member] is None

    def best(self, member: int) -> tuple[int, Judgement] | None:
        """Return a member's best judgement, the first of equals, and its step; None before the first."""
        own = self.judgements[member]
        if not own:
            return None
        place = max(range(len(own)), key=lambda at: own[at].score)
        return self.judged_steps[place], own[place]

    def lines(self, member: int) -> list[dict[str, Any]]:
        """Return a member's lines of metrics, in order."""
        rows = self._numbers()[member].tolist() if self.steps else []
        return [line for time, numbers in enumerate(rows) for line in self._lines(time, member, numbers)]

    def lines_of(self, time: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield what was written down at one time: (member, line), member by member."""
        rows = [kept[time].tolist() for kept in self._kept()]
        for member, numbers in enumerate(map(list, zip(*rows, strict=True))):
            for line in self._lines(time, member, numbers):
                yield member, line

    def table(self, figure: str) -> Tensor:
        """Return one figure of the judgements: (times, member), NaN where a member was no longer judged."""
        found = torch.full((len(self.judged_steps), self.num_members), math.nan, dtype=torch.float64)
        for member, own in enumerate(self.judgements):
            found[: len(own), member] = torch.tensor([each.figures[figure] for each in own], dtype=torch.float64)
        return found

    def figures(self) -> list[str]:
        """Name the figures of the judgements."""
        return list(next((each[0].figures for each in self.judgements if each), {}))

    def to_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return it as tensors and as plain facts, for a file."""
        names = self.figures()
        counts = [len(own) for own in self.judgements]
        tensors = {
            f"history.{name}": torch.stack(kept)
            for name, kept in zip(("losses", "norms", "rates"), self._kept(), strict=True)
            if kept
        }
        if any(counts):
            flat = [judgement for own in self.judgements for judgement in own]
            figures = [[each.figures[name] for name in names] for each in flat]
            tensors["history.scores"] = torch.tensor([each.score for each in flat], dtype=torch.float64)
            tensors["history.figures"] = torch.tensor(figures, dtype=torch.float64)
        facts = {
            "logged": self.steps,
            "judged": self.judged_steps,
            "judgements": counts,
            "figures": names,
            "ends": self.ends,
            "faults": self.faults,
        }
        return tensors, facts

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> "History":
        """Bring it back.

        Raises:
            ValueError: the parts do not fit each other.
        """
        history = cls(len(facts["ends"]))
        history.steps, history.judged_steps = list(facts["logged"]), list(facts["judged"])
        counts, num_members, names = facts["judgements"], history.num_members, facts["figures"]
        for name, kept in zip(("losses", "norms", "rates"), history._kept(), strict=True):
            if history.steps:
                stacked = tensors[f"history.{name}"]
                if stacked.shape != (len(history.steps), num_members) or stacked.dtype != torch.float64:
                    raise ValueError(f"history.{name} has the shape {tuple(stacked.shape)} of {stacked.dtype}")
                kept.extend(stacked.unbind())
        history.ends, history.faults = list(facts["ends"]), list(facts["faults"])
        if len(counts) != num_members or len(history.faults) != num_members:
            raise ValueError("the history is of another number of members")
        if any(counts):
            scores, figures = (tensors[f"history.{name}"] for name in ("scores", "figures"))
            if not sum(counts) == len(scores) == len(figures) or max(counts) > len(history.judged_steps):
                raise ValueError("the judgements do not fit their number")
            if (scores.dtype, figures.dtype) != (torch.float64, torch.float64):
                raise ValueError("the judgements are not of torch.float64")
            flat = iter(
                Judgement(tuple(score), dict(zip(names, values, strict=True)))
                for score, values in zip(scores.tolist(), figures.tolist(), strict=True)
            )
            history.judgements = [[next(flat) for _ in range(count)] for count in counts]
        return history

    def _kept(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        return self.losses, self.norms, self.rates

    def _numbers(self) -> Tensor:
        """All losses, norms and rates: (member, times, 3); kept, since each member asks for its own."""
        if self._stacked.shape[1] != len(self.steps):
            self._stacked = torch.stack([torch.stack(kept, 1) for kept in self._kept()], -1)
        return self._stacked

    def _lines(self, time: int, member: int, numbers: Sequence[float]) -> Iterator[dict[str, Any]]:
        """Yield what was written down of a member at one time; nothing once its training had ended."""
        step, end = self.steps[time], self.ends[member]
        if end is not None and step > end:
            return
        loss, norm, rate = numbers
        if math.isfinite(loss) and math.isfinite(norm):
            yield {"step": step, "loss": loss, "learning_rate": rate, "gradient_norm": norm}
        place = bisect_left(self.judged_steps, step)
        is_judged = place < len(self.judged_steps) and self.judged_steps[place] == step
        if is_judged and place < len(self.judgements[member]):
            yield {"step": step, **self.judgements[member][place].figures}


def plain(found: Judgement, members: Sequence[int] | None = None) -> list[Judgement]:
    """Turn a judgement's tensors into numbers: that of one model, or, of stacked ones (member, …), those of members."""
    scores, figures = list(found.score), list(found.figures.values())
    if members is None:
        columns = [[float(value)] for value in (*scores, *figures)]
    else:
        columns = [torch.as_tensor(value).double()[list(members)].tolist() for value in (*scores, *figures)]
    names = list(found.figures)
    return [
        Judgement(tuple(row[: len(scores)]), dict(zip(names, row[len(scores) :], strict=True)))
        for row in zip(*columns, strict=True)
    ]


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return the median loss of those that are finite and, of several, the quartiles around it."""
    finite = sorted(value for value in values if math.isfinite(value))
    if not finite:
        return {}
    if len(values) == 1:
        return {"loss": finite[0]}
    low, median, high = torch.tensor(finite, dtype=torch.float64).quantile(torch.tensor([0.25, 0.5, 0.75]).double())
    return {"loss": float(median), "loss_low": float(low), "loss_high": float(high)}
