"""A unit of work: some cells of a grid, each trained with some seeds, as one population. It travels as a line of JSON.

Whoever computes it, in this process, in another or on another machine, goes through `compute`, so that the line that
comes back is the same everywhere, to the bit, as long as processor, compiler and versions are the same.
"""

import json
import platform
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage
from attnlab.experiments.population.training import train_population
from attnlab.experiments.registry import computing_as
from attnlab.experiments.report import versions
from attnlab.experiments.sweeps.axes import shown
from attnlab.parts.linear import MatrixPath
from attnlab.train.config import LayoutName
from attnlab.train.faults import NotFinite
from attnlab.train.observer import Observer

__all__ = ["Member", "Result", "Unit", "compute", "failure", "read_answer", "read_result"]


class Unit(NamedTuple):
    """What is trained together.

    number: among the units. cells: their places in the grid. fields: every cell's config, all of it; they differ only
    in what members of one population may differ in. seeds: of each cell. matrix_path: see `use_matrix_path`. layout,
    stop_when_solved: see `train_population`.
    """

    number: int
    experiment: str
    cells: Sequence[int]
    fields: Sequence[Mapping[str, Any]]
    seeds: Sequence[int]
    matrix_path: MatrixPath
    layout: LayoutName = "auto"
    stop_when_solved: bool = False

    def to_line(self) -> str:
        """Write it as one line."""
        return json.dumps(self._asdict())


class Member(NamedTuple):
    """What one model came to.

    cell: its place in the grid. solved_at: the first judged step at which it could do the task; None for never.
    best_step: of the weights kept; None for a model that broke. loss: the last mean training loss, nats. figures: of
    the judgement of the weights kept. fault: why it broke, or nothing.
    """

    cell: int
    seed: int
    solved_at: int | None
    best_step: int | None
    loss: float | None
    figures: Mapping[str, float]
    fault: str = ""


class Result(NamedTuple):
    """What a unit came to, and where: `computed` in words, `is_elsewhere` for a process that is not the sweep's own."""

    unit: int
    members: list[Member]
    layout: str
    versions: Mapping[str, str]
    machine: str
    computed: str = ""
    is_elsewhere: bool = False


def compute(line: str, observer: Observer | None = None) -> str:
    """Train a unit on one thread, a line in, a line out; what cannot be trained is told in the line that comes back."""
    unit = Unit(**json.loads(line))
    about = {"unit": unit.number, "versions": versions(), "machine": platform.node()}
    try:
        with computing_as({"threads": 1, "matrix_path": unit.matrix_path}):
            found = _trained(unit, observer)
    except NotFinite as error:
        found = _all_broken(unit, str(error))
    except AttnlabError as error:
        return failure(str(error), is_wrong_usage=isinstance(error, WrongUsage))
    return json.dumps({**about, **found}, allow_nan=False)


def failure(reason: str, *, is_wrong_usage: bool = False) -> str:
    """Return the line that comes back for a unit that could not be trained."""
    return json.dumps({"error": reason, "is_wrong_usage": is_wrong_usage})


def read_answer(line: str) -> Result:
    """Read what `compute` returned, wherever that was.

    Raises:
        WrongUsage, CouldNotRun: what `compute` met with.
        CouldNotRun: it was computed with other versions.
    """
    result = read_result(line)
    there, here = (_words(each) for each in (result.versions, versions()))
    if there != here:
        raise CouldNotRun(
            f"{result.machine} has {there}, this machine {here}: the numbers would not be the same. "
            "Install the same there."
        )
    return result


def read_result(line: str) -> Result:
    """Read what `compute` returned once, here or elsewhere, with whatever versions."""
    found = json.loads(line)
    if "error" in found:
        raise (WrongUsage if found["is_wrong_usage"] else CouldNotRun)(found["error"])
    return Result(**{**found, "members": [Member(**each) for each in found["members"]]})


def _trained(unit: Unit, observer: Observer | None) -> dict[str, Any]:
    first = unit.fields[0]
    texts = {name: shown(value) for name, value in first.items()}  # a field may be called as an argument is, `seeds`
    population = train_population(
        unit.experiment,
        unit.seeds,
        settings=texts,
        layout=unit.layout,
        observer=observer,
        vary=[{name: value for name, value in each.items() if value != first[name]} for each in unit.fields],
        stop_when_solved=unit.stop_when_solved,
    )
    members = []
    for index, place in enumerate(population.places):
        trained = population.trained(index)
        losses = [line["loss"] for line in population.history.lines(index) if "loss" in line]
        member = Member(
            cell=unit.cells[place.variant],
            seed=place.seed,
            solved_at=population.solved_at[index],
            best_step=None if trained is None else trained.best_step,
            loss=losses[-1] if losses else None,
            figures={} if trained is None else dict(trained.judgement.figures),
            fault=population.history.faults[index] or "",
        )
        members.append(member._asdict())
    return {"members": members, "layout": population.layout}


def _all_broken(unit: Unit, reason: str) -> dict[str, Any]:
    """Of a population of which nobody is left nothing is known but why the last one broke."""
    places = [(cell, seed) for cell in unit.cells for seed in unit.seeds]
    return {"members": [Member(*place, None, None, None, {}, reason)._asdict() for place in places], "layout": "none"}


def _words(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {versions[name]}" for name in ("attnlab", "torch"))
