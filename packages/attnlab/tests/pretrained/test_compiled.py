"""Models compiled by torch.compile, whole or in part, run as they were written while hooks are
installed; attention in TorchScript is refused."""

from collections.abc import Callable

import pytest
import torch
from parts.planting import planted
from torch import Tensor, nn

import attnlab
from attnlab.errors import AttnlabError, CouldNotRun
from tests.pretrained.written import Attention, Layers, SoftmaxAttention, X


def _compiled(model: nn.Module) -> Callable[[Tensor], Tensor]:
    return torch.compile(model, backend="eager")


def _compiled_in_place(model: nn.Module) -> Callable[[Tensor], Tensor]:
    model.compile(backend="eager")
    return model


def _one_layer_compiled(model: nn.Module) -> Callable[[Tensor], Tensor]:
    model.layers[0] = torch.compile(model.layers[0], backend="eager")
    return model


def _forward_compiled(model: nn.Module) -> Callable[[Tensor], Tensor]:
    model.layers[1].forward = torch.compile(model.layers[1].forward, backend="eager")
    return model


def _compiled_around(model: nn.Module) -> Callable[[Tensor], Tensor]:
    def step(x: Tensor) -> Tensor:
        return model(x)

    return torch.compile(step, backend="eager")


@torch.no_grad()
@pytest.mark.parametrize("kind", [Attention, SoftmaxAttention])
@pytest.mark.parametrize(
    "compiled",
    [_compiled, _compiled_in_place, _one_layer_compiled, _forward_compiled, _compiled_around],
)
def test_compiled_code_runs_as_it_was_written_while_hooks_are_installed(
    compiled: Callable[[nn.Module], Callable[[Tensor], Tensor]], kind: type[nn.Module]
) -> None:
    model = Layers(kind)
    plain = model(X)
    fast = compiled(model)
    assert torch.equal(fast(X), plain)  # compiled before anything is recorded
    lab = attnlab.load(fast if isinstance(fast, nn.Module) else model, example=(X,))
    with attnlab.record(lab, "*attention.weights") as recording:
        assert torch.equal(fast(X), plain)
    assert sorted(recording) == [f"layers.{layer}.attention.weights" for layer in (0, 1)]
    with attnlab.edit(lab, attnlab.ZeroHead(layer=1, head=0)) as certificate:
        edited = fast(X)
    assert not torch.equal(edited, plain)
    assert certificate.holds
    assert torch._dynamo.eval_frame._stance.stance == "default"


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("which", ["", "layers.1"])
def test_attention_in_torchscript_is_refused_by_name(which: str) -> None:
    model = Layers(SoftmaxAttention)
    if which:
        model.layers[1] = torch.jit.trace(model.layers[1], X)
    found = model if which else torch.jit.trace(model, X)
    with pytest.raises(CouldNotRun, match=r"TorchScript.*load the model that it was made from"):
        attnlab.load(found, example=(X,))


@torch.no_grad()
def test_a_model_compiled_while_it_is_recorded_computes_the_same_afterwards() -> None:
    model = Layers(SoftmaxAttention)
    lab, plain = attnlab.load(model, example=(X,)), model(X)
    with attnlab.record(lab, "*attention.weights") as recording:
        fast = torch.compile(model, backend="eager")
        assert torch.equal(fast(X), plain)
    assert len(recording) == 2
    assert torch.equal(fast(X), plain)


def test_compiled_code_that_runs_as_such_under_hooks_is_seen() -> None:
    with (
        planted("attnlab.pretrained.pass_state", '"force_eager"', '"default"'),
        pytest.raises((AssertionError, AttributeError, AttnlabError)),
    ):
        test_compiled_code_runs_as_it_was_written_while_hooks_are_installed(
            _compiled, SoftmaxAttention
        )
