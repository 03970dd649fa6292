"""Positions: values a reader can redo, the reference, and what makes each work."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnlab.parts.positions import (
    Alibi,
    ConcatenatedPositions,
    LearnedPositions,
    Rotary,
    SinusoidalPositions,
    alibi_bias,
    alibi_slopes,
    rotate,
    sinusoidal_positions,
)
from tests import reference as ref
from tests.random_models import normal

from .closeness import assert_close, assert_same


def test_position_one_of_width_four_is_sine_and_cosine_of_one_and_of_a_hundredth():
    expected = [[0, 1, 0, 1], [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)]]
    assert_close(sinusoidal_positions(2, 4, dtype=torch.float64), expected, 1e-15)
    assert sinusoidal_positions(0, 3).shape == (0, 3)
    assert SinusoidalPositions(3)(torch.zeros(2, 0, 3), offset=5).shape == (2, 0, 3)
    assert_same(SinusoidalPositions(3)(torch.zeros(1, 1, 3)), [[[0, 1, 0]]])


@pytest.mark.parametrize("width", [1, 2, 7, 16, 31])
def test_sinusoids_are_those_of_the_reference_at_any_offset(width):
    expected = ref.sinusoidal_positions(300, width)
    assert_close(sinusoidal_positions(300, width, dtype=torch.float64), expected, 1e-12)
    assert_close(
        sinusoidal_positions(7, width, offset=290, dtype=torch.float64), expected[290:297], 1e-12
    )
    assert_close(sinusoidal_positions(300, width), expected, 1e-7)


def test_sinusoids_are_added_at_their_offset_however_long_and_in_whatever_precision():
    part = SinusoidalPositions(11)
    expected = ref.sinusoidal_positions(200, 11)
    for dtype, bound in ((torch.float32, 1e-6), (torch.float64, 1e-12), (torch.float32, 1e-6)):
        for length, offset in ((3, 0), (5, 2), (190, 10), (1, 40)):
            x = normal(2, length, 11, dtype=dtype)
            assert part(x, offset).dtype == dtype
            assert_close(
                part(x, offset) - x, np.stack([expected[offset : offset + length]] * 2), bound
            )
    assert part._table.shape[0] == 200  # the same for both precisions


class SharedWithAThread(SinusoidalPositions):
    """Whatever is stored, another thread that reads a single token replaces it at once."""

    @property
    def _table(self):
        return sinusoidal_positions(1, self.d_model, dtype=torch.float32)

    @_table.setter
    def _table(self, value):
        pass


def test_a_table_that_another_thread_replaces_meanwhile_is_not_read():
    part, x = SharedWithAThread(11), normal(2, 5, 11, dtype=torch.float32)
    assert_same(part(x), x + sinusoidal_positions(5, 11))
    double = normal(2, 1, 11, dtype=torch.float64)
    assert_same(part(double), double + sinusoidal_positions(1, 11, dtype=torch.float64))


def test_learned_positions_are_rows_of_their_weight():
    part, x = LearnedPositions(7, 3), normal(2, 4, 3, dtype=torch.float32)
    assert_same(part(x), x + part.weight[:4])
    assert_same(part(x, offset=3), x + part.weight[3:])
    part(x, offset=2).sum().backward()
    assert part.weight.grad[:, 0].tolist() == [0, 0, 2, 2, 2, 2, 0]


def test_concatenated_positions_stand_beside_the_token():
    fixed = ConcatenatedPositions(5, 5, fixed=torch.eye(5))
    x = normal(2, 3, 7, dtype=torch.float32)
    output = fixed(x, offset=2)
    assert_same(output[..., :7], x)
    assert_same(output[1, :, 7:], torch.eye(5)[2:])
    assert list(fixed.parameters()) == []
    assert "weight" in fixed.state_dict()
    assert ConcatenatedPositions(5, 2)(x).shape == (2, 3, 9)


def test_a_pair_of_channels_turns_by_its_position():
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    expected = [[1, 0], [math.cos(1), math.sin(1)], [-math.sin(2), math.cos(2)]]
    assert_close(rotate(x), expected, 1e-15)
    wide = torch.zeros(2, 4, dtype=torch.float64)
    wide[1, 1] = 1.0  # the second pair, (1, 3), turns by 1/100
    assert_close(rotate(wide)[1], [0, math.cos(0.01), 0, math.sin(0.01)], 1e-15)
    x = normal(3, 5)  # of an odd width, which leaves its last channel
    assert_same(rotate(x)[:, 4], x[:, 4])
    assert_same(rotate(x[:, :1]), x[:, :1])


@given(st.integers(1, 9), st.integers(0, 50), st.integers(1, 8), st.sampled_from([10000.0, 100.0]))
def test_turning_agrees_with_the_reference_at_any_offset(length, offset, pairs, base):
    x = normal(2, 3, length, 2 * pairs)
    expected = ref.rotary(x.numpy(), np.arange(offset, offset + length), base)
    assert_close(rotate(x, offset, base=base), expected, 1e-12)
    assert_close(Rotary(base=base)(x.float(), offset), expected, 1e-5)
    assert_same(Rotary()(x), rotate(x))
    assert_close(rotate(x), ref.rotary(x.numpy(), np.arange(length)), 1e-12)


@pytest.mark.parametrize("width", [1, 2, 5, 8])
def test_turning_keeps_lengths_and_makes_products_depend_on_the_distance_alone(width):
    query, key = normal(1, width), normal(1, width, seed=1)
    assert_close(rotate(query, 17).norm(), query.norm(), 1e-14)
    products = [rotate(query, offset + 5) @ rotate(key, offset).t() for offset in (0, 3, 1000)]
    assert_close(products[1], products[0], 1e-12)
    assert_close(products[2], products[0], 1e-11)
    if width > 1:
        assert (rotate(query, 7) @ rotate(key, 0).t() - products[0]).abs() > 1e-3


def test_the_gradient_of_turning_is_that_of_finite_differences():
    x = normal(2, 3, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: rotate(x, 3), x, raise_exception=False)


def test_slopes_are_powers_of_two_and_other_counts_borrow():
    assert alibi_slopes(8).tolist() == [2.0**-h for h in range(1, 9)]
    assert alibi_slopes(3).tolist() == [2.0**-4, 2.0**-8, 2.0**-2]
    for heads in range(1, 40):
        assert_same(alibi_slopes(heads), ref.alibi_slopes(heads).astype(np.float32))


def test_bias_falls_with_distance_and_is_zero_at_home():
    assert_same(alibi_bias(1, 2, 3) * 256, [[[-1, 0, -1], [-2, -1, 0]]])
    for queries, keys in ((1, 1), (3, 3), (2, 7), (1, 5)):
        assert_same(
            alibi_bias(6, queries, keys), ref.alibi_bias(6, queries, keys).astype(np.float32)
        )


def test_bias_and_mask_become_one_float_mask():
    part, like = Alibi(2), torch.zeros(1, dtype=torch.float64)
    bias = torch.from_numpy(ref.alibi_bias(2, 3, 3))
    assert_same(part.masked(None, 3, 3, like), bias)
    causal = part.masked("causal", 3, 3, like)
    assert causal.dtype == torch.float64
    blocked = torch.ones(3, 3).triu(1).bool()
    assert (causal[:, blocked] == -math.inf).all()
    assert_same(causal[:, ~blocked], bias[:, ~blocked])
    assert_same(part.masked(torch.full((3, 3), 2.0, dtype=torch.float64), 3, 3, like), bias + 2)
    assert part.masked(torch.ones(5, 1, 1, 3).bool(), 3, 3, like).shape == (5, 2, 3, 3)
