"""One attention call of a foreign model at its hook point: its values are shown, and may be edited.

If no hook wants scores or weights, or only reads them and they can be computed later, the model's
own fused kernel runs. If a hook may edit them, the model's own explicit attention runs and its
softmax is intercepted, so that every family keeps its own arithmetic (soft-capped scores, sinks,
position biases) to the last bit.

Hook points are parts without weights that represent the attentions, blocks and stacks of a foreign
model. A tree of them is built beside the foreign model, under our names: `layers.3.attention`,
`decoder.layers.0.cross_attention`. So recordings, edits and sweeps work on them as on our own
parts. A backend brings the foreign model's values to a hook point and takes the result back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function_unary

from attnlab.errors import CouldNotRun
from attnlab.parts.heads import HeadLayout, mask_to_show
from attnlab.parts.masks import Mask, allowed_by
from attnlab.sites import AttentionCall, OutputSlot, SitedModule


def softmax_or_zeros(scores: Tensor) -> Tensor:
    """Compute a softmax as torch's fused attention does: a query without a key gets zeros.

    It is intercepted as one function, so that weights are shown after the zeros are in them.
    """
    if has_torch_function_unary(scores):
        weights: Tensor = handle_torch_function(softmax_or_zeros, (scores,), scores)
        return weights
    dead = _has_no_key(scores)
    alive = scores.masked_fill(dead, 0.0)
    return torch.nn.functional.softmax(alive, dim=-1).masked_fill(dead, 0.0)


SOFTMAXES = (
    softmax_or_zeros,
    torch.softmax,
    torch.nn.functional.softmax,
    torch.Tensor.softmax,
    torch.special.softmax,
)
_SUBTRACTIONS = (torch.sub, torch.subtract, torch.Tensor.sub, torch.Tensor.__sub__)

Compute = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""Computes the heads' outputs, (batch, head, query, width), from query, key, value and the edited
mask; None for the model's own mask."""


@dataclass(frozen=True)
class ForeignAttention:
    """The arguments of one attention in a foreign model, and the functions that compute it.

    query (batch, head, query, width) · key, value (batch, kv_head, key, width) · mask, scale: as
    `attend` takes them, every bias in the mask · explicit: calls a softmax that can be intercepted;
    the same function as fused where the model itself does · is_native: fused is our own kernel,
    which can make a summary in the same pass.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Mask
    scale: float | None
    fused: Compute
    explicit: Compute
    is_native: bool = False


class AttentionPoint(SitedModule):
    """The hook point of one attention in a foreign model.

    Args:
        sites: the sites that the backend shows.
        backend: how the attention reaches the hook point: "registry", "sdpa", "softmax" or
            "multi-head".
        num_heads, num_kv_heads: heads of the queries, and of the keys and values.
        is_cross: keys and values come from another sequence than the queries.

    `is_lazy` says whether weights can be computed later from queries, keys and the mask, and
    `function` is what others registered as this attention's function; verification sets both.
    """

    is_lazy = False
    function: Callable[..., Any] | None = None
    shows_product = False
    """Are the weights shown that multiply the values, because they are not those of the softmax?"""

    def __init__(
        self, sites: Sequence[str], backend: str, num_heads: int, num_kv_heads: int, is_cross: bool
    ) -> None:
        super().__init__()
        self.sites = tuple(sites)
        self.layout = HeadLayout(num_heads, num_kv_heads)
        self.backend, self.is_cross = backend, is_cross

    def forward(self, attention: ForeignAttention) -> Tensor:
        """Compute one attention; return its heads' outputs, (batch, head, query, width)."""
        self.check_heads(attention.query.shape[1])
        if not self.is_hooked:
            compute = attention.explicit if self.is_explicit else attention.fused
            return compute(attention.query, attention.key, attention.value, None)
        query = self.visit("query", attention.query)
        key = self.visit("key", attention.key)
        value = self.visit("value", attention.value)
        edited = self._edited_mask(attention.mask, query, key)
        mask = edited if edited is not None else attention.mask
        is_shown, is_explicit = self.wants("scores", "weights"), self._must_be_explicit(attention)
        place = OutputSlot() if attention.is_native and not is_explicit else None
        # A hook that only reads can compute the weights later, unless another one edits them now.
        self.watch(
            AttentionCall(
                query, key, value, mask, attention.scale,
                is_explicit and is_shown, self.is_cross, place, is_whole=self.is_lazy,
            )
        )  # fmt: skip
        heads = self.supplied("heads")
        if heads is None and place is not None:
            heads = place.output
        if heads is None:
            compute = attention.fused
            if is_explicit:
                explicit = partial(self._intercepted, attention.explicit)
                if self._may_change() or attention.explicit is attention.fused:
                    compute = explicit
                else:  # weights are shown, and the pass goes on as without us
                    explicit(query, key, value, edited)
            heads = compute(query, key, value, edited)
        return self.visit("heads", heads)

    def _must_be_explicit(self, attention: ForeignAttention) -> bool:
        """Must scores and weights be computed where they can be seen, or changed?"""
        if self._may_change():
            return True
        if self.is_lazy and not (
            attention.fused is attention.explicit and _leaves_rows_dead(attention.mask)
        ):
            return False
        return self.wants("scores", "weights")

    def _may_change(self) -> bool:
        """May scores and weights be changed in this pass?"""
        return self.is_explicit or self.wants("scores", "weights", to_change=True)

    def _intercepted(
        self, compute: Compute, query: Tensor, key: Tensor, value: Tensor, edited: Tensor | None
    ) -> Tensor:
        """Compute the heads with their softmax intercepted."""
        with _SoftmaxMode(self, key.shape[-2], may_be_dead=edited is not None):
            return compute(query, key, value, edited)

    def _edited_mask(self, mask: Mask, query: Tensor, key: Tensor) -> Tensor | None:
        """Show the mask, and return it if it was edited."""
        shown = mask_to_show(self, mask, query, key)
        if shown is None:
            return None
        edited = self.visit("mask", shown)
        return None if edited is shown else edited

    def check_heads(self, number: int) -> None:
        """Raise if a hook is installed and the number of heads is not the one that was traced."""
        if number != self.layout.num_heads and self.wants(*self.sites):
            raise CouldNotRun(
                f"an attention of {self.layout.num_heads} heads has {number} in this pass, so "
                "what was taken for its heads is something else (positions, or inputs): "
                "heads must be the second axis, (batch, head, query, key or width)."
            )

    def unfolded(self, values: Tensor) -> Tensor:
        """Reshape (batch · head, …) to (batch, head, …)."""
        return values.reshape(-1, self.layout.num_heads, *values.shape[1:])

    def extra_repr(self) -> str:
        """Return the text of this part in `print(model)`."""
        num_heads, num_kv_heads = self.layout
        shared = f" over {num_kv_heads}" if num_heads != num_kv_heads else ""
        return f"{num_heads} heads{shared}, backend {self.backend}"


