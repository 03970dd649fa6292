"""Tiles of the deep zoom are the pooled explicit weights; similarities are those of the explicit
matrices."""

import pytest
import torch

from attnlab.errors import WrongUsage
from attnlab.look.summaries import Zoom, head_similarity, summarize
from attnlab.parts.attend import attention_scores, attention_weights
from attnlab.parts.heads import share_heads
from attnlab.parts.masks import sliding_window_mask
from attnlab.sites import AttentionCall

WIDE = torch.float64
ALL = slice(0, 5)


def check_tiles(num_queries: int, num_keys: int, side: int, mask) -> None:
    """Hold every tile of every level against the explicit weights."""
    query, key = torch.randn(2, num_queries, 8, dtype=WIDE), torch.randn(2, num_keys, 8, dtype=WIDE)
    zoom = Zoom(query, key, mask, side=side)
    explicit = sliding_window_mask(num_queries, mask, num_keys) if isinstance(mask, int) else mask
    scores = attention_scores(query, key, explicit)
    weights, allowed = attention_weights(scores), (scores[1] != float("-inf")).long()
    for level in range(zoom.num_levels):
        rows, columns = zoom.grid(level)
        cell, seen = 2**level, torch.zeros(num_queries, num_keys)
        for row in range(rows):
            for column in range(columns):
                tile = zoom.tile(level, row, column, head=1)
                seen[tile.queries, tile.keys] += 1

                def over(whole, function, tile=tile, cell=cell):
                    rows = whole[tile.queries, tile.keys].split(cell, 0)
                    return torch.stack(
                        [torch.stack([function(x) for x in row.split(cell, 1)]) for row in rows]
                    )

                assert (tile.mean - over(weights[1], torch.mean)).abs().max() < 1e-12
                assert (tile.max - over(weights[1], torch.amax)).abs().max() < 1e-12
                assert torch.equal(tile.allowed, over(allowed, torch.sum))
                assert tile.cell == cell
        assert (seen == 1).all()
    assert zoom.grid(zoom.num_levels - 1) == (1, 1)


@pytest.mark.parametrize(
    ("queries", "keys", "mask"), [(50, 50, "causal"), (37, 61, None), (45, 45, 9), (1, 70, None)]
)
def test_every_tile_of_every_level_is_the_pooled_explicit_weights(queries, keys, mask):
    check_tiles(queries, keys, 16, mask)


def test_a_dead_row_is_zero_in_the_zoom_too():
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[2] = False
    tile = Zoom(torch.randn(4, 3), torch.randn(4, 3), mask).tile(0, 0, 0)
    assert tile.mean[2].tolist() == [0, 0, 0, 0]
    assert tile.allowed.tolist() == [[1] * 4, [1] * 4, [0] * 4, [1] * 4]
    assert torch.allclose(tile.mean.sum(-1), torch.tensor([1.0, 1, 0, 1]))


def test_the_top_of_the_zoom_is_the_map_of_the_summary():
    query, key = torch.randn(300, 16), torch.randn(300, 16)
    zoom, found = Zoom(query, key, "causal", side=75), summarize(query, key, "causal", tiles=75)
    tile = zoom.tile(2, 0, 0)
    assert torch.allclose(tile.mean, found.map_mean, atol=1e-6)
    assert torch.allclose(tile.max, found.map_max, atol=1e-6)


