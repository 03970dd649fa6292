"""The editor: the instrument that applies edits, in their order, to copies of the values that pass.

Each edit is given the rows and heads it is for and says what they become; what it did not mean is put back here. Edits
of one site follow one another in the order given; between sites the order is the model's: first the mask, then scores,
weights, heads.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.recording.budget import in_words
from attnlab.look.recording.tokens import Vocabulary, first_key
from attnlab.memory import free_memory
from attnlab.operate.edits import Edit
from attnlab.operate.edits.spot import Spot
from attnlab.operate.edits.targets import ends_of, is_all
from attnlab.operate.edits.where import axes_of, num_heads, own_name, part_of
from attnlab.operate.landing import Landing
from attnlab.operate.passes import Passes, Text
from attnlab.operate.recomputation import Recomputation
from attnlab.parts.heads import share_heads
from attnlab.sites import AttentionCall, Instrument, Reading, is_going_back

__all__ = ["Editor", "Watcher"]

Numbers: TypeAlias = list[int] | None
"""Chosen rows or heads; None for all."""

_SHARED = ("key", "value")
_ALSO = {"mask": ("query", "key"), "weights": ("scores",)}
"""What must be known beside a site: the sizes that a mask leaves open, and which keys may be looked at."""

_COPIES = 10
"""Matrices of all pairs that an open attention, its edits and their check hold at once: 4 to 11, as measured."""
_LITTLE = 2**27  # bytes that are taken without asking how many are free


class Watcher:
    """What is told of each visit; the certificate is one. This one does not care."""

    def applied(self, landing: Landing, site: str, before: Tensor, after: Tensor, chosen: Tensor | None) -> None:
        """Learn what one edit made of some rows and heads, of which those values were chosen (None for all)."""

    def left(
        self,
        site: str,
        before: Tensor,
        after: Tensor,
        asked: Sequence[tuple[Numbers, Numbers]],
        visible: Tensor | None,
    ) -> None:
        """Learn what all edits made of a site's values, and which (rows, heads) they were for."""


