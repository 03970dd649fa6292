"""The training of a problem's members together: made where they fit into memory, counted as they
solve it, and returned as one block."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from attnlab.configs import Config
from attnlab.core.sizes import count_bytes, count_numbers
from attnlab.errors import CouldNotRun
from attnlab.experiments.experiment import Problem
from attnlab.experiments.population.blocks import MemberBlock, solved_at_each_step
from attnlab.experiments.registry import learnable
from attnlab.experiments.report import describe_run
from attnlab.experiments.run_config import ManyConfig, RunConfig, seeds_to_config
from attnlab.memory import free_memory
from attnlab.train.config import EngineName, LayoutName
from attnlab.train.history import Evaluation, History
from attnlab.train.loop import Member, TrainResult, train_together
from attnlab.train.observer import Observer, SilentObserver

_TINY = 100_000  # parameters; below, torch's second thread costs more than it gains
_BYTES_EACH = 400_000  # modules, evaluations and metrics of a model, measured with 1,000 sorters
_COPIES = 10  # of the parameters: model, stack, gradients, moments, best weights, updates
MOST_TOGETHER = 1_000
"""The most members of a population that are trained as one; above, they are trained in blocks."""

BLOCK = 1_024
"""Members of a block; the last block may have fewer."""


@dataclass(frozen=True)
class PopulationPlan:
    """A population that is asked for.

    config: the settings that all its members share. layout, engine: how their trainings are
    computed. stop_when_solved: whether a member's training ends when it has solved the problem.
    """

    experiment: str
    config: Config
    seeds: Sequence[int]
    layout: LayoutName = "auto"
    engine: EngineName = "auto"
    stop_when_solved: bool = False

    @property
    def block(self) -> int | None:
        """The members of a block; None where all are trained together."""
        return BLOCK if len(self.seeds) > MOST_TOGETHER else None

    def describe(
        self, started: str, model: nn.Module | None, threads: int | None = None
    ) -> RunConfig:
        """Return what `config.json` holds; without a model, all but its description."""
        described = describe_run(
            self.experiment,
            self.seeds[0],
            self.config.to_mapping(),
            started,
            model,
            threads=threads,
            layout=self.layout,
            engine=self.engine,
        )
        many: ManyConfig = {"seeds": seeds_to_config(self.seeds)}
        many["stop_when_solved"] = self.stop_when_solved
        if self.block is not None:
            many["block"] = self.block
        described["population"] = many
        return described


def make_problem(name: str, configs: Sequence[Config], seeds: Sequence[int]) -> Problem:
    """Make a member for each config and seed, if this machine can hold them.

    The configs differ in fields that the experiment names in `VARYING` alone.
    """
    make = learnable(name).problem
    _check_memory(make(configs[:1], seeds[:1]).members[0], len(configs))
    return make(configs, seeds)


def train_problem(
    problem: Problem,
    *,
    stop_when_solved: bool,
    layout: LayoutName,
    observer: Observer | None = None,
    engine: EngineName = "auto",
    folder: Path | None = None,
) -> TrainResult:
    """Train the members of a problem side by side; arguments as those of `train_together`."""
    watch = _SolvedCounter(problem, observer or SilentObserver(), stop_when_solved)
    num_parameters = count_numbers(problem.members[0].model.parameters())
    return train_together(
        problem.members,
        problem.loss,
        stop=watch.stop,
        observer=watch,
        folder=folder,
        layout=layout,
        engine=engine,
        num_threads=1 if num_parameters <= _TINY else None,
    )


def block_of(problem: Problem, seeds: Sequence[int], history: History, layout: str) -> MemberBlock:
    """Return the trained members of a problem as a block."""
    states = [member.model.state_dict() for member in problem.members]
    weights = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    solved = solved_at_each_step(history, problem.is_solved)
    return MemberBlock(seeds, history, weights, solved, layout)


class _SolvedCounter:
    """An observer that counts the members that solved the problem, and may stop them."""

    def __init__(self, problem: Problem, observer: Observer, stop_when_solved: bool) -> None:
        self._problem, self._observer, self._stops = problem, observer, stop_when_solved
        self.stage, self.tell = observer.stage, observer.tell
        # By the id of the member's list of evaluations, which is the same list all the time.
        self._solved: dict[int, bool] = {}

    def stop(self, evaluations: Sequence[Evaluation]) -> bool:
        new, before = evaluations, self._solved.get(id(evaluations))
        if before is not None:  # after a resumption the first call shows all evaluations so far
            new = evaluations[-1:]
        now = bool(before) or any(map(self._problem.is_solved, new))
        self._solved[id(evaluations)] = now
        if self._stops and now:
            return True
        return self._problem.stop is not None and self._problem.stop(evaluations)

    def step(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        if self._solved:
            share = sum(self._solved.values()) / len(self._problem.members)
            figures = {**figures, "solved": share}
        self._observer.step(step, steps, figures)


def _check_memory(member: Member, num_members: int) -> None:
    """Refuse a population that this machine cannot hold."""
    batches = member.sample(0, min(50, member.config.steps))
    if not isinstance(batches, list):
        batches = [batches]
    data = count_bytes(itertools.chain(*batches))
    weights = count_bytes(member.model.parameters())
    num_bytes = _BYTES_EACH + _COPIES * weights + 2 * data
    free = free_memory()
    if free is not None and num_members * num_bytes > free:
        raise CouldNotRun(
            f"{num_members:,} members of this model need about "
            f"{num_members * num_bytes / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free here: "
            f"train at most {max(1, int(free / num_bytes)):,} at a time, the next ones in a run of "
            "their own."
        )
