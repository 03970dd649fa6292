"""Edits of whole heads: of what each gathers, before the output projection mixes them.

They stand at the site `heads`, (batch, head, query, value_width): attention itself runs as it is,
on the fused kernel too, and query heads are addressed one by one, also where several share a key.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from attnlab.edits.edit import Edit
from attnlab.edits.edit_context import EditContext
from attnlab.edits.rules import require_choice, require_finite
from attnlab.edits.sources import Recorded, average, donors
from attnlab.edits.targets import Target, normal, numbers
from attnlab.edits.where import num_heads, part_of
from attnlab.errors import WrongUsage

__all__ = ["MeanHead", "Over", "ResampleHead", "ScaleHead", "SwapHeads", "ZeroHead"]

Over = Literal["all", "rows", "positions"]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class _HeadEdit(Edit):
    """Base: the head has to be said, because "all" of them is seldom meant."""

    head: Target = ()

    AT: ClassVar[str] = "heads"

    def __post_init__(self) -> None:
        if self.head is None or self.head == ():
            raise WrongUsage(
                f"{type(self).__name__} needs head=: a number, a list of them, or 'all'."
            )
        super().__post_init__()


class ZeroHead(_HeadEdit):
    """The head says nothing: its output is zeros."""

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return zeros."""
        return torch.zeros_like(values)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ScaleHead(_HeadEdit):
    """The head speaks louder or softer: its output times a factor (1 changes nothing)."""

    factor: float

    def check(self) -> None:
        """The factor is a finite number."""
        require_finite("factor", self.factor)

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the values times the factor."""
        return values * self.factor


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class MeanHead(_HeadEdit):
    """Replace a head's output by its mean, over this input or over a recording.

    over: "all" rows and positions, "rows" (each position keeps its own mean) or "positions" (each
    row does). Padding
        that the model is told of does not count. Means over one's own positions look ahead, and are
        refused under a key/value cache.
    recording: take the mean of what was recorded at the same site instead, padding and all.
    """

    over: Over = "all"
    recording: Recorded | None = None

    def check(self) -> None:
        """The means are known by their names."""
        require_choice("over", self.over, get_args(Over))

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the means."""
        return average(values, context, self.over, self.recording, repr(self))


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ResampleHead(_HeadEdit):
    """Replace a head's output by that of another row, or of a random row of a recording.

    Each row gets another row's values, drawn once for all sites and passes (no row keeps its own).
    """

    seed: int = 0
    recording: Recorded | None = None

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the values of the rows drawn."""
        return donors(context, self.seed, self.recording, repr(self))


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class SwapHeads(_HeadEdit):
    """Two heads change places: each one's output goes where the other's belongs.

    head and other: two numbers.
    """

    other: int

    def check(self) -> None:
        """They are two numbers."""
        object.__setattr__(self, "other", normal("other", self.other))
        for name in ("head", "other"):
            if not isinstance(getattr(self, name), int):
                raise WrongUsage(
                    "SwapHeads takes two numbers, head= and other=; got "
                    f"{name}={getattr(self, name)!r}."
                )

    def check_model(self, model: nn.Module, sites: list[str]) -> None:
        """Both heads are there, and they are two."""
        for site in sites:
            one, other = self._pair(num_heads(model, part_of(site)), part_of(site))
            if one == other:
                raise WrongUsage(
                    f"{self!r}: both are head {one} of {part_of(site)}; name two different ones."
                )

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the other's values for each of the two."""
        one, other = self._pair(context.whole.shape[1], context.site)
        partner = torch.where(context.heads == one, other, one)
        return context.whole.index_select(0, context.rows).index_select(1, partner)

    def heads_in(self, size: int, part: str) -> list[int]:
        """Both heads are its targets."""
        return list(self._pair(size, part))

    def _pair(self, size: int, part: str) -> tuple[int, int]:
        one, other = (numbers("head", each, size, part)[0] for each in (self.head, self.other))
        return one, other
