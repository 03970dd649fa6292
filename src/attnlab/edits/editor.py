"""The editor: the hook that applies edits, in their order, to copies of the values that pass.

Each edit is given the rows and heads it is for and says what they become; what it did not mean is
put back here. Edits of one site follow one another in the order given; between sites the order is
the model's: first the mask, then scores, weights, heads.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.edits.coverage import Coverage
from attnlab.edits.edit import Edit
from attnlab.edits.edit_context import EditContext, Positions, positions_at
from attnlab.edits.recomputation import Recomputation
from attnlab.edits.tally import Numbers, Tally
from attnlab.edits.token_history import TokenHistory
from attnlab.edits.where import axes_of, own_name, part_of, site_of
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.heads import number_of_heads
from attnlab.look.recording.budget import in_words
from attnlab.look.recording.tokens import Vocabulary
from attnlab.memory import free_memory
from attnlab.parts.heads import share_heads
from attnlab.sites import AttentionCall, Hook, Reading, is_going_back

_SHARED = ("key", "value")
_ALSO = {"mask": ("query", "key"), "weights": ("scores",)}
"""What must be known beside a site: the sizes that a mask leaves open, and which keys may be looked
at."""

_COPIES = 10
"""Matrices of all pairs that an open attention, its edits and their check hold at once: 4 to 11, as
measured."""
_LITTLE = 2**27  # bytes that are taken without asking how many are free


class Editor(Hook):
    """Applies edits to one model, and knows afterwards which of them landed.

    at: the edits by their sites · history: what the stacks have read · largest_attention: bytes of
    the weights of the largest edited attention · tally: counts what was changed, None for nothing.
    """

    changes = True
    one_thread = True

    def __init__(
        self,
        model: nn.Module,
        edits: Sequence[Edit],
        vocabulary: Vocabulary | None,
        tally: Tally | None,
    ) -> None:
        self.history = TokenHistory()
        self.recomputation = Recomputation()
        self.coverages = [Coverage(edit, vocabulary) for edit in edits]
        self.at: dict[str, list[Coverage]] = {}
        self.largest_attention = 0
        self._model, self._vocabulary, self._tally = model, vocabulary, tally
        self._num_heads: dict[str, int] = {}
        self._also: set[str] = set()
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._visible: dict[str, Tensor] = {}
        for coverage in self.coverages:
            coverage.sites = coverage.edit.sites(model)
            for site in coverage.sites:
                self._place(coverage, site)
            coverage.rule.check_model(model, coverage.sites)
        self.sites = frozenset(self.at) | self._also
        self._looks_back = any(coverage.looks_back for coverage in self.coverages)

    def _place(self, coverage: Coverage, site: str) -> None:
        """Note an edit at its site, and check all that can be known before anything is read."""
        edit, part, own = coverage.edit, part_of(site), own_name(site)
        axes = axes_of(own)
        for axis in ("head", "query", "key"):
            is_there = axis in axes or (axis == "query" and "length" in axes)
            if getattr(edit, axis) is not None and not is_there:
                raise WrongUsage(
                    f"{edit!r}: {site} has the axes ({', '.join(axes)}); leave {axis}= out."
                )
        if edit.step is not None and own in _SHARED:
            raise WrongUsage(f"{edit!r}: {site} is read anew in every pass; leave step= out.")
        self.at.setdefault(site, []).append(coverage)
        self._also.update(site_of(part, also) for also in _ALSO.get(own, ()))
        self._num_heads[part] = number_of_heads(self._model, part)
        if "head" in axes:
            edit.heads_in(self._num_heads[part], part)

    def wants(self, site: str) -> bool:
        """Say whether an edit is for this site, or must know what passes there."""
        return site in self.at or site in self._also

    def read(self, part: str, reading: Reading) -> None:
        """Learn what a stack reads."""
        self.history.read(part, reading, compare=self._looks_back)

    def watch(self, part: str, call: AttentionCall) -> None:
        """Note how many bytes the weights of an edited attention take."""
        if part not in self._num_heads:
            return
        pairs = call.query.shape[:-1].numel() * call.key.shape[-2]
        size = pairs * max(4, call.query.element_size())
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
                if own == "key" and site_of(part, "mask") in self.at:
                    self._mask_size(part, 1, 1, value.device)  # before the mask is written out
        return value

    def _check_last(self, part: str) -> None:
        """Raise where `backward()` computes a pass again and which one cannot be known."""
        text = self.history.of(part)
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
        rules = [coverage.rule for coverage in self.coverages]
        found = Editor(self._model, rules, self._vocabulary, None)
        found.history = self.history.outside(path)
        for coverage in found.coverages:
            coverage.rule = _Unchanged()
        return found

    def _edited(self, site: str, value: Tensor) -> Tensor:
        part, own = part_of(site), own_name(site)
        if own == "mask":
            value = self._widened(value, part)
        elif own in _SHARED:
            value = self._told_apart(value, site)
        axes = axes_of(own)
        if own == "logits" and value.dim() == 2:
            axes = ("batch", "classes")
        at = positions_at(self._model, self.history, site, axes, value)
        new, edited = value.clone(), []
        visible = self._visible.pop(part, None) if own == "weights" else None
        for coverage in self.at[site]:
            calls = coverage.change.calls
            calls[site] = calls.get(site, 0) + 1
            done = self._apply(coverage, at, new, visible)
            if done is not None:
                edited.append(done)
        if self._tally is not None:
            self._tally.check_site(site, value, new, edited, visible)
        return new

    def _apply(
        self, coverage: Coverage, at: Positions, new: Tensor, visible: Tensor | None
    ) -> tuple[Numbers, Numbers] | None:
        """Let one edit change the values, in place; return its rows and heads, None where it has no
        target."""
        edit, part, own = coverage.edit, part_of(at.site), own_name(at.site)
        batch = new.shape[0]
        if own == "mask":
            batch = self._shapes[site_of(part, "query")][0]
        rows, heads = coverage.rows(batch), None
        if "head" in at.axes and edit.head is not None:
            heads = edit.heads_in(self._num_heads[part], part)
        chosen = coverage.chosen(at)
        if chosen is not None and chosen.shape[0] > 1 and rows is not None:
            chosen = chosen[rows]
        if rows == [] or (chosen is not None and not bool(chosen.any())):
            return None
        if batch == 1:
            rows = None
        index = _index(rows, heads)
        here = new[index].clone()
        context = EditContext(
            **vars(at),
            rows=_numbered(rows, new.shape[0], new.device),
            heads=_numbered(heads, new.shape[1], new.device),
            selected=chosen,
            whole=new,
            visible=None if visible is None else visible[index],
        )
        changed = coverage.rule.change(here, context).to(new.dtype)
        if chosen is not None:
            changed = torch.where(chosen, changed, here)
        new[index] = changed
        coverage.note_change(here, changed, chosen)
        if self._tally is not None:
            self._tally.count_edit(coverage.change, at.site, here, new[index], chosen)
        return rows, heads

    def _told_apart(self, value: Tensor, site: str) -> Tensor:
        """Give each head its own keys or values where an edit needs them."""
        edits = [coverage.edit for coverage in self.at[site]]
        if any(each.head is not None or hasattr(each, "recording") for each in edits):
            return share_heads(value, self._num_heads[part_of(site)])
        return value

    def _widened(self, mask: Tensor, part: str) -> Tensor:
        """Expand a mask to all its axes, with as many rows and heads as the edits tell apart."""
        mask = mask[(None,) * (4 - mask.dim())]
        rows, heads = self._mask_size(part, mask.shape[0], mask.shape[1], mask.device)
        query, key = (self._shapes[site_of(part, name)] for name in ("query", "key"))
        return mask.expand(rows, heads, query[-2], key[-2])

    def _mask_size(self, part: str, rows: int, heads: int, device: torch.device) -> tuple[int, int]:
        """Return how many rows and heads the mask must have, or raise where it does not fit."""
        query, key = (self._shapes[site_of(part, name)] for name in ("query", "key"))
        coverages = self.at[site_of(part, "mask")]
        widened = set().union(*(coverage.edit.tells_apart for coverage in coverages))
        if "batch" in widened:
            rows = query[0]
        if "head" in widened:
            heads = query[1]
        _check_room(part, 4 * rows * heads * query[-2] * key[-2], device)
        return rows, heads


class _Unchanged(Edit):
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


def _index(rows: Numbers, heads: Numbers) -> tuple[Any, ...]:
    """Choose rows and heads, None for all; slices where they will do, which cost nothing."""
    found: list[Any] = []
    for each in (rows, heads):
        if each is None:
            found.append(slice(None))
        elif len(each) == 1:
            found.append(slice(each[0], each[0] + 1))
        else:
            found.append(torch.tensor(each))
    if all(isinstance(each, Tensor) for each in found):
        found[0] = found[0][:, None]
    return tuple(found)


def _numbered(chosen: Numbers, size: int, device: torch.device) -> Tensor:
    return torch.tensor(range(size) if chosen is None else chosen, device=device)
