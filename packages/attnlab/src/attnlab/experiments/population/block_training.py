"""Populations of more than 1,000 seeds: blocks of 1,024 that an engine trains, kept as they come.

A block is trained on one thread and depends on its seeds alone, so it has the same bytes wherever
and whenever it is computed. What is whole in the folder is never trained again.
"""

import platform
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

from attnlab.configs import Fields
from attnlab.core.row_files import require_parquet
from attnlab.core.sizes import count_bytes
from attnlab.core.store import check_room, make_folder
from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage, not_none
from attnlab.experiments.executors import (
    Executor,
    ExecutorOptions,
    ModelCounter,
    UnitFailure,
    make_engine,
)
from attnlab.experiments.population.blocks import BLOCKS, MemberBlock, StoredBlocks
from attnlab.experiments.population.training import (
    BLOCK,
    MOST_TOGETHER,
    PopulationPlan,
    block_of,
    make_problem,
    train_problem,
)
from attnlab.experiments.registry import find
from attnlab.experiments.report import versions
from attnlab.experiments.run_config import RunConfig
from attnlab.experiments.session import Session, computing_as
from attnlab.parts.linear import MatrixPath, matrix_path_in_use
from attnlab.train.config import EngineName, LayoutName
from attnlab.train.faults import NotFinite
from attnlab.train.history import History
from attnlab.train.members import Member
from attnlab.train.observer import Observer, SilentObserver
from attnlab.train.schedule import is_evaluated, span_at

_SAMPLE_SECONDS = 10.0  # of an estimate, after the first note


@dataclass(frozen=True)
class BlockWork:
    """A block, to be trained on any machine.

    number: of the block. settings: the whole config. matrix_path, layout, engine: see
    `train_population`. versions: of the machine that asks. checkpoints: a folder; None for none.
    """

    number: int
    experiment: str
    settings: Fields
    seeds: Sequence[int]
    matrix_path: MatrixPath
    versions: Mapping[str, str]
    layout: LayoutName = "auto"
    engine: EngineName = "auto"
    stop_when_solved: bool = False
    checkpoints: Path | None = None

    @property
    def size(self) -> int:
        """The number of its members."""
        return len(self.seeds)

    def compute(self, observer: Observer | None = None) -> dict[str, bytes] | UnitFailure:
        """Train the block on one thread; return its files, or why it could not be trained."""
        try:
            self._refuse_other_versions()
            with computing_as({"threads": 1, "matrix_path": self.matrix_path}):
                return self.train(observer).pack(self.number)
        except AttnlabError as error:
            return UnitFailure(self.number, error)

    def train(self, observer: Observer | None = None) -> MemberBlock:
        """Train the block."""
        config = find(self.experiment).config_class.from_mapping(self.settings)
        problem = make_problem(self.experiment, [config] * self.size, self.seeds)
        try:
            result = train_problem(
                problem,
                stop_when_solved=self.stop_when_solved,
                layout=self.layout,
                observer=observer,
                engine=self.engine,
                folder=self.checkpoints,
            )
        except NotFinite as error:  # of all its members; a last block may have few
            history = History(self.size)
            history.ends, history.faults = [0] * self.size, [str(error)] * self.size
            return block_of(problem, self.seeds, history, "sequential")
        return block_of(problem, self.seeds, result.history, result.layout)

    def _refuse_other_versions(self) -> None:
        for name, here in versions().items():
            if name in ("attnlab", "torch") and here != self.versions[name]:
                raise CouldNotRun(
                    f"{platform.node()} has {name} {here}, the machine that asks "
                    f"{self.versions[name]}: the numbers would not be the same. Install the same "
                    "there."
                )


def train_in_blocks(
    plan: PopulationPlan, session: Session, where: ExecutorOptions
) -> tuple[RunConfig, StoredBlocks]:
    """Train the blocks that the session's folder lacks; return its config, and all blocks.

    Raises:
        WrongUsage: there is no folder, or the engine's options do not go together.
        CouldNotRun: pyarrow is missing, the folder is taken or cannot be written, there is no
            cluster, every training diverged, or some blocks could not be trained; finished ones
            are kept.
    """
    if session.path is None:
        raise WrongUsage(
            f"more than {MOST_TOGETHER:,} seeds are kept in a folder, in blocks of {BLOCK:,}: name "
            "one with out=."
        )
    require_parquet()
    config = plan.describe(session.started, None, threads=1)
    begun = session.begun_as(config)
    where = where.or_of(begun)
    session.enter_context(computing_as(begun or config))
    problem = make_problem(plan.experiment, [plan.config], plan.seeds[:1])
    if begun is None:
        size = len(plan.seeds) * bytes_of_seed(problem.members[0])
        check_room(session.path, size, f"a population of {len(plan.seeds):,} seeds")
    engine = session.enter_context(make_engine(where))
    described = plan.describe(session.started, problem.members[0].model, threads=1)
    described = session.open({**described, "computed_by": asdict(where)})
    make_folder(session.path / BLOCKS)
    blocks = StoredBlocks(session.path, plan.seeds, not_none(plan.block))
    missing = _missing(blocks, session.observer)
    works = [_work_of(plan, described, blocks, number) for number in missing]
    if not engine.is_elsewhere:  # a stopped block goes on from its last checkpoint
        folder = not_none(session.checkpoints)
        works = [replace(work, checkpoints=folder / f"{work.number:05}") for work in works]
    _compute(works, engine, blocks, session.observer, len(plan.seeds))
    return described, blocks


