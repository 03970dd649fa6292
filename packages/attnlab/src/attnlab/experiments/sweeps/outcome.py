"""The outcome of a sweep: the results of every model, summarized by cell."""

import dataclasses
import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from attnlab.configs import Fields
from attnlab.core.stats import Interval, share_interval
from attnlab.display import displayed, plural
from attnlab.experiments.sections import csv_text
from attnlab.experiments.sweeps.axes import typed
from attnlab.experiments.sweeps.cells import Cell, Grid
from attnlab.experiments.sweeps.unit import Member, Result


@dataclass(frozen=True)
class Tally:
    """How many models of one setting solved the problem.

    fields: what tells the setting from the others. seeds: the number of models. solved: of those
    that solved the problem; one that diverged did not. solved_at: the median over all models of
    the first evaluated step at which they had solved it; None if half of them or more never did.
    loss: the median over the models that did not diverge. broken: the number that did.
    """

    fields: Fields
    seeds: int = 0
    solved: int = 0
    solved_at: float | None = None
    loss: float | None = None
    broken: int = 0

    @property
    def name(self) -> str:
        """Its values as a person would type them."""
        return typed(self.fields)

    @property
    def share(self) -> Interval:
        """The share of models that solved the problem, and its 95 % interval (Wilson)."""
        return share_interval(self.solved, self.seeds)

    def tally(self) -> dict[str, Any]:
        """Return the fields of a tally alone."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(Tally)}

    def learned(self) -> list[str]:
        """Return how many models solved the problem, their share, and its interval, in words."""
        share, low, high = self.share
        return [f"{self.solved}/{self.seeds}", f"{share:.0%}", f"{low:.0%} to {high:.0%}"]


@displayed
@dataclass(frozen=True, kw_only=True)
class CellOutcome(Tally):
    """The models of one cell; figures: medians over the models that did not diverge."""

    cell: Cell
    members: Sequence[Member]
    figures: Mapping[str, float]

    @property
    def success(self) -> Interval:
        """The share of models that solved the problem, and its 95 % interval."""
        return self.share

    @classmethod
    def of(cls, cell: Cell, members: Sequence[Member]) -> "CellOutcome":
        """Summarize the models of a cell."""
        steps, losses, whole = list[float](), list[float](), 0
        figures: dict[str, list[float]] = {}
        for member in members:
            steps.append(math.inf if member.solved_at is None else member.solved_at)
            if member.fault:
                continue
            whole += 1
            if member.loss is not None:
                losses.append(member.loss)
            for name, value in member.figures.items():
                figures.setdefault(name, []).append(value)
        return cls(
            cell.fields,
            seeds=len(members),
            solved=sum(map(math.isfinite, steps)),
            solved_at=_median(steps),
            loss=_median(losses),
            broken=len(members) - whole,
            cell=cell,
            members=members,
            figures={name: statistics.median(values) for name, values in figures.items()},
        )


def _median(values: Sequence[float]) -> float | None:
    """Return the median; None if it is infinite, or there are no values."""
    if not values or math.isinf(statistics.median(values)):
        return None
    return statistics.median(values)


@displayed
class Outcome:
    """The grid, and all its models in the order of cells and seeds."""

    def __init__(self, grid: Grid, results: Iterable[Result]) -> None:
        self.grid = grid
        self.results = sorted(results, key=lambda result: result.unit)
        every = itertools.chain(*(result.members for result in self.results))
        self.members = sorted(every, key=lambda member: (member.cell, member.seed))

    @cached_property
    def cells(self) -> list[CellOutcome | None]:
        """Each cell's outcome; None for a cell without results."""
        members: list[list[Member]] = [[] for _ in self.grid.cells]
        for member in self.members:
            members[member.cell].append(member)
        outcomes: list[CellOutcome | None] = []
        for cell, cell_members in zip(self.grid.cells, members, strict=True):
            outcomes.append(CellOutcome.of(cell, cell_members) if cell_members else None)
        return outcomes

    @property
    def trained(self) -> list[CellOutcome]:
        """The outcome of each cell with results, in the order of the grid."""
        return [cell for cell in self.cells if cell is not None]

    @cached_property
    def figures(self) -> list[str]:
        """The names of the figures of the evaluations."""
        for member in self.members:
            if member.figures:
                return list(member.figures)
        return []

    @property
    def found(self) -> list[tuple[int, int]]:
        """The cell and the seed of every model that was trained."""
        return [(member.cell, member.seed) for member in self.members]

    @property
    def expected(self) -> list[tuple[int, int]]:
        """The cell and the seed of every model when all are trained."""
        pairs: list[tuple[int, int]] = []
        for index, cell in enumerate(self.grid.cells):
            if cell.config is not None:
                pairs += [(index, seed) for seed in self.grid.seeds]
        return pairs

    @property
    def diverged(self) -> int:
        """The number of models that diverged."""
        return sum(bool(member.fault) for member in self.members)

    def rows(self) -> list[dict[str, object]]:
        """Return one mapping for each model: the cell's fields, the seed, the results."""
        return list(map(self._row, self.members))

    def _row(self, member: Member) -> dict[str, object]:
        row: dict[str, object] = {
            **self.grid.cells[member.cell].fields,
            "seed": member.seed,
            "solved": member.solved_at is not None,
            "solved_at": member.solved_at,
            "best_step": member.best_step,
            "loss": member.loss,
        }
        for name in self.figures:
            row[name] = member.figures.get(name)
        row["fault"] = member.fault
        return row

    def csv(self) -> str:
        """Write `rows` as CSV; missing values are empty."""
        rows, names = self.rows(), list[str]()
        if rows:
            names = list(rows[0])
        return csv_text(names, [list(row.values()) for row in rows])


def places_words(places: Iterable[str], noun: str) -> str:
    """Say where something was computed, with the number of each place if there are several."""
    counts = Counter(places)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count:,} {plural(count, noun)} {place}" for place, count in counts.items())
