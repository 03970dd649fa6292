"""The functions backend: attention at torch's own functions, in models without a registry.

While a model runs, calls of `scaled_dot_product_attention` bring queries, keys, values and mask to
the hook point; in a model that writes attention out itself, its softmax brings scores and weights,
and the product with the values the heads' outputs. Only what tracing found to be attention is
intercepted: another softmax, such as a router's, is not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnlab.parts.attend import outside_autocast
from attnlab.parts.heads import share_heads
from attnlab.parts.masks import Mask, as_tensor
from attnlab.pretrained.attention_call import (
    SOFTMAXES,
    AttentionPoint,
    ForeignAttention,
    causal,
    hooked_softmax,
    softmax_parts,
    with_infinities,
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
            return func(*args, **kwargs) if point is None else _fused(point, *args, **kwargs)
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

    def _softmax(self, func: Callable[..., Tensor], args: Any, kwargs: dict[str, Any]) -> Tensor:
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
        if point.is_hooked:
            point.watch(_softmax_call(point, whole))
        weights = hooked_softmax(
            point,
            shape[-1],
            whole,
            lambda given: compute(given.reshape(scores.shape)).reshape(shape),
        ).reshape(scores.shape)
        self._waiting = _Waiting(point, weights, tuple(shape))
        return weights

    def _followed(self, func: Callable[..., Any], args: Any, output: Tensor) -> Tensor:
        """Follow weights until they are multiplied with values, and show the product."""
        waiting = self._waiting
        assert waiting is not None
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
        known = waiting.point.supplied("heads")
        found = waiting.point.visit("heads", heads if known is None else known)
        if found is heads:
            return output
        back = [order.index(axis) for axis in range(output.dim())]
        return found.reshape(ordered.shape).permute(back)


def operands_of(args: Any) -> list[Tensor]:
    """List the tensors among the arguments of a product; einsum takes them one by one or in a
    tuple."""
    found: list[Tensor] = []
    for arg in args:
        several = arg if isinstance(arg, tuple | list) else (arg,)
        found += [each for each in several if isinstance(each, Tensor)]
    return found


def made_of(weights: Tensor, func: Callable[..., Any], args: Any, output: Tensor) -> str:
    """Say what a function makes of attention weights.

    "moved": the same numbers after dropout, conversion or reshaping · "gathered": their product
    with something · "": nothing of these.
    """
    operands = operands_of(args)
    if func not in PRODUCTS:
        is_moved = any(each is weights for each in operands) and output.numel() == weights.numel()
        return "moved" if is_moved else ""
    if not operands or operands[0].numel() != weights.numel():
        return ""
    return "gathered" if operands[0].data_ptr() == weights.data_ptr() else ""


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
    return tuple(map(output.index, wanted)) if sorted(wanted) == sorted(output) else None


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


def is_over_keys(scores: Tensor, args: Any, kwargs: dict[str, Any]) -> bool:
    """Is a softmax computed over the last axis?"""
    return (args[1] if len(args) > 1 else kwargs.get("dim")) in (-1, scores.dim() - 1)


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
    is_flat = query.dim() == 3  # batch and heads in one axis
    if is_flat:
        query, key, value = (point.unfolded(each) for each in (query, key, value))
        if attn_mask is not None and attn_mask.dim() == 3 and attn_mask.shape[0] > 1:
            attn_mask = point.unfolded(attn_mask)
    factor = query.shape[-1] ** -0.5 if scale is None else scale

    def fused(query: Tensor, key: Tensor, value: Tensor, edited: Tensor | None) -> Tensor:
        mask, causal = (attn_mask, is_causal) if edited is None else (edited, False)
        if not is_flat:
            shared = enable_gqa and key.shape[1] != query.shape[1]
            return SDPA(query, key, value, mask, dropout_p, causal, scale=scale, enable_gqa=shared)
        if mask is not None and mask.dim() == 4:
            mask = mask.expand(*query.shape[:2], -1, -1).flatten(0, 1)
        q, k, v = (each.flatten(0, 1) for each in (query, key, value))
        gathered = SDPA(q, k, v, mask, dropout_p, causal, scale=scale)
        return gathered.reshape(*query.shape[:3], value.shape[-1])

    def opened(query: Tensor, key: Tensor, value: Tensor, edited: Tensor | None) -> Tensor:
        mask = edited
        if mask is None:
            own = _own_mask(attn_mask, is_causal, query, key)
            mask = as_tensor(own, query.shape[-2], key.shape[-2], query.device)
        return _opened(query, key, value, mask, factor, dropout_p)

    mask = allowed
    if mask is None and point.is_hooked:
        mask = _own_mask(attn_mask, is_causal, query, key)
    found: Tensor = point(ForeignAttention(query, key, value, mask, factor, fused, opened))
    return found.flatten(0, 1) if is_flat else found


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


def _own_mask(mask: Tensor | None, is_causal: bool, query: Tensor, key: Tensor) -> Mask:
    if is_causal:
        return causal(query, key)
    return mask if mask is None or mask.dtype == torch.bool else with_infinities(mask)


def _softmax_call(point: AttentionPoint, scores: Tensor) -> AttentionCall:
    """Describe an attention of which only the softmax is known: its sizes, and what is blocked."""
    batch, heads, queries, keys = scores.shape
    is_open = point.wants("scores", "weights")
    mask = None
    if is_open:
        visible = scores > torch.finfo(scores.dtype).min / 2
        if not bool(visible.all()):
            is_shared = bool((visible == visible[:, :1]).all())
            mask = visible[:, :1] if is_shared else visible
    query, key = (scores.new_empty((batch, heads, length, 0)) for length in (queries, keys))
    return AttentionCall(
        query, key, key, mask, None, is_open, is_cross=point.is_cross, is_whole=False
    )