def _missing(blocks: StoredBlocks, observer: Observer) -> list[int]:
    """Return the blocks that are not in the folder, or damaged."""
    missing = []
    for number in range(len(blocks)):
        try:
            if blocks.is_there(number):
                blocks.check(number)
            else:
                missing.append(number)
        except CouldNotRun:
            observer.tell(f"Block {number} is damaged: it is trained again.")
            missing.append(number)
    return missing


def _work_of(
    plan: PopulationPlan, described: RunConfig, blocks: StoredBlocks, number: int
) -> BlockWork:
    return BlockWork(
        number=number,
        experiment=plan.experiment,
        settings=plan.config.to_mapping(),
        seeds=blocks.seeds_of(number),
        matrix_path=cast(MatrixPath, described["matrix_path"]),
        versions=described["versions"],
        layout=plan.layout,
        engine=plan.engine,
        stop_when_solved=plan.stop_when_solved,
    )


def _compute(
    works: Sequence[BlockWork],
    engine: Executor,
    blocks: StoredBlocks,
    observer: Observer,
    total: int,
) -> None:
    """Train blocks on an engine, and write each as it comes."""
    done = total - sum(work.size for work in works)
    observer.stage(engine.words)
    counter, failures = ModelCounter(observer, works, done, total), list[UnitFailure]()
    by_number = {work.number: work for work in works}
    for answer in engine.compute(works, counter):
        if isinstance(answer, UnitFailure):
            failures.append(answer)
            continue
        work = by_number[blocks.write(answer)]
        if work.checkpoints is not None:
            shutil.rmtree(work.checkpoints, ignore_errors=True)
        done += work.size
        counter.finish(done)
    if failures:
        error = failures[0].error
        raise type(error)(
            f"{len(failures):,} of {len(works):,} blocks could not be trained: {error} The "
            "finished ones are kept; --resume does the rest."
        )


@dataclass(frozen=True)
class PopulationRate:
    """How fast a block is trained on one core of this machine.

    seeds: of the block. seconds: that it takes, if every seed takes all its steps. num_bytes: of a
    seed, before compression.
    """

    seeds: int
    seconds: float
    num_bytes: int

    @property
    def per_second(self) -> float:
        """Seeds a second."""
        return self.seeds / self.seconds


def estimate_population(plan: PopulationPlan) -> PopulationRate:
    """Train the first block for ten seconds, or to its end, and measure how fast."""
    seeds = plan.seeds[:BLOCK]
    problem = make_problem(plan.experiment, [plan.config] * len(seeds), seeds)
    watch = _Stopwatch()
    with computing_as({"threads": 1, "matrix_path": matrix_path_in_use()}), suppress(_Enough):
        train_problem(
            problem, stop_when_solved=False, layout=plan.layout, engine=plan.engine, observer=watch
        )
    return PopulationRate(len(seeds), watch.seconds, bytes_of_seed(problem.members[0]))


class _Enough(Exception):
    """The time of an estimate is over."""


class _Stopwatch(SilentObserver):
    """An observer that measures the seconds of a training, and ends it when it knows enough."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._first: tuple[int, float] | None = None  # a step, and when it was done
        self.seconds = 0.0

    def step(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        """Note when a step was done, and extrapolate to the last."""
        now = time.perf_counter()
        first, at = self._first = self._first or (step, now)
        self.seconds = now - self._began
        if step > first:
            self.seconds += (steps - step) * (now - at) / (step - first)
            if now - at > _SAMPLE_SECONDS:
                raise _Enough


def bytes_of_seed(member: Member) -> int:
    """Return how many bytes a member takes in a block, before compression."""
    evaluation, config, steps, number = member.evaluate(member.model.eval()), member.config, 0, 0
    judged = len(evaluation.score) + len(evaluation.figures)
    while steps < config.steps:
        _, steps = span_at(config, steps)
        number += 2 + judged * is_evaluated(config, steps)  # rates are the same in all rows
    return count_bytes(member.model.state_dict().values()) + 8 * number
