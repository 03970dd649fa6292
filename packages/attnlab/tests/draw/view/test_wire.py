"""The wire form: every number comes back in its place and within the stated bound."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from attnlab.draw.attention import Pattern
from attnlab.draw.attention.pooled_maps import pool_head
from attnlab.draw.view import maps as view_maps
from attnlab.draw.view import view_page
from attnlab.draw.view.maps import fit_maps
from attnlab.draw.wire import pack
from attnlab.errors import WrongUsage

from ..attention.patterns import make_layers, make_pattern, words
from .reading import check_maps, read_back, read_head

ROOM = 10_000_000


def size_of(maps):
    heads = [
        head for group in maps["groups"] for layer in group["layers"] for head in layer["heads"]
    ]
    packed = [one for head in heads for kinds in [*head["maps"], head["thumbs"]] for one in kinds]
    return sum(150 + len(one["content"]) for one in packed)


def side_of(maps):
    return int(maps["groups"][0]["cells"][0])


@pytest.mark.parametrize(("levels", "largest"), [(254, 1.0), (127, 0.013), (63, 1e-6), (31, 3.0)])
def test_every_weight_comes_back_within_the_stated_bound(levels, largest):
    weights = (np.linspace(0, 1, 20_001, dtype=np.float32) * np.float32(largest))[None]
    back, bounds = read_back(pack(weights, levels))
    off = np.abs(back - weights)
    assert off.max() <= largest * (levels - 0.25) / levels**2 * (1 + 1e-6)
    assert (off <= bounds * (1 + 1e-5)).all()
    assert back[0, -1] == weights[0, -1]
    assert back[0, 0] == 0


def test_tiny_weights_numbers_below_zero_and_missing_ones_come_back_too():
    weights = np.array([[1e-39, 5e-40, 0.0], [2e-41, 1e-41, 1e-41]], np.float32)
    back, _ = read_back(pack(weights, 254))  # too small for an inverse
    assert (np.abs(back - weights) <= 0.004 * weights.max(1, keepdims=True) + 3e-45).all()
    assert back[:, 0].tolist() == weights[:, 0].tolist()
    zeros, _ = read_back(pack(np.zeros((2, 3), np.float32), 254))
    assert not zeros.any()
    numbers = np.array([[-0.5, 0.25, np.nan], [0.0, np.nan, 1e-3]], np.float32)
    packed = pack(numbers, 254)
    assert (packed["levels"], packed["zero"]) == (127, 127)
    back, bounds = read_back(packed)
    assert (np.isnan(back) == np.isnan(numbers)).all()
    assert np.nanmax(np.abs(back - numbers) - bounds) <= 1e-9
    assert back[0, 0] == -0.5


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [2, 400])
def test_exact_numbers_are_exact(kind, rows):
    numbers = np.random.default_rng(0).normal(size=(rows, 3, 5)).astype(kind)
    numbers[1, 2, 3] = np.nan
    packed = pack(numbers)
    assert (packed["kind"], packed["is_deflated"]) == (np.dtype(kind).name, rows == 400)
    back, _ = read_back(packed)
    np.testing.assert_array_equal(back, numbers.reshape(-1, 5))


@pytest.mark.parametrize(
    ("queries", "keys", "is_causal"),
    [(1, 1, True), (7, 7, True), (5, 13, False), (13, 2, False)],
)
def test_patterns_come_back_head_by_head(queries, keys, is_causal):
    patterns = [
        make_pattern(f"layers.{i}.attention.weights", 3, queries, keys, is_causal=is_causal)
        for i in range(2)
    ]
    check_maps(fit_maps(patterns, max_bytes=ROOM), patterns)


def test_any_mask_is_kept_takes_no_room_and_hides_no_weight():
    pattern, causal = make_pattern(is_causal=False), make_pattern()
    blocked = torch.zeros(8, 8, dtype=torch.bool)
    blocked[:, 6:] = True
    weights = pattern.weights.masked_fill(blocked, 0)
    masked = replace(pattern, weights=weights, blocked=blocked)
    check_maps(fit_maps([masked], max_bytes=ROOM), [masked])
    weights = causal.weights.clone()
    weights[1, 0, 5] = 0.25  # as an edit may
    edited = replace(causal, weights=weights)
    maps = fit_maps([edited], max_bytes=ROOM)
    check_maps(maps, [edited])
    values, _ = read_head(maps, 0, 0, 0, 1)
    assert values[0, 5] == pytest.approx(0.25, abs=0.003)
    assert np.isnan(values[0, 4])
    half, full = (
        fit_maps([make_pattern(heads=1, queries=200, is_causal=is_causal)], max_bytes=ROOM)
        for is_causal in (True, False)
    )
    assert size_of(half) < 0.6 * size_of(full)


@pytest.mark.parametrize("band", [1 << 20, 300])  # weights that are read at a time
def test_facts_are_those_of_the_exact_weights(band, monkeypatch):
    monkeypatch.setattr("attnlab.draw.attention.pattern._BAND", band)
    pattern = make_pattern(queries=40)
    (layer,) = fit_maps([pattern], max_bytes=ROOM)["groups"][0]["layers"]
    weights = np.asarray(pattern.weights, np.float64)
    places = np.arange(40)
    for head, packed in enumerate(layer["heads"]):
        (facts,) = packed["facts"]
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


def test_queries_that_look_at_nothing_do_not_count():
    weights = torch.zeros(1, 3, 3)
    weights[0, 1, 1] = 1.0
    for some, largest in ((weights, 1.0), (torch.zeros(1, 3, 3), None)):
        pattern = Pattern("weights", some, words(3), words(3))
        (layer,) = fit_maps([pattern], max_bytes=ROOM)["groups"][0]["layers"]
        assert layer["heads"][0]["facts"][0]["largest"] == largest


def test_what_does_not_fit_gets_coarser_and_then_pooled_and_stays_within_its_budget():
    patterns = make_layers(length=200)
    full = fit_maps(patterns, max_bytes=ROOM)
    assert (full["levels"], full["groups"][0]["cells"]) == (254, (1, 1))
    seen = []
    for share in (0.95, 0.7, 0.3, 0.1, 0.02):
        packed = fit_maps(patterns, max_bytes=int(size_of(full) * share))
        assert size_of(packed) <= size_of(full) * share
        seen.append((packed["levels"], side_of(packed)))
        if side_of(packed) == 1:
            check_maps(packed, patterns)
    assert seen == sorted(seen, key=lambda pair: (pair[1], -pair[0]))
    assert seen[0][0] < 254
    assert seen[-1][1] > seen[-2][1] > 1
    with pytest.raises(WrongUsage, match="6 heads do not fit into 100 bytes"):
        fit_maps(patterns, max_bytes=100)


@pytest.mark.parametrize(
    ("side", "is_causal"), [(1, True), (2, False), (3, True), (7, True), (7, False), (64, True)]
)
def test_pooled_maps_are_mean_and_largest_of_squares(side, is_causal, monkeypatch):
    monkeypatch.setattr("attnlab.draw.attention.pattern._BAND", 100)
    pattern = make_pattern(heads=2, queries=20, is_causal=is_causal)
    own = np.asarray(pattern.weights[1], np.float64)
    pooled = pool_head(pattern, 1, side)
    num = -(-20 // side)
    assert pooled.mean.shape == pooled.largest.shape == (num, num)
    for i in range(num):
        for j in range(num):
            square = own[i * side : (i + 1) * side, j * side : (j + 1) * side]
            if is_causal and j * side > min((i + 1) * side, 20) - 1:
                assert np.isnan(pooled.mean[i, j])
                assert np.isnan(pooled.largest[i, j])
                continue
            assert pooled.mean[i, j] == pytest.approx(square.mean(), abs=1e-7)
            assert pooled.largest[i, j] == pytest.approx(square.max(), abs=1e-7)


def test_two_recordings_are_packed_side_by_side():
    one, other = make_layers(seed=1), make_layers(seed=2)
    maps = fit_maps(one, other, max_bytes=ROOM)
    check_maps(maps, one, 0)
    check_maps(maps, other, 1)
    changes = [np.asarray(b.weights - a.weights) for a, b in zip(one, other, strict=True)]
    values, bounds = read_back(maps["groups"][0]["layers"][1]["heads"][2]["thumbs"][2])
    shown = ~np.isnan(values)
    assert (shown == np.tril(np.ones((8, 8), bool))).all()
    assert (np.abs(values - changes[1][2])[shown] <= bounds[shown] + 1e-6).all()
    assert maps["change"] == pytest.approx(np.abs(changes).max())


def test_kinds_of_attention_are_groups_of_layers():
    sites = ["encoder.layers.0.attention.weights", "decoder.layers.0.attention.weights"]
    sites += ["decoder.layers.1.attention.weights", "decoder.layers.0.cross_attention.weights"]
    patterns = [make_pattern(site, is_causal=False) for site in sites]
    groups = fit_maps(patterns, max_bytes=ROOM)["groups"]
    assert [(group["name"], [layer["layer"] for layer in group["layers"]]) for group in groups] == [
        ("Encoder attention", ["0"]),
        ("Decoder attention", ["0", "1"]),
        ("Decoder cross-attention", ["0"]),
    ]


def _with(value):
    pattern = make_pattern()
    weights = pattern.weights.clone()
    weights[2, 4, 3] = value
    return replace(pattern, weights=weights)


@pytest.mark.parametrize(
    ("patterns", "others", "words_of_error"),
    [
        ([], [], "nothing to show"),
        ([_with(math.nan)], [], "head 0.2: the weight of query 4 on key 3 is nan"),
        ([_with(math.inf)], [], "is inf"),
        ([_with(-0.5)], [], "head 0.2 has negative weights"),
        (make_layers(2), make_layers(1), "only one has: layers.1.attention.weights"),
        (make_layers(length=8), make_layers(length=9), "only maps of one shape can be compared"),
    ],
)
def test_what_cannot_be_shown_is_an_error_that_says_where(patterns, others, words_of_error):
    with pytest.raises(WrongUsage, match=words_of_error):
        fit_maps(patterns, others, max_bytes=ROOM)


def test_a_budget_that_is_not_kept_is_refused(monkeypatch):
    monkeypatch.setattr(view_maps, "_text_size", lambda packed: 0)
    monkeypatch.setattr(view_maps, "_ladder", lambda variants, max_bytes: [(254, 1)])
    with pytest.raises(WrongUsage, match=r"the page takes .* bytes, more than the 300,000 allowed"):
        view_page(make_layers(2, 6, 300, is_causal=False), max_bytes=300_000)
