"""The experiments by name, and `run`, which runs them."""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast, get_args

import torch
from torch import nn

from attnlab.configs import Config
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.experiments.experiment import Askable, Experiment, MetricLine, Run, all_claims
from attnlab.experiments.folder import RunConfig, RunFolder, read_to_go_on
from attnlab.experiments.report import Report, begins_at, chosen_observer, describe_run, open_run
from attnlab.look.questions import Question
from attnlab.models.decoder import Decoder
from attnlab.parts.fused import use_attention_path
from attnlab.parts.linear import MatrixPath, use_matrix_path
from attnlab.seeds import stream_seed
from attnlab.train.checkpoint import MOST_THREADS
from attnlab.train.config import EngineName, LayoutName
from attnlab.train.loggers import LoggerName, Loggers, check_loggers, loggers_in
from attnlab.train.loop import using_threads
from attnlab.train.observer import Observer
from attnlab.train.processes import is_writer, joined


@dataclass(frozen=True)
class Entry:
    """Where an experiment is, as `module:ConfigClass`, and a line on what it shows."""

    place: str
    summary: str


EXPERIMENTS = {
    "lookup": Entry(
        "attnlab.experiments.lookup.lookup:LookupConfig",
        "an encoder–decoder looks facts up by content, in any order, and shows what it takes to "
        "read new ones",
    ),
    "anatomy": Entry(
        "attnlab.experiments.anatomy.anatomy:AnatomyConfig",
        "attention taken apart: eight properties, each measured over many draws",
    ),
    "handmade": Entry(
        "attnlab.experiments.handmade.workshop:HandmadeConfig",
        "one head's weights designed by hand and proved on every input, beside learned ones",
    ),
    "open_program": Entry(
        "attnlab.experiments.open_program.study:OpenProgramConfig",
        "a part of a model is compiled and the rest is trained around it: what the part saves, "
        "beside a decoy",
    ),
    "sentiment": Entry(
        "attnlab.experiments.sentiment.classifier:SentimentConfig",
        "a mini transformer classifies texts, compared with simple counting on texts that it "
        "never saw",
    ),
    "sorting": Entry(
        "attnlab.experiments.sorting.sorter:SortingConfig",
        "a decoder of 480 parameters learns to sort letters, and shows where it looks",
    ),
}
"""The experiments of this package by name; a module is imported when it is needed."""


@dataclass(frozen=True)
class Found:
    """An experiment and its config class."""

    experiment: Experiment
    config_class: type[Config]


def experiments() -> dict[str, Entry]:
    """Return all experiments by name, those of other packages too.

    Another package names its own among its entry points: `[project.entry-points.
    "attnlab.experiments"]`, `dice = "my_package.dice:DiceConfig"`.
    """
    others = entry_points(group="attnlab.experiments")
    return {other.name: Entry(other.value, f"of {other.value}") for other in others} | EXPERIMENTS


