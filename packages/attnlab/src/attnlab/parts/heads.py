"""Multi-head attention: several attentions side by side, each over its own slice of the width.

MultiHead(Q, K, V) = Concat(head_1 … head_h) W_output (Vaswani et al. 2017, §3.2.2); with fewer
key/value heads than query heads, each is shared by a group of neighbours (Ainslie et al. 2023). One
class serves self- and cross-attention: what is looked at is the argument `context`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.errors import WrongUsage
from attnlab.parts.attend import (
    Attention,
    attend,
    attention_scores,
    attention_weights,
    weighted_values,
)
from attnlab.parts.cache import LayerCache
from attnlab.parts.masks import Mask, as_tensor, refuse_zeros_and_ones
from attnlab.parts.positions import Alibi, Rotary
from attnlab.parts.projections import Projection, ProjectionKind, make_projection
from attnlab.shapes import require_integer, shape_text
from attnlab.sites import AttentionCall, OutputSlot, SitedModule


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(..., length, head · head_width) -> (..., head, length, head_width)."""
    *axes, width = x.shape
    if width % num_heads:
        raise WrongUsage(f"a width of {width} cannot be split into {num_heads} equal heads.")
    return x.reshape(*axes, num_heads, width // num_heads).transpose(-3, -2)


def join_heads(x: Tensor) -> Tensor:
    """(..., head, length, head_width) -> (..., length, head · head_width), the inverse of
    `split_heads`."""
    return x.transpose(-3, -2).flatten(-2)


def share_heads(x: Tensor, num_heads: int) -> Tensor:
    """Repeat each key/value head for the query heads of its group: (..., kv_head, key, w) -> (...,
    head, key, w)."""
    num_kv_heads = x.shape[-3]
    if num_kv_heads == num_heads:
        return x
    return x.repeat_interleave(num_heads // num_kv_heads, dim=-3)


class HeadLayout(NamedTuple):
    """How many heads look, and how many keys and values they share."""

    num_heads: int
    num_kv_heads: int


class MultiHeadAttention(SitedModule):
    """Attention over `num_heads` slices, between four projections that the caller provides.

    Args:
        query, key, value: projections to (head · head_width), (kv_head · head_width), (kv_head ·
            value_width).
        output: projection from (head · value_width) back to d_model.
        num_heads: heads that look.
        num_kv_heads: heads that are looked at; None for as many, 1 for multi-query attention.
        position: a `Rotary` that turns queries and keys, or an `Alibi` that biases scores, or None.
        scale: as in `attend`.
        dropout: probability of dropping a weight, in training only.
    """

    sites = ("query", "key", "value", "mask", "scores", "weights", "heads", "output")

    def __init__(
        self,
        *,
        query: Projection,
        key: Projection,
        value: Projection,
        output: Projection,
        num_heads: int,
        num_kv_heads: int | None = None,
        position: Rotary | Alibi | None = None,
        scale: float | bool | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if num_kv_heads is None:
            num_kv_heads = require_integer("num_heads", num_heads)
        require_integer("num_kv_heads", num_kv_heads)
        if require_integer("num_heads", num_heads) % num_kv_heads:
            raise WrongUsage(
                f"num_heads must be a multiple of num_kv_heads; got {num_heads} and {num_kv_heads}."
            )
        self.query, self.key, self.value, self.output = query, key, value, output
        self.layout = HeadLayout(num_heads, num_kv_heads)
        self.position, self.scale, self.dropout = position, scale, dropout

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        *,
        mask: Mask = None,
        cache: LayerCache | None = None,
        need_weights: bool = False,
    ) -> Attention:
        """Let x look at itself, or at `context`.

        Args:
            x: (batch, query, d_model)
            context: (batch, key, d_model); None for self-attention.
            mask: as in `attend`; a tensor broadcasts to (batch, head, query, key).
            cache: keys and values of earlier positions (self-attention), or of the whole context,
                kept from call to call; positions count on from what it holds.
            need_weights: also return weights and scores, (batch, head, query, key).
        """
        if x.dim() != 3:
            raise WrongUsage(
                f"x must have shape (batch, length, d_model); got {shape_text(x.shape)}."
            )
        if context is not None and self.position is not None:
            raise WrongUsage(
                f"{type(self.position).__name__} positions compare places in one sequence; "
                "cross-attention looks at another. Build it with position=None."
            )
        known = self.supplied("heads") if self._installed else None
        if known is not None:
            attention = Attention(known)
        else:
            attention = self._looked(x, context, mask, cache, need_weights)
        heads = self.visit("heads", attention.output)
        output = self.visit("output", self.output(join_heads(heads)))
        return Attention(output, attention.weights, attention.scores)

    def _looked(
        self,
        x: Tensor,
        context: Tensor | None,
        mask: Mask,
        cache: LayerCache | None,
        need_weights: bool,
    ) -> Attention:
        """What the heads gather, each by itself: (batch, head, query, value_width)."""
        refuse_zeros_and_ones(mask)
        offset = 0
        if cache is not None and context is None:
            offset = cache.length
        query = split_heads(self.query(x), self.layout.num_heads)
        if cache is not None and context is not None and cache.length:
            key, value = cache.keys_and_values()
        else:
            key, value = self._keys_and_values(x if context is None else context, offset, cache)
        if isinstance(self.position, Rotary):
            query = self.position(query, offset)
        if self._installed:
            query = self.visit("query", query)
            key = self.visit("key", key)
            value = self.visit("value", value)
        if isinstance(self.position, Alibi):
            mask = self.position.masked(mask, query.shape[-2], key.shape[-2], query)
        dropout = 0.0
        if self.training:
            dropout = self.dropout
        return attend_at(
            self,
            query,
            key,
            value,
            mask,
            scale=self.scale,
            dropout=dropout,
            need_weights=need_weights,
            is_cross=context is not None,
        )

    def _keys_and_values(
        self, source: Tensor, offset: int, cache: LayerCache | None
    ) -> tuple[Tensor, Tensor]:
        """Project keys and values, (batch, kv_head, key, width), and add them to a cache."""
        key = split_heads(self.key(source), self.layout.num_kv_heads)
        value = split_heads(self.value(source), self.layout.num_kv_heads)
        if isinstance(self.position, Rotary):
            key = self.position(key, offset)
        if cache is None:
            return key, value
        return cache.append(key, value)

    def extra_repr(self) -> str:
        """What printing the module shows of it."""
        return (
            f"num_heads={self.layout.num_heads}, num_kv_heads={self.layout.num_kv_heads}, "
            f"dropout={self.dropout:g}"
        )


def attend_at(
    part: SitedModule,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask,
    *,
    scale: float | bool | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
    is_cross: bool = False,
) -> Attention:
    """Attend as `attend` does, at a module's hook point: mask, scores and weights can be hooked.

    Shapes: query (batch, head, query, head_width), key and value (batch, kv_head, key, width). The
    fused kernel runs unless the weights are returned, the part is explicit, or a hook may change
    the scores or the weights.
    """
    is_explicit, guard = False, part.guard
    need_weights = need_weights or part.is_explicit
    if part._installed:  # most often not: then this costs nothing
        shown = mask_to_show(part, mask, query, key)
        if shown is not None:
            mask = part.visit("mask", shown)
        is_explicit = part.wants("scores", "weights", to_change=True)
        place = None if is_explicit or dropout or need_weights else OutputSlot()
        part.watch(AttentionCall(query, key, value, mask, scale, is_explicit, is_cross, place))
        if place is not None and place.output is not None:
            return Attention(place.output)
    num_heads = query.shape[-3]
    if not key.shape[-3] == value.shape[-3] == num_heads:
        key, value = share_heads(key, num_heads), share_heads(value, num_heads)
    if not is_explicit:
        return attend(
            query, key, value, mask,
            scale=scale, dropout=dropout, need_weights=need_weights, guard=guard,
        )  # fmt: skip
    scores = part.visit("scores", attention_scores(query, key, mask, scale=scale, guard=guard))
    weights = part.visit("weights", attention_weights(scores, guard=guard))
    output = weighted_values(weights, value, dropout=dropout, guard=guard).to(query.dtype)
    return Attention(output, weights, scores)


def mask_to_show(part: SitedModule, mask: Mask, query: Tensor, key: Tensor) -> Tensor | None:
    """Return the mask that a module's hooks ask for; where it has none, one that allows all if they
    may change it, otherwise None."""
    if not part.wants("mask"):
        return None
    sizes = query.shape[-2], key.shape[-2]
    tensor = as_tensor(mask, *sizes, query.device)
    if tensor is None and part.wants("mask", to_change=True):
        tensor = torch.ones(*sizes, dtype=torch.bool, device=query.device)
    return tensor


def multi_head_attention(
    d_model: int,
    num_heads: int,
    *,
    num_kv_heads: int | None = None,
    projections: ProjectionKind = "dense",
    rank: int | None = None,
    temperature: float = 1.0,
    bias: bool = True,
    position: Rotary | Alibi | None = None,
    scale: float | bool | None = None,
    dropout: float = 0.0,
) -> MultiHeadAttention:
    """Build multi-head attention: heads of width d_model / num_heads, four projections of one kind.

    Args:
        d_model: width of the stream, a multiple of `num_heads`.
        num_heads: heads of queries.
        num_kv_heads: heads of keys and values that the queries share; None for as many.
        projections: "dense" matrices; "strict", made of two thin ones by a softmax of rows; or
            "gated", the same times a free matrix.
        rank, temperature: of the thin matrices and their softmax; not for "dense".
        bias: do the projections have biases?
        position: a `Rotary` or an `Alibi`; None for none.
        scale: as `attend` takes it.
        dropout: the probability with which a weight is dropped in training.

    Returns:
        the module `MultiHeadAttention`: called with (batch, length, d_model), it returns an
        `Attention`.

    Raises:
        WrongUsage: sizes that do not divide, or arguments that do not go together.

    >>> import torch
    >>> multi_head_attention(8, 2)(torch.zeros(1, 3, 8)).output.shape
    torch.Size([1, 3, 8])
    """
    if require_integer("d_model", d_model) % require_integer("num_heads", num_heads):
        raise WrongUsage(f"d_model must be a multiple of num_heads; got {d_model} and {num_heads}.")
    head_width = d_model // num_heads
    if num_kv_heads is None:
        num_kv_heads = num_heads

    def projection(heads: int) -> Projection:
        return make_projection(
            projections, d_model, heads, head_width, rank=rank, temperature=temperature, bias=bias
        )

    output = make_projection("dense", d_model, num_heads, head_width, bias=bias)
    return MultiHeadAttention(
        query=projection(num_heads),
        key=projection(num_kv_heads),
        value=projection(num_kv_heads),
        output=output,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        position=position,
        scale=scale,
        dropout=dropout,
    )
