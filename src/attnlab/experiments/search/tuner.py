"""`tune`: the best setting of an experiment, by trials that Optuna proposes.

The best setting is the one with which most seeds solve the problem; ties are broken by the loss.
The trials are in `study.sqlite` in the run's folder, so that a stopped search resumes to the same
trials.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from attnlab.core.store import write_text
from attnlab.display import Card, displayed
from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import ProblemDescription
from attnlab.experiments.folder import RunFolder, is_unfinished, read_to_go_on
from attnlab.experiments.population.fit import learnable
from attnlab.experiments.registry import find
from attnlab.experiments.report import Report, ResultsReport, open_run
from attnlab.experiments.search.plan import Plan
from attnlab.experiments.search.report import make_content
from attnlab.experiments.search.study import Study
from attnlab.experiments.search.trial import RANDOM, Trial
from attnlab.experiments.sections import csv_text
from attnlab.experiments.sweeps.axes import shown
from attnlab.experiments.sweeps.cells import Grid, make_cell, units_of
from attnlab.experiments.sweeps.engines import Engine, make_engine, where_to_compute
from attnlab.experiments.sweeps.outcome import Outcome, learned_words
from attnlab.experiments.sweeps.sweep_folder import read_config_of
from attnlab.experiments.sweeps.unit import read_answer
from attnlab.progress import notebook_bar
from attnlab.train.config import LayoutName
from attnlab.train.distributed import refuse_launched
from attnlab.train.observer import Observer, Silent

_TOGETHER = 5  # trials proposed at once: they share a population, or the processors
_STUDY = "study.sqlite"


@displayed
@dataclass(frozen=True, eq=False)
class Search:
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

    @property
    def passed(self) -> bool | None:
        """True if every claim holds, False if one failed, else None: undecided."""
        return self.report.passed

    def html(self) -> str:
        """The whole report as one self-contained page."""
        return self.report.html()

    def to_mapping(self) -> dict[str, Any]:
        """Return the trials as plain values."""
        trials = [{**each._asdict(), "success": each.success} for each in self.trials]
        return {"trials": trials}

    def _card(self) -> Card:
        ranked = [trial for trial in self.trials if trial.success is not None]
        ranked.sort(key=lambda trial: -trial.score)
        rows = []
        for each in ranked:
            assert each.success is not None
            learned = learned_words(each.solved, each.seeds, each.success)
            loss = "" if each.loss is None else f"{each.loss:.4g}"
            rows.append([each.number, *map(shown, each.fields.values()), *learned, loss])
        lines = [f"best: {ranked[0].name}"] if ranked else []
        if len(ranked) <= RANDOM:
            lines.append(
                f"the first {RANDOM} trials are drawn at random: the search has not begun yet"
            )
        names = list(self.trials[0].fields)
        return Card(
            str(self),
            [("folder", self.folder)] if self.folder else [],
            ["trial", *names, "learned", "share", "95 % interval", "loss"],
            rows,
            lines,
        )

    def __str__(self) -> str:
        return str(self.report.content.subtitle)


def tune(
    name: str,
    *,
    trials: int = 30,
    seeds: Iterable[int] = range(8),
    out: Path | str | None = None,
    settings: Mapping[str, str] | None = None,
    quick: bool = False,
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
        quick: start from the experiment's small settings.
        layout, engine, workers, address: as in a sweep.
        resume: continue the search in `out`; without settings, all of them are taken from there.
        observer: is told of progress, counted in trials.

    Raises:
        WrongUsage: an unknown name or setting, a value out of range, nothing to search.
        CouldNotRun: Optuna is not installed, the folder is taken, cannot be written, or holds
            another search.
    """
    refuse_launched("a search")
    if resume and out is None:
        raise WrongUsage("to resume a search, name its folder: --out DIR --resume.")
    if resume and not settings:
        plan = Plan.of_config(read_config_of("search", Path(str(out))))
    else:
        plan = Plan.read(name, settings or {}, seeds, trials, quick=quick, layout=layout)
    if plan.experiment != name:
        raise WrongUsage(f"{out} holds a search of {plan.experiment}, not of {name}.")
    watch = observer or notebook_bar(f"search of {name}") or Silent()
    # Raises if Optuna is missing, before a folder is made.
    Study(plan.dimensions, plan.seeds[0], None)
    begun = read_to_go_on(Path(str(out)), "search", plan.to_config()) if resume else None
    where = where_to_compute(engine, workers, address, begun)
    with make_engine(where.kind, num_workers=where.num_workers, address=where.address) as computing:
        if out is None:
            return _SearchRun(plan, None, watch).run(computing)
        config = {**plan.to_config(), "computed_by": asdict(where)}
        with RunFolder.begin(Path(out), config, watch.tell, resume=resume) as folder:
            return _SearchRun(plan, folder, watch).run(computing)


def open_search(folder: Path | str) -> Search:
    """Open a search, finished or not.

    Raises:
        CouldNotRun: none is there, Optuna is not installed, or no trial is finished.
    """
    path = Path(folder)
    config = read_config_of("search", path)
    plan = Plan.of_config(config)
    trials: Sequence[Trial] = []
    if (path / _STUDY).is_file():
        trials = Study(plan.dimensions, plan.seeds[0], path / _STUDY).trials()
    if not trials:
        raise CouldNotRun(
            f"no trial of the search in {path} is finished yet; resume it: attnlab resume {path}"
        )
    report = _report(plan, trials, [], config) if is_unfinished(path) else open_run(path)
    return Search(trials, report, path)


