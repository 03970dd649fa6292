"""The cells of a grid, one for each combination of values, and the units in which they are trained.

Cells that may be members of one population are trained together. The division into units depends on
the cells alone, never on the engine, so that every engine gives the same numbers.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attnlab.configs import Config, Fields
from attnlab.errors import WrongUsage
from attnlab.experiments.sweeps.axes import Axis, typed_fields

_MAX_CELLS = 10_000
_MAX_MEMBERS = 1_000_000
_UNIT_MEMBERS = 256  # enough to be quick, few enough that losing a unit costs little


@dataclass(frozen=True)
class SweepCell:
    """One combination of values.

    fields: those of the axes alone. config: all fields; None for values that cannot be combined.
    refusal: why nothing can be trained, or nothing.
    """

    fields: Fields
    config: Config | None
    refusal: str = ""

    @property
    def name(self) -> str:
        """Its values as a person would type them."""
        return typed_fields(self.fields)


def make_grid(
    config_class: type[Config], axes: Sequence[Axis], fixed: Fields, num_seeds: int
) -> list[SweepCell]:
    """Make every cell, the last axis moving fastest.

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
    if num_cells > _MAX_CELLS or num_cells * num_seeds > _MAX_MEMBERS:
        raise WrongUsage(
            f"{num_cells:,} cells of {num_seeds:,} seeds are too many: at most {_MAX_CELLS:,} "
            f"cells and {_MAX_MEMBERS:,} models in all; take fewer values or seeds."
        )
    names, cells = [axis.name for axis in axes], []
    for values in itertools.product(*(axis.values for axis in axes)):
        fields = dict(zip(names, values, strict=True))
        cells.append(make_cell(config_class, fixed, fields))
    if all(cell.config is None for cell in cells):
        raise WrongUsage(
            f"no combination of these values is possible; for {cells[0].name}: {cells[0].refusal}"
        )
    return cells


def make_cell(config_class: type[Config], fixed: Fields, fields: Fields) -> SweepCell:
    """Make one cell, with the reason if its values cannot be combined."""
    try:
        return SweepCell(fields, config_class.from_mapping({**fixed, **fields}))
    except WrongUsage as error:
        return SweepCell(fields, None, str(error))


def divide(
    cells: Sequence[SweepCell], seeds: Sequence[int], varying: frozenset[str]
) -> Iterator[tuple[list[int], Sequence[int]]]:
    """Divide cells and seeds into units: yield the indices of the cells, and the seeds, of each.

    Equal cells, which a search may propose together, stand in different units, since a population
    has each setting once.
    """
    families: dict[str, list[int]] = {}
    repeats: Counter[str] = Counter()
    for index, cell in enumerate(cells):
        if cell.config is not None:
            fields = cell.config.to_mapping()
            common = {name: value for name, value in fields.items() if name not in varying}
            families.setdefault(repr((repeats[repr(fields)], common)), []).append(index)
            repeats[repr(fields)] += 1
    seeds_at_once = min(len(seeds), _UNIT_MEMBERS)
    for family in families.values():
        for indices in _batched(family, _UNIT_MEMBERS // seeds_at_once):
            for unit_seeds in _batched(seeds, seeds_at_once):
                yield indices, unit_seeds


def _batched(values: Sequence[int], most: int) -> list[list[int]]:
    """Divide values into the fewest groups of at most `most`, all of about the same size."""
    size = math.ceil(len(values) / math.ceil(len(values) / most))
    return [list(values[start : start + size]) for start in range(0, len(values), size)]
