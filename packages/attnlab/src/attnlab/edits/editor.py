"""The editor: the hook that applies edits, in their order, to copies of the values that pass.

Each edit gets the rows and heads that it is for and returns their new values; the editor puts back
what the edit did not mean. Edits of one site follow one another in the order given; between sites
the order is the model's: first the mask, then scores, weights, heads.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from attnlab.edits.certificate import Certificate, Numbers
from attnlab.edits.coverage import Coverage
from attnlab.edits.edit import Edit
from attnlab.edits.edit_context import EditContext, SitePositions, TokenHistory, positions_at
from attnlab.edits.targets import axes_of
from attnlab.errors import CouldNotRun, WrongUsage, type_words
from attnlab.look.heads import number_of_heads
from attnlab.look.recording.budget import in_words
from attnlab.look.recording.tokens import Vocabulary
from attnlab.memory import free_memory
from attnlab.parts.heads import share_heads
from attnlab.shapes import shape_text
from attnlab.sites import (
    AttentionCall,
    Hook,
    StackInput,
    in_backward,
    part_of,
    site_of,
    site_suffix,
)

_SHARED = ("key", "value")
_CONTEXT = {"mask": ("query", "key"), "weights": ("scores",)}
"""The sites that an edit of another site must know too: the sizes that a mask leaves open, and
which keys may be looked at."""

_COPIES = 10
"""Matrices of all pairs that an explicit attention, its edits and their check hold at once: 4 to
11, as measured."""
_LITTLE = 2**27  # bytes that are taken without asking how many are free


class Editor(Hook):
    """Applies edits to one model, and counts in a certificate what they did.

    at: the edits by their sites · history: what the stacks have read · largest_attention: bytes of
    the weights of the largest edited attention · certificate: of these edits; without `certify`
    only the calls are counted.
    """

    changes = True
    one_thread = True

    def __init__(
        self,
        model: nn.Module,
        edits: Sequence[Edit],
        vocabulary: Vocabulary | None,
        *,
        certify: bool = True,
    ) -> None:
        self.history = TokenHistory()
        self.coverages = [Coverage(edit, vocabulary) for edit in edits]
        backends = [str(part.backend) for part in model.modules() if hasattr(part, "backend")]
        self.certificate = Certificate(
            backend=" and ".join(dict.fromkeys(backends)) or "native",
            edits=[coverage.change for coverage in self.coverages],
        )
        self.at: dict[str, list[Coverage]] = {}
        self.largest_attention = 0
        self._is_repeat = self._is_neutral = False
        self._certify, self._model = certify, model
        self._num_heads: dict[str, int] = {}
        self._context_sites: set[str] = set()
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._visible: dict[str, Tensor] = {}
        for coverage in self.coverages:
            coverage.sites = coverage.edit.sites(model)
            for site in coverage.sites:
                self._place(coverage, site)
            coverage.rule.check_model(model, coverage.sites)
        self.sites = frozenset(self.at) | self._context_sites
        self._looks_back = any(coverage.looks_back for coverage in self.coverages)

    @contextmanager
    def repeated(self, *, is_neutral: bool = False) -> Iterator[None]:
        """Count nothing while a pass is repeated to be compared; `is_neutral`: change nothing
        either."""
        self._is_repeat, self._is_neutral = True, is_neutral
        try:
            yield
        finally:
            self._is_repeat = self._is_neutral = False

    def _place(self, coverage: Coverage, site: str) -> None:
        """Note an edit at its site, and check all that can be known before anything is read."""
        edit, part, suffix = coverage.edit, part_of(site), site_suffix(site)
        axes = axes_of(suffix)
        targets = set(axes)
        if "length" in axes:
            targets.add("query")
        if suffix not in _SHARED:  # keys and values are read anew in every pass
            targets.add("step")
        for axis in ("head", "query", "key", "step"):
            if getattr(edit, axis) is not None and axis not in targets:
                raise WrongUsage(
                    f"{edit!r}: {site} has axes ({', '.join(axes)}); leave {axis}= out."
                )
        self.at.setdefault(site, []).append(coverage)
        self._context_sites.update(site_of(part, name) for name in _CONTEXT.get(suffix, ()))
        self._num_heads[part] = number_of_heads(self._model, part)
        if "head" in axes:
            edit.heads_in(self._num_heads[part], part)

    def wants(self, site: str) -> bool:
        """Say whether an edit is for this site, or must know what passes there."""
        return site in self.at or site in self._context_sites

    def read(self, part: str, reading: StackInput) -> None:
        """Learn what a stack reads."""
        if not self._is_repeat:
            self.history.read(part, reading, compare=self._looks_back)

    def watch(self, part: str, call: AttentionCall) -> None:
        """Note how many bytes the weights of an edited attention take."""
        if part not in self._num_heads:
            return
        pairs = call.query.shape[:-1].numel() * call.key.shape[-2]
        size = pairs * max(4, call.query.element_size())
        self.largest_attention = max(size, self.largest_attention)
        if call.is_explicit:
            _check_room(part, size, call.query.device)

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Return the edited values."""
        part, suffix = part_of(site), site_suffix(site)
        if site in self.at:
            if in_backward() or _is_checkpointed():
                raise CouldNotRun(
                    f"{site} is edited under activation checkpointing, which would compute it "
                    "again in backward() when the edits may be others. Turn checkpointing off in "
                    "edited blocks, such as by model.gradient_checkpointing_disable()."
                )
            _check_own_backward(site)
            value = self._edited(site, value)
        if site in self._context_sites and suffix == "scores":
            self._visible[part] = value.detach() != float("-inf")
        elif site in self._context_sites:
            self._shapes[site] = tuple(value.shape)
            if suffix == "key" and site_of(part, "mask") in self.at:
                self._mask_size(part, 1, 1, value.device)  # before the mask is written out
        return value

    def describe(self) -> list[dict[str, object]]:
        """Return the edits' JSON forms, large tensors by their hash."""
        return [coverage.edit.to_json(brief=True) for coverage in self.coverages]

    def _edited(self, site: str, value: Tensor) -> Tensor:
        """Return a copy of the values that every edit of this site has changed in turn."""
        suffix, axes = site_suffix(site), axes_of(site_suffix(site))
        value = self._expand_shared_heads(site, value)
        if suffix in ("logits", "result") and value.dim() != len(axes):
            axes = ("batch", *["axis"] * (value.dim() - 2), "classes")
        at = positions_at(self._model, self.history, site, axes, value)
        if suffix == "result":
            _check_first_axes(self.at[site], at, value)
        visible = self._visible.pop(part_of(site), None) if suffix == "weights" else None
        new, edited = value.clone(), []
        for coverage in self.at[site]:
            if not self._is_repeat:
                coverage.change.calls[site] = coverage.change.calls.get(site, 0) + 1
            rows, heads, chosen = self._targets(coverage, at, new)
            if rows != [] and (chosen is None or bool(chosen.any())):
                self._apply(coverage, (rows, heads), chosen, at, new, visible)
                edited.append((rows, heads))
        if self._certify and not self._is_repeat:
            self.certificate.check_site(site, value, new, edited, visible)
        return new

    def _targets(
        self, coverage: Coverage, at: SitePositions, new: Tensor
    ) -> tuple[Numbers, Numbers, Tensor | None]:
        """Return the rows and heads that one edit is for, and the values that it means in them."""
        part, batch, heads = part_of(at.site), new.shape[0], None
        if site_suffix(at.site) == "mask":
            batch = self._shapes[site_of(part, "query")][0]
        if "head" in at.axes and coverage.edit.head is not None:
            heads = coverage.edit.heads_in(self._num_heads[part], part)
        rows, chosen = coverage.rows(batch), coverage.chosen(at)
        if rows is not None:
            _check_rows(coverage.edit, at, batch)
        if chosen is not None and chosen.shape[0] > 1 and rows is not None:
            chosen = chosen[rows]
        channels = coverage.edit.channels_in(new, at.site)
        if channels is not None:
            chosen = channels if chosen is None else chosen & channels
        return rows, heads, chosen

    def _expand_shared_heads(self, site: str, value: Tensor) -> Tensor:
        """Give the values as many rows and heads as the edits of this site tell apart."""
        part, suffix = part_of(site), site_suffix(site)
        if suffix == "mask":
            value = value[(None,) * (4 - value.dim())]
            rows, heads = self._mask_size(part, value.shape[0], value.shape[1], value.device)
            query, key = (self._shapes[site_of(part, name)] for name in ("query", "key"))
            return value.expand(rows, heads, query[-2], key[-2])
        edits = [coverage.edit for coverage in self.at[site]]
        is_by_head = any(edit.head is not None or hasattr(edit, "recording") for edit in edits)
        if suffix in _SHARED and is_by_head:
            value = share_heads(value, self._num_heads[part])
        return value

    def _apply(
        self,
        coverage: Coverage,
        rows_and_heads: tuple[Numbers, Numbers],
        chosen: Tensor | None,
        at: SitePositions,
        new: Tensor,
        visible: Tensor | None,
    ) -> None:
        """Let one edit change the values of its rows and heads, in place."""
        index = _index(*rows_and_heads)
        rows, heads = rows_and_heads
        here = new[index].clone()
        if self._is_neutral:
            new[index] = here
            return
        context = EditContext(
            **vars(at),
            rows=torch.tensor(rows or range(new.shape[0]), device=new.device),
            heads=torch.tensor(heads or range(new.shape[1]), device=new.device),
            selected=chosen,
            whole=new,
            visible=None if visible is None else visible[index],
        )
        # A copy: an edit may change what it is given in place.
        changed = _fitting(coverage.rule.change(here.clone(), context), here, coverage.edit)
        if chosen is not None:
            changed = torch.where(chosen, changed, here)
        new[index] = changed
        if self._is_repeat:
            return
        coverage.note_change(here, changed, chosen)
        if self._certify:
            self.certificate.count_edit(coverage.change, at.site, here, new[index], chosen)

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


