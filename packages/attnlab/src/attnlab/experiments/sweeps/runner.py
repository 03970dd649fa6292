"""The runner of sweeps and searches: units of cells on an engine, results kept, shown, resumed.

A sweep knows all its cells before it begins; a search proposes some, and the next ones when it
knows how these went. The results of each unit are a line in `cells/`, with its digest: nothing
finished is lost, and what is damaged is computed again when the run is resumed.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from attnlab.core.store import digest_of, make_folder, write_text
from attnlab.display import Card, frame
from attnlab.draw.sections import ReportContent
from attnlab.errors import CouldNotRun
from attnlab.experiments.claims import Claim
from attnlab.experiments.executors import (
    Executor,
    ExecutorOptions,
    ModelCounter,
    UnitFailure,
    make_engine,
)
from attnlab.experiments.folder import RunFolder, is_finished
from attnlab.experiments.report import Report, open_run
from attnlab.experiments.session import Session
from attnlab.experiments.sweeps.cells import SweepCell
from attnlab.experiments.sweeps.outcome import SweepOutcome
from attnlab.experiments.sweeps.plan import Plan, PlanKind, read_config_of
from attnlab.experiments.sweeps.report import make_content
from attnlab.experiments.sweeps.unit import ModelResult, Unit, UnitResult, refuse_other_versions
from attnlab.seeds import generator
from attnlab.train.observer import Observer, SilentObserver

_SECONDS = 10.0  # between two versions of an unfinished run's page


@dataclass(frozen=True, eq=False)
class CellResults:
    """What a sweep and a search return.

    Attributes:
        outcome: every cell and every model.
        report: saved and opened as an ordinary run's, but without a model.
        folder: where it is kept; None while it only lives in memory.
    """

    outcome: SweepOutcome
    report: Report = field(repr=False)
    folder: Path | None = None

    @property
    def passed(self) -> bool | None:
        """True if every claim holds, False if one failed, else None: undecided."""
        return self.report.passed

    def html(self) -> str:
        """The whole report as one self-contained page."""
        return self.report.html()

    def rows(self) -> list[dict[str, object]]:
        """Return one mapping for each model: the cell's fields, the seed, the results."""
        return self.outcome.rows()

    def frame(self) -> Any:
        """Return `rows` as a pandas DataFrame.

        Raises:
            CouldNotRun: pandas is not installed.
        """
        return frame(self.rows())

    def _table_card(
        self, columns: Sequence[str], rows: Sequence[Sequence[Any]], lines: Sequence[str]
    ) -> Card:
        facts = []
        if self.folder:
            facts.append(("folder", self.folder))
        return Card(str(self.report.content.subtitle), facts, columns, rows, lines)


