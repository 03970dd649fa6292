"""Is my seed typical? How far each member is from the one in the middle."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.experiments.population.heads import Heads
from attnlab.experiments.population.population import Population
from attnlab.look.alignment import medoid

__all__ = ["Typicality", "judge_typicality", "ranked_members", "typical_section"]

_MOST_ROWS = 100  # of a table that a person reads


class Typicality(NamedTuple):
    """Where members stand, by what their heads do.

    members: those looked at, by their place in the population. middle: the one nearest to all others. distances: of
    each from it, 0 to 1. percentiles: the share of the others that are no further from it.
    """

    members: list[int]
    middle: int
    distances: Tensor
    percentiles: Tensor

    @property
    def ranking(self) -> list[int]:
        """The members, the most typical first."""
        return [self.members[at] for at in self.distances.argsort(stable=True).tolist()]


def judge_typicality(population: Population, heads: Heads) -> Typicality:
    """Measure each member's distance from the middle one of those that can do the task, or of all if none can."""
    solved = [at for at, index in enumerate(heads.members) if population.solved_at[index] is not None]
    among = torch.tensor(solved or range(len(heads.members)))
    middle = int(among[medoid(heads.apart[among][:, among])])
    distances = heads.apart[middle].clone()
    distances[middle] = 0.0  # not a rounding error away from itself
    others = max(1, len(distances) - 1)
    percentiles = (distances.unsqueeze(1) >= distances).sum(1).sub(1).double() / others
    return Typicality(heads.members, heads.members[middle], distances, percentiles)


def ranked_members(population: Population, typicality: Typicality) -> tuple[list[str], list[list[Any]]]:
    """List the members, the most typical first: the names of the columns, and the rows."""
    figures = population.history.figures()
    where = {index: at for at, index in enumerate(typicality.members)}
    rows = []
    for rank, index in enumerate(typicality.ranking, 1):
        trained, at = population.trained(index), where[index]
        assert trained is not None  # who broke was not looked at
        row = [population.name(index), population.solved_at[index], *map(trained.judgement.figures.get, figures)]
        rows.append([*row, float(typicality.distances[at]), float(typicality.percentiles[at]), rank])
    who = "seed" if len(population.variants) == 1 else "variant-seed"
    return [who, "solved_at", *figures, "distance", "percentile", "rank"], rows


def typical_section(population: Population, typicality: Typicality) -> dict[str, Any]:
    """Say which members are typical and which are odd, and how to open them."""
    columns, rows = ranked_members(population, typicality)
    folder, first, last = population.folder or "RUN", rows[0][0], rows[-1][0]
    caption = (
        f"Members by how far their heads, once aligned, are from those of seed {first}, which is nearest to all others "
        "(0: the same weights on the same inputs, 1: no token in common). The percentile is the share of the others "
        f"that are no further away. The most typical and the oddest: `attnlab open {folder}/{first}` "
        f"`attnlab open {folder}/{last}`"
    )
    meanings = [f"{name.replace('_', ' ')}: {text}" for name, text in population.goal.meanings]
    caption += f"\n\n{' '.join(meanings)}" if meanings else ""
    if len(rows) > _MOST_ROWS:
        caption += f"\n\nHere are the first and the last {_MOST_ROWS // 2} of {len(rows):,}; all stand in members.csv."
        rows = rows[: _MOST_ROWS // 2] + rows[-(_MOST_ROWS // 2) :]
    return {
        "kind": "table",
        "title": "Is my seed typical?",
        "caption": caption,
        "columns": [column.replace("_", " ") for column in columns],
        "rows": [_shown(row) for row in rows],
    }


def _shown(row: list[Any]) -> list[Any]:
    """Round a row of `ranked_members` for people."""
    name, step, *figures, distance, percentile, rank = row
    shown = [float(f"{figure:.4g}") for figure in figures]
    return [name, "never" if step is None else f"{step:,}", *shown, round(distance, 3), f"{percentile:.0%}", rank]
