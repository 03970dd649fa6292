"""The one way in which these tests compare numbers: shape first, then finiteness, then the
distance.

A comparison that NaN can pass proves nothing, and `np.testing.assert_allclose` lets it pass by
default.
"""

import numpy as np
import torch


def as_array(numbers):
    if isinstance(numbers, torch.Tensor):
        numbers = numbers.detach().double().numpy()
    return np.asarray(numbers, dtype=np.float64)


def distance(actual, expected):
    """The largest absolute difference of two finite arrays of one shape."""
    ours, theirs = as_array(actual), as_array(expected)
    assert ours.shape == theirs.shape, f"shape {ours.shape} instead of {theirs.shape}"
    assert np.isfinite(theirs).all(), "what is expected is not finite: nothing compares with it"
    odd = np.sum(~np.isfinite(ours))
    assert not odd, f"{odd} of {ours.size} numbers are not finite"
    return float(np.abs(ours - theirs).max(initial=0.0))


def assert_close(actual, expected, bound, what="the result"):
    error = distance(actual, expected)
    assert error <= bound, f"{what} is off by {error:.3g}; at most {bound:.3g} is allowed"


def assert_same(actual, expected, what="the result"):
    assert_close(actual, expected, 0.0, what)


def assert_scores_close(actual, expected, bound, what="scores"):
    """Scores may be -inf, on the same places; the others are compared."""
    ours = as_array(actual)
    assert ours.shape == expected.shape
    blocked = expected == -np.inf
    assert ((ours == -np.inf) == blocked).all(), f"{what}: other places are blocked"
    assert_close(ours[~blocked], expected[~blocked], bound, what)


def product_rounding(left, right):
    """How far off any number of a matrix product may be, whatever the order of its sums.

    A sum of n products is off by at most n units of rounding of the sum of their sizes (Higham,
    Accuracy and Stability of Numerical Algorithms, section 3.1); processors differ in the order.
    """
    unit = torch.finfo(left.dtype).eps / 2
    sizes = left.detach().double().abs() @ right.detach().double().abs()
    return float((left.shape[-1] + 1) * unit * sizes.max())