def test_an_attention_that_shares_keys_is_zoomed_into_by_its_query_heads():
    query, key = torch.randn(2, 6, 20, 8), torch.randn(2, 3, 20, 8)
    mask = torch.rand(2, 6, 20, 20) < 0.8
    weights = attention_weights(attention_scores(query, share_heads(key, 6), mask))
    call = AttentionCall(query, key, key, mask, None, is_open=False)
    for head in ((0, 0), (1, 3), (1, 5)):
        tile = Zoom.of(call, side=10).tile(0, 1, 0, head=head)
        assert torch.allclose(tile.mean, weights[head][10:, :10], atol=1e-6)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda zoom: zoom.tile(2, 0, 0, head=0), "there are levels 0 to 1; got 2"),
        (lambda zoom: zoom.tile(0, 2, 0, head=0), r"level 0 has 2 × 2 tiles; got \(2, 0\)"),
        (lambda zoom: zoom.tile(0, 0, -1, head=0), r"got \(0, -1\)"),
        (lambda zoom: zoom.tile(0, 0, 0), r"leading axes \(3\); got \(\)"),
        (lambda zoom: zoom.part(slice(0, 30), ALL, head=0), r"queries must .* 20.*slice\(0, 30"),
        (lambda zoom: zoom.part(ALL, slice(-3, 5), head=0), r"keys must .* 20.*slice\(-3, 5"),
        (lambda zoom: zoom.part(ALL, slice(5, 5), head=0), "not empty"),
        (lambda zoom: zoom.part(3, ALL, head=0), "got 3"),
        (lambda zoom: zoom.part(ALL, ALL, head=0, cell=0), "cell must be an integer"),
        (lambda zoom: zoom.tile(0, 0, 0, head=3), r"leading axes \(3\); got 3"),
        (lambda _: Zoom(torch.zeros(2, 3), torch.zeros(2, 3), side=0), "side must be an integer"),
        (lambda _: head_similarity(torch.zeros(4, 3), torch.zeros(4, 3)), "needs a head axis"),
    ],
)
def test_a_tile_that_is_not_there_is_told(ask, said):
    with pytest.raises(WrongUsage, match=said):
        ask(Zoom(torch.randn(3, 20, 4), torch.randn(3, 20, 4), side=10))


def check_similarity(batch: int, heads: int, num_queries: int, num_keys: int, mask) -> None:
    """Hold the similarities against those of the explicit matrices."""
    query, key = (
        torch.randn(batch, heads, num_queries, 8, dtype=WIDE),
        torch.randn(batch, heads, num_keys, 8, dtype=WIDE),
    )
    flat = attention_weights(attention_scores(query, key, mask)).flatten(-2)
    expected = torch.nn.functional.cosine_similarity(flat.unsqueeze(-2), flat.unsqueeze(-3), dim=-1)
    assert (head_similarity(query, key, mask) - expected).abs().max() < 1e-12


@pytest.mark.parametrize("mask", [None, "causal", torch.rand(2, 5, 30, 40) < 0.5])
def test_similarities_are_those_of_the_explicit_matrices(mask, monkeypatch):
    check_similarity(2, 5, 30, 40, mask)
    monkeypatch.setattr("attnlab.look.summaries.row_blocks._CPU_NUMBERS", 1000)
    check_similarity(2, 5, 30, 40, mask)


def test_a_head_is_like_itself_a_copy_and_a_dead_one_is_like_nobody():
    query, key = torch.randn(3, 12, 4), torch.randn(3, 12, 4)
    query[1], key[1] = query[0], key[0]
    mask = torch.ones(3, 12, 12, dtype=torch.bool)
    mask[2] = False
    found = head_similarity(query, key, mask)
    expected = torch.tensor([[1.0, 1, 0], [1, 1, 0], [0, 0, 0]], dtype=WIDE)
    assert torch.allclose(found, expected, atol=1e-6)


def test_a_head_with_nan_is_like_none_that_can_be_told():
    query, key = torch.randn(3, 5, 4), torch.randn(3, 7, 4)
    query[1, 2, 0] = float("nan")
    found = head_similarity(query, key)
    assert found[1].isnan().all()
    assert found[:, 1].isnan().all()
    assert found[0, 2] > 0


@pytest.mark.parametrize("head", [None, 0.0, "0", (0, 0), 2, True])
def test_a_head_that_is_none_is_refused(head):
    with pytest.raises(WrongUsage, match="a head is an index into the leading axes"):
        Zoom(torch.zeros(2, 3, 4), torch.zeros(2, 3, 4)).tile(0, 0, 0, head=head)
