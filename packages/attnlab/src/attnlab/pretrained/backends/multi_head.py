"""The multi-head backend: attention of plain torch, where one function computes all of it.

`nn.MultiheadAttention`, and with it `nn.Transformer` and its layers, call
`multi_head_attention_forward`: projections, attention and output projection in one. The same code
is run here with another attention in its middle, which brings it to its hook point. With a hook
installed torch leaves its fast path by itself, which would compute a whole layer in one kernel.

Queries are (batch, head, query, width) at the hook point whatever the module's own order of axes
is. Its masks say what is blocked; at the hook point True means "may attend". Keys that it adds
(`add_bias_kv`, `add_zero_attn`) are the last columns; no token has their names.

Without gradients torch's encoder may also skip padding altogether, and write zeros there at its
end. `left_out` asks torch where, and hooked passes do the same: a decoder may read these zeros.
"""

import copy
import inspect
import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attnlab.parts.masks import Mask
from attnlab.pretrained.attention_call import ForeignAttention
from attnlab.sites import SitedModule

MULTI_HEAD = functional.multi_head_attention_forward
_SIGNATURE = inspect.signature(MULTI_HEAD)


class SlowPath(TorchFunctionMode):
    """Makes torch's modules leave their fast path, and changes nothing else: the reference for a
    hooked pass."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function."""
        return func(*args, **(kwargs or {}))


class _Begun(Exception):
    """The first layer of an encoder was called with this input."""


class _Idle:
    """Replaces a layer of an encoder, and raises its input."""

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)

    def __call__(self, stack_input: Tensor, *_: Any, **__: Any) -> Tensor:
        raise _Begun(stack_input)


def left_out(encoder: nn.TransformerEncoder, *args: Any, **options: Any) -> list[int] | None:
    """Return how much of each text torch's encoder would give its layers; None for all of it.

    It is measured: the encoder's own `forward`, a subclass's too, is called up to its first layer.
    Our hooks must be hidden meanwhile.
    """
    idle = copy.copy(encoder)
    layers = list(map(_Idle, encoder.layers))
    vars(idle)["_modules"] = {**encoder._modules, "layers": layers}
    try:
        with torch._C.DisableTorchFunction():
            type(encoder).forward(idle, *args, **options)
    except _Begun as begun:
        (stack_input,) = begun.args
        if stack_input.is_nested:
            return list(map(len, stack_input.unbind()))
    return None


def hooked_multi_head(
    point: SitedModule, fused: Callable[..., Tensor], *args: Any, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Compute `multi_head_attention_forward` with a hook point at its attention.

    Args:
        point: the hook point.
        fused: brings a call of torch's fused attention there.
        args, options: as that function takes them.
    """
    bound = _SIGNATURE.bind(*args, **options)
    bound.apply_defaults()
    arguments = bound.arguments
    needs_weights = arguments["need_weights"]
    made: list[Tensor] = []
    # With weights torch does not take the hint that its mask is causal.
    is_hinted = arguments["is_causal"] and not (
        needs_weights and arguments["attn_mask"] is not None
    )

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        added: Tensor | None,
        dropout: float,
        is_causal: bool,
    ) -> Tensor:
        allowed: Mask = None
        if is_causal:
            allowed = "causal"
        elif point.is_hooked:
            allowed = _allowed(added)
        if not needs_weights:
            return fused(point, query, key, value, added, dropout, is_causal, allowed=allowed)
        heads, weights = _with_weights(point, query, key, value, added, allowed, dropout)
        made.append(weights)
        return heads

    inner = {
        **MULTI_HEAD.__globals__,
        "scaled_dot_product_attention": attention,
        "has_torch_function": lambda _: False,
    }
    compute = FunctionType(MULTI_HEAD.__code__, inner)
    output, _ = compute(**{**arguments, "need_weights": False, "is_causal": is_hinted})
    if not made:
        return output, None
    weights = made[0]
    if arguments["average_attn_weights"]:
        weights = weights.mean(dim=1)
    if arguments["query"].dim() == 2:
        weights = weights.squeeze(0)
    return output, weights


def _allowed(added: Tensor | None) -> Mask:
    """Return an added mask as True for "may attend" if it only blocks; a bias stays as it is."""
    if added is None or not bool(((added == 0.0) | (added == float("-inf"))).all()):
        return added
    return added == 0.0


def _with_weights(
    point: SitedModule,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    added: Tensor | None,
    allowed: Mask,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """Return the heads' outputs, (batch, head, query, width), and weights, (batch, head, query,
    key), by the operations of torch."""
    made: list[Tensor] = []
    scale = math.sqrt(1.0 / query.shape[-1])

    def compute(query: Tensor, key: Tensor, value: Tensor, edited: Tensor | None) -> Tensor:
        batch, heads, length, _ = query.shape
        flat = [tensor.flatten(0, 1) for tensor in (query * scale, key.transpose(-2, -1), value)]
        mask = added
        if edited is not None:
            mask = _as_added(edited, query.dtype)
        if mask is None:
            scores = torch.bmm(flat[0], flat[1])
        else:
            wide = mask[0]
            if mask.shape[:2] != (1, 1):
                wide = mask.expand(batch, heads, *mask.shape[-2:]).flatten(0, 1)
            scores = torch.baddbmm(wide, flat[0], flat[1])
        weights = functional.softmax(scores.view(batch, heads, length, -1), dim=-1)
        if dropout:
            weights = functional.dropout(weights, dropout)
        made[:] = [weights]
        return torch.bmm(weights.flatten(0, 1), flat[2]).view(batch, heads, length, -1)

    heads: Tensor = point(ForeignAttention(query, key, value, allowed, scale, compute, compute))
    if not made:  # a hook supplied the heads, but the caller wants weights
        compute(query, key, value, None)
    return heads, made[0]


def _as_added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Turn a mask of ours into one that is added to the scores."""
    mask = mask[(None,) * (4 - mask.dim())]
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, float("-inf"))
