"""The multi-head backend: attention of plain torch, where one function computes all of it.

`nn.MultiheadAttention`, and with it `nn.Transformer` and its layers, call
`multi_head_attention_forward`: projections, attention and output projection in one. Nothing inside
it can be intercepted, so it is computed here instead, by the same operations in the same order, and
the attention in the middle brought to its hook point. With a hook installed torch leaves its fast
path by itself, which would compute a whole layer in one kernel.

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
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attnlab.parts.masks import Mask
from attnlab.pretrained.attention_call import ForeignAttention, MaskEdit
from attnlab.shapes import shape_text
from attnlab.sites import SitedModule

MULTI_HEAD = functional.multi_head_attention_forward
_SIGNATURE = inspect.signature(MULTI_HEAD)

Sides = tuple[Tensor, Tensor, Tensor]
"""Queries, keys and values of every head: (batch, head, position, width)."""

Fused = Callable[..., Tensor]
"""Brings queries, keys, values and a mask of torch's fused attention to a hook point."""


class SlowPath(TorchFunctionMode):
    """Makes torch's modules leave their fast path, and changes nothing else: the reference for a
    hooked pass."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function."""
        return func(*args, **(kwargs or {}))


class _Begun(Exception):
    """The first layer of an encoder was called."""

    def __init__(self, given: Tensor) -> None:
        super().__init__()
        self.given = given


class _Idle:
    """Replaces a layer of an encoder, and raises its input."""

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)

    def __call__(self, given: Tensor, *_: Any, **__: Any) -> Tensor:
        raise _Begun(given)


def left_out(encoder: nn.TransformerEncoder, *args: Any, **options: Any) -> list[int] | None:
    """Return how much of each text torch's encoder would give its layers; None for all of it.

    It is measured: the encoder's own `forward`, a subclass's too, is called up to its first layer.
    Our hooks must be hidden meanwhile.
    """
    idle = copy.copy(encoder)
    layers = [_Idle(each) for each in encoder.layers]
    vars(idle)["_modules"] = {**encoder._modules, "layers": layers}
    try:
        with torch._C.DisableTorchFunction():
            type(encoder).forward(idle, *args, **options)
    except _Begun as begun:
        return [len(each) for each in begun.given.unbind()] if begun.given.is_nested else None
    return None