@dataclass(frozen=True)
class _Lowered:
    """Scores from which a number for each row was subtracted, as some models do before the
    softmax."""

    scores: Tensor
    raw: Tensor
    by: Tensor


class _SoftmaxMode(TorchFunctionMode):
    """Intercepts the softmax of one attention: its input are the scores, its output the weights."""

    def __init__(self, point: SitedModule, num_keys: int, *, may_be_dead: bool) -> None:
        super().__init__()
        self._point, self._num_keys, self._may_be_dead = point, num_keys, may_be_dead
        self._lowered: _Lowered | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Intercept a softmax, and note a subtraction that may come before it."""
        kwargs = kwargs or {}
        if func in SOFTMAXES:
            scores, compute = softmax_parts(func, args, kwargs)
            lowered = self._lowered
            if lowered is not None and lowered.scores is not scores:
                lowered = None
            return hooked_softmax(
                self._point, self._num_keys, scores, compute, lowered, may_be_dead=self._may_be_dead
            )
        output = func(*args, **kwargs)
        if func in _SUBTRACTIONS and isinstance(args[1], Tensor) and args[1].shape[-1:] == (1,):
            self._lowered = _Lowered(output, args[0], args[1])
        return output


def softmax_parts(func: Any, args: Any, kwargs: Any) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the input of a softmax, and the function that computes it of another input."""
    if args:
        return args[0], lambda scores: func(scores, *args[1:], **kwargs)
    return kwargs["input"], lambda scores: func(**{**kwargs, "input": scores})


def hooked_softmax(
    point: SitedModule,
    num_keys: int,
    raw_scores: Tensor,
    compute: Callable[[Tensor], Tensor],
    lowered: _Lowered | None = None,
    *,
    may_be_dead: bool = False,
    cut: Tensor | None = None,
) -> Tensor:
    """Compute a softmax over keys, and show its scores (before they were lowered) and weights at
    the hook point.

    num_keys: columns that are keys; a softmax with one more has a sink in the last, which is not
    shown. may_be_dead: the mask was edited, so that a query may have no key left. cut: what an edit
    has blocked, where the mask is part of the scores.
    """
    scores, dead = raw_scores, None
    if cut is not None:
        scores = raw_scores.masked_fill(cut, float("-inf"))
    if point.wants("scores"):
        scores = _shown_scores(point, num_keys, scores, lowered)
    if may_be_dead or scores is not raw_scores:
        # A row whose keys were all blocked by an edit gets zeros, as in our own attention.
        dead = _has_no_key(scores)
        if not may_be_dead:  # a row without keys before any edit keeps the model's own result
            dead = dead & ~_has_no_key(raw_scores)
        scores = scores.masked_fill(dead, 0.0)
    weights = compute(scores)
    if dead is not None:
        weights = weights.masked_fill(dead, 0.0)
    if not point.wants("weights"):
        return weights
    shown = weights[..., :num_keys]
    edited = point.visit("weights", shown)
    # With a graph the model goes on with what was shown, so that its gradient arrives there.
    if edited is shown and not shown.requires_grad:
        return weights
    edited = edited.to(weights.dtype)
    return _with_sink(edited, weights, num_keys)