def find(name: str) -> Found:
    """Return an experiment by its name."""
    known = experiments()
    if name not in known:
        raise WrongUsage(f"there is no experiment {name!r}; {did_you_mean(name, known)}")
    place, _, config_name = known[name].place.partition(":")
    module: Any = importlib.import_module(place)
    return Found(module, getattr(module, config_name))


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
        full: start from the settings of a full run: more seeds, texts and steps.
        layout, engine: how trainings are computed, see `choose_layout`.
        observer: is told of progress; None for a bar in a notebook, and nothing elsewhere.
        loggers: "tensorboard", "mlflow": also log the metrics there, in files inside the run
            folder; a resumed run keeps its loggers.
        resume: continue the run in `out` that was stopped, to the same bytes.
        **fields: config fields as values.

    Raises:
        WrongUsage: an unknown name or setting, or a value out of range.
        CouldNotRun: the folder exists (or, with `resume`, holds no run, another, or one that is
            being written), it cannot be written, the training diverged; `Finished`, with `resume`,
            if nothing is left to do.

    >>> report = run("sorting", steps=20, evaluate_every=10)
    >>> report.passed
    False
    """
    experiment = find(name).experiment
    watch = chosen_observer(observer, name)
    stream_seed(seed)
    stated = config(name, settings, full=full, **fields)
    started = begins_at()
    path = _named_folder(out, resume=resume, has_loggers=bool(loggers))
    with ExitStack() as stack:
        # The numbers of a run must not depend on whether a C++ compiler is there.
        stack.enter_context(use_attention_path("default"))
        describe = partial(
            describe_run, name, seed, stated.to_mapping(), started, layout=layout, engine=engine
        )
        if resume and path is not None:
            stack.enter_context(computing_as(read_to_go_on(path, "run", describe(None))))
        group = stack.enter_context(joined())
        if group is not None and group.is_writer:
            watch.tell(f"{group.size} processes take part, as torchrun started them.")
        describe = partial(describe, threads=torch.get_num_threads())
        checkpoints = None
        if path is not None and (is_writer() or resume):
            checkpoints = path / "checkpoints"
        if not is_writer():
            path = None
        output = _Output(path, resume, check_loggers(loggers), describe, watch, stack)
        context = Run(seed, watch, output.start, output.record, checkpoints, layout, engine, group)
        findings = experiment.run(stated, context)
        claims = all_claims(findings, context)
        report = Report.of(name, output.config, findings, claims, output.metrics)
        if output.folder is None:
            return with_reader(report)
        watch.stage("writing the report")
        report.write(output.folder)
        return with_reader(open_run(output.folder.path))


def _named_folder(out: Path | str | None, *, resume: bool, has_loggers: bool) -> Path | None:
    if out is not None:
        return Path(out)
    if resume:
        raise WrongUsage("to resume a run, name its folder.")
    if has_loggers:
        raise WrongUsage("loggers write into the run folder; name one with out.")
    return None


@dataclass
class _Output:
    """The config and metrics of a run while it is computed, and its folder and loggers, if any."""

    path: Path | None
    is_resumed: bool
    loggers: Sequence[LoggerName]
    describe: Callable[[nn.Module], RunConfig]
    observer: Observer
    stack: ExitStack
    folder: RunFolder | None = None
    logs: Loggers | None = None
    config: RunConfig = field(default_factory=RunConfig)
    metrics: list[MetricLine] = field(default_factory=list)

    def start(self, model: nn.Module) -> None:
        """Open the folder and the loggers."""
        self.config = self.describe(model)
        if self.path is None:
            return
        opened = RunFolder.begin(self.path, self.config, self.tell, resume=self.is_resumed)
        self.folder = self.stack.enter_context(opened)
        names = list(dict.fromkeys([*self.loggers, *loggers_in(self.path)]))
        self.logs = Loggers(names, self.path, self.config, self.tell)
        self.stack.callback(self.logs.close)
        self.config = self.folder.config

    def tell(self, sentence: str) -> None:
        """Pass a sentence on."""
        self.observer.tell(sentence)

    def record(self, line: MetricLine) -> None:
        """Take a line of metrics."""
        self.metrics.append(line)
        if self.folder is not None and self.logs is not None:
            self.folder.add_metrics(line)
            self.logs.log(line)


@contextmanager
def computing_as(described: Mapping[str, object]) -> Iterator[None]:
    """Compute with the threads and matrix path of a run's config, so that it resumes bit for bit.

    Attention is always computed by torch's own kernel: runs must not depend on whether a C++
    compiler is installed.
    """
    threads, path = described.get("threads"), described.get("matrix_path")
    known = get_args(MatrixPath)
    if not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS or path not in known:
        raise CouldNotRun(
            f"its config names no threads and matrix path to resume with; got {threads!r} and "
            f"{path!r}."
        )
    products = use_matrix_path(cast(MatrixPath, path))
    with using_threads(threads), products, use_attention_path("default"):
        yield


def config(
    name: str, settings: Mapping[str, str] | None = None, *, full: bool = False, **fields: Any
) -> Config:
    """Make an experiment's config: the defaults or those of a full run, then `fields`, then
    `settings`."""
    config_class = find(name).config_class
    if full:
        fields = {**config_class.FULL, **fields}
    return config_class.from_mapping(fields).with_settings(settings or {})


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


def ask_run(report: Report, text: str) -> Question:
    """Put a text to a run's model."""
    return askable(report).ask(report.model, config_of(report), text, folder=report.folder)


@dataclass(frozen=True)
class RunReader:
    """What a run knows of its model: how a text is put to it, what its tokens are called."""

    experiment: str
    settings: Mapping[str, Any]
    folder: Path | None = None

    @property
    def prompt(self) -> str:
        """What can be typed, in words."""
        return self._experiment.prompt_words(self._config)

    @property
    def example(self) -> str:
        """A text that the model answers; empty where the experiment names none."""
        example = getattr(self._experiment, "example", None)
        return "" if example is None else str(example(self._config))

    def ask(self, model: nn.Module, text: str) -> Question:
        """Put a text to the model."""
        return self._experiment.ask(model, self._config, text, folder=self.folder)

    def token_names(self, model: nn.Module) -> Sequence[str] | None:
        """Return the names of the ids that a decoder reads and writes; None for other models."""
        return self.answer_names(model) if isinstance(model, Decoder) else None

    def answer_names(self, model: nn.Module) -> Sequence[str] | None:
        """Return the names of the logits: classes, or tokens."""
        if not is_askable(self.experiment) or not self.example:
            return None
        question: Any = self.ask(model, self.example)
        names = getattr(question, "classes", question.vocabulary)
        return names if isinstance(names, Sequence) else None

    @property
    def _config(self) -> Config:
        return find(self.experiment).config_class.from_mapping(self.settings)

    @property
    def _experiment(self) -> Askable:
        experiment = find(self.experiment).experiment
        if not isinstance(experiment, Askable):
            raise WrongUsage(
                f"a run of {self.experiment} has no model that reads a text; give ids."
            )
        return experiment


def with_reader(report: Report) -> Report:
    """Let the model of a run know its run, so that it reads texts and names its tokens."""
    settings = report.config.get("settings")
    if not isinstance(settings, Mapping):
        return report
    return replace(report, _reader=RunReader(report.experiment, settings, report.folder))


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
