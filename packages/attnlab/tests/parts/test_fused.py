"""Our kernel for attention without weights: torch's numbers, what `attend` promises."""

import importlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from attnlab.errors import CouldNotRun
from attnlab.native import attention, compiler_name, vector_bytes, vectors
from attnlab.parts.attend import attend
from attnlab.parts.fused import (
    attention_path_in_use,
    attention_path_probe,
    native_output,
    use_attention_path,
)
from attnlab.parts.heads import join_heads
from attnlab.parts.probes import Probe
from tests import reference as ref
from tests.planting import noticed_in_kernel
from tests.random_models import normal
from tests.sampling import sampled

from .cases import random_case
from .closeness import assert_close, assert_same

module = importlib.import_module("attnlab.parts.fused")
SINGLE = torch.float32
LONG = (1, 2, 300, 16)  # just long enough for our kernel, when the fewest scores are as many


@pytest.fixture(autouse=True)
def _fresh(tmp_path_factory, monkeypatch):
    monkeypatch.delenv("ATTNLAB_ATTENTION_PATH", raising=False)
    monkeypatch.setattr(module._PATH, "found", None)
    monkeypatch.setattr(module._PATH, "setting", None)
    monkeypatch.setattr(module, "_FEWEST_SCORES", 1)


@pytest.fixture
def native(monkeypatch):
    """Our kernel computes whatever it can, however short."""
    if compiler_name() is None:
        pytest.skip("there is no C++ compiler here")
    monkeypatch.setattr(module, "_FEWEST", 1)
    monkeypatch.setattr(module, "_pays", lambda mask: True)
    calls = []
    monkeypatch.setattr(attention, "attend_rows", _counted(attention.attend_rows, calls))
    with use_attention_path("native"):
        module._PATH.is_on()  # compiles and compares, the first time
        del calls[:]
        yield calls


def _counted(function, calls):
    def count(*arguments, **named):
        calls.append(arguments)
        return function(*arguments, **named)

    return count


def looked(query, key, value, mask=None, **options):
    return attend(query, key, value, mask, need_weights=False, **options).output


def tensors(*shape, dtype=SINGLE):
    return (normal(*shape, seed=seed, dtype=dtype) for seed in range(3))


def check_cases(drawn, largest=130):
    done = 0
    for seed in drawn:
        case = random_case(seed, largest=largest)
        output = looked(*case.tensors(SINGLE), case.torch_mask(), scale=case.scale)
        assert_close(output, ref.attention(*case[:5]).output, 5e-6, "our kernel's output")
        done += case.query.size > 0
    return done


def test_random_problems_agree_with_the_float64_reference(native):
    assert check_cases(range(200)) == len(native) >= 150


@pytest.mark.slow
def test_thousands_of_random_problems_agree_with_the_float64_reference(native):
    assert check_cases(range(1000, 6000), 600) == len(native)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("width", sampled([16, 32], 1))
def test_narrower_vectors_compute_the_same(width, monkeypatch):
    if width > vector_bytes():
        pytest.skip("no vectors of this width here")
    monkeypatch.setattr(attention, "vectors", lambda: vectors(width=width))
    monkeypatch.setenv("CXXFLAGS", "-O1")  # as right, and compiled in less time
    library = attention.library.__wrapped__()
    monkeypatch.setattr(attention, "library", lambda: library)
    check_cases(range(30))


@pytest.mark.usefixtures("native")
def test_its_error_is_not_larger_than_torchs():
    errors = {"ours": [], "torch": []}
    for width, value_width, queries, keys in (
        (1, 256, 9, 700),
        (7, 9, 33, 65),
        (64, 64, 500, 500),
        (100, 31, 64, 1000),
        (256, 1, 130, 257),
        (16, 17, 257, 64),
    ):
        for size in (0.1, 1.0, 4.0):
            query = normal(1, 2, queries, width, dtype=SINGLE) * size
            key = normal(1, 2, keys, width, seed=1, dtype=SINGLE)
            value = normal(1, 2, keys, value_width, seed=2, dtype=SINGLE)
            right = F.scaled_dot_product_attention(query.double(), key.double(), value.double())
            found = {
                "ours": looked(query, key, value),
                "torch": F.scaled_dot_product_attention(query, key, value),
            }
            for name, output in found.items():
                errors[name].append(float((output - right).square().mean().sqrt()))
    assert np.mean(np.divide(errors["ours"], errors["torch"])) < 1.2, errors


