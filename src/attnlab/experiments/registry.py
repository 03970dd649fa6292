"""The experiments by name, and the one function that runs them."""

import datetime
import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch
from torch import nn

from attnlab.configs import Config
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.experiments.experiment import Askable, Experiment, Run, all_claims
from attnlab.experiments.folder import RunFolder, read_to_go_on
from attnlab.experiments.intervals import check_intervals
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
from attnlab.train.loggers import Loggers, check_loggers, loggers_in
from attnlab.train.loop import using_threads
from attnlab.train.observer import Observer

__all__ = [
    "EXPERIMENTS",
    "ask_run",
    "askable",
    "computing_as",
    "config",
    "config_of",
    "find",
    "is_askable",
    "run",
    "trace_run",
]

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

    Of several processes that torchrun started, the first writes and shows; the others only compute.

    Args:
        name: such as "sorting".
        seed: of all its randomness.
        out: the run folder to make; None keeps the report in memory (`report.save(folder)` writes it later).
        settings: config fields as texts, as `--set` gives them.
        quick: start from the experiment's small settings, which show the same in seconds.
        layout, engine: how trainings are computed, see `choose_layout`.
        observer: is told of progress; None for a bar in a notebook, and nothing elsewhere.
        loggers: "tensorboard", "mlflow": who gets the metrics too, in files inside the run folder; a run that is gone
            on with keeps those it has.
        resume: go on with the run in `out` that was stopped, to the same bytes.
        **fields: config fields as values.

    Raises:
        WrongUsage: an unknown name or setting, or a value out of range.
        CouldNotRun: the folder exists (or, with `resume`, holds no run, another, or one that is being written), it
            cannot be written, the training broke, or intervals are computed wrongly; `Finished`, with `resume`, where
            there is nothing left to do.

    >>> report = run("sorting", steps=20, evaluate_every=10)
    >>> report.passed
    False
    """
    check_intervals()
    experiment = find(name).experiment
    observer = observer or notebook_bar(name)
    stream_seed(seed)
    stated = config(name, settings, quick=quick, **fields)
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    path = None if out is None else Path(out)
    if resume and path is None:
        raise WrongUsage("to go on with a run, name its folder.")
    if loggers and path is None:
        raise WrongUsage("loggers write into the run folder; name one with out.")
    wanted_loggers = check_loggers(loggers)
    folder: RunFolder | None = None
    description: dict[str, Any] = {}
    metrics: list[dict[str, Any]] = []
    logs: Loggers | None = None

    def tell(sentence: str) -> None:
        if observer is not None:
            observer.tell(sentence)

    def start(model: nn.Module) -> None:
        nonlocal folder, logs
        described = describe_run(
            name, seed, stated.to_mapping(), started, model, threads=threads, layout=layout, engine=engine
        )
        if path is not None and is_writer():
            opened = RunFolder.resume(path, described, tell) if resume else RunFolder.create(path, described)
            folder = stack.enter_context(opened)
            names = list(dict.fromkeys([*wanted_loggers, *loggers_in(path)]))
            logs = Loggers(names, path, described, tell)
            stack.callback(logs.close)
        description.update(described if folder is None else folder.config)

    def record(line: dict[str, Any]) -> None:
        if folder is not None:
            folder.add_metrics(line)
        if logs is not None:
            logs.log(line)
        metrics.append(line)

    with ExitStack() as stack:
        # The numbers of a run must not depend on whether a C++ compiler is there.
        stack.enter_context(use_attention_path("default"))
        if resume and path is not None:
            asked = {"experiment": name, "seed": seed, "settings": stated.to_mapping(), "layout": layout}
            stack.enter_context(computing_as(read_to_go_on(path, "run", {**asked, "engine": engine})))
        threads = torch.get_num_threads()
        team = stack.enter_context(joined())
        if team is not None and team.is_writer:
            tell(f"{team.size} processes take part, as torchrun started them.")
        checkpoints = path / "checkpoints" if path is not None and (is_writer() or resume) else None
        context = Run(seed, observer, start, record, checkpoints, layout, engine, team)
        findings = experiment.run(stated, context)
        report = Report(
            name,
            description,
            all_claims(findings, context),
            metrics,
            findings.document,
            None,
            findings.model,
            findings.models,
            findings.files,
        )
        if folder is None:
            return report
        if observer is not None:
            observer.stage("writing the report")
        report.write(folder)
        return open_run(folder.path)


@contextmanager
def computing_as(described: Mapping[str, Any]) -> Iterator[None]:
    """Compute with the threads and the matrix path that a run's config names, so that it goes on to the bit.

    Attention is always computed by torch's own kernel: runs shall not depend on whether a C++ compiler is there.
    """
    threads, path = described.get("threads"), described.get("matrix_path")
    known = next((each for each in get_args(MatrixPath) if each == path), None)
    if not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS or known is None:
        raise CouldNotRun(f"its config names no threads and matrix path to go on with; got {threads!r} and {path!r}.")
    with using_threads(threads), use_matrix_path(known), use_attention_path("default"):
        yield


def config(name: str, settings: Mapping[str, str] | None = None, *, quick: bool = False, **fields: Any) -> Config:
    """Make an experiment's config: its defaults (or quick ones), then fields as values, then settings as texts."""
    config_class = find(name).config_class
    small = config_class.QUICK if quick else {}
    return config_class.from_mapping({**small, **fields}).with_settings(settings or {})


def is_askable(name: str) -> bool:
    """Say whether an experiment's model answers to what a person types."""
    return isinstance(find(name).experiment, Askable)


def config_of(report: Report) -> Config:
    """Rebuild the config that a run was made with.

    Raises:
        CouldNotRun: this attnlab has no such experiment, or its settings are not these.
    """
    try:
        return find(report.experiment).config_class.from_mapping(report.config["settings"])
    except WrongUsage as error:
        raise CouldNotRun(f"{(report.folder or Path()) / 'config.json'} is not usable: {error}") from None


def trace_run(report: Report, text: str) -> Trace:
    """Trace a run's model on an input that a person typed."""
    return ask_run(report, text).trace()


def ask_run(report: Report, text: str) -> Question:
    """Put what a person typed to a run's model."""
    return askable(report).ask(report.model, config_of(report), text, folder=report.folder)


def askable(report: Report) -> Askable:
    """Return a run's experiment, if its model answers to what a person types."""
    report.refuse_without_weights()
    experiment = find(report.experiment).experiment
    if not isinstance(experiment, Askable):
        where = report.folder or "RUN"
        raise WrongUsage(f"a run of {report.experiment} has no model to ask; look at it with: attnlab open {where}")
    return experiment
