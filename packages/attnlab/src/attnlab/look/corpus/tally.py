"""The state of a search, which does not grow with the corpus: for each head the best examples,
sums, and a sample of values.

The interval of a mean is an online bootstrap over texts: each text counts Poisson(1) times in each
of many replicates (Oza and Russell 2001), drawn from its own number, so the result depends neither
on the order nor on interruptions. The sample holds the same tokens for all heads: those with the
least random keys.
"""

from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor

from attnlab import seeds
from attnlab.core.store import JsonObject

_REPLICATES = 200
_SAMPLE = 2048
_STATE = ("values", "places", "sums", "sample", "order")


class Tally:
    """Adds up batches.

    Args:
        heads: how many heads.
        top: how many examples of each are kept, at most one of each text.
        seed: of the sample and the replicates.
        lowest: keep the least instead of the largest.
    """

    def __init__(self, heads: int, top: int, seed: int, *, lowest: bool = False) -> None:
        self._top, self._seed, self._sign = top, seed, -1.0 if lowest else 1.0
        self.values = torch.full((heads, top), float("-inf"), dtype=torch.float64)
        self.places = torch.full((heads, top, 3), -1)  # text, query, key
        # The sums of values, and of ones.
        self.sums = torch.zeros(2, heads, _REPLICATES + 1, dtype=torch.float64)
        self.sample = torch.empty(heads, 0)
        self.order = torch.empty(0, dtype=torch.float64)

    def add(self, values: Tensor, keys: Tensor, numbers: list[int], lengths: list[int]) -> None:
        """Add the measures of a batch.

        Args:
            values, keys: (text, head, query), NaN where not defined.
            numbers, lengths: of the texts.
        """
        self._add_examples(values, keys, torch.tensor(numbers))
        # (2, text, head)
        sums = torch.stack((values.nansum(-1), (~values.isnan()).sum(-1).double()))
        times, order = zip(*map(self._bootstrap_weights, numbers, lengths), strict=True)
        self.sums += sums.transpose(1, 2) @ torch.stack(times)
        real_values = [values[index, :, :length] for index, length in enumerate(lengths)]
        orders = torch.cat((self.order, *order))
        kept = orders.sort(stable=True).indices[:_SAMPLE].sort().values
        self.order = orders[kept]
        self.sample = torch.cat(
            (self.sample, *(text_values.float() for text_values in real_values)), -1
        )[:, kept]

    def distribution(self) -> dict[str, Tensor]:
        """Return the statistics of each head: count, mean with its 95 % interval, quantiles;
        (head,) each."""
        value, count = self.sums
        means = value / count  # NaN where nothing was measured
        interval = means[:, 1:].nanquantile(torch.tensor([0.025, 0.975]).double(), dim=-1)
        shares = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95])
        sample = self.sample.new_full((5, len(value)), float("nan"))
        if self.sample.shape[1]:
            sample = self.sample.nanquantile(shares, dim=-1)
        statistics = {
            "count": count[:, 0],
            "mean": means[:, 0],
            "low": interval[0],
            "high": interval[1],
        }
        return statistics | dict(zip(("q05", "q25", "median", "q75", "q95"), sample, strict=True))

    def examples(self) -> tuple[Tensor, Tensor]:
        """Return the best values (head, top), filled up with -inf or inf, and their text, query and
        key."""
        return self._sign * self.values, self.places

    @classmethod
    def of(cls, state: JsonObject, tensors: Mapping[str, Tensor] | None = None) -> Self:
        """Return the tally of a search with this state, empty or with these tensors."""
        tally = cls(len(state["heads"]), state["top"], state["seed"], lowest=state["lowest"])
        for name in _STATE if tensors is not None else ():
            setattr(tally, name, (tensors or {})[name])
        return tally

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors, for the disk."""
        return {name: getattr(self, name) for name in _STATE}

    def _add_examples(self, values: Tensor, keys: Tensor, numbers: Tensor) -> None:
        values = self._sign * values.transpose(0, 1)  # (head, text, query)
        best = values.masked_fill(values.isnan(), float("-inf")).max(-1)
        keys = keys.transpose(0, 1).gather(-1, best.indices.unsqueeze(-1)).squeeze(-1)
        new_places = torch.stack((numbers.expand_as(keys), best.indices, keys), -1)
        places = torch.cat((self.places, new_places), 1)
        # Sorted by text first: among equal values the first text wins in any order of reading.
        by_text = places[..., 0].sort(dim=1, stable=True).indices
        every = torch.cat((self.values, best.values), 1).gather(1, by_text)
        ranked = every.sort(dim=1, descending=True, stable=True)
        order = by_text.gather(1, ranked.indices)[:, : self._top]
        self.values = ranked.values[:, : self._top]
        self.places = places.gather(1, order.unsqueeze(-1).expand(-1, -1, 3))

    def _bootstrap_weights(self, number: int, length: int) -> tuple[Tensor, Tensor]:
        """Draw how often a text counts in the whole (once) and in each replicate, and the random
        keys of its tokens."""
        source = seeds.generator(self._seed, "corpus", number)
        times = torch.poisson(torch.ones(_REPLICATES, dtype=torch.float64), generator=source)
        keys = torch.rand(length, generator=source, dtype=torch.float64)
        return torch.cat((times.new_ones(1), times)), keys
