"""Deep zoom: a pattern of attention as a pyramid of tiles, each computed exactly on demand.

At level 0 a cell is one weight, at level n the mean and the largest of 2^n × 2^n weights; a tile
has `side` × `side` cells. Only queries, keys, mask and one number for each query are held, so any
part of 65,536 × 65,536 weights can be shown without computing all of them.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from attnlab.display import displayed
from attnlab.errors import WrongUsage
from attnlab.look.indices import check_slice, is_index
from attnlab.look.summaries.question import Pattern, Question, ask, ask_about
from attnlab.look.summaries.row_blocks import cell_counts, pool, strips_of
from attnlab.look.summaries.summarize import answer
from attnlab.shapes import require_integer, shape_text
from attnlab.sites import AttentionCall


@displayed
class Tile(NamedTuple):
    """A part of a pattern in cells, (query cell, key cell) each: mean and largest weight; smaller
    at the ends.

    queries and keys: the positions that it covers. allowed: how many weights of each cell are not
    masked; where that is 0, mean and largest are 0. cell: the positions along a side of a cell.
    """

    mean: Tensor
    max: Tensor
    queries: slice
    keys: slice
    allowed: Tensor
    cell: int


@displayed
class Zoom:
    """The pyramid of tiles of each head's pattern: `zoom.tile(level, row, column, head=(0, 3))`.

    Args:
        query, key, mask, scale: as in `summarize`.
        side: how many cells a tile has along each axis.

    >>> zoom = Zoom(torch.zeros(600, 4), torch.zeros(600, 4), side=256)
    >>> zoom.num_levels, zoom.grid(0), zoom.grid(2)
    (3, (3, 3), (1, 1))
    >>> zoom.tile(0, 2, 0).mean.shape
    torch.Size([88, 256])
    """

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        mask: Pattern = None,
        *,
        scale: float | bool | None = None,
        side: int = 256,
    ) -> None:
        question = ask(query, key, mask, scale=scale)
        self._open(question, question.shape, side)

    @classmethod
    def of(cls, call: AttentionCall, *, side: int = 256) -> Self:
        """Zoom into an attention call; its heads are numbered as the query's."""
        zoom = cls.__new__(cls)
        zoom._open(ask_about(call), tuple(call.query.shape[:-2]), side)
        return zoom

    def _open(self, question: Question, shape: tuple[int, ...], side: int) -> None:
        self._question, self.shape, self.side = question, shape, require_integer("side", side)
        longest = max(question.num_queries, question.num_keys, 1)
        self.num_levels = 1 + max(0, (-(-longest // side) - 1).bit_length())
        self._log_sum: Tensor | None = None

    def grid(self, level: int) -> tuple[int, int]:
        """Return how many rows and columns of tiles a level has."""
        if not is_index(level, self.num_levels):
            raise WrongUsage(f"there are levels 0 to {self.num_levels - 1}; got {level!r}.")
        reach = self.side << level
        return -(-self._question.num_queries // reach), -(-self._question.num_keys // reach)

    def tile(self, level: int, row: int, column: int, *, head: int | tuple[int, ...] = ()) -> Tile:
        """Compute a tile of one head; `head` numbers it in the leading axes.

        Raises:
            WrongUsage: there is no such head, level or tile.
        """
        rows, columns = self.grid(level)
        if not (is_index(row, rows) and is_index(column, columns)):
            raise WrongUsage(f"level {level} has {rows} × {columns} tiles; got {(row, column)}.")
        reach, question = self.side << level, self._question
        queries = slice(row * reach, min((row + 1) * reach, question.num_queries))
        keys = slice(column * reach, min((column + 1) * reach, question.num_keys))
        return self._tile(queries, keys, self._number(head), 1 << level)

    def part(
        self, queries: slice, keys: slice, *, head: int | tuple[int, ...] = (), cell: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Compute mean and largest weight in cells of cell × cell of any part, counted from the
        part's corner.

        Raises:
            WrongUsage: there is no such head, query or key, or `cell` is not 1 or more.
        """
        require_integer("cell", cell)
        queries = check_slice("queries", queries, self._question.num_queries)
        keys = check_slice("keys", keys, self._question.num_keys)
        tile = self._tile(queries, keys, self._number(head), cell)
        return tile.mean, tile.max

    @torch.no_grad()
    def _tile(self, queries: slice, keys: slice, number: int, cell: int) -> Tile:
        question = self._question
        if self._log_sum is None:
            log_sums = answer(question, tiles=1, top=1).log_sum
            self._log_sum = log_sums.reshape(-1, question.num_queries)
        cells = [-(-(part.stop - part.start) // cell) for part in (queries, keys)]
        total, largest, allowed, any_of_them = question.query.new_zeros(4, 1, *cells)
        whole = (slice(number, number + 1), queries, keys)
        for block in strips_of(question, *whole):
            log_sum = self._log_sum[block.heads, block.queries].unsqueeze(-1)
            scores = question.scores(*block)
            weights = (scores - log_sum).exp().masked_fill(log_sum == float("-inf"), 0.0)
            place = block.within(*whole)
            pool(weights, place, (cell, cell), total, largest)
            pool((scores != float("-inf")).to(scores), place, (cell, cell), allowed, any_of_them)
        counts = cell_counts((queries.stop - queries.start, keys.stop - keys.start), (cell, cell))
        return Tile(total[0] / counts.to(total), largest[0], queries, keys, allowed[0].long(), cell)

    def _number(self, head: int | tuple[int, ...]) -> int:
        places = tuple(head) if isinstance(head, Sequence) else (head,)
        if len(places) != len(self.shape) or not all(map(is_index, places, self.shape)):
            shape = shape_text(self.shape)
            raise WrongUsage(f"a head is an index into the leading axes {shape}; got {head!r}.")
        return int(torch.arange(self._question.num_heads).reshape(self.shape)[places])
