"""`run`: one experiment from start to finish."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attnlab.experiments.experiment import MetricLine, RunContext
from attnlab.experiments.folder import RunConfig
from attnlab.experiments.registry import config, find
from attnlab.experiments.report import Report, describe_run
from attnlab.experiments.session import Session
from attnlab.seeds import stream_seed
from attnlab.train.config import EngineName, LayoutName
from attnlab.train.observer import Observer


def run(
    name: str,
    *,
    seed: int = 0,
    out: Path | str | None = None,
    settings: Mapping[str, str] | None = None,
    full: bool = False,
    layout: LayoutName = "auto",
    engine: EngineName = "auto",
    observer: Observer | None = None,
    resume: bool = False,
    **fields: Any,
) -> Report:
    """Run an experiment from start to finish.

    Args:
        name: such as "sorting".
        seed: of all its randomness.
        out: the run folder to make; None keeps the report in memory (`report.save(folder)` writes
            it later).
        settings: config fields as texts, as `--set` gives them.
        full: start from the settings of a full run: more seeds, texts and steps.
        layout, engine: how trainings are computed, see `choose_layout`.
        observer: is told of progress; None for a bar in a notebook, and nothing elsewhere.
        resume: continue the run in `out` that was stopped, to the same bytes.
        **fields: config fields as values.

    Returns:
        the `Report`: claims, facts, tables, figures, the trained `model`.

    Raises:
        WrongUsage: an unknown name or setting, or a value out of range.
        CouldNotRun: the folder exists (or, with `resume`, holds no run, another, or one that is
            being written), it cannot be written, the training diverged; `AlreadyFinished`, with
            `resume`, if nothing is left to do.

    >>> report = run("sorting", steps=20, evaluate_every=10)
    >>> report.passed
    False
    """
    experiment = find(name).experiment
    stream_seed(seed)
    stated = config(name, settings, full=full, **fields)
    with Session("run", name, out, resume=resume, observer=observer) as session:
        describe = partial(
            describe_run,
            name,
            seed,
            stated.to_mapping(),
            session.started,
            layout=layout,
            engine=engine,
        )
        session.compute_as_begun(describe(None))
        describe = partial(describe, threads=torch.get_num_threads())
        output = _Output(session, describe)
        context = RunContext(
            seed, session.observer, output.start, output.record, session.checkpoints, layout, engine
        )
        findings = experiment.run(stated, context)
        return session.write(Report.of(name, output.config, findings, output.metrics))


@dataclass
class _Output:
    """The config and metrics of a run while it is computed."""

    session: Session
    describe: Callable[[nn.Module], RunConfig]
    config: RunConfig = field(default_factory=RunConfig)
    metrics: list[MetricLine] = field(default_factory=list)

    def start(self, model: nn.Module) -> None:
        """Open the folder."""
        self.config = self.session.open(self.describe(model))

    def record(self, line: MetricLine) -> None:
        """Take a line of metrics."""
        self.metrics.append(line)
        if self.session.folder is not None:
            self.session.folder.add_metrics(line)
