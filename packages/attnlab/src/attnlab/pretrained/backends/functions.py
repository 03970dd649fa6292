"""The functions backend: attention at torch's own functions, in models without a registry.

While a model runs, calls of `scaled_dot_product_attention` bring queries, keys, values and mask to
the hook point; in a model that writes attention out itself, its softmax brings scores and weights,
and the product with the values the heads' outputs. Only what tracing found to be attention is
intercepted: another softmax, such as a router's, is not.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnlab.errors import CouldNotRun
from attnlab.parts.attend import outside_autocast
from attnlab.parts.heads import share_heads
from attnlab.parts.masks import Mask, as_tensor
from attnlab.pretrained.attention_call import (
    SOFTMAXES,
    AttentionPoint,
    ForeignAttention,
    blocking,
    foreign_causal,
    hooked_softmax,
    softmax_or_zeros,
    softmax_parts,
)
from attnlab.pretrained.backends.multi_head import MULTI_HEAD, hooked_multi_head
from attnlab.pretrained.backends.products import WeightsProduct, carries
from attnlab.sites import AttentionCall

_HALF = (torch.float16, torch.bfloat16)
SDPA = torch.nn.functional.scaled_dot_product_attention
_BACKENDS = {SDPA: "sdpa", MULTI_HEAD: "multi-head"}


@dataclass(eq=False)
class _Waiting:
    """Weights that are still to be multiplied with values.

    shape: (batch, head, query, key) · shown: the weights as they were shown, None where the product
    shows them · version: of that tensor then · made: the weights and what was made of them ·
    is_dropped: dropout was applied to them.
    """

    point: AttentionPoint
    shape: tuple[int, ...]
    shown: Tensor | None
    version: int
    made: list[Tensor]
    is_dropped: bool = False

    def check(self, matrix: Tensor) -> None:
        """Raise if what multiplies the values is not what was shown."""
        if self.shown is None or self.is_dropped or not self.point.wants("scores", "weights"):
            return
        if torch._C._are_functorch_transforms_active():
            return
        used = matrix.reshape(self.shape)
        shown = self.shown.reshape(self.shape).to(used.dtype)
        # The weights of a query without a key are NaN in some models, before and after.
        is_same = torch.allclose(used, shown, rtol=0.0, atol=0.0, equal_nan=True)
        if version_of(self.shown) != self.version or not is_same:
            raise CouldNotRun(
                "this pass changes the weights between the softmax and the values (by a mask, a "
                "gate or a selection), unlike the pass in which the model was traced; load it "
                "again with an example= that changes them too."
            )


def version_of(value: Tensor) -> int:
    """Return how often a tensor was written into; 0 where torch does not count."""
    return 0 if value.is_inference() else value._version


class Functions(TorchFunctionMode):
    """Intercepts attention in one pass of a model.

    find: returns the hook point of the next call of a kind ("sdpa", "softmax"), counting them, or
    None.
    """

    def __init__(self, find: Callable[[str], AttentionPoint | None]) -> None:
        super().__init__()
        self._find = find
        self._waiting: list[_Waiting] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Intercept attention functions, softmaxes and products of their weights."""
        kwargs = kwargs or {}
        if func in SOFTMAXES:
            return self._softmax(func, args, kwargs)
        if func in _BACKENDS:
            point = self._find(_BACKENDS[func])
            if point is None:
                return func(*args, **kwargs)
            if func is SDPA:
                return _fused(point, *args, **kwargs)
            return hooked_multi_head(point, _fused, *args, **kwargs)
        for waiting in reversed(self._waiting):
            product = WeightsProduct.of(waiting.made, func, args, kwargs)
            shape = None if product is None else product.shape(waiting.shape[:2])
            if product is not None and shape is not None:
                self._waiting.remove(waiting)
                return _gathered(waiting, product, shape)
        output = func(*args, **kwargs)
        for waiting in self._waiting:
            if carries(waiting.made, args, output):
                waiting.made.append(output)
                waiting.is_dropped |= "dropout" in str(getattr(func, "__name__", ""))
        return output

    def _softmax(self, func: Callable[..., Tensor], args: Any, kwargs: Any) -> Tensor:
        scores, compute = softmax_parts(func, args, kwargs)
        point = self._find("softmax") if scores.dim() in (3, 4) else None
        if point is None or not is_over_keys(scores, args, kwargs):
            return func(*args, **kwargs)
        whole = scores
        if scores.dim() == 4:
            point.check_heads(scores.shape[1])
        else:
            whole = point.unfolded(scores)
        shape = tuple(whole.shape)
        if point.shows_product:
            weights = func(*args, **kwargs)
            self._waiting.append(_Waiting(point, shape, None, 0, [weights]))
            return weights
        cut = _watched(point, whole) if point.is_hooked else None

        def compute_whole(raw_scores: Tensor) -> Tensor:
            return compute(raw_scores.reshape(scores.shape)).reshape(shape)

        weights = hooked_softmax(point, shape[-1], whole, compute_whole, cut=cut)
        weights = weights.reshape(scores.shape)
        self._waiting.append(_Waiting(point, shape, weights, version_of(weights), [weights]))
        return weights


