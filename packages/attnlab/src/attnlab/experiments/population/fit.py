"""`train_population`: an experiment's model, trained for many seeds at once."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

from attnlab.errors import WrongUsage
from attnlab.experiments.executors import EngineKind, ExecutorOptions
from attnlab.experiments.population.block_training import train_in_blocks
from attnlab.experiments.population.blocks import MemoryBlocks, StoredBlocks
from attnlab.experiments.population.population import Population
from attnlab.experiments.population.report import make_report
from attnlab.experiments.population.storage import open_population
from attnlab.experiments.population.training import (
    MOST_TOGETHER,
    PopulationPlan,
    block_of,
    make_problem,
    train_problem,
)
from attnlab.experiments.registry import config, learnable
from attnlab.experiments.run_config import RunConfig
from attnlab.experiments.session import Session
from attnlab.seeds import stream_seed
from attnlab.train.config import EngineName, LayoutName
from attnlab.train.faults import NotFinite
from attnlab.train.observer import Observer

_MOST_MEMBERS = 1_000_000


def train_population(
    name: str,
    seeds: Iterable[int] = range(64),
    *,
    out: Path | str | None = None,
    settings: Mapping[str, str] | None = None,
    layout: LayoutName = "auto",
    engine: EngineName | EngineKind = "auto",
    workers: int | None = None,
    address: str | None = None,
    observer: Observer | None = None,
    stop_when_solved: bool = False,
    resume: bool = False,
    **fields: Any,
) -> Population:
    """Train an experiment's model for many seeds at once, each as if alone but for rounding.

    More than 1,000 seeds are trained and kept in blocks of 1,024, each on one thread: see
    `Population.blocks`.

    The layouts round differently, and a long training amplifies it: after 15,000 steps of sorting a
    seed has other weights in another layout, while the success rate, the curves and the heads of
    the population are the same within the noise of seeds (benchmarks/README.md, "Engines").

    Args:
        name: such as "sorting".
        seeds: one member for each.
        out: the run folder to make; None keeps up to 1,000 members in memory
            (`population.save(folder)` writes them later).
        settings: config fields as texts, as `--set` gives them.
        layout, engine: how the trainings are computed, see `choose_layout`. Of blocks, the engine
            may also be where: "local", "ray" for a Ray cluster at `address`, or "slurm"; a
            population that is resumed is computed where it was before.
        workers: processes on this machine that share the blocks.
        observer: is told of progress.
        stop_when_solved: whether a member's training ends as soon as it has solved the problem.
        resume: continue the population in `out` that was stopped.
        **fields: config fields as values.

    Returns:
        the `Population`: curves, success with its interval, `member(seed)` for each model.

    Raises:
        WrongUsage: an unknown name or setting, a value out of range, no seeds or a seed twice;
            workers or an address without blocks, or blocks without `out`.
        CouldNotRun: too little memory, the folder exists or cannot be written, every training
            diverged, or some blocks could not be trained; finished ones are kept, and `resume` does
            the rest.

    >>> population = train_population("sorting", range(2), steps=20, evaluate_every=10)
    >>> print(population)
    sorting: 0 of 2 solved, 0.0% (0.0% to 65.8%)
    >>> population.table("accuracy").shape  # (seed, evaluated step)
    torch.Size([2, 2])
    """
    where, way = ExecutorOptions(num_workers=workers, address=address), engine
    if engine in get_args(EngineKind):
        where, way = replace(where, kind=engine), "auto"
    plan = plan_population(
        name,
        seeds,
        settings,
        layout=layout,
        engine=cast(EngineName, way),
        stop_when_solved=stop_when_solved,
        **fields,
    )
    if plan.block is None and where != ExecutorOptions():
        raise WrongUsage(
            f"an engine, workers and an address share the blocks of more than {MOST_TOGETHER:,} "
            f"seeds; got {len(plan.seeds):,}, which are trained together."
        )
    with Session("population", name, out, resume=resume, observer=observer) as session:
        blocks: MemoryBlocks | StoredBlocks
        if plan.block is None:
            described, blocks = _train_together(plan, session)
        else:
            described, blocks = train_in_blocks(plan, session, where)
        population = Population(
            experiment=name,
            description=described,
            config=plan.config,
            seeds=plan.seeds,
            blocks=blocks,
            make_report=make_report,
            folder=session.path,
        )
        if not population.whole:
            raise NotFinite(
                f"no training is finite: {next(iter(population.faults.values()))}. Try a smaller "
                "learning_rate."
            )
        if session.path is None:
            return population
        session.observer.stage("evaluating")
        session.write(population.report)
        return open_population(session.path)


def plan_population(
    name: str,
    seeds: Iterable[int],
    settings: Mapping[str, str] | None = None,
    *,
    layout: LayoutName = "auto",
    engine: EngineName = "auto",
    stop_when_solved: bool = False,
    **fields: Any,
) -> PopulationPlan:
    """Check what is asked for; arguments as those of `train_population`."""
    learnable(name)
    numbers, base = checked_seeds(seeds), config(name, settings, **fields)
    return PopulationPlan(name, base, numbers, layout, engine, stop_when_solved)


def _train_together(plan: PopulationPlan, session: Session) -> tuple[RunConfig, MemoryBlocks]:
    """Train all members as one program."""
    session.compute_as_begun(plan.describe(session.started, None))
    problem = make_problem(plan.experiment, [plan.config] * len(plan.seeds), plan.seeds)
    described = session.open(plan.describe(session.started, problem.members[0].model))
    result = train_problem(
        problem,
        stop_when_solved=plan.stop_when_solved,
        observer=session.observer,
        folder=session.checkpoints,
        layout=plan.layout,
        engine=plan.engine,
    )
    return described, MemoryBlocks(block_of(problem, plan.seeds, result.history, result.layout))


def checked_seeds(seeds: Iterable[int]) -> Sequence[int]:
    """Return the seeds, each once, or raise `WrongUsage`; many in a row stay a range."""
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
    in_a_row = range(numbers[0], numbers[0] + len(numbers))
    if len(numbers) > MOST_TOGETHER and numbers == tuple(in_a_row):
        return in_a_row
    return numbers
