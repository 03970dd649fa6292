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
    """Return the softmax over the last axis; a row of minus infinities only gives zeros."""
    highest = scores.max(axis=-1, keepdims=True)
    exponentials = np.exp(scores - np.where(np.isfinite(highest), highest, 0.0))
    total = exponentials.sum(axis=-1, keepdims=True)
    return np.asarray(exponentials / np.where(total == 0, 1.0, total))


def linear(state: Mapping[str, Floats], name: str, x: Floats) -> Floats:
    """Apply the linear layer with this name."""
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def layer_norm(state: Mapping[str, Floats], name: str, x: Floats) -> Floats:
    """Apply the layer norm with this name."""
    return layer_norm_rows(x, state[f"{name}.weight"], state[f"{name}.bias"])


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


def layer_norm_rows(rows: Floats, gain: Floats, bias: Floats, epsilon: float = 1e-5) -> Floats:
    """Normalize each row to mean 0 and variance 1, then scale and shift it."""
    centered = rows - rows.mean(axis=-1, keepdims=True)
    variance = (centered**2).mean(axis=-1, keepdims=True)
    return np.asarray(centered / np.sqrt(variance + epsilon) * gain + bias)


def attend_heads(
    query: Floats, key: Floats, value: Floats, heads: int, may: NDArray[np.bool_] | bool = True
) -> tuple[Floats, Floats]:
    """Attend with several heads, given what the projections made.

    Args:
        query: (…, queries, width).
        key: (…, keys, width).
        value: (…, keys, width).
        heads: how many; each has width / heads neighboring columns.
        may: broadcasts to (…, head, queries, keys); True = may attend.

    Returns:
        the heads side by side (…, queries, width), and the weights (…, head, queries, keys).
    """
    query, key, value = (
        np.stack(np.split(rows, heads, axis=-1), axis=-3) for rows in (query, key, value)
    )
    output, weights = attend(query, key, value, may)
    return np.concatenate(list(np.moveaxis(output, -3, 0)), axis=-1), weights


def packed_attention(
    state: Mapping[str, Floats],
    prefix: str,
    query_from: Floats,
    key_from: Floats,
    heads: int,
    may: NDArray[np.bool_] | bool = True,
) -> tuple[Floats, Floats]:
    """Compute PyTorch's multi-head attention from its packed parameters."""
    packed, bias = state[prefix + "in_proj_weight"], state[prefix + "in_proj_bias"]
    (query_matrix, key_matrix, value_matrix), biases = np.split(packed, 3), np.split(bias, 3)
    joined, weights = attend_heads(
        query_from @ query_matrix.T + biases[0],
        key_from @ key_matrix.T + biases[1],
        key_from @ value_matrix.T + biases[2],
        heads,
        may,
    )
    return linear(state, f"{prefix}out_proj", joined), weights


def numeric_gradients(function: Callable[..., Floats], inputs: Sequence[Floats]) -> list[Floats]:
    """Return the gradients that a case with answer="gradients" asks for, by central differences.

    Args:
        function: takes the inputs, float64 arrays, and returns the array that is summed.
        inputs: the arrays of which the gradients are wanted.
    """
    inputs = [np.array(array, float) for array in inputs]

    def weighted_sum() -> float:
        result = function(*inputs)
        return float((result * np.cos(np.arange(result.size)).reshape(result.shape)).sum())

    gradients = []
    for array in inputs:
        slopes = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            number = array[place]
            array[place] = number + _STEP
            above = weighted_sum()
            array[place] = number - _STEP
            below = weighted_sum()
            array[place] = number
            slopes[place] = (above - below) / (2 * _STEP)
        gradients.append(slopes)
    return gradients
