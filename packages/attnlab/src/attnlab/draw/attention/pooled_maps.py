"""Pooled maps: a map that is too large, as the mean and the largest weight of squares.

The mean is over all weights of a square; masked weights count as zeros, as in `look.summaries`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlab.draw.attention.facts import HeadFacts
from attnlab.draw.attention.pattern import Pattern, Rows


@dataclass(frozen=True)
class Pooled:
    """A head in squares of weights: mean and largest (rows, columns); NaN where all are masked."""

    mean: Rows
    largest: Rows


def pooled_length(length: int, side: int) -> int:
    """Return how many squares cover a length; the last may be smaller.

    >>> pooled_length(8192, 32), pooled_length(10, 4)
    (256, 3)
    """
    return -(-length // side)


def squares(length: int, most: int) -> int:
    """Return the least side of squares of which at most `most` cover a length.

    >>> squares(1000, 1000), squares(30_000, 1000)
    (1, 30)
    """
    return max(1, pooled_length(length, most))


def join_squares(join: np.ufunc, values: Any, side: int) -> Any:
    """Reduce (rows, columns) over squares of `side` x `side`; those at the ends may be smaller."""
    starts, columns = np.arange(0, values.shape[0], side), np.arange(0, values.shape[1], side)
    return join.reduceat(join.reduceat(values, starts, 0), columns, 1)


def pool_head(pattern: Pattern, head: int, side: int, facts: HeadFacts | None = None) -> Pooled:
    """Pool one head, a band of queries at a time; add its rows to `facts` if given."""
    means, peaks = [], []
    widths = np.diff(np.arange(0, pattern.num_keys, side), append=pattern.num_keys)
    for first, last in _aligned(pattern, side):
        rows = pattern.rows(head, first, last)
        weights = np.nan_to_num(rows)
        if facts is not None:
            facts.add(weights, first)
        heights = np.diff(np.arange(0, last - first, side), append=last - first)
        sizes = np.outer(heights, widths).astype(np.float32)
        largest = join_squares(np.fmax, rows, side)
        mean = join_squares(np.add, weights, side) / sizes
        means.append(np.where(np.isnan(largest), largest, mean))
        peaks.append(largest)
    return Pooled(np.concatenate(means), np.concatenate(peaks))


def _aligned(pattern: Pattern, side: int) -> Iterator[tuple[int, int]]:
    """Yield bands of queries that end where squares end."""
    ((_, height), *_) = pattern.bands()
    height = max(side, height // side * side)
    for first in range(0, pattern.num_queries, height):
        yield first, min(first + height, pattern.num_queries)
