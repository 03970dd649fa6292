"""Scaled dot-product attention: `softmax(QKᵀ/√d_k + mask) V` (Vaswani et al. 2017, equation 1).

`attend` is a pure function of tensors. It is also three smaller ones, in reading order, between
which a hook may stand: `attention_scores`, `attention_weights`, `weighted_values`. When
the weights are not asked for, PyTorch's fused kernel computes the same output without ever holding
the (query, key) matrix.

What this file promises beyond the formula: blocked weights are exactly 0; a query that may look at
nothing gets zeros, forward and backward; no number of a blocked key or value, NaN included,
reaches the output. In a compiled graph and on a GPU, where numbers are not read, that holds for
NaN, infinity and all but vast numbers: one whose product with a query overflows (in float32, above
about 1e38) may make NaN of rows that are blocked from it.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import NamedTuple, ParamSpec, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.display import displayed
from attnlab.errors import WrongUsage, not_none
from attnlab.parts.fused import native_output, takes_native
from attnlab.parts.masks import Mask, allowed_by, as_tensor, refuse_zeros_and_ones
from attnlab.shapes import check_attention_shapes

# Magnitudes above this can overflow a product of two, even when it is blocked afterwards: such
# tensors take the explicit path, which never computes with what it blocks.
_SAFE_MAGNITUDE = 1e15
_SAFE_SCALE = 1e3  # of tame queries and keys makes tame scores
_HALF = (torch.float16, torch.bfloat16)

_Given = ParamSpec("_Given")
Scale: TypeAlias = float | bool | None


@displayed
class Attention(NamedTuple):
    """What attention computes; `weights` and `scores` are None where they were not asked for.

    output (..., query, value_width) · weights and scores (..., query, key); for half-precision
    inputs weights and scores are float32, as they were computed.
    """

    output: Tensor
    weights: Tensor | None = None
    scores: Tensor | None = None


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask = None,
    *,
    scale: Scale = None,
    dropout: float = 0.0,
    need_weights: bool = True,
    guard: bool = True,
) -> Attention:
    """Let each query gather the values of the keys it resembles.

    Args:
        query: (..., query, head_width), any leading axes; those of query, key and value broadcast
            together.
        key: (..., key, head_width)
        value: (..., key, value_width)
        mask: boolean, True = may attend; or float, added to the scores (-inf blocks), but not of
            zeros and ones alone; broadcast to (..., query, key). The word "causal" stands for
            `causal_mask(query, key)` and is the quickest.
        scale: None or True for 1/√head_width, False for none, or a number.
        dropout: the probability with which a weight is dropped on its way to the output (the
            returned weights are those before dropout, so their rows sum to 1); pass 0 when not
            training.
        need_weights: False lets the fused kernel run; `weights` and `scores` are then None.
        guard: False lets NaN and infinity in a blocked key or value reach the output, for callers
            that find them otherwise, as training does.

    Returns:
        the `Attention`: `output` (..., query, value_width), `weights` and `scores` (..., query,
        key).

    Raises:
        WrongUsage: shapes, dtypes or arguments that cannot be.

    >>> one_hot = torch.eye(2)
    >>> attend(one_hot[:1], one_hot, one_hot, scale=False).weights  # [e, 1] / (e + 1)
    tensor([[0.7311, 0.2689]])
    """
    check_attention_shapes(query, key, value, mask)
    if dropout != 0.0 and not (isinstance(dropout, int | float) and 0.0 <= dropout < 1.0):
        raise WrongUsage(f"dropout is a probability from 0 to below 1; got {dropout!r}.")
    # A GPU would have to be waited for; modules do it once.
    if isinstance(mask, Tensor) and mask.device.type == "cpu":
        refuse_zeros_and_ones(mask)
    if not need_weights:
        output = _output_alone(query, key, value, mask, scale=scale, dropout=dropout)
        if output is not None:
            return Attention(output)
    scores = attention_scores(query, key, mask, scale=scale, guard=guard)
    weights = attention_weights(scores, guard=guard)
    output = weighted_values(weights, value, dropout=dropout, guard=guard).to(query.dtype)
    if not need_weights:
        return Attention(output)
    return Attention(output, weights, scores)


def _output_alone(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask, *, scale: Scale, dropout: float
) -> Tensor | None:
    """Compute the output by a fused kernel; None where that is impossible or would be wrong."""
    # torch's fused kernel has no rule for vmap: it would compute member after member, with a
    # warning.
    if torch._C._are_functorch_transforms_active() or not key.shape[-2]:
        return None
    factor = scale_factor(scale, query.shape[-1])
    if not dropout and takes_native(query, key, value, mask, factor):
        output = None
        if _within_safe_range(query, key, value):
            output = native_output(query, key, value, mask, factor)
        if output is not None:
            return output
    if mask is None:
        return _fused(query, key, value, None, factor, dropout)
    is_readable = _values_readable(key)
    if _needs_care(query, key, value, mask, is_readable):
        return None
    if is_readable:
        return _fused(query, key, value, mask, factor, dropout)
    return _fused_blindly(query, key, value, mask, factor, dropout)


def uses_native_kernel(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask = None, *, scale: Scale = None
) -> bool:
    """Say whether `attend` would compute this output, without dropout, by the kernel of
    `fused.py`."""
    factor = scale_factor(scale, query.shape[-1])
    return takes_native(query, key, value, mask, factor) and _within_safe_range(query, key, value)


def certainly_finite(query: Tensor, key: Tensor, *, scale: Scale = None) -> bool:
    """Are all scores certain to be finite? False where unknown."""
    factor = scale_factor(scale, query.shape[-1])
    return abs(factor) <= _SAFE_SCALE and _values_readable(key) and _within_safe_range(query, key)


def outside_autocast(function: Callable[_Given, Tensor]) -> Callable[_Given, Tensor]:
    """Run a function in the precision it asks for, also under autocast."""

    @wraps(function)
    def computed(*args: _Given.args, **named: _Given.kwargs) -> Tensor:
        kind = next(
            tensor.device.type for tensor in (*args, *named.values()) if isinstance(tensor, Tensor)
        )
        with _autocast_disabled(kind):
            return function(*args, **named)

    return computed


def _autocast_disabled(kind: str) -> AbstractContextManager[None]:
    if torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


@outside_autocast
def attention_scores(
    query: Tensor, key: Tensor, mask: Mask = None, *, scale: Scale = None, guard: bool = True
) -> Tensor:
    """Compare each query with each key: `QKᵀ/√d_k`, a float mask added, -inf where blocked.

    Shapes: (..., query, head_width), (..., key, head_width) -> (..., query, key); half precision
    becomes float32.
    """
    query, key = _at_least_float32(query), _at_least_float32(key)
    tensor = as_tensor(mask, query.shape[-2], key.shape[-2], query.device)
    is_guarded = guard and tensor is not None
    if is_guarded and (_may_hold_garbage(query) or _may_hold_garbage(key)):
        products = _products(_cleaned(query), _cleaned(key), scale)
        # What may be looked at keeps its NaN: hiding it would be a lie.
        garbage = _is_garbage(query).unsqueeze(-1) | _is_garbage(key).unsqueeze(-2)
        products = products.masked_fill(garbage, float("nan"))
    else:
        products = _products(query, key, scale)
    if tensor is None:
        return products
    if tensor.dtype == torch.bool:
        return products.masked_fill(~tensor, float("-inf"))
    tensor = tensor.to(products.dtype)
    blocked = tensor == float("-inf")
    return (products + tensor.masked_fill(blocked, 0.0)).masked_fill(blocked, float("-inf"))


@outside_autocast
def attention_weights(scores: Tensor, *, guard: bool = True) -> Tensor:
    """Turn scores into weights, a softmax over the keys; a row of nothing but -inf becomes zeros.

    Shapes: (..., query, key) -> the same. Rows that cannot have weights are set aside *before* the
    softmax, because a NaN repaired after it comes back in the gradient: dead ones get zeros; ones
    with NaN or an overflow get NaN where they may look, and no gradient.
    """
    if scores.shape[-1] == 0:
        return scores
    blocked = scores.detach() == float("-inf")
    largest = scores.detach().amax(-1, keepdim=True)
    dead = largest == float("-inf")
    if not guard:
        return scores.masked_fill(dead, 0.0).softmax(-1).masked_fill(blocked, 0.0)
    broken = ~(largest < float("inf"))
    weights = scores.masked_fill(dead | broken, 0.0).softmax(-1)
    # Also where the softmax gave 0 already: the gradient of a blocked weight may be infinite, and 0
    # times that is NaN.
    weights = weights.masked_fill(blocked, 0.0)
    if _values_readable(scores) and not bool(broken.any()):
        return weights
    return weights.masked_fill(broken & ~blocked, float("nan"))


@outside_autocast
def weighted_values(
    weights: Tensor, value: Tensor, *, dropout: float = 0.0, guard: bool = True
) -> Tensor:
    """Sum the values by their weights; a value of weight 0 adds nothing, even when it is NaN.

    Shapes: (..., query, key), (..., key, value_width) -> (..., query, value_width).
    """
    value = _at_least_float32(value)
    dropped = weights
    if dropout:
        dropped = F.dropout(weights, dropout)
    output = dropped @ value
    if not (guard and _may_hold_garbage(output)):
        return output
    # Somewhere is NaN or infinity: compute without them, then say which queries they reached.
    output = _cleaned(dropped) @ _cleaned(value)
    garbage = _is_garbage(value).unsqueeze(-1).to(weights.dtype)
    reached = _is_garbage(weights).unsqueeze(-1) | ((weights.detach() @ garbage) > 0)
    return output.masked_fill(reached, float("nan"))


def _products(query: Tensor, key: Tensor, scale: Scale) -> Tensor:
    factor = scale_factor(scale, query.shape[-1])
    if factor != 1.0:
        query = query * factor
    return query @ key.transpose(-2, -1)


def _fused(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask, scale: float, dropout: float
) -> Tensor:
    """Compute the output by PyTorch's fused kernel."""
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    # PyTorch's is_causal lines up the first query with the first key; ours are the last queries.
    # They agree when there are as many of both, and a single query may look at all keys.
    is_causal = isinstance(mask, str) and mask == "causal"
    square = is_causal and num_queries == num_keys
    tensor = None
    if not (square or mask is None or (is_causal and num_queries == 1)):
        tensor = _mask_for_kernel(mask, query, key)
    if not query.shape[:-2] == key.shape[:-2] == value.shape[:-2]:
        query = _with_all_axes(query, key, value)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=tensor, dropout_p=dropout, is_causal=square, scale=scale
    )


