"""The wire form: patterns as a manifest of JSON values and tiles of compressed bytes.

The view in `modules/` needs only manifest and tiles, from a page, a server or a widget. A tile is
zlib-compressed: the largest weight of every row of a band (float32, little-endian), then the codes
of `quantize` row by row, without masked cells. To stay within a budget, codes get coarser first,
then the maps are pooled, and the manifest says so.
"""

import hashlib
import itertools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from attnlab.core.store import JsonObject
from attnlab.draw.attention.facts import FACTS, HeadFacts
from attnlab.draw.attention.pattern import CAUSAL, Hidden, Pattern, Rows, site_words
from attnlab.draw.attention.pooled_maps import join_squares, pool_head, pooled_length
from attnlab.draw.attention.summary_maps import SummaryMaps
from attnlab.draw.view.quantize import quantize
from attnlab.errors import WrongUsage
from attnlab.look.heads import head_at, layer_name

_LEVELS = (255, 127, 63, 31)
_POOLED_LEVELS = 127
_TILE_CELLS = 1 << 20
_THUMB = 28  # cells of a thumbnail's longer side
_TEXT = 4 / 3  # characters of base64 per byte
_SAMPLED = 8  # heads from which the total size is estimated
_MIN_BITS = 1.5  # of a weight in practice; coarser codes are not tried


Drawable = Pattern | SummaryMaps
_Read = tuple[list[Rows], Hidden, Mapping[str, float | None]]  # maps, mask, and facts of a head


