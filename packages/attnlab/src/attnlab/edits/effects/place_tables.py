"""Places of a sweep in words and as tables to draw: layer by position, layer by head, query by key.

Rows are the layers of one kind of part; positions are named by their tokens where these are known.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from attnlab.display import NumberTable
from attnlab.edits.effects.sweep import PatchTarget
from attnlab.look.heads import head_name, layer_name
from attnlab.look.position_names import stack_at

Tokens = Mapping[str, Sequence[str]]
"""The names of the positions of each stack, `{"": ("a", "b")}`."""


def place_words(place: Any, tokens: Tokens) -> str:
    """Write a place or path with the tokens at its positions.

    >>> place_words(PatchTarget("layers.0.residual_before", query=1), {"": ("the", "cat")})
    "layers.0.residual_before, position 1 'cat'"
    """
    if not isinstance(place, PatchTarget):
        return str(place)
    query = _token(tokens, stack_at(place.path), place.query)
    if place.key is None:
        position = f", position {place.query}"
        return str(place).replace(position, f"{position}{query}")
    key = _token(tokens, key_stack(place.path), place.key)
    return str(place).replace(f"query {place.query} to", f"query {place.query}{query} to") + key


def key_stack(path: str) -> str:
    """Return the stack whose positions are the keys of an attention."""
    if path.endswith("cross_attention"):
        return "encoder"
    return stack_at(path)


def place_tables(
    places: Sequence[Any], values: Tensor, label: str, tokens: Tokens
) -> list[NumberTable]:
    """Return values (place,) as tables: one for each kind of part, or for each map of edges."""
    paths = [place for place in places if not isinstance(place, PatchTarget)]
    by_sender = len({path.sender for path in paths}) < len({path.receiver for path in paths})
    groups: dict[str, list[tuple[str, str, float]]] = {}
    titles: dict[str, tuple[str, str]] = {}
    for place, value in zip(places, values.tolist(), strict=True):
        title, row, column, axes = _cell(place, tokens, by_sender)
        groups.setdefault(title, []).append((row, column, value))
        titles[title] = axes
    return [_table(title, label, titles[title], cells) for title, cells in groups.items()]


def _cell(place: Any, tokens: Tokens, by_sender: bool) -> tuple[str, str, str, tuple[str, str]]:
    """Return the title of a place's table, its row and column there, and the axes' names.

    Paths have a table for each sender or for each receiver, of which there are fewer.
    """
    if not isinstance(place, PatchTarget):
        near, far = place.sender, place.receiver
        title = f"Paths from {near}"
        if not by_sender:
            near, far, title = far, near, f"Paths to {far}"
        row, column = far.path, "whole"
        if far.head is not None:
            row, column = layer_name(far.path), str(far.head)
        return title, row, column, ("layer", "head")
    kind, layer = _kind_and_layer(place.path)
    if place.key is not None:
        name = layer_name(place.path)
        title = f"Layer {name}" if place.head is None else f"Head {name}.{place.head}"
        row = _name(tokens, stack_at(place.path), place.query)
        return title, row, _name(tokens, key_stack(place.path), place.key), ("query", "key")
    if place.channel is not None:
        return _channel_cell(place, tokens, kind, layer)
    if place.query is not None:
        column = _name(tokens, stack_at(place.path), place.query)
        if place.head is None:
            return kind, layer, column, ("layer", "position")
        return kind, head_name(place.path, place.head), column, ("head", "position")
    if place.head is not None:
        return "Heads", layer_name(place.path), str(place.head), ("layer", "head")
    return kind, layer, "whole", ("layer", "")


def _channel_cell(
    place: PatchTarget, tokens: Tokens, kind: str, layer: str
) -> tuple[str, str, str, tuple[str, str]]:
    """Return what `_cell` does, for a channel: beside its layer or head, or at each position."""
    column, head = str(place.channel), place.head
    if place.query is not None:
        title = place.path if head is None else f"Head {head_name(place.path, head)}"
        row = _name(tokens, stack_at(place.path), place.query)
        return title, row, column, ("position", "channel")
    if head is not None:
        return "Heads", head_name(place.path, head), column, ("head", "channel")
    return kind, layer, column, ("layer", "channel")


def _table(
    title: str, label: str, axes: tuple[str, str], cells: Sequence[tuple[str, str, float]]
) -> NumberTable:
    rows = list(dict.fromkeys(row for row, _, _ in cells))
    columns = list(dict.fromkeys(column for _, column, _ in cells))
    values = [[math.nan] * len(columns) for _ in rows]
    for row, column, value in cells:
        values[rows.index(row)][columns.index(column)] = value
    return NumberTable(title, label, rows, columns, *axes, values)


def _kind_and_layer(path: str) -> tuple[str, str]:
    """Split a path into its kind and the number of its layer.

    >>> _kind_and_layer("layers.3.residual_before")
    ('layers.*.residual_before', '3')
    """
    numbers = re.findall(r"(?:^|\.)(\d+)(?=\.|$)", path)
    return re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", path), ".".join(numbers) or path


def _name(tokens: Tokens, stack: str, position: int | None) -> str:
    """Name a position by its number and its token, which may occur twice: `8:cat`."""
    names, place = tokens.get(stack, ()), position or 0
    name = names[place] if place < len(names) else ""
    return f"{place}:{name}" if name else str(place)


def _token(tokens: Tokens, stack: str, position: int | None) -> str:
    if position is None or position >= len(tokens.get(stack, ())):
        return ""
    name = tokens[stack][position]
    return f" {name!r}" if name else ""
