"""Edit context: everything that an edit may ask about its values and their positions."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage, not_none
from attnlab.look.recording.tokens import first_key
from attnlab.shapes import shape_text
from attnlab.sites import StackInput, part_of, site_suffix


@dataclass(frozen=True, eq=False)
class StackText:
    """The text that one stack has read up to its current pass.

    tokens (batch, length) ids, (batch, length, parts), or vectors (batch, length, width); -1 where
    they were read before the edit began · real (batch, length) or None · steps and ends, of each
    position: the pass in which it was read first, and the length of the text after that pass ·
    offset: the first position of the current pass · number: of the current pass.
    """

    tokens: Tensor
    real: Tensor | None
    steps: tuple[int, ...]
    ends: tuple[int, ...]
    offset: int
    number: int

    @property
    def length(self) -> int:
        """The number of positions."""
        return len(self.steps)

    def ends_at(self, positions: Tensor) -> Tensor:
        """Return the length of the text when each position was read first."""
        return torch.tensor(self.ends, device=positions.device).index_select(0, positions)


class TokenHistory:
    """The texts that the stacks have read since an edit began, by the stacks' paths.

    One forward pass through a stack is one step. With a key/value cache a pass reads new positions
    only; without one, it reads the earlier ones again, and they keep the step in which they were
    read first. So an edit with a step, or with a position counted from the end, does the same with
    a cache and without.
    """

    def __init__(self) -> None:
        self._texts: dict[str, StackText] = {}
        self.is_reordered = False
        """Whether a pass continued unknown rows, or rows in another order, as in a beam search."""

    def read(self, stack: str, reading: StackInput, *, compare: bool) -> None:
        """Note the input of a stack; `compare` it with the text before, if an edit needs that."""
        tokens, offset, real, rows, _ = reading
        nothing = StackText(tokens[:, :0], None, (), (), 0, -1)
        before = self._texts.pop(stack, nothing)  # the stack that read last comes last
        self.is_reordered = self.is_reordered or rows is not None
        kept = min(offset, before.length)
        if offset == 0 and compare and _continues(tokens, before.tokens):
            kept = before.length
        gap = max(offset - kept, 0)  # read before the edit began
        end = offset + tokens.shape[1]
        new, number = end - kept - gap, before.number + 1
        steps = before.steps[:kept] + (-1,) * gap + (number,) * new
        ends = before.ends[:kept] + (offset,) * gap + (end,) * new
        if offset:
            tokens = torch.cat((_known(before, tokens, offset, rows), tokens), 1)
            real = None  # with a cache, masks tell padding
        self._texts[stack] = StackText(tokens, real, steps, ends, offset, number)

    def of(self, part: str, *, is_memory: bool = False) -> StackText | None:
        """Return the text behind a part's queries, or (`is_memory`) behind its cross-attention
        keys.

        A part outside all stacks, as the logits of an encoder–decoder, follows the stack that read
        last.
        """
        around = [stack for stack in self._texts if _is_inside(part, stack)]
        if is_memory:
            others = [text for stack, text in self._texts.items() if stack not in around]
            return others[0] if len(others) == 1 else None
        if around:
            return self._texts[max(around, key=len)]
        for stack in reversed(self._texts):
            if _is_inside(stack, part):
                return self._texts[stack]
        return None

    def of_queries(self, part: str, num_queries: int) -> StackText | None:
        """Return the text of the queries' stack; None if its positions are not the queries'."""
        text = self.of(part)
        if text is not None and text.length - text.offset == num_queries:
            return text
        return None

    def of_keys(self, part: str, num_keys: int) -> StackText | None:
        """Return the text of the keys, the queries' or another stack's; None if neither fits."""
        queries_text = self.of(part)
        if self.first_key(part, num_keys):
            return queries_text
        is_elsewhere = is_cross(part) or (
            queries_text is not None and queries_text.length != num_keys
        )
        text = self.of(part, is_memory=True) if is_elsewhere else queries_text
        if text is not None and text.length == num_keys:
            return text
        return None

    def first_key(self, part: str, num_keys: int) -> int:
        """Return the position of the first key: a cache may have dropped earlier ones."""
        text = self.of(part)
        if text is None or is_cross(part):
            return 0
        return first_key(text.length, num_keys, text.offset)


def is_cross(part: str) -> bool:
    """Is this part called a cross-attention?"""
    return site_suffix(part).startswith("cross")


def _is_inside(path: str, module: str) -> bool:
    return not module or path == module or path.startswith(f"{module}.")


def _continues(tokens: Tensor, before: Tensor) -> bool:
    """Are all earlier tokens read again, followed by new ones? (Beam search reorders rows.)"""
    length = before.shape[1]
    is_alike = tokens.shape[0] == before.shape[0] and tokens.shape[2:] == before.shape[2:]
    if tokens.shape[1] <= length or not is_alike:
        return False
    again = tokens[:, :length]
    if torch.equal(again, before):
        return True
    is_one_of_them = (again[:, None] == before[None]).flatten(2).all(-1).any(1)
    return not tokens.is_floating_point() and bool(is_one_of_them.all())


def _known(before: StackText, tokens: Tensor, offset: int, rows: Tensor | None) -> Tensor:
    """Return the tokens before a pass; -1 where they are unknown."""
    batch = before.tokens.shape[0]
    if before.length >= offset and before.tokens.shape[2:] == tokens.shape[2:]:
        if rows is None and batch == tokens.shape[0]:
            return before.tokens[:, :offset]
        if rows is not None and bool(((rows >= 0) & (rows < batch)).all()):
            return before.tokens[rows.to(before.tokens.device), :offset]
    return tokens.new_full((tokens.shape[0], offset, *tokens.shape[2:]), -1)


@dataclass(frozen=True, eq=False)
class SitePositions:
    """The positions along the axes of one site's values, and the texts that they are counted in.

    site: full name · axes: of the values, such as ("batch", "head", "query", "key") · queries (or
    the stream's positions), keys: numbers from the start of the text, empty without such an axis ·
    stack_text: the text of the stack around the site · query_text, key_text: the texts of the
    queries and of the keys, None if unknown · num_read: how many positions were read where a cache
    has room for more keys, so that their end is unknown; else None · is_placed: the positions of
    the queries are known.
    """

    site: str
    axes: tuple[str, ...]
    queries: Tensor
    keys: Tensor
    stack_text: StackText | None
    query_text: StackText | None
    key_text: StackText | None
    num_read: int | None
    is_placed: bool

    @property
    def has_queries(self) -> bool:
        """Is there an axis of queries, or of the stream's positions?"""
        return "query" in self.axes or "length" in self.axes

    def along_queries(self, chosen: Tensor) -> Tensor:
        """Line up (rows, 1, queries) with the axes."""
        if len(self.axes) == 3:
            return chosen.reshape(chosen.shape[0], -1, 1)
        return chosen.reshape(chosen.shape[0], 1, -1, 1)

    @property
    def text(self) -> StackText | None:
        """The text of the values' positions, if known."""
        if self.has_queries:
            return self.query_text
        return self.key_text if "key" in self.axes else self.stack_text


@dataclass(frozen=True, eq=False)
class EditContext(SitePositions):
    """The values of the rows and heads that an edit targets, with all their positions.

    rows and heads: their numbers · selected: the target values, broadcasting to them, or None for
    all · whole: the values of all rows and heads, before this edit · visible: the allowed keys, for
    weights.
    """

    rows: Tensor
    heads: Tensor
    selected: Tensor | None
    whole: Tensor
    visible: Tensor | None

    @property
    def seen(self) -> Tensor:
        """The allowed keys, at weights only: (row, head or 1, query, key)."""
        return not_none(self.visible)

    def of(self, whole: Tensor, rows: Tensor | None = None) -> Tensor:
        """Select the chosen rows (or other rows) and heads from the values of all of them."""
        chosen = whole.index_select(0, self.rows if rows is None else rows)
        return chosen.index_select(1, self.heads) if "head" in self.axes else chosen

    def taken(self, tensor: Tensor, what: str, *, is_recorded: bool = False) -> Tensor:
        """Select the chosen rows, heads and positions from a tensor.

        Axes are aligned from the last. An axis that is missing or of size 1 serves all; of recorded
        values only the batch does, because one recorded position is not every position.

        Raises:
            WrongUsage: the tensor does not fit.
        """
        if tensor.dim() > len(self.axes):
            raise self._misfit(tensor, what)
        tensor = tensor[(None,) * (len(self.axes) - tensor.dim())]
        for place, axis in enumerate(self.axes):
            serves_all = tensor.shape[place] == 1 and (axis == "batch" or not is_recorded)
            if not serves_all:
                tensor = self._taken_along(tensor, place, what)
        return tensor

    def _taken_along(self, tensor: Tensor, place: int, what: str) -> Tensor:
        """Select along one axis."""
        axis = self.axes[place]
        if axis == "key" and place == len(self.axes) - 1:
            return self._over_keys(tensor, what)
        if axis in ("query", "length", "key"):
            return self._along(tensor, place, what)
        if tensor.shape[place] != self.whole.shape[place]:
            raise self._misfit(tensor, what)
        if axis in ("batch", "head"):
            return tensor.index_select(place, self.rows if axis == "batch" else self.heads)
        return tensor

    def _along(self, tensor: Tensor, place: int, what: str) -> Tensor:
        """Select the positions along an axis; the targets must be among them."""
        size, axis = tensor.shape[place], "query"
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
                f"beyond them. Choose positions with {axis}=, or take values of a longer input."
            )
        return tensor.index_select(place, positions.clamp(max=max(size - 1, 0)))

    def _over_keys(self, tensor: Tensor, what: str) -> Tensor:
        """Fit a pattern of a shorter or longer text, if no weight is lost or missing."""
        size = tensor.shape[-1]
        # a cache may have dropped earlier keys
        first = int(self.keys[0]) if len(self.keys) else 0
        needed = first + len(self.keys)
        meant = self.selected
        if meant is None:
            meant = torch.ones((), dtype=torch.bool, device=tensor.device)
        seen = meant if self.visible is None else meant & self.visible
        if size < needed and bool((seen & (self.keys >= size)).any()):
            raise self._misfit(tensor, what)
        tensor = torch.nn.functional.pad(tensor, (0, max(needed - size, 0)))
        lost = torch.cat((tensor[..., :first], tensor[..., needed:]), -1) != 0
        is_lossy = site_suffix(self.site) == "weights"
        if is_lossy and bool((lost.any(-1) & meant.any(-1)).any()):
            raise self._misfit(tensor, what)
        return tensor[..., first:needed]

    def _misfit(self, tensor: Tensor, what: str) -> WrongUsage:
        return WrongUsage(
            f"{what} for {self.site} must fit ({', '.join(self.axes)}) = "
            f"{shape_text(self.whole.shape)}; got {shape_text(tensor.shape)}."
        )


