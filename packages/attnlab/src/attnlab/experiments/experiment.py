"""The protocol of an experiment, `config → run → findings`, and the `Run` that it is given."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import nn

from attnlab.draw.sections import ReportContent
from attnlab.experiments.claims import Claim
from attnlab.look.questions import Question
from attnlab.train.config import EngineName, LayoutName
from attnlab.train.history import Evaluation
from attnlab.train.layouts.layout import Loss
from attnlab.train.loop import Member, Trained, TrainResult, train_together
from attnlab.train.observer import Observer, SilentObserver

MetricLine = dict[str, Any]
"""One line of `metrics.jsonl`: a step, and figures by name."""


@dataclass(frozen=True)
class Findings:
    """The result of an experiment.

    model: the run's main one. models: others by name. files: further small ones for the run's
    folder.
    """

    model: nn.Module
    claims: Sequence[Claim]
    content: ReportContent
    models: Mapping[str, nn.Module] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class RunContext:
    """The run that an experiment is part of.

    Attributes:
        seed: of all its randomness.
        observer: is told of progress.
        start: called once with the untrained model, before anything long begins; it makes the
            folder.
        record: called with each line of metrics.
        checkpoints: the folder for checkpoints; None to keep none.
        layout, engine: how trainings are computed.
    """

    seed: int
    observer: Observer = field(default_factory=SilentObserver)
    start: Callable[[nn.Module], None] = field(default=lambda model: None)
    record: Callable[[MetricLine], None] = field(default=lambda line: None)
    checkpoints: Path | None = None
    layout: LayoutName = "auto"
    engine: EngineName = "auto"

    def stage(self, name: str) -> None:
        """Tell the observer which stage begins."""
        self.observer.stage(name)

    def tell(self, sentence: str) -> None:
        """Tell the observer what may differ from what was meant."""
        self.observer.tell(sentence)

    def step(self, step: int, steps: int, figures: Mapping[str, float] | None = None) -> None:
        """Tell the observer how far the run is."""
        self.observer.step(step, steps, figures or {})

    def train(
        self,
        name: str,
        members: Sequence[Member],
        loss: Loss,
        *,
        stop: Callable[[Sequence[Evaluation]], bool] | None = None,
        record: Callable[[int, MetricLine], None] | None = None,
        num_threads: int | None = None,
    ) -> TrainResult:
        """Train members side by side; `name` is the folder of their checkpoints.

        Every training of a run has a name of its own, so that a run that was stopped resumes the
        right one.
        """
        folder = None if self.checkpoints is None else self.checkpoints / name
        return train_together(
            members,
            loss,
            stop=stop,
            observer=self.observer,
            folder=folder,
            record=record,
            layout=self.layout,
            engine=self.engine,
            num_threads=num_threads,
        )


@dataclass(frozen=True)
class ProblemDescription:
    """The problem that a model learns, in words for people.

    task: what the model does. solved: when it counts as having solved the problem. meanings: a
    sentence on each figure of the evaluations.
    """

    task: str
    solved: str
    meanings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Problem:
    """The problem that an experiment's model learns, ready for many members at once.

    members: each with its own seed, and config where they differ. loss, stop: as `train_together`
    takes them. is_solved: whether an evaluation counts as solved. positions: a label for each
    position of the input, for figures. sources: the same for the encoder of an encoder–decoder.
    """

    members: Sequence[Member]
    loss: Loss
    stop: Callable[[Sequence[Evaluation]], bool] | None
    is_solved: Callable[[Evaluation], bool]
    positions: Sequence[str] = ()
    sources: Sequence[str] = ()


class Experiment(Protocol):
    """What the module of an experiment provides."""

    def run(self, config: Any, context: RunContext) -> Findings:
        """Run the whole experiment."""
        ...


@runtime_checkable
class Askable(Protocol):
    """An experiment whose model answers a text that a person types.

    A function `example(config)` beside these returns one such text, with which pages open.
    """

    def prompt_words(self, config: Any) -> str:
        """Describe the texts that the model answers."""
        ...

    def ask(self, model: nn.Module, config: Any, text: str, *, folder: Path | None) -> Question:
        """Put a text to the model; `folder` is the run's, None while it only lives in memory."""
        ...


@runtime_checkable
class Learnable(Protocol):
    """An experiment whose model can be trained for many seeds at once."""

    VARYING: frozenset[str]
    """The fields of its config in which the members of one population may differ."""

    def describe_problem(self, config: Any) -> ProblemDescription:
        """Describe in words what the model learns, and when it counts as learned."""
        ...

    def problem(self, configs: Sequence[Any], seeds: Sequence[int]) -> Problem:
        """Make the members, one for each config and seed; the configs differ in `VARYING` alone."""
        ...

    def conclude(
        self, model: nn.Module, trained: Trained, config: Any, context: RunContext
    ) -> Findings:
        """Evaluate a trained member as its own run would be evaluated."""
        ...
