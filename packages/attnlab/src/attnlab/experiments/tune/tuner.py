"""`tune`: the best setting of an experiment, by trials that Optuna proposes.

It is a sweep whose cells are proposed some at a time. The best setting is the one with which most
seeds solve the problem; ties are broken by the loss. The finished trials are in `trials.json` in
the run's folder, so that a stopped search resumes to the same trials.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path

from attnlab.configs import Fields
from attnlab.display import Card, displayed
from attnlab.errors import WrongUsage, present
from attnlab.experiments.claims import Claim
from attnlab.experiments.folder import RunFolder
from attnlab.experiments.report import Report
from attnlab.experiments.sections import csv_text
from attnlab.experiments.sweeps.axes import shown
from attnlab.experiments.sweeps.cells import Cell, Grid, make_cell
from attnlab.experiments.sweeps.engines import Where
from attnlab.experiments.sweeps.outcome import Outcome, places_words
from attnlab.experiments.sweeps.plan import Plan
from attnlab.experiments.sweeps.runner import CellResults, CellRun, refuse_call
from attnlab.experiments.sweeps.unit import Result, Unit
from attnlab.experiments.tune.report import make_content
from attnlab.experiments.tune.study import RANDOM, Study, Trial
from attnlab.train.config import LayoutName
from attnlab.train.observer import Observer

_TOGETHER = 5  # trials proposed at once: they share a population, or the processors
_MOST_TRIALS = 10_000


@displayed
@dataclass(frozen=True, eq=False)
class Search(CellResults):
    """A search with its results.

    Attributes:
        trials: in the order in which they were proposed.
        report: saved and opened as an ordinary run's, but without a model.
        folder: where it is kept; None while it only lives in memory.
    """

    trials: Sequence[Trial]
    report: Report = field(repr=False)
    folder: Path | None = None

    @property
    def best(self) -> Trial:
        """The trial in which most seeds solved the problem; ties are broken by the loss."""
        return max(self.trials, key=lambda trial: trial.score)

    def to_mapping(self) -> dict[str, object]:
        """Return the trials as plain values."""
        trials = []
        for trial in self.trials:
            trials.append({"number": trial.number, **asdict(trial), "success": trial.success})
        return {"trials": trials}

    def _card(self) -> Card:
        ranked = [trial for trial in self.trials if trial.seeds]
        ranked.sort(key=lambda trial: -trial.score)
        rows = []
        for ranked_trial in ranked:
            loss = ""
            if ranked_trial.loss is not None:
                loss = f"{ranked_trial.loss:.4g}"
            rows.append(
                [
                    ranked_trial.number,
                    *map(shown, ranked_trial.fields.values()),
                    *ranked_trial.learned(),
                    loss,
                ]
            )
        lines = [f"best: {ranked[0].name}"] if ranked else []
        if len(ranked) <= RANDOM:
            lines.append(
                f"the first {RANDOM} trials are drawn at random: the search has not begun yet"
            )
        names = list(self.trials[0].fields)
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
        observer: is told of progress, counted in trials.

    Raises:
        WrongUsage: an unknown name or setting, a value out of range, nothing to search.
        CouldNotRun: Optuna is not installed, the folder is taken, cannot be written, or holds
            another search.
    """
    refuse_call("search", out, resume=resume)
    if resume and not settings:
        plan = Plan.in_folder("search", Path(str(out)), name)
    else:
        plan = Plan.read(name, settings or {}, {}, seeds, layout=layout, trials=trials)
    where = Where(engine, workers, address)
    return _SearchRun.start(plan, out, where, resume=resume, observer=observer)


def open_search(folder: Path | str) -> Search:
    """Open a search, finished or not.

    Raises:
        CouldNotRun: none is there, Optuna is not installed, or no trial is finished.
    """
    return _SearchRun.open(folder)