def hooked_multi_head(
    point: SitedModule, fused: Fused, *args: Any, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Compute `multi_head_attention_forward` with a hook point at its attention.

    Args:
        point: the hook point.
        fused: brings a call of torch's fused attention there.
        args, options: as that function takes them.
    """
    bound = _SIGNATURE.bind(*args, **options)
    bound.apply_defaults()
    asked = SimpleNamespace(**bound.arguments)
    is_one_input = asked.query.dim() == 2
    if is_one_input:
        for name in ("query", "key", "value"):
            setattr(asked, name, getattr(asked, name).unsqueeze(1))
        if asked.key_padding_mask is not None:
            asked.key_padding_mask = asked.key_padding_mask.unsqueeze(0)
    sides = _sides(asked)
    added, is_causal = _added_mask(asked, sides[1].shape[-2])
    allowed: Mask = None
    if is_causal:
        allowed = "causal"
    elif point.is_hooked:
        allowed = _allowed(added)
    dropout = asked.dropout_p if asked.training else 0.0
    weights: Tensor | None = None
    if asked.need_weights:
        heads, weights = _with_weights(point, sides, added, allowed, dropout)
        weights = weights.mean(dim=1) if asked.average_attn_weights else weights
        weights = weights.squeeze(0) if is_one_input else weights
    else:
        heads = fused(point, *sides, added, dropout, is_causal, allowed=allowed)
    length, batch, width = asked.query.shape
    joined = heads.permute(2, 0, 1, 3).reshape(length * batch, width)
    output = functional.linear(joined, asked.out_proj_weight, asked.out_proj_bias)
    output = output.view(length, batch, output.shape[-1])
    return output.squeeze(1) if is_one_input else output, weights


def _sides(asked: SimpleNamespace) -> Sides:
    """Project, add the module's own keys and values, and split into heads."""
    query, key, value = _projected(asked)
    batch, heads = asked.query.shape[1], asked.num_heads
    if asked.bias_k is not None and asked.bias_v is not None:
        key, value = (
            torch.cat((side, bias.repeat(1, batch, 1)))
            for side, bias in ((key, asked.bias_k), (value, asked.bias_v))
        )  # fmt: skip
    query, key, value = (_split(side, batch * heads) for side in (query, key, value))
    key = key if asked.static_k is None else asked.static_k
    value = value if asked.static_v is None else asked.static_v
    if asked.add_zero_attn:
        key, value = (
            torch.cat((side, side.new_zeros(side.shape[0], 1, side.shape[2])), 1)
            for side in (key, value)
        )
    query, key, value = (
        side.reshape(batch, heads, *side.shape[1:]) for side in (query, key, value)
    )
    return query, key, value


def _projected(asked: SimpleNamespace) -> Sides:
    """Project queries, keys and values, (length, batch, width) each, as torch does."""
    torchs: Any = functional  # its stubs leave these two out
    given, bias = (asked.query, asked.key, asked.value), asked.in_proj_bias
    if not asked.use_separate_proj_weight:
        query, key, value = torchs._in_projection_packed(*given, asked.in_proj_weight, bias)
        return query, key, value
    weights = (asked.q_proj_weight, asked.k_proj_weight, asked.v_proj_weight)
    biases = (None, None, None) if bias is None else bias.chunk(3)
    query, key, value = torchs._in_projection(*given, *weights, *biases)
    return query, key, value


def _split(side: Tensor, rows: int) -> Tensor:
    """(length, batch, head · width) -> (batch · head, length, width)."""
    return side.contiguous().view(side.shape[0], rows, -1).transpose(0, 1)


def _added_mask(asked: SimpleNamespace, num_keys: int) -> tuple[Tensor | None, bool]:
    """Return the mask that torch adds to the scores, (batch or 1, head or 1, query or 1, key), and
    whether it is left out as causal.

    It is left out where the hint `is_causal` is given and nothing else is blocked.
    """
    own, padding = asked.attn_mask, asked.key_padding_mask
    if asked.is_causal and own is None:
        raise RuntimeError(
            "is_causal is a hint of what attn_mask says; give attn_mask too, as torch asks."
        )
    if asked.is_causal and padding is None and not asked.need_weights:
        return None, True
    length, batch, _ = asked.query.shape
    sizes = (asked.key.shape[0],) if asked.static_k is None else (asked.static_k.shape[1],)
    _check("attn_mask", own, (length, *sizes), (batch * asked.num_heads, length, *sizes))
    _check("key_padding_mask", padding, (batch, *sizes))
    if own is not None and own.dim() == 3:
        own = own.view(batch, asked.num_heads, length, -1)
    elif own is not None:
        own = own[None, None]
    added: Tensor | None = None
    for mask in (own, None if padding is None else padding[:, None, None]):
        if mask is None:
            continue
        # Every query may attend to the keys that the module adds.
        widths = (0, num_keys - mask.shape[-1])
        wide = functional.pad(_as_added(mask, asked.query.dtype), widths)
        added = wide if added is None else added + wide
    return added, False


def _check(name: str, mask: Tensor | None, *shapes: tuple[int, ...]) -> None:
    """Refuse the shapes that torch refuses; some would broadcast here."""
    if mask is not None and tuple(mask.shape) not in shapes:
        expected = " or ".join(shape_text(each) for each in shapes)
        raise RuntimeError(f"{name} must have shape {expected}; got {shape_text(mask.shape)}.")


def _allowed(added: Tensor | None) -> Mask:
    """Return an added mask as True for "may attend" if it only blocks; a bias stays as it is."""
    if added is None or not bool(((added == 0.0) | (added == float("-inf"))).all()):
        return added
    return added == 0.0


def _as_added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))


def _with_weights(
    point: SitedModule, sides: Sides, added: Tensor | None, allowed: Mask, dropout: float
) -> tuple[Tensor, Tensor]:
    """Return the heads' outputs, (batch, head, query, width), and weights, (batch, head, query,
    key)."""
    made: list[Tensor] = []
    scale = math.sqrt(1.0 / sides[0].shape[-1])

    def opened(query: Tensor, key: Tensor, value: Tensor, changed: MaskEdit) -> Tensor:
        batch, heads, length, _ = query.shape
        flat = [each.flatten(0, 1) for each in (query * scale, key.transpose(-2, -1), value)]
        mask = _as_changed(changed.mask, query.dtype) if changed.is_changed else added
        if mask is None:
            scores = torch.bmm(flat[0], flat[1])
        else:
            if mask.shape[:2] == (1, 1):
                wide = mask[0]
            else:
                wide = mask.expand(batch, heads, *mask.shape[-2:]).flatten(0, 1)
            scores = torch.baddbmm(wide, flat[0], flat[1])
        weights = functional.softmax(scores.view(batch, heads, length, -1), dim=-1)
        weights = functional.dropout(weights, dropout) if dropout else weights
        made[:] = [weights]
        return torch.bmm(weights.flatten(0, 1), flat[2]).view(batch, heads, length, -1)

    heads: Tensor = point(ForeignAttention(*sides, allowed, scale, opened, opened))
    if not made:  # a hook supplied the heads, but the caller wants weights
        opened(*sides, MaskEdit())
    return heads, made[0]


def _as_changed(mask: Mask, dtype: torch.dtype) -> Tensor | None:
    """Turn a mask of ours into one that is added to the scores."""
    if not isinstance(mask, Tensor):
        return None
    mask = mask[(None,) * (4 - mask.dim())]
    return _as_added(~mask, dtype) if mask.dtype == torch.bool else mask.to(dtype)
