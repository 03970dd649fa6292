"""The runner of sweeps and searches: units of cells on an engine, results kept, shown, resumed.

A sweep knows all its cells before it begins; a search proposes some, and the next ones when it
knows how these went. Each is a `CellRun`, and differs only in where its cells come from and what
it makes of their results.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from attnlab.core.store import write_text
from attnlab.display import Card
from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage
from attnlab.experiments.claims import Claim
from attnlab.experiments.folder import RunFolder, is_unfinished, read_to_go_on
from attnlab.experiments.report import Report, chosen_observer, open_run
from attnlab.experiments.sweeps.engines import Engine, Where, make_engine, where_to_compute
from attnlab.experiments.sweeps.plan import Kind, Plan, read_config_of
from attnlab.experiments.sweeps.unit import Result, Unit, read_answer
from attnlab.train.observer import Observer, Silent
from attnlab.train.processes import refuse_launched

_SECONDS = 10.0  # between two versions of an unfinished run's page


class CellResults:
    """The base of what a sweep and a search return."""

    report: Report
    folder: Path | None

    @property
    def passed(self) -> bool | None:
        """True if every claim holds, False if one failed, else None: undecided."""
        return self.report.passed

    def html(self) -> str:
        """The whole report as one self-contained page."""
        return self.report.html()

    def _table_card(
        self, columns: Sequence[str], rows: Sequence[Sequence[Any]], lines: Sequence[str]
    ) -> Card:
        facts = []
        if self.folder:
            facts.append(("folder", self.folder))
        return Card(str(self.report.content.subtitle), facts, columns, rows, lines)


_Found = TypeVar("_Found", bound=CellResults)


class CellRun(ABC, Generic[_Found]):
    """A sweep or a search while it is computed, or opened again."""

    kind: ClassVar[Kind]
    results: ClassVar[str]
    """The file or folder that holds results as soon as there are some."""

    def __init__(self, plan: Plan, folder: RunFolder | None, observer: Observer) -> None:
        self._plan, self._folder, self._observer = plan, folder, observer
        self._config = plan.to_config() if folder is None else folder.config
        self._failures: list[AttnlabError] = []
        self._written = time.monotonic()

    @classmethod
    def check(cls, plan: Plan) -> None:
        """Refuse a plan that cannot be computed, before a folder is made."""

    @abstractmethod
    def _rounds(self) -> Iterator[Sequence[Unit]]:
        """Yield units to train; their results and failures are known when it goes on."""

    @abstractmethod
    def _keep(self, result: Result, line: str) -> None:
        """Keep the results of a unit."""

    @abstractmethod
    def _table(self) -> str:
        """Return all results so far as CSV; nothing if there are none."""

    @abstractmethod
    def _claims(self) -> list[Claim]:
        """Make the claims of a run that is done."""

    @abstractmethod
    def _report(self, claims: Sequence[Claim]) -> Report:
        """Make the report of all results so far."""

    @abstractmethod
    def _found(self, report: Report, folder: Path | None) -> _Found:
        """Return what the caller gets."""

    @classmethod
    def start(
        cls,
        plan: Plan,
        out: Path | str | None,
        where: Where,
        *,
        resume: bool,
        observer: Observer | None,
    ) -> _Found:
        """Compute a plan, or what is missing of it; arguments as those of `sweep`."""
        cls.check(plan)
        watch = chosen_observer(observer, f"{plan.kind} of {plan.experiment}")
        begun = None
        if out is not None and resume:
            begun = read_to_go_on(Path(out), plan.kind, plan.to_config())
        where = where_to_compute(where, begun)
        with make_engine(
            where.kind, num_workers=where.num_workers, address=where.address
        ) as computing:
            if out is None:
                return cls(plan, None, watch).run(computing)
            config = plan.to_config()
            config["computed_by"] = asdict(where)
            with RunFolder.begin(Path(out), config, watch.tell, resume=resume) as folder:
                return cls(plan, folder, watch).run(computing)

    def run(self, engine: Engine) -> _Found:
        """Compute what is missing."""
        self._engine = engine
        self._observer.stage(engine.words)
        try:
            for units in self._rounds():
                self._compute(units)
        finally:
            self._show_so_far()
        report = self._report(self._claims())
        if self._folder is None:
            return self._found(report, None)
        report.write(self._folder)
        return self._found(open_run(self._folder.path), self._folder.path)

    @classmethod
    def open(cls, folder: Path | str) -> _Found:
        """Open a run, finished or not.

        Raises:
            CouldNotRun: none is there, or nothing of it is finished.
        """
        path = Path(folder)
        config = read_config_of(cls.kind, path)
        plan = Plan.of_config(config)
        run = None
        if (path / cls.results).exists():
            run = cls(plan, RunFolder(path, config), Silent())
        if run is None or not run._table():
            raise CouldNotRun(
                f"nothing of the {cls.kind} in {path} is finished yet; resume it: attnlab resume "
                f"{path}"
            )
        report = run._report([]) if is_unfinished(path) else open_run(path)
        return run._found(report, path)

    def _compute(self, units: Sequence[Unit]) -> None:
        self._failures = []
        for line in self._engine.compute([unit.to_line() for unit in units], self._watch()):
            try:
                self._keep(read_answer(line), line)
            except AttnlabError as error:
                self._failures.append(error)
            if time.monotonic() - self._written >= _SECONDS:
                self._show_so_far()

    def _watch(self) -> Observer | None:
        """Return what is told of the steps within a unit."""

    def _show_so_far(self) -> None:
        table = self._table()
        if self._folder is not None and table:
            write_text(self._folder.path / "table.csv", table)
            write_text(self._folder.path / "report.html", self._report([]).html())
        self._written = time.monotonic()


def refuse_call(kind: Kind, out: Path | str | None, *, resume: bool) -> None:
    """Refuse to compute in several processes of torchrun, or to resume without a folder."""
    refuse_launched(f"a {kind}")
    if resume and out is None:
        raise WrongUsage(f"to resume a {kind}, name its folder: --out DIR --resume.")
