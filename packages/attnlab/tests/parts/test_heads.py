"""Heads: splitting, joining, sharing; the whole part against the reference and torch."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from attnlab.parts.heads import (
    MultiHeadAttention,
    join_heads,
    multi_head_attention,
    share_heads,
    split_heads,
)
from attnlab.parts.masks import both, causal_mask, padding_mask
from attnlab.parts.positions import Alibi
from tests import reference as ref
from tests.random_models import make_attention, normal

from .closeness import as_array, assert_close, assert_same

BOUND = {torch.float64: 1e-12, torch.float32: 1e-5}
PATHS = pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])


def test_the_first_head_gets_the_first_channels():
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
    assert_same(split_heads(x, 2), [[[1, 2], [5, 6]], [[3, 4], [7, 8]]])
    assert_same(join_heads(split_heads(x, 2)), x)


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (0, 2, 1, 3), (1, 4, 0, 2)])
def test_joining_undoes_splitting(shape):
    batch, heads, length, width = shape
    x = normal(batch, length, heads * width)
    assert split_heads(x, heads).shape == shape
    assert_same(join_heads(split_heads(x, heads)), x)


def test_neighbouring_query_heads_share_a_key_head():
    x = torch.arange(3.0).reshape(1, 3, 1, 1)
    assert share_heads(x, 6).flatten().tolist() == [0, 0, 1, 1, 2, 2]
    assert share_heads(x, 3) is x


def as_reference(part, x, context, mask, num_kv_heads):
    """The same attention by the oracle, from the part's own weights."""
    projections = {"query": part.query, "key": part.key, "value": part.value, "output": part.output}
    weights = [as_array(p.weight) for p in projections.values()]
    biases = {
        name: as_array(p.bias)
        for name, p in projections.items()
        if getattr(p, "bias", None) is not None
    }
    heads = part.layout.num_heads
    return ref.multi_head_attention(
        as_array(x), as_array(context), *weights, heads, num_kv_heads, biases, mask, part.scale
    )


@PATHS
@pytest.mark.parametrize(
    ("num_kv_heads", "projections"),
    [(6, "dense"), (3, "dense"), (2, "dense"), (1, "dense"), (3, "gated"), (2, "strict")],
)
def test_any_number_of_shared_heads_is_the_reference(num_kv_heads, projections, need_weights):
    options = {"projections": projections, "rank": 3, "num_kv_heads": num_kv_heads}
    for (dtype, bound), scale in itertools.product(BOUND.items(), (None, 0.3)):
        part = make_attention(30, 6, dtype=dtype, scale=scale, bias=scale is None, **options)
        x, memory = normal(2, 7, 30, dtype=dtype), normal(2, 11, 30, seed=1, dtype=dtype)
        for context in (None, memory):
            seen = x if context is None else context
            length = seen.shape[1]
            bias = normal(6, 7, length).to(dtype)
            for mask in (None, causal_mask(7, length), padding_mask([3, 0], length), bias):
                result = part(x, context, mask=mask, need_weights=need_weights)
                numbers = None if mask is None else mask.numpy()
                expected = as_reference(part, x, seen, numbers, num_kv_heads)
                assert_close(result.output, expected.output, bound, f"heads, {dtype}")
                if need_weights:
                    assert_close(result.weights, expected.weights, bound, f"weights, {dtype}")


