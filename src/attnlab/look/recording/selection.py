"""Parts of a recording: some sites, layers, heads or inputs; and the checks of the selection."""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attnlab.errors import WrongUsage, did_you_mean
from attnlab.look.indices import check_index
from attnlab.look.recording.budget import Budget
from attnlab.look.recording.contents import Part, Passed, Store
from attnlab.look.recording.kept_call import KeptCall, KeptMask, Made
from attnlab.look.recording.tokens import Read

_BY_HEAD = ("query", "key", "value", "mask", "scores", "weights", "heads")


def selected(
    store: Store,
    patterns: str | Sequence[str] | None,
    layers: Iterable[int] | int | None,
    heads: Iterable[int] | int | None,
    rows: Iterable[int] | int | None,
) -> Store:
    """Return a part of a store; an unknown site, layer, head or input is an error."""
    store.check_recorded()
    sites = _sites(store, patterns, _numbers(layers))
    chosen_heads, chosen_rows = _numbers(heads), _numbers(rows)
    if chosen_heads is not None:
        sites = [site for site in sites if site.rpartition(".")[2] in _BY_HEAD]
        if not sites:
            raise WrongUsage("none of the selected sites has heads; leave heads= out.")
    passed, counts = {}, dict(store.heads)
    for site in sites:
        part = site.rpartition(".")[0]
        if chosen_heads is not None:
            _check_all("head", chosen_heads, store.heads[part], site)
            counts[part] = len(chosen_heads)
        pick = Pick(site, chosen_heads, store.heads.get(part), chosen_rows, store.budget)
        passed[site] = [pick.passed(each) for each in store.passed[site]]
    reads = store.reads
    if chosen_rows is not None:
        reads = [_rows_read(read, chosen_rows) for read in reads]
    return replace(store, sites=tuple(sites), passed=passed, reads=reads, heads=counts)


def _numbers(given: Iterable[int] | int | None) -> list[int] | None:
    if given is None:
        return None
    numbers = [given] if isinstance(given, int) else list(given)
    if not numbers or any(isinstance(each, bool) or not isinstance(each, int) for each in numbers):
        raise WrongUsage(f"expected a number, or several; got {given!r}.")
    return numbers


def _sites(
    store: Store, patterns: str | Sequence[str] | None, layers: list[int] | None
) -> list[str]:
    """Return the recorded sites that match, in these layers."""
    if isinstance(patterns, str):
        patterns = [patterns]
    sites = list(store.passed)
    found: dict[str, None] = {}
    for pattern in ["*"] if patterns is None else patterns:
        matching = fnmatch.filter(sites, pattern)
        if not matching:
            raise WrongUsage(
                f"no recorded site matches {pattern!r}; {did_you_mean(pattern, sites)}"
            )
        found |= dict.fromkeys(matching)
    if layers is None:
        return list(found)
    layer_of = {site: re.search(r"(?:^|\.)layers\.(\d+)\.", site) for site in found}
    numbered = {site: int(place[1]) for site, place in layer_of.items() if place}
    for layer in layers:
        if layer not in numbered.values():
            known = sorted(set(numbered.values()))
            raise WrongUsage(
                f"no recorded site is in layer {layer}; recorded layers: {known or 'none'}."
            )
    return [site for site in numbered if numbered[site] in layers]


@dataclass(frozen=True)
class Pick:
    """Some heads (of a number) and some rows, at one site."""

    site: str
    heads: list[int] | None
    num_heads: int | None
    rows: list[int] | None
    budget: Budget

    def passed(self, passed: Passed) -> Passed:
        """Select from a value with all its details."""
        if self.heads is None and self.rows is None:
            return passed
        gradient = None if passed.gradient is None else self.tensor(passed.gradient)
        mask = None if passed.mask is None else self.mask(passed.mask)
        return replace(passed, held=self.held(passed.held), mask=mask, gradient=gradient)

    def held(self, held: Any) -> Any:
        """Select from the held form of a value."""
        if isinstance(held, Made):
            call = held.call
            query, keys = self.tensor(call.query), self.tensor(call.keys)
            return Made(KeptCall(query, keys, self.mask(call.mask), call.scale), held.what)
        if isinstance(held, KeptMask):
            return self.mask(held)
        if isinstance(held, Part):
            return self.tensor(held.tensor())
        if isinstance(held, tuple):  # what `reduce` made: every field that has a batch and heads
            return type(held)(*(self.tensor(each) if each.dim() > 2 else each for each in held))
        return self.tensor(held)

    def mask(self, kept: KeptMask) -> KeptMask:
        """Select from a mask along the axes that are not shared."""
        if not isinstance(kept.mask, Tensor) or kept.mask.dim() < 3:
            return kept
        mask = kept.mask[(None,) * (4 - kept.mask.dim())]
        heads = None if mask.shape[1] == 1 else self.heads
        rows = None if mask.shape[0] == 1 else self.rows
        picked = replace(self, heads=heads, rows=rows).tensor(mask)
        return kept._replace(mask=picked[0] if kept.mask.dim() == 3 else picked)

    def tensor(self, tensor: Tensor) -> Tensor:
        """Select from (batch, ...) or (batch, head, ...); a key that heads share is repeated for
        each of them."""
        if self.heads is not None and self.num_heads is not None:
            shared = [head * tensor.shape[1] // self.num_heads for head in self.heads]
            tensor = self._taken(tensor, 1, shared)
        if self.rows is not None:
            _check_all("row", self.rows, tensor.shape[0], self.site)
            tensor = self._taken(tensor, 0, self.rows)
        return tensor

    def _taken(self, tensor: Tensor, axis: int, numbers: list[int]) -> Tensor:
        self.budget.allow(
            f"a part of {self.site}", tensor.nbytes // max(1, tensor.shape[axis]) * len(numbers)
        )
        taken = tensor.index_select(axis, torch.tensor(numbers, device=tensor.device))
        self.budget.made(taken)
        return taken


def _check_all(name: str, numbers: list[int], size: int, site: str) -> None:
    for number in numbers:
        check_index(f"a {name} of {site}", number, size)


def _rows_read(read: Read, rows: list[int]) -> Read:
    rows = [row for row in rows if row < read.shape[0]]
    ids, real = (None if each is None else each[rows] for each in (read.ids, read.real))
    picked = read._replace(ids=ids, real=real, shape=(len(rows), read.shape[1]))
    if read.rows is None:
        return picked
    before = [read.row_before(row) for row in rows]
    if not set(before) <= set(rows):
        return picked._replace(before=None, rows=None)  # what they go on from was left out
    return picked._replace(rows=torch.tensor([rows.index(row) for row in before]))
