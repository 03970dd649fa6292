"""The arguments of a summary in one form: queries and keys with any leading axes, a band, a mask.

Both implementations start from it.
"""

import math
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor

from attnlab.errors import WrongUsage, is_integer
from attnlab.parts.attend import attention_scores, scale_factor
from attnlab.parts.masks import as_tensor, refuse_zeros_and_ones
from attnlab.shapes import check_attention_shapes, require_integer, shape_text
from attnlab.sites import AttentionCall

MaskOrWindow = Tensor | Literal["causal"] | int | None
"""A mask as `attend` takes it, or the width of a sliding window."""

FAR = 2**30  # farther than any key
_MOST = 2**24  # positions below it are exact in float32


@dataclass(frozen=True)
class SummaryInputs:
    """Queries (..., query, width), keys (..., key, width) and perhaps a mask (..., query, key),
    views of one shape.

    A query at `position` among the keys may attend to keys from position - left to position +
    right. Heads are numbered through all leading axes.
    """

    query: Tensor
    key: Tensor
    mask: Tensor | None
    left: int
    right: int
    scale: float
    offset: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The leading axes."""
        return tuple(self.query.shape[:-2])

    @property
    def num_heads(self) -> int:
        """The number of heads in all leading axes."""
        return math.prod(self.shape)

    @property
    def num_queries(self) -> int:
        """The number of queries."""
        return self.query.shape[-2]

    @property
    def num_keys(self) -> int:
        """The number of keys."""
        return self.key.shape[-2]

    @property
    def mask_offset(self) -> int:
        """The position of the first query in masks: the queries are the last positions."""
        return self.num_keys - self.num_queries

    def seen(self, queries: slice) -> slice:
        """Return the keys that the band allows for some queries."""
        first = min(self.num_keys, max(0, queries.start + self.mask_offset - self.left))
        last = min(self.num_keys, queries.stop + self.mask_offset + self.right)
        return slice(first, max(first, last))

    def mask_block(self, heads: slice, queries: slice, keys: slice) -> Tensor | None:
        """Return a part of the mask, (head, query, key), without the band."""
        if self.mask is None:
            return None
        return self._of(self.mask[..., queries, keys], heads)

    def scores(self, heads: slice, queries: slice, keys: slice) -> Tensor:
        """Compute a part of the scores, (head, query, key), as `attend` does."""
        mask = self.mask_block(heads, queries, keys)
        if self.left < FAR or self.right < FAR:
            device = self.query.device
            position = torch.arange(queries.start, queries.stop, device=device) + self.mask_offset
            distance = position.unsqueeze(-1) - torch.arange(keys.start, keys.stop, device=device)
            band = (distance <= self.left) & (distance >= -self.right)
            if mask is None:
                mask = band
            elif mask.dtype == torch.bool:
                mask = mask & band
            else:
                mask = mask.masked_fill(~band, float("-inf"))
        query = self._of(self.query[..., queries, :], heads)
        key = self._of(self.key[..., keys, :], heads)
        return attention_scores(query, key, mask, scale=self.scale)

    def _of(self, tensor: Tensor, heads: slice) -> Tensor:
        if not self.shape:
            return tensor.unsqueeze(0)
        numbers = torch.arange(heads.start, heads.stop, device=tensor.device)
        return tensor[torch.unravel_index(numbers, self.shape)]


def summary_inputs(
    query: Tensor,
    key: Tensor,
    mask: MaskOrWindow = None,
    *,
    scale: float | bool | None = None,
    offset: int | None = None,
) -> SummaryInputs:
    """Check the arguments of `summarize`, and return them in one form."""
    check_attention_shapes(query, key, key, mask if isinstance(mask, Tensor) else None)
    if max(query.shape[-2], key.shape[-2]) >= _MOST:
        raise WrongUsage(f"at most {_MOST - 1:,} positions; got {shape_text(query.shape)}.")
    if offset is None:
        offset = key.shape[-2] - query.shape[-2]
    if not is_integer(offset) or abs(offset) >= _MOST:
        raise WrongUsage(f"offset is an integer, the first query's position; got {offset!r}.")
    refuse_zeros_and_ones(mask)
    left, right, tensor = _band(mask)
    dtype = torch.promote_types(query.dtype, torch.float32)
    query, key = query.detach().to(dtype), key.detach().to(dtype)
    shape = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])  # type: ignore[no-untyped-call]
    if tensor is not None:
        tensor = tensor.detach().expand(*shape, query.shape[-2], key.shape[-2])
    return SummaryInputs(
        query=query.expand(*shape, *query.shape[-2:]),
        key=key.contiguous().expand(*shape, *key.shape[-2:]),
        mask=tensor,
        left=left,
        right=right,
        scale=scale_factor(scale, query.shape[-1]),
        offset=offset,
    )


def call_inputs(call: AttentionCall) -> SummaryInputs:
    """Return an attention call in that form; its heads are numbered as the query's.

    Heads that share keys become an axis of their own, over which the keys are not repeated.
    """
    query, key, mask = call.query, call.key, cast(MaskOrWindow, call.mask)
    num_kv_heads = key.shape[-3]
    if num_kv_heads != query.shape[-3]:
        query, key = _grouped(query, num_kv_heads), key.unsqueeze(-3)
        if isinstance(mask, Tensor) and mask.dim() > 2:
            is_shared = mask.shape[-3] == 1
            mask = mask.unsqueeze(-3) if is_shared else _grouped(mask, num_kv_heads)
    return summary_inputs(query, key, mask, scale=call.scale)


def _grouped(tensor: Tensor, groups: int) -> Tensor:
    return tensor.reshape(*tensor.shape[:-3], groups, -1, *tensor.shape[-2:])


def _band(mask: MaskOrWindow) -> tuple[int, int, Tensor | None]:
    if mask is None:
        return FAR, FAR, None
    if isinstance(mask, str):
        if mask != "causal":
            raise WrongUsage(f'a mask is a tensor, None, "causal" or a window; got {mask!r}.')
        return FAR, 0, None
    if isinstance(mask, Tensor):
        return FAR, FAR, as_tensor(mask, 0, 0)
    return min(require_integer("the window", mask), FAR) - 1, 0, None
