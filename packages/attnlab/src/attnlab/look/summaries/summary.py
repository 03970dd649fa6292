"""The numbers of a summary, and their formulas for rows of weights.

The formulas are written here once, in PyTorch; `row_blocks.py` assembles a whole pattern from such
rows, and `attnlab.native.attention` computes the same without holding them.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.display import displayed


@displayed
class Summary(NamedTuple):
    """A summary of attention weights: (..., query) but for the last five.

    With w the weights of a query (they sum to 1) and d = its position - the key's position.

    Attributes:
        entropy: -Σ w ln w, in nats; 0 for a single key, ln(keys) for equal weights.
        effective_keys: exp(entropy), the number of equally weighted keys with this entropy.
        largest: the largest weight.
        distance, spread: mean and standard deviation of d, in positions; positive is back.
        first, own, previous: the weight on the first key, on the query's own position, on the one
            before it; 0 without such a key.
        log_sum: ln Σ exp(score); any weight is exp(score - log_sum).
        top_keys, top_weights: the keys of the largest weights, (..., query, top), the largest
            first, among equal ones the first key first; -1 and 0 where there are no more keys with
            a weight.
        map_mean, map_max: the mean and the largest weight in each cell, (..., query cell, key
            cell); masked weights count as zeros.
        cells: how many queries and keys a cell has, (2,); the last cells may have fewer.

    A query without a key has zeros everywhere, a log_sum of -inf and top keys of -1; it is
    recognized by `largest == 0`. Numbers are float32, for float64 queries float64.
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


def cell_size(length: int, tiles: int) -> int:
    """Return the number of positions in a cell so that there are at most `tiles` cells.

    >>> cell_size(1000, 512), cell_size(512, 512), cell_size(0, 512)
    (2, 1, 1)
    """
    return max(1, -(-length // tiles))


def row_statistics(
    weights: Tensor, order: Tensor, log_sum: Tensor, *, top: int, position: Tensor, first_key: int
) -> dict[str, Tensor]:
    """Compute the statistics of rows of weights, (head, query); top keys and weights are (head,
    query, top).

    Args:
        weights: (head, query, key), of the keys from `first_key` on; all others have weight 0.
        order: the same shape, larger where the weight is larger: scores distinguish weights that
            are equal after rounding.
        log_sum: (head, query)
        top: how many of the largest.
        position: (query,), of the queries among the keys.
        first_key: the number of the first key here.
    """
    num_keys, total = weights.shape[-1], weights.sum(-1)
    keys_here = torch.arange(first_key, first_key + num_keys, device=weights.device)
    distance = (position.unsqueeze(-1) - keys_here).to(weights.dtype)
    share = weights / total.masked_fill(total == 0, 1.0).unsqueeze(-1)
    mean = (share * distance).sum(-1)
    variance = (share * (distance - mean.unsqueeze(-1)).square()).sum(-1)
    keys, values = top_of(weights, order, top)

    def on(key: Tensor) -> Tensor:
        place = (key - first_key).expand(weights.shape[:-1]).unsqueeze(-1)
        is_there = (place >= 0) & (place < num_keys)
        if num_keys == 0:
            return torch.zeros_like(total)
        at_place = weights.gather(-1, place.clamp(0, num_keys - 1))
        return at_place.masked_fill(~is_there, 0.0).squeeze(-1)

    entropy = torch.special.entr(weights).sum(-1)
    largest = weights.amax(-1) if num_keys else torch.zeros_like(total)
    return {
        "entropy": entropy,
        "effective_keys": torch.where(largest == 0, 0.0 * largest, entropy.exp()),
        "largest": largest,
        "distance": mean,
        "spread": torch.where(total > 0, variance, 0.0 * total).sqrt(),
        "first": on(torch.zeros_like(position)),
        "own": on(position),
        "previous": on(position - 1),
        "log_sum": log_sum,
        "top_keys": torch.where(keys >= 0, keys + first_key, keys),
        "top_weights": values,
    }


def top_of(weights: Tensor, order: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Return the keys and values of the largest weights, among equal ones the first: (..., key) ->
    (..., top) twice."""
    count = min(top, weights.shape[-1])
    largest = order.topk(count, dim=-1)
    keys = largest.indices
    if count:
        # topk does not document which of equal values it takes: rows with too many are sorted.
        tied = (order >= largest.values[..., -1:]).sum(-1) > count
        tied &= largest.values[..., -1] > float("-inf")
        if bool(tied.any()):
            keys[tied] = order[tied].sort(dim=-1, descending=True, stable=True).indices[..., :count]
    keys = keys.sort(dim=-1).values
    best = order.gather(-1, keys).sort(dim=-1, descending=True, stable=True).indices
    keys = keys.gather(-1, best)
    values = weights.gather(-1, keys)
    missing = (*weights.shape[:-1], top - count)
    keys = torch.cat((keys.masked_fill(values == 0, -1), keys.new_full(missing, -1)), -1)
    return keys, torch.cat((values, values.new_zeros(missing)), -1)
