"""What every experiment is: `config → run → findings`; and what it may ask of the run it is part of."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import nn

from attnlab.experiments.checks import TrainingCheck, check_claims, check_training
from attnlab.experiments.claims import Claim
from attnlab.look.questions import Question
from attnlab.train.config import EngineName, LayoutName
from attnlab.train.distributed import Team, is_writer
from attnlab.train.history import Judgement
from attnlab.train.layouts.layout import Loss
from attnlab.train.loop import Member, Together, Trained, train_together, using_threads
from attnlab.train.observer import Observer

__all__ = ["Askable", "Experiment", "Findings", "Goal", "Learnable", "Lesson", "Run", "all_claims"]


class Findings(NamedTuple):
    """What an experiment hands back.

    model is the run's main one · models are others by name · files are further small ones for the run's folder.
    """

    model: nn.Module
    claims: Sequence[Claim]
    document: Mapping[str, Any]
    models: Mapping[str, nn.Module] = {}
    files: Mapping[str, bytes] = {}


def _nobody(line: dict[str, Any]) -> None:
    """Take a line of metrics that nobody wants."""


@dataclass(frozen=True)
class Run:
    """The run that an experiment is part of.

    Attributes:
        seed: of all its randomness.
        observer: who watches; None for nobody.
        start: is told the untrained model, once, before anything long begins (the folder is made then).
        record: takes each line of metrics.
        checkpoints: where checkpoints go; None for nowhere.
        layout, engine: how trainings are computed.
        team: the processes that share this run, if there are several.
        trainings: what was checked of each training so far; of several processes nothing is.
    """

    seed: int
    observer: Observer | None = None
    start: Callable[[nn.Module], None] = field(default=lambda model: None)
    record: Callable[[dict[str, Any]], None] = field(default=_nobody)
    checkpoints: Path | None = None
    layout: LayoutName = "auto"
    engine: EngineName = "auto"
    team: Team | None = None
    trainings: list[TrainingCheck] = field(default_factory=list)

    def stage(self, name: str) -> None:
        """Tell who watches what begins now."""
        if self.observer is not None:
            self.observer.stage(name)

    def tell(self, sentence: str) -> None:
        """Tell who watches what may not be as it was meant."""
        if self.observer is not None:
            self.observer.tell(sentence)

    def step(self, step: int, steps: int, figures: Mapping[str, float] | None = None) -> None:
        """Tell who watches how far it is."""
        if self.observer is not None:
            self.observer.step(step, steps, figures or {})

    def train(
        self,
        name: str,
        members: Sequence[Member],
        loss: Loss,
        *,
        stop: Callable[[Sequence[Judgement]], bool] | None = None,
        record: Callable[[int, dict[str, Any]], None] | None = None,
        num_threads: int | None = None,
        has_rows: bool = False,
    ) -> Together:
        """Train members side by side as part of this run; `name` is that of their checkpoints' folder.

        Every training of a run has a name of its own, so that a run that was stopped goes on in the right one.
        has_rows says that the loss is a mean over the rows of a batch: several processes can then share them out, and
        else each of them does all of it.
        """
        is_alone = self.team is not None and not has_rows
        if is_alone:
            self.tell(f"The training {name} cannot be shared out: each process does all of it.")
        starts = copy.deepcopy([member.model for member in members])
        found = train_together(
            members,
            loss,
            stop=stop,
            observer=self.observer,
            folder=None if self.checkpoints is None or (is_alone and not is_writer()) else self.checkpoints / name,
            record=record,
            layout=self.layout,
            engine=self.engine,
            num_threads=num_threads,
            team=self.team if has_rows else None,
        )
        if self.team is None and found.members[0] is not None:
            with using_threads(num_threads):
                self.trainings.append(check_training(starts, members[0], loss, found.members[0]))
        return found


class Goal(NamedTuple):
    """What a model is to learn, in words for people.

    task: what it does, and of which part of the experiment it is. solved: what has to be so for a model to count as one
    that can do it. loss: the name of its training loss, with the unit. meanings: figures of the judgements, each with a
    sentence about it.
    """

    task: str
    solved: str
    loss: str = "loss (nats)"
    meanings: tuple[tuple[str, str], ...] = ()


class Lesson(NamedTuple):
    """What an experiment's model learns, ready for many members at once.

    members: each with its own seed, and config where they differ. loss, stop: as `train_together` takes them.
    is_solved: says of a judgement whether the member can do the task. positions: what stands at each place of a row of
    tokens, for pictures; sources: likewise for an encoder whose rows a decoder looks at.
    """

    members: Sequence[Member]
    loss: Loss
    stop: Callable[[Sequence[Judgement]], bool] | None
    is_solved: Callable[[Judgement], bool]
    positions: Sequence[str] = ()
    sources: Sequence[str] = ()


class Experiment(Protocol):
    """What the module of an experiment provides."""

    NAME: str
    SUMMARY: str

    def run(self, config: Any, context: Run) -> Findings:
        """Do all of it."""
        ...


def all_claims(findings: Findings, context: Run) -> tuple[Claim, ...]:
    """Return an experiment's own claims, and those that every run makes."""
    models = (findings.model, *findings.models.values())
    return (*findings.claims, *check_claims(models, context.trainings, context.seed))


@runtime_checkable
class Askable(Protocol):
    """An experiment whose model answers to what a person types."""

    def prompt_words(self, config: Any) -> str:
        """Say what a person may type."""
        ...

    def ask(self, model: nn.Module, config: Any, text: str, *, folder: Path | None) -> Question:
        """Put a text to the model; `folder` is the run's, None while it only lives in memory."""
        ...


@runtime_checkable
class Learnable(Protocol):
    """An experiment whose model can be trained for many seeds at once."""

    VARYING: frozenset[str]
    """The fields of its config in which the members of one population may differ."""

    def goal(self, config: Any) -> Goal:
        """Say in words what `lesson` teaches, and when it counts as learned."""
        ...

    def lesson(self, configs: Sequence[Any], seeds: Sequence[int]) -> Lesson:
        """Make the members, one for each config and seed; the configs differ in `VARYING` alone."""
        ...

    def conclude(self, model: nn.Module, trained: Trained, config: Any, context: Run) -> Findings:
        """Judge a trained member as a run of its own would be judged."""
        ...
