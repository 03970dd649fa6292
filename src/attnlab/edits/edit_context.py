"""Edit context: everything an edit may ask about the values it is given, and where they are."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnlab.edits.token_history import Text, TokenHistory, is_cross
from attnlab.edits.where import own_name, part_of
from attnlab.errors import WrongUsage
from attnlab.shapes import shape_text


@dataclass(frozen=True, eq=False)
class Positions:
    """The positions along the axes of one site's values, and the texts that they are counted in.

    site: full name · axes: of the values, such as ("batch", "head", "query", "key") · queries (or
    the stream's positions), keys: numbers from the start of the text, none where there is no such
    axis · stack_text: what the stack around the site has read · query_text, key_text: what the
    queries and the keys are of, None where that is unknown · num_read: how many positions were read
    where a cache has room for more keys, so that their end is unknown; else None.
    """

    site: str
    axes: tuple[str, ...]
    queries: Tensor
    keys: Tensor
    stack_text: Text | None
    query_text: Text | None
    key_text: Text | None
    num_read: int | None

    @property
    def has_queries(self) -> bool:
        """Is there an axis of positions that look, or of the stream's?"""
        return "query" in self.axes or "length" in self.axes

    @property
    def text(self) -> Text | None:
        """What the positions of the values are of, as far as it is known."""
        if self.has_queries:
            return self.query_text
        return self.key_text if "key" in self.axes else self.stack_text


@dataclass(frozen=True, eq=False)
class EditContext(Positions):
    """The values given to an edit: the chosen rows and heads, with all their positions.

    rows and heads: their numbers · selected: which values are meant, broadcasting to them, or None
    for all · whole: the values of all rows and heads, before this edit · visible: which keys may be
    looked at, for weights.
    """

    rows: Tensor
    heads: Tensor
    selected: Tensor | None
    whole: Tensor
    visible: Tensor | None

    def of(self, whole: Tensor, rows: Tensor | None = None) -> Tensor:
        """Select the chosen rows (or other rows) and heads from the values of all of them."""
        chosen = whole.index_select(0, self.rows if rows is None else rows)
        return chosen.index_select(1, self.heads) if "head" in self.axes else chosen

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
            if axis == "key" and place == len(self.axes) - 1:
                given = self._over_keys(given, what)
            elif axis in ("query", "length", "key"):
                given = self._along(given, place, what)
            elif given.shape[place] != self.whole.shape[place]:
                raise self._misfit(given, what)
            elif axis in ("batch", "head"):
                given = given.index_select(place, self.rows if axis == "batch" else self.heads)
        return given

    def _along(self, given: Tensor, place: int, what: str) -> Tensor:
        """Take the positions along an axis; those that are targets must be there."""
        size, axis = given.shape[place], "query"
        positions = self.queries
        if self.axes[place] == "key":
            axis, positions = "key", self.keys
        is_meant = torch.ones_like(positions, dtype=torch.bool)
        if self.selected is not None and self.selected.shape[place] != 1:
            is_meant = self.selected.transpose(0, place).flatten(1).any(1)
        beyond = positions[is_meant & (positions >= size)]
        if beyond.numel():
            raise WrongUsage(
                f"{what} for {self.site} has {size} positions; position {int(beyond[0])} is "
                f"beyond them. Say which positions are meant with {axis}=, or give those of a "
                "longer input."
            )
        return given.index_select(place, positions.clamp(max=max(size - 1, 0)))

    def _over_keys(self, given: Tensor, what: str) -> Tensor:
        """Fit a pattern of a shorter or longer text, where no weight is lost or missing."""
        size = given.shape[-1]
        # a cache may have let go of those before
        first = int(self.keys[0]) if len(self.keys) else 0
        needed = first + len(self.keys)
        meant = self.selected
        if meant is None:
            meant = torch.ones((), dtype=torch.bool, device=given.device)
        if size < needed:
            seen = meant if self.visible is None else meant & self.visible
            if bool((seen & (self.keys >= size)).any()):
                raise self._misfit(given, what)
            given = torch.cat((given, given.new_zeros((*given.shape[:-1], needed - size))), -1)
        lost = torch.cat((given[..., :first], given[..., needed:]), -1) != 0
        is_lossy = own_name(self.site) == "weights"
        if is_lossy and bool((lost.any(-1) & meant.any(-1)).any()):
            raise self._misfit(given, what)
        return given[..., first:needed]

    def _misfit(self, given: Tensor, what: str) -> WrongUsage:
        return WrongUsage(
            f"{what} for {self.site} must fit ({', '.join(self.axes)}) = "
            f"{shape_text(self.whole.shape)}; got {shape_text(given.shape)}."
        )


def positions_at(
    model: nn.Module, history: TokenHistory, site: str, axes: tuple[str, ...], values: Tensor
) -> Positions:
    """Find the positions of a site's values."""
    part = part_of(site)
    text, query_text, key_text = history.of(part), None, None
    # A foreign feed-forward part may read all rows and positions as one axis: then none is told.
    sizes = dict(zip(axes, values.shape, strict=True)) if values.dim() == len(axes) else {}
    queries = keys = torch.arange(0, device=values.device)
    num_read = None
    if "key" in axes:
        first = history.first_key(part, sizes["key"])
        keys = torch.arange(first, first + sizes["key"], device=values.device)
        key_text = history.of_keys(part, sizes["key"])
        # Only hook points of foreign models tell that the keys are of the queries' own text; our
        # own parts have caches that grow, and say at the call what they look at.
        looks_at_itself = getattr(model.get_submodule(part), "is_cross", True) is False
        if looks_at_itself and key_text is None and text is not None and sizes["key"] > text.length:
            num_read = text.length
    size = sizes.get("query", sizes.get("length"))
    if size is not None:
        query_text = history.of_queries(part, size)
        offset = 0
        if query_text is not None:
            offset = query_text.offset
        elif "key" in axes and not is_cross(part):
            offset = len(keys) - size  # queries of self-attention are the last positions
        queries = torch.arange(offset, offset + size, device=values.device)
    return Positions(site, axes, queries, keys, text, query_text, key_text, num_read)
