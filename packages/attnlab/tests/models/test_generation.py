import pytest
import torch

from attnlab.errors import WrongUsage
from attnlab.models import generate
from attnlab.seeds import generator
from tests.random_models import new_model


def prompt(batch=4, length=3):
    return torch.randint(11, (batch, length), generator=generator(0, "prompt"))


@pytest.mark.parametrize(
    ("positions", "place", "kv"),
    [
        *(("none", "pre", None), ("sinusoidal", "post", 2), ("learned", "none", 1)),
        *(("concatenated", "pre", 2), ("rotary", "post", 1), ("alibi", "none", None)),
    ],
)
def test_a_cache_changes_no_token_and_no_probability(positions, place, kv):
    model = new_model("decoder", positions=positions, norm_place=place, num_kv_heads=kv)
    for length in (1, 4):
        start = prompt(length=length)
        quick, slow = (generate(model, start, 8, use_cache=use) for use in (True, False))
        assert torch.equal(quick.tokens, slow.tokens)
        torch.testing.assert_close(quick.probabilities, slow.probabilities, atol=1e-5, rtol=0)


def test_a_cache_changes_nothing_in_an_encoder_decoder():
    model = new_model("encoder-decoder", encoder_positions="none")
    source = prompt(4, 5)
    real = torch.arange(5) < torch.tensor([[5], [3], [1], [4]])
    reader = model.conditioned(source, real=real)
    start = torch.zeros(4, 1, dtype=torch.long)
    quick, slow = (generate(reader, start, 8, use_cache=use) for use in (True, False))
    assert torch.equal(quick.tokens, slow.tokens)
    whole = model(source, quick.tokens[:, :-1], real=real).softmax(-1)
    torch.testing.assert_close(quick.probabilities, whole, atol=1e-5, rtol=0)


def test_a_forgetful_cache_is_caught(monkeypatch):
    # The check above must be able to fail: a cache whose keys are one place off is seen.
    from attnlab.parts.cache import LayerCache

    whole = LayerCache.keys_and_values
    monkeypatch.setattr(
        LayerCache, "keys_and_values", lambda self: (whole(self)[0].roll(1, -2), whole(self)[1])
    )
    model = new_model("decoder", positions="learned")
    quick, slow = (generate(model, prompt(), 8, use_cache=use) for use in (True, False))
    assert not torch.allclose(quick.probabilities, slow.probabilities, atol=1e-5)


def test_greedy_takes_the_likeliest_and_sampling_follows_the_probabilities():
    model = new_model("decoder")
    greedy = generate(model, prompt(1), 1)
    assert greedy.tokens[0, -1] == greedy.probabilities[0, 0].argmax()
    many = prompt(1).expand(20_000, -1)
    sampled = generate(model, many, 1, temperature=1.0, generator=generator(1))
    shares = torch.bincount(sampled.tokens[:, -1], minlength=11) / 20_000
    assert float((shares - sampled.probabilities[0, 0]).abs().max()) < 0.015


def test_sampling_is_reproducible_and_top_k_keeps_to_the_likeliest():
    model = new_model("decoder")
    one, two, other = (
        generate(model, prompt(), 6, temperature=1.5, generator=generator(seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(one.tokens, two.tokens)
    assert not torch.equal(one.tokens, other.tokens)
    kept = generate(model, prompt(), 6, temperature=1.5, top_k=2, generator=generator(1))
    assert int((kept.probabilities > 0).sum(-1).max()) == 2
    assert torch.equal(generate(model, prompt(), 0).tokens, prompt())
    only = generate(model, prompt(), 6, temperature=1.5, top_k=1, generator=generator(1))
    assert torch.equal(only.tokens, generate(model, prompt(), 6).tokens)


def test_forbidden_tokens_are_never_chosen_and_have_probability_zero():
    model = new_model("decoder")
    found = generate(model, prompt(), 9, forbidden=range(9))
    assert set(found.tokens[:, 3:].flatten().tolist()) <= {9, 10}
    assert float(found.probabilities[..., :9].abs().max()) == 0.0


def test_a_stop_token_ends_each_input_and_then_all():
    model = new_model("decoder")
    free = generate(model, prompt(), 9)
    stop = int(free.tokens[0, 4])
    found = generate(model, prompt(), 9, stop=stop)
    for stopped, going in zip(
        found.tokens[:, 3:].tolist(), free.tokens[:, 3:].tolist(), strict=True
    ):
        end = going.index(stop) + 1 if stop in going else len(going)
        assert stopped[:end] == going[: len(stopped[:end])]
        assert set(stopped[end:]) <= {stop}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_tokens": -1}, "num_tokens must be an integer of at least 0"),
        ({"num_tokens": 1, "temperature": -1.0}, "temperature must be 0"),
        ({"num_tokens": 1, "top_k": 0}, "top_k must be"),
        ({"num_tokens": 1, "forbidden": [11]}, "from 0 to 10"),
        ({"num_tokens": 1, "forbidden": range(11)}, "every token is forbidden"),
        ({"num_tokens": 15}, "at most 16 tokens"),
    ],
)
def test_impossible_wishes_are_refused(arguments, message):
    with pytest.raises(WrongUsage, match=message):
        generate(new_model("decoder"), prompt(), **arguments)


def test_a_text_and_an_empty_prompt_are_refused():
    with pytest.raises(WrongUsage, match=r"got a str. A text is for attnlab.ask"):
        generate(new_model("decoder"), "cab", 3)
    with pytest.raises(WrongUsage, match="length at least 1"):
        generate(new_model("decoder"), prompt(length=0), 1)
