"""One attention call of a foreign model at its hook point: its values are shown, and may be edited.

If no hook wants scores or weights, or only reads them and they can be computed later, the model's
own fused kernel runs. If a hook may edit them, the model's own explicit attention runs and its
softmax is intercepted, so that every family keeps its own arithmetic (soft-capped scores, sinks,
position biases) to the last bit.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnlab.parts.attend import is_explicit
from attnlab.parts.masks import Mask, as_tensor
from attnlab.sites import AttentionCall, OutputPlace, SitedModule

__all__ = ["SOFTMAXES", "ForeignAttention", "MaskEdit", "hooked_attention", "hooked_softmax"]

SOFTMAXES = (
    torch.softmax,
    torch.nn.functional.softmax,
    torch.Tensor.softmax,
    torch.special.softmax,
)
_SUBTRACTIONS = (torch.sub, torch.subtract, torch.Tensor.sub, torch.Tensor.__sub__)


class ForeignAttention(NamedTuple):
    """The arguments of one attention in a foreign model, and the functions that compute it.

    query (batch, head, query, width) · key, value (batch, kv_head, key, width) · mask, scale: as
    `attend` takes them, every bias in the mask. fused and open compute the heads' outputs, (batch,
    head, query, width), from query, key, value and an edit of the mask; open calls a softmax that
    can be intercepted. is_native: fused is our own kernel, which can make a summary in the same
    pass.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Mask
    scale: float | None
    fused: Callable[[Tensor, Tensor, Tensor, "MaskEdit"], Tensor]
    open: Callable[[Tensor, Tensor, Tensor, "MaskEdit"], Tensor]
    is_native: bool = False


class MaskEdit(NamedTuple):
    """A mask that was edited at the hook point; `is_changed` False: the model's own is used."""

    mask: Mask = None
    is_changed: bool = False


def hooked_attention(
    point: SitedModule, asked: ForeignAttention, *, is_cross: bool, is_lazy: bool
) -> Tensor:
    """Compute one attention with its hook point; return the heads' outputs, (batch, head, query,
    width).

    is_cross: keys and values come from another sequence than the queries. is_lazy: weights can be
    computed later from queries, keys and the mask.
    """
    if not point.is_hooked:
        compute = asked.open if is_explicit() else asked.fused
        return compute(asked.query, asked.key, asked.value, MaskEdit())
    query = point.visit("query", asked.query)
    key = point.visit("key", asked.key)
    value = point.visit("value", asked.value)
    mask, edit = asked.mask, _edited_mask(point, asked.mask, query, key)
    if edit.is_changed:
        mask = edit.mask
    wanted = ("scores", "weights")
    is_open = is_explicit() or point.wants(*wanted, to_change=True)
    is_open = is_open or (not is_lazy and point.wants(*wanted))
    # A hook that only reads can compute the weights later, unless another one edits them now.
    is_shown = is_open and point.wants(*wanted)
    place = OutputPlace() if asked.is_native and not is_open else None
    point.watch(
        AttentionCall(
            query, key, value, mask, asked.scale, is_shown, is_cross, place, is_whole=is_lazy
        )
    )
    heads = point.supplied("heads")
    if heads is None and place is not None:
        heads = place.output
    if heads is None and is_open:
        with _SoftmaxMode(point, key.shape[-2], may_be_dead=edit.is_changed):
            heads = asked.open(query, key, value, edit)
    elif heads is None:
        heads = asked.fused(query, key, value, edit)
    return point.visit("heads", heads)


def _edited_mask(point: SitedModule, mask: Mask, query: Tensor, key: Tensor) -> MaskEdit:
    """Show the mask at the hook point and return the edit of it."""
    if not point.wants("mask"):
        return MaskEdit()
    sizes = query.shape[-2], key.shape[-2]
    tensor = as_tensor(mask, *sizes, query.device)
    if tensor is None and point.wants("mask", to_change=True):
        tensor = torch.ones(*sizes, dtype=torch.bool, device=query.device)
    if tensor is None:
        return MaskEdit()
    found = point.visit("mask", tensor)
    return MaskEdit() if found is tensor else MaskEdit(found, True)