def test_the_same_bits_for_any_threads_any_batch_and_any_place_in_it(native):
    query, key, value = tensors(3, 4, 333, 20)
    for mask in (None, "causal", torch.ones(333, 333).tril(7).bool()):
        whole = looked(query, key, value, mask)
        torch.set_num_threads(3)
        try:
            assert_same(looked(query, key, value, mask), whole)
        finally:
            torch.set_num_threads(1)
        assert_same(looked(query[1:2, 2:3], key[1:2, 2:3], value[1:2, 2:3], mask), whole[1:2, 2:3])
    assert_same(looked(query[:, :, 50:90], key, value), looked(query, key, value)[:, :, 50:90])
    assert len(native) == 3 * 3 + 2


def test_leading_axes_of_query_key_and_value_broadcast_together(native):
    query = normal(3, 1, 40, 8, dtype=SINGLE)
    key = normal(2, 50, 8, dtype=SINGLE)
    value = normal(1, 50, 5, dtype=SINGLE)
    for q, k, v in (
        (query, key, value),
        (query[0, 0], key, value),
        (query[0, 0], key[0], normal(2, 4, 50, 5, dtype=SINGLE)),
    ):
        expected = (q.double() @ k.double().mT * 8**-0.5).softmax(-1) @ v.double()
        assert_close(looked(q, k, v), expected, 1e-5)
    assert len(native) == 3


@pytest.mark.usefixtures("native")
def test_causal_queries_are_the_last_positions_and_see_nothing_of_what_follows():
    query, key, value = tensors(2, 3, 210, 11)
    whole = looked(query, key, value, "causal")
    assert_same(looked(query[:, :, 150:], key, value, "causal"), whole[:, :, 150:])
    key[:, :, 130:], value[:, :, 130:] = 1e3, 1e3
    assert_same(looked(query, key, value, "causal")[:, :, :130], whole[:, :, :130])


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("wild", [float("nan"), float("inf"), 3e38])
def test_what_stands_in_a_blocked_key_or_value_reaches_nobody(wild):
    query, key, value = tensors(1, 2, 80, 8)
    mask = torch.ones(80, dtype=torch.bool)
    mask[40] = False
    clean = looked(query, key, value, mask.expand(80, 80))
    key[:, :, 40], value[:, :, 40] = wild, wild
    assert_close(looked(query, key, value, mask.expand(80, 80)), clean, 1e-5)
    value[:, :, 7] = float("nan")
    assert looked(query, key, value).isnan().all()


@pytest.mark.usefixtures("native")
def test_a_query_that_may_look_at_nothing_gets_zeros_and_a_finite_bias_blocks_nobody():
    query, key, value = tensors(1, 1, 70, 8)
    mask = torch.zeros(70, 70)
    mask[3], mask[5] = -torch.inf, torch.finfo(SINGLE).min
    found = looked(query, key, value, mask)
    assert_same(found[0, 0, 3], torch.zeros(8))
    assert_close(found[0, 0, 5], value[0, 0].mean(0), 1e-6)
    assert_close(found[0, 0, 6:], looked(query, key, value)[0, 0, 6:], 0.0)


def test_joining_the_heads_of_its_output_moves_nothing(native):
    output = looked(*tensors(2, 3, 40, 8))
    assert len(native) == 1
    assert join_heads(output).data_ptr() == output.data_ptr()


def transformed(query, key, value):
    return torch.func.vmap(looked)(query, key, value)


def traced(query, key, value):
    return torch.jit.trace(lambda q: looked(q, key, value), query, check_trace=False)(query)


def tangent(query, key, value):
    with (
        forward_ad.dual_level(),
        pytest.raises(NotImplementedError),
    ):  # torch's has no such derivative, and says so
        looked(forward_ad.make_dual(query, query), key, value)


class Watching(TorchDispatchMode):
    """Sees every operation of torch."""

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        return function(*arguments, **named or {})


def watched(query, key, value):
    with Watching():
        looked(query, key, value)


def on_a_device(query, key, value):
    with torch.device("meta"):
        looked(query, key, value)


def autocast(query, key, value):
    with torch.autocast("cpu", torch.bfloat16):
        looked(query, key, value)


LEFT_ALONE = {
    "gradients": lambda q, k, v: looked(q, k, v.requires_grad_()).sum().backward(),
    "a mask with gradients": lambda q, k, v: looked(
        q, k, v, torch.zeros(1, 300, requires_grad=True)
    ),
    "doubles": lambda q, k, v: looked(q.double(), k.double(), v.double()),
    "halves": lambda q, k, v: looked(q.half(), k.half(), v.half()),
    "a bias for each pair": lambda q, k, v: looked(q, k, v, torch.zeros(300, 300)),
    "dropout": lambda q, k, v: looked(q, k, v, dropout=0.1),
    "weights": attend,
    "no keys": lambda q, k, v: looked(q, k[..., :0, :], v[..., :0, :]),
    "no queries": lambda q, k, v: looked(q[..., :0, :], k, v),
    "few queries": lambda q, k, v: looked(q[..., :100, :], k, v),
    "few keys": lambda q, k, v: looked(q, k[..., :100, :], v[..., :100, :]),
    "a huge scale": lambda q, k, v: looked(q, k, v, scale=1e30),
    "negated views": lambda q, k, v: looked(torch._neg_view(q), k, v),
    "vmap": transformed,
    "tracing": traced,
    "forward mode": tangent,
    "dispatch mode": watched,
    "function mode": on_a_device,
    "autocast": autocast,
}


