"""The maps that a view shows, as fine as their budget allows: weights, facts and thumbnails.

To stay within a budget, the codes of the wire form get coarser first, then the maps are pooled; the
view says so.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnlab.core.store import JsonObject
from attnlab.draw.attention.facts import FACTS, HeadFacts
from attnlab.draw.attention.pattern import Pattern, Rows, site_words
from attnlab.draw.attention.pooled_maps import join_squares, pool_head, pooled_length
from attnlab.draw.attention.summary_maps import SummaryMaps
from attnlab.draw.wire import LEVELS, Packed, pack
from attnlab.errors import WrongUsage
from attnlab.look.heads import head_at, layer_name

_LEVELS = (LEVELS, 63)
_POOLED_LEVELS = 127
_THUMB = 28  # cells of a thumbnail's longer side
_TEXT = 4 / 3  # characters of base64 per byte
_FORM_SIZE = 150  # characters of an array beside its content
_MIN_BITS = 1.5  # of a weight in practice; coarser codes are not tried
_RESTS = 0.5  # of a head's weight on the first key: it rests there

Drawable = Pattern | SummaryMaps
_HeadMaps = tuple[list[Rows], Mapping[str, float | None]]  # NaN where masked; and the head's facts


class _TooLarge(Exception):
    """The maps exceed their budget, so coarser ones have to be tried."""


def fit_maps(
    patterns: Sequence[Drawable],
    others: Sequence[Drawable] = (),
    *,
    names: Sequence[str] = ("before", "after"),
    max_bytes: int,
) -> JsonObject:
    """Return the maps of a recording, or of two recordings to compare, as `view.js` shows them.

    Args:
        patterns: the patterns of the first recording.
        others: those of the second, of the same sites and shapes, or none.
        names: names of the two recordings.
        max_bytes: the largest size of all maps as text.

    Raises:
        WrongUsage: there is nothing to show, a weight is negative or not finite, the second
            recording does not fit the first, or not even the coarsest maps fit the budget.
    """
    _check_alike(patterns, others)
    if len(names) != 2:
        raise WrongUsage(f"two recordings have two names; got {len(names)}.")
    variants, titles = [list(patterns)], ["weights"]
    if others:
        variants, titles = [list(patterns), list(others)], list(names)
    for levels, side in _ladder(variants, max_bytes):
        try:
            return {**_Packer(levels, side, max_bytes).maps(variants), "names": titles}
        except _TooLarge:
            continue
    heads = sum(pattern.shape[0] for pattern in itertools.chain(*variants))
    raise WrongUsage(
        f"{heads:,} heads do not fit into {max_bytes:,} bytes, not even pooled; give a larger "
        "max_bytes, or show fewer layers."
    )


def telling_head(maps: JsonObject) -> tuple[str, int, str] | None:
    """Return the head that tells most, by its site and number, and why, in words.

    Of two recordings it is the head whose weights change most; of one that with the lowest entropy,
    over that of equal weights, among the heads with less than half of their weight on the first
    key. None where there is no choice, or no such head.
    """
    ranked = []
    for group in maps["groups"]:
        equal = math.log(max(len(group["key_tokens"]), 2))
        for layer in group["layers"]:
            for number, head in enumerate(layer["heads"]):
                facts, place = head["facts"][0], (layer["site"], number)
                entropy, first = facts.get("entropy"), facts.get("first")
                if maps["variants"] == 2:
                    ranked.append((-head["change"], place))
                elif None not in (entropy, first) and first < _RESTS:
                    ranked.append((entropy / equal, place))
    if len(ranked) < 2 or maps["change"] == 0.0:
        return None
    why = "the lowest entropy of the heads that do not rest on the first key"
    if maps["variants"] == 2:
        why = "its weights change most"
    _, (site, number) = min(ranked, key=lambda entry: entry[0])
    return site, number, why


def _check_alike(patterns: Sequence[Drawable], others: Sequence[Drawable]) -> None:
    if not patterns:
        raise WrongUsage("nothing to show: expected one pattern or more, got none.")
    if len({isinstance(pattern, SummaryMaps) for pattern in [*patterns, *others]}) > 1:
        raise WrongUsage("weights and summaries cannot be shown on one page; record either.")
    if others:
        _check_comparable(patterns, others)


def _check_comparable(patterns: Sequence[Drawable], others: Sequence[Drawable]) -> None:
    sites, other_sites = ([pattern.site for pattern in side] for side in (patterns, others))
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


def _cells(pattern: Drawable, side: int) -> tuple[int, int]:
    """Return how many queries and keys a cell holds."""
    if isinstance(pattern, SummaryMaps):
        queries, keys = pattern.cells
        return queries * side, keys * side
    return side, side


def _groups(patterns: Sequence[Drawable]) -> list[list[int]]:
    """Group the layers of one kind of attention over the same tokens."""
    groups: dict[Any, list[int]] = {}
    for index, pattern in enumerate(patterns):
        tokens = pattern.query_tokens, pattern.key_tokens
        key = (site_words(pattern.site)[0], *tokens, _cells(pattern, 1))
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def _both(tokens: Sequence[tuple[str, ...]]) -> list[str]:
    """Name each place by its token, or by the tokens of both recordings if they differ."""
    return [" / ".join(dict.fromkeys(names)) for names in zip(*tokens, strict=True)]


class _Packer:
    """Packs maps, and stops as soon as they exceed the budget."""

    def __init__(self, levels: int, side: int, max_bytes: int) -> None:
        self._levels, self._side, self._left = levels, side, max_bytes
        self._change = 0.0  # the largest difference of all maps

    def maps(self, variants: Sequence[Sequence[Drawable]]) -> JsonObject:
        """Pack all maps, in groups of layers."""
        is_whole = self._side == 1 and isinstance(variants[0][0], Pattern)
        groups = []
        for members in _groups(variants[0]):
            layers = [[variant[index] for variant in variants] for index in members]
            groups.append(self._group(layers))
        return {
            "levels": self._levels,
            "maps": ["weights"] if is_whole else ["mean", "largest"],
            "variants": len(variants),
            "change": self._change if len(variants) == 2 else None,
            "fact_words": FACTS,
            "groups": groups,
        }

    def _group(self, layers: Sequence[Sequence[Drawable]]) -> JsonObject:
        pattern = layers[0][0]
        cells = _cells(pattern, self._side)
        rows, columns = map(pooled_length, pattern.shape[1:], cells)
        thumb = pooled_length(max(rows, columns), _THUMB)
        return {
            "name": site_words(pattern.site)[0],
            "query_tokens": _both([variant.query_tokens for variant in layers[0]]),
            "key_tokens": _both([variant.key_tokens for variant in layers[0]]),
            "cells": cells,
            "rows": rows,
            "columns": columns,
            "thumb": thumb,
            "layers": [self._layer(variants, thumb) for variants in layers],
        }

    def _layer(self, variants: Sequence[Drawable], thumb: int) -> JsonObject:
        heads = []
        for head in range(variants[0].shape[0]):
            read = [self._read(variant, head) for variant in variants]
            maps, facts = zip(*read, strict=True)
            thumbs = [join_squares(np.fmax, kinds[-1], thumb) for kinds in maps]
            shown: JsonObject = {"facts": facts}
            if len(variants) == 2:
                thumb_of_change, shown["change"] = self._change_of(maps[0], maps[1], thumb)
                thumbs.append(thumb_of_change)
            shown["maps"] = [[self._packed(values) for values in kinds] for kinds in maps]
            heads.append({**shown, "thumbs": list(map(self._packed, thumbs))})
        site = variants[0].site
        return {
            "site": site,
            "layer": site_words(site)[1],
            "name": layer_name(site.removesuffix("weights").rstrip(".")),
            "heads": heads,
        }

    def _read(self, pattern: Drawable, head: int) -> _HeadMaps:
        if isinstance(pattern, SummaryMaps):
            pooled = pattern.pooled(head, self._side)
            return [pooled.mean, pooled.largest], pattern.facts[head]
        facts = HeadFacts(pattern)
        if self._side == 1:
            values = pattern.whole(head)
            maps = [values]
            for first, last in pattern.bands():
                facts.add(np.nan_to_num(values[first:last]), first)
        else:
            pooled = pool_head(pattern, head, self._side, facts)
            maps = [pooled.mean, pooled.largest]
        if facts.least < 0:
            raise WrongUsage(
                f"head {head_at(pattern.site, head)} has negative weights; the view shows weights "
                "of 0 and more. Draw them with draw_head instead."
            )
        return maps, facts.means()

    def _change_of(
        self, before: Sequence[Rows], after: Sequence[Rows], side: int
    ) -> tuple[Rows, float]:
        """Return the thumbnail of a head's changes, and the largest change, which is noted too."""
        changes, largest = [], 0.0
        for one, other in zip(before, after, strict=True):
            change = np.nan_to_num(other) - np.nan_to_num(one)
            largest = max(largest, float(np.abs(change).max()))
            changes.append(np.where(np.isnan(one) & np.isnan(other), np.float32(np.nan), change))
        most, least = (join_squares(join, changes[0], side) for join in (np.fmax, np.fmin))
        thumb: Rows = np.where(most >= -least, most, least)
        self._change = max(self._change, largest)
        return thumb, largest

    def _packed(self, values: Rows) -> Packed:
        packed = pack(values, self._levels)
        self._left -= _text_size(packed)
        if self._left < 0:
            raise _TooLarge
        return packed


def _text_size(packed: Packed) -> int:
    return _FORM_SIZE + len(packed["content"])