class _Lowered(NamedTuple):
    """Scores from which a number for each row was subtracted, as some models do before the
    softmax."""

    scores: Tensor
    raw: Tensor
    by: Tensor


class _SoftmaxMode(TorchFunctionMode):
    """Intercepts the softmax of one attention: its input are the scores, its output the weights.

    Args:
        point: the hook point.
        num_keys: columns that are keys; a softmax with one more has a sink in the last, which is
            not shown.
        may_be_dead: the mask was edited, so that a query may have no key left.
    """

    def __init__(self, point: SitedModule, num_keys: int, *, may_be_dead: bool = False) -> None:
        super().__init__()
        self._point, self._num_keys, self._may_be_dead = point, num_keys, may_be_dead
        self._lowered: _Lowered | None = None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Any = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Intercept a softmax, and note a subtraction that may come before it."""
        kwargs = kwargs or {}
        if func in SOFTMAXES:
            given = args[0] if args else kwargs["input"]
            lowered = self._lowered
            if lowered is not None and lowered.scores is not given:
                lowered = None
            return hooked_softmax(
                self._point,
                self._num_keys,
                func,
                args,
                kwargs,
                may_be_dead=self._may_be_dead,
                lowered=lowered,
            )
        output = func(*args, **kwargs)
        if func in _SUBTRACTIONS and isinstance(args[1], Tensor) and args[1].shape[-1:] == (1,):
            self._lowered = _Lowered(output, args[0], args[1])
        return output


def hooked_softmax(
    point: SitedModule,
    num_keys: int,
    function: Callable[..., Tensor],
    args: Any,
    kwargs: dict[str, Any],
    *,
    may_be_dead: bool = False,
    lowered: _Lowered | None = None,
) -> Tensor:
    """Compute a softmax over keys, and show its scores (before they were lowered) and weights at
    the hook point."""
    given: Tensor = args[0] if args else kwargs["input"]
    scores = given
    if point.wants("scores"):
        shown = _shown((given if lowered is None else lowered.raw)[..., :num_keys])
        found = point.visit("scores", shown)
        if found is not shown:
            found = found if lowered is None else found - lowered.by
            scores = _edited_scores(found, given, shown, num_keys)
    dead = None
    if may_be_dead or scores is not given:
        # A row whose keys were all blocked by an edit gets zeros, as in our own attention.
        dead = (scores == float("-inf")).all(-1, keepdim=True)
        if not may_be_dead:  # a row without keys before any edit keeps the model's own result
            dead = dead & ~(given == float("-inf")).all(-1, keepdim=True)
        scores = scores.masked_fill(dead, 0.0)
    if args:
        weights = function(scores, *args[1:], **kwargs)
    else:
        weights = function(**{**kwargs, "input": scores})
    if dead is not None:
        weights = weights.masked_fill(dead, 0.0)
    if not point.wants("weights"):
        return weights
    shown = weights[..., :num_keys]
    found = point.visit("weights", shown)
    if found is shown:
        return weights
    found = found.to(weights.dtype)
    if weights.shape[-1] == num_keys:
        return found
    return torch.cat((found, weights[..., num_keys:]), -1)


def _shown(scores: Tensor) -> Tensor:
    """Return scores with -inf in the place of the very negative numbers of a mask."""
    return scores.masked_fill(scores <= torch.finfo(scores.dtype).min / 2, float("-inf"))


def _edited_scores(found: Tensor, given: Tensor, shown: Tensor, num_keys: int) -> Tensor:
    """Replace the given scores by edited ones; rows that had no key, and still have none, stay."""
    was_dead = (shown == float("-inf")).all(-1, keepdim=True)
    is_dead = (found == float("-inf")).all(-1, keepdim=True)
    scores = torch.where(was_dead & is_dead, given[..., :num_keys], found.to(given.dtype))
    return scores if given.shape[-1] == num_keys else torch.cat((scores, given[..., num_keys:]), -1)