def _fused_blindly(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask, scale: float, dropout: float
) -> Tensor:
    """Compute it where numbers cannot be read: what holds NaN or infinity is taken out before."""
    seen = as_tensor(mask, query.shape[-2], key.shape[-2], query.device)
    reached = _reached_by_garbage(query, key, value, not_none(seen))
    cleaned = _cleaned(query), _cleaned(key), _cleaned(value)
    return _fused(*cleaned, mask, scale, dropout).masked_fill(reached, float("nan"))


def _mask_for_kernel(mask: Mask, query: Tensor, key: Tensor) -> Tensor | None:
    tensor = as_tensor(mask, query.shape[-2], key.shape[-2], query.device)
    if tensor is not None and tensor.dtype != torch.bool:
        return tensor.to(query.dtype)
    return tensor


def _reached_by_garbage(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Which queries may look at NaN or infinity, or hold it themselves: (..., query, 1)."""
    garbage_key = _is_garbage(key) | _is_garbage(value)
    garbage = _is_garbage(query).unsqueeze(-1) | garbage_key.unsqueeze(-2)
    return (allowed_by(mask) & garbage).any(-1, keepdim=True)


def _with_all_axes(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Expand a query to all leading axes: torch adds a mask to no more scores than queries and
    keys have."""
    axes = [tensor.shape[:-2] for tensor in (query, key, value)]
    leading = torch.broadcast_shapes(*axes)  # type: ignore[no-untyped-call]
    if leading != torch.broadcast_shapes(*axes[:2]):  # type: ignore[no-untyped-call]
        query = query.expand(*leading, -1, -1)
    return query


def scale_factor(scale: Scale, width: int) -> float:
    """Return the number that scores are scaled by, for queries and keys of this width."""
    if scale is None or scale is True:
        return float(width**-0.5)
    if not (isinstance(scale, int | float) and math.isfinite(scale)):
        raise WrongUsage(
            f"scale is None or True (1/√width), False (none) or a finite number; got {scale!r}."
        )
    if scale is False:
        return 1.0
    return float(scale)


def _at_least_float32(tensor: Tensor) -> Tensor:
    if tensor.dtype in _HALF:
        return tensor.float()
    return tensor


def _values_readable(tensor: Tensor) -> bool:
    """May the numbers be read cheaply? Not on a GPU, in a compiled graph or under vmap."""
    return (
        tensor.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
    )


def _cleaned(tensor: Tensor) -> Tensor:
    return torch.where(torch.isfinite(tensor), tensor, 0.0)


def _is_garbage(tensor: Tensor) -> Tensor:
    """Which vectors hold NaN or infinity: (..., width) -> (...)."""
    return ~torch.isfinite(tensor).all(-1)


def _may_hold_garbage(tensor: Tensor) -> bool:
    """Does a tensor hold NaN or infinity? True where the numbers cannot be read, so that it is
    guarded against."""
    return not _values_readable(tensor) or not bool(torch.isfinite(tensor.detach().sum()))


def _needs_care(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | str, is_readable: bool
) -> bool:
    """Could blocked numbers get through the fused kernel, so that the explicit path is needed?"""
    if (
        isinstance(mask, Tensor)
        and query.dtype in _HALF
        and mask.dtype not in (torch.bool, query.dtype)
    ):
        return True  # a mask of -1e9 would become -inf on its way to half precision
    return is_readable and not _within_safe_range(query, key, value)


def _within_safe_range(*tensors: Tensor) -> bool:
    # The length of all numbers taken together bounds each of them, and is found 20 times faster
    # than the largest.
    length = 0.0
    if torch.is_grad_enabled():
        tensors = tuple(tensor.detach() for tensor in tensors)
    for tensor in tensors:
        dtype = torch.float32 if tensor.dtype in _HALF else None
        length += torch.linalg.vector_norm(tensor, dtype=dtype).item()
    return length < _SAFE_MAGNITUDE  # and NaN is not
