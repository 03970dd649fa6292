"""The multi-head seam: attention of plain torch, where one function does all of it.

`nn.MultiheadAttention`, and with it `nn.Transformer` and its layers, call `multi_head_attention_forward`: projections,
attention and output projection in one. Nothing inside it can be met, so it is computed here in its stead, with the
same operations in the same order, and the attention in the middle brought to its door. While a door is watched torch
leaves its fast path by itself, which would compute a whole layer without showing anything.

Queries are (batch, head, query, width) at the door whatever the module's own order of axes is. Its masks say what is
blocked; at the door they say what may be looked at. Keys that it adds (`add_bias_kv`, `add_zero_attn`) are the last
columns; no text has a name for them.

Without gradients torch's encoder may also leave padding out altogether, and put zeros there at its end. That is asked
of torch itself (`left_out`), and done too where it is watched: a decoder may look at what stands there.
"""

import copy
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnlab.parts.masks import Mask
from attnlab.pretrained.passing import Changed, Foreign
from attnlab.shapes import shape_text
from attnlab.sites import SitedModule

__all__ = ["MULTI_HEAD", "SlowPath", "left_out", "pass_multi_head"]

MULTI_HEAD = torch.nn.functional.multi_head_attention_forward

Fused = Callable[..., Tensor]
"""Brings queries, keys, values and a mask of torch's fused attention to a door."""


class SlowPath(TorchFunctionMode):
    """Changes nothing, but that torch's modules leave their fast path: what a watched pass is to be compared with."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Hand on."""
        return func(*args, **(kwargs or {}))


class _Idle:
    """Stands for a layer of an encoder, and gives back what it is given."""

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)

    def __call__(self, given: Tensor, **_: Any) -> Tensor:
        return given


def left_out(encoder: nn.TransformerEncoder, src: Tensor, *args: Any, **options: Any) -> Tensor | None:
    """Say where torch's encoder would put zeros by itself, (…, 1) beside `src`; None for nowhere.

    torch says so: ones go through its own `forward`, whose layers do nothing, and come back as zeros there.
    """
    idle = copy.copy(encoder)
    vars(idle)["_modules"] = {"layers": [_Idle(encoder.layers[0])], "norm": None}
    with torch._C.DisableTorchFunction():
        ones = torch.ones_like(src).requires_grad_(src.requires_grad)
        found = nn.TransformerEncoder.forward(idle, ones, *args, **options)[..., :1] == 0.0
    return found if bool(found.any()) else None


class _Asked(NamedTuple):
    """What `multi_head_attention_forward` is asked for, under its own names."""

    query: Tensor
    key: Tensor
    value: Tensor
    embed_dim_to_check: int
    num_heads: int
    in_proj_weight: Tensor | None
    in_proj_bias: Tensor | None
    bias_k: Tensor | None
    bias_v: Tensor | None
    add_zero_attn: bool
    dropout_p: float
    out_proj_weight: Tensor
    out_proj_bias: Tensor | None
    training: bool = True
    key_padding_mask: Tensor | None = None
    need_weights: bool = True
    attn_mask: Tensor | None = None
    use_separate_proj_weight: bool = False
    q_proj_weight: Tensor | None = None
    k_proj_weight: Tensor | None = None
    v_proj_weight: Tensor | None = None
    static_k: Tensor | None = None
    static_v: Tensor | None = None
    average_attn_weights: bool = True
    is_causal: bool = False


class _Sides(NamedTuple):
    """Queries, keys and values of every head: (batch, head, position, width)."""

    query: Tensor
    key: Tensor
    value: Tensor


