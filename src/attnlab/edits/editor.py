"""The editor: the hook that applies edits, in their order, to copies of the values that pass.

Each edit is given the rows and heads it is for and says what they become; what it did not mean is
put back here. Edits of one site follow one another in the order given; between sites the order is
the model's: first the mask, then scores, weights, heads.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from attnlab.edits.coverage import Coverage
from attnlab.edits.edit import Edit
from attnlab.edits.edit_context import EditContext
from attnlab.edits.recomputation import Recomputation
from attnlab.edits.targets import ends_of, is_all
from attnlab.edits.token_history import Passes, Text
from attnlab.edits.where import axes_of, num_heads, own_name, part_of
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.recording.budget import in_words
from attnlab.look.recording.tokens import Vocabulary, first_key
from attnlab.memory import free_memory
from attnlab.parts.heads import share_heads
from attnlab.sites import AttentionCall, Hook, Reading, is_going_back

__all__ = ["Editor", "Watcher"]

Numbers: TypeAlias = list[int] | None
"""Chosen rows or heads; None for all."""

_SHARED = ("key", "value")
_ALSO = {"mask": ("query", "key"), "weights": ("scores",)}
"""What must be known beside a site: the sizes that a mask leaves open, and which keys may be looked
at."""

_COPIES = 10
"""Matrices of all pairs that an open attention, its edits and their check hold at once: 4 to 11, as
measured."""
_LITTLE = 2**27  # bytes that are taken without asking how many are free


class Watcher:
    """Is told of every applied edit; the certificate's checks are one. This one does nothing."""

    def applied(
        self, coverage: Coverage, site: str, before: Tensor, after: Tensor, chosen: Tensor | None
    ) -> None:
        """Note what one edit did to some rows and heads; chosen: which values (None for all)."""

    def left(
        self,
        site: str,
        before: Tensor,
        after: Tensor,
        asked: Sequence[tuple[Numbers, Numbers]],
        visible: Tensor | None,
    ) -> None:
        """Learn what all edits made of a site's values, and which (rows, heads) they were for."""


