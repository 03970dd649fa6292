"""The outcome of a sweep or a search: the results of every model, summarized by cell."""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from attnlab.configs import Fields
from attnlab.core.stats import Interval, share_interval
from attnlab.display import displayed, plural
from attnlab.experiments.sections import csv_text
from attnlab.experiments.sweeps.axes import Axis, typed_fields
from attnlab.experiments.sweeps.cells import SweepCell
from attnlab.experiments.sweeps.unit import ModelResult, UnitResult, versions_words


@displayed
@dataclass(frozen=True, kw_only=True)
class CellOutcome:
    """The models of one cell, or of one trial of a search.

    number: among the cells. fields: what tells it from the others. seeds: the number of models.
    solved: of those that solved the problem; one that diverged did not. solved_at: the median over
    all models of the first evaluated step at which they had solved it; None if half of them or more
    never did. loss, figures: medians over the models that did not diverge. broken: the number that
    did. refusal: why nothing could be trained. computed: where, in words.
    """

    number: int
    fields: Fields
    seeds: int = 0
    solved: int = 0
    solved_at: float | None = None
    loss: float | None = None
    broken: int = 0
    refusal: str = ""
    computed: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    members: Sequence[ModelResult] = ()

    @property
    def name(self) -> str:
        """Its values as a person would type them."""
        return typed_fields(self.fields)

    @property
    def share(self) -> Interval:
        """The share of models that solved the problem, and its 95 % interval (Wilson)."""
        return share_interval(self.solved, self.seeds)

    @property
    def success(self) -> Interval | None:
        """The share; None if no model was trained."""
        return self.share if self.seeds else None

    @property
    def score(self) -> float:
        """The share of seeds that solved the problem; ties are broken by the loss.

        The loss counts for less than one seed: (solved + 1 / (2 + loss)) / seeds.
        """
        if not self.seeds:
            return float("-inf")
        tie_break = 0.0 if self.loss is None else 1 / (2 + max(0.0, self.loss))
        return (self.solved + tie_break) / self.seeds

    def to_mapping(self) -> dict[str, Any]:
        """Return the counts and medians as plain values."""
        names = ("fields", "seeds", "solved", "solved_at", "loss", "broken")
        return {name: getattr(self, name) for name in names}

    def learned(self) -> list[str]:
        """Return how many models solved the problem, their share, and its interval, in words."""
        share, low, high = self.share
        return [f"{self.solved}/{self.seeds}", f"{share:.0%}", f"{low:.0%} to {high:.0%}"]


def summarize_cell(
    number: int, cell: SweepCell, members: Sequence[ModelResult] = (), computed: str = ""
) -> CellOutcome:
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
    return CellOutcome(
        number=number,
        fields=cell.fields,
        seeds=len(members),
        solved=sum(map(math.isfinite, steps)),
        solved_at=_median(steps),
        loss=_median(losses),
        broken=len(members) - whole,
        refusal=cell.refusal,
        computed=computed,
        figures={name: statistics.median(values) for name, values in figures.items()},
        members=members,
    )


def _median(values: Sequence[float]) -> float | None:
    """Return the median; None if it is infinite, or there are no values."""
    if not values or math.isinf(statistics.median(values)):
        return None
    return statistics.median(values)


@displayed
class SweepOutcome:
    """The cells and the results of all models, in the order of cells and seeds.

    axes: of a sweep, whose cells are a grid with the last axis moving fastest; or of a search.
    seeds: of each cell.
    """

    def __init__(
        self,
        axes: Sequence[Axis],
        grid: Sequence[SweepCell],
        seeds: Sequence[int],
        results: Iterable[UnitResult],
    ) -> None:
        self.axes, self.grid, self.seeds = axes, grid, seeds
        self.results = sorted(results, key=lambda result: result.unit)
        every = itertools.chain(*(result.members for result in self.results))
        self.members = sorted(every, key=lambda member: (member.cell, member.seed))

    @cached_property
    def cells(self) -> list[CellOutcome]:
        """The outcome of each cell; without seeds for a cell without results."""
        members: list[list[ModelResult]] = [[] for _ in self.grid]
        computed = [""] * len(self.grid)
        for result in self.results:
            for member in result.members:
                computed[member.cell] = result.computed
        for member in self.members:
            members[member.cell].append(member)
        return list(map(summarize_cell, itertools.count(), self.grid, members, computed))

    @property
    def trained(self) -> list[CellOutcome]:
        """The outcome of each cell with results, in the order of the grid."""
        return [cell for cell in self.cells if cell.seeds]

    @property
    def finished(self) -> list[CellOutcome]:
        """The outcome of each cell with results, or that cannot be trained."""
        return [cell for cell in self.cells if cell.seeds or cell.refusal]

    @property
    def refused(self) -> list[CellOutcome]:
        """The cells that cannot be trained."""
        return [cell for cell in self.cells if cell.refusal]

    @cached_property
    def figures(self) -> list[str]:
        """The names of the figures of the evaluations."""
        for member in self.members:
            if member.figures:
                return list(member.figures)
        return []

    @property
    def done(self) -> list[tuple[int, int]]:
        """The cell and the seed of every model that was trained."""
        return [(member.cell, member.seed) for member in self.members]

    @property
    def expected(self) -> list[tuple[int, int]]:
        """The cell and the seed of every model when all are trained."""
        pairs: list[tuple[int, int]] = []
        for index, cell in enumerate(self.grid):
            if not cell.refusal:
                pairs += [(index, seed) for seed in self.seeds]
        return pairs

    @property
    def diverged(self) -> int:
        """The number of models that diverged."""
        return sum(bool(member.fault) for member in self.members)

    def facts(self, versions: Mapping[str, str]) -> dict[str, str]:
        """Say how the models were computed, for the head of a report."""
        models = f"{len(self.members):,} of {len(self.expected):,}"
        if self.diverged:
            models += f", {self.diverged:,} diverged"
        places = Counter(result.computed for result in self.results)
        computed = list(places)
        if len(places) > 1:
            computed = [f"{num:,} {plural(num, 'population')} {at}" for at, num in places.items()]
        return {
            "models": models,
            "layout": " and ".join(sorted({result.layout for result in self.results})),
            "machines": f"{len({result.machine for result in self.results}):,}",
            "computed": ", ".join(computed) or "nothing yet",
            "versions": versions_words(versions),
        }

    def rows(self) -> list[dict[str, object]]:
        """Return one mapping for each model: the cell's fields, the seed, the results."""
        return list(map(self._row, self.members))

    def _row(self, member: ModelResult) -> dict[str, object]:
        row: dict[str, object] = {
            **self.grid[member.cell].fields,
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
