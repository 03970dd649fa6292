import math

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.errors import WrongUsage
from attnlab.look.statistics import (
    blocked_weight,
    entropy,
    largest_weight,
    numerical_rank,
    softmax_jacobian_norm,
)
from attnlab.parts.masks import causal_mask
from tests import reference

FEW = settings(max_examples=40)


def some_weights(seed, spread, keys, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(3, 2, 4, keys, generator=generator, dtype=torch.float64)
    return scores.softmax(-1).to(dtype)


@FEW
@given(st.integers(0, 10_000), st.floats(0.0, 50.0), st.integers(1, 12))
def test_entropy_is_that_of_the_reference_and_lies_between_0_and_ln_keys(seed, spread, keys):
    weights = some_weights(seed, spread, keys)
    found = entropy(weights)
    numpy.testing.assert_allclose(
        found.numpy(), reference.entropy(weights.numpy()), rtol=0, atol=1e-12, equal_nan=False
    )
    assert 0.0 <= float(found.min()) <= float(found.max()) <= math.log(keys) + 1e-12


def test_entropy_of_one_key_is_0_and_of_four_alike_ln_4():
    weights = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25], [0.0, 0.0, 0.0, 0.0]])
    assert entropy(weights).tolist() == pytest.approx([0.0, math.log(4), 0.0])


@FEW
@given(st.integers(0, 10_000), st.floats(0.0, 30.0), st.integers(1, 9))
def test_the_jacobian_norm_is_that_of_autograds_jacobian(seed, spread, keys):
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(keys, generator=generator, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), scores)
    found = softmax_jacobian_norm(scores.softmax(-1))
    assert float(found) == pytest.approx(float(jacobian.norm()), abs=1e-7)


def test_near_one_hot_weights_keep_their_small_norm_in_float32():
    weight = 1.0 - 2.0**-20
    found = softmax_jacobian_norm(torch.tensor([weight, 1.0 - weight], dtype=torch.float32))
    assert float(found) == pytest.approx(2 * weight * (1.0 - weight), rel=1e-6)


def test_the_largest_weight_is_each_querys_and_the_matrixs_is_larger():
    weights = torch.tensor([[0.6, 0.4], [0.9, 0.1]])
    assert largest_weight(weights).tolist() == pytest.approx([0.6, 0.9])
    assert float(largest_weight(weights).amax(-1)) == pytest.approx(0.9)


def test_blocked_weight_counts_what_lies_above_the_diagonal():
    weights = torch.tensor([[0.75, 0.25], [0.5, 0.5]])
    assert blocked_weight(weights, causal_mask(2)).tolist() == [0.25, 0.0]


@FEW
@given(st.integers(0, 10_000), st.integers(1, 7), st.integers(1, 7), st.integers(0, 7))
def test_the_rank_is_numpys(seed, rows, columns, rank):
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(rows, rank, generator=generator, dtype=torch.float64)
    matrix = left @ torch.randn(rank, columns, generator=generator, dtype=torch.float64)
    assert int(numerical_rank(matrix)) == numpy.linalg.matrix_rank(matrix.numpy())
    assert int(numerical_rank(matrix, tolerance=1e-9)) == min(rank, rows, columns)


def test_a_rank_depends_on_the_tolerance_and_zeros_have_none():
    matrix = torch.diag(torch.tensor([1.0, 1e-3, 0.0]))
    ranks = [int(numerical_rank(matrix, tolerance=tolerance)) for tolerance in (1e-2, 1e-4)]
    assert ranks == [1, 2]
    assert int(numerical_rank(torch.zeros(3, 3))) == 0
    assert numerical_rank(torch.zeros(5, 0, 3)).tolist() == [0] * 5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_are_measured_as_float32(dtype):
    weights = some_weights(0, 3.0, 6, dtype)
    for measure in (entropy, softmax_jacobian_norm):
        assert torch.allclose(measure(weights).float(), measure(weights.float()), atol=4e-3, rtol=0)
    assert entropy(weights).dtype == torch.float32


def test_what_makes_no_sense_is_said():
    for call, words in (
        (lambda: entropy(torch.ones(2, 2, dtype=torch.int64)), r"floating-point .* got int64"),
        (lambda: largest_weight(torch.zeros(2, 0)), "the largest of no weights is undefined"),
        (lambda: blocked_weight(torch.ones(2, 2), torch.ones(2, 2)), "boolean, True = may attend"),
        (lambda: numerical_rank(torch.tensor([[math.nan]])), "with NaN or infinity"),
        (lambda: numerical_rank(torch.ones(3)), r"got \(3\) of torch.float32"),
    ):
        with pytest.raises(WrongUsage, match=words):
            call()


def test_the_usual_tolerance_of_a_rank_goes_by_the_larger_side():
    step = torch.finfo(torch.float64).eps
    matrix = torch.zeros(2, 100, dtype=torch.float64)
    matrix[0, 0], matrix[1, 1] = 1.0, 50 * step  # above 2 steps, below 100
    assert int(numerical_rank(matrix)) == int(numerical_rank(matrix.T)) == 1
