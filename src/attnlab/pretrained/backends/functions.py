"""The functions backend: attention at torch's own functions, in models without a registry.

While a model runs, calls of `scaled_dot_product_attention` bring queries, keys, values and mask to
the hook point; in a model that writes attention out itself, its softmax brings scores and weights,
and the product with the values the heads' outputs. Only what tracing found to be attention is
intercepted: another softmax, such as a router's, is not.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnlab.errors import CouldNotRun, present
from attnlab.parts.attend import outside_autocast
from attnlab.parts.heads import share_heads
from attnlab.parts.masks import Mask, as_tensor
from attnlab.pretrained.attention_call import (
    SOFTMAXES,
    AttentionPoint,
    ForeignAttention,
    blocking,
    causal,
    hooked_softmax,
    softmax_parts,
)
from attnlab.pretrained.backends.multi_head import MULTI_HEAD, hooked_multi_head
from attnlab.sites import AttentionCall

_HALF = (torch.float16, torch.bfloat16)
SDPA = torch.nn.functional.scaled_dot_product_attention
PRODUCTS = (
    torch.matmul,
    torch.bmm,
    torch.Tensor.matmul,
    torch.Tensor.__matmul__,
    torch.Tensor.bmm,
    torch.einsum,
)


@dataclass(frozen=True)
class _Waiting:
    """Weights that were shown and are still to be multiplied with values."""

    point: AttentionPoint
    weights: Tensor
    shape: tuple[int, ...]


class Functions(TorchFunctionMode):
    """Intercepts attention in one pass of a model.

    find: returns the hook point of the next call of a kind ("sdpa", "softmax"), counting them, or
    None.
    """

    def __init__(self, find: Callable[[str], AttentionPoint | None]) -> None:
        super().__init__()
        self._find = find
        self._waiting: _Waiting | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Intercept attention functions, softmaxes and products of their weights."""
        kwargs = kwargs or {}
        if func is SDPA:
            point = self._find("sdpa")
            if point is None:
                return func(*args, **kwargs)
            return _fused(point, *args, **kwargs)
        if func in SOFTMAXES:
            return self._softmax(func, args, kwargs)
        if func is MULTI_HEAD:
            point = self._find("multi-head")
            if point is None:
                return func(*args, **kwargs)
            return hooked_multi_head(point, _fused, *args, **kwargs)
        output = func(*args, **kwargs)
        if self._waiting is not None and isinstance(output, Tensor):
            return self._followed(func, args, output)
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
        shape = whole.shape
        cut = _watched(point, whole) if point.is_hooked else None

        def compute_whole(given: Tensor) -> Tensor:
            return compute(given.reshape(scores.shape)).reshape(shape)

        weights = hooked_softmax(point, shape[-1], whole, compute_whole, cut=cut)
        weights = weights.reshape(scores.shape)
        self._waiting = _Waiting(point, weights, tuple(shape))
        return weights

    def _followed(self, func: Callable[..., Any], args: Any, output: Tensor) -> Tensor:
        """Follow weights until they are multiplied with values, and show the product."""
        waiting = present(self._waiting)
        made = made_of(waiting.weights, func, args, output)
        if made == "moved":
            self._waiting = _Waiting(waiting.point, output, waiting.shape)
        if made != "gathered":
            return output
        self._waiting = None
        if func is torch.einsum and not gathers(args[0]):
            return output
        order = gathered_order(func, args) or tuple(range(output.dim()))
        ordered = output.permute(order)
        heads = ordered.reshape(*waiting.shape[:3], output.shape[order[-1]])
        found = waiting.point.supplied("heads")
        if found is None:
            found = heads
        found = waiting.point.visit("heads", found)
        if found is heads and not heads.requires_grad:
            return output
        back = list(map(order.index, range(output.dim())))
        return found.reshape(ordered.shape).permute(back)


