"""A unit of work: cells of a grid and seeds that are trained as one population, as a line of JSON.

Every engine calls `compute`, in this process, in another or on another machine, so that the answer
is the same to the bit, as long as processor, compiler and versions are the same.
"""

import itertools
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from attnlab.configs import Fields
from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage
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

    def to_line(self) -> str:
        """Write it as one line."""
        return json.dumps(asdict(self))


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
    members: list[Member]
    layout: str
    versions: Mapping[str, str]
    machine: str
    computed: str = ""
    is_elsewhere: bool = False


def compute(line: str, observer: Observer | None = None) -> str:
    """Train a unit on one thread, from a line to a line; a failure comes back as a line too."""
    unit = Unit(**json.loads(line))
    about = {"unit": unit.number, "versions": versions(), "machine": platform.node()}
    try:
        with computing_as({"threads": 1, "matrix_path": unit.matrix_path}):
            members, layout = _trained(unit, observer)
    except NotFinite as error:  # all members diverged; this is the error of the last one
        pairs = itertools.product(unit.cells, unit.seeds)
        members = [Member(*pair, None, None, None, {}, str(error)) for pair in pairs]
        layout = "none"
    except AttnlabError as error:
        return failure(str(error), is_wrong_usage=isinstance(error, WrongUsage))
    result = {**about, "members": list(map(asdict, members)), "layout": layout}
    return json.dumps(result, allow_nan=False)


def failure(reason: str, *, is_wrong_usage: bool = False) -> str:
    """Return the answer for a unit that could not be trained."""
    return json.dumps({"error": reason, "is_wrong_usage": is_wrong_usage})


def read_answer(line: str) -> Result:
    """Read an answer of `compute`.

    Raises:
        WrongUsage, CouldNotRun: `compute` met this error.
        CouldNotRun: it was computed with other versions.
    """
    result = read_result(line)
    there, here = versions_words(result.versions), versions_words(versions())
    if there != here:
        raise CouldNotRun(
            f"{result.machine} has {there}, this machine {here}: the numbers would not be the "
            "same. Install the same there."
        )
    return result


def read_result(line: str) -> Result:
    """Read an answer of `compute`, computed with any versions."""
    result = json.loads(line)
    if "error" in result:
        if result["is_wrong_usage"]:
            raise WrongUsage(result["error"])
        raise CouldNotRun(result["error"])
    result["members"] = [Member(**member) for member in result["members"]]
    return Result(**result)


def _trained(unit: Unit, observer: Observer | None) -> tuple[list[Member], str]:
    """Train a unit as one population; return its members and how they were laid out."""
    first = unit.fields[0]
    # As texts, since a field may have the name of an argument, such as `seeds`.
    texts = all_shown(first)
    vary = []
    for fields in unit.fields:
        vary.append({name: value for name, value in fields.items() if value != first[name]})
    population = train_population(
        unit.experiment,
        unit.seeds,
        settings=texts,
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
