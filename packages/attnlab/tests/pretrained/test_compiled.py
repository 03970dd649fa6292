"""Models compiled by torch.compile, whole or in part."""

import pytest
import torch
from torch import nn

import attnlab
from attnlab.errors import CouldNotRun
from tests.planting import noticed
from tests.pretrained.written import Attention, Layers, SoftmaxAttention, X

HOOKED: list[None] = []  # while there is something in it, nothing may be compiled


def backend(graph, inputs):
    assert not HOOKED, "something was compiled while hooks were installed"
    return graph.forward


@pytest.fixture(autouse=True)
def _nothing_is_hooked():
    yield
    HOOKED.clear()


def whole(model):
    return torch.compile(model, backend=backend)


def in_place(model):
    model.compile(backend=backend)
    return model


def one_layer(model):
    model.layers[0] = torch.compile(model.layers[0], backend=backend)
    return model


def one_forward(model):
    model.layers[1].forward = torch.compile(model.layers[1].forward, backend=backend)
    return model


def around(model):
    def step(x):
        return model(x)

    return torch.compile(step, backend=backend)


@torch.no_grad()
@pytest.mark.parametrize(
    ("compiled", "kind"),
    [(way, SoftmaxAttention) for way in (whole, in_place, one_layer, one_forward, around)]
    + [(whole, Attention)],
)
def test_compiled_code_runs_as_it_was_written_while_hooks_are_installed(compiled, kind):
    model = Layers(kind)
    plain = model(X)
    fast = compiled(model)
    assert torch.equal(fast(X), plain)  # compiled before anything is recorded
    HOOKED.append(None)
    lab = attnlab.load(fast if isinstance(fast, nn.Module) else model, example=(X,))
    assert lab.foreign is model
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
def test_attention_in_torchscript_is_refused_by_name(which):
    model = Layers(SoftmaxAttention)
    if which:
        model.layers[1] = torch.jit.trace(model.layers[1], X)
    found = model if which else torch.jit.trace(model, X)
    with pytest.raises(CouldNotRun, match="TorchScript"):
        attnlab.load(found, example=(X,))


@torch.no_grad()
def test_a_model_compiled_while_it_is_recorded_computes_the_same_afterwards():
    model = Layers(SoftmaxAttention)
    lab, plain = attnlab.load(model, example=(X,)), model(X)
    with attnlab.record(lab, "*attention.weights") as recording:
        HOOKED.append(None)
        fast = whole(model)
        assert torch.equal(fast(X), plain)
    HOOKED.clear()
    assert len(recording) == 2
    assert torch.equal(fast(X), plain)


def test_compiled_code_that_runs_as_such_under_hooks_is_seen():
    with noticed("pretrained.pass_state", '"force_eager"', '"default"'):
        test_compiled_code_runs_as_it_was_written_while_hooks_are_installed(
            one_layer, SoftmaxAttention
        )
