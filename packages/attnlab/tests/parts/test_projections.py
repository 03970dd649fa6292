"""Projections: the factorized weight, its gradients, and what each kind is made of."""

import math

import pytest
import torch

from attnlab.parts.projections import (
    FactorizedProjection,
    factorised_weight,
    make_projection,
)
from attnlab.seeds import isolated
from tests import reference as ref
from tests.random_models import normal

from .closeness import as_array, assert_close

E = math.e
BOUND = {torch.float64: 1e-13, torch.float32: 1e-6}


def test_zero_and_one_mix_as_one_and_e_over_their_sum():
    a, b = torch.tensor([[1.0]]), torch.tensor([[0.0, 1.0]])
    assert_close(factorised_weight(a, b), [[1 / (1 + E), E / (1 + E)]], 1e-7)
    gated = factorised_weight(a, b, base=torch.tensor([[10.0, 0.0]]))
    assert_close(gated, [[10 / (1 + E), 0]], 1e-6)
    cold = factorised_weight(a, b, temperature=0.5)
    assert_close(cold, [[1 / (1 + E**2), E**2 / (1 + E**2)]], 1e-7)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 7.0])
def test_the_factorised_weight_is_that_of_the_reference_and_its_rows_sum_to_one(temperature):
    for dtype, bound in BOUND.items():
        a, b, base = (normal(*s, dtype=dtype) for s in ((3, 11, 2), (3, 2, 5), (3, 11, 5)))
        strict = factorised_weight(a, b, temperature=temperature)
        assert_close(strict, ref.factorised_weight(as_array(a), as_array(b), temperature), bound)
        assert_close(strict.sum(-1), torch.ones(3, 11), 1e-6)
        gated = factorised_weight(a, b, temperature=temperature, base=base)
        expected = ref.factorised_weight(*map(as_array, (a, b)), temperature, as_array(base))
        assert_close(gated, expected, bound * 5)


@pytest.mark.parametrize("gated", [True, False])
def test_each_head_applies_its_own_weight(gated):
    with isolated(3):
        part = FactorizedProjection(11, 3, 5, rank=2, temperature=0.7, gated=gated).double()
    x = normal(2, 7, 11)
    base = part.base if gated else [None] * 3
    heads = [
        as_array(x)
        @ ref.factorised_weight(
            *map(as_array, (part.a[h], part.b[h])), 0.7, as_array(base[h]) if gated else None
        )
        for h in range(3)
    ]
    expected = torch.cat([torch.from_numpy(head) for head in heads], -1)
    assert_close(part(x), expected, 1e-13)
    assert_close(x @ part.weight.t(), expected, 1e-13)
    assert part.weight.shape == (15, 11)


@pytest.mark.parametrize("gated", [True, False])
def test_gradients_of_the_factorised_projection_are_those_of_finite_differences(gated):
    a = normal(2, 5, 3).requires_grad_()
    b = normal(2, 3, 4).requires_grad_()
    base = normal(2, 5, 4).requires_grad_()
    leaves = (a, b, base) if gated else (a, b)

    def weight(a, b, base=None):
        return factorised_weight(a, b, temperature=0.7, base=base)

    assert torch.autograd.gradcheck(weight, leaves, raise_exception=False)


def test_initial_values_stay_within_the_bounds_of_their_rule():
    with isolated(3):
        dense = make_projection("dense", 64, 4, 16)
        gated = make_projection("gated", 64, 4, 16, rank=8)
    xavier, each_head = math.sqrt(6 / (64 + 64)), math.sqrt(6 / (64 + 16))
    for values, limit in (
        (dense.weight, xavier),
        (gated.base, each_head),
        (gated.a, 8**-0.5),
        (gated.b, 16**-0.5),
    ):
        assert 0.95 * limit < values.abs().max() <= limit
    assert not dense.bias.any()
