"""Softmax and attention in plain NumPy, for exercises that look into a model."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def softmax_rows(scores: Floats) -> Floats:
    """Return the softmax over the last axis; a row of minus infinities only gives zeros."""
    highest = scores.max(axis=-1, keepdims=True)
    exponentials = np.exp(scores - np.where(np.isfinite(highest), highest, 0.0))
    total = exponentials.sum(axis=-1, keepdims=True)
    return np.asarray(exponentials / np.where(total == 0, 1.0, total))


def attend(
    query: Floats, key: Floats, value: Floats, may: NDArray[np.bool_] | bool = True
) -> tuple[Floats, Floats]:
    """Attend with one head; return the output and the weights.

    Args:
        query: (…, queries, width).
        key: (…, keys, width).
        value: (…, keys, value width).
        may: broadcasts to (…, queries, keys); True = may attend.
    """
    scores = query @ key.swapaxes(-2, -1) / np.sqrt(query.shape[-1])
    weights = softmax_rows(np.where(may, scores, -np.inf))
    return weights @ value, weights