def positions_at(
    model: nn.Module, history: TokenHistory, site: str, axes: tuple[str, ...], values: Tensor
) -> SitePositions:
    """Find the positions of a site's values."""
    part = part_of(site)
    text, query_text, key_text, num_read = history.of(part), None, None, None
    sizes: dict[str, int] = {}
    # A foreign feed-forward part may read all rows and positions as one axis.
    if values.dim() == len(axes):
        sizes = dict(zip(axes, values.shape, strict=True))
    num_keys, first, offset, is_placed = 0, 0, 0, True
    if "key" in axes:
        num_keys = sizes["key"]
        first, key_text = history.first_key(part, num_keys), history.of_keys(part, num_keys)
        if key_text is None and text is not None and _has_room(model, part, text, num_keys):
            num_read = text.length
    size = sizes.get("query", sizes.get("length"))
    if size is not None:
        query_text = history.of_queries(part, size)
        if query_text is not None:
            offset = query_text.offset
        elif "key" in axes and num_keys != size:  # the first positions, the last, or every second
            is_placed = is_cross(part) or _backend(model, part) == "multi-head"
    queries = torch.arange(offset, offset + (size or 0), device=values.device)
    keys = torch.arange(first, first + num_keys, device=values.device)
    return SitePositions(site, axes, queries, keys, text, query_text, key_text, num_read, is_placed)


def _backend(model: nn.Module, part: str) -> str:
    """Return the backend of a foreign attention; "" for our own parts."""
    return str(getattr(model.get_submodule(part), "backend", ""))


def _has_room(model: nn.Module, part: str, text: StackText, num_keys: int) -> bool:
    """Has a cache of a foreign model room for more keys than were read? Our own caches grow."""
    looks_at_itself = getattr(model.get_submodule(part), "is_cross", True) is False
    return looks_at_itself and num_keys > text.length
