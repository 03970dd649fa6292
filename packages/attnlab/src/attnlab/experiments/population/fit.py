"""`train_population`: an experiment's model, trained for many seeds at once."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.configs import Config
from attnlab.core.sizes import count_bytes, count_numbers
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.experiment import Problem
from attnlab.experiments.population.population import Population
from attnlab.experiments.population.report import make_report
from attnlab.experiments.population.storage import open_population
from attnlab.experiments.registry import config, learnable
from attnlab.experiments.report import describe_run
from attnlab.experiments.run_config import ManyConfig
from attnlab.experiments.session import Session
from attnlab.memory import free_memory
from attnlab.seeds import stream_seed
from attnlab.train.config import EngineName, LayoutName
from attnlab.train.history import Evaluation
from attnlab.train.loop import Member, TrainResult, train_together
from attnlab.train.observer import Observer, Silent

_TINY = 100_000  # parameters; below, torch's second thread costs more than it gains
_MOST_MEMBERS = 1_000_000
_BYTES_EACH = 400_000  # modules, evaluations and metrics of a model, measured with 1,000 sorters
_COPIES = 10  # of the parameters: model, stack, gradients, moments, best weights, updates


def train_population(
    name: str,
    seeds: Iterable[int] = range(64),
    *,
    out: Path | str | None = None,
    settings: Mapping[str, str] | None = None,
    layout: LayoutName = "auto",
    engine: EngineName = "auto",
    observer: Observer | None = None,
    stop_when_solved: bool = False,
    resume: bool = False,
    **fields: Any,
) -> Population:
    """Train an experiment's model for many seeds at once, each as if alone but for rounding.

    The layouts round differently, and a long training amplifies it: after 15,000 steps of sorting a
    seed has other weights in another layout, while the success rate, the curves and the heads of
    the population are the same within the noise of seeds (benchmarks/README.md, "Engines").

    Args:
        name: such as "sorting".
        seeds: one member for each.
        out: the run folder to make; None keeps the population in memory (`population.save(folder)`
            writes it later).
        settings: config fields as texts, as `--set` gives them.
        layout, engine: how the trainings are computed, see `choose_layout`.
        observer: is told of progress.
        stop_when_solved: whether a member's training ends as soon as it has solved the problem.
        resume: continue the population in `out` that was stopped.
        **fields: config fields as values.

    Returns:
        the `Population`: curves, success with its interval, `member(seed)` for each model.

    Raises:
        WrongUsage: an unknown name or setting, a value out of range, no seeds or a seed twice.
        CouldNotRun: too little memory, the folder exists or cannot be written, or every
            training diverged.

    >>> population = train_population("sorting", range(2), steps=20, evaluate_every=10)
    >>> print(population)
    sorting: 0 of 2 solved, 0.0% (0.0% to 65.8%)
    >>> population.table("accuracy").shape  # (seed, evaluated step)
    torch.Size([2, 2])
    """
    learnable(name)
    numbers = checked_seeds(seeds)
    base = config(name, settings, **fields)
    described: ManyConfig = {"seeds": list(numbers), "stop_when_solved": stop_when_solved}
    with Session("population", name, out, resume=resume, observer=observer) as session:
        describe = partial(
            describe_run,
            name,
            numbers[0],
            base.to_mapping(),
            session.started,
            layout=layout,
            engine=engine,
        )
        session.compute_as_begun({**describe(None), "population": described})
        problem = make_problem(name, [base] * len(numbers), numbers)
        models = [member.model for member in problem.members]
        description = session.open({**describe(models[0]), "population": described})
        result = train_problem(
            problem,
            stop_when_solved=stop_when_solved,
            observer=session.observer,
            folder=session.checkpoints,
            layout=layout,
            engine=engine,
        )
        population = Population(
            experiment=name,
            description=description,
            config=base,
            seeds=numbers,
            history=result.history,
            weights=_stacked_weights(models),
            layout=result.layout,
            make_report=make_report,
            folder=session.path,
        )
        if session.path is None:
            return population
        session.observer.stage("evaluating")
        session.write(population.report)
        return open_population(session.path)


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
    watch = _SolvedCounter(problem, observer or Silent(), stop_when_solved)
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


def _stacked_weights(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Stack the weights of models of one shape: name -> (model, …)."""
    states = [model.state_dict() for model in models]
    stacked = {}
    for name in states[0]:
        stacked[name] = torch.stack([state[name] for state in states])
    return stacked


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


def checked_seeds(seeds: Iterable[int]) -> tuple[int, ...]:
    """Return the seeds, each once, or raise `WrongUsage`."""
    if isinstance(seeds, int | str) or not isinstance(seeds, Iterable):
        raise WrongUsage(
            f"seeds must be a range or a list of integers, such as range(64); got {seeds!r}."
        )
    if isinstance(seeds, range) and len(seeds) > _MOST_MEMBERS:
        raise WrongUsage(
            f"a population has at most {_MOST_MEMBERS:,} members; got {len(seeds):,} seeds."
        )
    numbers = tuple(seeds)
    if not numbers:
        raise WrongUsage("a population needs at least one seed; got none.")
    for seed in numbers:
        stream_seed(seed)
    for seed, times in Counter(numbers).items():
        if times > 1:
            raise WrongUsage(f"the seed {seed} was given twice; each may be given once.")
    return numbers


def _check_memory(member: Member, num_members: int) -> None:
    """Refuse a population that this machine cannot hold."""
    batches = member.draw(0, min(50, member.config.steps))
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
