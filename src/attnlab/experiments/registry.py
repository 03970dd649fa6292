"""The experiments by name, and `run`, which runs them."""

import datetime
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch
from torch import nn

from attnlab.configs import Config
from attnlab.core.stats import check_intervals
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.experiments.experiment import Askable, Experiment, MetricLine, Run, all_claims
from attnlab.experiments.folder import RunFolder, read_to_go_on
from attnlab.experiments.report import Report, describe_run, open_run
from attnlab.look.questions import Question
from attnlab.look.trace import Trace
from attnlab.parts.fused import use_attention_path
from attnlab.parts.linear import MatrixPath, use_matrix_path
from attnlab.progress import notebook_bar
from attnlab.seeds import stream_seed
from attnlab.train.checkpoint import MOST_THREADS
from attnlab.train.config import EngineName, LayoutName
from attnlab.train.distributed import is_writer, joined
from attnlab.train.loggers import LoggerName, Loggers, check_loggers, loggers_in
from attnlab.train.loop import using_threads
from attnlab.train.observer import Observer, Silent

EXPERIMENTS = {
    "lookup": ("attnlab.experiments.lookup", "LookupConfig"),
    "anatomy": ("attnlab.experiments.anatomy", "AnatomyConfig"),
    "handmade": ("attnlab.experiments.handmade", "HandmadeConfig"),
    "sentiment": ("attnlab.experiments.sentiment", "SentimentConfig"),
    "sorting": ("attnlab.experiments.sorting", "SortingConfig"),
}
"""Each experiment's module and config class; the module is imported when it is needed."""


class Found(NamedTuple):
    """An experiment and its config class."""

    experiment: Experiment
    config_class: type[Config]


def find(name: str) -> Found:
    """Return an experiment by its name."""
    if name not in EXPERIMENTS:
        raise WrongUsage(f"there is no experiment {name!r}; {did_you_mean(name, EXPERIMENTS)}")
    module_name, config_name = EXPERIMENTS[name]
    module: Any = importlib.import_module(module_name)
    return Found(module, getattr(module, config_name))


def run(
    name: str,
    *,
    seed: int = 0,
    out: Path | str | None = None,
    settings: Mapping[str, str] | None = None,
    quick: bool = False,
    layout: LayoutName = "auto",
    engine: EngineName = "auto",
    observer: Observer | None = None,
    resume: bool = False,
    loggers: Sequence[str] = (),
    **fields: Any,
) -> Report:
    """Run an experiment from start to finish.

    If torchrun started several processes, the first one writes the folder; the others only compute.

    Args:
        name: such as "sorting".
        seed: of all its randomness.
        out: the run folder to make; None keeps the report in memory (`report.save(folder)` writes
            it later).
        settings: config fields as texts, as `--set` gives them.
        quick: start from the experiment's small settings, which take seconds.
        layout, engine: how trainings are computed, see `choose_layout`.
        observer: is told of progress; None for a bar in a notebook, and nothing elsewhere.
        loggers: "tensorboard", "mlflow": also log the metrics there, in files inside the run
            folder; a resumed run keeps its loggers.
        resume: continue the run in `out` that was stopped, to the same bytes.
        **fields: config fields as values.

    Raises:
        WrongUsage: an unknown name or setting, or a value out of range.
        CouldNotRun: the folder exists (or, with `resume`, holds no run, another, or one that is
            being written), it cannot be written, the training diverged, or intervals are computed
            wrongly; `Finished`, with `resume`, if nothing is left to do.

    >>> report = run("sorting", steps=20, evaluate_every=10)
    >>> report.passed
    False
    """
    check_intervals()
    experiment = find(name).experiment
    watch = observer or notebook_bar(name) or Silent()
    stream_seed(seed)
    stated = config(name, settings, quick=quick, **fields)
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    if out is None and resume:
        raise WrongUsage("to resume a run, name its folder.")
    if out is None and loggers:
        raise WrongUsage("loggers write into the run folder; name one with out.")
    path = None if out is None else Path(out)
    wanted_loggers = check_loggers(loggers)

    def tell(sentence: str) -> None:
        watch.tell(sentence)

    with ExitStack() as stack:
        # The numbers of a run must not depend on whether a C++ compiler is there.
        stack.enter_context(use_attention_path("default"))
        if resume and path is not None:
            asked = {
                "experiment": name,
                "seed": seed,
                "settings": stated.to_mapping(),
                "layout": layout,
                "engine": engine,
            }
            stack.enter_context(computing_as(read_to_go_on(path, "run", asked)))
        group = stack.enter_context(joined())
        if group is not None and group.is_writer:
            watch.tell(f"{group.size} processes take part, as torchrun started them.")
        describe = partial(
            describe_run,
            name,
            seed,
            stated.to_mapping(),
            started,
            threads=torch.get_num_threads(),
            layout=layout,
            engine=engine,
        )
        output = _Output(path if is_writer() else None, resume, wanted_loggers, describe, tell)
        stack.callback(output.close)
        checkpoints = path / "checkpoints" if path is not None and (is_writer() or resume) else None
        context = Run(seed, watch, output.start, output.record, checkpoints, layout, engine, group)
        findings = experiment.run(stated, context)
        claims = all_claims(findings, context)
        report = Report.of(name, output.config, findings, claims, output.metrics)
        if output.folder is None:
            return report
        watch.stage("writing the report")
        report.write(output.folder)
        return open_run(output.folder.path)


