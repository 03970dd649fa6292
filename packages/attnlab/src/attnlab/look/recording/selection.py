"""Parts of a recording: some sites, layers, heads or inputs; and the checks of the selection."""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attnlab.errors import WrongUsage, did_you_mean, is_integer
from attnlab.look.indices import check_index
from attnlab.look.recording.budget import Budget
from attnlab.look.recording.contents import Passed, Store
from attnlab.look.recording.kept_call import KeptCall, KeptMask, TensorPrefix
from attnlab.look.recording.tokens import StackRead
from attnlab.sites import in_our_words


def numbers_of(chosen: Iterable[int] | int | None) -> list[int] | None:
    """Return one number or several as a list."""
    if chosen is None:
        return None
    if isinstance(chosen, int):
        chosen = [chosen]
    numbers = list(chosen)
    if not numbers or not all(map(is_integer, numbers)):
        raise WrongUsage(f"expected a number, or several; got {chosen!r}.")
    return numbers


def selected_sites(
    store: Store, patterns: str | Sequence[str] | None, layers: list[int] | None
) -> list[str]:
    """Return the recorded sites that match, in these layers."""
    if patterns is None:
        patterns = "*"
    sites = list(store.passed)
    layers_of: dict[str, int | None] = {}
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        matching = fnmatch.filter(sites, pattern)
        if not matching:
            guess = did_you_mean(in_our_words(pattern, sites), sites)
            raise WrongUsage(f"no site matches {pattern!r}; {guess}")
        layers_of |= zip(matching, map(_layer_of, matching), strict=True)
    if layers is None:
        return list(layers_of)
    known = sorted(filter(is_integer, {*layers_of.values()}))
    for layer in layers:
        if layer not in known:
            raise WrongUsage(f"no site is in layer {layer}; recorded layers: {known or 'none'}.")
    return [site for site, layer in layers_of.items() if layer in layers]


def _layer_of(site: str) -> int | None:
    """Return the number of a site's layer; None where it is in no layer."""
    place = re.search(r"(?:^|\.)layers\.(\d+)\.", site)
    return None if place is None else int(place[1])


@dataclass(frozen=True)
class SiteSelection:
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
        mask, gradient = passed.mask, passed.gradient
        return replace(
            passed,
            held=self.held(passed.held),
            mask=None if mask is None else self.mask(mask),
            gradient=None if gradient is None else self.tensor(gradient),
        )

    def held(self, held: Any) -> Any:
        """Select from the held form of a value."""
        if isinstance(held, KeptCall):
            query, keys = self.tensor(held.query), self.tensor(held.keys)
            return held._replace(query=query, key=keys, mask=self.mask(held.mask))
        if isinstance(held, KeptMask):
            return self.mask(held)
        if isinstance(held, TensorPrefix):
            return self.tensor(held.tensor())
        if isinstance(held, tuple):  # what `reduce` made: fields that have a batch and heads
            fields = (self.tensor(field) if field.dim() > 2 else field for field in held)
            return type(held)(*fields)
        return self.tensor(held)

    def mask(self, kept: KeptMask) -> KeptMask:
        """Select from a mask along the axes that are not shared."""
        if not isinstance(kept.mask, Tensor) or kept.mask.dim() < 3:
            return kept
        mask = kept.with_heads()
        selection = self
        if mask.shape[1] == 1:
            selection = replace(selection, heads=None)
        if mask.shape[0] == 1:
            selection = replace(selection, rows=None)
        picked = selection.tensor(mask)
        if kept.mask.dim() == 3:
            picked = picked[0]
        return kept._replace(mask=picked)

    def tensor(self, tensor: Tensor) -> Tensor:
        """Select from (batch, ...) or (batch, head, ...); a key that heads share is repeated for
        each of them."""
        if self.heads is not None and self.num_heads is not None:
            shared = [head * tensor.shape[1] // self.num_heads for head in self.heads]
            tensor = self._taken(tensor, 1, shared)
        if self.rows is not None:
            check_all("row", self.rows, tensor.shape[0], self.site)
            tensor = self._taken(tensor, 0, self.rows)
        return tensor

    def _taken(self, tensor: Tensor, axis: int, numbers: list[int]) -> Tensor:
        one = tensor.nbytes // max(1, tensor.shape[axis])
        self.budget.allow(f"a part of {self.site}", one * len(numbers))
        return tensor.index_select(axis, torch.tensor(numbers, device=tensor.device))


def check_all(name: str, numbers: list[int], size: int, site: str) -> None:
    """Raise unless all are numbers of a site's heads or rows."""
    for number in numbers:
        check_index(f"a {name} of {site}", number, size)


def rows_read(read: StackRead, rows: list[int]) -> StackRead:
    """Return some rows of a read."""
    rows = [row for row in rows if row < read.shape[0]]
    by_row = (read.ids, read.real, read.places)
    ids, real, places = (None if kept is None else kept[rows] for kept in by_row)
    picked = replace(read, ids=ids, real=real, places=places, shape=(len(rows), read.shape[1]))
    if read.rows is None:
        return picked
    before = list(map(read.row_before, rows))
    if not set(before) <= set(rows):
        return replace(picked, before=None, rows=None)  # the rows that they continue were left out
    return replace(picked, rows=torch.tensor(list(map(rows.index, before))))
