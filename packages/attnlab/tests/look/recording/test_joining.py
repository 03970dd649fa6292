"""Steps of a cached generation, joined, are what one pass over the whole row shows."""

import pytest
import torch

from attnlab.errors import WrongUsage
from attnlab.look import record
from attnlab.models import EncoderDecoder, generate
from attnlab.parts.cache import Cache
from attnlab.sites import installed
from tests.hooks import Change
from tests.random_models import POSITIONS, new_model
from tests.sampling import sampled

PROMPT = torch.tensor([[1, 2, 3], [3, 0, 5]])
SOURCE = torch.tensor([[4, 5, 6, 0, 1], [1, 1, 2, 3, 0]])
REAL = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-12}


def model(kind="decoder", dtype=torch.float64, **options):
    return new_model(kind, vocab_size=7, max_length=60, num_kv_heads=2, **options).to(dtype)


def generated(part, num_tokens=10, **options):
    """A cached generation, recorded, and one pass over what it read."""
    predictor, run = part, part
    with torch.no_grad(), record(part, "*", **options) as steps:
        if isinstance(part, EncoderDecoder):
            predictor = part.conditioned(SOURCE, real=REAL)
        tokens = generate(predictor, PROMPT, num_tokens).tokens[:, :-1]
    with torch.no_grad(), record(part, "*") as whole:
        if isinstance(part, EncoderDecoder):
            part(SOURCE, tokens, real=REAL)
        else:
            run(tokens)
    return steps, whole, tokens


@pytest.mark.parametrize("dtype", sampled([torch.float64, torch.float32], 1), ids=str)
@pytest.mark.parametrize("positions", sampled(POSITIONS[::-1], 2))
@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
def test_joined_steps_equal_the_uncached_pass_at_every_site(kind, positions, dtype):
    steps, whole, _ = generated(model(kind, dtype, positions=positions))
    assert set(steps) == set(whole)
    for site in whole:
        joined, expected = steps.joined(site), whole[site]
        assert joined.shape == expected.shape, site
        if expected.dtype == torch.bool:
            assert torch.equal(joined, expected)
        else:
            torch.testing.assert_close(joined, expected, atol=TOLERANCES[dtype], rtol=0, msg=site)
    comparison = steps.joined().compare(whole)
    assert comparison.largest <= TOLERANCES[dtype]
    assert comparison.only_here == comparison.only_there == ()


def test_a_joined_recording_knows_all_tokens_and_what_was_blocked():
    steps, whole, tokens = generated(model("encoder-decoder"), vocabulary="abcdefg")
    names = ["abcdefg"[token] for token in tokens[1].tolist()]
    source = ["abcdefg"[token] for token in SOURCE[1].tolist()]
    joined = steps.joined()
    for site, key in (
        ("decoder.layers.1.attention.weights", names),
        ("decoder.layers.1.cross_attention.weights", source),
    ):
        assert steps.tokens(site, 1).query == names[-1:]
        assert steps.tokens(site, 1).key == key
        assert joined.tokens(site, 1) == (names, key)
        assert torch.equal(joined.blocked(site, 1), whole.blocked(site, 1))
        tile = joined.tile(site, head=3, row=1)
        torch.testing.assert_close(tile, whole[site][1, 3], atol=1e-12, rtol=0)
    assert joined.tokens("decoder.layers.0.residual_after", 1).query == names
    assert len(joined.all("logits")) == 1


@pytest.mark.parametrize("name", ["weights", "mask"])
def test_each_step_shows_its_own_rows_of_the_whole(name):
    steps, whole, _ = generated(model(positions="rotary"))
    site, row = f"layers.1.attention.{name}", 0
    for value in steps.all(site):
        rows = slice(row, row := row + value.shape[-2])
        expected = whole[site][..., rows, : value.shape[-1]]
        torch.testing.assert_close(value, expected, atol=1e-12, rtol=0)


