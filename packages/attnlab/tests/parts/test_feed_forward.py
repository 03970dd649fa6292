"""The feed-forward part against the reference, for each activation."""

import pytest
import torch

from attnlab.parts.feed_forward import FeedForward
from attnlab.seeds import isolated
from tests import reference as ref
from tests.random_models import normal

from .closeness import as_array, assert_close, assert_same

BOUND = {torch.float64: 1e-12, torch.float32: 5e-6}


def make(activation, *, dtype=torch.float64, dropout=0.0):
    with isolated(3):
        return FeedForward(7, 11, activation=activation, dropout=dropout).to(dtype)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_two_layers_and_an_activation_agree_with_the_reference(activation):
    for dtype, bound in BOUND.items():
        part, x = make(activation, dtype=dtype), normal(2, 3, 7, dtype=dtype)
        numbers = (part.inner.weight, part.outer.weight, part.inner.bias, part.outer.bias)
        expected = ref.feed_forward(as_array(x), *map(as_array, numbers), activation)
        for with_gradients in (True, False):
            before = x.clone()
            with torch.set_grad_enabled(with_gradients):
                assert_close(part(x), expected, bound, f"feed-forward, {dtype}")
            assert_same(x, before, "the input afterwards")


def test_swiglu_agrees_with_the_reference():
    for dtype, bound in BOUND.items():
        part, x = make("swiglu", dtype=dtype), normal(2, 3, 7, dtype=dtype)
        for layer in (part.gate, part.inner, part.outer):
            torch.nn.init.zeros_(layer.bias)
        numbers = (part.gate.weight, part.inner.weight, part.outer.weight)
        assert_close(
            part(x), ref.swiglu(as_array(x), *map(as_array, numbers)), bound, f"swiglu, {dtype}"
        )


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
def test_each_position_is_treated_by_itself_and_dropout_acts_in_training_only(activation):
    part, x = make(activation, dropout=0.5), normal(2, 3, 7)
    torch.manual_seed(0)
    assert (part(x) - make(activation)(x)).abs().max() > 1e-3
    part.eval()
    assert_same(part(x), make(activation)(x))
    assert_close(part(x)[1, 2], part(x[1, 2]), 1e-14)
    assert torch.autograd.gradcheck(part, x.requires_grad_(), raise_exception=False)


def test_a_hook_on_the_inner_layer_keeps_what_it_saw_also_without_gradients():
    part, x = make("gelu"), normal(2, 3, 7)
    seen = []
    handle = part.inner.register_forward_hook(lambda module, inputs, output: seen.append(output))
    with torch.no_grad():
        hooked = part(x)
        handle.remove()
        assert_same(seen[0], part.inner(x))
        assert_same(hooked, part(x))
