"""The key/value cache: appending is concatenating, and step by step is the same as all at once."""

from functools import partial

import numpy as np
import pytest
import torch

from attnlab.parts.cache import Cache, LayerCache
from attnlab.parts.masks import padding_mask
from tests.random_models import NORM_PLACES, make_attention, make_block, normal

from .closeness import assert_close, assert_same

BOUND = {torch.float64: 1e-12, torch.float32: 1e-5}
LENGTH = 23  # beyond the first 16 positions, for which there is room from the start
CHUNKS = {"one": [1] * 23, "some": [5, 1, 2, 12, 3], "all": [23], "prompt": [17, *[1] * 6]}
POSITION = pytest.mark.parametrize("position", ["none", "rotary", "alibi"])


@pytest.mark.parametrize("batch", [2, 0])
def test_appending_is_concatenating(batch):
    cache, rng = LayerCache(), np.random.default_rng(0)
    keys, values = torch.zeros(batch, 3, 0, 5), torch.zeros(batch, 3, 0, 7)
    for step in range(40):
        length = int(rng.integers(0, 4))
        key = normal(batch, 3, length, 5, seed=step, dtype=torch.float32)
        value = normal(batch, 3, length, 7, seed=step + 999, dtype=torch.float32)
        keys, values = torch.cat((keys, key), -2), torch.cat((values, value), -2)
        for held in (cache.append(key, value), cache.keys_and_values()):
            assert_same(held[0], keys)
            assert_same(held[1], values)
        assert cache.length == keys.shape[-2]
    assert cache.length > 50


def test_room_is_doubled_so_that_appending_rarely_copies():
    cache, rooms = LayerCache(), set()
    for _ in range(1000):
        cache.append(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))
        rooms.add(cache._keys.data_ptr())
    assert cache._keys.shape[-2] < 2200
    assert len(rooms) <= 8


def test_a_model_has_one_cache_for_each_part_which_keeps_its_precision():
    cache = Cache()
    assert cache.layer("layers.0.attention") is cache.layer("layers.0.attention")
    assert cache.layer("layers.0.attention") is not cache.layer("layers.1.attention")
    cache.advance(3)
    cache.advance(2)
    assert cache.length == 5
    for dtype in (torch.float64, torch.bfloat16):
        key, value = (torch.ones(1, 1, 3, width, dtype=dtype) for width in (2, 5))
        assert {each.dtype for each in LayerCache().append(key, value)} == {dtype}


def step_by_step(run, x, chunks):
    """Feed x in chunks, and lay the outputs one after the other."""
    return torch.cat([run(chunk) for chunk in x.split(chunks, dim=1)], 1)


@torch.no_grad()
@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS)
@POSITION
def test_heads_step_by_step_give_the_full_causal_pass(position, chunks):
    for dtype, bound in BOUND.items():
        part = make_attention(position=position, num_kv_heads=2, dtype=dtype)
        x = normal(2, LENGTH, 28, dtype=dtype)
        full = part(x, mask="causal", need_weights=True)
        for need_weights in (True, False):
            cache, outputs, seen = LayerCache(), [], 0
            for chunk in x.split(chunks, dim=1):
                result = part(chunk, mask="causal", cache=cache, need_weights=need_weights)
                outputs.append(result.output)
                end = seen + chunk.shape[1]
                if need_weights:
                    weights = full.weights[:, :, seen:end, :end]
                    assert_close(result.weights, weights, bound, f"cached weights, {dtype}")
                seen = end
            assert_close(torch.cat(outputs, 1), full.output, bound, f"cached heads, {dtype}")


@torch.no_grad()
@pytest.mark.parametrize("is_decoder", [False, True])
@POSITION
@pytest.mark.parametrize("norm_place", NORM_PLACES)
def test_blocks_step_by_step_give_the_full_causal_pass(norm_place, position, is_decoder):
    for dtype, bound in BOUND.items():
        options = {"norm_place": norm_place, "position": position, "num_kv_heads": 2}
        block = make_block(dtype=dtype, is_decoder=is_decoder, **options)
        x = normal(2, LENGTH, 28, dtype=dtype)
        memory = normal(2, 7, 28, seed=1, dtype=dtype) if is_decoder else None
        rest = {
            "mask": "causal",
            "memory": memory,
            "memory_mask": padding_mask([3, 7], 7) if is_decoder else None,
        }
        cache = Cache()
        stepped = step_by_step(
            partial(block, cache=cache, name="layers.0", **rest), x, CHUNKS["some"]
        )
        assert_close(stepped, block(x, **rest), bound, f"cached block, {dtype}")
        assert cache.layer("layers.0.attention").length == LENGTH
        assert cache.layer("layers.0.cross_attention").length == (7 if is_decoder else 0)


@torch.no_grad()
@pytest.mark.parametrize("num_kv_heads", [4, 2, 1])
def test_cross_attention_projects_its_memory_once_and_gives_the_same(num_kv_heads):
    part = make_attention(num_kv_heads=num_kv_heads)
    x = normal(2, 5, 28)
    memory = normal(2, 7, 28, seed=1)
    calls = []
    part.key.register_forward_hook(lambda *_: calls.append(1))
    cache = LayerCache()
    mask = padding_mask([3, 7], 7)
    stepped = step_by_step(
        lambda chunk: part(chunk, memory, mask=mask, cache=cache).output, x, [1, 1, 3]
    )
    assert calls == [1]
    assert_close(stepped, part(x, memory, mask=mask).output, 1e-12)


@torch.no_grad()
def test_two_blocks_of_one_cache_do_not_mix_their_keys():
    first, second = make_block(), make_block(norm_place="post")
    x, cache = normal(2, 5, 28), Cache()

    def run(chunk, cache=None):
        return second(
            first(chunk, mask="causal", cache=cache, name="a"), mask="causal", cache=cache, name="b"
        )

    assert_close(step_by_step(lambda chunk: run(chunk, cache), x, [2, 1, 2]), run(x), 1e-12)
