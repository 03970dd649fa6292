"""Edits of any site: the residual stream, hidden layers, outputs, values, logits.

For the mask, scores and weights there are edits of their own; `Patch` also takes scores and
weights.
"""

from dataclasses import dataclass
from typing import ClassVar, get_args

import torch
from torch import Tensor, nn

from attnlab.edits.edit import Edit
from attnlab.edits.edit_context import EditContext
from attnlab.edits.heads import Over
from attnlab.edits.rules import as_tensor, require_choice, require_finite
from attnlab.edits.sources import Recorded, average, check_shape, recorded
from attnlab.edits.where import own_name
from attnlab.errors import WrongUsage

__all__ = ["AddVector", "MeanSite", "Patch", "ScaleSite", "ZeroSite", "ZeroValue"]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class _SiteEdit(Edit):
    """Base: the site has to be said."""

    NARROWS: ClassVar[tuple[str, ...]] = ("head", "query", "key", "row", "step")
    OTHERS: ClassVar[dict[str, str]] = {
        "mask": "CutEdge, SetMask, ShiftMask or RelaxMask",
        "scores": "ScaleScores, AddToScores or Temperature",
        "weights": "SetPattern, UniformPattern or CutEdge",
    }

    def check(self) -> None:
        """The site is said."""
        if self.site is None:
            raise WrongUsage(
                f"{type(self).__name__} needs site=: a site's name, such as "
                "'layers.0.residual_after'."
            )

    def check_model(self, model: nn.Module, sites: list[str]) -> None:
        """It is for none of the sites that have edits of their own."""
        for site in sites:
            if own_name(site) in self.OTHERS:
                raise WrongUsage(f"{self!r} is not for {site}; use {self.OTHERS[own_name(site)]}.")
        super().check_model(model, sites)


class ZeroSite(_SiteEdit):
    """Zeros."""

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return zeros."""
        return torch.zeros_like(values)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ScaleSite(_SiteEdit):
    """The values times a factor (1 changes nothing)."""

    factor: float

    def check(self) -> None:
        """The factor is a finite number."""
        super().check()
        require_finite("factor", self.factor)

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the values times the factor."""
        return values * self.factor


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class MeanSite(_SiteEdit):
    """Replace values by their mean, over rows, positions or both, or over a recording."""

    over: Over = "all"
    recording: Recorded | None = None

    def check(self) -> None:
        """The means are known by their names."""
        super().check()
        require_choice("over", self.over, get_args(Over))

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the means."""
        return average(values, context, self.over, self.recording, repr(self))


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class AddVector(_SiteEdit):
    """The values plus a vector, times a scale: steering (Turner et al. 2023).

    vector: (width,) for all positions alike, or whatever fits the site's axes from the last on.
    """

    vector: Tensor
    scale: float = 1.0

    def check(self) -> None:
        """The vector holds numbers, and so is the scale."""
        super().check()
        object.__setattr__(self, "vector", as_tensor("vector", self.vector))
        require_finite("scale", self.scale)

    def check_model(self, model: nn.Module, sites: list[str]) -> None:
        """The vector is as wide as the site."""
        super().check_model(model, sites)
        for site in sites:
            check_shape(model, site, tuple(self.vector.shape), f"{self!r}: vector=")

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the sums."""
        return values + self.scale * context.taken(self.vector.to(values), f"{self!r}: vector=")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Patch(_SiteEdit):
    """Replace values by those of another run (activation patching, Vig et al. 2020).

    recording: of one input, which serves all rows, or of as many as there are rows. Positions are
    counted from the
        start of the text; those that are patched must have been recorded.
    """

    recording: Recorded

    OTHERS: ClassVar[dict[str, str]] = {"mask": "SetMask"}

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the recorded values."""
        taken = context.taken(
            recorded(context, self.recording), f"{self!r}: the recording", is_recorded=True
        )
        return taken.expand_as(values)


class ZeroValue(Edit):
    """Set the values of some keys to zero; the weights stay (Mohebbi et al. 2023)."""

    AT: ClassVar[str] = "value"
    NARROWS: ClassVar[tuple[str, ...]] = ("head", "key", "row")

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return zeros."""
        return torch.zeros_like(values)
