"""A recording of inputs at once, and a recording of named sites within a `with`."""

import pytest
import torch

import attnlab
from attnlab.errors import WrongUsage
from attnlab.look.recording import Recording, record
from tests.pretrained.speaking import opened
from tests.random_models import new_model

TEXT = "John and Mary went to the store."
WEIGHTS = "layers.0.attention.weights"


@pytest.fixture(scope="module")
def model():
    return opened("gpt2")


@pytest.fixture(scope="module")
def plain(model):
    with record(model, "*") as recording, torch.no_grad():
        model(**model.inputs(TEXT))
    return recording


def same(one, other):
    assert list(one) == list(other)
    assert all(torch.equal(one[site], other[site]) for site in one)


def test_a_text_is_recorded_at_once_at_every_site(model, plain):
    found = record(model, TEXT)
    same(found, plain)
    assert found.tokens(WEIGHTS).query[:3] == ["John", "␣and", "␣Mary"]


def test_ids_named_inputs_and_lists_of_ids_are_recorded_at_once(model, plain):
    inputs = model.inputs(TEXT)
    ids = inputs["input_ids"]
    for each in (inputs, ids, ids[0], ids.tolist(), ids[0].tolist()):
        same(record(model, each), plain)


def test_texts_of_different_lengths_are_padded_and_the_padding_is_known(model):
    found = record(model, [TEXT, "John"], sites="*.weights")
    assert list(found) == [WEIGHTS, "layers.1.attention.weights"]
    assert found.real(WEIGHTS, row=1)[0].count(True) == 1


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("layers.0.atention.weights", WEIGHTS),
        ("layers.*.attention.wieghts", "layers.*.attention.weights"),
        ("weights", "*.weights"),
        ("*.scors", "*.scores"),
        (["*.weights", "*.scors"], "*.scores"),
        (f" {WEIGHTS}", WEIGHTS),
        ("layers.0.attention.pattern", WEIGHTS),
        ("blocks.0.attn.hook_pattern", WEIGHTS),
        ("*.pattern", "*.weights"),
    ],
)
def test_a_site_with_a_typo_is_refused_and_not_read_as_a_text(model, typo, meant):
    with pytest.raises(WrongUsage) as refusal:
        record(model, typo)
    assert f"did you mean '{meant}'" in str(refusal.value)


def test_a_model_that_does_not_know_its_tokens_asks_for_ids(model):
    decoder = new_model("decoder", vocab_size=5, d_model=8, num_heads=2)
    with pytest.raises(WrongUsage, match=r"give ids, attnlab.record\(model, tokens\)"):
        record(decoder, "When John went")
    assert record(decoder, [1, 2, 3])["logits"].shape == (1, 3, 5)
    with pytest.raises(WrongUsage, match="record takes a text or ids"):
        record(model)
    with pytest.raises(WrongUsage, match=r"attnlab\.load\('gpt2'\) opens a model"):
        record("gpt2", TEXT)


def test_a_pattern_still_records_within_a_with_and_says_so_when_it_is_empty(model):
    recording = record(model, "*.weights")
    assert isinstance(recording, Recording)
    assert "run the model inside the with" in repr(recording)
    for look in (attnlab.plot.heads, attnlab.show):
        with pytest.raises(WrongUsage, match="run the model inside the with"):
            look(recording)
    with recording as same_recording:
        model(**model.inputs(TEXT))
    assert same_recording is recording
    assert len(recording) == 2
    with pytest.raises(WrongUsage, match="this recording is complete"), recording:
        pass


def test_sites_go_with_inputs_and_gradients_with_a_with(model):
    with pytest.raises(WrongUsage, match="Several are a list"):
        record(model, "*.weights, *.scores")
    with pytest.raises(WrongUsage, match="names sites already"):
        record(model, "*.weights", sites="*.scores")
    with pytest.raises(WrongUsage, match="within a with"):
        record(model, TEXT, gradients=True)


def test_no_hook_is_left_in_the_model_when_the_inputs_do_not_fit(model):
    with pytest.raises(WrongUsage, match="ids from 10,000"):
        record(model, torch.tensor([[10_000]]))
    assert not model.is_hooked
    with pytest.raises(KeyError), record(model, "*.weights"):
        raise KeyError
    assert not model.is_hooked