def test_keys_of_all_steps_are_kept_once():
    part = model(positions="rotary")
    with torch.no_grad(), record(part, "layers.*.attention.weights") as recording:
        generate(part, PROMPT, 40)
    steps = len(recording.all("layers.0.attention.weights"))
    assert steps == 40
    one = 2 * 8 * 4 * 2  # two inputs, float64, head_width 4, two kv_heads: one key
    queries = 42 * 2 * 16 * 8
    keys = recording.nbytes - 2 * queries
    # at most twice what is needed, and the prompt; not 40 · 41 / 2
    assert keys < 2 * (2 * 48 + 4) * one * 1.2 + 2000


def test_an_edit_of_earlier_keys_is_seen_in_its_own_step_only():
    part, step = model(), []

    def spoil(key):
        step.append(len(step))
        return key * 2.0 if step[-1] == 3 else key

    sites = ["layers.0.attention.weights", "layers.0.attention.key"]
    edit = Change(sites[1], spoil)
    with torch.no_grad(), record(part, sites) as recording, installed(part, edit):
        generate(part, PROMPT, 6)
    with torch.no_grad(), record(part, sites) as plain:
        generate(part, PROMPT, 6)
    pairs = zip(recording.all(sites[1]), plain.all(sites[1]), strict=True)
    for place, (ours, theirs) in enumerate(pairs):
        torch.testing.assert_close(ours, theirs * (2.0 if place == 3 else 1.0), rtol=0, atol=1e-12)
    triangle = recording.joined(sites[0])
    for place, weights in enumerate(recording.all(sites[0])):
        row = 0 if place == 0 else place + 2
        assert torch.equal(triangle[..., row : row + weights.shape[2], : weights.shape[3]], weights)
    assert (triangle - plain.joined(sites[0])).abs().max() > 1e-3


def test_edited_weights_are_joined_too():
    part, site = model(), "layers.1.attention.weights"
    edit = Change(site, lambda weights: torch.full_like(weights, 1 / weights.shape[-1]))
    with torch.no_grad(), record(part, site) as recording, installed(part, edit):
        generate(part, PROMPT, 3)
    triangle = recording.joined(site)
    assert triangle.shape == (2, 4, 5, 5)
    assert torch.equal(triangle[0, 0, 3], torch.tensor([0.25] * 4 + [0.0], dtype=torch.float64))


def test_the_last_of_several_generations_is_joined():
    part = model()
    with torch.no_grad(), record(part, "layers.0.attention.weights") as recording:
        generate(part, PROMPT, 9)
        generate(part, PROMPT[:, :2], 3)
    assert recording.joined("layers.0.attention.weights").shape == (2, 4, 4, 4)


def test_a_single_pass_and_an_uncached_generation_are_joined_already():
    part, site = model(), "layers.0.attention.weights"
    with torch.no_grad(), record(part, site) as recording:
        generate(part, PROMPT, 4, use_cache=False)
    assert torch.equal(recording.joined(site), recording[site])
    assert recording.joined(site).shape == (2, 4, 6, 6)


def test_steps_that_cannot_be_joined_are_an_error():
    part, cache, site = model(), Cache(), "layers.0.attention.weights"
    with torch.no_grad():
        part(PROMPT, cache=cache)
        with record(part, [site, "layers.0.residual_after"]) as recording:
            part(PROMPT[:, :1], cache=cache)
    assert recording.tokens(site) == (["1"], ["[0]", "[1]", "[2]", "1"])
    with pytest.raises(WrongUsage, match="the first 3 positions were not recorded"):
        recording.joined(site)
    with record(part, site) as recording, pytest.raises(WrongUsage, match="nothing has been"):
        recording.joined()
    encoder = new_model("encoder", vocab_size=7, d_model=8, num_classes=2)
    with record(encoder, "logits") as recording:
        encoder(PROMPT)
    assert recording.joined("logits").shape == (2, 2)  # one pass: nothing to join
