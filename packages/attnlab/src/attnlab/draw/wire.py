"""The wire form: how weights and other numbers reach a page, from a file, a server or a kernel.

An array is exact, float32 or float64, or codes of one byte: of a row with the largest size M, a
number w is the integer c nearest to N √(|w| / M), for N levels. Decoded as M (c / N)², it is off by
at most M (c + ¼) / N²: M / N in the worst case, far less for small numbers, and the largest is
exact. Equal steps of the root are about equally visible; those of linear codes are not. If some are
below zero, codes count from 127 up and down. NaN, such as a masked weight, is 255.

`map/wire.js` reads this form.
"""

import base64
import zlib
from dataclasses import replace
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from attnlab.core.store import JsonObject
from attnlab.core.traces import Trace
from attnlab.draw.json_form import to_json
from attnlab.draw.sections import Heatmap
from attnlab.look.heads import head_at

LEVELS = 254
"""The finest codes."""

_SIGNED_LEVELS = 127
_MISSING = 255
_SMALL = 400  # bytes that are not compressed
_KINDS = {"float32": "<f4", "float64": "<f8"}  # little-endian

Codes = NDArray[np.uint8]
Floats = NDArray[np.float32]


class Packed(TypedDict):
    """An array as JSON; codes come after the largest sizes of their rows, float32."""

    shape: list[int]
    kind: str  # "float32", "float64" or "codes"
    levels: int
    zero: int  # the code of zero
    is_deflated: bool
    content: str  # base64


def pack(values: Any, levels: int = 0) -> Packed:
    """Encode an array or a tensor: exactly, or in codes of so many levels."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().float().numpy()
    array = np.asarray(values)
    if levels:
        return _packed_codes(np.asarray(array, np.float32), levels)
    kind = "float64" if array.dtype == np.float64 else "float32"
    return _packed(array.shape, kind, array.astype(_KINDS[kind]).tobytes())


def _packed_codes(array: Floats, levels: int) -> Packed:
    zero = 0
    if bool((array < 0).any()):
        levels, zero = min(levels, _SIGNED_LEVELS), _SIGNED_LEVELS
    rows = array.reshape(-1, array.shape[-1])
    largest, codes = quantize(rows, levels, zero)
    content = largest.astype("<f4").tobytes() + codes.tobytes()
    return _packed(array.shape, "codes", content, levels, zero)


def drawn_trace(trace: Trace) -> JsonObject:
    """Return a trace with its weights in the wire form, as `trace.js` draws it.

    `lengths` are the numbers of keys that are not masked.
    """
    heads = []
    for head in trace.attention:
        lengths = list(map(len, head.rows))
        weights = np.full((len(lengths), max(lengths, default=0)), np.nan, np.float32)
        for row, values in zip(weights, head.rows, strict=True):
            row[: len(values)] = np.array(values, np.float32)
        heads.append(
            {
                "site": head.site,
                "name": head_at(head.site, head.head),
                "key_tokens": head.key_tokens,
                "lengths": lengths,
                "weights": pack(weights),
            }
        )
    form: JsonObject = to_json(replace(trace, attention=[]))
    return form | {"attention": heads}


def drawn_map(heatmap: Heatmap) -> JsonObject:
    """Return a map with its numbers in the wire form; what is not finite is missing."""
    values = np.array(heatmap.rows, np.float64)
    form: JsonObject = to_json(heatmap)
    return form | {"rows": pack(np.where(np.isfinite(values), values, np.nan))}


def quantize(rows: Floats, levels: int, zero: int = 0) -> tuple[Floats, Codes]:
    """Encode rows of numbers or NaN: the largest size of each row, and codes (rows, columns)."""
    is_missing = np.isnan(rows)
    sizes = np.where(is_missing, np.float32(0), np.abs(rows))
    largest = sizes.max(axis=-1, initial=0)
    # Divided, as the inverse of a largest size below 3e-39 is infinite.
    roots = np.sqrt(sizes / np.where(largest > 0, largest, np.float32(1))[:, None])
    codes = np.floor(roots * levels + np.float32(0.5))
    if zero:
        codes = zero + np.copysign(codes, rows)
    codes[is_missing] = _MISSING
    return largest, codes.astype(np.uint8)


def _packed(
    shape: tuple[int, ...], kind: str, content: bytes, levels: int = 0, zero: int = 0
) -> Packed:
    is_deflated = len(content) > _SMALL
    if is_deflated:
        # Runs and frequent codes: a search for repeated strings is slow and finds little more.
        compressor = zlib.compressobj(6, zlib.DEFLATED, 15, 9, zlib.Z_RLE)
        content = compressor.compress(content) + compressor.flush()
    return {
        "shape": list(shape),
        "kind": kind,
        "levels": levels,
        "zero": zero,
        "is_deflated": is_deflated,
        "content": base64.b64encode(content).decode(),
    }
