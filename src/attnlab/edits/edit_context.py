"""Edit context: everything an edit may ask about the values it is given."""

from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.edits.token_history import Text
from attnlab.edits.where import own_name
from attnlab.errors import WrongUsage
from attnlab.shapes import shape_text

__all__ = ["EditContext"]


class EditContext(NamedTuple):
    """The values given to an edit: the chosen rows and heads, with all their positions.

    site: full name · axes: of the values, such as ("batch", "head", "query", "key") · rows and
    heads: their numbers · queries and keys: positions, from the start of the text · selected: which
    values are meant, broadcasting to them, or None for all · whole: the values of all rows and
    heads, before this edit · visible: which keys may be looked at, for weights · text: what the
    queries' stack has read.
    """

    site: str
    axes: tuple[str, ...]
    rows: Tensor
    heads: Tensor
    queries: Tensor
    keys: Tensor
    selected: Tensor | None
    whole: Tensor
    visible: Tensor | None
    text: Text | None

    def of(self, whole: Tensor, rows: Tensor | None = None) -> Tensor:
        """Select the chosen rows (or other rows) and heads from the values of all of them."""
        chosen = whole.index_select(0, self.rows if rows is None else rows)
        return chosen.index_select(1, self.heads) if "head" in self.axes else chosen

    def positions(self, axis: str) -> Tensor | None:
        """Return the positions along an axis, or None where it is none of positions."""
        return {"query": self.queries, "length": self.queries, "key": self.keys}.get(axis)

    def meant(self, axis: str) -> Tensor:
        """Return, for each position along an axis, whether any of its values is a target."""
        place = self.axes.index(axis)
        positions = self.positions(axis)
        assert positions is not None
        if self.selected is None or self.selected.shape[place] == 1:
            return torch.ones_like(positions, dtype=torch.bool)
        return self.selected.transpose(0, place).flatten(1).any(1)

    def taken(self, given: Tensor, what: str, *, is_recorded: bool = False) -> Tensor:
        """Select from given values the chosen rows, heads and positions of the text.

        Axes are lined up from the last. An axis of size 1 serves all, and so does one that is not
        there; for what was recorded only the batch does, because one recorded position is not every
        position.

        Raises:
            WrongUsage: it does not fit.
        """
        if given.dim() > len(self.axes):
            raise self._misfit(given, what)
        given = given[(None,) * (len(self.axes) - given.dim())]
        for place, axis in enumerate(self.axes):
            if given.shape[place] == 1 and (axis == "batch" or not is_recorded):
                continue
            positions = self.positions(axis)
            if positions is not None:
                given = self._along(given, place, positions, what)
            elif given.shape[place] != self.whole.shape[place]:
                raise self._misfit(given, what)
            elif axis in ("batch", "head"):
                given = given.index_select(place, self.rows if axis == "batch" else self.heads)
        return given

    def _along(self, given: Tensor, place: int, positions: Tensor, what: str) -> Tensor:
        size, axis = given.shape[place], self.axes[place]
        is_there = positions < size
        if axis == "key" and place == len(self.axes) - 1:
            return self._over_keys(given, is_there, what)
        beyond = positions[self.meant(axis) & ~is_there]
        if beyond.numel():
            target = "key" if axis == "key" else "query"
            raise WrongUsage(
                f"{what} for {self.site} has {size} positions; position {int(beyond[0])} is "
                f"beyond them. Say which positions are meant with {target}=, or give those of a "
                "longer input."
            )
        return given.index_select(place, positions.clamp(max=max(size - 1, 0)))

    def _over_keys(self, given: Tensor, is_there: Tensor, what: str) -> Tensor:
        """Fit a pattern of a shorter or longer text, where no weight is lost or missing."""
        own, size = own_name(self.site), given.shape[-1]
        # a cache may have let go of those before
        first = int(self.keys[0]) if len(self.keys) else 0
        needed = first + len(self.keys)
        meant = (
            torch.ones((), dtype=torch.bool, device=given.device)
            if self.selected is None
            else self.selected
        )
        if size < needed:
            seen = meant if self.visible is None else meant & self.visible
            if bool((seen & ~is_there).any()):
                raise self._misfit(given, what)
            given = torch.cat((given, given.new_zeros((*given.shape[:-1], needed - size))), -1)
        lost = torch.cat((given[..., :first], given[..., needed:]), -1) != 0
        if own == "weights" and bool((lost.any(-1) & meant.any(-1)).any()):
            raise self._misfit(given, what)
        return given[..., first:needed]

    def _misfit(self, given: Tensor, what: str) -> WrongUsage:
        return WrongUsage(
            f"{what} for {self.site} must fit ({', '.join(self.axes)}) = "
            f"{shape_text(self.whole.shape)}; got {shape_text(given.shape)}."
        )