class Editor(Instrument):
    """Applies edits to one model, and knows afterwards which of them landed."""

    changes = True
    one_thread = True

    def __init__(
        self, model: nn.Module, edits: Sequence[Edit], vocabulary: Vocabulary | None, watcher: Watcher
    ) -> None:
        self.passes = Passes()
        self.recomputation = Recomputation()
        self._model, self._vocabulary = model, vocabulary
        self.landings = [Landing(edit, vocabulary) for edit in edits]
        self.at: dict[str, list[Landing]] = {}
        self.largest_attention = 0
        self._watcher = watcher
        self._num_heads: dict[str, int] = {}
        self._also: set[str] = set()
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._visible: dict[str, Tensor] = {}
        for landing in self.landings:
            self._place(landing, model)
        self._looks_back = any(landing.looks_back for landing in self.landings)

    def wants(self, site: str) -> bool:
        """Say whether an edit is for this site, or must know what passes there."""
        return site in self.at or site in self._also

    def read(self, part: str, reading: Reading) -> None:
        """Learn what a stack reads."""
        self.passes.read(part, reading, compare=self._looks_back)

    def watch(self, part: str, call: AttentionCall) -> None:
        """Note how many bytes the weights of an edited attention take."""
        if part in self._num_heads:
            size = call.query.shape[:-1].numel() * call.key.shape[-2] * max(4, call.query.element_size())
            self.largest_attention = max(size, self.largest_attention)
            if call.is_open:
                _check_room(part, size, call.query.device)

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Return the edited values."""
        part, own = part_of(site), own_name(site)
        if site in self.at:
            if is_going_back():
                self._check_last(part)
            value = self._edited(site, value)
            self.recomputation.edited(value)
        if site in self._also:
            if own == "scores":
                self._visible[part] = value.detach() != float("-inf")
            else:
                self._shapes[site] = tuple(value.shape)
        return value

    def _check_last(self, part: str) -> None:
        """Raise where `backward()` computes a pass again, and it cannot be told which one."""
        text = self.passes.of(part)
        if text is not None and text.number and any(landing.reads for landing in self.landings):
            raise CouldNotRun(
                "activation checkpointing computes again in backward() one of several forward passes, and edits that "
                "go by steps, tokens or the end of the text cannot tell which; give each pass a `with` of its own, "
                "and call backward() in it."
            )

    def describe(self) -> list[dict[str, Any]]:
        """Return the edits' JSON forms, large tensors by their hash."""
        return [landing.edit.to_json(brief=True) for landing in self.landings]

    def unchanging(self, path: str) -> "Editor":
        """Return an editor that does all of this but the change: each edit gives back the values it is given.

        path: of the module that is about to run again; what its own stacks have read is not known to it yet.
        """
        found = Editor(self._model, [landing.rule for landing in self.landings], self._vocabulary, Watcher())
        found.passes = self.passes.outside(path)
        for landing in found.landings:
            landing.rule = _Unchanged()
        return found

    def _place(self, landing: Landing, model: nn.Module) -> None:
        """Find an edit's sites, and check all that can be known before anything is read."""
        edit = landing.edit
        landing.sites = edit.sites(model)
        for site in landing.sites:
            part, axes = part_of(site), axes_of(own_name(site))
            for axis, has in (("head", ("head",)), ("query", ("query", "length")), ("key", ("key",))):
                if not is_all(getattr(edit, axis)) and not set(has) & set(axes):
                    raise WrongUsage(f"{edit!r}: {site} has the axes ({', '.join(axes)}); leave {axis}= out.")
            if not is_all(edit.step) and own_name(site) in _SHARED:
                raise WrongUsage(f"{edit!r}: {site} is read anew in every pass; leave step= out.")
            self.at.setdefault(site, []).append(landing)
            self._also.update(_join(part, also) for also in _ALSO.get(own_name(site), ()))
            self._num_heads[part] = num_heads(model, part)
            if "head" in axes:
                edit.heads_in(self._num_heads[part], part)
        landing.rule.check_model(model, landing.sites)

    def _edited(self, site: str, value: Tensor) -> Tensor:
        part, own = part_of(site), own_name(site)
        axes = ("batch", "classes") if own == "logits" and value.dim() == 2 else axes_of(own)
        edits = [landing.edit for landing in self.at[site]]
        if own in _SHARED and any(not is_all(each.head) or hasattr(each, "recording") for each in edits):
            value = share_heads(value, self._num_heads[part])  # heads that share are told apart
        elif own == "mask":
            value = self._widened(value, part, edits)
        new, asked = value.clone(), []
        visible = self._visible.pop(part, None) if own == "weights" else None
        for landing in self.at[site]:
            landing.calls[site] = landing.calls.get(site, 0) + 1
            done = self._apply(landing, site, axes, new, visible)
            if done is not None:
                asked.append(done)
        self._watcher.left(site, value, new, asked, visible)
        return new

    def _apply(
        self, landing: Landing, site: str, axes: tuple[str, ...], new: Tensor, visible: Tensor | None
    ) -> tuple[Numbers, Numbers] | None:
        """Let one edit change the values, in place; return the rows and heads it was for."""
        edit, part = landing.edit, part_of(site)
        batch, device = self._batch(new, site), new.device
        rows = landing.rows(batch)
        heads = edit.heads_in(self._num_heads[part], part) if "head" in axes and not is_all(edit.head) else None
        queries, keys = self._places(new, site, axes)
        chosen = self._chosen(landing, site, axes, queries, keys)
        if chosen is not None and chosen.shape[0] > 1 and rows is not None:
            chosen = chosen[rows]
        if rows == [] or (chosen is not None and not bool(chosen.any())):
            return None
        index = _index(rows if batch > 1 else None, heads)
        here = new[index].clone()
        spot = Spot(
            site=site,
            axes=axes,
            rows=_numbered(rows if batch > 1 else None, new.shape[0], device),
            heads=_numbered(heads, new.shape[1], device),
            queries=queries,
            keys=keys,
            selected=chosen,
            whole=new,
            visible=None if visible is None else visible[index],
            text=self._key_text(part, len(keys)) if own_name(site) in _SHARED else self._text(part, new, axes),
        )
        changed = landing.rule.change(here, spot).to(new.dtype)
        if chosen is not None:
            changed = torch.where(chosen, changed, here)
        new[index] = changed
        landing.was_applied(here, changed, chosen)
        self._watcher.applied(landing, site, here, new[index], chosen)
        return rows, heads

    def _chosen(
        self, landing: Landing, site: str, axes: tuple[str, ...], queries: Tensor, keys: Tensor
    ) -> Tensor | None:
        """Say which values are meant by their positions and steps, broadcasting to the values; None for all."""
        part, has_queries = part_of(site), _looking(axes) is not None
        if "classes" in axes:
            return self._chosen_without_positions(landing, site, self.passes.of(part), queries.device)
        text = self._own_text(part, len(queries)) if has_queries else None
        meant: list[Tensor | None] = []
        if has_queries:
            meant.append(landing.positions("query", queries, _ends_at(queries, text), text, site))
            meant.append(landing.steps(queries, text, site))
            shape = (-1, 1) if len(axes) == 3 else (1, -1, 1)
            meant = [None if each is None else each.reshape(each.shape[0], *shape) for each in meant]
        if "key" in axes:
            memory = self._key_text(part, len(keys))
            own = self.passes.of(part)
            if memory is None and own is not None and self._looks_at_itself(part) and len(keys) > own.length:
                self._check_places(landing, site, len(keys), own.length)
            if memory is None or memory is not own:
                ends = keys[-1:] + 1
            else:
                ends = _ends_at(queries if has_queries else keys, memory)
            each = landing.positions("key", keys, ends[:, None] if has_queries else ends, memory, site)
            if each is not None:  # (rows, queries, keys), or (rows, 1, keys) where there are no queries
                meant.append(each[:, None] if has_queries else each.transpose(1, 2)[:, None])
        found = None
        for each in meant:
            found = each if found is None else found if each is None else found & each
        return found

    @staticmethod
    def _chosen_without_positions(
        landing: Landing, site: str, text: Text | None, device: torch.device
    ) -> Tensor | None:
        if not is_all(landing.edit.query):
            raise WrongUsage(f"{landing.edit!r}: {site} has no positions here; leave query= out.")
        if is_all(landing.edit.step) or text is None:
            return None
        return landing.passes(torch.tensor([[text.number]], device=device), text)

    def _places(self, new: Tensor, site: str, axes: tuple[str, ...]) -> tuple[Tensor, Tensor]:
        """Return the positions of the queries (or of the stream) and of the keys."""
        part, looking, device = part_of(site), _looking(axes), new.device
        keys = self._key_places(part, new.shape[axes.index("key")] if "key" in axes else 0, device)
        if looking is None:
            return torch.arange(0, device=device), keys
        size, text = new.shape[looking], self._text(part, new, axes)
        # Without a text that says it, queries of self-attention are the last positions.
        before = len(keys) - size if "key" in axes and not _is_cross(part) else 0
        offset = before if text is None else text.offset
        return torch.arange(offset, offset + size, device=device), keys

    def _looks_at_itself(self, part: str) -> bool:
        """Say whether the keys of an attention are known to be of the queries' own text, perhaps with room for more.

        Only doors of foreign models tell; parts of ours have caches that grow, and say at the call what they look at.
        """
        return getattr(self._model.get_submodule(part), "is_cross", True) is False

    @staticmethod
    def _check_places(landing: Landing, site: str, num_keys: int, length: int) -> None:
        """Raise where places are counted from the end of a cache that has room for more."""
        if any(end < 0 for atom in landing.atoms("key") if not isinstance(atom, str) for end in ends_of(atom)):
            raise WrongUsage(
                f"{landing.edit!r}: {site} holds {num_keys} keys for {length} positions, so that nobody knows where "
                "their end is; count keys from the beginning, or generate with a cache that grows."
            )

    def _key_places(self, part: str, num_keys: int, device: torch.device) -> Tensor:
        text = None if _is_cross(part) else self.passes.of(part)
        first = 0 if text is None else first_key(text.length, num_keys, text.offset)
        return torch.arange(first, first + num_keys, device=device)

    def _text(self, part: str, new: Tensor, axes: tuple[str, ...]) -> Text | None:
        """The text that says what the positions of a site's values are."""
        looking = _looking(axes)
        return self.passes.of(part) if looking is None else self._own_text(part, new.shape[looking])

    def _own_text(self, part: str, num_queries: int) -> Text | None:
        """What the queries' stack has read, or None where it is not these positions, as with a token put before."""
        text = self.passes.of(part)
        return text if text is not None and text.length - text.offset == num_queries else None

    def _key_text(self, part: str, num_keys: int) -> Text | None:
        """What the keys are: the queries' own text, or what another stack has read; None where neither is as long."""
        own = self.passes.of(part)
        if own is not None and not _is_cross(part) and first_key(own.length, num_keys, own.offset):
            return own
        is_elsewhere = _is_cross(part) or (own is not None and own.length != num_keys)
        text = self.passes.of(part, is_memory=True) if is_elsewhere else own
        return text if text is not None and text.length == num_keys else None

    def _batch(self, new: Tensor, site: str) -> int:
        return self._shapes[_join(part_of(site), "query")][0] if own_name(site) == "mask" else new.shape[0]

    def _widened(self, mask: Tensor, part: str, edits: Sequence[Edit]) -> Tensor:
        """Give a mask all its axes, and as many rows and heads as the edits tell apart."""
        query, key = (self._shapes[_join(part, name)] for name in ("query", "key"))
        mask = mask[(None,) * (4 - mask.dim())]
        widened = set().union(*(edit.tells_apart for edit in edits))
        rows = query[0] if "batch" in widened else mask.shape[0]
        heads = query[1] if "head" in widened else mask.shape[1]
        _check_room(part, 4 * rows * heads * query[-2] * key[-2], mask.device)
        return mask.expand(rows, heads, query[-2], key[-2])


