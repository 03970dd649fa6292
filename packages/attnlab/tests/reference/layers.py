"""The rest of a transformer block: norms, activations, feed-forward layers, a factorized weight,
the loss.

Weights are in torch's layout (out, in): y = x Wᵀ + b. Every function works on the last axis and
leaves the leading ones alone. Attention itself is in `attention`.
"""

import math

import numpy as np

from tests.reference.attention import as_floats, linear, softmax


def layer_norm(x, gain=None, bias=None, epsilon=1e-5):
    """Centre each vector and divide by its standard deviation: (x - mean) / sqrt(variance +
    epsilon).

    >>> layer_norm([1.0, 3.0], epsilon=0.0)  # mean 2, variance 1
    array([-1.,  1.])
    """
    x = as_floats("x", x, "(..., width)")
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    normal = (x - mean) / np.sqrt(variance + epsilon)
    return np.asarray(
        normal * _per_channel("gain", gain, x, 1.0) + _per_channel("bias", bias, x, 0.0)
    )


def rms_norm(x, gain=None, epsilon=1e-6):
    """Divide each vector by its root mean square, without centring: x / sqrt(mean(x²) + epsilon).

    >>> rms_norm([1.0, 7.0], epsilon=0.0)  # mean of squares 25
    array([0.2, 1.4])
    """
    x = as_floats("x", x, "(..., width)")
    mean_square = (x**2).mean(axis=-1, keepdims=True)
    return np.asarray(x / np.sqrt(mean_square + epsilon) * _per_channel("gain", gain, x, 1.0))


def relu(x):
    """Keep what is positive: max(x, 0), any shape (Nair & Hinton 2010).

    >>> relu([-2.0, 3.0])
    array([0., 3.])
    """
    return np.maximum(as_floats("x", x, "(...)"), 0.0)


def gelu(x):
    """Weigh x by the normal distribution function: x (1 + erf(x / sqrt 2)) / 2, any shape, exact.

    >>> gelu([-1.0, 0.0, 1.0])  # 84.134 % of a normal distribution lies below 1
    array([-0.15865525,  0.        ,  0.84134475])
    """
    x = as_floats("x", x, "(...)")
    erf = np.vectorize(math.erf, otypes=[np.float64])
    return np.asarray(x * (1.0 + erf(x / math.sqrt(2.0))) / 2.0)


def silu(x):
    """Weigh x by its own sigmoid: x / (1 + exp(-x)), any shape (Elfwing et al. 2018; "swish").

    >>> silu([-1.0, 0.0, 1.0])  # sigmoid(1) = e / (1 + e) = 0.7311
    array([-0.26894142,  0.        ,  0.73105858])
    """
    x = as_floats("x", x, "(...)")
    # 1 / (1 + exp(-x)) without overflow for very negative x
    sigmoid = np.exp(-np.logaddexp(0.0, -x))
    return np.asarray(x * sigmoid)


ACTIVATIONS = {"relu": relu, "gelu": gelu, "silu": silu}


def feed_forward(x, w_in, w_out, b_in=None, b_out=None, activation="relu"):
    """Widen, bend, narrow: activation(x W_inᵀ + b_in) W_outᵀ + b_out.

    >>> feed_forward([3.0], [[1.0], [-1.0]], [[1.0, 1.0]])  # relu(x) + relu(-x) = |x|
    array([3.])
    """
    hidden = ACTIVATIONS[activation](linear(x, w_in, b_in))
    return linear(hidden, w_out, b_out)


def swiglu(x, w_gate, w_in, w_out):
    """Let a gate decide, channel by channel, what passes: (silu(x W_gateᵀ) * x W_inᵀ) W_outᵀ.

    >>> swiglu([1.0], [[1.0]], [[10.0]], [[1.0]])  # silu(1) * 10
    array([7.31058579])
    """
    gate, signal = linear(x, w_gate), linear(x, w_in)
    assert gate.shape == signal.shape
    return linear(silu(gate) * signal, w_out)


def factorised_weight(a, b, temperature=1.0, base=None):
    """Build a weight from a product of rank r: softmax(A B / temperature) over the last axis, times
    `base`.

    >>> factorised_weight([[1.0]], [[0.0, 1.0]])  # [1, e] / (1 + e)
    array([[0.26894142, 0.73105858]])
    >>> factorised_weight([[1.0]], [[0.0, 1.0]], base=[[10.0, 0.0]])
    array([[2.68941421, 0.        ]])
    """
    a, b = as_floats("a", a, "(..., d_model, rank)"), as_floats("b", b, "(..., rank, head_width)")
    assert temperature > 0
    gate = softmax(a @ b / temperature)
    if base is None:
        return gate
    base = np.asarray(base, dtype=np.float64)
    assert base.shape[-2:] == gate.shape[-2:]
    return np.asarray(gate * base)


def _per_channel(name, numbers, x, default):
    if numbers is None:
        return np.asarray(default)
    array = np.asarray(numbers, dtype=np.float64)
    assert array.shape == x.shape[-1:]
    return array
