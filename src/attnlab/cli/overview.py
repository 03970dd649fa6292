"""Many heads in one table: where each mostly attends, by layer and head."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from attnlab.cli.terminal import output

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["habits", "mostly", "show_overview"]

_LETTERS = {"first": "f", "last": "l", "previous": "p", "self": "s", "next": "n"}
_LEAST = 0.3  # share of a head's weight on one position that the table names
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")


def habits(weights: "Tensor", *, is_own: bool) -> dict[str, float]:
    """Return a head's mean weight on the first and last key and, in self-attention, near the query.

    weights (query, key). Only queries for which these positions differ are counted, all if there
    are none.
    """
    queries, keys = weights.shape
    if not is_own or queries != keys:
        return {"first": float(weights[:, 0].mean()), "last": float(weights[:, -1].mean())}
    inner = weights[2:] if queries > 2 else weights
    first = queries - inner.shape[0]
    found = {"first": float(inner[:, 0].mean()), "self": float(inner.diagonal(first).mean())}
    previous = weights.diagonal(-1)[max(first - 1, 0) :]
    found["previous"] = float(previous.mean()) if queries > 1 else 0.0
    if queries > 3 and bool((weights.triu(1) > 0).any()):  # no causal mask
        found["last"] = float(weights[2:-2, -1].mean()) if queries > 4 else 0.0
        found["next"] = float(weights.diagonal(1)[2:-1].mean()) if queries > 4 else 0.0
    return found


def show_overview(facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a table for each kind of attention: a row for each layer, a cell for each head."""
    console = output()
    groups: dict[str, dict[str, Sequence[Mapping[str, Any]]]] = {}
    for site, each in facts.items():
        kind = _LAYER.sub(lambda found: found[0].replace(found[1], "*"), site)
        groups.setdefault(kind, {})[site] = each["heads"]
    for name, sites in groups.items():
        cells = [[_cell(head) for head in heads] for heads in sites.values()]
        labels = [_layer_of(site) for site in sites]
        most = max(map(len, cells))
        room = max(1, (console.width - max(map(len, labels)) - 4) // 4)
        for first in range(0, most, room):
            table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
            table.add_column("layer")
            for number in range(first, min(first + room, most)):
                table.add_column(str(number), justify="right", min_width=3, no_wrap=True)
            for label, row in zip(labels, cells, strict=True):
                table.add_row(Text(label, style="dim"), *row[first : first + room])
            console.print(Text(name if first == 0 else f"{name}, heads {first} on", style="bold"))
            console.print(table)
    named = {head["mostly"] for each in facts.values() for head in each["heads"]}
    words = [f"{letter} {place}" for place, letter in _LETTERS.items() if place in named]
    legend = "~7: as spread as a uniform weight on 7 tokens; means over queries"
    if words:
        legend = f"f67: 67 % of a head's weight on one token ({', '.join(words)} token); {legend}"
    console.print(Text(legend, style="dim"))


def mostly(places: Mapping[str, float]) -> str | None:
    """Name the position with most of a head's weight, if that is at least 30 %."""
    place = max(places, key=lambda each: places[each])
    return place if places[place] >= _LEAST else None


def _cell(head: Mapping[str, Any]) -> Text:
    place = head["mostly"]
    if place is None:
        return Text(f"~{math.exp(head['entropy']):.0f}", style="dim")
    share = head["places"][place]
    percent = min(round(100 * share), 99)
    return Text(f"{_LETTERS[place]}{percent:02d}", style="bold" if share >= 0.6 else "")


def _layer_of(site: str) -> str:
    found = _LAYER.search(site)
    return found[1] if found else site.removesuffix(".weights") or "0"