class WrittenOut(TorchFunctionMode):
    """Writes calls of torch's fused attention out, so that their softmax can be intercepted."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Write fused attention out, and call any other function."""
        if func is SDPA:
            func = _written_out
        return func(*args, **(kwargs or {}))


def operands_of(args: Any) -> list[Tensor]:
    """List the tensors among the arguments of a product; einsum takes them one by one or in a
    tuple."""
    found: list[Tensor] = []
    for arg in args:
        if isinstance(arg, Tensor):
            found.append(arg)
        elif isinstance(arg, tuple | list):
            found += [each for each in arg if isinstance(each, Tensor)]
    return found


def made_of(weights: Tensor, func: Callable[..., Any], args: Any, output: Tensor) -> str:
    """Say what a function makes of attention weights.

    "moved": the same numbers after dropout, conversion or reshaping · "gathered": their product
    with something · "": nothing of these.
    """
    operands = operands_of(args)
    if not operands:
        return ""
    if func in PRODUCTS:
        first = operands[0]
        if first.numel() == weights.numel() and first.data_ptr() == weights.data_ptr():
            return "gathered"
    elif output.numel() == weights.numel() and any(each is weights for each in operands):
        return "moved"
    return ""


def gathered_order(func: Callable[..., Any], args: Any) -> tuple[int, ...] | None:
    """Return the order of axes that turns weights times values into (…, query, width); None if they
    are in it.

    Only an einsum may have another order: "bnij,jbnd->ibnd" returns the queries first.
    """
    operands = operands_of(args)
    if func is not torch.einsum or not isinstance(args[0], str) or not operands:
        return None
    equation = args[0].replace(" ", "")
    others = operands[0].dim() - len(equation.partition(",")[0].replace("...", ""))
    given, _, output = equation.replace("...", "ABCDEFGH"[:others]).partition("->")
    wanted = given.partition(",")[0][:-1]
    wanted += "".join(letter for letter in output if letter not in wanted)
    if sorted(wanted) != sorted(output):
        return None
    return tuple(map(output.index, wanted))


def gathers(equation: Any) -> bool:
    """Does an einsum multiply weights, (…, query, key), with values?

    It sums over the last axis and keeps the one before, which otherwise is no query:
    "bqhk,bkhd->bqhd" has heads there.
    """
    if not isinstance(equation, str):
        return False
    given, _, output = equation.replace(" ", "").partition("->")
    weights, _, values = given.partition(",")
    query, key = weights[-2:-1], weights[-1:]
    return key in values and key not in output and query in output and query not in values


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
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    allowed: Mask = None,
) -> Tensor:
    """Bring a call of torch's fused attention to its hook point; `allowed` is the mask in our
    convention, if known."""
    is_flat = query.dim() == 3
    if is_flat:
        query, key, value = map(point.unfolded, (query, key, value))
        is_one_mask = attn_mask is None or _is_causal_bias(attn_mask) or len(attn_mask) == 1
        if attn_mask is not None and attn_mask.dim() == 3 and not is_one_mask:
            attn_mask = point.unfolded(attn_mask)
    call = _FusedCall(attn_mask, dropout_p, is_causal, scale, enable_gqa, is_flat)
    mask = allowed
    if mask is None and point.is_hooked:
        mask = call.own_mask(query, key)
    factor = call.factor(query)
    asked = ForeignAttention(query, key, value, mask, factor, call.fused, call.opened)
    found: Tensor = point(asked)
    if is_flat:
        found = found.flatten(0, 1)
    return found


def _is_causal_bias(mask: Any) -> bool:
    """Is a mask one of torch's that only say which corner they begin in, and hold no numbers?"""
    source = sys.modules.get("torch.nn.attention.bias")  # importing it would take seconds
    return source is not None and isinstance(mask, source.CausalBias)


