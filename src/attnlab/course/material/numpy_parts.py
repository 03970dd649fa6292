"""Parts of models in plain NumPy, for the right answers of the exercises on whole models.

They compute in float64, one row or one head at a time, so that they can be read beside the
formula. They know nothing of torch.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_STEP = 1e-5


def softmax_rows(scores: Floats) -> Floats:
    """Return the softmax of each row; a row of minus infinities only gives zeros."""
    result = np.zeros_like(scores)
    for number, row in enumerate(scores):
        if np.isfinite(row).any():
            grown = np.exp(row - row.max())
            result[number] = grown / grown.sum()
    return result


def layer_norm_rows(rows: Floats, gain: Floats, bias: Floats, epsilon: float = 1e-5) -> Floats:
    """Normalize each row to mean 0 and variance 1, then scale and shift it."""
    result = np.zeros_like(rows)
    for number, row in enumerate(rows):
        spread = np.sqrt(((row - row.mean()) ** 2).mean() + epsilon)
        result[number] = (row - row.mean()) / spread * gain + bias
    return result


def attend_heads(
    query: Floats, key: Floats, value: Floats, heads: int, may: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Attend with several heads, given what the projections made of one text.

    Args:
        query: (queries, width).
        key: (keys, width).
        value: (keys, width).
        heads: how many; each has width / heads neighboring columns.
        may: (queries, keys); True = may attend.

    Returns:
        the heads side by side (queries, width), and the weights (head, queries, keys).
    """
    size = query.shape[1] // heads
    outputs, weights = [], []
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        scores = query[:, own] @ key[:, own].T / np.sqrt(size)
        weights.append(softmax_rows(np.where(may, scores, -np.inf)))
        outputs.append(weights[-1] @ value[:, own])
    return np.concatenate(outputs, axis=1), np.array(weights)


def packed_attention(
    state: Mapping[str, Floats],
    prefix: str,
    query_from: Floats,
    key_from: Floats,
    heads: int,
    may: NDArray[np.bool_],
) -> tuple[Floats, Floats]:
    """Compute PyTorch's multi-head attention for one text, from its packed parameters."""
    packed, bias = state[prefix + "in_proj_weight"], state[prefix + "in_proj_bias"]
    (query_matrix, key_matrix, value_matrix), biases = np.split(packed, 3), np.split(bias, 3)
    joined, weights = attend_heads(
        query_from @ query_matrix.T + biases[0],
        key_from @ key_matrix.T + biases[1],
        key_from @ value_matrix.T + biases[2],
        heads,
        may,
    )
    output = joined @ state[prefix + "out_proj.weight"].T + state[prefix + "out_proj.bias"]
    return output, weights


def numeric_gradients(function: Callable[..., Floats], inputs: Sequence[Floats]) -> list[Floats]:
    """Return the gradients that a case with answer="gradients" asks for, by central differences.

    Args:
        function: takes the inputs, float64 arrays, and returns the array that is summed.
        inputs: the arrays of which the gradients are wanted.
    """
    inputs = [np.array(each, float) for each in inputs]

    def weighted_sum() -> float:
        result = function(*inputs)
        return float((result * np.cos(np.arange(result.size)).reshape(result.shape)).sum())

    found = []
    for each in inputs:
        slopes = np.zeros_like(each)
        for place in np.ndindex(each.shape):
            kept = each[place]
            each[place] = kept + _STEP
            above = weighted_sum()
            each[place] = kept - _STEP
            below = weighted_sum()
            each[place] = kept
            slopes[place] = (above - below) / (2 * _STEP)
        found.append(slopes)
    return found
