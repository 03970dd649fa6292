"""How typical each member is: its distance from the member in the middle."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnlab.draw.sections import Table
from attnlab.experiments.population.members import TrainedMembers
from attnlab.experiments.population.population_heads import PopulationHeads
from attnlab.look.alignment import medoid

_MOST_ROWS = 100  # of a table that a person reads


@dataclass(frozen=True)
class Typicality:
    """How far each member's heads are from those of the member in the middle.

    members: their indices in the population. middle: the one nearest to all others. distances: of
    each from it, 0 to 1. percentiles: the share of the others that are no further from it.
    """

    members: list[int]
    middle: int
    distances: Tensor
    percentiles: Tensor

    @property
    def ranking(self) -> list[int]:
        """The indices of the members, the most typical first."""
        return [self.members[at] for at in self.distances.argsort(stable=True).tolist()]


def measure_typicality(population: TrainedMembers, heads: PopulationHeads) -> Typicality:
    """Measure each member's distance from the middle one of those that solved the problem.

    If no member solved it, the middle is that of all members.
    """
    solved = [
        at for at, index in enumerate(heads.members) if population.solved_at[index] is not None
    ]
    among = torch.tensor(solved or range(len(heads.members)))
    middle = int(among[medoid(heads.apart[among][:, among])])
    distances = heads.apart[middle].clone()
    distances[middle] = 0.0  # exactly, without rounding
    others = max(1, len(distances) - 1)
    percentiles = (distances.unsqueeze(1) >= distances).sum(1).sub(1).double() / others
    return Typicality(heads.members, heads.members[middle], distances, percentiles)


def ranked_members(
    population: TrainedMembers, typicality: Typicality
) -> tuple[list[str], list[list[Any]]]:
    """List the members, the most typical first, as column names and rows."""
    figures = population.history.figures()
    where = {index: at for at, index in enumerate(typicality.members)}
    rows = []
    for rank, index in enumerate(typicality.ranking, 1):
        trained, at = population.trained(index), where[index]
        assert trained is not None  # members that diverged are not ranked
        row = [
            population.name(index),
            population.solved_at[index],
            *map(trained.evaluation.figures.get, figures),
        ]
        rows.append(
            [*row, float(typicality.distances[at]), float(typicality.percentiles[at]), rank]
        )
    who = "seed" if len(population.variants) == 1 else "variant-seed"
    return [who, "solved_at", *figures, "distance", "percentile", "rank"], rows


def typical_section(population: TrainedMembers, typicality: Typicality) -> Table:
    """Rank the members, with the commands that open the most typical and the oddest."""
    columns, rows = ranked_members(population, typicality)
    folder, first, last = population.folder or "RUN", rows[0][0], rows[-1][0]
    caption = (
        f"Members by how far their heads, once aligned, are from those of seed {first}, which is "
        "nearest to all others (0: the same weights on the same inputs, 1: no token in common). "
        "The percentile is the share of the others that are no further away. The most typical "
        f"and the oddest: `attnlab open {folder}/{first}` `attnlab open {folder}/{last}`"
    )
    meanings = [
        f"{name.replace('_', ' ')}: {text}"
        for name, text in population.problem_description.meanings
    ]
    caption += f"\n\n{' '.join(meanings)}" if meanings else ""
    if len(rows) > _MOST_ROWS:
        caption += (
            f"\n\nThese are the first and the last {_MOST_ROWS // 2} of {len(rows):,}; all are "
            "in members.csv."
        )
        rows = rows[: _MOST_ROWS // 2] + rows[-(_MOST_ROWS // 2) :]
    return Table(
        title="Is my seed typical?",
        caption=caption,
        columns=[column.replace("_", " ") for column in columns],
        rows=[_shown(row) for row in rows],
    )


def _shown(row: list[Any]) -> list[Any]:
    """Round a row of `ranked_members` for people."""
    name, step, *figures, distance, percentile, rank = row
    shown = [float(f"{figure:.4g}") for figure in figures]
    return [
        name,
        "never" if step is None else f"{step:,}",
        *shown,
        round(distance, 3),
        f"{percentile:.0%}",
        rank,
    ]
