"""Measuring: plain passes, sweeps and metrics put together, over as many inputs at a time as
fit."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.edits.effects.baseline import Baseline, row_bytes, run_plain
from attnlab.edits.effects.metrics import Metric, make_ready
from attnlab.edits.effects.sweep import USUAL, Case, How, in_portion, sweep
from attnlab.errors import WrongUsage
from attnlab.look.heads import head_name
from attnlab.look.inputs import Call
from attnlab.sites import matches, site_names

__all__ = [
    "Measured",
    "Place",
    "checked_heads",
    "measure",
    "parts_with",
    "portions_that_fit",
    "site_of",
]


class Place(NamedTuple):
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

    def __str__(self) -> str:
        words = (
            [self.path or "attention"]
            if self.head is None
            else [f"head {head_name(self.path, self.head)}"]
        )
        if self.query is not None:
            words.append(
                f"position {self.query}"
                if self.key is None
                else f"query {self.query} to key {self.key}"
            )
        return ", ".join(words)


class Measured(NamedTuple):
    """The metric of each case: before (row,) and after (case, row)."""

    names: list[Any]
    metric: str
    before: Tensor
    after: Tensor


def measure(
    model: nn.Module,
    call: Call,
    make_cases: Callable[[Baseline], "tuple[list[Any], list[Case]]"],
    metric: Metric,
    *,
    sites: Sequence[str] = (),
    keeps_calls: bool = False,
    how: How = USUAL,
) -> Measured:
    """Run plain passes and sweeps over as many rows at a time as fit.

    A person's own metric is a function of all rows, so these are then not parted.
    """
    portions = [(slice(0, call.num_rows), call)]
    if not callable(metric.measure):
        portions = portions_that_fit(model, call, how.budget, sites=sites, keeps_calls=keeps_calls)
    names: list[Any] = []
    before, after, own = [], [], None
    for number, (span, part) in enumerate(portions):
        base = run_plain(model, part, sites=sites, keeps_calls=keeps_calls)
        own = make_ready(metric.rows(span), base.logits, part.real)
        names, cases = make_cases(base)
        if not cases:
            raise WrongUsage(
                "there is nothing to measure; every case was left out by what was chosen."
            )
        before.append(own(base.logits, base.logits)[0].cpu())
        base.keep_last(own.num_last)
        after.append(sweep(model, base, cases, own, how=in_portion(how, number, len(portions))))
    assert own is not None
    return Measured(names, own.name, torch.cat(before), torch.cat(after, 1))


def portions_that_fit(
    model: nn.Module,
    call: Call,
    budget: int,
    *,
    sites: Sequence[str] = (),
    keeps_calls: bool = False,
) -> list[tuple[slice, Call]]:
    """Split the rows so that each plain pass keeps about a quarter of the budget."""
    if call.num_rows <= 2:
        return call.portions(call.num_rows)
    probe = run_plain(model, call.rows(slice(0, 1)), sites=sites, keeps_calls=keeps_calls)
    each = max(1, probe.nbytes + row_bytes(probe, None))  # 0 for inputs without a position
    return call.portions(max(2, min(call.num_rows, budget // 4 // each)))


def parts_with(model: nn.Module, site: str, patterns: str | Sequence[str]) -> list[str]:
    """List the parts that have a site and match a pattern, in the model's order."""
    ends = [name for name in site_names(model) if name == site or name.endswith("." + site)]
    if site == "output":
        ends = [name for name in ends if not name.endswith("feed_forward.output")]
    if not ends:
        raise WrongUsage(f"no part of {type(model).__name__} has the site {site!r}.")
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    found: set[str] = set()
    for pattern in wanted:
        found.update(ends if pattern == "*" else matches(f"{pattern}.{site}", model))
    return [name[: -len(site)].rstrip(".") for name in ends if name in found]


def site_of(part: str, own: str) -> str:
    """Join a part's path and a site's name; the path of a single-part model is empty."""
    return f"{part}.{own}" if part else own


def checked_heads(heads: Sequence[int] | None, size: int, part: str) -> list[int]:
    """Return the numbers of heads, each once, all if none are named; there are `size` in this
    part."""
    if heads is None:
        return list(range(size))
    for head in heads:
        if isinstance(head, bool) or not isinstance(head, int) or not 0 <= head < size:
            raise WrongUsage(
                f"{part or 'this attention'} has the heads 0 to {size - 1}; got {head!r}."
            )
    return list(dict.fromkeys(heads))
