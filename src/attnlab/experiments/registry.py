"""The experiments by name, and the one function that runs them."""

import datetime
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from attnlab.configs import Config
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.experiments.experiment import Experiment, Run, Traceable
from attnlab.experiments.folder import RunFolder
from attnlab.experiments.report import Report, describe_run, open_run
from attnlab.look.trace import Trace
from attnlab.seeds import stream_seed
from attnlab.train.loop import Observer

__all__ = ["EXPERIMENTS", "config", "config_of", "find", "is_traceable", "run", "trace_run", "traceable"]

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
    observer: Observer | None = None,
    **fields: Any,
) -> Report:
    """Run an experiment from start to finish.

    Args:
        name: such as "sorting".
        seed: of all its randomness.
        out: the run folder to make; None keeps the report in memory (`report.save(folder)` writes it later).
        settings: config fields as texts, as `--set` gives them.
        quick: start from the experiment's small settings, which show the same in seconds.
        observer: is told of progress.
        **fields: config fields as values.

    Raises:
        WrongUsage: an unknown name or setting, or a value out of range.
        CouldNotRun: the folder exists, cannot be written, or the training broke.

    >>> report = run("sorting", steps=20, evaluate_every=10)
    >>> report.passed
    False
    """
    experiment = find(name).experiment
    stream_seed(seed)
    stated = config(name, settings, quick=quick, **fields)
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    folder: RunFolder | None = None
    description: dict[str, Any] = {}

    def start(model: nn.Module) -> None:
        nonlocal folder
        description.update(describe_run(name, seed, stated.to_mapping(), started, model))
        if out is not None:
            folder = RunFolder.create(Path(out), description)

    def record(line: dict[str, Any]) -> None:
        if folder is not None:
            folder.add_metrics(line)
        metrics.append(line)

    metrics: list[dict[str, Any]] = []
    context = Run(seed, observer, start, record, checkpoints=None if out is None else Path(out) / "checkpoints")
    findings = experiment.run(stated, context)
    report = Report(
        name,
        description,
        tuple(findings.claims),
        metrics,
        findings.document,
        None,
        findings.model,
        findings.models,
        findings.files,
    )
    if folder is None:
        return report
    report.write(folder)
    return open_run(folder.path)


def config(name: str, settings: Mapping[str, str] | None = None, *, quick: bool = False, **fields: Any) -> Config:
    """Make an experiment's config: its defaults (or quick ones), then fields as values, then settings as texts."""
    config_class = find(name).config_class
    small = config_class.QUICK if quick else {}
    return config_class.from_mapping({**small, **fields}).with_settings(settings or {})


def is_traceable(name: str) -> bool:
    """Say whether an experiment's model answers to what a person types."""
    return isinstance(find(name).experiment, Traceable)


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
    return traceable(report).trace_text(report.model, config_of(report), text, folder=report.folder)


def traceable(report: Report) -> Traceable:
    """Return a run's experiment, if its model answers to what a person types."""
    experiment = find(report.experiment).experiment
    if not isinstance(experiment, Traceable):
        where = report.folder or "RUN"
        raise WrongUsage(f"a run of {report.experiment} has nothing to trace; look at it with: attnlab open {where}")
    return experiment
