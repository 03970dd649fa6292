"""Softmax attention in float64, spelled out: scores, weights, output, gradients, heads.

    scores[i, j] = scale * query_i . key_j + mask[i, j]        (-inf where i may not attend to j)
    weights[i]   = softmax(scores[i])
    output[i]    = sum over visible j of weights[i, j] * value_j

Vaswani et al. 2017, "Attention Is All You Need", equation 1. Masks are built in `masks`, float
biases in `positions`; the double loops over queries and keys are slow on purpose, so that each line
is one formula.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BIAS_NAMES = ("query", "key", "value", "output")


class Attention(NamedTuple):
    """What attention returns: output (..., query, value_width), weights and scores (..., query,
    key)."""

    output: Floats
    weights: Floats
    scores: Floats


def softmax(scores):
    """Turn the last axis into a distribution: exp(s_j) / sum_k exp(s_k).

    >>> softmax([0.0, 1.0])  # [1, e] / (1 + e)
    array([0.26894142, 0.73105858])
    >>> softmax([-np.inf, -np.inf])
    array([0., 0.])
    """
    scores = as_floats("scores", scores, "(..., key)")
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    shift = np.where(highest == -np.inf, 0.0, highest)  # -inf - -inf would be NaN
    with np.errstate(invalid="ignore"):  # a score of +inf gives NaN, as it does in torch
        exponentials = np.exp(scores - shift)
    total = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / np.where(total == 0.0, 1.0, total)


def entropy(weights):
    """Measure how spread each row of weights is, in nats: -sum_j w_j ln w_j, with 0 ln 0 = 0.

    >>> float(entropy([0.5, 0.5, 0.0])) == math.log(2)
    True
    """
    weights = as_floats("weights", weights, "(..., key)")
    assert not (weights < 0).any(), "these are scores, not weights"
    logarithms = np.log(np.where(weights > 0, weights, 1.0))
    return np.asarray(0.0 - (weights * logarithms).sum(axis=-1))


def attention(query, key, value, mask=None, scale=None):
    """Average the values of the keys a query may attend to, weighted by softmax(query . key *
    scale).

    >>> output, weights, scores = attention([[0.0, 1.0]], np.eye(2), [[10.0], [20.0]], scale=False)
    >>> scores  # with identity keys the scores are the query itself
    array([[0., 1.]])
    >>> weights  # [1, e] / (1 + e)
    array([[0.26894142, 0.73105858]])
    >>> output  # 10 * 0.26894142 + 20 * 0.73105858
    array([[17.31058579]])
    >>> attention([[0.0, 1.0]], np.eye(2), [[10.0], [np.nan]], mask=[[True, False]]).output
    array([[10.]])
    """
    query, key, value, visible, bias, factor = _prepare(query, key, value, mask, scale)
    *leading, n_query, n_key = visible.shape

    scores = np.full((*leading, n_query, n_key), -np.inf)
    with np.errstate(
        invalid="ignore", over="ignore"
    ):  # blocked NaN and inf are computed, then dropped
        for i in range(n_query):
            for j in range(n_key):
                product = factor * dot(query[..., i, :], key[..., j, :]) + bias[..., i, j]
                scores[..., i, j] = np.where(visible[..., i, j], product, -np.inf)

        weights = np.where(visible, softmax(scores), 0.0)

        output = np.zeros((*leading, n_query, value.shape[-1]))
        for i in range(n_query):
            for j in range(n_key):
                share = weights[..., i, j, None] * value[..., j, :]
                output[..., i, :] += np.where(visible[..., i, j, None], share, 0.0)
    return Attention(output, weights, scores)


def attention_gradients(query, key, value, mask, scale, grad_output):
    """Differentiate a loss through `attention`: (grad_query, grad_key, grad_value) from
    grad_output.

    Shapes: grad_output as the output, each gradient as its input (summed where the input
    broadcast). Write G = dLoss/doutput, w = weights, s = scores, c = scale, and take each line of
    the forward pass backwards; every sum runs over the pairs (query i, key j) where i may attend to
    j:

        output_i = sum_j w_ij value_j   =>   dvalue_j = sum_i w_ij G_i   and   dw_ij = G_i . value_j
        w_i = softmax(s_i)              =>   the Jacobian of w_ij in s_ik is w_ij ([j = k] - w_ik),
                                             so ds_ij = w_ij (dw_ij - sum_k w_ik dw_ik)
        s_ij = c query_i . key_j + m_ij =>   dquery_i = c sum_j ds_ij key_j
                                             and dkey_j = c sum_i ds_ij query_i

    Descent thus raises a score if and only if its value lowers the loss more than the row's average
    value.

    >>> query, key, value = [[0.0]], [[1.0], [0.0]], [[4.0], [0.0]]  # both weights are 1/2
    >>> gradients = attention_gradients(query, key, value, None, False, [[1.0]])
    >>> grad_query, grad_key, grad_value = gradients
    >>> grad_query, grad_value.ravel()  # dw = [4, 0], ds = 1/2 ([4, 0] - 2) = [1, -1]
    (array([[1.]]), array([0.5, 0.5]))
    """
    shapes = tuple(np.shape(x) for x in (query, key, value))
    output, weights, _ = attention(query, key, value, mask, scale)
    query, key, value, visible, _, factor = _prepare(query, key, value, mask, scale)
    n_query, n_key = visible.shape[-2:]
    grad_output = as_floats("grad_output", grad_output, "(..., query, value_width)")
    assert grad_output.shape == output.shape
    pairs = [(i, j) for i in range(n_query) for j in range(n_key)]
    grad_query, grad_key, grad_value = (np.zeros_like(x) for x in (query, key, value))
    grad_weights = np.zeros_like(weights)
    with np.errstate(invalid="ignore", over="ignore"):
        for i, j in pairs:
            seen = visible[..., i, j]
            grad_weights[..., i, j] = np.where(
                seen, dot(grad_output[..., i, :], value[..., j, :]), 0.0
            )

        row_average = (weights * grad_weights).sum(axis=-1, keepdims=True)
        grad_scores = np.where(visible, weights * (grad_weights - row_average), 0.0)

        for i, j in pairs:
            seen, grad_score = visible[..., i, j, None], factor * grad_scores[..., i, j, None]
            grad_value[..., j, :] += np.where(
                seen, weights[..., i, j, None] * grad_output[..., i, :], 0.0
            )
            grad_query[..., i, :] += np.where(seen, grad_score * key[..., j, :], 0.0)
            grad_key[..., j, :] += np.where(seen, grad_score * query[..., i, :], 0.0)
    gradients = (grad_query, grad_key, grad_value)
    return tuple(
        _sum_to_shape(gradient, shape) for gradient, shape in zip(gradients, shapes, strict=True)
    )


def split_heads(x, num_heads):
    """Cut the width into heads: head h takes channels h * head_width up to (h + 1) * head_width.

    >>> split_heads([[1, 2, 3, 4]], num_heads=2)
    array([[[1., 2.]],
    <BLANKLINE>
           [[3., 4.]]])
    """
    x = as_floats("x", x, "(..., length, d_model)")
    *leading, length, d_model = x.shape
    assert d_model % num_heads == 0
    return x.reshape(*leading, length, num_heads, d_model // num_heads).swapaxes(-3, -2)


def join_heads(x):
    """Lay the heads side by side again: the inverse of `split_heads`.

    >>> join_heads([[[1, 2]], [[3, 4]]])
    array([[1., 2., 3., 4.]])
    """
    x = as_floats("x", x, "(..., head, length, head_width)")
    *leading, num_heads, length, head_width = x.shape
    return x.swapaxes(-3, -2).reshape(*leading, length, num_heads * head_width)


def multi_head_attention(
    x_query,
    x_key_value,
    w_query,
    w_key,
    w_value,
    w_output,
    num_heads,
    num_kv_heads=None,
    biases=None,
    mask=None,
    scale=None,
):
    """Project, attend in every head, join the heads, project: Concat(head_1, ..., head_h) W_output.

    >>> eye = np.eye(2)  # two heads of width 1; position 1 sees key 1 alone, which is [3, 4]
    >>> matrices = [eye, eye, eye, eye]
    >>> multi_head_attention(eye, [[1, 2], [3, 4]], *matrices, 2, mask=[False, True]).output
    array([[3., 4.],
           [3., 4.]])
    """
    num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    assert num_heads % num_kv_heads == 0
    biases = {} if biases is None else biases
    assert set(biases) <= set(BIAS_NAMES)

    query = split_heads(linear(x_query, w_query, biases.get("query")), num_heads)
    key = split_heads(linear(x_key_value, w_key, biases.get("key")), num_kv_heads)
    value = split_heads(linear(x_key_value, w_value, biases.get("value")), num_kv_heads)

    group_size = num_heads // num_kv_heads
    key_head_of = [h // group_size for h in range(num_heads)]
    heads = attention(
        query, key[..., key_head_of, :, :], value[..., key_head_of, :, :], mask, scale
    )

    output = linear(join_heads(heads.output), w_output, biases.get("output"))
    return Attention(output, heads.weights, heads.scores)


def linear(x, weight, bias=None):
    """Compute x Wᵀ + b, with torch's layout of the weight: x (..., in), weight (out, in), bias
    (out,).

    >>> linear([1.0, 2.0], [[10.0, 1.0]], [0.5])
    array([12.5])
    """
    x, weight = as_floats("x", x, "(..., in)"), as_floats("weight", weight, "(out, in)")
    assert weight.ndim == 2
    assert weight.shape[1] == x.shape[-1]
    with np.errstate(invalid="ignore"):  # a NaN in one position stays in its own row
        product: Floats = x @ weight.T
    if bias is None:
        return product
    bias = as_floats("bias", bias, "(out,)")
    assert bias.shape == weight.shape[:1]
    return product + bias


def dot(a, b):
    """Multiply two vectors into one number, along the last axis: (..., width), (..., width) ->
    (...)."""
    return np.asarray((a * b).sum(axis=-1))


def as_floats(name, x, shape):
    """Read x as a float64 array with at least the axes named in `shape`, such as "(..., key,
    width)"."""
    found: Any = x
    if hasattr(found, "detach"):  # a tensor, also one with gradients or of half precision
        found = found.detach().cpu().double()
    array = np.asarray(found, dtype=np.float64)
    words = [word.strip() for word in shape.strip("()").split(",")]
    num_axes = len([word for word in words if word not in ("", "...")])
    assert array.ndim >= num_axes, f"{name} has shape {shape}, got {array.shape}"
    return array


