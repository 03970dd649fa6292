"""Measuring: plain passes, sweeps and metrics put together, over as many inputs at a time as
fit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnlab.edits.effects.baseline import Baseline, run_plain
from attnlab.edits.effects.metrics import Metric, make_ready
from attnlab.edits.effects.sweep import Case, How, sweep
from attnlab.edits.where import site_of
from attnlab.errors import WrongUsage
from attnlab.look.heads import head_name
from attnlab.look.inputs import Call
from attnlab.sites import matches, site_names


@dataclass(frozen=True)
class Place:
    """A part or site of the model by its path, with one head, position or edge if given.

    query alone is a position; query and key are an edge.
    """

    path: str
    head: int | None = None
    query: int | None = None
    key: int | None = None

    @property
    def site(self) -> str:
        """The site where the place is changed: a head's output, or a feed-forward part's."""
        if self.head is not None:
            return site_of(self.path, "heads")
        return f"{self.path}.output" if self.path.endswith("feed_forward") else self.path

    @property
    def cell(self) -> tuple[int, ...]:
        """The place in a table of its part: of an edge (query, key), else head and position."""
        numbers = (self.head, self.query) if self.key is None else (self.query, self.key)
        return tuple(each for each in numbers if each is not None) or (0,)

    def __str__(self) -> str:
        text = self.path or "attention"
        if self.head is not None:
            text = f"head {head_name(self.path, self.head)}"
        if self.key is not None:
            return f"{text}, query {self.query} to key {self.key}"
        return text if self.query is None else f"{text}, position {self.query}"


def table_of(places: Sequence[Place], values: Tensor) -> Tensor:
    """Lay values out by part and cell, (part, ...): means of several; NaN where there is none."""
    parts = list(dict.fromkeys(place.path for place in places))
    size = [1 + max(column) for column in zip(*(place.cell for place in places), strict=True)]
    sums = torch.zeros(len(parts), *(size or [0]), dtype=values.dtype)
    counts = torch.zeros_like(sums)
    for place, value in zip(places, values, strict=True):
        index = (parts.index(place.path), *place.cell)
        sums[index] += value
        counts[index] += 1
    return torch.where(counts > 0, sums / counts, torch.nan)


@dataclass(frozen=True)
class Measured:
    """The metric of each case: before (row,) and after (case, row)."""

    places: list[Place]
    metric: str
    before: Tensor
    after: Tensor


def measure(
    model: nn.Module,
    call: Call,
    make_cases: Callable[[Baseline], list[Case]],
    metric: Metric,
    *,
    sites: Sequence[str] = (),
    keeps_calls: bool = False,
    how: How,
) -> Measured:
    """Run plain passes and sweeps over as many rows at a time as fit."""
    portions = portions_that_fit(
        model, call, how.budget, metric, sites=sites, keeps_calls=keeps_calls
    )
    before, after = [], []
    for number, (span, part) in enumerate(portions):
        base = run_plain(model, part, sites=sites, keeps_calls=keeps_calls)
        own = make_ready(metric.rows(span), base.logits, part.real)
        cases = make_cases(base)
        if not cases:
            raise WrongUsage("there is nothing to measure: every case was left out.")
        before.append(own(base.logits, base.logits)[0].cpu())
        base.keep_last(own.num_last)
        after.append(sweep(model, base, cases, own, how=how.portion(number, len(portions))))
    places = [case.place for case in cases]
    return Measured(places, own.name, torch.cat(before), torch.cat(after, 1))


def portions_that_fit(
    model: nn.Module,
    call: Call,
    budget: int,
    metric: Metric | None = None,
    *,
    sites: Sequence[str] = (),
    keeps_calls: bool = False,
) -> list[tuple[slice, Call]]:
    """Split the rows so that each plain pass keeps about a quarter of the budget.

    A user's own metric is a function of all rows, so these are then not parted.
    """
    if call.num_rows <= 2 or (metric is not None and callable(metric.measure)):
        return call.portions(call.num_rows)
    probe = run_plain(model, call.rows(slice(0, 1)), sites=sites, keeps_calls=keeps_calls)
    each = max(1, probe.nbytes + probe.row_bytes(None))  # 0 for inputs without a position
    return call.portions(max(2, min(call.num_rows, budget // 4 // each)))


def parts_with(model: nn.Module, site: str, patterns: str | Sequence[str]) -> list[str]:
    """List the parts that have a site and match a pattern, in the model's order."""
    ends = [name for name in site_names(model) if name == site or name.endswith("." + site)]
    if site == "output":
        ends = [name for name in ends if not name.endswith("feed_forward.output")]
    if not ends:
        raise WrongUsage(f"no part of {type(model).__name__} has the site {site!r}.")
    if isinstance(patterns, str):
        patterns = [patterns]
    found: set[str] = set()
    for pattern in patterns:
        found.update(ends if pattern == "*" else matches(f"{pattern}.{site}", model))
    return [name.removesuffix(site).rstrip(".") for name in ends if name in found]
