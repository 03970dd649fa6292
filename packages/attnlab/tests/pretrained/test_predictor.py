"""attnlab.generate on foreign models: the tokens that transformers generates, with a cache and
without."""

import pytest
import torch

import attnlab
from attnlab.errors import WrongUsage
from attnlab.pretrained.attach import attach
from tests.pretrained.families import FAMILIES

pytest.importorskip("transformers")

PROMPT = torch.tensor([[5, 9, 17, 33], [7, 7, 8, 50]])
PLAIN = {"max_new_tokens": 6, "do_sample": False, "num_beams": 1, "eos_token_id": None}


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "bloom"])
def test_a_decoder_goes_on_as_transformers_does(name):
    model = attach(FAMILIES[name].build())
    expected = model.foreign.generate(PROMPT, attention_mask=torch.ones_like(PROMPT), **PLAIN)
    for use_cache in (True, False):
        found = attnlab.generate(model, PROMPT, 6, use_cache=use_cache)
        assert torch.equal(found.tokens, expected)
        assert found.probabilities.shape == (2, 6, 101)


def test_an_encoder_decoder_answers_a_source_as_transformers_does():
    model = attach(FAMILIES["t5"].build())
    start = torch.zeros(2, 1, dtype=torch.int64)
    expected = model.foreign.generate(PROMPT, attention_mask=torch.ones_like(PROMPT), **PLAIN)
    for use_cache in (True, False):
        found = attnlab.generate(model.conditioned(PROMPT), start, 6, use_cache=use_cache)
        assert torch.equal(found.tokens, expected)


def test_with_a_cache_each_step_reads_one_token():
    model, lengths = attach(FAMILIES["gpt2"].build()), []
    hook = lambda module, args, named: lengths.append(named["input_ids"].shape[1])  # noqa: E731
    with model.foreign.register_forward_pre_hook(hook, with_kwargs=True):
        attnlab.generate(model, PROMPT, 4)
    assert lengths == [4, 1, 1, 1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("t5", "answers a source: attnlab.generate"),
        ("bert", "does not choose one token after"),
        ("vit", "does not choose"),
    ],
)
def test_what_does_not_go_on_by_itself_is_told(name, words):
    with pytest.raises(WrongUsage, match=words):
        attnlab.generate(attach(FAMILIES[name].build()), PROMPT, 2)


def test_a_source_for_a_decoder_alone_is_told():
    with pytest.raises(WrongUsage, match="no decoder beside its encoder"):
        attach(FAMILIES["gpt2"].build()).conditioned(PROMPT)
