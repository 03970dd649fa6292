"""The functions backend: attention at torch's own functions, in models without a registry.

While a model runs, calls of `scaled_dot_product_attention` bring queries, keys, values and mask to
the hook point; in a model that writes attention out itself, its softmax brings scores and weights,
and the product with the values the heads' outputs. Only what tracing found to be attention is
intercepted: another softmax, such as a router's, is not.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


@dataclass
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

    def check(self, operand: Tensor) -> None:
        """Raise if what multiplies the values is not what was shown."""
        if self.shown is None or self.is_dropped or not self.point.wants("scores", "weights"):
            return
        if torch._C._are_functorch_transforms_active():
            return
        used = operand.reshape(self.shape)
        shown = self.shown.reshape(self.shape).to(used.dtype)
        # The weights of a query without a key are NaN in some models, before and after.
        is_same = torch.allclose(used, shown, rtol=0.0, atol=0.0, equal_nan=True)
        if _version(self.shown) != self.version or not is_same:
            raise CouldNotRun(
                "between the softmax and the values the weights are changed in this pass (by a "
                "mask, a gate or a selection), which they were not when the model was loaded; "
                "load it again with an example= in which they are."
            )


def _version(value: Tensor) -> int:
    return 0 if value.is_inference() else value._version


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
        waiting = self._waiting
        if waiting is None:
            return func(*args, **kwargs)
        operand = multiplied(waiting.made, func, args)
        if operand is not None:
            return self._gathered(waiting, operand, func, args, kwargs)
        output = func(*args, **kwargs)
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
            self._waiting = _Waiting(point, shape, None, 0, [weights])
            return weights
        cut = _watched(point, whole) if point.is_hooked else None

        def compute_whole(given: Tensor) -> Tensor:
            return compute(given.reshape(scores.shape)).reshape(shape)

        weights = hooked_softmax(point, shape[-1], whole, compute_whole, cut=cut)
        weights = weights.reshape(scores.shape)
        self._waiting = _Waiting(point, shape, weights, _version(weights), [weights])
        return weights

    def _gathered(
        self, waiting: _Waiting, operand: Tensor, func: Callable[..., Any], args: Any, kwargs: Any
    ) -> Tensor:
        """Multiply weights with values, and show the product; the weights too, where they are not
        those of the softmax."""
        self._waiting = None
        point = waiting.point
        waiting.check(operand)
        if waiting.shown is None and point.wants("weights"):
            weights = operand.reshape(waiting.shape)
            blocked = weights == 0.0
            point.watch(_call_of(point, weights, ~blocked))
            # It tells an edit of weights which keys the model leaves out.
            point.visit("scores", torch.zeros_like(weights).masked_fill(blocked, float("-inf")))
            weights = point.visit("weights", weights)
            args = _with_first(args, weights.reshape(operand.shape).to(operand.dtype))
        product = _Product(func, args, kwargs, waiting.shape)
        output = product.run()
        heads = product.heads(output)
        found = point.supplied("heads")
        if found is None:
            found = self._with_value(point, product, heads)
        found = point.visit("heads", found)
        if found is heads and not heads.requires_grad:
            return output
        return product.turned_back(found, output)

    def _with_value(self, point: AttentionPoint, product: "_Product", heads: Tensor) -> Tensor:
        """Show the values, and return the heads that they make with the weights."""
        if not point.wants("value"):
            return heads
        value = product.value()
        found = point.visit("value", value)
        made = product.weights() @ found
        if found is not value:
            return made
        if made.requires_grad:  # the same numbers, and the gradient arrives at what was shown
            return heads.detach() + (made - made.detach())
        return heads


@dataclass(frozen=True)
class _Product:
    """A product of weights with values, in any order of axes; shape: (batch, head, query, key)."""

    func: Callable[..., Any]
    args: Any
    kwargs: Any
    shape: tuple[int, ...]

    def run(self, weights: Tensor | None = None) -> Tensor:
        """Multiply these weights with the values; None for the model's."""
        args = self.args
        if weights is not None:
            first = operands_of(args)[0]
            args = _with_first(args, weights.reshape(first.shape))
        output: Tensor = self.func(*args, **self.kwargs)
        return output

    def _order(self, output: Tensor) -> tuple[int, ...]:
        return gathered_order(self.func, self.args) or tuple(range(output.dim()))

    def heads(self, output: Tensor) -> Tensor:
        """Return the product as (batch, head, query, width)."""
        ordered = output.permute(self._order(output))
        return ordered.reshape(*self.shape[:3], ordered.shape[-1])

    def turned_back(self, heads: Tensor, output: Tensor) -> Tensor:
        """Return heads in the order of axes of the product."""
        order = self._order(output)
        back = list(map(order.index, range(output.dim())))
        return heads.reshape(output.permute(order).shape).permute(back)

    def weights(self) -> Tensor:
        """Return the weights, (batch, head, query, key)."""
        return operands_of(self.args)[0].reshape(self.shape)

    def value(self) -> Tensor:
        """Return every head's values, (batch, head, key, width): what weights bring that choose one
        key for each query."""
        queries, keys = self.shape[-2:]
        found = []
        for start in range(0, keys, max(queries, 1)):
            places = torch.arange(min(queries, keys - start))
            chosen = torch.zeros_like(self.weights())
            chosen[..., places, start + places] = 1.0
            found.append(self.heads(self.run(chosen))[..., : len(places), :])
        return torch.cat(found, -2)


def _with_first(args: Any, new: Tensor) -> Any:
    """Replace the first tensor among a product's arguments."""
    place = next(i for i, arg in enumerate(args) if not isinstance(arg, str))
    first = args[place]
    if not isinstance(first, Tensor):  # the operands of an einsum in a tuple
        new = type(first)((new, *first[1:]))
    return (*args[:place], new, *args[place + 1 :])


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


def multiplied(made: Sequence[Tensor], func: Callable[..., Any], args: Any) -> Tensor | None:
    """Return the first operand of a product of attention weights, or what was made of them, with
    values; None for anything else."""
    operands = operands_of(args)
    if func not in PRODUCTS or not operands:
        return None
    if func is torch.einsum and not gathers(args[0]):
        return None
    first = operands[0]
    for each in made:
        if first.numel() == each.numel() and first.data_ptr() == each.data_ptr():
            return first
    return None


def carries(made: Sequence[Tensor], args: Any, output: Any) -> bool:
    """Is an output made of attention weights, as many numbers (masked, dropped, reshaped)?"""
    if not isinstance(output, Tensor) or not output.is_floating_point():
        return False
    if output.numel() != made[0].numel():
        return False
    return any(operand is each for operand in operands_of(args) for each in made)


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
                "an edit opens what the mask of this model blocks, and the model has overwritten "
                "the scores there before its softmax; only more can be blocked."
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
    is_open = point.wants("scores", "weights")
    return AttentionCall(
        query, key, key, mask, None, is_open, is_cross=point.is_cross, is_whole=False
    )
