"""A trained population: the result and the model of each seed, and the report on all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from attnlab.configs import Config
from attnlab.core.stats import Interval, share_interval
from attnlab.display import Card, displayed
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.experiments.experiment import Problem, ProblemDescription, RunContext
from attnlab.experiments.folder import RunConfig
from attnlab.experiments.registry import RunReader, learnable
from attnlab.experiments.report import Report, describe_run
from attnlab.experiments.words import Words
from attnlab.train.history import Evaluation, History
from attnlab.train.loop import Trained

WORDS = Words(__package__)


@displayed
@dataclass(frozen=True, eq=False)
class Population:
    """Many members of one experiment, trained together, and the report on them.

    Attributes:
        experiment: its name.
        description: what `config.json` holds.
        config: the settings that all share.
        seeds: one for each member.
        history: the course of the training.
        weights: the best weights of each member, stacked: name -> (member, …).
        layout: the name of what held them while they were trained.
        make_report: makes the report when it is first asked for.
        folder: where they are kept; None while they only live in memory.
    """

    experiment: str
    description: RunConfig
    config: Config
    seeds: tuple[int, ...]
    history: History
    weights: Mapping[str, Tensor]
    layout: str
    make_report: Callable[["Population"], Report]
    folder: Path | None = None

    def __len__(self) -> int:
        return len(self.seeds)

    @cached_property
    def solved(self) -> Tensor:
        """Which members solved the problem at each evaluated step: (member, step), boolean.

        A member that stopped early stays as it was; one that diverged solved nothing.
        """
        return solved_at_each_step(self.history, self.problem.is_solved)

    @cached_property
    def solved_at(self) -> tuple[int | None, ...]:
        """For each member the first evaluated step at which it had solved the problem, or None."""
        return tuple(first_steps(self.solved, self.judged_steps))

    @property
    def solved_steps(self) -> list[int]:
        """The first such step of each member that solved the problem."""
        return [step for step in self.solved_at if step is not None]

    @property
    def success(self) -> Interval:
        """The share of members that solved the problem, and its 95 % interval (Wilson)."""
        return share_interval(len(self.solved_steps), len(self))

    @property
    def solved_words(self) -> str:
        """How many members solved the problem, and their share with its interval."""
        return f"{len(self.solved_steps):,} of {len(self):,} solved, {interval_text(self.success)}"

    @property
    def faults(self) -> dict[str, str]:
        """The errors of members whose training diverged, by name."""
        numbers = {}
        for index, fault in enumerate(self.history.faults):
            if fault is not None:
                numbers[self.name(index)] = fault
        return numbers

    @property
    def whole(self) -> list[int]:
        """The indices of the members whose training did not diverge."""
        return [index for index, fault in enumerate(self.history.faults) if fault is None]

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
        best = self.history.best(index)
        if self.history.faults[index] is not None or best is None:
            return None
        return Trained(*best, self.history.lines(index))

    def name(self, index: int) -> str:
        """Return a member's name: its seed."""
        return str(self.seeds[index])

    def index(self, name: int | str) -> int:
        """Return the index of the member with this seed."""
        names = list(map(str, self.seeds))
        if str(name) in names:
            return names.index(str(name))
        if self.seeds == tuple(range(self.seeds[0], self.seeds[-1] + 1)):
            example = f"it has the seeds {self.seeds[0]} to {self.seeds[-1]}"
        else:
            example = did_you_mean(str(name), names)
        raise WrongUsage(f"this population has no member {name!r}; {example}.")

    def problem_of(self, members: Sequence[int]) -> Problem:
        """Make the problem anew for some members, untrained."""
        seeds = [self.seeds[index] for index in members]
        return learnable(self.experiment).problem([self.config] * len(seeds), seeds)

    @cached_property
    def problem(self) -> Problem:
        """The problem that the members learn, made for the first member alone."""
        return self.problem_of([0])

    @property
    def problem_description(self) -> ProblemDescription:
        """What the members learn, and when it counts as solved, in words."""
        return learnable(self.experiment).describe_problem(self.config)

    def model(self, name: int | str) -> nn.Module:
        """Return a member's model, by its seed, with its best weights."""
        return self.model_at(self.index(name))

    def model_at(self, index: int) -> nn.Module:
        """Return the model of the member with this index, with its best weights."""
        model = self.problem_of([index]).members[0].model
        weights = self.weights_of(index)
        for value in weights.values():
            if not torch.isfinite(value).all():
                raise CouldNotRun(
                    f"the weights of seed {self.name(index)} hold NaN or infinity; their file is "
                    "damaged."
                )
        model.load_state_dict(weights)
        settings = self.config.to_mapping()
        vars(model)["reader"] = RunReader(self.experiment, settings, self.folder)
        return model.eval()

    def weights_of(self, index: int) -> dict[str, Tensor]:
        """Return the best weights of the member with this index."""
        return {name: value[index] for name, value in self.weights.items()}

    def member(self, name: int | str) -> Report:
        """Return a member as the report of an ordinary run, by its seed.

        Raises:
            WrongUsage: there is no such member.
            CouldNotRun: its training diverged.
        """
        index = self.index(name)
        trained = self.trained(index)
        if trained is None:
            raise CouldNotRun(
                f"the training of seed {self.name(index)} was no longer finite "
                f"{self.history.faults[index]}."
            )
        model, seed = self.model_at(index), self.seeds[index]
        context = RunContext(seed)
        findings = learnable(self.experiment).conclude(model, trained, self.config, context)
        started = self.description["started"]
        described = describe_run(self.experiment, seed, self.config.to_mapping(), started, model)
        described["versions"] = self.description["versions"]
        described["threads"] = self.description["threads"]
        described["matrix_path"] = self.description["matrix_path"]
        return Report.of(self.experiment, described, findings, trained.metrics)

    @cached_property
    def report(self) -> Report:
        """The report on the whole population: claims, sections, figures."""
        return self.make_report(self)

    @property
    def passed(self) -> bool | None:
        """True if every claim holds, False if one failed, else None: undecided."""
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

    def to_mapping(self) -> dict[str, object]:
        """Return the share of seeds that solved the problem, and when each did, as plain values."""
        names = map(self.name, range(len(self)))
        return {
            "success": dict(zip(("share", "low", "high"), self.success, strict=True)),
            "solved_at": dict(zip(names, self.solved_at, strict=True)),
            "broken": self.faults,
        }

    def __str__(self) -> str:
        words = f"{self.experiment}: {self.solved_words}"
        if self.faults:
            words += f", {len(self.faults)} diverged"
        return words

    def _card(self) -> Card:
        rows = []
        for index, step in enumerate(self.solved_at):
            fault = self.history.faults[index] or ""
            rows.append([self.name(index), "never" if step is None else step, fault])
        facts = []
        if self.folder:
            facts.append(("folder", self.folder))
        return Card(str(self), facts, ("seed", "solved at step", "diverged"), rows)


def interval_text(interval: Interval, form: str = ".1%") -> str:
    """Write a share with its interval."""
    return f"{interval.value:{form}} ({interval.low:{form}} to {interval.high:{form}})"


def solved_at_each_step(history: History, is_solved: Callable[[Evaluation], bool]) -> Tensor:
    """Return which members had solved the problem at each evaluated step, (member, step)."""
    solved = torch.zeros(history.num_members, len(history.judged_steps), dtype=torch.bool)
    for index, evaluations in enumerate(history.evaluations):
        if history.faults[index] is None:
            for step, evaluation in enumerate(evaluations):
                solved[index, step:] = is_solved(evaluation)
    return solved


def first_steps(solved: Tensor, steps: Sequence[int]) -> list[int | None]:
    """Return for each member the first of these steps at which it had solved the problem."""
    firsts = solved.int().argmax(1).tolist()
    members = zip(firsts, solved.any(1).tolist(), strict=True)
    return [steps[first] if has_solved else None for first, has_solved in members]