def _fitting(changed: Any, here: Tensor, edit: Edit) -> Tensor:
    """Return what an edit has made of some values, in their dtype; raise if it does not fit."""
    if not isinstance(changed, Tensor):
        raise WrongUsage(
            f"{edit!r}: change(values, context) returned {type_words(changed)}; have it return the "
            "changed values."
        )
    try:
        changed.expand(here.shape)
    except RuntimeError:
        raise WrongUsage(
            f"{edit!r}: change(values, context) must return values of shape "
            f"{shape_text(here.shape)}; got {shape_text(changed.shape)}."
        ) from None
    return changed.to(here.dtype)


def _check_rows(edit: Edit, at: SitePositions, batch: int) -> None:
    """Raise if rows are chosen where they are no inputs, as windows of a picture are."""
    inputs = batch if at.stack_text is None else at.stack_text.tokens.shape[0]
    if batch > inputs > 0:
        raise WrongUsage(
            f"{edit!r}: {at.site} has {batch} rows for {inputs} input{'s' if inputs > 1 else ''}, "
            "such as windows of a picture, so row= names no input; leave row= out."
        )


def _check_first_axes(coverages: Sequence[Coverage], at: SitePositions, value: Tensor) -> None:
    """Raise if rows or positions are chosen of a module's output that has other axes."""
    text = at.stack_text
    if text is None:
        return
    batch, length = text.tokens.shape[0], text.length - text.offset
    for edit in (coverage.edit for coverage in coverages):
        is_other_length = edit.query is not None and at.query_text is None
        if is_other_length or (edit.row is not None and value.shape[0] != batch):
            raise WrongUsage(
                f"{edit!r}: {at.site} is {shape_text(value.shape)} for a batch of {batch} and "
                f"{length} positions, so its rows and positions are unknown; leave row= and query= "
                "out."
            )


