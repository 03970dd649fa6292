"""Summarised attention: pooled maps and exact numbers of every head, where the weights themselves were never there.

A recording made with `reduce=Summarise(…)` holds such summaries; what can be drawn of them is their maps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlab.draw.attention.pattern import Hidden, Rows
from attnlab.draw.attention.pooling import Pooled, join_squares, pooled_length

__all__ = ["Summarised", "summarised", "summary_facts"]

_FACTS = ("entropy", "effective_keys", "largest", "first", "own", "previous")


@dataclass(frozen=True, eq=False)
class Summarised:
    """Pooled maps of one attention for one input.

    site: where it stands in the model. mean and largest: (head, query cell, key cell). query_tokens and key_tokens: the
    names of all tokens. cells: how many queries and keys go into a cell; the last may hold fewer. hidden: (query cell,
    key cell), True where all of a cell is masked. facts: one mapping for each head, see `HeadFacts`.
    """

    site: str
    mean: Rows
    largest: Rows
    query_tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    cells: tuple[int, int]
    hidden: Hidden
    facts: tuple[Mapping[str, float | None], ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""
        return len(self.mean), len(self.query_tokens), len(self.key_tokens)

    def pooled(self, head: int, side: int) -> Pooled:
        """Return one head's maps, in squares of `side` x `side` cells."""
        counts = np.outer(*(_counts(n, cell) for n, cell in zip(self.shape[1:], self.cells, strict=True)))
        mean = join_squares(np.add, self.mean[head] * counts, side) / join_squares(np.add, counts, side)
        hidden = None if self.hidden is None else join_squares(np.logical_and, self.hidden, side)
        return Pooled(mean.astype(np.float32), join_squares(np.maximum, self.largest[head], side), hidden)


def summarised(recording: Any, site: str, row: int) -> Summarised:
    """Read one input's summary from a recording."""
    summary = recording[site]
    sides = recording.tokens(site, row)
    queries, keys = (int(cell) for cell in summary.cells)
    return Summarised(
        site=site,
        mean=summary.map_mean[row].float().cpu().numpy(),
        largest=summary.map_max[row].float().cpu().numpy(),
        query_tokens=tuple(map(str, sides.query)),
        key_tokens=tuple(map(str, sides.key)),
        cells=(queries, keys),
        hidden=_hidden(recording.blocked(site, row), queries, keys),
        facts=tuple(
            summary_facts(summary, row, head, sides.query == sides.key) for head in range(summary.map_mean.shape[1])
        ),
    )


def summary_facts(summary: Any, row: int, head: int, is_self: bool) -> dict[str, float | None]:
    """Return the mean of each number over the queries that look at something."""
    looks = summary.largest[row, head] > 0
    found: dict[str, float | None] = {}
    for name in _FACTS if is_self else _FACTS[:4]:
        values = getattr(summary, name)[row, head][looks]
        found[name] = float(values.double().mean()) if len(values) else None
    return found


def _hidden(blocked: Any, queries: int, keys: int) -> Hidden:
    if blocked is None:
        return None
    table = blocked.cpu().numpy()
    rows = np.logical_and.reduceat(table, np.arange(0, table.shape[0], queries), 0)
    hidden = np.logical_and.reduceat(rows, np.arange(0, table.shape[1], keys), 1)
    return hidden if hidden.any() else None


def _counts(length: int, cell: int) -> Any:
    """How many tokens stand in each cell of an axis."""
    return np.minimum(cell, length - cell * np.arange(pooled_length(length, cell))).astype(np.float64)
