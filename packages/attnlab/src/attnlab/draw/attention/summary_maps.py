"""Maps of summarized attention: pooled maps and exact numbers of heads without their weights.

A recording made with `reduce=Summarize(…)` holds such summaries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlab.draw.attention.pattern import Hidden, Rows, to_array
from attnlab.draw.attention.pooled_maps import Pooled, join_squares, pooled_length

FACTS = ("entropy", "effective_keys", "largest", "first", "own", "previous")


@dataclass(frozen=True, eq=False)
class SummaryMaps:
    """Pooled maps of one attention for one input.

    site: its name. mean and largest: (head, query cell, key cell). query_tokens and key_tokens: the
    names of all tokens. cells: how many queries and keys a cell holds; the last may hold fewer.
    hidden: (query cell, key cell), True where a whole cell is masked. facts: one mapping for each
    head, see `HeadFacts`.
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
        """Return one head's maps in squares of `side` x `side` cells."""
        _, num_queries, num_keys = self.shape
        counts = np.outer(_counts(num_queries, self.cells[0]), _counts(num_keys, self.cells[1]))
        sums = join_squares(np.add, self.mean[head] * counts, side)
        mean = sums / join_squares(np.add, counts, side)
        largest = join_squares(np.maximum, self.largest[head], side)
        if self.hidden is not None:
            hidden = join_squares(np.logical_and, self.hidden, side)
            largest = np.where(hidden, np.float32(np.nan), largest)
        return Pooled(np.where(np.isnan(largest), largest, mean.astype(np.float32)), largest)


def maps_of_recorded(recording: Any, site: str, row: int) -> SummaryMaps:
    """Return the maps of one input from a recording of summaries."""
    sides = recording.tokens(site, row)
    summary = recording[site]
    hidden = _hidden(recording.blocked(site, row), *map(int, summary.cells))
    is_self = sides.query == sides.key
    return maps_of_summary(
        summary, row, site, sides.query, sides.key, is_self=is_self, hidden=hidden
    )


def maps_of_summary(
    summary: Any,
    row: int,
    site: str,
    query_tokens: Sequence[Any],
    key_tokens: Sequence[Any],
    *,
    is_self: bool,
    hidden: Hidden = None,
) -> SummaryMaps:
    """Return the maps of one input of a summary, with the names of its tokens."""
    mean = to_array(summary.map_mean[row], np.float32)
    queries, keys = map(int, summary.cells)
    return SummaryMaps(
        site=site,
        mean=mean,
        largest=to_array(summary.map_max[row], np.float32),
        query_tokens=tuple(map(str, query_tokens)),
        key_tokens=tuple(map(str, key_tokens)),
        cells=(queries, keys),
        hidden=hidden,
        facts=tuple(_facts(summary, row, head, is_self) for head in range(len(mean))),
    )


def _facts(summary: Any, row: int, head: int, is_self: bool) -> dict[str, float | None]:
    """Return the mean of each number over the queries with an allowed key."""
    is_counted = summary.largest[row, head] > 0
    facts: dict[str, float | None] = {}
    for name in FACTS if is_self else FACTS[:4]:
        values = getattr(summary, name)[row, head][is_counted]
        facts[name] = float(values.double().mean()) if len(values) else None
    return facts


def _hidden(blocked: Any, queries: int, keys: int) -> Hidden:
    if blocked is None:
        return None
    table = blocked.cpu().numpy()
    rows = np.logical_and.reduceat(table, np.arange(0, table.shape[0], queries), 0)
    hidden = np.logical_and.reduceat(rows, np.arange(0, table.shape[1], keys), 1)
    return hidden if hidden.any() else None


def _counts(length: int, cell: int) -> Any:
    """Count the tokens in each cell of an axis."""
    starts = cell * np.arange(pooled_length(length, cell))
    return np.minimum(cell, length - starts).astype(np.float64)
