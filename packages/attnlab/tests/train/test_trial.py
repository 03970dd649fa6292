"""A layout whose first step is wrong is not taken, whatever made it wrong."""

import pytest
import torch

from attnlab.errors import WrongUsage
from attnlab.simd.build import source_of
from attnlab.train import TrainConfig
from attnlab.train.layouts.choose import choose_layout
from attnlab.train.layouts.vmap import vmapped

from .cases import Case, decoder, drawn, models_of, next_token, tokens

CASE = Case(decoder(), next_token, lambda source: (tokens(source),))


def chosen(layout, told, optimiser="adamw", **options):
    configs = [TrainConfig(steps=5_000, optimiser=optimiser, clip=0.5)] * 3
    return choose_layout(
        models_of(CASE, dtype=torch.float32),
        configs,
        CASE.loss,
        noise=[0] * 3,
        example=drawn(CASE.batch, 2),
        layout=layout,
        tell=told.append,
        **options,
    )


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
@pytest.mark.parametrize("layout", ["simd", "vmap"])
def test_a_layout_that_is_right_is_taken_and_is_as_it_was(layout, optimiser):
    told = []
    found = chosen(layout, told, optimiser, engine="eager" if layout != "simd" else "auto")
    assert found.name == layout
    own = models_of(CASE, dtype=torch.float32)
    for name, value in found.parameters().items():
        expected = torch.stack([dict(m.named_parameters())[name].detach() for m in own])
        torch.testing.assert_close(value, expected)
    begun = ("first.", "second.", "steps")
    assert not any(v.any() for name, v in found.state().items() if name.startswith(begun))


def test_a_layout_that_doubles_its_gradient_is_refused(monkeypatch):
    def wrong(models, configs, loss, example):
        return vmapped(models, configs, lambda model, rows: 2 * loss(model, rows), example)

    monkeypatch.setattr("attnlab.train.layouts.choose.vmapped", wrong)
    with pytest.raises(WrongUsage, match="its first step differs from PyTorch's"):
        chosen("vmap", [])


def test_compiled_code_that_is_wrong_is_refused_and_said(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def wrong(defined, function):
        assert "exp(" in function
        return source_of(defined, function.replace("exp(", "sqrt(", 1))

    monkeypatch.setattr("attnlab.train.layouts.simd.source_of", wrong)
    told = []
    found = chosen("simd", told, engine="compiled")
    assert not found.is_compiled
    assert "its first step differs from PyTorch's" in told[0]
