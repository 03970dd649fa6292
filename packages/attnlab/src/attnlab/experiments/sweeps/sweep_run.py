"""`sweep`: every combination of some settings' values, each with many seeds.

The results of each population are a line in `cells/`, with its digest: nothing finished is lost,
and what is damaged is computed again when the sweep is resumed.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from attnlab.core.store import digest_of, make_folder, write_text
from attnlab.display import Card, displayed, frame
from attnlab.errors import WrongUsage
from attnlab.experiments.claims import Claim
from attnlab.experiments.folder import RunFolder
from attnlab.experiments.report import Report
from attnlab.experiments.sweeps.axes import shown
from attnlab.experiments.sweeps.engines import Where
from attnlab.experiments.sweeps.outcome import CellOutcome, Outcome, places_words
from attnlab.experiments.sweeps.plan import Plan
from attnlab.experiments.sweeps.report import make_content
from attnlab.experiments.sweeps.runner import CellResults, CellRun, refuse_call
from attnlab.experiments.sweeps.unit import Result, Unit, compute, read_result, versions_words
from attnlab.seeds import generator
from attnlab.train.config import LayoutName
from attnlab.train.observer import Observer, Silent


@displayed
@dataclass(frozen=True, eq=False)
class Sweep(CellResults):
    """A sweep with its results.

    Attributes:
        outcome: every cell and every model.
        report: saved and opened as an ordinary run's, but without a model.
        folder: where it is kept; None while it only lives in memory.
    """

    outcome: Outcome
    report: Report = field(repr=False)
    folder: Path | None = None

    @property
    def cells(self) -> list[CellOutcome]:
        """The outcome of each trained cell, in the order of the grid."""
        return self.outcome.trained

    def rows(self) -> list[dict[str, object]]:
        """Return one mapping for each model: the cell's fields, the seed, the results."""
        return self.outcome.rows()

    def frame(self) -> Any:
        """Return `rows` as a pandas DataFrame.

        Raises:
            CouldNotRun: pandas is not installed.
        """
        return frame(self.rows())

    def to_mapping(self) -> dict[str, object]:
        """Return the cells as plain values."""
        cells = []
        for cell in self.cells:
            share, low, high = cell.share
            ends = {"share": share, "low": low, "high": high}
            cells.append({**cell.tally(), **ends, "figures": cell.figures})
        return {"cells": cells}

    def _card(self) -> Card:
        grid = self.outcome.grid
        refused, lines = grid.impossible, []
        if refused:
            words = f"{refused[0].name} ({refused[0].refusal})"
            if len(refused) > 1:
                words += f", and {len(refused) - 1:,} more"
            lines.append(f"invalid cells, which stay blank: {words}")
        columns = [*(axis.name for axis in grid.axes), "learned", "share", "95 % interval"]
        rows = [[*map(shown, cell.fields.values()), *cell.learned()] for cell in self.cells]
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
    refuse_call("sweep", out, resume=resume)
    if resume and not settings and not fields:
        if seeds is not None or stop_when_solved or layout != "auto":
            raise WrongUsage(
                "a sweep is resumed as it was begun: give --out and --resume alone, or repeat "
                "its whole command."
            )
        plan = Plan.in_folder("sweep", Path(str(out)), name)
    else:
        if seeds is None:
            seeds = range(64)
        plan = Plan.read(
            name,
            settings or {},
            fields,
            seeds,
            layout=layout,
            stop_when_solved=stop_when_solved,
        )
    where = Where(engine, workers, address)
    return _GridRun.start(plan, out, where, resume=resume, observer=observer)


def open_sweep(folder: Path | str) -> Sweep:
    """Open a sweep, finished or not.

    Raises:
        CouldNotRun: none is there, or nothing of it is finished.
    """
    return _GridRun.open(folder)