class _SearchRun:
    """A search while it is computed."""

    def __init__(self, plan: Plan, folder: RunFolder | None, observer: Observer) -> None:
        self._plan, self._folder, self._observer = plan, folder, observer
        self._config = plan.to_config() if folder is None else folder.config
        self._study = Study(
            plan.dimensions, plan.seeds[0], None if folder is None else folder.path / _STUDY
        )

    def run(self, engine: Engine) -> Search:
        """Compute the missing trials, some at a time."""
        self._observer.stage(engine.words)
        try:
            while (done := len(self._study.trials())) < self._plan.trials:
                self._observer.step(done, self._plan.trials, {})
                until = min(self._plan.trials, _TOGETHER * (done // _TOGETHER + 1))
                self._compute(self._study.ask(until), engine)
            self._observer.step(done, self._plan.trials, {})
        finally:
            self._show_so_far()
        trials = self._study.trials()
        report = _report(self._plan, trials, [_all_made(self._plan, trials)], self._config)
        if self._folder is None:
            return Search(trials, report)
        report.write(self._folder)
        return Search(trials, open_run(self._folder.path), self._folder.path)

    def _compute(self, asked: Sequence[tuple[int, dict[str, Any]]], engine: Engine) -> None:
        """Train the proposed trials, and tell the study their results."""
        plan = self._plan
        config_class = find(plan.experiment).config_class
        cells = [make_cell(config_class, plan.fixed, fields) for _, fields in asked]
        grid = Grid([], cells, plan.seeds)
        units = units_of(
            plan.experiment,
            grid,
            learnable(plan.experiment).VARYING,
            layout=plan.layout,
            matrix_path=plan.matrix_path,
        )
        results, failures = [], []
        for line in engine.compute([unit.to_line() for unit in units]):
            try:
                results.append(read_answer(line))
            except AttnlabError as error:
                failures.append(error)
        if failures and not results:
            raise failures[0]  # the settings are not at fault
        outcomes = Outcome(grid, results).cells
        for (number, fields), cell, found in zip(asked, cells, outcomes, strict=True):
            if found is not None:
                self._study.tell(Trial.of_cell(number, found, engine.words))
            else:
                self._study.tell(Trial(number, fields, refusal=cell.refusal or str(failures[0])))

    def _show_so_far(self) -> None:
        trials = self._study.trials()
        if self._folder is not None and trials:
            write_text(self._folder.path / "table.csv", _csv(self._plan, trials))
            write_text(
                self._folder.path / "report.html",
                _report(self._plan, trials, [], self._config).html(),
            )


def _report(
    plan: Plan, trials: Sequence[Trial], claims: Sequence[Claim], config: Mapping[str, Any]
) -> Report:
    places = Counter(trial.computed for trial in trials if trial.computed)
    counts = [
        f"{number:,} {'trial' if number == 1 else 'trials'} {place}"
        for place, number in places.items()
    ]
    known = {
        "models": f"{sum(trial.seeds for trial in trials):,}",
        "computed": ", ".join(counts) if len(places) > 1 else next(iter(places), "nothing yet"),
    }
    content = make_content(
        plan.experiment,
        plan.dimensions,
        plan.fixed,
        trials,
        seeds=plan.seeds,
        facts=known,
        problems=_problems(plan, trials),
    )
    metrics = [
        {"trial": trial.number, **trial.fields, "learned": trial.solved, "seeds": trial.seeds}
        for trial in trials
    ]
    return ResultsReport(plan.experiment, config, tuple(claims), metrics, content)


def _problems(plan: Plan, trials: Sequence[Trial]) -> list[ProblemDescription]:
    """Describe the problems of the trials, each once."""
    config_class, experiment = find(plan.experiment).config_class, learnable(plan.experiment)
    cells = [make_cell(config_class, plan.fixed, dict(trial.fields)) for trial in trials]
    configs = [cell.config for cell in cells if cell.config is not None]
    return list(dict.fromkeys(map(experiment.describe_problem, configs)))


def _all_made(plan: Plan, trials: Sequence[Trial]) -> Claim:
    numbers = [trial.number for trial in trials]
    refused = sum(trial.refusal != "" for trial in trials)
    made = f"{len(set(numbers)):,} trials"
    return Claim(
        "all_made",
        "every trial was computed once, with every seed, or with the reason why it could not be "
        "trained",
        f"{made}, of which {refused:,} could not be trained" if refused else made,
        f"{plan.trials:,} trials",
        numbers == list(range(plan.trials))
        and all(t.seeds == len(plan.seeds) or t.refusal for t in trials),
    )


def _csv(plan: Plan, trials: Sequence[Trial]) -> str:
    names = [dimension.name for dimension in plan.dimensions]
    columns = ["trial", *names, "seeds", "solved", "solved_at", "loss", "broken", "refusal"]
    rows = []
    for each in trials:
        values = [each.fields[name] for name in names]
        results = [each.seeds, each.solved, each.solved_at, each.loss, each.broken, each.refusal]
        rows.append([each.number, *values, *results])
    return csv_text(columns, rows)
