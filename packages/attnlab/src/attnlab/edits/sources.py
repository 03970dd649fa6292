"""Sources of new values: an edit's fields, means, other rows, recordings."""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from attnlab.edits.edit_context import EditContext
from attnlab.errors import WrongUsage, is_number, type_words
from attnlab.parts.heads import share_heads
from attnlab.seeds import generator
from attnlab.sites import site_suffix

Recorded: TypeAlias = Mapping[str, Tensor] | str
"""A recording, tensors by their sites, or the folder of a recording."""


def require_finite(name: str, number: Any) -> None:
    """Raise unless this is a finite number that a tensor can hold."""
    most = 2**63 if isinstance(number, int) else math.inf
    if not is_number(number) or not abs(number) < most:
        raise WrongUsage(f"{name}= must be a finite number; got {number!r:.40}.")


def finite_tensor(name: str, values: Any, *, may_block: bool = False) -> Tensor:
    """Return a tensor of finite numbers from a tensor, an array, or nested lists.

    may_block: -inf is allowed too.
    """
    tensor: Tensor = values
    if not isinstance(values, Tensor):
        try:
            tensor = torch.as_tensor(np.asarray(values))
        except (TypeError, ValueError, RuntimeError):
            raise WrongUsage(
                f"{name}= is a tensor or nested lists of numbers; got {values!r:.80}."
            ) from None
    if tensor.is_complex():
        raise WrongUsage(f"{name}= must hold real numbers; got {tensor.dtype}.")
    is_allowed, also = tensor.isfinite(), ""
    if may_block:
        is_allowed, also = is_allowed | (tensor == float("-inf")), " or -inf"
    if tensor.numel() == 0 or not bool(is_allowed.all()):
        raise WrongUsage(f"{name}= must hold finite numbers{also}; got {tensor!r:.120}.")
    return tensor


def check_source(recording: Any, who: str) -> None:
    """Raise unless this is a recording, tensors by their sites, or the folder of a recording."""
    is_known = isinstance(recording, Mapping | str)
    if isinstance(recording, dict):
        is_known = all(isinstance(value, Tensor) for value in recording.values())
    if not is_known:
        raise WrongUsage(
            f"{who}: recording= is a recording, tensors by their sites, or a "
            f"recording's folder; got {type_words(recording)}."
        )


def recorded_value(context: EditContext, recording: Recorded, who: str) -> Tensor:
    """Select the part of the values recorded at this site that belongs to this context."""
    recorded = _recorded_at(context, recording)
    return context.taken(recorded, f"{who}: the recording", is_recorded=True)


def _recorded_at(context: EditContext, recording: Recorded) -> Tensor:
    """Return the values recorded at this site, on the context's device and in its dtype."""
    assert isinstance(recording, Mapping)
    whole = context.whole
    recorded = recording[context.site].detach().to(device=whole.device, dtype=whole.dtype)
    is_shared = site_suffix(context.site) in ("key", "value") and recorded.dim() == 4
    if is_shared and whole.shape[1] % recorded.shape[1] == 0:
        return share_heads(recorded, whole.shape[1])
    return recorded


def mean_value(context: EditContext, over: str, recording: Recorded | None, who: str) -> Tensor:
    """Return the mean over rows, positions or both, broadcasting to the values."""
    if over != "rows" and "classes" in context.axes:
        raise WrongUsage(f"{who}: {context.site} has no positions here; take over='rows'.")
    axes = {"all": (0, -2), "rows": (0,), "positions": (-2,)}[over]  # positions precede the width
    if recording is not None:
        mean = _recorded_at(context, recording).mean(axes, keepdim=True)
        return context.taken(mean, f"{who}: the recording's mean", is_recorded=over == "rows")
    text, whole = context.text, context.whole
    if over != "rows" and text is not None and text.offset:
        raise WrongUsage(
            f"{who}: under a key/value cache a mean over positions would include only the newest; "
            "take over='rows', the mean of a recording, or generate with use_cache=False."
        )
    if text is None or text.real is None or "classes" in context.axes:
        mean = whole.mean(axes, keepdim=True)
    else:
        mean = _mean_of_real(whole, text.real, axes)
    return context.of(mean.expand(whole.shape[0], *mean.shape[1:]))


def _mean_of_real(whole: Tensor, real: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return the mean without padding; real (row, position)."""
    real = real[:, :, None]
    if whole.dim() == 4:
        real = real[:, None]
    number = real.sum(axes, keepdim=True).clamp(min=1)
    return torch.where(real, whole, 0.0).sum(axes, keepdim=True) / number


def donors(context: EditContext, seed: int, recording: Recorded | None, who: str) -> Tensor:
    """Return, for each chosen row, the values of another row."""
    batch = context.whole.shape[0]
    chance = generator(seed, "resample")
    if recording is not None:
        source = _recorded_at(context, recording)
        sampled = torch.randint(source.shape[0], (batch,), generator=chance).to(source.device)
        return context.taken(source[sampled], f"{who}: the recording", is_recorded=True)
    if batch < 2:
        raise WrongUsage(
            f"{who}: values are taken from another row, so give two or more; got {batch}."
        )
    partner = other_rows(batch, chance).to(context.rows.device)
    return context.of(context.whole, partner[context.rows])


def other_rows(number: int, chance: torch.Generator) -> Tensor:
    """Assign another row to every row, each row once, along a random cycle: (row,)."""
    order = torch.randperm(number, generator=chance)
    inverse = torch.empty_like(order)
    inverse[order] = order.roll(1)
    return inverse
