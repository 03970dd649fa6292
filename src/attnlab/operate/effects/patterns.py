"""Patterns: where heads look, made anew from what an attention was computed from."""

from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.parts.attend import attention_scores, attention_weights
from attnlab.parts.heads import share_heads
from attnlab.sites import AttentionCall

__all__ = ["Pattern", "pattern_of", "renormalised", "scores_of"]


class Pattern(NamedTuple):
    """Where heads look: weights and allowed (row, head, query, key); value (row, head, key, value_width)."""

    weights: Tensor
    allowed: Tensor
    value: Tensor


def scores_of(call: AttentionCall, head: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the scores (row, head, query, key), -inf where blocked, and each head's values (row, head, key, width).

    With a head's number, of that head alone; the axis stays, of size 1.
    """
    num_heads = call.query.shape[-3]
    query, key, value, mask = call.query, call.key, call.value, call.mask
    if head is None:
        key, value = share_heads(key, num_heads), share_heads(value, num_heads)
    else:
        shared = head * key.shape[-3] // num_heads  # neighbours share a key
        query, key, value = query[:, head : head + 1], key[:, shared : shared + 1], value[:, shared : shared + 1]
        if isinstance(mask, Tensor) and mask.dim() > 2 and mask.shape[-3] > 1:
            mask = mask[..., head : head + 1, :, :]
    scores = attention_scores(query, key, mask, scale=call.scale)  # type: ignore[arg-type]
    return scores, value.to(scores.dtype)


def pattern_of(call: AttentionCall, head: int | None = None) -> Pattern:
    """Return where all heads look, or one of them."""
    scores, value = scores_of(call, head)
    return Pattern(attention_weights(scores), scores > float("-inf"), value)


def renormalised(weights: Tensor, allowed: Tensor) -> Tensor:
    """Keep what lies on allowed keys, and let each row sum to 1 again: (..., query, key) -> the same.

    A row with nothing left there is spread evenly over what it may look at; one that may look at nothing stays zeros.
    """
    kept = torch.where(allowed, weights, 0.0)
    is_empty = kept.sum(-1, keepdim=True) <= 0.0
    kept = torch.where(is_empty, allowed.to(kept.dtype), kept)
    return kept / kept.sum(-1, keepdim=True).clamp(min=torch.finfo(kept.dtype).tiny)
