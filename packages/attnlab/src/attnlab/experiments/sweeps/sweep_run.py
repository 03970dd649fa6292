"""`sweep`: every combination of some settings' values, each with many seeds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab.display import Card, displayed
from attnlab.errors import WrongUsage
from attnlab.experiments.executors import ExecutorOptions
from attnlab.experiments.sweeps.axes import typed_value
from attnlab.experiments.sweeps.outcome import CellOutcome
from attnlab.experiments.sweeps.plan import Plan
from attnlab.experiments.sweeps.runner import CellResults, CellRun
from attnlab.train.config import LayoutName
from attnlab.train.observer import Observer


@displayed
@dataclass(frozen=True, eq=False)
class Sweep(CellResults):
    """A sweep with its results."""

    @property
    def cells(self) -> list[CellOutcome]:
        """The outcome of each trained cell, in the order of the grid."""
        return self.outcome.trained

    def to_mapping(self) -> dict[str, object]:
        """Return the cells as plain values."""
        cells = []
        for cell in self.cells:
            ends = dict(zip(("share", "low", "high"), cell.share, strict=True))
            cells.append({**cell.to_mapping(), **ends, "figures": cell.figures})
        return {"cells": cells}

    def _card(self) -> Card:
        refused, lines = self.outcome.refused, []
        if refused:
            words = f"{refused[0].name} ({refused[0].refusal})"
            if len(refused) > 1:
                words += f", and {len(refused) - 1:,} more"
            lines.append(f"invalid cells, which stay blank: {words}")
        names = [axis.name for axis in self.outcome.axes]
        columns = [*names, "learned", "share", "95 % interval"]
        rows = [[*map(typed_value, cell.fields.values()), *cell.learned()] for cell in self.cells]
        return self._table_card(columns, rows, lines)

    def __str__(self) -> str:
        lines = [str(self.report.content.subtitle)]
        for cell in self.cells:
            lines.append(f"{cell.name}: {cell.solved} of {cell.seeds} ({cell.learned()[2]})")
        return "\n".join(lines)


def sweep(
    name: str,
    *,
    seeds: Iterable[int] | None = None,
    out: Path | str | None = None,
    settings: Mapping[str, str] | None = None,
    layout: LayoutName = "auto",
    stop_when_solved: bool = False,
    engine: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    resume: bool = False,
    observer: Observer | None = None,
    **fields: Any,
) -> Sweep:
    """Train an experiment's model for every combination of some settings, each with many seeds.

    Args:
        name: such as "sorting".
        seeds: of each cell; None for range(64).
        out: the folder to make; None keeps the sweep in memory.
        settings: config fields as texts, as `--set` gives them: `{"rank": "1..6", "temperature":
            "0.3,1,3"}`.
        layout: how populations are computed, see `choose_layout`.
        stop_when_solved: whether a model's training ends as soon as it has solved the problem.
        engine: "local", or "ray" for a Ray cluster at `address`; None for the engine of a sweep
            that is resumed, and for this process otherwise.
        workers: processes on this machine.
        resume: continue the sweep in `out`; without settings, all of them are taken from there.
        observer: is told of progress, counted in models.
        **fields: config fields as values; a list, tuple or range makes an axis.

    Returns:
        the `Sweep`: its cells, each with a population.

    Raises:
        WrongUsage: an unknown name or setting, a value out of range, no axis, or another sweep in
            the folder.
        CouldNotRun: the folder is taken or cannot be written, there is no cluster, or some
            populations could not be trained; finished ones are kept, and `resume` does the rest.

    >>> found = sweep("sorting", rank=[1, 2], seeds=range(2), steps=20, evaluate_every=10)
    >>> print(found)
    2 cells of 2 seeds: 0 of 4 models solved the problem
    rank=1: 0 of 2 (0% to 66%)
    rank=2: 0 of 2 (0% to 66%)
    """
    if resume and not settings and not fields:
        if seeds is not None or stop_when_solved or layout != "auto":
            raise WrongUsage(
                "a sweep is resumed as it was begun: give --out and --resume alone, or repeat "
                "its whole command."
            )
        plan = Plan.in_folder("sweep", out, name)
    else:
        plan = Plan.read(
            name,
            settings or {},
            fields,
            range(64) if seeds is None else seeds,
            layout=layout,
            stop_when_solved=stop_when_solved,
        )
    where = ExecutorOptions(engine, workers, address)
    return Sweep(*CellRun.start(plan, out, where, resume=resume, observer=observer).parts())


def open_sweep(folder: Path | str) -> Sweep:
    """Open a sweep, finished or not.

    Raises:
        CouldNotRun: none is there, or nothing of it is finished.
    """
    return Sweep(*CellRun.open(folder).parts())
