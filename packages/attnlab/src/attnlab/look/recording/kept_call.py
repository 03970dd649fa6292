"""Scores and weights on demand, whole or in tiles, from queries, keys, the mask and the scale.

They are computed as `attend` does, block by block, so that little more memory is needed than for
the result.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.parts.attend import attention_scores, attention_weights, certainly_finite
from attnlab.parts.heads import share_heads

_BLOCK = 2**20  # numbers made at a time
ALL = slice(None)


class GrowingTensor:
    """A tensor that grows along its length, (batch, kv_head, key, width); earlier lengths of it
    stay available.

    Room is doubled when it runs out, as in the cache itself.
    """

    def __init__(self, start: Tensor) -> None:
        self.store = start
        self.used = start.shape[-2]

    def goes_on(self, value: Tensor, length: int) -> bool:
        """Does a value begin with exactly the held tensor, up to `length`?"""
        held = self.store[..., :length, :]
        return value.dtype == held.dtype and torch.equal(value[..., :length, :], held)

    def room_for(self, length: int) -> int:
        """Return the bytes to allocate for this length; 0 if there is room."""
        if length <= self.store.shape[-2]:
            return 0
        return self.store[..., :1, :].nbytes * max(length, 2 * self.store.shape[-2])

    def write(self, value: Tensor, start: int) -> None:
        """Append the end of a value, from `start` on."""
        if value.shape[-2] > self.store.shape[-2]:
            room = max(value.shape[-2], 2 * self.store.shape[-2])
            larger = self.store.new_zeros((*self.store.shape[:-2], room, self.store.shape[-1]))
            larger[..., :start, :] = self.store[..., :start, :]
            self.store = larger
        self.used = value.shape[-2]
        self.store[..., start : self.used, :] = value[..., start:, :]


class TensorPrefix(NamedTuple):
    """The beginning of a tensor that has grown since: keys or values under a cache."""

    grown: GrowingTensor
    length: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape at the time."""
        return tuple(self.tensor().shape)

    def tensor(self) -> Tensor:
        """Return the tensor as it was at the time."""
        return self.grown.store[..., : self.length, :]


class KeptMask(NamedTuple):
    """The mask of one attention, as `attend` takes it, with its numbers of queries and keys."""

    mask: Tensor | str | None
    num_queries: int
    num_keys: int
    device: torch.device

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the mask as `tensor` returns it."""
        if isinstance(self.mask, Tensor):
            return tuple(self.mask.shape)
        return self.num_queries, self.num_keys

    def working_bytes(self, head: int | None = None, queries: int | None = None) -> int:
        """Return the memory that the mask's rows of some queries take, for one input."""
        heads = self.shape[-3] if head is None and len(self.shape) > 2 else 1
        if queries is None:
            queries = self.num_queries
        return heads * queries * self.num_keys

    def part(
        self, row: int | None = None, head: int | None = None, queries: slice = ALL
    ) -> Tensor | None:
        """Return the rows of some queries, (batch or 1, head or 1, query, key); "causal" is written
        out."""
        if self.mask is None:
            return None
        if isinstance(self.mask, str):
            past = self.num_keys - self.num_queries
            places = torch.arange(self.num_queries, device=self.device)[queries] + past
            allowed = torch.arange(self.num_keys, device=self.device) <= places.unsqueeze(-1)
            return allowed[None, None]
        mask = self.with_heads()
        if row is not None and mask.shape[0] > 1:
            mask = mask[row : row + 1]
        if head is not None and mask.shape[1] > 1:
            mask = mask[:, head : head + 1]
        return mask.expand(-1, -1, self.num_queries, self.num_keys)[:, :, queries]

    def with_heads(self) -> Tensor:
        """Return a mask that is a tensor with all its axes, (batch, head, query, key)."""
        assert isinstance(self.mask, Tensor)
        return self.mask[(None,) * (4 - self.mask.dim())]

    def blocked(self, row: int, head: int | None) -> Tensor | None:
        """Return which keys of one input are masked, (1, head or 1, query, key); None without a
        mask."""
        mask = self.part(row, head)
        if mask is None:
            return None
        if mask.dtype == torch.bool:
            return ~mask
        return mask == float("-inf")


