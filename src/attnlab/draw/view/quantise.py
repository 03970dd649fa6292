"""Weights as bytes: square-root codes, each row against its own largest weight, with a bound on the error.

A row with largest weight M keeps M as a float32 and every weight w as the whole number c nearest to N √(w / M), for N
levels. Read back as M (c / N)², a weight is off by at most M (c + ¼) / N²: M / N at the very worst, far less for small
weights, and the largest is exact. Equal steps of the root are about equally visible, which linear codes are not.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["dequantise", "error_bound", "quantise"]

Codes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def quantise(rows: Floats, levels: int) -> tuple[Floats, Codes]:
    """Turn rows of weights into each row's largest weight (rows,) and codes (rows, keys) of 0 to `levels`.

    Weights are 0 or more and finite.
    """
    largest = rows.max(axis=-1)
    # Divided, not multiplied by the inverse, which of a largest weight below 3e-39 is infinite.
    roots = np.sqrt(rows / np.where(largest > 0, largest, np.float32(1))[:, None])
    roots *= levels
    roots += np.float32(0.5)
    return largest, roots.astype(np.uint8)


def dequantise(largest: Floats, codes: Codes, levels: int) -> Floats:
    """Read weights back: (rows,) and (rows, keys) -> (rows, keys)."""
    roots = codes.astype(np.float32) / levels
    return np.asarray(largest[:, None] * roots * roots, np.float32)


def error_bound(largest: float, levels: int) -> float:
    """By how much a weight of a row may be off at most: M (N - ¼) / N², as the code N itself is exact from below.

    >>> round(error_bound(1.0, 255), 6)
    0.003918
    """
    return largest * (levels - 0.25) / levels**2
