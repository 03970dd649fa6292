"""One head in NumPy, and the examples of the NumPy reference that other tests compare with."""

import doctest
import importlib

import numpy as np
import pytest

from attnlab.errors import WrongUsage
from attnlab.parts.numpy_transformer import NumpyTransformer
from tests import reference as ref

from .closeness import assert_close, assert_same


def numbers(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).normal(size=shape)


@pytest.mark.parametrize("name", ["attention", "layers", "masks", "positions"])
def test_every_docstring_example_of_the_reference_is_true(name):
    result = doctest.testmod(importlib.import_module(f"tests.reference.{name}"))
    assert result.attempted > 0
    assert result.failed == 0


def random_head(seed, pos_dim=None, longest=6):
    source = np.random.default_rng(seed)
    width = 3 + (pos_dim or 0)
    Km, Qm, Vm = (source.normal(size=(width, size)) for size in (5, 5, 2))
    return NumpyTransformer(
        Km, Qm, Vm, None if pos_dim is None else source.normal(size=(longest, pos_dim))
    )


@pytest.mark.parametrize("pos_dim", [None, 4])
def test_a_single_head_is_attention_of_concatenated_rows(pos_dim):
    head, x = random_head(0, pos_dim), numbers(6, 3)
    rows = x if pos_dim is None else np.hstack([x, head.pos])
    wanted = ref.attention(rows @ head.Qm, rows @ head.Km, rows @ head.Vm)
    panels = head.panels(x)
    assert_close(panels.attention, wanted.weights, 1e-14)
    assert_close(panels.output, wanted.output, 1e-14)
    assert_same(head(x), panels.output)


@pytest.mark.parametrize("gain", [1.0, 36.0, 1e2, 1e4, 1e150])
def test_a_single_head_does_not_break_at_any_gain(gain):
    head = NumpyTransformer(gain * np.eye(2), gain * np.eye(2), np.eye(2))
    assert_close(head(np.eye(2)).sum(-1), [1, 1], 1e-15)
    if gain > 1:
        assert_close(head(np.eye(2)), np.eye(2), 1e-7)


def test_a_single_head_that_overflows_says_nan_and_nothing_else():
    head = NumpyTransformer([[1e200]], [[1e200]], [[1.0]])
    assert np.isnan(head([[1.0]])).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NumpyTransformer([[1.0]], [[1.0, 2.0]], [[1.0]]), "Km and Qm must have one shape"),
        (lambda: NumpyTransformer(np.eye(2), np.eye(2), np.eye(3)), "Vm .* as many rows"),
        (
            lambda: NumpyTransformer(np.eye(2), np.eye(2), np.eye(2), pos=np.eye(2)),
            "more rows than pos",
        ),
        (lambda: NumpyTransformer(np.eye(2), np.eye(2), np.zeros((2, 0))), "Vm must be a matrix"),
        (lambda: random_head(0)(numbers(2, 4)), r"\(length, 3\), length at least 1; got \(2, 4\)"),
        (lambda: random_head(0)(numbers(0, 3)), "length at least 1"),
        (lambda: random_head(0, 4)(numbers(7, 3)), "are 6 positions; got an input of length 7"),
    ],
)
def test_a_single_head_refuses_what_cannot_be(call, message):
    with pytest.raises(WrongUsage, match=message):
        call()
