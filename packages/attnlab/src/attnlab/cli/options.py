"""Options that several commands share."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import cyclopts
from cyclopts import Parameter

from attnlab.configs import parse_settings


def _whole_number(_: Any, tokens: Sequence[cyclopts.Token]) -> int:
    """Read an integer strictly; left alone, cyclopts would round 1.5 to 2."""
    text = tokens[0].value
    if not re.fullmatch(r"[+-]?\d{1,50}", text, re.ASCII):
        raise ValueError(f"expected a whole number; got {text[:50]!r}.")
    return int(text)


WholeNumber = Annotated[int, Parameter(converter=_whole_number)]
OptionalWholeNumber = Annotated[int | None, Parameter(converter=_whole_number)]
Switch = Annotated[bool, Parameter(negative="")]
AsJson = Annotated[bool, Parameter(name="--json", negative="")]
Quiet = Annotated[bool, Parameter(name=["--quiet", "-q"], negative="")]
Strings = Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")]
Settings = Annotated[list[str] | None, Parameter(name="--set", consume_multiple=True, negative="")]


@Parameter(name="*")
@dataclass(frozen=True)
class TrainingOptions:
    """Options of the commands that train."""

    set_: Settings = None
    """Settings as key=value, any number of them; `attnlab settings NAME` lists the keys. For all
    experiments, experiment.key=value."""

    out: Path | None = None
    """The folder to create; by default the first free one of runs/NAME, runs/NAME-2, …: NAME is the
    experiment, with -100-seeds, -sweep or -tune after it where many models are trained. For all
    experiments, the folder to create the run folders in."""

    layout: Literal["auto", "simd", "vmap", "sequential"] = "auto"
    """With several seeds: how models are laid out in memory; auto chooses the fastest."""

    resume: Switch = False
    """Resume the unfinished run in --out, which must have the same settings; `attnlab resume RUN`
    needs only its folder."""

    as_json: AsJson = False
    """Print the result as JSON."""

    quiet: Quiet = False
    """Hide the progress."""

    def settings(self) -> dict[str, str]:
        """Return the settings by their keys."""
        return parse_settings(self.set_ or [])

    def library_options(self) -> dict[str, Any]:
        """Return the options that the library takes by the same names."""
        others = ("set_", "out", "as_json", "quiet")
        return {name: value for name, value in vars(self).items() if name not in others}


@Parameter(name="*")
@dataclass(frozen=True)
class EngineOptions:
    """Where the work of a command is done."""

    workers: OptionalWholeNumber = None
    """How many processes on this machine share the work; by default 1, or on resuming as many as at
    the start."""

    engine: Literal["local", "ray", "slurm"] | None = None
    """Where the work is done: local, ray for a running Ray cluster, or slurm for jobs."""

    address: str | None = None
    """The address of the Ray cluster: HOST:PORT, or auto for the one on this machine; tokens are
    read from RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH. Of slurm: a partition, or here for jobs on this
    machine."""


@Parameter(name="*")
@dataclass(frozen=True)
class GridOptions(EngineOptions, TrainingOptions):
    """Options of the commands that train many settings."""


@Parameter(name="*")
@dataclass(frozen=True)
class CorpusOptions:
    """How the texts of a file are read."""

    column: str = "text"
    """The column that holds the texts."""

    limit: OptionalWholeNumber = None
    """The maximum number of rows to read from the corpus."""

    max_length: OptionalWholeNumber = None
    """The maximum number of tokens of a text; longer texts are cut, and counted."""


class _Optional:
    """Options that are left out more often than not."""

    def typed_names(self) -> list[str]:
        """List the options that the user typed, as they are typed."""
        values = vars(self).items()
        return [
            f"--{name.replace('_', '-')}" for name, value in values if value not in (None, False)
        ]


@Parameter(name="*")
@dataclass(frozen=True)
class PretrainedOptions(_Optional):
    """Options of look, edit and trace that only pretrained models need."""

    steps: OptionalWholeNumber = None
    """The maximum number of generated tokens (pretrained models)."""

    target: str | None = None
    """The right answer: a continuation, an answer, a class, or the words at the masks (pretrained
    models)."""

    pair: str | None = None
    """The second text of a pair (pretrained models)."""

    ends_in: str | None = None
    """The model's output layer: none, causal-lm, masked-lm, …; by default the one its files
    name."""


@Parameter(name="*")
@dataclass(frozen=True)
class LongTextOptions(_Optional):
    """Options of look for a long text."""

    document: Path | None = None
    """A file with a long text to read instead of an input: every head is summarized, into
    --out."""

    tiles: OptionalWholeNumber = None
    """With --document: the maximum number of cells on each side of a map (256)."""

    resume: Switch = False
    """With --document: resume what was interrupted."""

    beyond: Switch = False
    """With --document: allow a text that exceeds the model's context length."""


@Parameter(name="*")
@dataclass(frozen=True)
class BlockOptions(_Optional):
    """Options of run that only more than 1,000 seeds need."""

    workers: OptionalWholeNumber = None
    """With more than 1,000 seeds: how many processes on this machine share the blocks; by default
    1, or on resuming as many as at the start."""

    address: str | None = None
    """With --engine ray: HOST:PORT of the cluster, or auto for the one on this machine. With slurm:
    a partition, or here for jobs on this machine."""

    estimate: Switch = False
    """With more than 1,000 seeds: train a part of one block alone, and say how long all seeds would
    take, and how much room."""

    price: float | None = None
    """The price of an hour of one core, for --estimate."""


NO_OPTIONS = PretrainedOptions()
HERE, WHOLE_CORPUS = EngineOptions(), CorpusOptions()
NO_LONG_TEXT, NO_BLOCKS = LongTextOptions(), BlockOptions()