class _Unchanged(Edit):
    """Gives back what it is given."""

    def change(self, values: Tensor, spot: Spot) -> Tensor:
        return values


def _check_room(part: str, size: int, device: torch.device) -> None:
    """Raise before matrices of all pairs are made that do not fit; `size` is the bytes of one.

    Raises:
        CouldNotRun: with what they take and what is free.
    """
    if _COPIES * size < _LITTLE or torch.compiler.is_compiling():
        return
    free = free_memory(device)
    if free is not None and _COPIES * size > free:
        raise CouldNotRun(
            f"editing where {part} looks writes out all pairs of positions, {in_words(size)}, and "
            f"holds up to {_COPIES} copies at once, {in_words(_COPIES * size)}; {in_words(free)} are "
            "free. Give a shorter input or fewer at a time, or edit what its heads gather (ZeroHead, "
            "ScaleHead), which needs no pairs."
        )


def _looking(axes: tuple[str, ...]) -> int | None:
    """The place of the axis of positions that look, or of the stream's."""
    return next((place for place, axis in enumerate(axes) if axis in ("query", "length")), None)


def _ends_at(positions: Tensor, text: Text | None) -> Tensor:
    """Where the text ended when each position was read first."""
    if text is None:
        return positions[-1:] + 1
    return torch.tensor(text.ends, device=positions.device).index_select(0, positions)


def _index(rows: Numbers, heads: Numbers) -> tuple[Any, ...]:
    """Choose rows and heads; slices where they will do, which cost nothing."""
    one = tuple(slice(each[0], each[0] + 1) if each is not None and len(each) == 1 else each for each in (rows, heads))
    if all(isinstance(each, list) for each in one):
        return torch.tensor(rows)[:, None], torch.tensor(heads)[None]
    return tuple(slice(None) if each is None else each for each in one)[: 2 if heads is not None else 1]


def _numbered(chosen: Numbers, size: int, device: torch.device) -> Tensor:
    return torch.tensor(list(range(size)) if chosen is None else chosen, device=device)


def _is_cross(part: str) -> bool:
    return own_name(part).startswith("cross")


def _join(part: str, own: str) -> str:
    return f"{part}.{own}" if part else own