class KeptCall(NamedTuple):
    """The weights or the scores of one attention call, computed on demand.

    query (batch, head, query, head_width) · key (batch, kv_head, key, head_width).
    """

    query: Tensor
    key: Tensor | TensorPrefix
    mask: KeptMask
    scale: float | bool | None
    what: str = "weights"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the weights: (batch, head, query, key)."""
        return (*self.query.shape[:3], self.mask.num_keys)

    @property
    def keys(self) -> Tensor:
        """The keys of this call."""
        return self.key.tensor() if isinstance(self.key, TensorPrefix) else self.key

    def make(
        self,
        row: int | None = None,
        head: int | None = None,
        queries: slice = ALL,
        keys: slice = ALL,
    ) -> Tensor:
        """Compute the weights or the scores of all rows and heads or of one: (batch or 1, head or
        1, query, key)."""
        query, key = self.query, self.keys
        if row is not None:
            query, key = query[row : row + 1], key[row : row + 1]
        if head is not None:
            kv_head = head * key.shape[1] // query.shape[1]
            query, key = query[:, head : head + 1], key[:, kv_head : kv_head + 1]
        key = share_heads(key, query.shape[1])
        if torch._C._are_functorch_transforms_active():
            return self._block(query, key, self.mask.part(row, head, queries), queries, keys)
        start, stop, _ = queries.indices(query.shape[2])
        width = len(range(*keys.indices(key.shape[2])))
        made = query.new_full(
            (*query.shape[:2], stop - start, width),
            0.0 if self.what == "weights" else float("-inf"),
            dtype=torch.promote_types(query.dtype, torch.float32),
        )
        is_simple = self._is_simple(query, key)
        step = max(1, _BLOCK // max(1, query.shape[0] * query.shape[1] * key.shape[2]))
        for first in range(start, stop, step):
            block = slice(first, min(first + step, stop))
            if is_simple:
                weights = self._simple_block(query, key, block, keys)
            else:
                weights = self._block(query, key, self.mask.part(row, head, block), block, keys)
            made[:, :, first - start : block.stop - start, : weights.shape[3]] = weights
        return made

    def _is_simple(self, query: Tensor, key: Tensor) -> bool:
        """Is there no mask but a causal one, under which every query has a key, and no NaN?"""
        if isinstance(self.mask.mask, Tensor) or not key.shape[2]:
            return False
        is_short = self.mask.mask is not None and query.shape[2] > self.mask.num_keys
        return not is_short and certainly_finite(query, key, scale=self.scale)

    @torch.no_grad()
    def _block(
        self, query: Tensor, key: Tensor, mask: Tensor | None, queries: slice, keys: slice
    ) -> Tensor:
        scores = attention_scores(query[:, :, queries], key, mask, scale=self.scale)
        if self.what == "weights":
            return attention_weights(scores)[..., keys]
        return scores[..., keys]

    @torch.no_grad()
    def _simple_block(self, query: Tensor, key: Tensor, queries: slice, keys: slice) -> Tensor:
        """Compute finite rows with no mask but a causal one, without the keys after all these
        queries."""
        start, stop, num_keys = queries.start, queries.stop, key.shape[2]
        past = num_keys - query.shape[2]
        is_causal = self.mask.mask is not None
        reach = past + stop if is_causal else num_keys
        scores = attention_scores(query[:, :, start:stop], key[:, :, :reach], scale=self.scale)
        if is_causal:
            square = torch.ones(stop - start, stop - start, device=query.device)
            scores[..., past + start :].masked_fill_(square.triu(1).bool(), float("-inf"))
        if self.what == "weights":
            scores = scores.softmax(-1)
        return scores[..., slice(*keys.indices(num_keys))]


def working_bytes(shape: Sequence[int], dtype: torch.dtype) -> int:
    """Return the memory that computing so many numbers takes, one block's intermediates
    included."""
    size = torch.Size(shape).numel()
    width = max(4, dtype.itemsize)
    return width * (size + 4 * min(size, _BLOCK))
