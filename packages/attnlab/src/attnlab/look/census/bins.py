"""The bins of a census: fixed before the first text, so that counts of shards add up."""

from dataclasses import dataclass

import torch
from torch import Tensor

_NUM = 40  # bins of a measure
_FARTHEST = 14  # the last bin of distances holds 2^13 tokens and more


@dataclass(frozen=True)
class Bins:
    """Bins between inner edges (number - 1,); what is beyond them counts in the outer two."""

    edges: Tensor

    @property
    def number(self) -> int:
        """How many bins there are."""
        return len(self.edges) + 1

    def of(self, values: Tensor) -> Tensor:
        """Return the bin of each value; an edge belongs to the bin above it."""
        return torch.bucketize(values, self.edges, right=True)

    def quantiles(self, counts: Tensor, shares: Tensor) -> Tensor:
        """Return quantiles of counted values, interpolated within their bins.

        Args:
            counts: (row, bin). shares: (share,), from 0 to 1.

        Returns:
            (row, share); NaN in a row without counts. An outer bin is as wide as its neighbour.
        """
        first, last = self.edges[:1], self.edges[-1:]
        width_below, width_above = self.edges[1] - first, last - self.edges[-2]
        edges = torch.cat((first - width_below, self.edges, last + width_above))
        below = torch.nn.functional.pad(counts.double().cumsum(-1), (1, 0))
        total = below[:, -1:]
        place = total * shares
        bins = torch.searchsorted(below[:, 1:].contiguous(), place).clamp(max=self.number - 1)
        inside = (place - below.gather(1, bins)) / counts.double().gather(1, bins).clamp(min=1.0)
        values = edges[bins] + inside * (edges[bins + 1] - edges[bins])
        return values.masked_fill(total == 0, float("nan"))


def _equal(low: float, high: float) -> Bins:
    return Bins(torch.linspace(low, high, _NUM + 1, dtype=torch.float64)[1:-1])


SHARE = _equal(0.0, 1.0)
"""Bins of weights, which are from 0 to 1."""

_NATS = _equal(0.0, 10.0)
_TOKENS = Bins(torch.cat((-(2.0 ** torch.arange(13, -1, -1)), 2.0 ** torch.arange(0, 14))).double())

BINS = {"entropy": _NATS, "distance": _TOKENS, "spread": _TOKENS}
"""The bins of measures that are not shares."""


def bins_of(measure: str) -> Bins:
    """Return the bins of a measure."""
    return BINS.get(measure, SHARE)


NUM_DISTANCES = 2 * _FARTHEST + 1
"""Bins of distances by doubling: … -2 to -3, -1, 0, 1, 2 to 3, 4 to 7 …; negative is ahead."""


def distance_bins(away: Tensor) -> Tensor:
    """Return the bin of each distance, query less key in tokens, from 0 to `NUM_DISTANCES` - 1.

    >>> distance_bins(torch.tensor([-1, 0, 1, 2, 3, 4])).tolist()
    [13, 14, 15, 16, 16, 17]
    """
    size = torch.frexp(away.abs().double()).exponent.clamp(max=_FARTHEST)
    return away.sign() * size + _FARTHEST


def distance_words() -> list[str]:
    """Return the distances of each bin in words, such as "4 to 7 back"."""
    words = []
    for bin_ in range(NUM_DISTANCES):
        size, way = abs(bin_ - _FARTHEST), "ahead" if bin_ < _FARTHEST else "back"
        first, last = 2 ** (size - 1), 2**size - 1
        if size == 0:
            words.append("itself")
        elif size == _FARTHEST:
            words.append(f"{first:,} or more {way}")
        else:
            words.append(f"{first:,} {way}" if first == last else f"{first:,} to {last:,} {way}")
    return words
