import itertools

import numpy as np


def encode(text):
    """Return [x ; pos] of a text of four letters: (4, 7)."""
    return np.hstack([np.eye(3)[["ABC".index(letter) for letter in text]], np.eye(4)])


def every_input():
    """Return all texts of four letters: (81, 4, 7)."""
    return np.array([encode(text) for text in itertools.product("ABC", repeat=4)])


# the result is a sum over the heads, so a head's own part is all that can change
def parts(heads, name, inputs):
    return np.stack([head_output(heads[name], x) for x in inputs])


def effect(heads, readout, name, inputs):
    return np.abs(parts(heads, name, inputs) @ readout).max().item()


def mean_effect(heads, readout, name, inputs):
    p = parts(heads, name, inputs)
    return np.abs((p - p.reshape(-1, p.shape[-1]).mean(0)) @ readout).max().item()


sharpest, constant, matters = "h2", "h0", "h3"
