"""Facts of a head: a few exact numbers, each the mean over the queries with an allowed key.

They are computed from the exact weights, before anything is quantized or pooled.
"""

import numpy as np
from numpy.typing import NDArray

from attnlab.draw.attention.pattern import Pattern, Rows

# name -> (words, meaning); the last three are for self-attention only
FACTS = {
    "entropy": ("Entropy", "nats; 0: one key alone"),
    "effective_keys": ("Effective keys", "exp(entropy): how many keys share the weight"),
    "largest": ("Largest weight", "of each query"),
    "first": ("On the first key", "share of the weight"),
    "own": ("On itself", "share of the weight"),
    "previous": ("On the one before", "share of the weight"),
    "distance": ("Distance", "tokens between query and key"),
}


class HeadFacts:
    """Sums over the rows of one head; `least` is the smallest weight of all."""

    def __init__(self, pattern: Pattern) -> None:
        self._is_self = pattern.query_tokens == pattern.key_tokens
        names = list(FACTS) if self._is_self else list(FACTS)[:4]
        self._sums = dict.fromkeys(names, 0.0)
        self._count = 0
        self.least = 0.0
        self._keys = np.arange(pattern.num_keys, dtype=np.float32)

    def add(self, rows: Rows, first: int) -> None:
        """Add rows (queries, keys) that begin at query `first`."""
        self.least = min(self.least, float(rows.min()))
        is_counted = rows.sum(1) > 0
        entropies = _entropy(rows)
        queries = np.arange(first, first + len(rows))
        facts = {
            "entropy": entropies,
            "effective_keys": np.exp(entropies),
            "largest": rows.max(1),
            "first": rows[:, 0],
        }
        if self._is_self:
            facts["own"] = rows[np.arange(len(rows)), queries]
            facts["previous"] = np.where(queries > 0, rows[np.arange(len(rows)), queries - 1], 0.0)
            facts["distance"] = _distance(rows, queries, self._keys)
        for name, values in facts.items():
            self._sums[name] += float(values[is_counted].sum(dtype=np.float64))
        self._count += int(is_counted.sum())

    def means(self) -> dict[str, float | None]:
        """Return each fact's mean over the queries with an allowed key; None if there are none."""
        if not self._count:
            return dict.fromkeys(self._sums)
        return {name: total / self._count for name, total in self._sums.items()}


def _entropy(rows: Rows) -> NDArray[np.float32]:
    logs = np.log(np.where(rows > 0, rows, np.float32(1)))
    return np.asarray(-np.einsum("qk,qk->q", rows, logs), np.float32)


def _distance(rows: Rows, queries: NDArray[np.int64], keys: Rows) -> NDArray[np.float32]:
    apart = np.abs(queries[:, None].astype(np.float32) - keys)
    return np.asarray(np.einsum("qk,qk->q", rows, apart), np.float32)
