"""Norms: fused modules, written-out formulas, the reference and torch are the same."""

import math

import pytest
import torch
from torch import nn

from attnlab.parts.norms import LayerNorm, RMSNorm, layer_norm, make_norm, rms_norm
from tests import reference as ref
from tests.random_models import normal

from .closeness import as_array, assert_close

BOUND = {torch.float64: 1e-12, torch.float32: 5e-6}
SHAPES = [(7,), (3, 5), (2, 3, 11), (0, 3, 5), (2, 1)]


def test_layer_norm_of_one_and_three_is_minus_one_and_one():
    assert_close(layer_norm(torch.tensor([1.0, 3.0]), epsilon=0.0), [-1, 1], 0.0)
    assert_close(
        LayerNorm(2)(torch.tensor([1.0, 3.0])),
        [-1 / math.sqrt(1 + 1e-5), 1 / math.sqrt(1 + 1e-5)],
        1e-7,
    )


def test_rms_norm_of_three_and_four_divides_by_the_root_of_twelve_and_a_half():
    expected = [3 / math.sqrt(12.5), 4 / math.sqrt(12.5)]
    assert_close(rms_norm(torch.tensor([3.0, 4.0]), epsilon=0.0), expected, 1e-7)
    assert_close(RMSNorm(2)(torch.tensor([3.0, 4.0])), expected, 1e-6)


def test_epsilon_stands_inside_the_root():
    x = torch.tensor([1e-3, -1e-3], dtype=torch.float64)
    expected = 1e-3 / math.sqrt(1e-6 + 1e-5)
    for normed in (layer_norm(x), LayerNorm(2).double()(x)):
        assert_close(normed, [expected, -expected], 1e-12)
    expected = 1e-3 / math.sqrt(1e-6 + 1e-6)
    for normed in (rms_norm(x), RMSNorm(2).double()(x)):
        assert_close(normed, [expected, -expected], 1e-12)


NORMS = {
    "layer": (LayerNorm, nn.LayerNorm, layer_norm, ref.layer_norm),
    "rms": (RMSNorm, nn.RMSNorm, rms_norm, ref.rms_norm),
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("epsilon", [1e-6, 0.1])
@pytest.mark.parametrize("kind", NORMS)
def test_each_norm_is_its_formula_the_reference_and_torch(kind, epsilon, shape):
    ours, theirs, formula, reference = NORMS[kind]
    for dtype, bound in BOUND.items():
        x, numbers = normal(*shape, dtype=dtype), {"weight": normal(shape[-1], seed=1, dtype=dtype)}
        if kind == "layer":
            numbers["bias"] = normal(shape[-1], seed=2, dtype=dtype)
            bound = bound if shape[-1] > 1 else 1e-5
        part, twin = (
            ours(shape[-1], epsilon=epsilon).to(dtype),
            theirs(shape[-1], epsilon).to(dtype),
        )
        for module in (part, twin):
            module.load_state_dict(numbers)
        expected = reference(as_array(x), *map(as_array, numbers.values()), epsilon)
        for actual in (formula(x, *numbers.values(), epsilon=epsilon), part(x), twin(x)):
            assert_close(actual, expected, bound, f"{kind} norm, {dtype}")
    assert LayerNorm(3, bias=False).bias is None


def test_a_constant_position_stays_finite_forward_and_backward():
    for norm in (LayerNorm(5), RMSNorm(5), layer_norm, rms_norm):
        for size in (0.0, 7.0):
            x = torch.full((2, 5), size, requires_grad=True)
            output = norm(x)
            output.square().sum().backward()
            assert output.isfinite().all()
            assert x.grad.isfinite().all()


def test_a_large_mean_does_not_spoil_the_variance():
    x = normal(3, 64, dtype=torch.float64)
    assert_close(layer_norm((x + 1000).float()), layer_norm(x), 2e-4)
    assert_close(LayerNorm(64)((x + 1000).float()), layer_norm(x), 2e-4)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_gradients_of_norms_are_those_of_finite_differences(kind):
    part = make_norm(kind, 5).double()
    formula = layer_norm if kind == "layer" else rms_norm
    x, gain = normal(2, 3, 5).requires_grad_(), normal(5, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(part, x, raise_exception=False)
    assert torch.autograd.gradcheck(formula, (x, gain), raise_exception=False)
