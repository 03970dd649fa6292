"""A unit of work: cells of a grid and seeds that are trained as one population, and their results.

Every engine calls `compute`, in this process, in another or on another machine, so that the answer
is the same to the bit, as long as processor, compiler and versions are the same.
"""

import itertools
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attnlab.configs import Fields
from attnlab.errors import AttnlabError, CouldNotRun
from attnlab.experiments.population.fit import train_population
from attnlab.experiments.population.population import Population
from attnlab.experiments.registry import computing_as
from attnlab.experiments.report import versions
from attnlab.experiments.sweeps.axes import all_shown
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


@dataclass(frozen=True)
class Member:
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
class Result:
    """The results of a unit, and where it was computed.

    computed: where, in words. is_elsewhere: whether in another process than the sweep's own.
    """

    unit: int
    members: Sequence[Member]
    layout: str
    versions: Mapping[str, str]
    machine: str
    computed: str = ""
    is_elsewhere: bool = False


@dataclass(frozen=True)
class Failure:
    """Why a unit, by its number, could not be trained."""

    unit: int
    error: AttnlabError


def compute(unit: Unit, observer: Observer | None = None) -> Result | Failure:
    """Train a unit on one thread; return its results, or why it could not be trained."""
    try:
        with computing_as({"threads": 1, "matrix_path": unit.matrix_path}):
            members, layout = _trained(unit, observer)
    except NotFinite as error:  # all members diverged; this is the error of the last one
        pairs = itertools.product(unit.cells, unit.seeds)
        members = [Member(*pair, None, None, None, {}, str(error)) for pair in pairs]
        layout = "none"
    except AttnlabError as error:
        return Failure(unit.number, error)
    return Result(unit.number, members, layout, versions(), platform.node())


def refuse_other_versions(result: Result) -> None:
    """Raise `CouldNotRun` for a result that was computed with other versions than ours."""
    there, here = versions_words(result.versions), versions_words(versions())
    if there != here:
        raise CouldNotRun(
            f"{result.machine} has {there}, this machine {here}: the numbers would not be the "
            "same. Install the same there."
        )


def _trained(unit: Unit, observer: Observer | None) -> tuple[list[Member], str]:
    """Train a unit as one population; return its members and how they were laid out."""
    first = unit.fields[0]
    vary = []
    for fields in unit.fields:
        vary.append({name: value for name, value in fields.items() if value != first[name]})
    population = train_population(
        unit.experiment,
        unit.seeds,
        # As texts, since a field may have the name of an argument, such as `seeds`.
        settings=all_shown(first),
        layout=unit.layout,
        observer=observer,
        vary=vary,
        stop_when_solved=unit.stop_when_solved,
    )
    members = [_member(unit, population, index) for index in range(len(population))]
    return members, population.layout


def _member(unit: Unit, population: Population, index: int) -> Member:
    seed, variant = population.member_ids[index]
    loss = None
    for line in population.history.lines(index):
        loss = line.get("loss", loss)
    best_step, figures = None, dict[str, float]()
    trained = population.trained(index)
    if trained is not None:
        best_step, figures = trained.best_step, dict(trained.evaluation.figures)
    fault = population.history.faults[index] or ""
    solved_at = population.solved_at[index]
    return Member(unit.cells[variant], seed, solved_at, best_step, loss, figures, fault)


def versions_words(versions: Mapping[str, str]) -> str:
    """Name the versions that change the numbers of a unit."""
    return f"attnlab {versions['attnlab']}, torch {versions['torch']}"