class _GridRun(CellRun[Sweep]):
    """The cells of a grid, all of them known before the first is trained."""

    kind = "sweep"
    results = "cells"

    def __init__(self, plan: Plan, folder: RunFolder | None, observer: Observer) -> None:
        super().__init__(plan, folder, observer)
        self._grid = plan.grid()
        self._units = plan.units(self._grid)
        self._lines: dict[int, str] = {}
        if folder is not None:
            self._lines = all_kept(folder.path, self._units)

    @classmethod
    def check(cls, plan: Plan) -> None:
        plan.grid()

    def _rounds(self) -> Iterator[Sequence[Unit]]:
        self._counter = _ModelCounter(self._observer, self._units, self._lines)
        yield [unit for unit in self._units if unit.number not in self._lines]
        if self._failures:
            words = (
                f"{len(self._failures)} of {len(self._units)} populations could not be trained: "
                f"{self._failures[0]}"
            )
            if self._folder is not None:
                words += " The finished ones are kept; --resume does the rest."
            raise type(self._failures[0])(words)

    def _watch(self) -> Observer:
        return self._counter

    def _keep(self, result: Result, line: str) -> None:
        engine = self._engine
        origin = {"computed": engine.words, "is_elsewhere": engine.is_elsewhere}
        line = json.dumps({**json.loads(line), **origin}, allow_nan=False)
        self._lines[result.unit] = line
        if self._folder is not None:
            keep(self._folder.path, result.unit, line)
        self._counter.count()

    def _outcome(self) -> Outcome:
        return Outcome(self._grid, map(read_result, self._lines.values()))

    def _table(self) -> str:
        return self._outcome().csv() if self._lines else ""

    def _found(self, report: Report, folder: Path | None) -> Sweep:
        return Sweep(self._outcome(), report, folder)

    def _claims(self) -> list[Claim]:
        outcome = self._outcome()
        numbers, expected = outcome.found, outcome.expected
        measured = f"{len(set(numbers) & set(expected)):,} models"
        if outcome.diverged:
            measured += f", of which {outcome.diverged:,} diverged"
        all_there = Claim(
            "all_there",
            "every seed of every cell is in the table once, trained to its end or with the reason "
            "why not",
            measured,
            f"{len(expected):,} models",
            sorted(numbers) == sorted(expected),
            is_self_check=True,
        )
        elsewhere = [result.unit for result in outcome.results if result.is_elsewhere]
        if elsewhere:
            self._observer.stage("one population again, here")
            return [all_there, self._same_here(elsewhere)]
        return [all_there]

    def _same_here(self, elsewhere: Sequence[int]) -> Claim:
        """Compute a random one of the populations computed elsewhere once more in this process."""
        random = generator(self._plan.seeds[0], "sweep", "lot")
        unit = self._units[elsewhere[int(torch.randint(len(elsewhere), (), generator=random))]]
        there = json.loads(self._lines[unit.number]).get("members", [])
        here = json.loads(compute(unit.to_line())).get("members", [])
        cells = self._grid.cells[unit.cells[0]].name
        if len(unit.cells) > 1:
            cells += f" and {len(unit.cells) - 1:,} more"
        same = sum(a == b for a, b in zip(there, here, strict=False))
        return Claim(
            "same_here",
            f"a random one of the populations computed elsewhere ({cells}, {len(unit.seeds):,} "
            "seeds), computed once more in this process, gives the same numbers to the last bit",
            f"{same:,}/{len(there):,} models the same",
            f"{len(there):,}/{len(there):,}",
            there == here,
            is_self_check=True,
        )

    def _report(self, claims: Sequence[Claim]) -> Report:
        plan, outcome = self._plan, self._outcome()
        models = f"{len(outcome.members):,} of {len(outcome.expected):,}"
        if outcome.diverged:
            models += f", {outcome.diverged:,} diverged"
        results = outcome.results
        layouts, machines, places, metrics = set(), set(), [], []
        for result in results:
            layouts.add(result.layout)
            machines.add(result.machine)
            places.append(result.computed or "not known where")
            line = {"unit": result.unit, "layout": result.layout, "models": len(result.members)}
            metrics.append(line)
        facts = {
            "models": models,
            "layout": " and ".join(sorted(layouts)),
            "machines": f"{len(machines):,}",
            "computed": places_words(places, "population"),
            "versions": versions_words(self._config["versions"]),
        }
        problems = plan.problems(self._grid.cells)
        content = make_content(plan.experiment, outcome, plan.fixed, facts, problems)
        return Report(plan.experiment, self._config, tuple(claims), metrics, content)


class _ModelCounter(Silent):
    """An observer that turns the steps of one population into progress over all models."""

    def __init__(self, observer: Observer, units: list[Unit], lines: Mapping[int, str]) -> None:
        self._observer, self._lines = observer, lines
        self._sizes = {unit.number: len(unit.cells) * len(unit.seeds) for unit in units}
        self._all = sum(self._sizes.values())
        self.count()

    def count(self) -> None:
        """Count the models of finished units."""
        self._done = sum(self._sizes[number] for number in self._lines)
        self._observer.step(self._done, self._all, {})

    def step(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        """Count the finished share of a population."""
        size = next(size for number, size in self._sizes.items() if number not in self._lines)
        self._observer.step(self._done + size * step // steps, self._all, figures)

    def tell(self, sentence: str) -> None:
        """Pass the sentence on."""
        self._observer.tell(sentence)


def keep(folder: Path, number: int, line: str) -> None:
    """Write the results of a unit."""
    file = _file(folder, number)
    make_folder(file.parent)
    write_text(file, f"{line}\n{digest_of(line.encode())}\n")


def kept(folder: Path, number: int) -> str | None:
    """Read the results of a unit; return None if they are missing or damaged."""
    try:
        line, digest, end = _file(folder, number).read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        return None
    return None if (digest, end) != (digest_of(line.encode()), "") else line


def all_kept(folder: Path, units: Iterable[Unit]) -> dict[int, str]:
    """Read the results of units that are neither missing nor damaged, by number."""
    lines = {}
    for unit in units:
        line = kept(folder, unit.number)
        if line is not None:
            lines[unit.number] = line
    return lines


def _file(folder: Path, number: int) -> Path:
    return folder / "cells" / f"{number:05}.json"