def pass_multi_head(door: SitedModule, fused: Fused, *args: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
    """Compute what `multi_head_attention_forward` computes, its attention brought to a door.

    Args:
        door: where it is shown.
        fused: brings a call of torch's fused attention there.
        args, options: as that function takes them.
    """
    asked = _Asked(*args, **options)
    is_one_input = asked.query.dim() == 2
    if is_one_input:
        query, key, value = (each.unsqueeze(1) for each in (asked.query, asked.key, asked.value))
        padding = None if asked.key_padding_mask is None else asked.key_padding_mask.unsqueeze(0)
        asked = asked._replace(query=query, key=key, value=value, key_padding_mask=padding)
    sides = _sides(asked)
    added, is_causal = _added_mask(asked, sides.key.shape[-2])
    allowed: Mask = "causal" if is_causal else _allowed(added) if door.is_watched else None
    dropout = asked.dropout_p if asked.training else 0.0
    weights: Tensor | None = None
    if asked.need_weights:
        heads, weights = _openly(door, sides, added, allowed, dropout)
        weights = weights.mean(dim=1) if asked.average_attn_weights else weights
        weights = weights.squeeze(0) if is_one_input else weights
    else:
        heads = fused(door, *sides, added, dropout, is_causal, allowed=allowed)
    length, batch, width = asked.query.shape
    joined = heads.permute(2, 0, 1, 3).reshape(length * batch, width)
    output = torch.nn.functional.linear(joined, asked.out_proj_weight, asked.out_proj_bias)
    output = output.view(length, batch, output.shape[-1])
    return output.squeeze(1) if is_one_input else output, weights


def _sides(asked: _Asked) -> _Sides:
    """Project, add the keys and values that the module has of its own, and split into heads."""
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
        key, value = (torch.cat((side, side.new_zeros(side.shape[0], 1, side.shape[2])), 1) for side in (key, value))
    return _Sides(*(side.reshape(batch, heads, *side.shape[1:]) for side in (query, key, value)))


def _projected(asked: _Asked) -> tuple[Tensor, Tensor, Tensor]:
    """Project queries, keys and values, (length, batch, width) each; what is the same is projected in one product."""
    linear = torch.nn.functional.linear
    query, key, value, bias = asked.query, asked.key, asked.value, asked.in_proj_bias
    if asked.use_separate_proj_weight:
        biases = (None, None, None) if bias is None else bias.chunk(3)
        own = (asked.q_proj_weight, asked.k_proj_weight, asked.v_proj_weight)
        query, key, value = (
            linear(side, weight, each)  # type: ignore[arg-type]
            for side, weight, each in zip((query, key, value), own, biases, strict=True)
        )
        return query, key, value
    weight, width = asked.in_proj_weight, query.shape[-1]
    assert weight is not None
    if key is value and query is key:
        one, two, three = linear(query, weight, bias).chunk(3, -1)
        return one.contiguous(), two.contiguous(), three.contiguous()
    if key is value:
        of_query, of_rest = (None, None) if bias is None else (bias[:width], bias[width:])
        two, three = linear(key, weight[width:], of_rest).chunk(2, -1)
        return linear(query, weight[:width], of_query), two.contiguous(), three.contiguous()
    biases = (None, None, None) if bias is None else bias.chunk(3)
    query, key, value = (
        linear(side, part, each) for side, part, each in zip((query, key, value), weight.chunk(3), biases, strict=True)
    )
    return query, key, value


def _split(side: Tensor, rows: int) -> Tensor:
    """(length, batch, head · width) -> (batch · head, length, width)."""
    return side.contiguous().view(side.shape[0], rows, -1).transpose(0, 1)


def _added_mask(asked: _Asked, num_keys: int) -> tuple[Tensor | None, bool]:
    """Return what torch adds to the scores, (batch or 1, head or 1, query or 1, key), and whether it leaves it out.

    It is left out where a hint says that it is causal, and nothing else is blocked.
    """
    own, padding = asked.attn_mask, asked.key_padding_mask
    if asked.is_causal and own is None:
        raise RuntimeError("is_causal is a hint of what attn_mask says; give attn_mask too, as torch asks.")
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
    given = [each for each in (own, None if padding is None else padding[:, None, None]) if each is not None]
    added = [
        # Everybody may look at the keys that the module adds.
        torch.nn.functional.pad(_as_added(each, asked.query.dtype), (0, num_keys - each.shape[-1]))
        for each in given
    ]
    return (added[0] if len(added) == 1 else added[0] + added[1]) if added else None, False


def _check(name: str, mask: Tensor | None, *shapes: tuple[int, ...]) -> None:
    """Refuse what torch refuses, before it broadcasts to something that nobody meant."""
    if mask is not None and tuple(mask.shape) not in shapes:
        expected = " or ".join(shape_text(each) for each in shapes)
        raise RuntimeError(f"{name} must have shape {expected}; got {shape_text(mask.shape)}.")


def _allowed(added: Tensor | None) -> Mask:
    """Say who may look, where all that is added blocks; else it is a bias, and stays one."""
    if added is None or not bool(((added == 0.0) | (added == float("-inf"))).all()):
        return added
    return added == 0.0


def _as_added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))


def _openly(
    door: SitedModule, sides: _Sides, added: Tensor | None, allowed: Mask, dropout: float
) -> tuple[Tensor, Tensor]:
    """Attend with weights that are returned: (batch, head, query, width) and (batch, head, query, key)."""
    made: list[Tensor] = []
    scale = math.sqrt(1.0 / sides.query.shape[-1])

    def opened(query: Tensor, key: Tensor, value: Tensor, changed: Changed) -> Tensor:
        batch, heads, length, _ = query.shape
        flat = [each.flatten(0, 1) for each in (query * scale, key.transpose(-2, -1), value)]
        mask = _as_changed(changed.mask, query.dtype) if changed.is_changed else added
        if mask is None:
            scores = torch.bmm(flat[0], flat[1])
        else:
            shape = (mask.shape[0] if mask.shape[:2] == (1, 1) else batch, heads, mask.shape[-2], mask.shape[-1])
            wide = mask[0] if mask.shape[:2] == (1, 1) else mask.expand(shape).flatten(0, 1)
            scores = torch.baddbmm(wide, flat[0], flat[1])
        weights = torch.nn.functional.softmax(scores.view(batch, heads, length, -1), dim=-1)
        weights = torch.nn.functional.dropout(weights, dropout) if dropout else weights
        made[:] = [weights]
        return torch.bmm(weights.flatten(0, 1), flat[2]).view(batch, heads, length, -1)

    heads: Tensor = door(Foreign(*sides, allowed, scale, opened, opened))
    if not made:  # the heads were known, but whoever called asked for weights
        opened(*sides, Changed())
    return heads, made[0]


def _as_changed(mask: Mask, dtype: torch.dtype) -> Tensor | None:
    """Write a mask of ours as something added to the scores."""
    if not isinstance(mask, Tensor):
        return None
    mask = mask[(None,) * (4 - mask.dim())]
    return _as_added(~mask, dtype) if mask.dtype == torch.bool else mask.to(dtype)
