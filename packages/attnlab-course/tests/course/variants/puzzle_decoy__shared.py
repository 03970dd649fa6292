import itertools

import numpy as np


def matrix(text):
    """Read a matrix of whole numbers, its rows ended by `/`."""
    return np.array([row.split() for row in text.split("/")], dtype=np.float64)


HEADS = {
    "h0": [
        matrix("0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 1 0 0 0 / 0 1 0 0 / 0 0 1 0 / 0 0 0 1"),
        matrix("0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 8 0 0 0 / 8 0 0 0 / 8 0 0 0 / 8 0 0 0"),
        matrix(
            "0 0 0 0 0 / 0 0 0 0 0 / 0 0 0 0 0 / "
            "3 0 0 -2 -3 / 3 0 0 -2 -3 / 3 0 0 -2 -3 / 3 0 0 -2 -3"
        ),
    ],
    "h1": [
        matrix("1 0 0 0 / 0 1 0 0 / 0 0 1 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0"),
        matrix("5 0 0 0 / 0 5 0 0 / 0 0 5 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0"),
        matrix(
            "3 7 0 -7 1 / -3 1 1 -1 7 / 4 2 -1 -2 -6 / "
            "0 0 0 0 0 / 0 0 0 0 0 / 0 0 0 0 0 / 0 0 0 0 0"
        ),
    ],
    "h2": [
        matrix("0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 1 0 0 0 / 0 1 0 0 / 0 0 1 0 / 0 0 0 1"),
        matrix("0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 20 0 0 0 / 20 0 0 0 / 0 20 0 0 / 0 0 20 0"),
        matrix(
            "1 -2 -5 2 -4 / 2 1 -1 -1 -3 / -2 -5 -1 5 -1 / "
            "0 0 0 0 0 / 0 0 0 0 0 / 0 0 0 0 0 / 0 0 0 0 0"
        ),
    ],
    "h3": [
        matrix("1 0 0 0 / 0 1 0 0 / 0 0 1 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0"),
        matrix("-3 0 0 0 / 0 -3 0 0 / 0 0 -3 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0"),
        matrix(
            "2 1 1 -2 -1 / -1 -1 0 3 0 / -1 0 1 -2 2 / "
            "0 0 0 0 0 / 0 0 0 0 0 / 0 0 0 0 0 / 0 0 0 0 0"
        ),
    ],
}
READOUT = matrix("2 0 / -1 1 / 0 0 / 0 1 / 1 0")


def encode(text):
    """Return [x ; pos] of a text of four letters: (4, 7)."""
    return np.hstack([np.eye(3)[["ABC".index(letter) for letter in text]], np.eye(4)])


def every_input():
    """Return all texts of four letters: (81, 4, 7)."""
    return np.array([encode(text) for text in itertools.product("ABC", repeat=4)])


def pattern(head, x):
    """Return a head's weights on one input: (length, length)."""
    Km, Qm, _ = head
    scores = (x @ Qm) @ (x @ Km).T / np.sqrt(Km.shape[1])
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def head_output(head, x):
    """Return what a head writes into the stream: (length, stream)."""
    return pattern(head, x) @ x @ head[2]


def result(heads, readout, x, instead=None):
    """Return the numbers that come out for one input: (length, numbers).

    `instead` gives the outputs of some heads in place of their own: name -> (length, stream).
    """
    outputs = {name: head_output(head, x) for name, head in heads.items()}
    outputs.update(instead or {})
    return sum(outputs.values()) @ readout


def largest(heads, readout, name, inputs, instead):
    return max(
        float(abs(result(heads, readout, x, {name: instead(x)}) - result(heads, readout, x)).max())
        for x in inputs
    )


def effect(heads, readout, name, inputs):
    return largest(heads, readout, name, inputs, lambda x: 0 * head_output(heads[name], x))


def mean_effect(heads, readout, name, inputs):
    rows = np.concatenate([head_output(heads[name], x) for x in inputs])
    return largest(heads, readout, name, inputs, lambda x: np.tile(rows.mean(0), (len(x), 1)))


table = {
    n: (effect(HEADS, READOUT, n, every_input()), mean_effect(HEADS, READOUT, n, every_input()))
    for n in HEADS
}
constant = next(n for n, (zero, mean) in table.items() if zero > 1e-3 > mean)
matters = max(table, key=lambda n: table[n][1])
sharpest = max(HEADS, key=lambda n: pattern(HEADS[n], encode("CABA")).max(1).min())