class Editor(Hook):
    """Applies edits to one model, and knows afterwards which of them landed."""

    changes = True
    one_thread = True

    def __init__(
        self,
        model: nn.Module,
        edits: Sequence[Edit],
        vocabulary: Vocabulary | None,
        watcher: Watcher,
    ) -> None:
        self.passes = Passes()
        self.recomputation = Recomputation()
        self._model, self._vocabulary = model, vocabulary
        self.coverages = [Coverage(edit, vocabulary) for edit in edits]
        self.at: dict[str, list[Coverage]] = {}
        self.largest_attention = 0
        self._watcher = watcher
        self._num_heads: dict[str, int] = {}
        self._also: set[str] = set()
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._visible: dict[str, Tensor] = {}
        for coverage in self.coverages:
            self._place(coverage, model)
        self._looks_back = any(coverage.looks_back for coverage in self.coverages)

    def wants(self, site: str) -> bool:
        """Say whether an edit is for this site, or must know what passes there."""
        return site in self.at or site in self._also

    def read(self, part: str, reading: Reading) -> None:
        """Learn what a stack reads."""
        self.passes.read(part, reading, compare=self._looks_back)

    def watch(self, part: str, call: AttentionCall) -> None:
        """Note how many bytes the weights of an edited attention take."""
        if part in self._num_heads:
            size = (
                call.query.shape[:-1].numel()
                * call.key.shape[-2]
                * max(4, call.query.element_size())
            )
            self.largest_attention = max(size, self.largest_attention)
            if call.is_open:
                _check_room(part, size, call.query.device)

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Return the edited values."""
        part, own = part_of(site), own_name(site)
        if site in self.at:
            if is_going_back():
                self.recomputation.computes_again()
                self._check_last(part)
            value = self._edited(site, value)
            self.recomputation.edited(value)
        if site in self._also:
            if own == "scores":
                self._visible[part] = value.detach() != float("-inf")
            else:
                self._shapes[site] = tuple(value.shape)
                if own == "key" and _join(part, "mask") in self.at:
                    self._mask_size(part, 1, 1, value.device)  # before the mask is written out
        return value

    def _check_last(self, part: str) -> None:
        """Raise where `backward()` computes a pass again and which one cannot be known."""
        text = self.passes.of(part)
        if text is not None and text.number and any(coverage.reads for coverage in self.coverages):
            raise CouldNotRun(
                "activation checkpointing computes again in backward() one of several forward "
                "passes, and edits that go by steps, tokens or the end of the text cannot tell "
                "which; give each pass a `with` of its own, and call backward() in it."
            )

    def describe(self) -> list[dict[str, Any]]:
        """Return the edits' JSON forms, large tensors by their hash."""
        return [coverage.edit.to_json(brief=True) for coverage in self.coverages]

    def unchanging(self, path: str) -> "Editor":
        """Return the same editor with edits that change nothing.

        path: of the module that is about to run again; what its own stacks have read is not known
        to it yet.
        """
        found = Editor(
            self._model, [coverage.rule for coverage in self.coverages], self._vocabulary, Watcher()
        )
        found.passes = self.passes.outside(path)
        for coverage in found.coverages:
            coverage.rule = _Unchanged()
        return found

    def _place(self, coverage: Coverage, model: nn.Module) -> None:
        """Find an edit's sites, and check all that can be known before anything is read."""
        edit = coverage.edit
        coverage.sites = edit.sites(model)
        for site in coverage.sites:
            part, axes = part_of(site), axes_of(own_name(site))
            for axis, has in (
                ("head", ("head",)),
                ("query", ("query", "length")),
                ("key", ("key",)),
            ):
                if not is_all(getattr(edit, axis)) and not set(has) & set(axes):
                    raise WrongUsage(
                        f"{edit!r}: {site} has the axes ({', '.join(axes)}); leave {axis}= out."
                    )
            if not is_all(edit.step) and own_name(site) in _SHARED:
                raise WrongUsage(f"{edit!r}: {site} is read anew in every pass; leave step= out.")
            self.at.setdefault(site, []).append(coverage)
            self._also.update(_join(part, also) for also in _ALSO.get(own_name(site), ()))
            self._num_heads[part] = num_heads(model, part)
            if "head" in axes:
                edit.heads_in(self._num_heads[part], part)
        coverage.rule.check_model(model, coverage.sites)

    def _edited(self, site: str, value: Tensor) -> Tensor:
        part, own = part_of(site), own_name(site)
        axes = ("batch", "classes") if own == "logits" and value.dim() == 2 else axes_of(own)
        edits = [coverage.edit for coverage in self.at[site]]
        if own in _SHARED and any(
            not is_all(each.head) or hasattr(each, "recording") for each in edits
        ):
            value = share_heads(value, self._num_heads[part])  # heads that share are told apart
        elif own == "mask":
            value = self._widened(value, part)
        new, asked = value.clone(), []
        visible = self._visible.pop(part, None) if own == "weights" else None
        for coverage in self.at[site]:
            coverage.calls[site] = coverage.calls.get(site, 0) + 1
            done = self._apply(coverage, site, axes, new, visible)
            if done is not None:
                asked.append(done)
        self._watcher.left(site, value, new, asked, visible)
        return new

    def _apply(
        self,
        coverage: Coverage,
        site: str,
        axes: tuple[str, ...],
        new: Tensor,
        visible: Tensor | None,
    ) -> tuple[Numbers, Numbers] | None:
        """Let one edit change the values, in place; return the rows and heads it was for."""
        edit, part = coverage.edit, part_of(site)
        batch, device = self._batch(new, site), new.device
        rows = coverage.rows(batch)
        heads = (
            edit.heads_in(self._num_heads[part], part)
            if "head" in axes and not is_all(edit.head)
            else None
        )
        queries, keys = self._places(new, site, axes)
        chosen = self._chosen(coverage, site, axes, queries, keys)
        if chosen is not None and chosen.shape[0] > 1 and rows is not None:
            chosen = chosen[rows]
        if rows == [] or (chosen is not None and not bool(chosen.any())):
            return None
        index = _index(rows if batch > 1 else None, heads)
        here = new[index].clone()
        context = EditContext(
            site=site,
            axes=axes,
            rows=_numbered(rows if batch > 1 else None, new.shape[0], device),
            heads=_numbered(heads, new.shape[1], device),
            queries=queries,
            keys=keys,
            selected=chosen,
            whole=new,
            visible=None if visible is None else visible[index],
            text=self._key_text(part, len(keys))
            if own_name(site) in _SHARED
            else self._text(part, new, axes),
        )
        changed = coverage.rule.change(here, context).to(new.dtype)
        if chosen is not None:
            changed = torch.where(chosen, changed, here)
        new[index] = changed
        coverage.was_applied(here, changed, chosen)
        self._watcher.applied(coverage, site, here, new[index], chosen)
        return rows, heads

    def _chosen(
        self, coverage: Coverage, site: str, axes: tuple[str, ...], queries: Tensor, keys: Tensor
    ) -> Tensor | None:
        """Return which values are targets by position and step, broadcasting; None for all."""
        part, has_queries = part_of(site), _looking(axes) is not None
        if "classes" in axes:
            return self._chosen_without_positions(
                coverage, site, self.passes.of(part), queries.device
            )
        text = self._own_text(part, len(queries)) if has_queries else None
        meant: list[Tensor | None] = []
        if has_queries:
            meant.append(coverage.positions("query", queries, _ends_at(queries, text), text, site))
            meant.append(coverage.steps(queries, text, site))
            shape = (-1, 1) if len(axes) == 3 else (1, -1, 1)
            meant = [
                None if each is None else each.reshape(each.shape[0], *shape) for each in meant
            ]
        if "key" in axes:
            memory = self._key_text(part, len(keys))
            own = self.passes.of(part)
            if (
                memory is None
                and own is not None
                and self._looks_at_itself(part)
                and len(keys) > own.length
            ):
                self._check_places(coverage, site, len(keys), own.length)
            if memory is None or memory is not own:
                ends = keys[-1:] + 1
            else:
                ends = _ends_at(queries if has_queries else keys, memory)
            each = coverage.positions(
                "key", keys, ends[:, None] if has_queries else ends, memory, site
            )
            # (rows, queries, keys), or (rows, 1, keys) where there are no queries
            if each is not None:
                meant.append(each[:, None] if has_queries else each.transpose(1, 2)[:, None])
        found = None
        for each in meant:
            if each is not None:
                found = each if found is None else found & each
        return found

    @staticmethod
    def _chosen_without_positions(
        coverage: Coverage, site: str, text: Text | None, device: torch.device
    ) -> Tensor | None:
        if not is_all(coverage.edit.query):
            raise WrongUsage(f"{coverage.edit!r}: {site} has no positions here; leave query= out.")
        if is_all(coverage.edit.step) or text is None:
            return None
        return coverage.passes(torch.tensor([[text.number]], device=device), text)

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
        """Say whether the keys of an attention are known to be of the queries' own text, perhaps
        with room for more.

        Only hook points of foreign models tell; our own parts have caches that grow, and say at the
        call
        what they look at.
        """
        return getattr(self._model.get_submodule(part), "is_cross", True) is False

    @staticmethod
    def _check_places(coverage: Coverage, site: str, num_keys: int, length: int) -> None:
        """Raise where places are counted from the end of a cache that has room for more."""
        if any(
            end < 0
            for atom in coverage.atoms("key")
            if not isinstance(atom, str)
            for end in ends_of(atom)
        ):
            raise WrongUsage(
                f"{coverage.edit!r}: {site} holds {num_keys} keys for {length} positions, so that "
                "their end is unknown; count keys from the beginning, or generate "
                "with a cache that grows."
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
        """Return what the queries' stack has read; None where its positions are others."""
        text = self.passes.of(part)
        return text if text is not None and text.length - text.offset == num_queries else None

    def _key_text(self, part: str, num_keys: int) -> Text | None:
        """Return the keys' text: the queries' own, or another stack's; None if neither fits."""
        own = self.passes.of(part)
        if own is not None and not _is_cross(part) and first_key(own.length, num_keys, own.offset):
            return own
        is_elsewhere = _is_cross(part) or (own is not None and own.length != num_keys)
        text = self.passes.of(part, is_memory=True) if is_elsewhere else own
        return text if text is not None and text.length == num_keys else None

    def _batch(self, new: Tensor, site: str) -> int:
        return (
            self._shapes[_join(part_of(site), "query")][0]
            if own_name(site) == "mask"
            else new.shape[0]
        )

    def _widened(self, mask: Tensor, part: str) -> Tensor:
        """Expand a mask to all its axes, with as many rows and heads as the edits tell apart."""
        mask = mask[(None,) * (4 - mask.dim())]
        rows, heads = self._mask_size(part, mask.shape[0], mask.shape[1], mask.device)
        query, key = (self._shapes[_join(part, name)] for name in ("query", "key"))
        return mask.expand(rows, heads, query[-2], key[-2])

    def _mask_size(self, part: str, rows: int, heads: int, device: torch.device) -> tuple[int, int]:
        """Return how many rows and heads the mask must have, or raise where it does not fit."""
        query, key = (self._shapes[_join(part, name)] for name in ("query", "key"))
        edits = [coverage.edit for coverage in self.at[_join(part, "mask")]]
        widened = set().union(*(edit.tells_apart for edit in edits))
        rows = query[0] if "batch" in widened else rows
        heads = query[1] if "head" in widened else heads
        _check_room(part, 4 * rows * heads * query[-2] * key[-2], device)
        return rows, heads


class _Unchanged(Edit):
    """Return the values as they are."""

    def change(self, values: Tensor, context: EditContext) -> Tensor:
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
            f"holds up to {_COPIES} copies at once, {in_words(_COPIES * size)}; {in_words(free)} "
            "are free. Give a shorter input or fewer at a time, or edit what its heads gather "
            "(ZeroHead, ScaleHead), which needs no pairs."
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
    one = tuple(
        slice(each[0], each[0] + 1) if each is not None and len(each) == 1 else each
        for each in (rows, heads)
    )
    if all(isinstance(each, list) for each in one):
        return torch.tensor(rows)[:, None], torch.tensor(heads)[None]
    return tuple(slice(None) if each is None else each for each in one)[
        : 2 if heads is not None else 1
    ]


def _numbered(chosen: Numbers, size: int, device: torch.device) -> Tensor:
    return torch.tensor(list(range(size)) if chosen is None else chosen, device=device)


def _is_cross(part: str) -> bool:
    return own_name(part).startswith("cross")


def _join(part: str, own: str) -> str:
    return f"{part}.{own}" if part else own