@dataclass(frozen=True)
class _FusedCall:
    """The arguments of torch's fused attention beside query, key and value, which have a batch and
    a head axis here; is_flat: the model has both in one axis."""

    mask: Any
    dropout: float
    is_causal: bool
    scale: float | None
    shares_heads: bool
    is_flat: bool

    def factor(self, query: Tensor) -> float:
        """Return the factor of the scores."""
        return float(query.shape[-1] ** -0.5) if self.scale is None else self.scale

    def own_mask(self, query: Tensor, key: Tensor) -> Mask:
        """Return the model's mask, as `attend` takes it."""
        if _is_causal_bias(self.mask):
            return "causal" if self.mask.variant.name == "LOWER_RIGHT" else causal(query, key)
        if self.is_causal:
            return causal(query, key)
        mask: Tensor | None = self.mask
        return mask if mask is None or mask.dtype == torch.bool else blocking(mask)

    def fused(self, query: Tensor, key: Tensor, value: Tensor, edited: Tensor | None) -> Tensor:
        """Compute the heads as the model does."""
        mask, is_causal = self.mask, self.is_causal
        if edited is not None:
            mask, is_causal = edited, False
        rest = (self.dropout, is_causal)
        if not self.is_flat:
            shares = self.shares_heads and key.shape[1] != query.shape[1]
            return SDPA(query, key, value, mask, *rest, scale=self.scale, enable_gqa=shares)
        if mask is not None and mask.dim() == 4:
            mask = mask.expand(*query.shape[:2], -1, -1).flatten(0, 1)
        q, k, v = (each.flatten(0, 1) for each in (query, key, value))
        gathered = SDPA(q, k, v, mask, *rest, scale=self.scale)
        return gathered.reshape(*query.shape[:3], value.shape[-1])

    def opened(self, query: Tensor, key: Tensor, value: Tensor, edited: Tensor | None) -> Tensor:
        """Compute the heads by a softmax that can be intercepted."""
        mask = edited
        if mask is None:
            own = self.own_mask(query, key)
            mask = as_tensor(own, query.shape[-2], key.shape[-2], query.device)
        return _opened(query, key, value, mask, self.factor(query), self.dropout)


def _written_out(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute torch's fused attention, with its arguments, by a softmax."""
    call = _FusedCall(attn_mask, dropout_p, is_causal, scale, enable_gqa, is_flat=False)
    return call.opened(query, key, value, None)


@outside_autocast
def _opened(
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
    # A query without a key gets zeros here, as from the fused kernel.
    dead = (scores == float("-inf")).all(-1, keepdim=True)
    scores = scores.masked_fill(dead, torch.finfo(scores.dtype).min)
    weights = torch.nn.functional.softmax(scores, dim=-1).masked_fill(dead, 0.0)
    return (torch.nn.functional.dropout(weights, dropout) @ value).to(dtype)


def _watched(point: AttentionPoint, scores: Tensor) -> Tensor | None:
    """Show the mask of an attention of which only the softmax is known; return what an edit blocks
    beyond it, (batch, head, query, key).

    Raises:
        CouldNotRun: an edit opens what the model has blocked.
    """
    batch, heads, queries, keys = scores.shape
    query = scores.new_empty((batch, heads, queries, 0))
    key = scores.new_empty((batch, heads, keys, 0))
    mask = cut = None
    is_open = point.wants("scores", "weights")
    if is_open or point.wants("mask"):
        mask = allowed = scores > torch.finfo(scores.dtype).min / 2
        if point.wants("mask"):
            for name, empty in (("query", query), ("key", key)):  # they tell an edit the sizes
                point.visit(name, empty)
            mask = point.visit("mask", allowed)
        if bool((mask & ~allowed).any()):
            raise CouldNotRun(
                "an edit opens what the mask of this model blocks, and the model has overwritten "
                "the scores there before its softmax; only more can be blocked."
            )
        if mask is not allowed:
            cut = allowed & ~mask
        if bool(mask.all()):
            mask = None
        elif bool((mask == mask[:, :1]).all()):
            mask = mask[:, :1]
    call = AttentionCall(
        query, key, key, mask, None, is_open, is_cross=point.is_cross, is_whole=False
    )
    point.watch(call)
    return cut
