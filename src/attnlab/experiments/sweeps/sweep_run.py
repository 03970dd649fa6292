"""`sweep`: every combination of some settings' values, each with many seeds.

The results are saved population by population, so that nothing finished is lost.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from attnlab.core.store import write_text
from attnlab.display import Card, displayed, frame
from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage
from attnlab.experiments.claims import Claim
from attnlab.experiments.folder import RunFolder, is_unfinished, read_to_go_on
from attnlab.experiments.report import Report, ResultsReport, open_run
from attnlab.experiments.sweeps.axes import shown
from attnlab.experiments.sweeps.engines import Engine, make_engine, where_to_compute
from attnlab.experiments.sweeps.outcome import CellOutcome, Outcome, learned_words
from attnlab.experiments.sweeps.plan import Plan
from attnlab.experiments.sweeps.report import make_content
from attnlab.experiments.sweeps.sweep_folder import keep, kept, read_config_of
from attnlab.experiments.sweeps.unit import Result, Unit, compute, read_answer, read_result
from attnlab.progress import notebook_bar
from attnlab.seeds import generator
from attnlab.train.config import LayoutName
from attnlab.train.distributed import refuse_launched
from attnlab.train.observer import Observer, Silent

_SECONDS = 10.0  # between two versions of an unfinished sweep's page


@displayed
@dataclass(frozen=True, eq=False)
class Sweep:
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
        return [cell for cell in self.outcome.cells if cell is not None]

    @property
    def passed(self) -> bool | None:
        """True if every claim holds, False if one failed, else None: undecided."""
        return self.report.passed

    def rows(self) -> list[dict[str, Any]]:
        """Return one mapping for each model: the cell's fields, the seed, the results."""
        return self.outcome.rows()

    def html(self) -> str:
        """The whole report as one self-contained page."""
        return self.report.html()

    def frame(self) -> Any:
        """Return `rows` as a pandas DataFrame.

        Raises:
            CouldNotRun: pandas is not installed.
        """
        return frame(self.rows())

    def to_mapping(self) -> dict[str, Any]:
        """Return the cells as plain values."""
        cells = []
        for each in self.cells:
            share, low, high = each.success
            cells.append(
                {
                    "fields": each.cell.fields,
                    "seeds": len(each.members),
                    "solved": each.solved,
                    "share": share,
                    "low": low,
                    "high": high,
                    "solved_at": each.solved_at,
                    "loss": each.loss,
                    "figures": each.figures,
                    "broken": each.broken,
                }
            )
        return {"cells": cells}

    def _card(self) -> Card:
        rows = []
        for each in self.cells:
            learned = learned_words(each.solved, len(each.members), each.success)
            rows.append([*map(shown, each.cell.fields.values()), *learned])
        names = [axis.name for axis in self.outcome.grid.axes]
        refused = [cell for cell in self.outcome.grid.cells if cell.config is None]
        lines = []
        if refused:
            more = f", and {len(refused) - 1:,} more" if len(refused) > 1 else ""
            example = f"{refused[0].name} ({refused[0].refusal})"
            lines = [f"invalid cells, which stay blank: {example}{more}"]
        return Card(
            str(self.report.content.subtitle),
            [("folder", self.folder)] if self.folder else [],
            [*names, "learned", "share", "95 % interval"],
            rows,
            lines,
        )

    def __str__(self) -> str:
        lines = [
            f"{each.cell.name}: {each.solved} of {len(each.members)} ({low:.0%} to {high:.0%})"
            for each in self.cells
            for _, low, high in [each.success]
        ]
        return "\n".join([str(self.report.content.subtitle), *lines])


