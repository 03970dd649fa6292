"""What a summary says of a pattern of attention, and the same said of weights that are there already.

The formulas stand here once, in PyTorch, for rows whose weights are at hand; `blocks.py` puts a whole pattern together
out of such rows, and `attnlab.native.attention` computes the same without holding them.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.display import Card, displayed, short

__all__ = ["Rows", "Summary", "cell_size", "rows_of", "top_of"]


@displayed
class Summary(NamedTuple):
    """What the weights of an attention are like, without the weights: (..., query) but for the last four.

    With w the weights of a query (they sum to 1) and d = its position - the key's position:

    entropy: -Σ w ln w, in nats; 0 for one key alone, ln(keys) for all alike.
    effective_keys: exp(entropy), the number of keys that, alike, would have this entropy.
    largest: the largest weight.
    distance, spread: mean and standard deviation of d, in positions; positive is back.
    first, own, previous: the weight on the first key, on the query's own position, on the one before it; 0 where there
        is no such key.
    log_sum: ln Σ exp(score), with which any weight is exp(score - log_sum).
    top_keys, top_weights: the keys of the largest weights, (..., query, top), the largest first, of equal ones the
        first key first; -1 and 0 where there are no more keys with a weight.
    map_mean, map_max: the mean and the largest weight in each cell, (..., query cell, key cell); blocked weights count,
        as the zeros that they are.
    cells: how many queries and keys go into a cell, (2,); the last cells may hold fewer.

    A query that may look at nothing has weights of zero: all that is said of it is 0, its log_sum is -inf, its top keys
    are -1. It is known by `largest == 0`. Numbers are float32, for float64 queries float64.
    """

    entropy: Tensor
    effective_keys: Tensor
    largest: Tensor
    distance: Tensor
    spread: Tensor
    first: Tensor
    own: Tensor
    previous: Tensor
    log_sum: Tensor
    top_keys: Tensor
    top_weights: Tensor
    map_mean: Tensor
    map_max: Tensor
    cells: Tensor

    def _card(self) -> Card:
        rows = [
            [name, short(value), "" if name in ("cells", "top_keys") else short(float(value.float().mean()))]
            for name, value in zip(self._fields, self, strict=True)
        ]
        return Card("Summary of an attention", [], ("what", "shape", "mean"), rows)


class Rows(NamedTuple):
    """What is said of some rows, (head, query); the top keys and weights are (head, query, top)."""

    entropy: Tensor
    largest: Tensor
    distance: Tensor
    spread: Tensor
    first: Tensor
    own: Tensor
    previous: Tensor
    log_sum: Tensor
    top_keys: Tensor
    top_weights: Tensor


def cell_size(length: int, tiles: int) -> int:
    """Return how many positions go into a cell so that there are at most `tiles` cells, all but the last of one size.

    >>> cell_size(1000, 512), cell_size(512, 512), cell_size(0, 512)
    (2, 1, 1)
    """
    return max(1, -(-length // tiles))


def rows_of(weights: Tensor, order: Tensor, log_sum: Tensor, *, top: int, position: Tensor, first_key: int) -> Rows:
    """Say of rows of weights what a summary says of each.

    Args:
        weights: (head, query, key), of the keys from `first_key` on; all others have weight 0.
        order: the same shape, larger where the weight is larger: the scores, which tell apart what is the same after
            rounding.
        log_sum: (head, query)
        top: how many of the largest.
        position: (query,), of the queries among the keys.
        first_key: the number of the first key here.
    """
    num_keys = weights.shape[-1]
    distance = position.unsqueeze(-1) - torch.arange(first_key, first_key + num_keys, device=weights.device)
    distance = distance.to(weights.dtype)
    total = weights.sum(-1)
    share = weights / total.masked_fill(total == 0, 1.0).unsqueeze(-1)
    mean = (share * distance).sum(-1)
    variance = (share * (distance - mean.unsqueeze(-1)).square()).sum(-1)
    keys, values = top_of(weights, order, top)

    def on(key: Tensor) -> Tensor:
        place = (key - first_key).expand(weights.shape[:-1]).unsqueeze(-1)
        is_there = (place >= 0) & (place < num_keys)
        if num_keys == 0:
            return torch.zeros_like(total)
        found = weights.gather(-1, place.clamp(0, num_keys - 1))
        return found.masked_fill(~is_there, 0.0).squeeze(-1)

    return Rows(
        entropy=torch.special.entr(weights).sum(-1),
        largest=weights.amax(-1) if num_keys else torch.zeros_like(total),
        distance=mean,
        spread=torch.where(total > 0, variance, 0.0 * total).sqrt(),
        first=on(torch.zeros_like(position)),
        own=on(position),
        previous=on(position - 1),
        log_sum=log_sum,
        top_keys=torch.where(keys >= 0, keys + first_key, keys),
        top_weights=values,
    )


def top_of(weights: Tensor, order: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Return the places and values of the largest weights, of equal ones the first: (..., key) -> (..., top) twice."""
    count = min(top, weights.shape[-1])
    found = order.topk(count, dim=-1)
    keys = found.indices
    if count:
        # Which of equal ones topk takes is not said anywhere: rows that have more than it could take are sorted.
        tied = ((order >= found.values[..., -1:]).sum(-1) > count) & (found.values[..., -1] > float("-inf"))
        if bool(tied.any()):
            keys[tied] = order[tied].sort(dim=-1, descending=True, stable=True).indices[..., :count]
    keys = keys.sort(dim=-1).values
    best = order.gather(-1, keys).sort(dim=-1, descending=True, stable=True).indices
    keys = keys.gather(-1, best)
    values = weights.gather(-1, keys)
    missing = (*weights.shape[:-1], top - count)
    keys = torch.cat((keys.masked_fill(values == 0, -1), keys.new_full(missing, -1)), -1)
    return keys, torch.cat((values, values.new_zeros(missing)), -1)
