"""Parts of recordings, tiles, and recordings side by side."""

import re

import pytest
import torch

from attnlab.errors import WrongUsage
from attnlab.look import record
from attnlab.look.recording import kept_call
from attnlab.parts.attend import attention_scores, attention_weights
from attnlab.parts.heads import share_heads
from attnlab.sites import installed
from tests.hooks import Change
from tests.random_models import new_model

TOKENS = torch.tensor([[1, 2, 3, 0, 2], [3, 2, 1, 0, 1], [0, 0, 1, 1, 2]])
WEIGHTS = "layers.1.attention.weights"


@pytest.fixture(scope="module")
def model():
    heads = {"d_model": 16, "num_heads": 4, "num_kv_heads": 2, "positions": "alibi"}
    return new_model("decoder", vocab_size=4, max_length=300, **heads)


def recorded(model, patterns="*", tokens=TOKENS, **options):
    with torch.no_grad(), record(model, patterns, **options) as recording:
        model(tokens, mask=torch.tensor([True, False, True, True, True])[: tokens.shape[1]])
    return recording


@pytest.fixture(scope="module")
def recording(model):
    return recorded(model, gradients=None)


def test_tiles_are_cut_out_of_the_whole(recording):
    for name in ("weights", "scores", "mask"):
        site = f"layers.1.attention.{name}"
        whole = recording[site]
        whole = whole.expand(3, 4, 5, 5)
        for row, head in ((0, 0), (2, 3), (1, 2)):
            part = {"queries": slice(1, 4), "keys": slice(2, None)}
            tile = recording.tile(site, head=head, row=row, **part)
            torch.testing.assert_close(tile, whole[row, head, 1:4, 2:], atol=1e-6, rtol=0)
        if name != "mask":
            torch.testing.assert_close(recording.tile(site, row=1), whole[1], atol=1e-6, rtol=0)


def test_weights_made_block_by_block_are_those_made_at_once(model, monkeypatch):
    tokens = torch.randint(0, 4, (2, 211), generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), record(model, ["*weights", "*scores"]) as recording:
        model(tokens)
    whole = {site: recording[site] for site in recording}
    for block in (7 * 2 * 4 * 211, 2 * 4 * 211 * 210):
        monkeypatch.setattr(kept_call, "_BLOCK", block)
        for site in recording:
            torch.testing.assert_close(recording[site], whole[site], atol=1e-6, rtol=1e-6)
        tile = recording.tile(WEIGHTS, head=3, row=1, queries=slice(13, 200), keys=slice(5, 100))
        torch.testing.assert_close(tile, whole[WEIGHTS][1, 3, 13:200, 5:100], atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("broken", [False, True])
def test_causal_weights_are_made_as_attend_makes_them(broken, dtype, monkeypatch):
    source = torch.Generator().manual_seed(0)
    query = torch.randn(2, 6, 31, 8, generator=source).to(dtype)
    key = torch.randn(2, 3, 43, 8, generator=source).to(dtype)
    if broken:
        key[0, 1, 40, 3], query[1, 2, 5, 0] = float("nan"), float("inf")
    call = kept_call.KeptCall(query, key, kept_call.KeptMask("causal", 31, 43, query.device), 0.5)
    scores = attention_scores(query, share_heads(key, 6), "causal", scale=0.5)
    monkeypatch.setattr(kept_call, "_BLOCK", 2 * 6 * 43 * 4)
    for what, whole in (("scores", scores), ("weights", attention_weights(scores))):
        call = call._replace(what=what)
        torch.testing.assert_close(call.make(), whole, rtol=1e-6, atol=1e-6, equal_nan=True)
        for queries, keys in ((slice(3, 17), slice(2, 30)), (slice(1), slice(20, None))):
            part = call.make(1, 4, queries, keys)
            expected = whole[1:2, 4:5, queries, keys]
            torch.testing.assert_close(part, expected, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"head": 4}, "head must be from 0 to 3; got 4"),
        ({"head": "first"}, "head must be from 0 to 3; got 'first'"),
        ({"row": 3}, "row must be from 0 to 2; got 3"),
        ({"queries": slice(0, 6)}, r"queries must be a slice within 0 to 5.*got slice\(0, 6, None"),
        ({"keys": slice(-2, None)}, r"keys must be a slice within 0 to 5.*got slice\(-2, None"),
        ({"keys": slice(2, 2)}, "not empty"),
        ({"queries": slice(0, 4, 2)}, "of step 1"),
        ({"queries": 3}, r"queries must be a slice such as slice\(0, 5\); got 3"),
    ],
)
def test_a_tile_that_is_not_there_is_an_error(recording, asked, message):
    for name in ("weights", "mask"):
        with pytest.raises(WrongUsage, match=message):
            recording.tile(f"layers.1.attention.{name}", **asked)
    with pytest.raises(WrongUsage, match="masks have tiles; logits has none"):
        recording.tile("logits")


