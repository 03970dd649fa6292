"""What passes one attention of a foreign model, brought to its door: looked at, changed, and gone on with.

Nobody asks for scores or weights, or only looks and they can be made later: the model's own kernel runs, as it would.
Somebody may change them: the model's own open attention runs, and its softmax is met half-way, so that every family
keeps its own arithmetic (soft-capped scores, sinks, biases of position) to the last bit.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnlab.parts.attend import is_explicit
from attnlab.parts.masks import Mask, as_tensor
from attnlab.sites import AttentionCall, OutputPlace, SitedModule

__all__ = ["SOFTMAXES", "Foreign", "Met", "pass_door", "soft_maximum"]

SOFTMAXES = (torch.softmax, torch.nn.functional.softmax, torch.Tensor.softmax, torch.special.softmax)
_SUBTRACTIONS = (torch.sub, torch.subtract, torch.Tensor.sub, torch.Tensor.__sub__)


class Foreign(NamedTuple):
    """One attention as a foreign model asks for it.

    query (batch, head, query, width) · key, value (batch, kv_head, key, width) · mask, scale: as `attend` takes them,
    every bias in the mask. fused and open compute what heads gather, (batch, head, query, width), from query, key,
    value and what was changed of the mask: without a softmax that can be met, and with one. is_quick: fused is our own
    kernel, so that a summary may be made in the same pass.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Mask
    scale: float | None
    fused: Callable[[Tensor, Tensor, Tensor, "Changed"], Tensor]
    open: Callable[[Tensor, Tensor, Tensor, "Changed"], Tensor]
    is_quick: bool = False


class Changed(NamedTuple):
    """A mask that was changed at the door; `is_changed` False: the foreign model's own stays."""

    mask: Mask = None
    is_changed: bool = False


def pass_door(door: SitedModule, asked: Foreign, *, is_cross: bool, is_lazy: bool) -> Tensor:
    """Bring one attention to its door, and return what its heads gather: (batch, head, query, width).

    is_cross: keys and values are of something else than the queries. is_lazy: weights can be made later from queries,
    keys and the mask.
    """
    if not door.is_watched:
        return (asked.open if is_explicit() else asked.fused)(asked.query, asked.key, asked.value, Changed())
    query, key, value = door.visit("query", asked.query), door.visit("key", asked.key), door.visit("value", asked.value)
    mask, changed = asked.mask, Changed()
    if door.wants("mask"):
        tensor = as_tensor(mask, query.shape[-2], key.shape[-2], query.device)
        if tensor is None and door.wants("mask", to_change=True):
            tensor = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device)
        if tensor is not None:
            found = door.visit("mask", tensor)
            if found is not tensor:
                mask, changed = found, Changed(found, True)
    wanted = ("scores", "weights")
    is_open = is_explicit() or door.wants(*wanted, to_change=True) or (not is_lazy and door.wants(*wanted))
    # Who only looks may make the weights later, where nothing was changed openly.
    is_shown = is_open and door.wants(*wanted)
    place = OutputPlace() if asked.is_quick and not is_open else None
    door.watch(AttentionCall(query, key, value, mask, asked.scale, is_shown, is_cross, place, is_whole=is_lazy))
    heads = door.supplied("heads")
    if heads is None and place is not None:
        heads = place.output
    if heads is None and is_open:
        with Met(door, key.shape[-2], may_be_dead=changed.is_changed):
            heads = asked.open(query, key, value, changed)
    elif heads is None:
        heads = asked.fused(query, key, value, changed)
    return door.visit("heads", heads)


class _Lowered(NamedTuple):
    """Scores that were lowered by a number for each row, as some models do before the softmax, which does not mind."""

    scores: Tensor
    raw: Tensor
    by: Tensor


class Met(TorchFunctionMode):
    """Meets the softmax of one attention: what goes in are the scores, what comes out the weights.

    Args:
        door: where they are shown.
        num_keys: columns that are keys; a softmax with one more has a sink in the last, which is not shown.
        may_be_dead: the mask was changed, so that a query may have nothing left to look at.
    """

    def __init__(self, door: SitedModule, num_keys: int, *, may_be_dead: bool = False) -> None:
        super().__init__()
        self._door, self._num_keys, self._may_be_dead = door, num_keys, may_be_dead
        self._lowered: _Lowered | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Stand between the scores and the weights."""
        kwargs = kwargs or {}
        if func in SOFTMAXES:
            given = args[0] if args else kwargs["input"]
            lowered = self._lowered if self._lowered is not None and self._lowered.scores is given else None
            return soft_maximum(
                self._door, self._num_keys, func, args, kwargs, may_be_dead=self._may_be_dead, lowered=lowered
            )
        output = func(*args, **kwargs)
        if func in _SUBTRACTIONS and isinstance(args[1], Tensor) and args[1].shape[-1:] == (1,):
            self._lowered = _Lowered(output, args[0], args[1])
        return output


def soft_maximum(
    door: SitedModule,
    num_keys: int,
    function: Callable[..., Tensor],
    args: Any,
    kwargs: dict[str, Any],
    *,
    may_be_dead: bool = False,
    lowered: _Lowered | None = None,
) -> Tensor:
    """Compute a softmax over keys, its scores (as they were before they were lowered) and weights shown at the door."""
    given: Tensor = args[0] if args else kwargs["input"]
    scores = given
    if door.wants("scores"):
        shown = _shown((given if lowered is None else lowered.raw)[..., :num_keys])
        found = door.visit("scores", shown)
        if found is not shown:
            found = found if lowered is None else found - lowered.by
            scores = _gone_on_with(found, given, shown, num_keys)
    dead = None
    if may_be_dead or scores is not given:
        # A row whose every key was blocked by an edit gets zeros, as in all attention of ours.
        dead = (scores == float("-inf")).all(-1, keepdim=True)
        if not may_be_dead:  # a row that could look at nothing before any edit stays what the model makes of it
            dead = dead & ~(given == float("-inf")).all(-1, keepdim=True)
        scores = scores.masked_fill(dead, 0.0)
    weights = function(scores, *args[1:], **kwargs) if args else function(**{**kwargs, "input": scores})
    if dead is not None:
        weights = weights.masked_fill(dead, 0.0)
    if not door.wants("weights"):
        return weights
    shown = weights[..., :num_keys]
    found = door.visit("weights", shown)
    if found is shown:
        return weights
    found = found.to(weights.dtype)
    return found if weights.shape[-1] == num_keys else torch.cat((found, weights[..., num_keys:]), -1)


def _shown(scores: Tensor) -> Tensor:
    """Write -inf where a very negative number stands for a mask."""
    return scores.masked_fill(scores <= torch.finfo(scores.dtype).min / 2, float("-inf"))


def _gone_on_with(found: Tensor, given: Tensor, shown: Tensor, num_keys: int) -> Tensor:
    """Put edited scores in place of the given ones; rows that could look at nothing stay as they were."""
    nothing = (shown == float("-inf")).all(-1, keepdim=True) & (found == float("-inf")).all(-1, keepdim=True)
    scores = torch.where(nothing, given[..., :num_keys], found.to(given.dtype))
    return scores if given.shape[-1] == num_keys else torch.cat((scores, given[..., num_keys:]), -1)
