"""Where replacement values come from: means, other rows of the batch, recordings."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from attnlab.edits.edit_context import EditContext
from attnlab.edits.where import axes_of, known_sizes, own_name
from attnlab.errors import WrongUsage, did_you_mean
from attnlab.look import open_recording
from attnlab.parts.heads import share_heads
from attnlab.seeds import generator
from attnlab.shapes import shape_text

__all__ = [
    "Recorded",
    "average",
    "check_recorded",
    "check_shape",
    "check_source",
    "donors",
    "opened",
    "recorded",
]

Recorded: TypeAlias = Mapping[str, Tensor] | str
"""A recording, tensors by their sites, or the folder of a recording."""


def opened(recording: Recorded | None) -> Mapping[str, Tensor] | None:
    """Return a recording; a text is the folder in which one was saved."""
    return open_recording(recording) if isinstance(recording, str) else recording


def check_source(recording: Any, who: str) -> None:
    """Raise unless this is a recording, tensors by their sites, or the folder of a recording."""
    if recording is not None and not isinstance(recording, Mapping | str):
        raise WrongUsage(
            f"{who}: recording= is a recording, tensors by their sites, or a "
            f"recording's folder; got a {type(recording).__name__}."
        )
    if isinstance(recording, dict) and not all(
        isinstance(value, Tensor) for value in recording.values()
    ):
        raise WrongUsage(f"{who}: recording= has to hold tensors, by the names of their sites.")


def check_recorded(
    model: nn.Module, recording: Recorded | None, sites: list[str], who: str
) -> None:
    """Raise unless a recording has these sites, with the model's widths and heads."""
    if recording is None:
        return
    assert isinstance(recording, Mapping)
    for site in sites:
        if site not in recording:
            raise WrongUsage(
                f"{who}: the recording has no {site!r}; {did_you_mean(site, recording)}"
            )
        shape = recording.shape(site) if hasattr(recording, "shape") else recording[site].shape
        check_shape(model, site, tuple(shape), f"{who}: the recording", is_recorded=True)


def check_shape(
    model: nn.Module, site: str, shape: tuple[int, ...], what: str, *, is_recorded: bool = False
) -> None:
    """Raise if a shape can be seen not to fit a site before the model has read anything."""
    axes, sizes = axes_of(own_name(site)), known_sizes(model, site)
    fits = (
        len(shape) == len(axes)
        if is_recorded and own_name(site) != "logits"
        else len(shape) <= len(axes)
    )
    for axis, size in zip(reversed(axes), reversed(shape), strict=False):
        fits = fits and (size == sizes.get(axis, size) or (size == 1 and not is_recorded))
    if not fits:
        known = ", ".join(str(sizes.get(axis, axis)) for axis in axes)
        raise WrongUsage(f"{what} for {site} must fit ({known}); got {shape_text(shape)}.")


def recorded(context: EditContext, recording: Recorded) -> Tensor:
    """Return what was recorded at this site, on the right device and of the right dtype."""
    assert isinstance(recording, Mapping)
    found = (
        recording[context.site].detach().to(device=context.whole.device, dtype=context.whole.dtype)
    )
    if (
        own_name(context.site) in ("key", "value")
        and found.dim() == 4
        and context.whole.shape[1] % found.shape[1] == 0
    ):
        return share_heads(found, context.whole.shape[1])
    return found


def average(
    values: Tensor, context: EditContext, over: str, recording: Recorded | None, who: str
) -> Tensor:
    """Return the mean over rows, positions or both, broadcasting to the values."""
    place = -2  # positions stand before the width
    if over != "rows" and "classes" in context.axes:
        raise WrongUsage(f"{who}: {context.site} has no positions here; take over='rows'.")
    if recording is not None:
        source = recorded(context, recording)
        if over == "rows":
            return context.taken(
                source.mean(0, keepdim=True), f"{who}: the recording's mean", is_recorded=True
            )
        mean = source.mean((0, place) if over == "all" else (place,), keepdim=True)
        return context.taken(mean, f"{who}: the recording's mean")
    text = context.text
    if over != "rows" and text is not None and text.offset:
        raise WrongUsage(
            f"{who}: under a key/value cache a mean over positions would know only the newest; "
            "take over='rows', the mean of a recording, or generate with use_cache=False."
        )
    axes = {"all": (0, place), "rows": (0,), "positions": (place,)}[over]
    if text is None or text.real is None or "classes" in context.axes:
        mean = context.whole.mean(axes, keepdim=True)
    else:
        real = text.real[:, None, :, None] if context.whole.dim() == 4 else text.real[:, :, None]
        mean = torch.where(real, context.whole, 0.0).sum(axes, keepdim=True) / real.sum(
            axes, keepdim=True
        ).clamp(min=1)
    return context.of(mean.expand(context.whole.shape[0], *mean.shape[1:])).expand_as(values)


def donors(context: EditContext, seed: int, recording: Recorded | None, who: str) -> Tensor:
    """Return, for each chosen row, the values of another row."""
    batch = context.whole.shape[0]
    chance = generator(seed, "resample")
    if recording is not None:
        source = recorded(context, recording)
        drawn = torch.randint(source.shape[0], (batch,), generator=chance).to(source.device)
        return context.taken(
            source.index_select(0, drawn), f"{who}: the recording", is_recorded=True
        )
    if batch < 2:
        raise WrongUsage(
            f"{who}: another row is needed to take values from; got a batch of {batch}."
        )
    order = torch.randperm(batch, generator=chance)
    partner = torch.empty_like(order)
    partner[order] = order.roll(1)  # one circle through all rows: none meets itself
    return context.of(context.whole, partner.to(context.rows.device).index_select(0, context.rows))
