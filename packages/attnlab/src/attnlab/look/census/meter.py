"""Measures everything that a census counts of every head, on one batch of texts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab.look.census.bins import NUM_DISTANCES, distance_bins
from attnlab.look.corpus.measures import HeadReader, Rows, measure_of

COUNTED = (
    "previous",
    "first",
    "own",
    "duplicate",
    "induction",
    "largest",
    "entropy",
    "distance",
    "spread",
)
"""The measures of a census."""


@dataclass(frozen=True)
class Measured:
    """What a batch of texts adds to a census; heads in their order.

    values: (measure, text, head, query), NaN where undefined · strongest, strongest_key: (text,
    head, query), the largest weight on any key but the text's first, and that key; NaN where there
    is no other ·
    received: (text, head, key), the sum over queries of the weights on a key · by_distance: (head,
    distance), the sum of the weights of `distance_bins`.
    """

    values: Tensor
    strongest: Tensor
    strongest_key: Tensor
    received: Tensor
    by_distance: Tensor


class Meter(HeadReader):
    """Measures all chosen heads on one batch; see `HeadReader`."""

    def __init__(
        self,
        heads: Mapping[str, Sequence[int]],
        ids: Tensor,
        real: Tensor,
        names: Callable[[int], str],
    ) -> None:
        super().__init__(heads, ids, real, names)
        self._measures = [measure_of(name)[1] for name in COUNTED]
        length = ids.shape[1]
        places = torch.arange(length, device=ids.device)
        self._bins = distance_bins(places[:, None] - places)
        self._start = real.int().argmax(-1)  # padding may precede a text
        self._parts: dict[str, list[Measured]] = {part: [] for part in heads}

    def read_rows(self, part: str, rows: Rows) -> None:
        """Measure some rows."""
        is_padding = ~rows.own_real[:, None]
        values = []
        for measure in self._measures:
            values.append(measure(rows)[0].masked_fill(is_padding, float("nan")))
        weights = rows.weights.masked_fill(is_padding.unsqueeze(-1), 0.0)
        length, num_rows = weights.shape[3], weights.shape[2]
        bins = self._bins[rows.first : rows.first + num_rows].flatten()
        mass = weights.sum(0, dtype=torch.float64).flatten(1)
        by_distance = mass.new_zeros(len(mass), NUM_DISTANCES).index_add_(1, bins, mass)
        received = weights.sum(2, dtype=torch.float64)
        at_start = torch.arange(length, device=weights.device) == self._start[:, None]
        left_out = at_start[:, None, None] | ~rows.allowed
        strongest = rows.weights.masked_fill(left_out, -1.0).max(-1)
        is_none = is_padding | (strongest.values < 0)
        self._parts[part].append(
            Measured(
                torch.stack(values).cpu(),
                strongest.values.masked_fill(is_none, float("nan")).cpu(),
                strongest.indices.cpu(),
                received.cpu(),
                by_distance.cpu(),
            )
        )

    def measured(self) -> Measured:
        """Return the measures of all heads."""
        parts = []
        for blocks in self._parts.values():
            parts.append(
                Measured(
                    torch.cat([block.values for block in blocks], -1),
                    torch.cat([block.strongest for block in blocks], -1),
                    torch.cat([block.strongest_key for block in blocks], -1),
                    torch.stack([block.received for block in blocks]).sum(0),
                    torch.stack([block.by_distance for block in blocks]).sum(0),
                )
            )
        return Measured(
            torch.cat([part.values for part in parts], 2),
            torch.cat([part.strongest for part in parts], 1),
            torch.cat([part.strongest_key for part in parts], 1),
            torch.cat([part.received for part in parts], 1),
            torch.cat([part.by_distance for part in parts]),
        )
