"""What every experiment is: `config → run → findings`; and what it may ask of the run it is part of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from torch import nn

from attnlab.configs import Config
from attnlab.experiments.claims import Claim
from attnlab.look.trace import Trace
from attnlab.train.loop import Observer

__all__ = ["Experiment", "Findings", "Run"]


class Findings(NamedTuple):
    """What an experiment hands back."""

    model: nn.Module
    claims: Sequence[Claim]
    document: Mapping[str, Any]
    figures: Mapping[str, bytes]


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
    observer: Observer | None
    start: Callable[[nn.Module], None]
    record: Callable[[dict[str, Any]], None] | None = None
    checkpoints: Path | None = None


class Experiment(Protocol):
    """What the module of an experiment provides."""

    NAME: str
    SUMMARY: str

    def run(self, config: Any, context: Run) -> Findings:
        """Do all of it."""
        ...

    def prompt_words(self, config: Any) -> str:
        """Say what a person may type to be traced."""
        ...

    def trace_text(self, model: nn.Module, config: Any, text: str) -> Trace:
        """Trace the model on an input that a person typed."""
        ...


ConfigClass = type[Config]