def _check_own_backward(site: str) -> None:
    """Raise inside a function that computes its gradients itself, without knowing of edits."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return  # such a function runs without gradients
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_varnames[:1] == ("ctx",):
            context = frame.f_locals.get("ctx")
            if isinstance(context, FunctionCtx) and any(getattr(context, "needs_input_grad", ())):
                raise CouldNotRun(
                    f"{site} is edited inside a torch.autograd.Function, whose own backward() "
                    "would give the gradients of the unedited pass; edit it under torch.no_grad()."
                )
        frame = frame.f_back


def _is_checkpointed() -> bool:
    """Is this called by a function of torch's activation checkpointing?"""
    if torch.compiler.is_compiling():
        return False
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            return True
    return False


def _index(rows: Numbers, heads: Numbers) -> tuple[slice | Tensor, slice | Tensor]:
    """Choose rows and heads, None for all, by slices where they will do: index tensors would be
    saved for `backward()`."""
    row, head = _slice_of(rows), _slice_of(heads)
    if isinstance(row, Tensor) and isinstance(head, Tensor):
        row = row[:, None]
    return row, head


def _slice_of(indices: Numbers) -> slice | Tensor:
    if indices is None:
        return slice(None)
    if len(indices) == 1:
        return slice(indices[0], indices[0] + 1)
    return torch.tensor(indices)


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
