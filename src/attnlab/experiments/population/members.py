"""The members of a trained population: the result and the model of each seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from attnlab.configs import Config, Fields
from attnlab.core.stats import Interval, share_interval
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.experiments.experiment import Learnable, Problem, ProblemDescription, Run, all_claims
from attnlab.experiments.report import Report, describe_run
from attnlab.train.history import History
from attnlab.train.loop import Trained


class MemberId(NamedTuple):
    """The seed of a member, and the number of its variant."""

    seed: int
    variant: int


@dataclass(frozen=True, eq=False)
class TrainedMembers:
    """Many members of one experiment, trained together.

    Attributes:
        experiment: its name.
        description: what `config.json` holds.
        variants: the fields in which members differ from the settings, one mapping for each
            variant; one empty mapping where they differ in their seeds alone.
        member_ids: in order: the seeds of the first variant, then those of the next.
        history: the course of the training.
        weights: the best weights of each member, stacked: name -> (member, …).
        layout: the name of what held them while they were trained.
        config: the settings that all share.
        learnable: the experiment itself.
        folder: where they are kept; None while they only live in memory.
    """

    experiment: str
    description: Mapping[str, Any] = field(repr=False)
    variants: tuple[Fields, ...]
    member_ids: tuple[MemberId, ...] = field(repr=False)
    history: History = field(repr=False)
    weights: Mapping[str, Tensor] = field(repr=False)
    layout: str
    config: Config = field(repr=False)
    learnable: Learnable = field(repr=False)
    folder: Path | None = None
    _report: Report | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.member_ids)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, each once."""
        return tuple(dict.fromkeys(place.seed for place in self.member_ids))

    @cached_property
    def solved_at(self) -> tuple[int | None, ...]:
        """For each member the first evaluated step at which it had solved the problem, or None."""
        is_solved = self.problem.is_solved
        found: list[int | None] = []
        for fault, evaluations in zip(self.history.faults, self.history.evaluations, strict=True):
            steps = zip(self.history.judged_steps, evaluations, strict=False)
            first = next((step for step, evaluation in steps if is_solved(evaluation)), None)
            found.append(first if fault is None else None)
        return tuple(found)

    @property
    def success(self) -> Interval:
        """The share of members that solved the problem, and its 95 % interval (Wilson)."""
        return share_interval(sum(step is not None for step in self.solved_at), len(self))

    @property
    def faults(self) -> dict[str, str]:
        """The errors of members whose training diverged, by name."""
        faults = self.history.faults
        return {self.name(index): fault for index, fault in enumerate(faults) if fault is not None}

    @property
    def judged_steps(self) -> list[int]:
        """The steps after which the members were evaluated."""
        return self.history.judged_steps

    def table(self, figure: str) -> Tensor:
        """Return one figure of the evaluations, (member, evaluated step); NaN for missing ones."""
        known = self.history.figures()
        if figure not in known:
            raise WrongUsage(f"there is no figure {figure!r}; {did_you_mean(figure, known)}")
        return self.history.table(figure).T

    def trained(self, index: int) -> Trained | None:
        """Return the training result of a member by its index; None if it diverged."""
        evaluations = self.history.evaluations[index]
        if self.history.faults[index] is not None or not evaluations:
            return None
        # Of equal scores, max takes the first.
        best = max(range(len(evaluations)), key=lambda at: evaluations[at].score)
        return Trained(
            self.history.judged_steps[best], evaluations[best], self.history.lines(index)
        )

    def name(self, index: int) -> str:
        """Return a member's name: its seed, or variant and seed if there are several variants."""
        seed, variant = self.member_ids[index]
        return str(seed) if len(self.variants) == 1 else f"{variant}-{seed}"

    def index(self, name: int | str) -> int:
        """Return the index of the member with this seed or name."""
        names = [self.name(index) for index in range(len(self))]
        if str(name) in names:
            return names.index(str(name))
        if len(self.variants) > 1:
            example = f"choose a variant first: .variant(0), or name both, such as {names[0]!r}"
        elif self.seeds == tuple(range(self.seeds[0], self.seeds[-1] + 1)):
            example = f"it has the seeds {self.seeds[0]} to {self.seeds[-1]}"
        else:
            example = did_you_mean(str(name), names)
        raise WrongUsage(f"this population has no member {name!r}; {example}.")

    def config_of(self, index: int) -> Config:
        """Return a member's config."""
        return replace(self.config, **self.variants[self.member_ids[index].variant])

    def variant(self, number: int) -> Self:
        """Return the members of one variant as a population of their own."""
        if not 0 <= number < len(self.variants):
            raise WrongUsage(f"there are the variants 0 to {len(self.variants) - 1}; got {number}.")
        chosen = [index for index, place in enumerate(self.member_ids) if place.variant == number]
        return replace(
            self,
            variants=({},),
            member_ids=tuple(MemberId(self.member_ids[index].seed, 0) for index in chosen),
            history=_history_of(self.history, chosen),
            weights={name: value[chosen] for name, value in self.weights.items()},
            config=replace(self.config, **self.variants[number]),
            folder=None,
            _report=None,
        )

    @cached_property
    def problem(self) -> Problem:
        """The problem that the members learn, made for the first member alone."""
        return self.learnable.problem([self.config_of(0)], [self.member_ids[0].seed])

    @property
    def problem_description(self) -> ProblemDescription:
        """What the members learn, and when it counts as solved, in words."""
        return self.learnable.describe_problem(self.config_of(0))

    def model(self, name: int | str) -> nn.Module:
        """Return a member's model, by its seed or name, with its best weights."""
        return self.model_at(self.index(name))

    def model_at(self, index: int) -> nn.Module:
        """Return the model of the member with this index, with its best weights."""
        problem = self.learnable.problem([self.config_of(index)], [self.member_ids[index].seed])
        model = problem.members[0].model
        weights = {name: value[index] for name, value in self.weights.items()}
        if not all(bool(torch.isfinite(value).all()) for value in weights.values()):
            raise CouldNotRun(
                f"the weights of {self._called(index)} hold NaN or infinity; their file is damaged."
            )
        model.load_state_dict(weights)
        return model.eval()

    def member(self, name: int | str) -> Report:
        """Return a member as the report of an ordinary run, by its seed or name.

        Raises:
            WrongUsage: there is no such member.
            CouldNotRun: its training diverged.
        """
        index = self.index(name)
        trained = self.trained(index)
        if trained is None:
            raise CouldNotRun(
                f"the training of {self._called(index)} was no longer finite "
                f"{self.history.faults[index]}."
            )
        model, config = self.model_at(index), self.config_of(index)
        seed = self.member_ids[index].seed
        context = Run(seed)
        findings = self.learnable.conclude(model, trained, config, context)
        started = str(self.description["started"])
        described = describe_run(self.experiment, seed, config.to_mapping(), started, model)
        described |= {
            name: self.description[name] for name in ("versions", "threads", "matrix_path")
        }
        claims = all_claims(findings, context)
        return Report.of(self.experiment, described, findings, claims, trained.metrics)

    def __str__(self) -> str:
        share, low, high = self.success
        solved = sum(step is not None for step in self.solved_at)
        broken = f", {len(self.faults)} diverged" if self.faults else ""
        return (
            f"{self.experiment}: {solved} of {len(self)} solved, {share:.1%} ({low:.1%} to "
            f"{high:.1%}){broken}"
        )

    def _called(self, index: int) -> str:
        seed, variant = self.member_ids[index]
        return f"seed {seed}" if len(self.variants) == 1 else f"seed {seed} of variant {variant}"


def _history_of(history: History, chosen: Sequence[int]) -> History:
    """Return the history of some members."""
    part = History(len(chosen))
    part.steps, part.judged_steps = history.steps, history.judged_steps
    part.losses, part.norms, part.rates = (
        [line[list(chosen)] for line in lines]
        for lines in (history.losses, history.norms, history.rates)
    )
    part.evaluations = [history.evaluations[index] for index in chosen]
    part.ends = [history.ends[index] for index in chosen]
    part.faults = [history.faults[index] for index in chosen]
    return part
