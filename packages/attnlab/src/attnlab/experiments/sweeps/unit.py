"""A unit of work: cells of a grid and seeds that are trained as one population, and their results.

Every engine calls `Unit.compute`, in this process, in another or on another machine, so that the
answer is the same to the bit, as long as processor, compiler and versions are the same.
"""

import itertools
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attnlab.configs import Config, Fields
from attnlab.errors import AttnlabError, CouldNotRun
from attnlab.experiments.executors import UnitFailure
from attnlab.experiments.population.blocks import first_steps, solved_at_each_step
from attnlab.experiments.population.training import make_problem, train_problem
from attnlab.experiments.registry import find
from attnlab.experiments.report import versions
from attnlab.experiments.session import computing_as
from attnlab.parts.linear import MatrixPath
from attnlab.train.config import LayoutName
from attnlab.train.faults import NotFinite
from attnlab.train.observer import Observer


@dataclass(frozen=True)
class Unit:
    """Cells and seeds that are trained together.

    number: among the units. cells: their indices in the grid. fields: the whole config of each
    cell; they differ only in fields in which members of one population may differ. seeds: of each
    cell. matrix_path: see `use_matrix_path`. layout, stop_when_solved: see `train_population`.
    """

    number: int
    experiment: str
    cells: Sequence[int]
    fields: Sequence[Fields]
    seeds: Sequence[int]
    matrix_path: MatrixPath
    layout: LayoutName = "auto"
    stop_when_solved: bool = False

    @property
    def size(self) -> int:
        """The number of its models."""
        return len(self.cells) * len(self.seeds)

    def compute(self, observer: Observer | None = None) -> "UnitResult | UnitFailure":
        """Train the unit on one thread; return its results, or why it could not be trained."""
        try:
            with computing_as({"threads": 1, "matrix_path": self.matrix_path}):
                members, layout = _trained(self, observer)
        except NotFinite as error:  # all members diverged; this is the error of the last one
            pairs = itertools.product(self.cells, self.seeds)
            members = [ModelResult(*pair, None, None, None, {}, str(error)) for pair in pairs]
            layout = "none"
        except AttnlabError as error:
            return UnitFailure(self.number, error)
        return UnitResult(self.number, members, layout, versions(), platform.node())


@dataclass(frozen=True)
class ModelResult:
    """The result of one model.

    cell: its index in the grid. solved_at: the first evaluated step at which it had solved the
    problem; None for never. best_step: that of the best weights; None if the model diverged. loss:
    the last mean training loss, nats. figures: the evaluation of the best weights. fault: why the
    model diverged, or nothing.
    """

    cell: int
    seed: int
    solved_at: int | None
    best_step: int | None
    loss: float | None
    figures: Mapping[str, float]
    fault: str = ""


@dataclass(frozen=True)
class UnitResult:
    """The results of a unit, and where it was computed.

    computed: where, in words. is_elsewhere: whether in another process than the sweep's own.
    """

    unit: int
    members: Sequence[ModelResult]
    layout: str
    versions: Mapping[str, str]
    machine: str
    computed: str = ""
    is_elsewhere: bool = False


def refuse_other_versions(result: UnitResult) -> None:
    """Raise `CouldNotRun` for a result that was computed with other versions than ours."""
    there, here = versions_words(result.versions), versions_words(versions())
    if there != here:
        raise CouldNotRun(
            f"{result.machine} has {there}, this machine {here}: the numbers would not be the "
            "same. Install the same there."
        )


def _trained(unit: Unit, observer: Observer | None) -> tuple[list[ModelResult], str]:
    """Train a unit as one population; return its members and how they were laid out."""
    config_class = find(unit.experiment).config_class
    configs: list[Config] = []
    for fields in unit.fields:
        configs += [config_class.from_mapping(fields)] * len(unit.seeds)
    problem = make_problem(unit.experiment, configs, list(unit.seeds) * len(unit.cells))
    result = train_problem(
        problem, stop_when_solved=unit.stop_when_solved, layout=unit.layout, observer=observer
    )
    history, members = result.history, []
    solved = solved_at_each_step(history, problem.is_solved)
    steps = first_steps(solved, history.evaluated_steps)
    pairs = itertools.product(unit.cells, unit.seeds)
    for index, (pair, trained) in enumerate(zip(pairs, result.members, strict=True)):
        loss = None
        for line in history.lines(index):
            loss = line.get("loss", loss)
        best_step, figures = None, dict[str, float]()
        if trained is not None:
            best_step, figures = trained.best_step, dict(trained.evaluation.figures)
        fault = history.faults[index] or ""
        members.append(ModelResult(*pair, steps[index], best_step, loss, figures, fault))
    return members, result.layout


def versions_words(versions: Mapping[str, str]) -> str:
    """Name the versions that change the numbers of a unit."""
    return f"attnlab {versions['attnlab']}, torch {versions['torch']}"
