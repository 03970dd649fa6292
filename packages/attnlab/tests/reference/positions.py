"""Where a token stands: added to the token (sinusoids), turned into it (rotary), or added to scores
(ALiBi).

Sinusoids: Vaswani et al. 2017, section 3.5. Rotary: Su et al. 2021, "RoFormer". ALiBi: Press et al.
2022, "Train Short, Test Long". Learned positions are a table of weights and need no formula.
"""

import numpy as np

from tests.reference.attention import as_floats
from tests.reference.masks import query_and_key_positions


def sinusoidal_positions(length, width):
    """Write each position as sines (even channels) and cosines (odd channels) of slowing frequency.

    >>> sinusoidal_positions(2, 3).round(4)  # row 1: sin 1, cos 1, sin(10000^(-2/3)) = sin 0.00215
    array([[0.    , 1.    , 0.    ],
           [0.8415, 0.5403, 0.0022]])
    """
    encoding = np.empty((length, width))
    positions = np.arange(length, dtype=np.float64)
    for channel in range(width):
        even = channel - channel % 2  # the 2i of the paper
        angle = positions / 10000.0 ** (even / width)
        encoding[:, channel] = np.sin(angle) if channel == even else np.cos(angle)
    return encoding


def rotary(x, positions, base=10000.0):
    """Rotate each pair of channels (i, i + width/2) by the angle position * base^(-2i / width).

    >>> rotary([[1.0, 0.0]], [1.0]).round(4)  # a width of 2 turns by the position: cos 1, sin 1
    array([[0.5403, 0.8415]])
    """
    x = as_floats("x", x, "(..., length, width)")
    positions = np.asarray(positions, dtype=np.float64)
    width = x.shape[-1]
    assert width % 2 == 0
    positions = np.broadcast_to(positions, x.shape[:-1])
    half = width // 2
    rotated = np.empty_like(x)
    for i in range(half):
        angle = positions * base ** (-2 * i / width)
        first, second = x[..., i], x[..., i + half]
        rotated[..., i] = first * np.cos(angle) - second * np.sin(angle)
        rotated[..., i + half] = first * np.sin(angle) + second * np.cos(angle)
    return rotated


def alibi_slopes(num_heads):
    """Give each head its steepness: 2^(-8/n), 2^(-16/n), ..., 2^-8 for n heads, n a power of two.

    >>> alibi_slopes(2), alibi_slopes(3)
    (array([0.0625    , 0.00390625]), array([0.0625    , 0.00390625, 0.25      ]))
    """
    lower_power = 2 ** (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * h / lower_power) for h in range(1, lower_power + 1)]
    doubled = [2.0 ** (-8.0 * h / (2 * lower_power)) for h in range(1, 2 * lower_power + 1)]
    missing = num_heads - lower_power
    return np.array(slopes + doubled[0::2][:missing])


def alibi_bias(num_heads, n_query, n_key):
    """Lower each score by slope * distance between query and key, as a float mask.

    >>> alibi_bias(1, 2, 3) * 256  # one head, slope 2^-8 = 1/256; rows stand at positions 1 and 2
    array([[[-1.,  0., -1.],
            [-2., -1.,  0.]]])
    """
    query, key = query_and_key_positions(n_query, n_key)
    minus_distance = -np.abs(query - key)
    return np.asarray(alibi_slopes(num_heads)[:, None, None] * minus_distance)