def test_selected_layers_heads_and_rows_are_those_of_the_whole(recording):
    part = recording.select("*attention.*", layers=1, heads=[3, 1], rows=[2, 0])
    assert {site.split(".")[1] for site in part} == {"1"}
    assert torch.equal(part[WEIGHTS], recording[WEIGHTS][[2, 0]][:, [3, 1]])
    whole = recording["layers.1.attention.heads"]
    assert torch.equal(part["layers.1.attention.heads"], whole[[2, 0]][:, [3, 1]])
    keys = recording["layers.1.attention.key"]  # of two heads that look, each
    assert torch.equal(part["layers.1.attention.key"], keys[[2, 0]][:, [1, 0]])
    assert "layers.1.attention.output" not in part
    mask = recording["layers.1.attention.mask"]
    assert torch.equal(part["layers.1.attention.mask"], mask[[3, 1]])
    assert part.tokens(WEIGHTS, 0) == recording.tokens(WEIGHTS, 2)
    assert torch.equal(part.blocked(WEIGHTS), recording.blocked(WEIGHTS, 2))
    assert part.select(heads=0, rows=1).shape(WEIGHTS) == (1, 1, 5, 5)
    assert torch.equal(recording.select("logits", rows=1)["logits"], recording["logits"][[1]])
    assert list(recording.select(["logits", "*.1.*weights"])) == ["logits", WEIGHTS]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"patterns": "layers.9.*"}, r"no site matches 'layers\.9\.\*'; .*nown: "),
        ({"layers": 2}, r"no site is in layer 2; recorded layers: \[0, 1\]"),
        ({"heads": 4}, r"a head of layers\.0\.attention\.query must be from 0 to 3; got 4"),
        ({"rows": [0, 3]}, "a row of embedding must be from 0 to 2; got 3"),
        ({"rows": []}, "expected a number, or several; got"),
        ({"heads": [True]}, "expected a number, or several; got"),
        ({"patterns": "logits", "heads": 0}, "none of the selected sites has heads; leave heads="),
        ({"patterns": "logits", "layers": 0}, "no site is in layer 0; recorded layers: none"),
    ],
)
def test_a_part_that_is_not_there_is_an_error(recording, asked, message):
    with pytest.raises(WrongUsage, match=message):
        recording.select(**asked)


def test_nothing_can_be_selected_of_nothing(model):
    with record(model, "*") as recording, pytest.raises(WrongUsage, match="nothing has been"):
        recording.select("*")


def test_comparing_finds_the_largest_difference_and_its_place(model, recording):
    def shift(value):
        value = value.clone()
        value[1, 2, 3] += 0.5
        return value

    site = "layers.1.residual_before"
    with installed(model, Change(site, shift)):
        other = recorded(model, [site, WEIGHTS, "logits"])
    found = recording.compare(other)
    assert set(found.sites) == {site, WEIGHTS, "logits"}
    assert found.sites[site].largest == pytest.approx(0.5)
    assert found.sites[site].mean == pytest.approx(0.5 / (3 * 5 * 16))
    assert found.sites[site].where == (1, 2, 3)
    assert found.largest == max(each.largest for each in found.sites.values())
    assert "embedding" in found.only_here
    assert found.only_there == ()
    lines = str(found).splitlines()
    assert lines[-1].startswith("only here: embedding, ")
    assert f"{site} " in str(found)
    assert "largest 0.5 at (1, 2, 3)" in str(found)


def test_a_recording_is_not_different_from_itself_also_where_it_is_blocked(recording):
    found = recording.compare(recording)
    assert found.largest == 0.0
    assert set(found.sites) == set(recording)


def test_nan_is_the_largest_difference(recording, model):
    spoil = Change("logits", lambda value: value.masked_fill(torch.eye(5, 4).bool(), float("nan")))
    with installed(model, spoil):
        other = recorded(model, ["embedding", "logits"])
    found = recording.compare(other)
    assert found.largest != found.largest
    assert found.sites["embedding"].largest == 0.0


def test_recordings_that_cannot_be_compared_are_an_error(model, recording):
    with pytest.raises(WrongUsage, match=r"embedding has shape \(3, 5, 16\) here and \(1, 3, 16\)"):
        recording.compare(recorded(model, tokens=TOKENS[:1, :3]))
    with pytest.raises(WrongUsage, match="no site in common: embedding here, logits there"):
        recorded(model, "embedding").compare(recorded(model, "logits"))
    with pytest.raises(WrongUsage, match="compare takes another recording; got a dict"):
        recording.compare({})


def test_gradients_and_shapes_go_along(model):
    with record(model, WEIGHTS, gradients=True) as recording:
        model(TOKENS).sum().backward()
    part = recording.select(heads=2, rows=1)
    assert torch.equal(part.gradient(WEIGHTS), recording.gradient(WEIGHTS)[1:2, 2:3])
    assert part.shape(WEIGHTS) == (1, 1, 5, 5)
    assert part.nbytes < recording.nbytes / 2
    assert repr(part).startswith(f"Recording of decoder: 1 site, {part.nbytes:,} bytes\n")


def test_the_layers_of_a_site_are_one_row_at_the_prompt_and_tokens_are_written_out(model):
    whole = recorded(model, "*")
    shown = repr(whole)
    number = sum(site.endswith("attention.weights") for site in whole)
    assert number > 1
    assert re.search(rf" {number} +\(\d.*layers\.\*\.attention\.weights", shown)
    assert shown.count("weights") == 1
    sides = whole.tokens("layers.0.attention.weights")
    assert " ".join(sides.key) in repr(sides)