def sweep(
    name: str,
    *,
    seeds: Iterable[int] | None = None,
    out: Path | str | None = None,
    settings: Mapping[str, str] | None = None,
    quick: bool = False,
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
        quick: start from the experiment's small settings.
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
    refuse_launched("a sweep")
    if resume and out is None:
        raise WrongUsage("to resume a sweep, name its folder: --out DIR --resume.")
    if resume and not settings and not fields:
        if seeds is not None or quick or stop_when_solved or layout != "auto":
            raise WrongUsage(
                "a sweep is resumed as it was begun: give --out and --resume alone, or repeat "
                "its whole command."
            )
        plan = _plan_in(Path(str(out)), name)
    else:
        plan = Plan.read(
            name,
            settings or {},
            fields,
            range(64) if seeds is None else seeds,
            quick=quick,
            layout=layout,
            stop_when_solved=stop_when_solved,
        )
    plan.units(plan.grid())  # refuses impossible settings before a folder is made
    watch = observer or notebook_bar(f"sweep of {name}") or Silent()
    begun = read_to_go_on(Path(str(out)), "sweep", plan.to_config()) if resume else None
    where = where_to_compute(engine, workers, address, begun)
    with make_engine(where.kind, num_workers=where.num_workers, address=where.address) as computing:
        if out is None:
            return _SweepRun(plan, None, watch).run(computing)
        config = {**plan.to_config(), "computed_by": asdict(where)}
        with RunFolder.begin(Path(out), config, watch.tell, resume=resume) as folder:
            return _SweepRun(plan, folder, watch).run(computing)


def open_sweep(folder: Path | str) -> Sweep:
    """Open a sweep, finished or not.

    Raises:
        CouldNotRun: none is there, or nothing of it is finished.
    """
    path = Path(folder)
    config = read_config_of("sweep", path)
    plan = Plan.of_config(config)
    grid = plan.grid()
    lines = [line for unit in plan.units(grid) if (line := kept(path, unit.number)) is not None]
    if not lines:
        raise CouldNotRun(
            f"nothing of the sweep in {path} is finished yet; resume it: attnlab resume {path}"
        )
    outcome = Outcome(grid, map(read_result, lines))
    report = _report(plan, outcome, [], config) if is_unfinished(path) else open_run(path)
    return Sweep(outcome, report, path)


class _SweepRun:
    """A sweep while it is computed."""

    def __init__(self, plan: Plan, folder: RunFolder | None, observer: Observer) -> None:
        self._plan, self._folder, self._observer = plan, folder, observer
        self._config = plan.to_config() if folder is None else folder.config
        self._grid = plan.grid()
        self._units = plan.units(self._grid)
        self._lines: dict[int, str] = {}
        for unit in self._units:
            line = None if folder is None else kept(folder.path, unit.number)
            if line is not None:
                self._lines[unit.number] = line
        self._written = time.monotonic()

    def run(self, engine: Engine) -> Sweep:
        """Compute the missing units."""
        missing = [unit for unit in self._units if unit.number not in self._lines]
        failures: list[AttnlabError] = []
        self._observer.stage(engine.words)
        watch = _ModelCounter(self._observer, self._units, self._lines)
        try:
            for line in engine.compute([unit.to_line() for unit in missing], watch):
                try:
                    self._keep(read_answer(line), line, engine)
                except AttnlabError as error:
                    failures.append(error)
                watch.count()
        finally:
            self._show_so_far()
        if failures:
            advice = ""
            if self._folder is not None:
                advice = " The finished ones are kept; --resume does the rest."
            raise type(failures[0])(
                f"{len(failures)} of {len(self._units)} populations could not be trained: "
                f"{failures[0]}{advice}"
            )
        return self._finish()

    def _outcome(self) -> Outcome:
        return Outcome(self._grid, map(read_result, self._lines.values()))

    def _keep(self, result: Result, line: str, engine: Engine) -> None:
        origin = {"computed": engine.words, "is_elsewhere": engine.is_elsewhere}
        line = json.dumps({**json.loads(line), **origin}, allow_nan=False)
        self._lines[result.unit] = line
        if self._folder is not None:
            keep(self._folder.path, result.unit, line)
            if time.monotonic() - self._written >= _SECONDS:
                self._show_so_far()

    def _show_so_far(self) -> None:
        if self._folder is not None and self._lines:
            outcome = self._outcome()
            write_text(self._folder.path / "table.csv", outcome.csv())
            write_text(
                self._folder.path / "report.html",
                _report(self._plan, outcome, [], self._config).html(),
            )
        self._written = time.monotonic()

    def _finish(self) -> Sweep:
        outcome = self._outcome()
        claims = [_all_there(outcome)]
        elsewhere = [result.unit for result in outcome.results if result.is_elsewhere]
        if elsewhere:
            self._observer.stage("one population again, here")
            claims.append(self._same_here(elsewhere))
        report = _report(self._plan, outcome, claims, self._config)
        if self._folder is None:
            return Sweep(outcome, report)
        report.write(self._folder)
        return Sweep(outcome, open_run(self._folder.path), self._folder.path)

    def _same_here(self, elsewhere: Sequence[int]) -> Claim:
        """Compute a random one of the populations computed elsewhere once more in this process."""
        random = generator(self._plan.seeds[0], "sweep", "lot")
        unit = self._units[elsewhere[int(torch.randint(len(elsewhere), (), generator=random))]]
        there = json.loads(self._lines[unit.number]).get("members", [])
        here = json.loads(compute(unit.to_line())).get("members", [])
        same = sum(a == b for a, b in zip(there, here, strict=False))
        return Claim(
            "same_here",
            "a random one of the populations computed elsewhere "
            f"({_cells_words(self._grid.cells[unit.cells[0]].name, unit)}), computed once more in "
            "this process, gives the same numbers to the last bit",
            f"{same:,}/{len(there):,} models the same",
            f"{len(there):,}/{len(there):,}",
            there == here,
        )


class _ModelCounter:
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

    def stage(self, name: str) -> None:
        """Ignore the stages of a single population."""

    def step(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        """Count the finished share of a population."""
        self._observer.step(self._done + self._size_of_next() * step // steps, self._all, figures)

    def tell(self, sentence: str) -> None:
        """Pass the sentence on."""
        self._observer.tell(sentence)

    def _size_of_next(self) -> int:
        return next(size for number, size in self._sizes.items() if number not in self._lines)


def _report(
    plan: Plan, outcome: Outcome, claims: Sequence[Claim], config: Mapping[str, Any]
) -> Report:
    diverged = sum(bool(member.fault) for member in outcome.members)
    models = f"{len(outcome.members):,} of {outcome.expected:,}"
    known = {
        "models": f"{models}, {diverged:,} diverged" if diverged else models,
        "layout": " and ".join(sorted({result.layout for result in outcome.results})),
        "machines": f"{len({result.machine for result in outcome.results}):,}",
        "computed": _computed_words(outcome.results),
        "versions": ", ".join(
            f"{name} {config['versions'][name]}" for name in ("attnlab", "torch")
        ),
    }
    content = make_content(plan.experiment, outcome, plan.fixed, known, plan.problems(outcome.grid))
    metrics = [
        {"unit": each.unit, "layout": each.layout, "models": len(each.members)}
        for each in outcome.results
    ]
    return ResultsReport(plan.experiment, config, tuple(claims), metrics, content)


def _computed_words(results: Sequence[Result]) -> str:
    """Say where populations were computed, with the number of each place if there are several."""
    places = Counter(result.computed or "not known where" for result in results)
    if len(places) == 1:
        return next(iter(places))
    return ", ".join(
        f"{number:,} {'population' if number == 1 else 'populations'} {place}"
        for place, number in places.items()
    )


def _all_there(outcome: Outcome) -> Claim:
    """Claim that every model of every cell is in the table once."""
    grid = outcome.grid
    expected = [
        (index, seed)
        for index, cell in enumerate(grid.cells)
        if cell.config is not None
        for seed in grid.seeds
    ]
    found = [(member.cell, member.seed) for member in outcome.members]
    diverged = sum(bool(member.fault) for member in outcome.members)
    models = f"{len(set(found) & set(expected)):,} models"
    return Claim(
        "all_there",
        "every seed of every cell is in the table once, trained to its end or with the reason why "
        "not",
        f"{models}, of which {diverged:,} diverged" if diverged else models,
        f"{len(expected):,} models",
        sorted(found) == sorted(expected),
    )


def _plan_in(folder: Path, name: str) -> Plan:
    plan = Plan.of_config(read_config_of("sweep", folder))
    if plan.experiment != name:
        raise WrongUsage(f"{folder} holds a sweep of {plan.experiment}, not of {name}.")
    return plan


def _cells_words(first: str, unit: Unit) -> str:
    more = f" and {len(unit.cells) - 1} more" if len(unit.cells) > 1 else ""
    return f"{first}{more}, {len(unit.seeds)} seeds"
