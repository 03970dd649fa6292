"""The outcome of a sweep: the results of every model, summarized by cell."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from attnlab.core.stats import Interval, share_interval
from attnlab.display import displayed
from attnlab.experiments.sections import csv_text
from attnlab.experiments.sweeps.cells import Cell, Grid
from attnlab.experiments.sweeps.unit import Member, Result


@displayed
@dataclass(frozen=True)
class CellOutcome:
    """The models of one cell.

    success: the share that solved the problem, and its 95 % interval (Wilson); a model that
    diverged did not. solved_at: the median over all models of the first evaluated step at which
    they had solved it; None if half of them or more never did. loss, figures: medians over the
    models that did not diverge. broken: the number that did.
    """

    cell: Cell
    members: list[Member]
    success: Interval
    solved_at: float | None
    loss: float | None
    figures: Mapping[str, float]
    broken: int

    @property
    def solved(self) -> int:
        """The number of models that solved the problem."""
        return sum(member.solved_at is not None for member in self.members)


def learned_words(solved: int, models: int, success: Interval) -> list[str]:
    """Return how many models solved the problem, their share, and its interval."""
    interval = f"{success.low:.0%} to {success.high:.0%}"
    return [f"{solved}/{models}", f"{success.value:.0%}", interval]


@displayed
class Outcome:
    """The grid, and all its models in the order of cells and seeds."""

    def __init__(self, grid: Grid, results: Iterable[Result]) -> None:
        self.grid = grid
        self.results = sorted(results, key=lambda result: result.unit)
        every = [member for result in self.results for member in result.members]
        self.members = sorted(every, key=lambda member: (member.cell, member.seed))

    @cached_property
    def cells(self) -> list[CellOutcome | None]:
        """Each cell's outcome; None for a cell without results."""
        members: list[list[Member]] = [[] for _ in self.grid.cells]
        for member in self.members:
            members[member.cell].append(member)
        return [
            _of_cell(cell, own) if own else None
            for cell, own in zip(self.grid.cells, members, strict=True)
        ]

    @cached_property
    def figures(self) -> list[str]:
        """The names of the figures of the evaluations."""
        return list(next((member.figures for member in self.members if member.figures), {}))

    @property
    def expected(self) -> int:
        """The number of models when all are trained."""
        return len(self.grid.seeds) * sum(cell.config is not None for cell in self.grid.cells)

    def rows(self) -> list[dict[str, Any]]:
        """Return one mapping for each model: the cell's fields, the seed, the results."""
        return [
            {
                **self.grid.cells[member.cell].fields,
                "seed": member.seed,
                "solved": member.solved_at is not None,
                "solved_at": member.solved_at,
                "best_step": member.best_step,
                "loss": member.loss,
                **{name: member.figures.get(name) for name in self.figures},
                "fault": member.fault,
            }
            for member in self.members
        ]

    def csv(self) -> str:
        """Write `rows` as CSV; missing values are empty."""
        rows = self.rows()
        names = list(rows[0]) if rows else [axis.name for axis in self.grid.axes]
        return csv_text(names, [list(row.values()) for row in rows])


def _of_cell(cell: Cell, members: list[Member]) -> CellOutcome:
    solved = sum(member.solved_at is not None for member in members)
    steps = statistics.median(
        math.inf if member.solved_at is None else member.solved_at for member in members
    )
    whole = [member for member in members if not member.fault]
    names = list(whole[0].figures) if whole else []
    losses = [member.loss for member in whole if member.loss is not None]
    return CellOutcome(
        cell,
        members,
        share_interval(solved, len(members)),
        steps if math.isfinite(steps) else None,
        statistics.median(losses) if losses else None,
        {name: statistics.median(member.figures[name] for member in whole) for name in names},
        len(members) - len(whole),
    )
