"""Reading the wire form back, independently of the page: a plain loop, as its description says."""

import base64
import struct
import zlib

import numpy as np


def read_back(packed):
    """Return numbers (rows, columns), NaN where missing, and by how much each may be off."""
    content = base64.b64decode(packed["content"])
    if packed["is_deflated"]:
        content = zlib.decompress(content)
    *leading, columns = packed["shape"]
    rows = int(np.prod(leading))
    if packed["kind"] != "codes":
        letter = {"float32": "f", "float64": "d"}[packed["kind"]]
        numbers = struct.unpack(f"<{rows * columns}{letter}", content)
        return np.array(numbers).reshape(rows, columns), np.zeros((rows, columns))
    levels, zero = packed["levels"], packed["zero"]
    values, bounds = np.full((rows, columns), np.nan), np.full((rows, columns), np.nan)
    largest = struct.unpack(f"<{rows}f", content[: 4 * rows])
    codes = content[4 * rows :]
    assert len(codes) == rows * columns
    for i in range(rows):
        for j in range(columns):
            code = codes[i * columns + j]
            if code != 255:
                size = abs(code - zero)
                sign = -1 if code < zero else 1
                values[i, j] = sign * largest[i] * (size / levels) ** 2
                bounds[i, j] = largest[i] * (size + 0.25) / levels**2
    return values, bounds


def read_head(maps, variant, group, layer, head, kind=0):
    found = maps["groups"][group]["layers"][layer]["heads"][head]
    return read_back(found["maps"][variant][kind])


def check_maps(maps, patterns, variant=0):
    """Every weight of every head comes back in its place within its bound."""
    sites = {pattern.site: pattern for pattern in patterns}
    seen = 0
    for group, told in enumerate(maps["groups"]):
        for layer, place in enumerate(told["layers"]):
            pattern = sites[place["site"]]
            assert (told["rows"], told["columns"]) == (pattern.num_queries, pattern.num_keys)
            for head in range(len(place["heads"])):
                values, bounds = read_head(maps, variant, group, layer, head)
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