def _prepare(query, key, value, mask, scale):
    """Return the inputs, what is visible, the bias and the factor; leading axes are broadcast."""
    query = as_floats("query", query, "(..., query, width)")
    key = as_floats("key", key, "(..., key, width)")
    value = as_floats("value", value, "(..., key, value_width)")
    (n_query, width), n_key = query.shape[-2:], key.shape[-2]
    assert key.shape[-1] == width
    assert value.shape[-2] == n_key
    visible, bias = _visible_and_bias(mask)
    assert np.broadcast_shapes((n_query, n_key), visible.shape)[-2:] == (n_query, n_key)
    leading = np.broadcast_shapes(*(x.shape[:-2] for x in (query, key, value, visible)))
    query, key, value = (np.broadcast_to(x, leading + x.shape[-2:]) for x in (query, key, value))
    visible, bias = (np.broadcast_to(x, (*leading, n_query, n_key)) for x in (visible, bias))
    factor = 1.0 / math.sqrt(width) if scale is None else 1.0 if scale is False else float(scale)
    return query, key, value, visible, bias, factor


def _visible_and_bias(mask):
    array = np.asarray(True if mask is None else mask)
    if array.dtype == np.bool_:
        return array, np.zeros(array.shape)
    if np.issubdtype(array.dtype, np.floating):
        is_boolean = array.size and (array == 1).any() and np.isin(array, (0, 1)).all()
        assert not is_boolean, "a float mask is added to the scores"
        bias = array.astype(np.float64)
        return bias != -np.inf, bias
    raise TypeError(f"a mask is boolean or float, not {array.dtype}")


def _sum_to_shape(gradient, shape):
    extra = gradient.ndim - len(shape)
    gradient = gradient.sum(axis=tuple(range(extra)))
    stretched = tuple(
        axis for axis, size in enumerate(shape) if size == 1 and gradient.shape[axis] != 1
    )
    return np.asarray(gradient.sum(axis=stretched, keepdims=True))
