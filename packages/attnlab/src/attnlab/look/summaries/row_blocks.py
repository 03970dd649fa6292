"""Summaries in PyTorch, some rows at a time: for any device and any precision.

Keys that are masked for all rows of a block are skipped; wholly masked blocks cost nothing.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.look.statistics import checked_weights
from attnlab.look.summaries.summary import Summary, cell_size, row_statistics
from attnlab.look.summaries.summary_inputs import SummaryInputs
from attnlab.parts.attend import attention_weights
from attnlab.shapes import require_integer

_CPU_NUMBERS, _GPU_NUMBERS = 2**20, 2**25  # of a block


class RowBlock(NamedTuple):
    """Some rows of some heads, and the keys that they may attend to."""

    heads: slice
    queries: slice
    keys: slice


def blocks_of(inputs: SummaryInputs) -> Iterator[RowBlock]:
    """Cut a pattern into strips of rows, each with the keys that it may attend to."""
    num_keys, room = inputs.num_keys, _room(inputs.query.device)
    at_once = max(1, room // max(1, inputs.num_queries * num_keys))
    for head in range(0, inputs.num_heads, at_once):
        heads = slice(head, min(inputs.num_heads, head + at_once))
        for rows in _strips(inputs.num_queries, num_keys * (heads.stop - heads.start), room):
            seen = inputs.seen(rows)
            first = min(num_keys, max(0, seen.start))
            some = slice(first, max(first, min(num_keys, seen.stop)))
            yield RowBlock(heads, rows, _narrowed(inputs, heads, rows, some))


def _strips(num_queries: int, width: int, room: int) -> Iterator[slice]:
    """Yield rows of so many numbers each that fit into a room at once."""
    height = max(1, room // max(1, width))
    for row in range(0, num_queries, height):
        yield slice(row, min(num_queries, row + height))


def _room(device: torch.device) -> int:
    return _CPU_NUMBERS if device.type == "cpu" else _GPU_NUMBERS


def summary_of(inputs: SummaryInputs, *, tiles: int, top: int) -> Summary:
    """Summarize an attention, block by block."""
    lengths = inputs.num_queries, inputs.num_keys
    gathered = _Gathered(inputs.query, inputs.num_heads, lengths, tiles, top, inputs.offset)
    for block in blocks_of(inputs):
        scores = inputs.scores(*block)
        weights, log_sum = attention_weights(scores), scores.logsumexp(-1)
        gathered.take(block, weights, scores, log_sum)
    return gathered.summary(inputs.shape)


def summary_of_weights(weights: Tensor, *, tiles: int, top: int) -> Summary:
    """Summarize given weights, (..., query, key), such as edited ones; log_sum is ln Σ w, 0 for a
    sum of 1.

    Rows that do not sum to 1 keep their entropy, `-Σ w ln w`; distance and spread are those of
    their shares.
    """
    weights = checked_weights(weights, 2).detach()
    require_integer("tiles", tiles)
    require_integer("top", top)
    num_queries, num_keys = weights.shape[-2:]
    shape, flat = weights.shape[:-2], weights.reshape(-1, num_queries, num_keys)
    gathered = _Gathered(
        weights, len(flat), (num_queries, num_keys), tiles, top, num_keys - num_queries
    )
    for head in range(len(flat)):
        for rows in _strips(num_queries, num_keys, _room(weights.device)):
            block = RowBlock(slice(head, head + 1), rows, slice(0, num_keys))
            some = flat[block.heads, block.queries]
            gathered.take(block, some, some, some.sum(-1).log())
    return gathered.summary(tuple(shape))


class _Gathered:
    """A summary that is assembled from blocks."""

    def __init__(
        self, like: Tensor, heads: int, lengths: tuple[int, int], tiles: int, top: int, offset: int
    ) -> None:
        self._lengths, self._top, self._offset = lengths, top, offset
        self._cell = cell_size(lengths[0], tiles), cell_size(lengths[1], tiles)
        self._rows = {name: like.new_empty(heads, lengths[0]) for name in Summary._fields[:9]}
        self._rows["top_weights"] = like.new_empty(heads, lengths[0], top)
        self._rows["top_keys"] = self._rows["top_weights"].long()
        size = (-(-length // cell) for length, cell in zip(lengths, self._cell, strict=True))
        self._total = like.new_zeros(heads, *size)
        self._largest = torch.zeros_like(self._total)

    def take(self, block: RowBlock, weights: Tensor, order: Tensor, log_sum: Tensor) -> None:
        """Add the weights of a block; `order` as in `row_statistics`."""
        queries = torch.arange(block.queries.start, block.queries.stop, device=weights.device)
        position = queries + self._offset
        statistics = row_statistics(
            weights, order, log_sum, top=self._top, position=position, first_key=block.keys.start
        )
        for name, part in statistics.items():
            self._rows[name][block.heads, block.queries] = part
        pool(weights, block, self._cell, self._total, self._largest)

    def summary(self, shape: tuple[int, ...]) -> Summary:
        """Return the summary, with the heads in their leading axes again."""
        counts = cell_counts(self._lengths, self._cell).to(self._total)
        parts = {**self._rows, "map_mean": self._total / counts, "map_max": self._largest}
        shaped = {name: part.reshape(*shape, *part.shape[1:]) for name, part in parts.items()}
        return Summary(**shaped, cells=torch.tensor(self._cell))


def cell_counts(lengths: tuple[int, int], cell: tuple[int, int]) -> Tensor:
    """Return how many weights each cell holds, (query cell, key cell); the last may hold fewer."""
    high = (lengths[0] - torch.arange(0, lengths[0], cell[0])).clamp(max=cell[0])
    wide = (lengths[1] - torch.arange(0, lengths[1], cell[1])).clamp(max=cell[1])
    return high.unsqueeze(-1) * wide


def _narrowed(inputs: SummaryInputs, heads: slice, queries: slice, keys: slice) -> slice:
    """Leave out the keys before the first and after the last that a mask allows in this block."""
    mask = inputs.mask_block(heads, queries, keys)
    if mask is None or not mask.numel():
        return keys
    allowed = mask if mask.dtype == torch.bool else mask != float("-inf")
    seen = allowed.flatten(0, 1).any(0).nonzero()
    if not len(seen):
        return slice(keys.start, keys.start)
    return slice(keys.start + int(seen[0]), keys.start + int(seen[-1]) + 1)


def pool(
    weights: Tensor, block: RowBlock, cell: tuple[int, int], total: Tensor, largest: Tensor
) -> None:
    """Add a block's weights to the cells that they lie in."""
    if block.keys.start == block.keys.stop:
        return
    columns, padding = _cells(block.keys, cell[1])
    # Padding with zeros changes neither the sum nor the largest weight of a cell.
    in_columns = F.pad(weights, padding).reshape(*weights.shape[:2], -1, cell[1])
    rows, padding = _cells(block.queries, cell[0])
    place = (block.heads, rows, columns)
    size = (len(weights), rows.stop - rows.start, cell[0], columns.stop - columns.start)
    total[place] += F.pad(in_columns.sum(-1), (0, 0, *padding)).reshape(size).sum(2)
    maxima = F.pad(in_columns.amax(-1), (0, 0, *padding)).reshape(size).amax(2)
    largest[place] = largest[place].maximum(maxima)


def _cells(positions: slice, cell: int) -> tuple[slice, tuple[int, int]]:
    """Return the cells of some positions, and how many positions are missing at both ends."""
    cells = slice(positions.start // cell, -(-positions.stop // cell))
    return cells, (positions.start - cells.start * cell, cells.stop * cell - positions.stop)
