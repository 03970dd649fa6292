"""What every experiment is: `config → run → findings`; and what it may ask of the run it is part of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import nn

from attnlab.experiments.claims import Claim
from attnlab.look.trace import Trace
from attnlab.train.loop import Observer

__all__ = ["Experiment", "Findings", "Run", "Traceable"]


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
    """

    seed: int
    observer: Observer | None = None
    start: Callable[[nn.Module], None] = field(default=lambda model: None)
    record: Callable[[dict[str, Any]], None] = field(default=_nobody)
    checkpoints: Path | None = None

    def stage(self, name: str) -> None:
        """Tell who watches what begins now."""
        if self.observer is not None:
            self.observer.stage(name)

    def step(self, step: int, steps: int, figures: Mapping[str, float] | None = None) -> None:
        """Tell who watches how far it is."""
        if self.observer is not None:
            self.observer.step(step, steps, figures or {})


class Experiment(Protocol):
    """What the module of an experiment provides."""

    NAME: str
    SUMMARY: str

    def run(self, config: Any, context: Run) -> Findings:
        """Do all of it."""
        ...


@runtime_checkable
class Traceable(Protocol):
    """An experiment whose model can be watched on an input that a person types."""

    def prompt_words(self, config: Any) -> str:
        """Say what a person may type to be traced."""
        ...

    def trace_text(self, model: nn.Module, config: Any, text: str, *, folder: Path | None) -> Trace:
        """Trace the model; `folder` is the run's, None while it only lives in memory."""
        ...