@dataclass
class Packed:
    """The manifest and the tiles of a view."""

    manifest: JsonObject
    tiles: dict[str, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The size of all tiles as base64 text, in bytes."""
        return sum(map(_text_size, self.tiles.values()))


class _TooLarge(Exception):
    """The tiles exceed their budget, so coarser ones have to be tried."""


def pack(
    patterns: Sequence[Drawable],
    others: Sequence[Drawable] = (),
    *,
    names: Sequence[str] = ("before", "after"),
    max_bytes: int,
) -> Packed:
    """Pack the patterns of a recording, or of two recordings to compare.

    Args:
        patterns: the patterns of the first recording.
        others: those of the second, of the same sites and shapes, or none.
        names: names of the two recordings.
        max_bytes: the largest size of the tiles as text.

    Raises:
        WrongUsage: there is nothing to show, a weight is negative or not finite, the second
            recording does not fit the first, or not even the coarsest picture fits the budget.
    """
    _check_alike(patterns, others)
    if len(names) != 2:
        raise WrongUsage(f"two recordings have two names; got {len(names)}.")
    variants, titles = [list(patterns)], ["weights"]
    if others:
        variants, titles = [list(patterns), list(others)], list(names)
    for levels, side in _ladder(variants, max_bytes):
        if side == 1 and _estimate(variants, levels) > 1.05 * max_bytes:
            continue
        try:
            packed = _packed(variants, levels, side, max_bytes)
            packed.manifest["names"] = titles
            return packed
        except _TooLarge:
            continue
    heads = sum(pattern.shape[0] for pattern in itertools.chain(*variants))
    raise WrongUsage(
        f"{heads:,} heads do not fit into {max_bytes:,} bytes, not even pooled; give a larger "
        "max_bytes, or show fewer layers."
    )


def _check_alike(patterns: Sequence[Drawable], others: Sequence[Drawable]) -> None:
    if not patterns:
        raise WrongUsage("nothing to show: expected one pattern or more, got none.")
    if len({isinstance(pattern, SummaryMaps) for pattern in [*patterns, *others]}) > 1:
        raise WrongUsage("weights and summaries cannot be shown on one page; record either.")
    if others:
        _check_comparable(patterns, others)


def _check_comparable(patterns: Sequence[Drawable], others: Sequence[Drawable]) -> None:
    sites, other_sites = (
        [pattern.site for pattern in patterns],
        [pattern.site for pattern in others],
    )
    if sites != other_sites:
        missing = sorted(set(sites) ^ set(other_sites))
        raise WrongUsage(
            "two recordings are compared site by site, so both need the same sites in the same "
            f"order; only one has: {', '.join(missing) or 'all, but in another order'}."
        )
    for one, other in zip(patterns, others, strict=True):
        if one.shape != other.shape or _cells(one, 1) != _cells(other, 1):
            raise WrongUsage(
                f"{one.site!r} is {one.shape} in the first recording and {other.shape} "
                "in the second; only maps of one shape can be compared."
            )


def _ladder(variants: Sequence[Sequence[Drawable]], max_bytes: int) -> list[tuple[int, int]]:
    """Return the (levels, side of squares) to try, finest first."""
    whole = [(levels, 1) for levels in _LEVELS]
    cells, longest = 0.0, 0
    for pattern in itertools.chain(*variants):
        if isinstance(pattern, SummaryMaps):
            return [*whole, *((_POOLED_LEVELS, side) for side in range(2, 65))]
        heads, queries, keys = pattern.shape
        share = 1.0 if pattern.blocked is None else 0.5
        cells += share * heads * queries * keys
        longest = max(longest, queries, keys)
    ladder = []
    if cells * _MIN_BITS / 8 * _TEXT <= max_bytes:
        ladder += whole
    side = max(2, int((2 * cells * _TEXT / max_bytes) ** 0.5))
    while side < longest:
        ladder.append((_POOLED_LEVELS, side))
        side = max(side + 1, side * 9 // 8)
    return [*ladder, (_POOLED_LEVELS, max(2, longest))]


def _estimate(variants: Sequence[Sequence[Drawable]], levels: int) -> float:
    """Estimate the size of all tiles as text from a few heads."""
    heads, all_cells = [], 0
    for pattern in itertools.chain(*variants):
        if isinstance(pattern, SummaryMaps):
            return 0.0
        heads += [(pattern, head) for head in range(pattern.num_heads)]
        all_cells += prod(pattern.shape)
    # Steps of the golden ratio sample layers and heads evenly.
    places = {int(len(heads) * (number * 0.618034 % 1)) for number in range(_SAMPLED)}
    size = cells = 0
    for place in sorted(places):
        pattern, head = heads[place]
        values, mask = _split(np.abs(pattern.whole(head)))
        size += len(_compressed(_tile(values, mask, levels)))
        cells += values.size
    return _TEXT * size / cells * all_cells


def _cells(pattern: Drawable, side: int) -> tuple[int, int]:
    """Return how many queries and keys a cell holds."""
    if isinstance(pattern, SummaryMaps):
        queries, keys = pattern.cells
        return queries * side, keys * side
    return side, side


def _packed(
    variants: Sequence[Sequence[Drawable]], levels: int, side: int, max_bytes: int
) -> Packed:
    is_whole = side == 1 and isinstance(variants[0][0], Pattern)
    maps = ["weights"] if is_whole else ["mean", "largest"]
    packed = Packed({"levels": levels, "maps": maps, "variants": len(variants)})
    packed.manifest |= {"fact_words": FACTS, "groups": []}
    packer = _Packer(packed, side, max_bytes)
    for number, members in enumerate(_groups(variants[0])):
        group = _described([variant[members[0]] for variant in variants], side)
        packed.manifest["groups"].append(group)
        for place, index in enumerate(members):
            layer = [variant[index] for variant in variants]
            group["layers"].append(packer.layer(f"{number}.{place}", layer, group["thumb"]["side"]))
        packer.close_group(number)
    return packed


def _described(patterns: Sequence[Drawable], side: int) -> JsonObject:
    """Describe a group by the first of its layers."""
    pattern = patterns[0]
    cells = _cells(pattern, side)
    rows, columns = map(pooled_length, pattern.shape[1:], cells)
    thumb = pooled_length(max(rows, columns), _THUMB)
    return {
        "name": site_words(pattern.site)[0],
        "query_tokens": _both([pattern.query_tokens for pattern in patterns]),
        "key_tokens": _both([pattern.key_tokens for pattern in patterns]),
        "cells": cells,
        "rows": rows,
        "columns": columns,
        "band_rows": _band_height(columns),
        "thumb": {
            "side": thumb,
            "rows": pooled_length(rows, thumb),
            "columns": pooled_length(columns, thumb),
        },
        "layers": [],
    }


def _groups(patterns: Sequence[Drawable]) -> list[list[int]]:
    """Group the layers of one kind of attention over the same tokens."""
    groups: dict[Any, list[int]] = {}
    for index, pattern in enumerate(patterns):
        key = (
            site_words(pattern.site)[0],
            pattern.query_tokens,
            pattern.key_tokens,
            _cells(pattern, 1),
        )
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def _both(tokens: Sequence[tuple[str, ...]]) -> list[str]:
    """Name each place by its token, or by the tokens of both recordings if they differ."""
    return [" / ".join(dict.fromkeys(names)) for names in zip(*tokens, strict=True)]


class _Packer:
    """Adds tiles, and stops as soon as they exceed the budget."""

    def __init__(self, packed: Packed, side: int, max_bytes: int) -> None:
        self._packed, self._side, self._left = packed, side, max_bytes
        self._levels = packed.manifest["levels"]
        self._masks: dict[bytes, int] = {}
        if packed.manifest["variants"] == 2:
            packed.manifest["change"] = 0.0  # the largest difference of all maps
        self._thumbs: list[bytes] = []  # by layer and head: each variant, then their difference

    def layer(self, name: str, variants: Sequence[Drawable], thumb_side: int) -> JsonObject:
        """Pack one layer of a group, and return its description."""
        facts: list[list[Any]] = [[] for _ in variants]
        masks: list[list[Any]] = [[] for _ in variants]
        for head in range(variants[0].shape[0]):
            read = [self._read(variant, head) for variant in variants]
            for variant, (maps, mask, means) in enumerate(read):
                facts[variant].append(means)
                masks[variant].append(self._mask(mask))
                for kind, values in enumerate(maps):
                    self._bands(f"{variant}.{name}.{head}.{kind}", values, mask)
                self._thumbs.append(_thumb(maps[-1], mask, thumb_side))
            if len(read) == 2:
                self._add_change(read[0], read[1], thumb_side)
        return {
            "site": variants[0].site,
            "layer": site_words(variants[0].site)[1],
            "name": layer_name(variants[0].site.removesuffix("weights").rstrip(".")),
            "heads": variants[0].shape[0],
            "facts": facts,
            "masks": masks,
        }

    def _add_change(self, one: _Read, other: _Read, thumb_side: int) -> None:
        """Note the largest change of a head, and keep the thumbnail of its changes."""
        (before, hidden, _), (after, hidden_too, _) = one, other
        both: Hidden = None
        if hidden is not None and hidden_too is not None:
            both = hidden & hidden_too
        for first, second in zip(before, after, strict=True):
            change = float(np.abs(second - first).max())
            self._packed.manifest["change"] = max(self._packed.manifest["change"], change)
        self._thumbs.append(_difference_thumb(after[0] - before[0], both, thumb_side))

    def close_group(self, number: int) -> None:
        """Pack the thumbnails of a group: by layer and head, each variant and their difference."""
        self._add(f"thumbs.{number}", b"".join(self._thumbs))
        self._thumbs.clear()

    def _read(self, pattern: Drawable, head: int) -> _Read:
        if isinstance(pattern, SummaryMaps):
            pooled = pattern.pooled(head, self._side)
            return [pooled.mean, pooled.largest], pooled.hidden, pattern.facts[head]
        facts = HeadFacts(pattern)
        if self._side == 1:
            values, mask = _split(pattern.whole(head))
            maps = [values]
            for first, last in pattern.bands():
                facts.add(values[first:last], first)
        else:
            pooled = pool_head(pattern, head, self._side, facts)
            maps, mask = [pooled.mean, pooled.largest], pooled.hidden
        if facts.least < 0:
            raise WrongUsage(
                f"head {head_at(pattern.site, head)} has negative weights; the view shows weights "
                "of 0 and more. Draw them with draw_head instead."
            )
        return maps, mask, facts.means()

    def _bands(self, name: str, values: Rows, mask: Hidden) -> None:
        height = _band_height(values.shape[1])
        for band, first in enumerate(range(0, len(values), height)):
            rows = slice(first, first + height)
            hidden = None if mask is None else mask[rows]
            self._add(f"{name}.{band}", _tile(values[rows], hidden, self._levels))

    def _mask(self, mask: Hidden) -> int | str | None:
        """Return None, "causal", or the number of the tile of a mask, shared by equal masks."""
        if mask is None:
            return None
        rows, columns = mask.shape
        if np.array_equal(mask, np.arange(columns) > np.arange(rows)[:, None]):
            return CAUSAL
        bits = np.packbits(mask, axis=1).tobytes()
        digest = hashlib.sha256(bits).digest()
        if digest not in self._masks:
            self._masks[digest] = len(self._masks)
            self._add(f"mask.{self._masks[digest]}", bits)
        return self._masks[digest]

    def _add(self, name: str, content: bytes) -> None:
        tile = _compressed(content)
        self._left -= _text_size(tile)
        if self._left < 0:
            raise _TooLarge
        self._packed.tiles[name] = tile


def _split(whole: Rows) -> tuple[Rows, Hidden]:
    """Split a head with NaN where masked into weights and mask."""
    hidden = np.isnan(whole)
    values = np.nan_to_num(whole, copy=False)
    if not hidden.any():
        return values, None
    return values, hidden


def _tile(values: Rows, mask: Hidden, levels: int) -> bytes:
    """Encode rows: their largest weights, then the codes of cells that are not masked."""
    largest, codes = quantize(values, levels)
    if mask is not None:
        codes = codes[~mask]
    return bytes(largest.astype("<f4").tobytes() + codes.tobytes())


def _compressed(content: bytes) -> bytes:
    # Runs and frequent codes: a search for repeated strings is slow and finds little more.
    compressor = zlib.compressobj(6, zlib.DEFLATED, 15, 9, zlib.Z_RLE)
    return compressor.compress(content) + compressor.flush()


def _band_height(columns: int) -> int:
    """Return the number of rows in one tile."""
    return max(1, _TILE_CELLS // columns)


def _thumb(values: Rows, mask: Hidden, side: int) -> bytes:
    """Encode the largest weight of each square: its root in 0 … 254, or 255 if all is masked."""
    if mask is not None:
        values = np.where(mask, np.float32(-1), values)
    thumb = join_squares(np.maximum, values, side)
    codes = np.rint(254 * np.sqrt(np.clip(thumb, 0, 1))).astype(np.uint8)
    codes[thumb < 0] = 255
    return bytes(codes.tobytes())


def _difference_thumb(change: Rows, mask: Hidden, side: int) -> bytes:
    """Encode the largest change of each square: its signed root around 127, or 255 if masked."""
    most, least = join_squares(np.maximum, change, side), join_squares(np.minimum, change, side)
    thumb = np.clip(np.where(most >= -least, most, least), -1, 1)
    codes = (127 + np.rint(127 * np.sign(thumb) * np.sqrt(np.abs(thumb)))).astype(np.uint8)
    if mask is not None:
        codes[join_squares(np.logical_and, mask, side)] = 255
    return bytes(codes.tobytes())


def _text_size(tile: bytes) -> int:
    return (len(tile) + 2) // 3 * 4
