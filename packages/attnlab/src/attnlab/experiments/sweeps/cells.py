"""The grid: a cell for each combination of values, and the units in which cells are trained.

Cells that may be members of one population are trained together. The division into units depends on
the grid alone, never on the engine, so that every engine gives the same numbers.
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attnlab.configs import Config, Fields
from attnlab.errors import WrongUsage
from attnlab.experiments.sweeps.axes import Axis, typed
from attnlab.experiments.sweeps.unit import Unit

_MOST_CELLS = 10_000
_MOST_MEMBERS = 1_000_000
_MEMBERS_OF_A_UNIT = 256  # enough to be quick, few enough that losing a unit costs little


@dataclass(frozen=True)
class Cell:
    """One combination of values.

    fields: those of the axes alone. config: all fields; None for values that cannot be combined,
    and `refusal` says why.
    """

    fields: Fields
    config: Config | None
    refusal: str = ""

    @property
    def name(self) -> str:
        """Its values as a person would type them."""
        return typed(self.fields)


@dataclass(frozen=True)
class Grid:
    """All cells, the last axis moving fastest, and the seeds that each of them is trained with."""

    axes: list[Axis]
    cells: list[Cell]
    seeds: tuple[int, ...]

    @property
    def impossible(self) -> list[Cell]:
        """The cells whose values cannot be combined."""
        return [cell for cell in self.cells if cell.config is None]


def make_grid(
    config_class: type[Config], axes: Sequence[Axis], fixed: Fields, seeds: Sequence[int]
) -> Grid:
    """Make every cell.

    Raises:
        WrongUsage: no axis, too many cells or members, or no cell whose values can be combined.
    """
    if not axes:
        raise WrongUsage(
            "a sweep needs a setting with several values, such as --set rank=1..6 or "
            "temperature=0.3,1,3; many seeds of one setting are trained by: attnlab run NAME "
            "--seeds N."
        )
    num_cells = math.prod(len(axis.values) for axis in axes)
    if num_cells > _MOST_CELLS or num_cells * len(seeds) > _MOST_MEMBERS:
        raise WrongUsage(
            f"{num_cells:,} cells of {len(seeds):,} seeds are too many: at most {_MOST_CELLS:,} "
            f"cells and {_MOST_MEMBERS:,} models in all; take fewer values or seeds."
        )
    names, cells = [axis.name for axis in axes], []
    for values in itertools.product(*(axis.values for axis in axes)):
        fields = dict(zip(names, values, strict=True))
        cells.append(make_cell(config_class, fixed, fields))
    if all(cell.config is None for cell in cells):
        raise WrongUsage(
            f"no combination of these values is possible; for {cells[0].name}: {cells[0].refusal}"
        )
    return Grid(list(axes), cells, tuple(seeds))


def make_cell(config_class: type[Config], fixed: Fields, fields: Fields) -> Cell:
    """Make one cell, with the reason if its values cannot be combined."""
    try:
        return Cell(fields, config_class.from_mapping({**fixed, **fields}))
    except WrongUsage as error:
        return Cell(fields, None, str(error))


def units_of(experiment: str, grid: Grid, varying: frozenset[str], **how: Any) -> list[Unit]:
    """Divide the grid into units, each trained as one population.

    Trials that were proposed together may be equal: these stand in different units, since a
    population has each setting once.
    """
    families: dict[str, dict[int, Fields]] = {}
    repeats: Counter[str] = Counter()
    for index, cell in enumerate(grid.cells):
        if cell.config is not None:
            fields = cell.config.to_mapping()
            common = {name: value for name, value in fields.items() if name not in varying}
            families.setdefault(repr((repeats[repr(fields)], common)), {})[index] = fields
            repeats[repr(fields)] += 1
    seeds_at_once = min(len(grid.seeds), _MEMBERS_OF_A_UNIT)
    units: list[Unit] = []
    for family in families.values():
        for cells in _batched(list(family), _MEMBERS_OF_A_UNIT // seeds_at_once):
            configs = [family[index] for index in cells]
            for seeds in _batched(grid.seeds, seeds_at_once):
                units.append(Unit(len(units), experiment, cells, configs, seeds, **how))
    return units


def _batched(values: Sequence[int], most: int) -> list[list[int]]:
    """Divide values into the fewest groups of at most `most`, all of about the same size."""
    size = math.ceil(len(values) / math.ceil(len(values) / most))
    return [list(values[start : start + size]) for start in range(0, len(values), size)]