def _gathered(waiting: _Waiting, product: WeightsProduct, shape: tuple[int, ...]) -> Tensor:
    """Multiply weights with values, and show the product; the weights too, where they are not those
    of the softmax."""
    point, changed = waiting.point, None
    waiting.check(product.matrix)
    weights = product.matrix.reshape(shape)
    if waiting.shown is None and point.wants("weights"):
        blocked = weights == 0.0
        point.watch(_call_of(point, weights, ~blocked))
        # It tells an edit of weights which keys the model leaves out.
        point.visit("scores", torch.zeros_like(weights).masked_fill(blocked, float("-inf")))
        shown = point.visit("weights", weights)
        if shown is not weights or weights.requires_grad:
            weights = changed = shown
    output = product.run(changed)
    heads = product.heads(output, shape)
    edited = point.supplied("heads")
    if edited is None:
        edited = _with_value(point, product, weights, heads)
    edited = point.visit("heads", edited)
    if edited is heads and not heads.requires_grad:
        return output
    return product.turned_back(edited, output)


def _with_value(
    point: AttentionPoint, product: WeightsProduct, weights: Tensor, heads: Tensor
) -> Tensor:
    """Show the values, and return the heads that they make with the weights."""
    if not point.wants("value"):
        return heads
    value = product.every_value(weights.shape)
    edited = point.visit("value", value)
    made = weights @ edited
    if edited is not value:
        return made
    if made.requires_grad:  # the same numbers, and the gradient arrives at what was shown
        return heads.detach() + (made - made.detach())
    return heads


class WrittenOut(TorchFunctionMode):
    """Writes calls of torch's fused attention out, so that their softmax can be intercepted."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Write fused attention out, and call any other function."""
        if func is SDPA:
            func = _written_out
        return func(*args, **(kwargs or {}))


def is_over_keys(scores: Tensor, args: Any, kwargs: Any) -> bool:
    """Is a softmax computed over the last axis?"""
    dim = kwargs.get("dim")
    if len(args) > 1:
        dim = args[1]
    return dim in (-1, scores.dim() - 1)


def _fused(
    point: AttentionPoint,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *rest: Any,
    allowed: Mask = None,
    **named: Any,
) -> Tensor:
    """Bring a call of torch's fused attention to its hook point; `allowed` is the mask in our
    convention, if known."""
    call = _FusedCall(*rest, **named)
    is_flat = query.dim() == 3
    if is_flat:
        query, key, value = map(point.unfolded, (query, key, value))
        mask = call.attn_mask
        is_one_mask = mask is None or _is_causal_bias(mask) or len(mask) == 1
        if mask is not None and mask.dim() == 3 and not is_one_mask:
            mask = point.unfolded(mask)
        call = replace(call, attn_mask=mask, is_flat=True)
    mask = allowed
    if mask is None and point.is_hooked:
        mask = call.own_mask(query, key)
    factor = call.factor(query)
    attention = ForeignAttention(query, key, value, mask, factor, call.fused, call.explicit)
    heads: Tensor = point(attention)
    if is_flat:
        heads = heads.flatten(0, 1)
    return heads


def _is_causal_bias(mask: Any) -> bool:
    """Is a mask one of torch's causal biases, objects that hold no numbers?"""
    source = sys.modules.get("torch.nn.attention.bias")  # importing it would take seconds
    return source is not None and isinstance(mask, source.CausalBias)


