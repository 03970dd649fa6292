"""The heads of all seeds as small maps, for a page in a notebook."""

import math
from typing import TypedDict

from attnlab.draw.wire import LEVELS, pack
from attnlab.experiments.population.heads_sections import attention_name, unpadded
from attnlab.experiments.population.population import Population
from attnlab.experiments.population.population_heads import (
    MOST_COMPARED,
    AttentionHeads,
    PopulationHeads,
    record_heads,
)

_MOST_WEIGHTS = 4_000_000


class SeedMaps(TypedDict, total=False):
    """What `draw/view/modules/seeds.js` shows."""

    members: list[dict[str, object]]
    number: int
    attentions: list[dict[str, object]]
    typical: str


def seed_maps(population: Population) -> SeedMaps:
    """Return what `draw/view/modules/seeds.js` shows: the first 1,000 members, and the mean weights
    of their heads."""
    heads = record_heads(population)
    parts, typical = list[AttentionHeads](), 0
    if heads is not None:
        parts, typical = heads.parts, heads.middle
    if sum(part.means.numel() for part in parts) > _MOST_WEIGHTS:
        parts = []
    shown = range(min(len(population), MOST_COMPARED))
    return {
        "members": [_member(population, index, heads) for index in shown],
        "number": len(population),
        "attentions": [_attention(parts, part) for part in parts],
        "typical": population.name(typical),
    }


def _member(population: Population, index: int, heads: PopulationHeads | None) -> dict[str, object]:
    card: dict[str, object] = {
        "name": population.name(index),
        "solvedAt": population.solved_at[index],
        "fault": population.faults.get(population.name(index)),
        "row": None,
        "rank": None,
        "kind": "",
    }
    if heads is None or index not in heads.members:
        return card
    row = heads.members.index(index)
    return card | {"row": row, "rank": heads.ranking.index(index) + 1, "kind": heads.kind(row)}


def _attention(parts: list[AttentionHeads], part: AttentionHeads) -> dict[str, object]:
    rows, columns = unpadded(parts, part)
    means = part.means.masked_fill(part.blocked, math.nan)[..., rows, columns]
    return {
        "name": attention_name(part.site),
        "heads": means.shape[1],
        "rows": means.shape[2],
        "columns": means.shape[3],
        "order": part.order.tolist(),
        "maps": pack(means, LEVELS),
    }
