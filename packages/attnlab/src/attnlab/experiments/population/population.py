"""A trained population: the result and the model of each seed, and the report on all of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor, nn

from attnlab.configs import Config
from attnlab.core.stats import Interval, share_interval
from attnlab.display import Card, displayed
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.experiments.experiment import Problem, ProblemDescription, RunContext
from attnlab.experiments.folder import RunConfig
from attnlab.experiments.population.blocks import (
    MemberBlock,
    MemoryBlocks,
    StoredBlocks,
    first_steps,
    padded,
)
from attnlab.experiments.registry import RunReader, learnable
from attnlab.experiments.report import Report, describe_run
from attnlab.experiments.words import Words
from attnlab.train.history import History
from attnlab.train.loop import Trained

WORDS = Words(__package__)

_MOST_NUMBERS = 2**24  # that are read at once


@displayed
@dataclass(frozen=True, eq=False)
class Population:
    """Many members of one experiment, trained together, and the report on them.

    Attributes:
        experiment: its name.
        description: what `config.json` holds.
        config: the settings that all share.
        seeds: one for each member.
        blocks: their results and best weights: one block in memory, or those of `folder`.
        make_report: makes the report when it is first asked for.
        folder: where they are kept; None while they only live in memory.
    """

    experiment: str
    description: RunConfig
    config: Config
    seeds: Sequence[int]
    blocks: MemoryBlocks | StoredBlocks
    make_report: Callable[["Population"], Report]
    folder: Path | None = None

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def history(self) -> History:
        """The course of the training.

        Raises:
            WrongUsage: there are several blocks, each with its own.
        """
        return self._only_block.history

    @property
    def weights(self) -> Mapping[str, Tensor]:
        """The best weights of each member, stacked: name -> (member, …).

        Raises:
            WrongUsage: there are several blocks, each with its own.
        """
        return self._only_block.weights

    @property
    def _only_block(self) -> MemberBlock:
        if len(self.blocks) > 1:
            raise WrongUsage(
                f"this population is kept in {len(self.blocks):,} blocks: ask one of them, such as "
                "population.blocks[0], or all members with population.by_step(name)."
            )
        return self.blocks[0]

    @cached_property
    def solved(self) -> Tensor:
        """Which members had solved the problem at each evaluated step: (member, step), boolean.

        A member that stopped early stays as it was; one that diverged solved nothing.
        """
        number = len(self.evaluated_steps)
        rows = [padded(part, number) for part in self.blocks.column("solved_by_step")]
        return torch.cat(rows).bool()

    @cached_property
    def solved_at(self) -> tuple[int | None, ...]:
        """For each member the first evaluated step at which it had solved the problem, or None."""
        return tuple(first_steps(self.solved, self.evaluated_steps))

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

    @cached_property
    def faults(self) -> dict[str, str]:
        """The errors of members whose training diverged, by name."""
        every = enumerate(chain.from_iterable(self.blocks.column("diverged")))
        return {self.name(index): str(fault) for index, fault in every if fault}

    @property
    def whole(self) -> list[int]:
        """The indices of the members whose training did not diverge."""
        return [index for index in range(len(self)) if self.name(index) not in self.faults]

    @property
    def steps(self) -> list[int]:
        """The steps at which the loss was noted."""
        return list(self.blocks.facts["steps"])

    @property
    def evaluated_steps(self) -> list[int]:
        """The steps after which the members were evaluated."""
        return list(self.blocks.facts["evaluated_steps"])

    @property
    def figures(self) -> list[str]:
        """The names of the figures of the evaluations."""
        return list(self.blocks.facts["figures"])

    @property
    def layout(self) -> str:
        """The name of what held the members while they were trained."""
        return str(self.blocks.facts["layout"])

    def by_step(self, name: str) -> Iterator[tuple[int, Tensor]]:
        """Yield a number of every member step by step: (step, (member,)), NaN after a member's end.

        It reads some steps at a time, so that a million members fit into memory.

        Args:
            name: loss, gradient_norm, learning_rate, or one of `figures`.

        Raises:
            WrongUsage: there is no such number.
            CouldNotRun: a block is missing or damaged.
        """
        known = dict.fromkeys(("loss", "gradient_norm", "learning_rate"), self.steps)
        known |= dict.fromkeys(self.figures, self.evaluated_steps)
        if name not in known:
            raise WrongUsage(f"there is no figure {name!r}; {did_you_mean(name, known)}")
        steps = known[name]
        number = max(1, _MOST_NUMBERS // len(self))
        for first in range(0, len(steps), number):
            some = steps[first : first + number]
            parts = []
            for part in self.blocks.column(f"{name}_by_step"):
                parts.append(padded(part, len(steps))[:, first : first + number].clone())
            yield from zip(some, torch.cat(parts).unbind(1), strict=True)

    def table(self, figure: str) -> Tensor:
        """Return one figure of the evaluations, (member, evaluated step); NaN for missing ones."""
        return torch.stack([values for _, values in self.by_step(figure)], 1)

    def trained(self, index: int) -> Trained | None:
        """Return the training result of a member by its index; None if it diverged."""
        block, row = divmod(index, self.blocks.size)
        history = self.blocks[block].history
        best = history.best(row)
        if history.faults[row] is not None or best is None:
            return None
        return Trained(*best, history.lines(row))

    def name(self, index: int) -> str:
        """Return a member's name: its seed."""
        return str(self.seeds[index])

    def index(self, name: int | str) -> int:
        """Return the index of the member with this seed, or with this address: "3/17" is the row 17
        of block 3, both counted from 0."""
        words, seeds = str(name), self.seeds
        if words.isdecimal() and str(int(words)) == words and int(words) in seeds:
            return seeds.index(int(words))
        block, _, row = words.partition("/")
        if block.isdecimal() and row.isdecimal() and int(row) < self.blocks.size:
            index = int(block) * self.blocks.size + int(row)
            if index < len(seeds):
                return index
        if list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
            example = f"it has the seeds {seeds[0]} to {seeds[-1]}"
        else:
            example = did_you_mean(words, list(map(str, seeds)))
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
        block, row = divmod(index, self.blocks.size)
        return {name: value[row] for name, value in self.blocks[block].weights.items()}

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
                f"{self.faults[self.name(index)]}."
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
            WrongUsage: the population is kept in blocks.
            CouldNotRun: the folder holds something already, or cannot be written.
        """
        if isinstance(self.blocks, StoredBlocks):
            raise WrongUsage(f"this population is in {self.folder} already: copy that folder.")
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
            name = self.name(index)
            rows.append([name, "never" if step is None else step, self.faults.get(name, "")])
        facts = []
        if self.folder:
            facts.append(("folder", self.folder))
        return Card(str(self), facts, ("seed", "solved at step", "diverged"), rows)


def interval_text(interval: Interval, form: str = ".1%") -> str:
    """Write a share with its interval."""
    return f"{interval.value:{form}} ({interval.low:{form}} to {interval.high:{form}})"
