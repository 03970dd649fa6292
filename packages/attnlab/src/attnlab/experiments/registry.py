"""The experiments by name, their configs, and what a run knows of its model's texts."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from torch import nn

from attnlab.configs import Config
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.experiments.experiment import Askable, Experiment, Learnable
from attnlab.look.questions import Question
from attnlab.models.decoder import Decoder


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
class RegisteredExperiment:
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


def find(name: str) -> RegisteredExperiment:
    """Return an experiment by its name."""
    # Names of this package win, and reading what else is installed takes 10 ms.
    entry = EXPERIMENTS.get(name) or experiments().get(name)
    if entry is None:
        raise WrongUsage(f"there is no experiment {name!r}; {did_you_mean(name, experiments())}")
    place, _, config_name = entry.place.partition(":")
    module: Any = importlib.import_module(place)
    return RegisteredExperiment(module, getattr(module, config_name))


def learnable(name: str) -> Learnable:
    """Return an experiment whose model can be trained for many seeds at once.

    Raises:
        WrongUsage: there is no such experiment, or it has no such model.
    """
    experiment = find(name).experiment
    if not isinstance(experiment, Learnable):
        able = [name for name in experiments() if isinstance(find(name).experiment, Learnable)]
        raise WrongUsage(
            f"{name} has no model to train for many seeds at once; these have: {', '.join(able)}."
        )
    return experiment


def config(
    name: str, settings: Mapping[str, str] | None = None, *, full: bool = False, **fields: Any
) -> Config:
    """Make an experiment's config: the defaults or those of a full run, then `fields`, then
    `settings`."""
    config_class = find(name).config_class
    if full:
        fields = {**config_class.FULL, **fields}
    return config_class.from_mapping(fields).with_settings(settings or {})


@dataclass(frozen=True)
class RunReader:
    """What a run knows of its model: how a text is put to it, what its tokens are called."""

    experiment: str
    settings: Mapping[str, Any]
    folder: Path | None = None

    @property
    def name(self) -> str:
        """The name of the run: its folder's, or the experiment's."""
        return self.folder.resolve().name if self.folder is not None else self.experiment

    @property
    def prompt(self) -> str:
        """What can be typed, in words."""
        return self._experiment.prompt_words(self.config)

    @property
    def example(self) -> str:
        """A text that the model answers; empty where the experiment names none."""
        example = getattr(self._experiment, "example", None)
        return "" if example is None else str(example(self.config))

    def ask(self, model: nn.Module, text: str) -> Question:
        """Put a text to the model."""
        return self._experiment.ask(model, self.config, text, folder=self.folder)

    def token_names(self, model: nn.Module) -> Sequence[str] | None:
        """Return the names of the ids that a decoder reads and writes; None for other models."""
        return self.answer_names(model) if isinstance(model, Decoder) else None

    def answer_names(self, model: nn.Module) -> Sequence[str] | None:
        """Return the names of the logits: classes, or tokens."""
        if not self.is_askable or not self.example:
            return None
        question: Any = self.ask(model, self.example)
        names = getattr(question, "classes", question.vocabulary)
        return names if isinstance(names, Sequence) else None

    @property
    def is_askable(self) -> bool:
        """Whether the model answers a text that a person types."""
        return isinstance(find(self.experiment).experiment, Askable)

    @property
    def config(self) -> Config:
        """The settings of the run.

        Raises:
            CouldNotRun: this attnlab has no such experiment, or not these settings.
        """
        try:
            return find(self.experiment).config_class.from_mapping(self.settings)
        except WrongUsage as error:
            file = (self.folder or Path()) / "config.json"
            raise CouldNotRun(f"{file} is not usable: {error}") from None

    @property
    def _experiment(self) -> Askable:
        experiment = find(self.experiment).experiment
        if not isinstance(experiment, Askable):
            raise WrongUsage(
                f"a run of {self.experiment} has no model to ask; look at it with: attnlab open "
                f"{self.folder or 'RUN'}"
            )
        return experiment
