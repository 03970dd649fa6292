"""Patterns: where heads look, made anew from what an attention was computed from."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab.errors import WrongUsage
from attnlab.parts.attend import attention_scores, attention_weights
from attnlab.parts.heads import share_heads
from attnlab.parts.masks import as_tensor
from attnlab.sites import AttentionCall


@dataclass(frozen=True, eq=False)
class Pattern:
    """Where heads look: weights and allowed (row, head, query, key); value (row, head, key,
    value_width); is_cross: keys are of something else than the queries."""

    weights: Tensor
    allowed: Tensor
    value: Tensor
    is_cross: bool

    @property
    def real(self) -> Tensor:
        """Which queries are no padding, (row, head, query): some query may attend to them."""
        if self.is_cross or self.weights.shape[-1] != self.weights.shape[-2]:
            return torch.ones_like(self.allowed[..., 0])
        return self.allowed.any(-2)

    @property
    def real_weights(self) -> Tensor:
        """The weights, those of padded queries zero."""
        return self.weights.masked_fill(~self.real.unsqueeze(-1), 0.0)


def allowed_of(call: AttentionCall) -> Tensor:
    """Say who may look at whom in some head of some row: (query, key) boolean."""
    num_queries, num_keys = call.query.shape[-2], call.key.shape[-2]
    mask = as_tensor(call.mask, num_queries, num_keys, call.query.device)  # type: ignore[arg-type]
    if mask is None:
        return torch.ones(num_queries, num_keys, dtype=torch.bool, device=call.query.device)
    allowed = mask if mask.dtype == torch.bool else mask > float("-inf")
    return allowed.reshape(-1, *allowed.shape[-2:]).any(0).expand(num_queries, num_keys)


def scores_of(call: AttentionCall, head: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the scores (row, head, query, key), -inf where blocked, and each head's values.

    With a head's number, of that head alone; the axis stays, of size 1.

    Raises:
        WrongUsage: this attention makes its scores from more than is known of it.
    """
    if not call.is_whole:
        raise WrongUsage(
            "this model's scores are made from more than queries, keys and a mask (soft-capped "
            "scores, sinks, or an attention of which only the softmax is met), so patterns "
            "cannot be made anew here; change the weights by edits instead, such as CutEdge or "
            "UniformPattern."
        )
    num_heads, num_shared = call.query.shape[-3], call.key.shape[-3]
    query, key, value, mask = call.query, call.key, call.value, call.mask
    if head is None:
        key, value = share_heads(key, num_heads), share_heads(value, num_heads)
    else:
        shared = head * num_shared // num_heads  # neighbours share a key
        query = query[:, head : head + 1]
        key, value = key[:, shared : shared + 1], value[:, shared : shared + 1]
        if isinstance(mask, Tensor) and mask.dim() > 2 and mask.shape[-3] > 1:
            mask = mask[..., head : head + 1, :, :]
    scores = attention_scores(query, key, mask, scale=call.scale)  # type: ignore[arg-type]
    return scores, value.to(scores.dtype)


def pattern_of(call: AttentionCall, head: int | None = None) -> Pattern:
    """Return where all heads look, or one of them."""
    scores, value = scores_of(call, head)
    return Pattern(attention_weights(scores), scores > float("-inf"), value, call.is_cross)


def renormalised(weights: Tensor, allowed: Tensor) -> Tensor:
    """Keep what lies on allowed keys, and let each row sum to 1 again: (..., query, key) -> the
    same.

    A row with nothing left there is spread evenly over what it may look at; one that may look at
    nothing stays zeros. NaN, which comes where padding looks, is nothing.
    """
    kept = torch.where(allowed, weights, 0.0).nan_to_num(0.0)
    is_empty = kept.sum(-1, keepdim=True) <= 0.0
    kept = torch.where(is_empty, allowed.to(kept.dtype), kept)
    return kept / kept.sum(-1, keepdim=True).clamp(min=torch.finfo(kept.dtype).tiny)