class _Output:
    """The config and metrics of a run while it is computed, and its folder and loggers, if any."""

    def __init__(
        self,
        path: Path | None,
        is_resumed: bool,
        loggers: Sequence[LoggerName],
        describe: Callable[[nn.Module], dict[str, Any]],
        tell: Callable[[str], None],
    ) -> None:
        self._path, self._is_resumed, self._loggers = path, is_resumed, loggers
        self._describe, self._tell = describe, tell
        self._stack = ExitStack()
        self._logs: Loggers | None = None
        self.folder: RunFolder | None = None
        self.config: Mapping[str, Any] = {}
        self.metrics: list[MetricLine] = []

    def start(self, model: nn.Module) -> None:
        """Open the folder and the loggers."""
        self.config = self._describe(model)
        if self._path is None:
            return
        self.folder = self._stack.enter_context(
            RunFolder.begin(self._path, self.config, self._tell, resume=self._is_resumed)
        )
        names = list(dict.fromkeys([*self._loggers, *loggers_in(self._path)]))
        self._logs = Loggers(names, self._path, self.config, self._tell)
        self._stack.callback(self._logs.close)
        self.config = self.folder.config

    def record(self, line: MetricLine) -> None:
        """Take a line of metrics."""
        if self.folder is not None:
            self.folder.add_metrics(line)
        if self._logs is not None:
            self._logs.log(line)
        self.metrics.append(line)

    def close(self) -> None:
        """Close the loggers and unlock the folder."""
        self._stack.close()


@contextmanager
def computing_as(described: Mapping[str, Any]) -> Iterator[None]:
    """Compute with the threads and matrix path of a run's config, so that it resumes bit for bit.

    Attention is always computed by torch's own kernel: runs must not depend on whether a C++
    compiler is installed.
    """
    threads, path = described.get("threads"), described.get("matrix_path")
    known = next((each for each in get_args(MatrixPath) if each == path), None)
    if not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS or known is None:
        raise CouldNotRun(
            f"its config names no threads and matrix path to resume with; got {threads!r} and "
            f"{path!r}."
        )
    with using_threads(threads), use_matrix_path(known), use_attention_path("default"):
        yield


def config(
    name: str, settings: Mapping[str, str] | None = None, *, quick: bool = False, **fields: Any
) -> Config:
    """Make an experiment's config: defaults or quick ones, then `fields`, then `settings`."""
    config_class = find(name).config_class
    small = config_class.QUICK if quick else {}
    return config_class.from_mapping({**small, **fields}).with_settings(settings or {})


def is_askable(name: str) -> bool:
    """Does this experiment's model answer a text that a person types?"""
    return isinstance(find(name).experiment, Askable)


def config_of(report: Report) -> Config:
    """Rebuild the config of a run.

    Raises:
        CouldNotRun: this attnlab has no such experiment, or not these settings.
    """
    try:
        return find(report.experiment).config_class.from_mapping(report.config["settings"])
    except WrongUsage as error:
        raise CouldNotRun(
            f"{(report.folder or Path()) / 'config.json'} is not usable: {error}"
        ) from None


def trace_run(report: Report, text: str) -> Trace:
    """Trace a run's model on a text."""
    return ask_run(report, text).trace()


def ask_run(report: Report, text: str) -> Question:
    """Put a text to a run's model."""
    return askable(report).ask(report.model, config_of(report), text, folder=report.folder)


def askable(report: Report) -> Askable:
    """Return a run's experiment, if its model answers a text."""
    report.refuse_without_weights()
    experiment = find(report.experiment).experiment
    if not isinstance(experiment, Askable):
        raise WrongUsage(
            f"a run of {report.experiment} has no model to ask; look at it with: attnlab open "
            f"{report.folder or 'RUN'}"
        )
    return experiment
