"""A layout whose first step is wrong is not taken, whatever made it wrong."""

import pytest
import torch
import torch.nn.functional as F

from attnlab.errors import WrongUsage
from attnlab.models import Decoder, DecoderConfig
from attnlab.seeds import generator, isolated
from attnlab.simd.build import source_of
from attnlab.train import TrainConfig
from attnlab.train.layouts.choose import choose_layout
from attnlab.train.layouts.vmap import vmapped

CONFIG = DecoderConfig(vocab_size=5, max_length=6, d_model=8, num_heads=2, d_ff=8)


def models(num=3):
    found = []
    for seed in range(num):
        with isolated(seed):
            found.append(Decoder(CONFIG))
    return found


def draw(first, end, num=3):
    return [
        (torch.randint(5, (end - first, 4, 6), generator=generator(seed, first)),)
        for seed in range(num)
    ]


def loss(model, rows):
    return F.cross_entropy(model(rows[:, :-1]).transpose(1, 2), rows[:, 1:])


def chosen(layout, told, optimiser="adamw", **options):
    configs = [TrainConfig(steps=5_000, optimiser=optimiser, clip=0.5)] * 3
    return choose_layout(
        models(),
        configs,
        loss,
        noise=[0] * 3,
        example=draw(0, 2),
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
    own = models()
    for name, value in found.parameters().items():
        torch.testing.assert_close(
            value, torch.stack([dict(m.named_parameters())[name].detach() for m in own])
        )
    state = found.state()
    assert not any(
        value.any()
        for name, value in state.items()
        if name.startswith(("first.", "second.", "steps"))
    )


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
