"""The editor: the hook that applies edits, in their order, to copies of the values that pass.

Each edit is given the rows and heads it is for and says what they become; what it did not mean is
put back here. Edits of one site follow one another in the order given; between sites the order is
the model's: first the mask, then scores, weights, heads.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.edits.certificate import Certificate, Numbers
from attnlab.edits.coverage import Coverage
from attnlab.edits.edit import Edit
from attnlab.edits.edit_context import EditContext, Positions, TokenHistory, positions_at
from attnlab.edits.targets import axes_of, own_name, part_of, site_of
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.heads import number_of_heads
from attnlab.look.inputs import Extent, longest_input
from attnlab.look.recording.budget import in_words
from attnlab.look.recording.tokens import Vocabulary
from attnlab.memory import free_memory
from attnlab.parts.heads import share_heads
from attnlab.sites import AttentionCall, Hook, StackInput, entrances, in_backward


def checkpointed_by() -> str | None:
    """Name the function of torch's checkpointing that this is called in; None for none.

    It is "forward" in the first pass of the reentrant kind, which computes without gradients.
    """
    if torch.compiler.is_compiling():
        return None
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            return frame.f_code.co_name
    return None


def tensors_in(output: Any) -> list[Tensor]:
    """List the tensors of what a module gives: one, or several in tuples, lists or mappings."""
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, Mapping):
        output = list(output.values())
    tensors: list[Tensor] = []
    if isinstance(output, tuple | list):
        for value in output:
            tensors += tensors_in(value)
    return tensors


class Recomputation:
    """Which blocks `backward()` may compute again under one edit and activation checkpointing.

    What is computed again must be edited again, and nothing else may be; else the gradients would
    be another model's. So gradient hooks on the outputs of edited passes note which `backward()`
    calls are theirs. A `backward()` after the edits have ended raises, and so does one of an
    earlier pass.

    is_due: something that was edited will be computed again · is_over: the edit has ended.
    """

    def __init__(self) -> None:
        self.is_due = self.is_over = False
        # torch's numbers of the `backward()` calls of edited passes
        self._backwards: set[int] = set()

    def edited(self, value: Tensor) -> None:
        """Note a value that was edited."""
        self.is_due = self.is_due or checkpointed_by() is not None
        self._guard(value)

    def computes_again(self) -> None:
        """Raise where `backward()` computes again a pass that was made before the edits."""
        if torch._C._current_graph_task_id() not in self._backwards:
            raise CouldNotRun(
                "backward() inside the edits' `with` computes blocks of an earlier pass again, now "
                "with the edits: gradients would be wrong. Call backward() before the `with`, or "
                "make the pass inside it."
            )

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        """Guard what comes out of a model while it is edited; afterwards refuse its gradients."""
        with ExitStack() as stack:
            for _, module in entrances(model):
                stack.callback(module.register_forward_hook(self._came_out).remove)
            try:
                yield
            finally:
                self.is_over = True

    def _came_out(self, module: nn.Module, args: Any, output: Any) -> None:
        if self.is_due and checkpointed_by() == "forward":
            # it is told once, and not again by what runs while the error is on its way
            self.is_due = False
            raise CouldNotRun(
                f"the whole of this {type(module).__name__} is checkpointed with "
                "use_reentrant=True, so that it is unknown whether it is computed again "
                "without its edits; give use_reentrant=False."
            )
        self._guard(output)

    def _guard(self, output: Any) -> None:
        for tensor in tensors_in(output):
            if tensor.requires_grad:
                tensor.register_hook(self._begun)  # type: ignore[no-untyped-call]

    def _begun(self, _: Tensor) -> None:
        self._backwards.add(torch._C._current_graph_task_id())
        if self.is_over and self.is_due:
            raise CouldNotRun(
                "backward() was called after the edits' `with` had ended, and activation "
                "checkpointing computes blocks again, now without the edits: gradients would be "
                "wrong. Call backward() inside the `with`."
            )


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
    the weights of the largest edited attention · certificate: what was changed is counted for it;
    None for nothing.
    """

    changes = True
    one_thread = True

    def __init__(
        self,
        model: nn.Module,
        edits: Sequence[Edit],
        vocabulary: Vocabulary | None,
    ) -> None:
        self.certificate: Certificate | None = None
        self.history = TokenHistory()
        self.recomputation = Recomputation()
        self.coverages = [Coverage(edit, vocabulary) for edit in edits]
        self.at: dict[str, list[Coverage]] = {}
        self.largest_attention = 0
        self._model, self._vocabulary = model, vocabulary
        self._is_repeat = False
        self._num_heads: dict[str, int] = {}
        self._context_sites: set[str] = set()
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._visible: dict[str, Tensor] = {}
        for coverage in self.coverages:
            coverage.sites = coverage.edit.sites(model)
            for site in coverage.sites:
                self._place(coverage, site)
            coverage.rule.check_model(model, coverage.sites)
        limit = longest_input(model)
        if limit is not None:
            self.check_extent(Extent(limit, sys.maxsize), "the longest input of this model")
        self.sites = frozenset(self.at) | self._context_sites
        self._looks_back = any(coverage.looks_back for coverage in self.coverages)

    def check_extent(self, extent: Extent, whose: str) -> None:
        """Raise before any pass where none of those to come can reach a target."""
        for coverage in self.coverages:
            coverage.check_extent(extent, whose)

    def _place(self, coverage: Coverage, site: str) -> None:
        """Note an edit at its site, and check all that can be known before anything is read."""
        edit, part, site_suffix = coverage.edit, part_of(site), own_name(site)
        axes = axes_of(site_suffix)
        there = set(axes)
        if "length" in axes:
            there.add("query")
        if site_suffix not in _SHARED:  # which are read anew in every pass
            there.add("step")
        for axis in ("head", "query", "key", "step"):
            if getattr(edit, axis) is not None and axis not in there:
                raise WrongUsage(
                    f"{edit!r}: {site} has axes ({', '.join(axes)}); leave {axis}= out."
                )
        self.at.setdefault(site, []).append(coverage)
        self._context_sites.update(site_of(part, also) for also in _ALSO.get(site_suffix, ()))
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
        if call.is_open:
            _check_room(part, size, call.query.device)

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Return the edited values."""
        part, site_suffix = part_of(site), own_name(site)
        if site in self.at:
            if in_backward():
                self.recomputation.computes_again()
                self._check_last(part)
            value = self._edited(site, value)
            self.recomputation.edited(value)
        if site in self._context_sites and site_suffix == "scores":
            self._visible[part] = value.detach() != float("-inf")
        elif site in self._context_sites:
            self._shapes[site] = tuple(value.shape)
            if site_suffix == "key" and site_of(part, "mask") in self.at:
                self._mask_size(part, 1, 1, value.device)  # before the mask is written out
        return value

    def _check_last(self, part: str) -> None:
        """Raise where `backward()` computes a pass again and which one cannot be known."""
        text = self.history.of(part)
        if text is not None and text.number and any(coverage.reads for coverage in self.coverages):
            raise CouldNotRun(
                "backward() computes again one of several checkpointed passes, and edits that go "
                "by steps, tokens or the end of the text cannot tell which; give each pass a "
                "`with` of its own, and call backward() in it."
            )

    def describe(self) -> list[dict[str, object]]:
        """Return the edits' JSON forms, large tensors by their hash."""
        return [coverage.edit.to_json(brief=True) for coverage in self.coverages]

    def again(self) -> "Editor":
        """Return an editor for a pass that is repeated: the same edits, of which nothing is counted
        and for which nothing is read anew."""
        rules = [coverage.rule for coverage in self.coverages]
        editor = Editor(self._model, rules, self._vocabulary)
        editor.history, editor._is_repeat = self.history, True
        return editor

    def unchanging(self) -> "Editor":
        """Return an editor for a pass that is repeated, with edits that change nothing."""
        editor = self.again()
        for coverage in editor.coverages:
            coverage.rule = _Unchanged()
        return editor

    def _edited(self, site: str, value: Tensor) -> Tensor:
        part, site_suffix = part_of(site), own_name(site)
        value = self._expand_shared_heads(site, value)
        axes = axes_of(site_suffix)
        if site_suffix == "logits" and value.dim() == 2:
            axes = ("batch", "classes")
        at = positions_at(self._model, self.history, site, axes, value)
        visible = self._visible.pop(part, None) if site_suffix == "weights" else None
        new, edited = value.clone(), []
        for coverage in self.at[site]:
            calls = coverage.change.calls
            calls[site] = calls.get(site, 0) + 1
            target = self._target(coverage, at, new)
            if target is not None:
                self._apply(coverage, target, at, new, visible)
                edited.append((target.rows, target.heads))
        if self.certificate is not None:
            self.certificate.check_site(site, value, new, edited, visible)
        return new

    def _expand_shared_heads(self, site: str, value: Tensor) -> Tensor:
        """Give the values as many rows and heads as the edits of this site tell apart."""
        part, site_suffix = part_of(site), own_name(site)
        if site_suffix == "mask":
            return self._widened(value, part)
        edits = [coverage.edit for coverage in self.at[site]]
        is_by_head = any(edit.head is not None or hasattr(edit, "recording") for edit in edits)
        if site_suffix in _SHARED and is_by_head:
            value = share_heads(value, self._num_heads[part])
        return value

    def _target(self, coverage: Coverage, at: Positions, new: Tensor) -> "_Target | None":
        """Say which values one edit is for; None for no value here."""
        part, batch, heads = part_of(at.site), new.shape[0], None
        if own_name(at.site) == "mask":
            batch = self._shapes[site_of(part, "query")][0]
        rows = coverage.rows(batch)
        if "head" in at.axes and coverage.edit.head is not None:
            heads = coverage.edit.heads_in(self._num_heads[part], part)
        chosen = coverage.chosen(at)
        if chosen is not None:
            if chosen.shape[0] > 1 and rows is not None:
                chosen = chosen[rows]
            if not bool(chosen.any()):
                return None
        if rows == []:
            return None
        return _Target(rows, heads, chosen)

    def _apply(
        self,
        coverage: Coverage,
        target: "_Target",
        at: Positions,
        new: Tensor,
        visible: Tensor | None,
    ) -> None:
        """Let one edit change the values, in place."""
        index = _index(target.rows, target.heads)
        chosen = target.chosen
        here = new[index].clone()
        if visible is not None:
            visible = visible[index]
        context = EditContext(
            **vars(at),
            rows=torch.tensor(target.rows or range(new.shape[0]), device=new.device),
            heads=torch.tensor(target.heads or range(new.shape[1]), device=new.device),
            selected=chosen,
            whole=new,
            visible=visible,
        )
        changed = coverage.rule.change(here, context).to(new.dtype)
        if chosen is not None:
            changed = torch.where(chosen, changed, here)
        new[index] = changed
        coverage.note_change(here, changed, chosen)
        if self.certificate is not None:
            self.certificate.count_edit(coverage.change, at.site, here, new[index], chosen)

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


@dataclass(frozen=True)
class _Target:
    """Which rows, heads and values an edit is for at one site; None for all."""

    rows: Numbers
    heads: Numbers
    chosen: Tensor | None


class _Unchanged(Edit):
    def change(self, values: Tensor, context: EditContext) -> Tensor:
        return values


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
