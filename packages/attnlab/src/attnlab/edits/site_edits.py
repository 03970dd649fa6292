"""Edits of whole heads, and of any other site: values, the residual stream, hidden layers, logits.

Edits of heads change the site `heads`, (batch, head, query, value_width), before the output
projection mixes them: attention itself runs as it is, on the fused kernel too, and query heads are
addressed one by one, also where several share a key. For the mask, scores and weights there are
edits of their own; `Patch` also takes scores and weights.
"""

from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from attnlab.edits.edit import Edit
from attnlab.edits.edit_context import EditContext
from attnlab.edits.sources import Recorded, donors, mean_value, recorded_value
from attnlab.edits.targets import EditTarget, atoms_of, axes_of, normal, numbers
from attnlab.errors import WrongUsage, require_known
from attnlab.look.heads import number_of_heads
from attnlab.sites import part_of, site_suffix

__all__ = [
    "AddVector", "MeanHead", "MeanSite", "Patch", "ResampleHead", "ScaleHead", "ScaleSite",
    "SwapHeads", "ZeroHead", "ZeroSite", "ZeroValue",
]  # fmt: skip

_Over = Literal["all", "rows", "positions"]


class _Zero(Edit):
    def change(self, values: Tensor, context: EditContext) -> Tensor:
        return torch.zeros_like(values)


class _Scale(Edit):
    factor: float

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        return values * self.factor


class _Mean(Edit):
    over: _Over = "all"
    recording: Recorded | None = None

    def check(self) -> None:
        require_known("choice of over=", self.over, get_args(_Over))

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        return mean_value(context, self.over, self.recording, repr(self)).expand_as(values)


class _HeadEdit(Edit):
    AT = "heads"
    NEEDS = "head"


class _SiteEdit(Edit):
    """An edit of any site. channel: numbers along its last axis, such as one neuron of
    `feed_forward.hidden`; as the other targets are."""

    channel: EditTarget = None

    NARROWS = ("head", "query", "key", "row", "step")
    NEEDS = "site"
    OTHERS: ClassVar[dict[str, str]] = {
        "mask": "CutEdge, SetMask, ShiftMask or RelaxMask",
        "scores": "ScaleScores, AddToScores or Temperature",
        "weights": "SetPattern, UniformPattern or CutEdge",
    }
    """The sites that have edits of their own, and which."""

    def check(self) -> None:
        object.__setattr__(self, "channel", normal("channel", self.channel))
        atoms_of("channel", self.channel)  # an invalid span is an error
        super().check()

    def channels_in(self, values: Tensor, site: str) -> Tensor | None:
        if self.channel is None:
            return None
        size = values.shape[-1]
        chosen = torch.zeros(size, dtype=torch.bool, device=values.device)
        chosen[numbers("channel", self.channel, size, f"{self!r}: {site}")] = True
        return chosen.expand(*[1] * (values.dim() - 1), size)

    def check_model(self, model: nn.Module, sites: list[str]) -> None:
        for site in sites:
            if site_suffix(site) in self.OTHERS:
                raise WrongUsage(
                    f"{self!r} is not for {site}; use {self.OTHERS[site_suffix(site)]}."
                )
            if self.channel is not None and axes_of(site_suffix(site))[-1] == "key":
                raise WrongUsage(f"{self!r}: the last axis of {site} are keys; use key=.")
        super().check_model(model, sites)


class ZeroHead(_HeadEdit, _Zero):
    """Set a head's output to zero."""


class ScaleHead(_HeadEdit, _Scale):
    """Multiply a head's output by a factor (1 changes nothing)."""


class MeanHead(_HeadEdit, _Mean):
    """Replace a head's output by its mean, over this input or over a recording: mean ablation.

    over: "all" rows and positions, "rows" (a mean for each position) or "positions" (a mean for
    each row). Padding is left out if the model knows it. A mean over the input's own positions
    looks ahead, and is refused under a key/value cache.
    recording: take the mean of the values recorded at the same site instead, padding included.
    """


class ResampleHead(_HeadEdit):
    """Replace a head's output by that of another row, or of a random row of a recording.

    Each row gets another row's values, drawn once for all sites and passes (no row keeps its own).
    """

    seed: int = 0
    recording: Recorded | None = None

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the values of random rows."""
        return donors(context, self.seed, self.recording, repr(self))


class SwapHeads(_HeadEdit):
    """Swap the outputs of two heads.

    head and other: their numbers.
    """

    other: int

    def check(self) -> None:
        """Require two numbers."""
        object.__setattr__(self, "other", normal("other", self.other))
        both = (self.head, self.other)
        if not all(isinstance(head, int) for head in both):
            raise WrongUsage(f"SwapHeads takes two numbers, head= and other=; got {both!r}.")

    def check_model(self, model: nn.Module, sites: list[str]) -> None:
        """Require two different heads of each part."""
        for part in map(part_of, sites):
            one, other = self.heads_in(number_of_heads(model, part), part)
            if one == other:
                raise WrongUsage(
                    f"{self!r}: both are head {one} of {part}; name two different heads."
                )

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the values of the other head."""
        one, other = self.heads_in(context.whole.shape[1], context.site)
        partner = torch.where(context.heads == one, other, one)
        return context.whole.index_select(0, context.rows).index_select(1, partner)

    def heads_in(self, size: int, part: str) -> list[int]:
        """Return both heads."""
        return [numbers("head", head, size, part)[0] for head in (self.head, self.other)]


class ZeroValue(_Zero):
    """Set the values of some keys to zero; the weights stay (Mohebbi et al. 2023)."""

    AT = "value"
    NARROWS = ("head", "key", "row")


class ZeroSite(_SiteEdit, _Zero):
    """Set values to zero."""


class ScaleSite(_SiteEdit, _Scale):
    """Multiply values by a factor (1 changes nothing)."""


class MeanSite(_SiteEdit, _Mean):
    """Replace values by their mean, over rows, positions or both, or over a recording."""


class AddVector(_SiteEdit):
    """Add a vector times a scale to values: steering (Turner et al. 2023).

    vector: (width,) for all positions, or a tensor that fits the site's last axes.
    """

    vector: Tensor
    scale: float = 1.0

    FITS = "vector"

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the sums."""
        return values + self.scale * self.fitted(self.vector.to(values), context)


class Patch(_SiteEdit):
    """Replace values by those of another run (activation patching, Vig et al. 2020).

    recording: of one input, which serves all rows, or of as many as there are rows. Positions are
    counted from the start of the text; patched positions must be in the recording.
    """

    recording: Recorded

    OTHERS: ClassVar[dict[str, str]] = {"mask": "SetMask"}

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the recorded values."""
        return recorded_value(context, self.recording, repr(self)).expand_as(values)