class CellRun:
    """The cells of a sweep while they are computed, or opened again."""

    kind: ClassVar[PlanKind] = "sweep"
    report: Report

    def __init__(self, plan: Plan, folder: RunFolder | None, observer: Observer) -> None:
        self._plan, self._observer = plan, observer
        self._config = plan.to_config()
        self.path: Path | None = None
        if folder is not None:
            self._config, self.path = folder.config, folder.path
        self._cells: list[SweepCell] = []
        self._units: list[Unit] = []
        self._results: dict[int, UnitResult] = {}
        self._written = time.monotonic()
        self._add(self._first_cells())

    def _first_cells(self) -> list[SweepCell]:
        """Return the cells that are known before the first is trained."""
        return self._plan.grid()

    def _num_cells(self) -> int:
        """Return the number of cells when all are known."""
        return len(self._cells)

    def _add(self, cells: Sequence[SweepCell]) -> None:
        """Add cells, with the results that the folder holds of them."""
        units = self._plan.units(cells, len(self._cells), len(self._units))
        self._cells += cells
        self._units += units
        if self.path is not None:
            for unit in units:
                result = read_result(self.path, unit.number)
                if result is not None:
                    self._results[unit.number] = result

    @classmethod
    def check(cls, plan: Plan) -> None:
        """Refuse a plan that cannot be computed, before a folder is made."""
        plan.grid()

    @classmethod
    def start(
        cls,
        plan: Plan,
        out: Path | str | None,
        where: ExecutorOptions,
        *,
        resume: bool,
        observer: Observer | None,
    ) -> Self:
        """Compute a plan, or what is missing of it; arguments as those of `sweep`."""
        cls.check(plan)
        with Session(plan.kind, plan.experiment, out, resume=resume, observer=observer) as session:
            config = plan.to_config()
            where = where.or_of(session.begun_as(config))
            engine = session.enter_context(make_engine(where))
            session.open({**config, "computed_by": asdict(where)})
            run = cls(plan, session.folder, session.observer)
            run._observer.stage(engine.words)
            try:
                run._compute_all(engine)
            finally:
                run._show_so_far()
            run.report = session.write(run._make_report(run._claims()))
            return run

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Open a run, finished or not.

        Raises:
            CouldNotRun: none is there, or nothing of it is finished.
        """
        path = Path(folder)
        config = read_config_of(cls.kind, path)
        run = cls(Plan.of_config(config), RunFolder(path, config), SilentObserver())
        if not run._results:
            raise CouldNotRun(
                f"nothing of the {cls.kind} in {path} is finished yet; resume it: attnlab resume "
                f"{path}"
            )
        run.report = open_run(path) if is_finished(path) else run._make_report([])
        return run

    def parts(self) -> tuple[SweepOutcome, Report, Path | None]:
        """Return what a `CellResults` holds."""
        return self._outcome(), self.report, self.path

    def _compute_all(self, engine: Executor) -> None:
        failures = self._compute(engine)
        if failures:
            error = failures[0].error
            words = (
                f"{len(failures)} of {len(self._units)} populations could not be trained: {error}"
            )
            if self.path is not None:
                words += " The finished ones are kept; --resume does the rest."
            raise type(error)(words)

    def _compute(self, engine: Executor) -> list[UnitFailure]:
        """Compute the units that are missing; return those that could not be trained."""
        missing: list[Unit] = []
        for unit in self._units:
            is_refused = any(self._cells[cell].refusal for cell in unit.cells)
            if unit.number not in self._results and not is_refused:
                missing.append(unit)
        failures: list[UnitFailure] = []
        counter = ModelCounter(self._observer, missing, self._num_done(), self._num_models())
        for answer in engine.compute(missing, counter):
            if isinstance(answer, UnitFailure):
                failures.append(answer)
            else:
                refuse_other_versions(answer)
                self._keep(replace(answer, computed=engine.words, is_elsewhere=engine.is_elsewhere))
            counter.finish(self._num_done())
            if time.monotonic() - self._written >= _SECONDS:
                self._show_so_far()
        return failures

    def _num_done(self) -> int:
        return sum(len(result.members) for result in self._results.values())

    def _num_models(self) -> int:
        """Return the number of models when all are trained."""
        refused = sum(cell.refusal != "" for cell in self._cells)
        return (self._num_cells() - refused) * len(self._plan.seeds)

    def _keep(self, result: UnitResult) -> None:
        self._results[result.unit] = result
        if self.path is not None:
            write_result(self.path, result)

    def _show_so_far(self) -> None:
        if self.path is not None and self._results:
            write_text(self.path / "table.csv", self._outcome().csv())
            write_text(self.path / "report.html", self._make_report([]).html())
        self._written = time.monotonic()

    def _outcome(self) -> SweepOutcome:
        plan = self._plan
        return SweepOutcome(plan.axes, self._cells, plan.seeds, self._results.values())

    def _make_report(self, claims: Sequence[Claim]) -> Report:
        plan, outcome, metrics = self._plan, self._outcome(), []
        for cell in outcome.trained:
            results = {"learned": cell.solved, "seeds": cell.seeds}
            metrics.append({plan.noun: cell.number, **cell.fields, **results})
        content = self._content(outcome, outcome.facts(self._config["versions"]))
        return Report(plan.experiment, self._config, tuple(claims), metrics, content)

    def _content(self, outcome: SweepOutcome, facts: Mapping[str, str]) -> ReportContent:
        return make_content(self._plan, outcome, facts)

    def _claims(self) -> list[Claim]:
        outcome = self._outcome()
        claims = [all_there(outcome, self._plan.noun, self._num_cells())]
        elsewhere = [result for result in outcome.results if result.is_elsewhere]
        if elsewhere:
            self._observer.stage("one population again, here")
            claims.append(self._same_here(elsewhere))
        return claims

    def _same_here(self, elsewhere: Sequence[UnitResult]) -> Claim:
        """Compute a random one of the populations computed elsewhere once more in this process."""
        random = generator(self._plan.seeds[0], "sweep", "lot")
        there = elsewhere[int(torch.randint(len(elsewhere), (), generator=random))]
        unit = self._units[there.unit]
        again = unit.compute()
        members: Sequence[ModelResult] = []
        if isinstance(again, UnitResult):
            members = again.members
        cells = self._cells[unit.cells[0]].name
        if len(unit.cells) > 1:
            cells += f" and {len(unit.cells) - 1:,} more"
        same = sum(a == b for a, b in zip(there.members, members, strict=False))
        total = len(there.members)
        return Claim(
            "same_here",
            f"a random one of the populations computed elsewhere ({cells}, {len(unit.seeds):,} "
            "seeds), computed once more in this process, gives the same numbers to the last bit",
            f"{same:,}/{total:,} models the same",
            f"{total:,}/{total:,}",
            list(there.members) == list(members),
            is_self_check=True,
        )


def all_there(outcome: SweepOutcome, noun: str, num_cells: int) -> Claim:
    """Claim that every model was trained once."""
    done, expected = outcome.done, outcome.expected
    measured = f"{len(set(done) & set(expected)):,} models"
    if outcome.diverged:
        measured += f", of which {outcome.diverged:,} diverged"
    return Claim(
        "all_there",
        f"every seed of every {noun} is in the table once, trained to its end or with the reason "
        "why not",
        measured,
        f"{len(expected):,} models",
        sorted(done) == sorted(expected) and len(outcome.grid) == num_cells,
        is_self_check=True,
    )


def write_result(folder: Path, result: UnitResult) -> None:
    """Write the results of a unit."""
    file, line = _file(folder, result.unit), json.dumps(asdict(result), allow_nan=False)
    make_folder(file.parent)
    write_text(file, f"{line}\n{digest_of(line.encode())}\n")


def read_result(folder: Path, number: int) -> UnitResult | None:
    """Read the results of a unit; return None if they are missing or damaged."""
    try:
        line, digest, end = _file(folder, number).read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        return None
    if (digest, end) != (digest_of(line.encode()), ""):
        return None
    result = json.loads(line)
    members = [ModelResult(**member) for member in result.pop("members")]
    return UnitResult(members=members, **result)


def _file(folder: Path, number: int) -> Path:
    return folder / "cells" / f"{number:05}.json"