def _shown_scores(
    point: SitedModule, num_keys: int, scores: Tensor, lowered: _Lowered | None
) -> Tensor:
    """Show the scores, and return the input of the softmax: the same numbers unless they were
    edited."""
    raw = lowered.raw if lowered is not None else scores
    shown = with_infinities(raw[..., :num_keys])
    edited = point.visit("scores", shown)
    if edited is shown and not shown.requires_grad:
        return scores
    # Rows that had no key, and still have none, stay; without an edit all that is blocked does.
    stays = shown == float("-inf")
    if edited is not shown:
        stays = _has_no_key(shown) & _has_no_key(edited)
    if lowered is not None:
        edited = edited - lowered.by
    kept = torch.where(stays, scores[..., :num_keys], edited.to(scores.dtype))
    return _with_sink(kept, scores, num_keys)


def with_infinities(values: Tensor) -> Tensor:
    """Return scores with -inf in the place of very negative numbers."""
    return values.masked_fill(values <= torch.finfo(values.dtype).min / 2, float("-inf"))


def blocking(mask: Tensor) -> Tensor:
    """Return an added mask with -inf in the place of very negative numbers.

    A row of nothing else stays: added to scores, such numbers give every key the same weight.
    """
    scores = with_infinities(mask)
    return torch.where(_has_no_key(scores), mask, scores)


def _leaves_rows_dead(mask: Mask) -> bool:
    """Is there a query that may attend to no key, of which models make zeros or NaN?"""
    if not isinstance(mask, Tensor):
        return False
    return not bool(allowed_by(mask).any(-1).all())


def foreign_causal(query: Tensor, key: Tensor) -> Mask:
    """Return the causal mask of foreign models, which begins with the first query and key."""
    sizes = query.shape[-2], key.shape[-2]
    if sizes[0] == sizes[1]:
        return "causal"
    return torch.ones(*sizes, dtype=torch.bool, device=query.device).tril()


def _has_no_key(scores: Tensor) -> Tensor:
    return (scores == float("-inf")).all(-1, keepdim=True)


def _with_sink(values: Tensor, whole: Tensor, num_keys: int) -> Tensor:
    if whole.shape[-1] == num_keys:
        return values
    return torch.cat((values, whole[..., num_keys:]), -1)


class BlockPoint(SitedModule):
    """The hook point of one block (an attention, perhaps a cross-attention, a feed-forward part,
    the residual stream), or of its feed-forward part."""

    def __init__(self, sites: Sequence[str], parts: dict[str, SitedModule]) -> None:
        super().__init__()
        self.sites = tuple(sites)
        for name, part in parts.items():
            self.add_module(name, part)


class StackPoint(SitedModule):
    """The hook point of a stack of blocks that reads one sequence: an encoder, a decoder.

    called: the foreign model's module that runs it, if there is one.
    """

    sites = ("embedding",)

    def __init__(self, layers: Sequence[BlockPoint], called: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self._called = (called,)  # in a tuple, so that it is no submodule of this one

    @property
    def entrance(self) -> nn.Module:
        """The module of the foreign model that runs the stack."""
        return self._called[0] or self


def visit_stream(part: SitedModule, site: str, value: Tensor, form: str) -> Tensor:
    """Show a value at a site as (batch, length, width); return the result in the value's own
    form."""
    shown = to_batch_first(value, form)
    edited = part.visit(site, shown)
    if edited is shown and not shown.requires_grad:
        return value
    return to_stream_axes(edited, form)


def to_batch_first(value: Tensor, form: str) -> Tensor:
    """Reshape the stream of plain torch to (batch, length, width)."""
    if form == "length first":
        return value.transpose(0, 1)
    if form == "one input":
        return value[None]
    return value


def to_stream_axes(value: Tensor, form: str) -> Tensor:
    """Return a (batch, length, width) value in the axes of plain torch's stream."""
    return value[0] if form == "one input" else to_batch_first(value, form)


def stream_of(args: Any, kwargs: Any) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """Return the stream among a module's arguments, and a function that replaces it."""
    index = next(
        (place for place, argument in enumerate(args) if isinstance(argument, Tensor)), None
    )
    if index is not None:
        return args[index], lambda new: ((*args[:index], new, *args[index + 1 :]), kwargs)
    name = "hidden_states"
    if name not in kwargs:
        name = next(name for name, argument in kwargs.items() if isinstance(argument, Tensor))
    return kwargs[name], lambda new: (args, {**kwargs, name: new})


def with_value(output: Any, new: Tensor, old: Tensor) -> Any:
    """Replace a tensor in a module's output."""
    if new is old:
        return output
    if isinstance(output, Tensor):
        return new
    if isinstance(output, tuple | list):
        changed = [new if item is old else item for item in output]
        return tuple(changed) if isinstance(output, tuple) else changed
    name = next(name for name, item in output.items() if item is old)
    output[name] = new
    return output
