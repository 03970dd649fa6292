"""A trained population: what each seed came to, and each seed's model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.configs import Config
from attnlab.display import Card, displayed
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.experiments.experiment import Goal, Learnable, Lesson, Run, all_claims
from attnlab.experiments.intervals import Interval, share_interval
from attnlab.experiments.report import Report, describe_run
from attnlab.train.history import History
from attnlab.train.loop import Trained

__all__ = ["Place", "Population"]


class Place(NamedTuple):
    """Where a member stands: its seed, and the number of its variant."""

    seed: int
    variant: int


@displayed
@dataclass(frozen=True, eq=False)
class Population:
    """Many members of one experiment, trained together.

    Attributes:
        experiment: its name.
        description: what `config.json` holds.
        variants: the fields in which members differ from the settings, one mapping for each variant; one empty
            mapping where they differ in their seeds alone.
        places: of each member, in order: the seeds of the first variant, then those of the next.
        history: the course of the training.
        weights: the best weights of each member, stacked: name -> (member, …).
        layout: the name of what held them while they were trained.
        config: the settings that all share.
        learnable: the experiment itself.
        folder: where they are kept; None while they only live in memory.
    """

    experiment: str
    description: Mapping[str, Any] = field(repr=False)
    variants: tuple[Mapping[str, Any], ...]
    places: tuple[Place, ...] = field(repr=False)
    history: History = field(repr=False)
    weights: Mapping[str, Tensor] = field(repr=False)
    layout: str
    config: Config = field(repr=False)
    learnable: Learnable = field(repr=False)
    folder: Path | None = None
    _report: Report | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, each once."""
        return tuple(dict.fromkeys(place.seed for place in self.places))

    @cached_property
    def solved_at(self) -> tuple[int | None, ...]:
        """For each member the first judged step at which it could do the task; None where it never could, or broke."""
        is_solved = self.lesson.is_solved
        found: list[int | None] = []
        for fault, judgements in zip(self.history.faults, self.history.judgements, strict=True):
            steps = zip(self.history.judged_steps, judgements, strict=False)
            first = next((step for step, judgement in steps if is_solved(judgement)), None)
            found.append(first if fault is None else None)
        return tuple(found)

    @property
    def success(self) -> Interval:
        """The share of members that can do the task with the weights kept, and its 95 % interval (Wilson)."""
        return share_interval(sum(step is not None for step in self.solved_at), len(self))

    @property
    def faults(self) -> dict[str, str]:
        """Why members broke, by name."""
        faults = self.history.faults
        return {self.name(index): fault for index, fault in enumerate(faults) if fault is not None}

    @property
    def judged_steps(self) -> list[int]:
        """The steps after which the members were judged."""
        return self.history.judged_steps

    def table(self, figure: str) -> Tensor:
        """Return one figure of the judgements: (member, judged step), NaN where a member was no longer judged."""
        known = self.history.figures()
        if figure not in known:
            raise WrongUsage(f"there is no figure {figure!r}; {did_you_mean(figure, known)}")
        return self.history.table(figure).T

    def trained(self, index: int) -> Trained | None:
        """Return what the training left of a member, by its place in the order; None for one that broke."""
        judgements = self.history.judgements[index]
        if self.history.faults[index] is not None or not judgements:
            return None
        best = max(range(len(judgements)), key=lambda at: judgements[at].score)  # the first of equals
        return Trained(self.history.judged_steps[best], judgements[best], self.history.lines(index))

    def name(self, index: int) -> str:
        """Name a member as its folder is named: by its seed, and where there are variants by their number too."""
        seed, variant = self.places[index]
        return str(seed) if len(self.variants) == 1 else f"{variant}-{seed}"

    def index(self, name: int | str) -> int:
        """Return the place in the order of a seed, or of a name."""
        names = [self.name(index) for index in range(len(self))]
        if str(name) in names:
            return names.index(str(name))
        if len(self.variants) > 1:
            example = f"choose a variant first, such as .variant(0), or name both, such as {names[0]!r}"
        elif self.seeds == tuple(range(self.seeds[0], self.seeds[-1] + 1)):
            example = f"it has the seeds {self.seeds[0]} to {self.seeds[-1]}"
        else:
            example = did_you_mean(str(name), names)
        raise WrongUsage(f"this population has no member {name!r}; {example}.")

    def config_of(self, index: int) -> Config:
        """Return a member's config."""
        return replace(self.config, **self.variants[self.places[index].variant])

    def variant(self, number: int) -> "Population":
        """Return the members of one variant as a population of their own."""
        if not 0 <= number < len(self.variants):
            raise WrongUsage(f"there are the variants 0 to {len(self.variants) - 1}; got {number}.")
        chosen = [index for index, place in enumerate(self.places) if place.variant == number]
        return replace(
            self,
            variants=({},),
            places=tuple(Place(self.places[index].seed, 0) for index in chosen),
            history=_history_of(self.history, chosen),
            weights={name: value[chosen] for name, value in self.weights.items()},
            config=replace(self.config, **self.variants[number]),
            folder=None,
            _report=None,
        )

    @cached_property
    def lesson(self) -> Lesson:
        """What the members learn, made for the first of them alone."""
        return self.learnable.lesson([self.config_of(0)], [self.places[0].seed])

    @property
    def goal(self) -> Goal:
        """What the members learn, and when it counts as learned, in words."""
        return self.learnable.goal(self.config_of(0))

    def model(self, name: int | str) -> nn.Module:
        """Return a member's model, by its seed or name, with its best weights."""
        return self.model_at(self.index(name))

    def model_at(self, index: int) -> nn.Module:
        """Return the model of the member at a place in the order."""
        lesson = self.learnable.lesson([self.config_of(index)], [self.places[index].seed])
        model = lesson.members[0].model
        weights = {name: value[index] for name, value in self.weights.items()}
        if not all(bool(torch.isfinite(value).all()) for value in weights.values()):
            raise CouldNotRun(f"the weights of {self._called(index)} hold NaN or infinity; their file is damaged.")
        model.load_state_dict(weights)
        return model.eval()

    def member(self, name: int | str) -> Report:
        """Return a member as the report of an ordinary run, by its seed or name.

        Raises:
            WrongUsage: there is no such member.
            CouldNotRun: its training broke.
        """
        index = self.index(name)
        trained = self.trained(index)
        if trained is None:
            raise CouldNotRun(
                f"the training of {self._called(index)} was no longer finite {self.history.faults[index]}."
            )
        model, config, seed = self.model_at(index), self.config_of(index), self.places[index].seed
        context = Run(seed)
        findings = self.learnable.conclude(model, trained, config, context)
        started = str(self.description["started"])
        described = describe_run(self.experiment, seed, config.to_mapping(), started, model)
        described |= {name: self.description[name] for name in ("versions", "threads", "matrix_path")}
        return Report(
            self.experiment,
            described,
            all_claims(findings, context),
            trained.metrics,
            findings.document,
            None,
            findings.model,
            findings.models,
            findings.files,
        )

    @cached_property
    def report(self) -> Report:
        """What the population shows as a whole: claims, sections, figures."""
        if self._report is not None:
            return self._report
        from attnlab.experiments.population.reporting import make_report  # it shows what this file defines

        return make_report(self)

    @property
    def passed(self) -> bool | None:
        """True where every claim holds, False where one failed, else None: one is undecided."""
        return self.report.passed

    def html(self) -> str:
        """The whole report as one self-contained page."""
        return self.report.html()

    def save(self, folder: Path | str) -> Path:
        """Write everything into a new folder, and return it.

        Raises:
            CouldNotRun: the folder holds something already, or cannot be written.
        """
        return self.report.save(folder)

    def _card(self) -> Card:
        faults = self.history.faults
        rows = [
            [self.name(index), "never" if step is None else step, faults[index] or ""]
            for index, step in enumerate(self.solved_at)
        ]
        return Card(
            str(self), [("folder", self.folder)] if self.folder else [], ("seed", "solved at step", "broke"), rows
        )

    def __str__(self) -> str:
        share, low, high = self.success
        solved = sum(step is not None for step in self.solved_at)
        broken = f", {len(self.faults)} broke" if self.faults else ""
        return f"{self.experiment}: {solved} of {len(self)} solved, {share:.1%} ({low:.1%} to {high:.1%}){broken}"

    def _called(self, index: int) -> str:
        seed, variant = self.places[index]
        return f"seed {seed}" if len(self.variants) == 1 else f"seed {seed} of variant {variant}"


def _history_of(history: History, chosen: Sequence[int]) -> History:
    """Return the course of some members."""
    part = History(len(chosen))
    part.steps, part.judged_steps = history.steps, history.judged_steps
    part.losses, part.norms, part.rates = (
        [line[list(chosen)] for line in lines] for lines in (history.losses, history.norms, history.rates)
    )
    part.judgements = [history.judgements[index] for index in chosen]
    part.ends = [history.ends[index] for index in chosen]
    part.faults = [history.faults[index] for index in chosen]
    return part