@dataclass(frozen=True)
class _FusedCall:
    """The arguments of torch's fused attention beside query, key and value, by its own names and in
    its order. Query, key and value have a batch and a head axis here; is_flat: the model has both
    in one axis."""

    attn_mask: Any = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False
    is_flat: bool = False

    def factor(self, query: Tensor) -> float:
        """Return the factor of the scores."""
        return float(query.shape[-1] ** -0.5) if self.scale is None else self.scale

    def own_mask(self, query: Tensor, key: Tensor) -> Mask:
        """Return the model's mask, as `attend` takes it."""
        if _is_causal_bias(self.attn_mask):
            return (
                "causal"
                if self.attn_mask.variant.name == "LOWER_RIGHT"
                else foreign_causal(query, key)
            )
        if self.is_causal:
            return foreign_causal(query, key)
        mask: Tensor | None = self.attn_mask
        return mask if mask is None or mask.dtype == torch.bool else blocking(mask)

    def fused(self, query: Tensor, key: Tensor, value: Tensor, edited: Tensor | None) -> Tensor:
        """Compute the heads as the model does."""
        mask, is_causal = self.attn_mask, self.is_causal
        if edited is not None:
            mask, is_causal = edited, False
        rest = (self.dropout_p, is_causal)
        if not self.is_flat:
            shares = self.enable_gqa and key.shape[1] != query.shape[1]
            return SDPA(query, key, value, mask, *rest, scale=self.scale, enable_gqa=shares)
        if mask is not None and mask.dim() == 4:
            mask = mask.expand(*query.shape[:2], -1, -1).flatten(0, 1)
        q, k, v = (tensor.flatten(0, 1) for tensor in (query, key, value))
        gathered = SDPA(q, k, v, mask, *rest, scale=self.scale)
        return gathered.reshape(*query.shape[:3], value.shape[-1])

    def explicit(self, query: Tensor, key: Tensor, value: Tensor, edited: Tensor | None) -> Tensor:
        """Compute the heads by a softmax that can be intercepted."""
        mask = edited
        if mask is None:
            call_mask = self.own_mask(query, key)
            mask = as_tensor(call_mask, query.shape[-2], key.shape[-2], query.device)
        return _explicit_attention(query, key, value, mask, self.factor(query), self.dropout_p)


def _written_out(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **named: Any) -> Tensor:
    """Compute torch's fused attention, with its arguments, by a softmax."""
    return _FusedCall(*rest, **named).explicit(query, key, value, None)


@outside_autocast
def _explicit_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, factor: float, dropout: float
) -> Tensor:
    """Write torch's fused attention out, half precision in full."""
    dtype = query.dtype
    if dtype in _HALF:
        query, key, value = query.float(), key.float(), value.float()
    key, value = share_heads(key, query.shape[1]), share_heads(value, query.shape[1])
    scores = query @ key.transpose(-2, -1) * factor
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, float("-inf"))
    elif mask is not None:
        scores = scores + mask
    weights = softmax_or_zeros(scores)
    return (torch.nn.functional.dropout(weights, dropout) @ value).to(dtype)


def _watched(point: AttentionPoint, scores: Tensor) -> Tensor | None:
    """Show the mask of an attention whose softmax alone is intercepted; return the keys that an
    edit blocks beside it, (batch, head, query, key).

    Raises:
        CouldNotRun: an edit opens what the model has blocked.
    """
    mask = cut = None
    if point.wants("mask", "scores", "weights"):
        mask = allowed = scores > torch.finfo(scores.dtype).min / 2
        if point.wants("mask"):
            call = _call_of(point, scores, None)
            point.visit("query", call.query)  # they tell an edit the sizes
            point.visit("key", call.key)
            mask = point.visit("mask", allowed)
        if bool((mask & ~allowed).any()):
            raise CouldNotRun(
                "an edit unblocks keys that the mask of this model blocks, and the model has "
                "overwritten their scores before its softmax; an edit can only block more keys."
            )
        if mask is not allowed:
            cut = allowed & ~mask
    point.watch(_call_of(point, scores, mask))
    return cut


def _call_of(point: AttentionPoint, values: Tensor, mask: Tensor | None) -> AttentionCall:
    """Describe an attention of which only scores or weights are known, and what may be attended
    to."""
    batch, heads, queries, keys = values.shape
    query = values.new_empty((batch, heads, queries, 0))
    key = values.new_empty((batch, heads, keys, 0))
    if mask is not None and bool(mask.all()):
        mask = None
    elif mask is not None and bool((mask == mask[:, :1]).all()):
        mask = mask[:, :1]
    is_explicit = point.wants("scores", "weights")
    return AttentionCall(
        query, key, key, mask, None, is_explicit, is_cross=point.is_cross, is_whole=False
    )
