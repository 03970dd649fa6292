"""Measures everything that a census counts of every head, on one batch of texts."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnlab.look.census.bins import NUM_DISTANCES, distance_bins
from attnlab.look.corpus.measures import HeadReader, WeightRows, measure_of

COUNTED = (
    "previous", "first", "own", "duplicate", "induction",
    "largest", "entropy", "distance", "spread",
)  # fmt: skip
"""The measures of a census."""


@dataclass(frozen=True)
class BatchMeasures:
    """What a batch of texts adds to a census; heads in their order.

    values: (measure, text, head, query), NaN where undefined · strongest, strongest_key: (text,
    head, query), the largest weight on any key but the text's first, and that key; NaN where there
    is no other ·
    received: (text, head, key), the sum over queries of the weights on a key · by_distance: (head,
    distance), the sum of the weights of `distance_bins` · moments: (head, 2), the sums of the
    weights times the distance and its square.
    """

    values: Tensor
    strongest: Tensor
    strongest_key: Tensor
    received: Tensor
    by_distance: Tensor
    moments: Tensor


class Meter(HeadReader):
    """Measures all chosen heads on one batch: `measured`; see `HeadReader`."""

    def __init__(self, *batch: Any) -> None:
        super().__init__(*batch)
        self._measures = [measure_of(name)[1] for name in COUNTED]
        places = torch.arange(self.shape[2], device=self.ids.device)
        away = places[:, None] - places
        self._bins, self._powers = distance_bins(away), torch.stack((away, away.square()), -1)
        self._start = self.real.int().argmax(-1)  # padding may precede a text
        zeros = partial(torch.zeros, dtype=torch.float64)
        self.measured = BatchMeasures(
            zeros(len(COUNTED), *self.shape),
            zeros(self.shape),
            torch.zeros(self.shape, dtype=torch.int64),
            zeros(self.shape),
            zeros(self.shape[1], NUM_DISTANCES),
            zeros(self.shape[1], 2),
        )

    def read_rows(self, heads: slice, rows: WeightRows) -> None:
        """Measure some rows."""
        measured, queries = self.measured, rows.span
        is_padding = ~rows.own_real[:, None]
        for values, measure in zip(measured.values, self._measures, strict=True):
            values[:, heads, queries] = measure(rows)[0].masked_fill(is_padding, torch.nan)
        weights = rows.weights.masked_fill(is_padding.unsqueeze(-1), 0.0)
        mass = weights.sum(0, dtype=torch.float64).flatten(1).cpu()
        measured.by_distance[heads].index_add_(1, self._bins[queries].flatten().cpu(), mass)
        measured.moments[heads] += mass @ self._powers[queries].flatten(0, 1).cpu().double()
        measured.received[:, heads] += weights.sum(2, dtype=torch.float64).cpu()
        at_start = rows.keys == self._start[:, None]
        left_out = at_start[:, None, None] | ~rows.allowed
        strongest = rows.weights.masked_fill(left_out, -1.0).max(-1)
        is_none = is_padding | (strongest.values < 0)
        measured.strongest[:, heads, queries] = strongest.values.masked_fill(is_none, torch.nan)
        measured.strongest_key[:, heads, queries] = strongest.indices
