"""Weights as bytes: square-root codes relative to the largest weight of a row, with an error bound.

A row with largest weight M stores M as a float32 and every weight w as the integer c nearest to
N √(w / M), for N levels. Decoded as M (c / N)², a weight is off by at most M (c + ¼) / N²: M / N in
the worst case, far less for small weights, and the largest is exact. Equal steps of the root are
about equally visible; those of linear codes are not.
"""

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def quantize(rows: Floats, levels: int) -> tuple[Floats, Codes]:
    """Encode finite weights >= 0: the largest of each row (rows,), and codes (rows, keys)."""
    largest = rows.max(axis=-1)
    # Divided, as the inverse of a largest weight below 3e-39 is infinite.
    roots = np.sqrt(rows / np.where(largest > 0, largest, np.float32(1))[:, None])
    roots *= levels
    roots += np.float32(0.5)
    return largest, roots.astype(np.uint8)


def dequantize(largest: Floats, codes: Codes, levels: int) -> Floats:
    """Decode weights: (rows,) and (rows, keys) -> (rows, keys)."""
    roots = codes.astype(np.float32) / levels
    return np.asarray(largest[:, None] * roots * roots, np.float32)


def error_bound(largest: float, levels: int) -> float:
    """Return the largest error of a weight in a row: M (N - ¼) / N², as the code N is exact.

    >>> round(error_bound(1.0, 255), 6)
    0.003918
    """
    return largest * (levels - 0.25) / levels**2