@pytest.fixture
def _slow_torch_path():
    """torch's fast path is another computation, with bugs of its own."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


@pytest.mark.usefixtures("_slow_torch_path")
@PATHS
@pytest.mark.parametrize(("d_model", "heads"), [(28, 4), (15, 3), (11, 1)])
def test_our_heads_are_those_of_torch_with_the_same_weights(d_model, heads, need_weights):
    part = make_attention(d_model, heads)
    twin = nn.MultiheadAttention(d_model, heads, batch_first=True).double().eval()
    inner = (part.query, part.key, part.value)
    state = {f"out_proj.{name}": getattr(part.output, name) for name in ("weight", "bias")}
    state |= {f"in_proj_{n}": torch.cat([getattr(p, n) for p in inner]) for n in ("weight", "bias")}
    twin.load_state_dict(state)
    x, memory = normal(2, 7, d_model), normal(2, 5, d_model, seed=99)
    allowed = normal(7, 5) > -0.5
    allowed[:, 0] = True  # torch has NaN where a query may look at nothing
    padding, bias = padding_mask([5, 3], 5), normal(7, 5, seed=7)
    blocked = {"attn_mask": ~allowed, "key_padding_mask": ~padding[:, 0, 0]}  # True for blocked
    for mask, theirs in (
        *((None, {}), (bias, {"attn_mask": bias})),
        (both(allowed, padding), blocked),
    ):
        ours = part(x, memory, mask=mask, need_weights=need_weights)
        output, weights = twin(
            x, memory, memory, need_weights=need_weights, average_attn_weights=False, **theirs
        )
        assert_close(ours.output, output, 1e-12, "torch's heads")
        if need_weights:
            assert_close(ours.weights, weights, 1e-12, "weights of torch's heads")


@pytest.mark.parametrize("need_weights", [True, False])
def test_alibi_in_the_heads_is_the_bias_of_the_reference(need_weights):
    part = make_attention(30, 6, position="alibi", num_kv_heads=3)
    x = normal(2, 7, 30)
    bias = ref.alibi_bias(6, 7, 7)
    padding = padding_mask([4, 7], 7)
    for mask, as_bias in (
        (None, bias),
        ("causal", np.where(ref.causal_mask(7), bias, -np.inf)),
        (padding, np.where(padding.numpy(), bias, -np.inf)),
        (normal(7, 7), bias + normal(7, 7).numpy()),
    ):
        result = part(x, mask=mask, need_weights=need_weights)
        assert_close(result.output, as_reference(part, x, x, as_bias, 3).output, 1e-12)


@pytest.mark.parametrize("num_kv_heads", [6, 2])
def test_rotary_in_the_heads_turns_queries_and_keys_as_the_reference_does(num_kv_heads):
    part, x = make_attention(36, 6, position="rotary", num_kv_heads=num_kv_heads), normal(2, 7, 36)
    query, key, value = (as_array(p(x)) for p in (part.query, part.key, part.value))
    query = ref.rotary(ref.split_heads(query, 6), np.arange(7))
    key = ref.rotary(ref.split_heads(key, num_kv_heads), np.arange(7))
    value = ref.split_heads(value, num_kv_heads)
    shared = np.arange(6) // (6 // num_kv_heads)
    expected = ref.attention(query, key[:, shared], value[:, shared], ref.causal_mask(7))
    result = part(x, mask="causal", need_weights=True)
    assert_close(result.weights, expected.weights, 1e-12)
    assert_close(
        result.output, part.output(torch.from_numpy(ref.join_heads(expected.output))), 1e-12
    )


def test_dropout_acts_in_training_only_and_never_on_the_returned_weights():
    part, x = make_attention(dropout=0.4), normal(2, 7, 28)
    plain = make_attention()(x, need_weights=True)
    for need_weights in (True, False):
        part.train()
        torch.manual_seed(0)
        noisy = part(x, need_weights=need_weights)
        assert (noisy.output - plain.output).abs().max() > 1e-2
        if need_weights:
            assert_same(noisy.weights, plain.weights)
        part.eval()
        assert_close(part(x, need_weights=need_weights).output, plain.output, 1e-12)


def test_what_a_padded_position_holds_reaches_no_other():
    part, x = make_attention(dtype=torch.float32), normal(2, 7, 28, dtype=torch.float32)
    mask = padding_mask([4, 7], 7)
    for need_weights in (True, False):
        for poison in (float("nan"), float("inf"), 1e30):
            poisoned = x.clone()
            poisoned[0, 4:] = poison
            clean, dirty = (part(y, mask=mask, need_weights=need_weights) for y in (x, poisoned))
            assert_close(dirty.output[0, :4], clean.output[0, :4], 1e-5)
            assert_close(dirty.output[1], clean.output[1], 1e-5)


def test_what_is_not_asked_for_is_the_usual():
    part = multi_head_attention(28, 4)
    parts = {name: getattr(part, name) for name in ("query", "key", "value", "output")}
    for usual in (part, MultiHeadAttention(**parts, num_heads=4)):
        assert (usual.dropout, usual.scale, usual.position) == (0.0, None, None)
        assert usual.layout == (4, 4)
    assert all(projection.bias is not None for projection in parts.values())
    assert part(normal(1, 3, 28, dtype=torch.float32)).weights is None
    bare = multi_head_attention(28, 4, bias=False)
    assert [name for name, _ in bare.named_parameters() if "bias" in name] == []
    for given, temperature in (({}, 1.0), ({"temperature": 0.5}, 0.5)):
        factorized = multi_head_attention(28, 4, projections="strict", rank=3, **given)
        assert factorized.query.temperature == factorized.value.temperature == temperature


def test_the_part_prints_what_it_is():
    assert "num_heads=4, num_kv_heads=2, dropout=0.1" in repr(
        multi_head_attention(28, 4, num_kv_heads=2, dropout=0.1)
    )
    assert isinstance(make_attention(position="alibi").position, Alibi)
