"""Causality: the check sees leaks of every kind, and says so when it cannot tell."""

import math

import pytest
import torch

from attnlab.look import largest_change, largest_leak
from attnlab.sites import SitedModule
from tests.random_models import POSITIONS, new_model

TOKENS = torch.randint(11, (4, 7), generator=torch.Generator().manual_seed(0))


def decoder(**fields):
    settings = {"vocab_size": 11, "max_length": 9, "d_model": 12, "num_heads": 3, **fields}
    return new_model("decoder", **settings)


def leaking(model, leak):
    """Add a leak behind the model's second block."""
    whole = model.layers[1].forward
    model.layers[1].forward = lambda x, **options: (lambda y: y + leak(y))(whole(x, **options))
    return model


@pytest.mark.parametrize(
    ("positions", "projections"), list(zip(POSITIONS, ["dense", "gated"] * 3, strict=True))
)
def test_a_decoder_passes_both_checks_to_the_last_bit(positions, projections):
    model = decoder(positions=positions, projections=projections)
    assert largest_leak(model, TOKENS) == 0.0
    assert largest_change(model, TOKENS) == 0.0


def test_a_mean_over_the_sequence_is_a_leak_to_both():
    model = leaking(decoder(), lambda y: 1e-3 * y.mean(1, keepdim=True))
    assert largest_leak(model, TOKENS) > 0
    assert largest_change(model, TOKENS) > 0


def test_the_leak_is_the_largest_derivative_of_one_output_by_one_input():
    generator = torch.Generator().manual_seed(0)
    table, mixing, weight = (
        torch.randn(shape, generator=generator) for shape in ((11, 5), (7, 7), (5, 3))
    )

    class Linear(SitedModule):
        sites = ("embedding",)

        def forward(self, tokens):
            return mixing @ self.visit("embedding", table[tokens]) @ weight

    expected = float(mixing.triu(1).abs().max() * weight.abs().max())
    assert largest_leak(Linear(), TOKENS) == pytest.approx(expected, rel=1e-5)


def test_a_leak_without_a_gradient_is_seen_by_the_change():
    model = leaking(decoder(), lambda y: 1e-3 * y.mean(1, keepdim=True).detach())
    assert largest_leak(model, TOKENS) == 0.0
    assert largest_change(model, TOKENS) > 0


def test_a_model_that_gives_nan_does_not_pass():
    model = leaking(decoder(), lambda y: y * math.nan)
    assert math.isnan(largest_leak(model, TOKENS))
    assert math.isnan(largest_change(model, TOKENS))


def test_the_site_of_the_embedding_can_be_named():
    class Wrapped(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.inner = model

        def forward(self, tokens):
            return self.inner(tokens)

    assert largest_leak(Wrapped(decoder()), TOKENS, site="inner.embedding") == 0.0
    leaky = leaking(decoder(), lambda y: 1e-3 * y.mean(1, keepdim=True))
    assert largest_leak(Wrapped(leaky), TOKENS, site="inner.embedding") > 0
