"""Matrix products by either path: the same numbers, every derivative."""

import importlib
import itertools
import json
import math
import os
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad

from attnlab.errors import WrongUsage
from attnlab.parts.linear import Linear, Probe, linear, matrix_path_probe, use_matrix_path
from attnlab.parts.probes import machine
from tests.random_models import normal

from .closeness import assert_close, assert_same, product_rounding

# `attnlab.parts.linear` the attribute is the function; this is the file.
module = importlib.import_module("attnlab.parts.linear")
SHAPES = {"2-D": (509,), "3-D": (7, 83), "4-D": (3, 5, 37)}
IN, OUT = 251, 307
LONGEST = max(IN, OUT, *map(math.prod, SHAPES.values()))
SIZES = pytest.mark.parametrize("lead", SHAPES.values(), ids=SHAPES)
BIAS = pytest.mark.parametrize("has_bias", [True, False])


@pytest.fixture(autouse=True)
def _as_by_default(monkeypatch):
    monkeypatch.delenv("ATTNLAB_MATRIX_PATH", raising=False)
    monkeypatch.setattr(module._PATH, "setting", None)


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """The file of a memory that no other test has, and nothing measured yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module._PATH, "found", None)
    return tmp_path / "attnlab" / "matrix-path.json"


@pytest.fixture
def _has_onednn():
    probe = matrix_path_probe()
    if probe.ratio is None:
        pytest.skip(f"no oneDNN linear here: {probe.reason}")


def inputs(lead, *, has_bias=True, grad=True):
    x, weight = normal(*lead, IN, dtype=torch.float32), normal(OUT, IN, dtype=torch.float32)
    bias = normal(OUT, dtype=torch.float32) if has_bias else None
    assert x.numel() * OUT * 2 >= module._SMALLEST_FLOPS, "too small to leave the default path"
    return [each if each is None else each.requires_grad_(grad) for each in (x, weight, bias)]


def both_paths(compute):
    """The same computation on the two paths, each on tensors of its own."""
    results = {}
    for path in ("default", "onednn"):
        with use_matrix_path(path):
            results[path] = compute()
    return zip(results["onednn"], results["default"], strict=True)


def assert_relatively_close(actual, expected, what="oneDNN"):
    """Compare with a bound that holds for sums of up to `LONGEST` terms in any order."""
    size = expected.detach().abs().max()
    bound = LONGEST * torch.finfo(expected.dtype).eps
    assert_close(actual / size, expected / size, bound, what)


@pytest.mark.usefixtures("_has_onednn")
@SIZES
@BIAS
def test_onednn_gives_the_output_and_the_gradients_of_the_default_path(lead, has_bias):
    grad = normal(*lead, OUT, seed=3, dtype=torch.float32)

    def compute():
        leaves = inputs(lead, has_bias=has_bias)
        output = linear(*leaves)
        output.backward(grad)
        with torch.no_grad():
            silent = linear(*leaves)
        return [output, silent] + [leaf.grad for leaf in leaves if leaf is not None]

    x, weight, _ = inputs(lead, grad=False)
    rows, grads = x.reshape(-1, IN), grad.reshape(-1, OUT)
    forward, to_bias = product_rounding(rows, weight.t()), torch.ones(1, len(rows))
    factors = [(grads, weight), (grads.t(), rows), (to_bias, grads)]
    bounds = [forward, forward, *itertools.starmap(product_rounding, factors)]
    for (actual, expected), bound in zip(both_paths(compute), bounds, strict=False):
        assert_close(actual, expected, 2 * bound, "oneDNN")


def second_derivatives(*, has_bias):
    leaves = [leaf for leaf in inputs((509,), has_bias=has_bias) if leaf is not None]
    first = torch.autograd.grad(linear(*leaves).pow(3).sum(), leaves, create_graph=True)
    return torch.autograd.grad(sum(g.square().mean() for g in first), leaves)


def gradient_of(trainable):
    """Compute the gradient of the only one of the three that is trainable."""
    leaves = inputs((509,), grad=False)
    leaves[trainable].requires_grad_()
    linear(*leaves).square().sum().backward()
    return [leaves[trainable].grad]


def forward_mode():
    x, weight, bias = inputs((509,), grad=False)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        return [forward_ad.unpack_dual(linear(dual, weight, bias)).tangent]


DERIVATIVES = {
    "second": partial(second_derivatives, has_bias=True),
    "second, no bias": partial(second_derivatives, has_bias=False),
    "of the input alone": partial(gradient_of, 0),
    "of the weight alone": partial(gradient_of, 1),
    "of the bias alone": partial(gradient_of, 2),
    "forward mode": forward_mode,
}


# torch's own, at its first dual number
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated")
@pytest.mark.usefixtures("_has_onednn")
@pytest.mark.parametrize("compute", DERIVATIVES.values(), ids=DERIVATIVES)
def test_every_derivative_is_that_of_the_default_path(compute):
    for actual, expected in both_paths(compute):
        assert_relatively_close(actual, expected)


@pytest.mark.usefixtures("_has_onednn")
def test_transforms_and_other_precisions_take_the_default_path(monkeypatch):
    x, weight, bias = inputs((5, 101), grad=False)
    forbid(monkeypatch)
    with use_matrix_path("onednn"):
        looped = torch.stack([F.linear(each, weight, bias) for each in x])
        assert_close(torch.func.vmap(linear, (0, None, None))(x, weight, bias), looped, 1e-3)
        linear(x.double(), weight.double(), bias.double())
        with torch.autocast("cpu", torch.bfloat16):
            assert linear(x, weight, bias).dtype == torch.bfloat16
        linear(x[:1, :3], weight, bias)
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            linear(normal(509, IN + 1, dtype=torch.float32), weight)


def forbid(monkeypatch):
    def refuse(*_):
        raise AssertionError("the oneDNN op was called")

    monkeypatch.setattr(module, "_onednn", refuse)


def test_the_default_path_never_calls_the_op(monkeypatch):
    forbid(monkeypatch)
    leaves = inputs((509,))
    with pytest.raises(AssertionError, match="was called"), use_matrix_path("onednn"):
        linear(*leaves)
    with use_matrix_path("default"):
        assert_same(linear(*leaves), F.linear(*leaves))
        linear(*leaves).sum().backward()
    monkeypatch.setenv("ATTNLAB_MATRIX_PATH", "default")
    assert_same(linear(*leaves), F.linear(*leaves))
    monkeypatch.setenv("ATTNLAB_MATRIX_PATH", "onednn")
    with pytest.raises(AssertionError, match="was called"):
        linear(*leaves)
    with use_matrix_path("default"):  # wins over the environment
        linear(*leaves)


def test_auto_follows_the_probe(monkeypatch):
    leaves = inputs((509,), grad=False)
    forbid(monkeypatch)
    monkeypatch.setattr(module._PATH, "found", Probe(1.2, False, "told"))
    linear(*leaves)
    monkeypatch.setattr(module._PATH, "found", Probe(0.5, True, "told"))
    with pytest.raises(AssertionError, match="was called"):
        linear(*leaves)


def test_a_path_that_does_not_exist_is_refused(monkeypatch):
    fact = "must be one of auto, default, onednn; got 'mkl'"
    with pytest.raises(WrongUsage, match=fact), use_matrix_path("mkl"):
        pass
    monkeypatch.setenv("ATTNLAB_MATRIX_PATH", "mkl")
    with pytest.raises(WrongUsage, match=fact):
        linear(*inputs((509,)))


@pytest.mark.usefixtures("_has_onednn")
def test_what_the_probe_found_is_remembered_and_a_fresh_one_measures_again(memory, monkeypatch):
    matrix_path_probe()
    assert list(json.loads(memory.read_text())) == [machine()]
    memory.write_text(json.dumps({machine(): 0.5, "another machine": 2.0}))
    monkeypatch.setattr(module._PATH, "found", None)
    assert matrix_path_probe() == Probe(0.5, True, "remembered")
    assert matrix_path_probe(fresh=True).reason == "measured"
    assert json.loads(memory.read_text())["another machine"] == 2.0
    assert os.listdir(memory.parent) == [memory.name]


BROKEN = [b"", b'{"%s": "fast"}', b"[" * 100_000]


@pytest.mark.usefixtures("_has_onednn")
@pytest.mark.parametrize("content", BROKEN, ids=lambda content: content[:12].decode("latin-1"))
def test_a_corrupt_memory_does_no_harm(memory, content):
    memory.parent.mkdir()
    memory.write_bytes(content.replace(b"%s", machine().encode()))
    probe = matrix_path_probe()
    assert probe.reason == "measured"
    assert probe.ratio > 0


@pytest.mark.parametrize("obstacle", ["a file", "a folder"])
def test_a_folder_that_cannot_be_written_does_no_harm(memory, obstacle):
    # Root ignores permissions, so what stands in the way is of the wrong kind.
    if obstacle == "a file":
        memory.parent.write_text("in the way")
    else:
        memory.mkdir(parents=True)
    matrix_path_probe()
    assert_relatively_close(linear(*inputs((509,))), F.linear(*inputs((509,))))


@pytest.mark.usefixtures("memory")
def test_a_torch_without_the_op_uses_the_default(monkeypatch):
    def missing(*_):
        raise AttributeError("no such op")

    monkeypatch.setattr(module, "_onednn", missing)
    probe = matrix_path_probe()
    assert probe == Probe(None, False, "oneDNN's linear is not in this torch (AttributeError)")
    monkeypatch.setattr(module, "_onednn", lambda x, weight, bias: F.linear(x, weight, bias) * 1.01)
    wrong = matrix_path_probe(fresh=True)
    assert not wrong.is_taken
    assert "off by 1.0e-02" in wrong.reason
    linear(*inputs((509,)))


def test_linear_is_torch_linear_with_the_same_names_and_initial_values():
    torch.manual_seed(3)
    ours = Linear(7, 11)
    torch.manual_seed(3)
    theirs = torch.nn.Linear(7, 11)
    for name, value in theirs.state_dict().items():
        assert_same(ours.state_dict()[name], value)
    x = normal(2, 3, 7, dtype=torch.float32)
    assert_same(ours(x), theirs(x))
    assert Linear(7, 11, bias=False).bias is None
    assert repr(ours) == "Linear(7 -> 11, bias=True)"


@pytest.mark.usefixtures("_has_onednn")
@pytest.mark.parametrize("ratio", [0.5, 0.93])
def test_the_gradient_of_the_weight_is_the_same_whichever_path_it_takes(monkeypatch, ratio):
    monkeypatch.setattr(module._PATH, "found", Probe(ratio, True, "made up"))
    grad, x = (normal(1024, 256, seed=seed, dtype=torch.float32) for seed in range(2))
    expected = grad.double().t() @ x.double()
    with use_matrix_path("onednn"):
        bound = product_rounding(grad.t(), x)
        assert_close(module._weight_gradient(grad, x), expected, bound)