@pytest.mark.filterwarnings("ignore:.*torch.jit", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("call", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_what_it_is_not_for_is_left_to_torch(call, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("our kernel was called")

    monkeypatch.setattr(attention, "attend_rows", refuse)
    monkeypatch.setattr(module, "_reason_against", lambda: None)
    with use_attention_path("native"):
        with pytest.raises(AssertionError, match="was called"):
            looked(*tensors(*LONG))
        call(*tensors(*LONG))


def test_short_attentions_never_ask_whether_there_is_a_compiler(monkeypatch):
    monkeypatch.setattr(attention, "library", None)
    monkeypatch.setattr(module, "compiler_name", None)
    looked(*tensors(2, 4, 100, 8))
    with pytest.raises(TypeError):
        looked(*tensors(*LONG))


def test_without_a_compiler_torch_computes_and_only_who_insists_is_told(monkeypatch):
    query, key, value = tensors(*LONG)
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(attention, "library", attention.library.__wrapped__)
    monkeypatch.setattr(module, "_reason_against", module._reason_against.__wrapped__)
    assert_same(looked(query, key, value), F.scaled_dot_product_attention(query, key, value))
    assert attention_path_in_use() == "default"
    assert "no C++ compiler was found" in attention_path_probe().reason
    with (
        pytest.raises(CouldNotRun, match='the attention path "native" cannot be taken: no C'),
        use_attention_path("native"),
    ):
        looked(query, key, value)


def test_when_memory_runs_out_torch_computes(monkeypatch):
    def full(*_, **__):
        raise MemoryError

    query, key, value = tensors(*LONG)
    monkeypatch.setattr(attention, "attend_rows", full)
    monkeypatch.setattr(module, "_reason_against", lambda: None)
    with use_attention_path("native"):
        assert_same(looked(query, key, value), F.scaled_dot_product_attention(query, key, value))


def test_auto_follows_the_probe_and_the_setting_wins_over_the_environment(monkeypatch, native):
    for ratio, is_taken in ((1.2, False), (0.5, True)):
        monkeypatch.setattr(module._PATH, "found", Probe(ratio, is_taken, "told"))
        with use_attention_path("auto"):
            looked(*tensors(*LONG))
            assert attention_path_in_use() == ("native" if is_taken else "default")
        assert len(native) == is_taken
    monkeypatch.setenv("ATTNLAB_ATTENTION_PATH", "default")
    looked(*tensors(*LONG))
    assert len(native) == 2
    monkeypatch.setattr(module._PATH, "setting", None)
    looked(*tensors(*LONG))
    assert len(native) == 2


# What is wrong, the old snippet of the C++, the new one.
FAULTS = [
    (
        "a tile's last value is left out",
        "k < keys; ++k) {\n    V e[",
        "k < keys - 1; ++k) {\n    V e[",
    ),
    ("only the last tile is gathered", "[i * VECTORS + v] += sum", "[i * VECTORS + v] = sum"),
    (
        "the last channels are left out",
        "for (; i < w.value_width; ++i) add",
        "for (; false; ++i) add",
    ),
    ("a dead row is divided by its zero", "sums.total[lane] == 0 ? 0 :", "false ? 0 :"),
    (
        "a finite bias blocks",
        "std::max(R(bias * R(1.4426950408889634)), -FLT_MAX)",
        "R(bias * R(1.4426950408889634))",
    ),
]


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("fault", sampled(FAULTS, 1), ids=[row[0] for row in FAULTS])
def test_a_fault_planted_in_the_kernel_shows(fault):
    with noticed_in_kernel(*fault[1:]):
        check_cases(range(40))
        test_a_query_that_may_look_at_nothing_gets_zeros_and_a_finite_bias_blocks_nobody()


def test_a_kernel_that_computes_something_else_is_never_taken(monkeypatch):
    monkeypatch.setattr(module, "_reason_against", module._reason_against.__wrapped__)
    monkeypatch.setattr(module, "native_output", lambda *a: native_output(*a[:-1], a[-1] * 1.001))
    probe = attention_path_probe(fresh=True)
    assert not probe.is_taken
    assert compiler_name() is None or "its result is off by" in probe.reason
