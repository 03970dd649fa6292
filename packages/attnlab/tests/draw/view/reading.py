"""Reading the wire form back, independently of the page: a plain loop, as its description says."""

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlab.draw.attention import Pattern
from attnlab.draw.view.wire import Packed


def inflate(packed: Packed, name: str) -> bytes:
    return zlib.decompress(packed.tiles[name])


def is_masked(packed: Packed, mask: Any, i: int, j: int, columns: int) -> bool:
    if mask is None:
        return False
    if mask == "causal":
        return j > i
    bits = np.unpackbits(np.frombuffer(inflate(packed, f"mask.{mask}"), np.uint8)).reshape(
        -1, -(-columns // 8) * 8
    )
    return bool(bits[i, j])


def read_back(
    packed: Packed, variant: int, group: int, layer: int, head: int, kind: int = 0
) -> tuple[Any, Any]:
    """Return weights (rows, columns), NaN where masked, and by how much each may be off."""
    levels, told = packed.manifest["levels"], packed.manifest["groups"][group]
    rows, columns, height = told["rows"], told["columns"], told["band_rows"]
    mask = told["layers"][layer]["masks"][variant][head]
    values, bounds = np.full((rows, columns), np.nan), np.full((rows, columns), np.nan)
    for band, first in enumerate(range(0, rows, height)):
        content = inflate(packed, f"{variant}.{group}.{layer}.{head}.{kind}.{band}")
        num_rows = min(height, rows - first)
        largest = struct.unpack(f"<{num_rows}f", content[: 4 * num_rows])
        codes = iter(content[4 * num_rows :])
        for i in range(num_rows):
            for j in range(columns):
                if not is_masked(packed, mask, first + i, j, columns):
                    code = next(codes)
                    values[first + i, j] = largest[i] * (code / levels) ** 2
                    bounds[first + i, j] = largest[i] * (code + 0.25) / levels**2
        assert next(codes, None) is None, "a tile holds more than its cells"
    return values, bounds


def check_packed(packed: Packed, patterns: Sequence[Pattern], variant: int = 0) -> None:
    """Every weight of every head comes back in its place within its bound, masked cells as
    masked."""
    sites = {pattern.site: pattern for pattern in patterns}
    seen = 0
    for group, told in enumerate(packed.manifest["groups"]):
        for layer, place in enumerate(told["layers"]):
            pattern = sites[place["site"]]
            assert (told["rows"], told["columns"]) == (pattern.num_queries, pattern.num_keys)
            for head in range(place["heads"]):
                values, bounds = read_back(packed, variant, group, layer, head)
                exact = np.asarray(pattern.weights[head], np.float64)
                shown = ~np.isnan(values)
                assert (exact[~shown] == 0).all(), "a masked cell hides a weight"
                if pattern.blocked is not None:
                    blocked = (
                        np.triu(np.ones(exact.shape, bool), 1)
                        if pattern.blocked == "causal"
                        else pattern.blocked
                    )
                    assert not shown[np.asarray(blocked) & (exact == 0)].any(), (
                        "a masked cell is drawn as zero"
                    )
                off = np.abs(values - exact)[shown]
                assert (off <= bounds[shown] * (1 + 1e-6) + 1e-9).all(), f"off by {off.max()}"
                seen += 1
    assert seen == sum(pattern.num_heads for pattern in patterns)
