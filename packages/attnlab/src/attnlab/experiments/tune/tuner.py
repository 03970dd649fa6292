"""`tune`: the best setting of an experiment, by trials that Optuna proposes.

It is a sweep whose cells are proposed some at a time. The best setting is the one with which most
seeds solve the problem; ties are broken by the loss. The proposals are in `trials.json` in the
run's folder, so that a stopped search resumes to the same trials.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from attnlab.configs import Fields
from attnlab.core.store import read_json, refusing_damage, write_json
from attnlab.display import Card, displayed
from attnlab.draw.sections import ReportContent
from attnlab.errors import WrongUsage, is_integer, not_none
from attnlab.experiments.executors import Executor, ExecutorOptions, UnitFailure
from attnlab.experiments.sweeps.axes import typed_value
from attnlab.experiments.sweeps.cells import SweepCell, make_cell
from attnlab.experiments.sweeps.outcome import CellOutcome, SweepOutcome
from attnlab.experiments.sweeps.plan import TRIALS_AT_ONCE, Plan
from attnlab.experiments.sweeps.runner import CellResults, CellRun
from attnlab.experiments.tune.report import make_content
from attnlab.experiments.tune.study import RANDOM, Study
from attnlab.train.config import LayoutName
from attnlab.train.observer import Observer

_MAX_TRIALS = 10_000


@displayed
@dataclass(frozen=True, eq=False)
class Search(CellResults):
    """A search with its results."""

    @property
    def trials(self) -> list[CellOutcome]:
        """The finished trials, in the order in which they were proposed."""
        return self.outcome.finished

    @property
    def best(self) -> CellOutcome:
        """The trial in which most seeds solved the problem; ties are broken by the loss."""
        return max(self.trials, key=lambda trial: trial.score)

    def to_mapping(self) -> dict[str, object]:
        """Return the trials as plain values."""
        trials = []
        for trial in self.trials:
            facts = {"refusal": trial.refusal, "computed": trial.computed, "success": trial.success}
            trials.append({"number": trial.number, **trial.to_mapping(), **facts})
        return {"trials": trials}

    def _card(self) -> Card:
        ranked = sorted(self.outcome.trained, key=lambda trial: -trial.score)
        rows = []
        for trial in ranked:
            loss = "" if trial.loss is None else f"{trial.loss:.4g}"
            rows.append(
                [trial.number, *map(typed_value, trial.fields.values()), *trial.learned(), loss]
            )
        lines = [f"best: {ranked[0].name}"] if ranked else []
        if len(ranked) <= RANDOM:
            lines.append(
                f"the first {RANDOM} trials are drawn at random: the search has not begun yet"
            )
        names = [axis.name for axis in self.outcome.axes]
        columns = ["trial", *names, "learned", "share", "95 % interval", "loss"]
        return self._table_card(columns, rows, lines)

    def __str__(self) -> str:
        return str(self.report.content.subtitle)


def tune(
    name: str,
    *,
    trials: int = 30,
    seeds: Iterable[int] = range(8),
    out: Path | str | None = None,
    settings: Mapping[str, str] | None = None,
    layout: LayoutName = "auto",
    engine: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    resume: bool = False,
    observer: Observer | None = None,
) -> Search:
    """Find the setting of an experiment with which most seeds solve the problem.

    Args:
        name: such as "sorting".
        trials: settings to try.
        seeds: of each trial.
        out: the folder to make; None keeps the search in memory.
        settings: config fields as texts: those to search (`{"learning_rate": "1e-4..1e-1", "norm":
            "layer,rms"}`), and fixed ones (`{"steps": "2000"}`).
        layout, engine, workers, address: as in a sweep.
        resume: continue the search in `out`; without settings, all of them are taken from there.
        observer: is told of progress, counted in models.

    Returns:
        the `Search`: its trials, the best one first.

    Raises:
        WrongUsage: an unknown name or setting, a value out of range, nothing to search.
        CouldNotRun: Optuna is not installed, the folder is taken, cannot be written, or holds
            another search.
    """
    if resume and not settings:
        plan = Plan.in_folder("search", out, name)
    else:
        plan = Plan.read(name, settings or {}, {}, seeds, layout=layout, trials=trials)
    where = ExecutorOptions(engine, workers, address)
    return Search(*_SearchRun.start(plan, out, where, resume=resume, observer=observer).parts())


def open_search(folder: Path | str) -> Search:
    """Open a search, finished or not.

    Raises:
        CouldNotRun: none is there, or no trial is finished.
    """
    return Search(*_SearchRun.open(folder).parts())


class _SearchRun(CellRun):
    """The trials of a search, proposed some at a time."""

    kind = "search"

    @classmethod
    def check(cls, plan: Plan) -> None:
        if not plan.axes:
            raise WrongUsage(
                "tune needs a setting to search, such as --set learning_rate=1e-4..1e-1 or "
                "norm_place=pre,post."
            )
        if not is_integer(plan.trials) or not 1 <= plan.trials <= _MAX_TRIALS:
            raise WrongUsage(
                f"trials must be an integer from 1 to {_MAX_TRIALS:,}; got {plan.trials!r}."
            )
        plan.config_class.from_mapping(plan.fixed)  # refuses settings wrong in every trial
        Study(plan.axes, plan.seeds[0])  # raises if Optuna is missing

    def _first_cells(self) -> list[SweepCell]:
        cells: list[SweepCell] = []
        if self._file is not None and self._file.exists():
            with refusing_damage(str(self._file)):
                for trial in read_json(self._file):
                    cell = self._cell(trial["fields"])
                    cells.append(replace(cell, refusal=trial["refusal"]))
        return cells

    @property
    def _file(self) -> Path | None:
        return None if self.path is None else self.path / "trials.json"

    def _cell(self, fields: Fields) -> SweepCell:
        return make_cell(self._plan.config_class, self._plan.fixed, fields)

    def _num_cells(self) -> int:
        return not_none(self._plan.trials)

    def _compute_all(self, engine: Executor) -> None:
        study = Study(self._plan.axes, self._plan.seeds[0])
        while True:
            self._refuse(self._compute(engine))
            study.tell(self._outcome().cells[study.num_trials :])
            if study.num_trials == self._num_cells():
                return
            until = TRIALS_AT_ONCE * (study.num_trials // TRIALS_AT_ONCE + 1)
            proposals = study.ask(min(self._num_cells(), until))
            self._add(list(map(self._cell, proposals)))
            self._write_trials()

    def _refuse(self, failures: Sequence[UnitFailure]) -> None:
        """Note why the trials of units could not be trained."""
        if not failures:
            return
        first = (len(self._cells) - 1) // TRIALS_AT_ONCE * TRIALS_AT_ONCE
        together = [unit.number for unit in self._units if unit.cells[0] >= first]
        if not any(number in self._results for number in together):
            raise failures[0].error  # the settings are not at fault
        for failure in failures:
            for index in self._units[failure.unit].cells:
                self._cells[index] = replace(self._cells[index], refusal=str(failure.error))
        self._write_trials()

    def _write_trials(self) -> None:
        if self._file is not None:
            trials = [{"fields": cell.fields, "refusal": cell.refusal} for cell in self._cells]
            write_json(self._file, trials)

    def _content(self, outcome: SweepOutcome, facts: Mapping[str, str]) -> ReportContent:
        return make_content(self._plan, outcome, facts)
