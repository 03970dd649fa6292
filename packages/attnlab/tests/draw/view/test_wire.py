"""The wire form: every weight comes back in its place and within the stated bound, and the budget
holds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from attnlab.draw.attention import Pattern
from attnlab.draw.attention.pooled_maps import pool_head
from attnlab.draw.view import wire
from attnlab.draw.view.quantize import dequantize, error_bound, quantize
from attnlab.errors import WrongUsage

from ..attention.patterns import make_layers, make_pattern, words
from .reading import check_packed, inflate, read_back

ROOM = 10_000_000


def side_of(packed: wire.Packed) -> int:
    return int(packed.manifest["groups"][0]["cells"][0])


@pytest.mark.parametrize("levels", [255, 127, 63, 31])
@pytest.mark.parametrize("largest", [1.0, 0.013, 1e-6, 3.0])
def test_every_weight_comes_back_within_the_stated_bound(levels: int, largest: float) -> None:
    weights = (np.linspace(0, 1, 200_001, dtype=np.float32) * np.float32(largest))[None]
    top, codes = quantize(weights, levels)
    back = dequantize(top, codes, levels)
    off = np.abs(back.astype(np.float64) - weights)
    assert off.max() <= error_bound(largest, levels) * (1 + 1e-6)
    assert (off <= largest * (codes + 0.25) / levels**2 * (1 + 1e-5)).all()
    assert back[0, -1] == weights[0, -1]
    assert back[0, 0] == 0


def test_weights_too_small_for_an_inverse_come_back_too() -> None:
    weights = np.array([[1e-39, 5e-40, 0.0], [2e-41, 1e-41, 1e-41]], np.float32)
    top, codes = quantize(weights, 255)
    assert (np.abs(dequantize(top, codes, 255) - weights) <= 0.004 * top[:, None] + 3e-45).all()
    assert codes[:, 0].tolist() == [255, 255]


def test_a_row_of_zeros_is_zeros() -> None:
    top, codes = quantize(np.zeros((2, 3), np.float32), 255)
    assert not top.any()
    assert not codes.any()


@pytest.mark.parametrize(
    ("queries", "keys", "is_causal"),
    [(1, 1, True), (7, 7, True), (7, 7, False), (5, 13, False), (13, 2, False)],
)
def test_patterns_come_back_head_by_head(queries: int, keys: int, is_causal: bool) -> None:
    patterns = [
        make_pattern(f"layers.{i}.attention.weights", 3, queries, keys, is_causal=is_causal)
        for i in range(2)
    ]
    check_packed(wire.pack(patterns, max_bytes=ROOM), patterns)


def test_maps_of_several_bands_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_TILE_CELLS", 50)
    patterns = make_layers(length=17)
    packed = wire.pack(patterns, max_bytes=ROOM)
    assert packed.manifest["groups"][0]["band_rows"] == 2
    check_packed(packed, patterns)


def test_any_mask_is_kept_and_alike_masks_once() -> None:
    pattern = make_pattern(is_causal=False)
    blocked = torch.zeros(8, 8, dtype=torch.bool)
    blocked[:, 6:] = True
    weights = pattern.weights.masked_fill(blocked, 0)
    patterns = [
        replace(pattern, site=f"layers.{i}.attention.weights", weights=weights, blocked=blocked)
        for i in (0, 1)
    ]
    packed = wire.pack(patterns, max_bytes=ROOM)
    check_packed(packed, patterns)
    assert [name for name in packed.tiles if name.startswith("mask")] == ["mask.0"]


def test_the_masked_half_is_not_stored() -> None:
    packed = wire.pack([make_pattern(heads=1, queries=100)], max_bytes=ROOM)
    assert len(inflate(packed, "0.0.0.0.0.0")) == 4 * 100 + 100 * 101 // 2


def test_a_blocked_cell_with_weight_is_shown_and_not_hidden() -> None:
    pattern = make_pattern()
    weights = pattern.weights.clone()
    weights[1, 0, 5] = 0.25
    edited = replace(pattern, weights=weights)
    packed = wire.pack([edited], max_bytes=ROOM)
    check_packed(packed, [edited])
    values, _ = read_back(packed, 0, 0, 0, 1)
    assert values[0, 5] == pytest.approx(0.25, abs=0.003)
    assert np.isnan(values[0, 4])


def test_facts_are_those_of_the_exact_weights() -> None:
    pattern = make_pattern(queries=40)
    (layer,) = wire.pack([pattern], max_bytes=ROOM).manifest["groups"][0]["layers"]
    weights = np.asarray(pattern.weights, np.float64)
    places = np.arange(40)
    for head, facts in enumerate(layer["facts"][0]):
        own = weights[head]
        entropy = -(own * np.log(np.where(own > 0, own, 1))).sum(-1)
        expected = {
            "entropy": entropy.mean(),
            "effective_keys": np.exp(entropy).mean(),
            "largest": own.max(-1).mean(),
            "first": own[:, 0].mean(),
            "own": own[places, places].mean(),
            "previous": own[places[1:], places[:-1]].sum() / 40,
            "distance": (own * np.abs(places[:, None] - places)).sum(-1).mean(),
        }
        assert facts == pytest.approx(expected, rel=1e-5)


def test_queries_that_look_at_nothing_do_not_count() -> None:
    weights = torch.zeros(1, 3, 3)
    weights[0, 1, 1] = 1.0
    (layer,) = wire.pack(
        [Pattern("weights", weights, words(3), words(3))], max_bytes=ROOM
    ).manifest["groups"][0]["layers"]
    assert layer["facts"][0][0]["largest"] == 1.0
    nothing = Pattern("weights", torch.zeros(1, 3, 3), words(3), words(3))
    (layer,) = wire.pack([nothing], max_bytes=ROOM).manifest["groups"][0]["layers"]
    assert layer["facts"][0][0]["largest"] is None


def test_what_does_not_fit_gets_coarser_and_then_pooled_and_stays_within_its_budget() -> None:
    patterns = make_layers(length=200)
    full = wire.pack(patterns, max_bytes=ROOM)
    assert (full.manifest["levels"], full.manifest["groups"][0]["cells"]) == (255, (1, 1))
    seen = []
    for share in (0.95, 0.7, 0.3, 0.1, 0.02):
        packed = wire.pack(patterns, max_bytes=int(full.size * share))
        assert packed.size <= full.size * share
        seen.append((packed.manifest["levels"], side_of(packed)))
        if side_of(packed) == 1:
            check_packed(packed, patterns)
    assert seen == sorted(seen, key=lambda pair: (pair[1], -pair[0]))
    assert seen[0][0] < 255
    assert seen[-1][1] > seen[-2][1] > 1
    with pytest.raises(WrongUsage, match="6 heads do not fit into 100 bytes"):
        wire.pack(patterns, max_bytes=100)


@pytest.mark.parametrize("side", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("is_causal", [True, False])
def test_pooled_maps_are_mean_and_largest_of_squares(
    side: int, is_causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnlab.draw.attention.pattern._BAND", 100)
    pattern = make_pattern(heads=2, queries=20, is_causal=is_causal)
    own = np.asarray(pattern.weights[1], np.float64)
    pooled = pool_head(pattern, 1, side)
    num = -(-20 // side)
    assert pooled.mean.shape == pooled.largest.shape == (num, num)
    for i in range(num):
        for j in range(num):
            square = own[i * side : (i + 1) * side, j * side : (j + 1) * side]
            assert pooled.mean[i, j] == pytest.approx(square.mean(), abs=1e-7)
            assert pooled.largest[i, j] == pytest.approx(square.max(), abs=1e-7)
            hidden = is_causal and j * side > min((i + 1) * side, 20) - 1
            assert (pooled.hidden is not None and bool(pooled.hidden[i, j])) == hidden


def test_two_recordings_are_packed_side_by_side() -> None:
    one, other = make_layers(seed=1), make_layers(seed=2)
    packed = wire.pack(one, other, max_bytes=ROOM)
    check_packed(packed, one, 0)
    check_packed(packed, other, 1)
    codes = np.frombuffer(inflate(packed, "thumbs.0"), np.uint8).reshape(2, 3, 3, 8, 8)
    change = np.asarray(other[1].weights[2] - one[1].weights[2], np.float64)
    shown = codes[1, 2, 2] != 255
    assert (shown == np.tril(np.ones((8, 8), bool))).all()
    expected = 127 + 127 * np.sign(change) * np.sqrt(np.abs(change))
    assert np.abs(codes[1, 2, 2] - expected)[shown].max() <= 0.51


def test_kinds_of_attention_are_groups_of_layers() -> None:
    sites = ["encoder.layers.0.attention.weights", "decoder.layers.0.attention.weights"]
    sites += ["decoder.layers.1.attention.weights", "decoder.layers.0.cross_attention.weights"]
    patterns = [make_pattern(site, is_causal=False) for site in sites]
    groups = wire.pack(patterns, max_bytes=ROOM).manifest["groups"]
    assert [(group["name"], [layer["layer"] for layer in group["layers"]]) for group in groups] == [
        ("Encoder attention", ["0"]),
        ("Decoder attention", ["0", "1"]),
        ("Decoder cross-attention", ["0"]),
    ]


def _with(pattern: Pattern, value: float) -> Pattern:
    weights = pattern.weights.clone()
    weights[2, 4, 3] = value
    return replace(pattern, weights=weights)


@pytest.mark.parametrize(
    ("make", "words_of_error"),
    [
        (lambda: ([], []), "nothing to show"),
        (
            lambda: ([_with(make_pattern(), float("nan"))], []),
            "head 0.2: the weight of query 4 on key 3 is nan",
        ),
        (lambda: ([_with(make_pattern(), float("inf"))], []), "is inf"),
        (lambda: ([_with(make_pattern(), -0.5)], []), "head 0.2 has negative weights"),
        (lambda: (make_layers(2), make_layers(1)), "only one has: layers.1.attention.weights"),
        (
            lambda: (make_layers(length=8), make_layers(length=9)),
            "only maps of one shape can be compared",
        ),
    ],
)
def test_what_cannot_be_shown_is_an_error_that_says_where(make: Any, words_of_error: str) -> None:
    patterns, others = make()
    with pytest.raises(WrongUsage, match=words_of_error):
        wire.pack(patterns, others, max_bytes=ROOM)