class _SearchRun(CellRun[Search]):
    """The trials of a search, proposed some at a time."""

    kind = "search"
    results = "trials.json"

    def __init__(self, plan: Plan, folder: RunFolder | None, observer: Observer) -> None:
        super().__init__(plan, folder, observer)
        file = None if folder is None else folder.path / self.results
        self._study = Study(plan.axes, plan.seeds[0], file)
        self._results: list[Result] = []

    @classmethod
    def check(cls, plan: Plan) -> None:
        if not plan.axes:
            raise WrongUsage(
                "tune needs a setting to search, such as --set learning_rate=1e-4..1e-1 or "
                "norm_place=pre,post."
            )
        trials = plan.trials
        if type(trials) is not int or not 1 <= trials <= _MOST_TRIALS:
            raise WrongUsage(
                f"trials must be an integer from 1 to {_MOST_TRIALS:,}; got {trials!r}."
            )
        plan.config_class.from_mapping(plan.fixed)  # refuses settings wrong in every trial
        Study(plan.axes, plan.seeds[0], None)  # raises if Optuna is missing

    def _rounds(self) -> Iterator[Sequence[Unit]]:
        plan, study = self._plan, self._study
        trials = present(plan.trials)
        while (done := len(study.trials)) < trials:
            self._observer.step(done, trials, {})
            proposals = study.ask(min(trials, _TOGETHER * (done // _TOGETHER + 1)))
            grid = Grid([], [self._cell(fields) for _, fields in proposals], plan.seeds)
            self._results = []
            yield plan.units(grid)
            if self._failures and not self._results:
                raise self._failures[0]  # the settings are not at fault
            outcomes = Outcome(grid, self._results).cells
            finished = []
            for (number, fields), cell, outcome in zip(
                proposals, grid.cells, outcomes, strict=True
            ):
                if outcome is None:
                    refusal = cell.refusal or str(self._failures[0])
                    finished.append(Trial(fields, number=number, refusal=refusal))
                else:
                    words = self._engine.words
                    finished.append(Trial(**outcome.tally(), number=number, computed=words))
            study.tell(finished)
        self._observer.step(done, trials, {})

    def _cell(self, fields: Fields) -> Cell:
        return make_cell(self._plan.config_class, self._plan.fixed, fields)

    def _keep(self, result: Result, line: str) -> None:
        self._results.append(result)

    def _table(self) -> str:
        trials = self._study.trials
        if not trials:
            return ""
        results = ["seeds", "solved", "solved_at", "loss", "broken", "refusal"]
        read_results = attrgetter(*results)
        rows = [[trial.number, *trial.fields.values(), *read_results(trial)] for trial in trials]
        return csv_text(["trial", *trials[0].fields, *results], rows)

    def _found(self, report: Report, folder: Path | None) -> Search:
        return Search(self._study.trials, report, folder)

    def _claims(self) -> list[Claim]:
        return all_made(self._plan, self._study.trials)

    def _report(self, claims: Sequence[Claim]) -> Report:
        plan, trials = self._plan, self._study.trials
        computed = places_words([trial.computed for trial in trials if trial.computed], "trial")
        facts = {
            "models": f"{sum(trial.seeds for trial in trials):,}",
            "computed": computed or "nothing yet",
        }
        content = make_content(
            plan.experiment,
            plan.axes,
            plan.fixed,
            trials,
            seeds=plan.seeds,
            facts=facts,
            problems=plan.problems(self._cell(trial.fields) for trial in trials),
        )
        metrics = []
        for trial_result in trials:
            results = {"learned": trial_result.solved, "seeds": trial_result.seeds}
            metrics.append({"trial": trial_result.number, **trial_result.fields, **results})
        return Report(plan.experiment, self._config, tuple(claims), metrics, content)


def all_made(plan: Plan, trials: Sequence[Trial]) -> list[Claim]:
    """Claim that every trial was computed once."""
    made = [trial.number for trial in trials]
    refused = sum(trial.refusal != "" for trial in trials)
    measured = f"{len(set(made)):,} trials"
    if refused:
        measured += f", of which {refused:,} could not be trained"
    are_whole = all(trial.seeds == len(plan.seeds) or trial.refusal for trial in trials)
    is_each_made = made == list(range(plan.trials or 0))
    claim = Claim(
        "all_made",
        "every trial was computed once, with every seed, or with the reason why it could not be "
        "trained",
        measured,
        f"{plan.trials or 0:,} trials",
        is_each_made and are_whole,
        is_self_check=True,
    )
    return [claim]
