"""The answer that is meant: a text, an id, or one for each input."""

import pytest
import torch

import attnlab
from attnlab.edits.effects.metrics import Metric
from attnlab.errors import WrongUsage
from attnlab.look.target_ids import target_ids
from attnlab.models import Decoder, DecoderConfig
from attnlab.pretrained.attach import attach
from tests.pretrained.speaking import made

TEXT = "John and Mary went to the store. Mary gave a drink to"
OTHER = "John and Mary went to the store. John gave a drink to"


def opened(kind):
    foreign, tokenizer = made(kind)
    return attach(foreign, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def model():
    return opened("gpt2")


def test_a_text_is_the_token_that_goes_on_with_the_input(model):
    (mary,) = model.vocabulary.pieces(" Mary")
    for target in (" Mary", "Mary", "␣Mary", mary, torch.tensor(mary)):
        assert int(target_ids(target, model, TEXT)) == mary
    (john,) = model.vocabulary.pieces("John")
    assert int(target_ids("John", model, "so said ")) == john
    assert target_ids([" Mary", john], model, [TEXT, OTHER]).tolist() == [mary, john]
    assert target_ids(None, model) is None
    (stop,) = model.vocabulary.pieces(".")
    assert int(target_ids(".", model, TEXT)) == stop


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (" Mary gave", "is 2 tokens here, '␣Mary' '␣gave', and a target is one"),
        ("", "no token of this model is called ''"),
        (1.5, "a target is a text, an id, a list of these"),
        ([" Mary", 1.5], "a target is a text or an id; got a float"),
    ],
)
def test_what_is_no_token_is_refused_in_one_sentence(model, target, words):
    for call in (
        lambda: attnlab.ablate(model, TEXT, target=target),
        lambda: attnlab.direct_logits(model, TEXT, target=target),
        lambda: attnlab.patch_all(model, TEXT, OTHER, target=target),
    ):
        with pytest.raises(WrongUsage) as refusal:
            call()
        assert words in str(refusal.value)
        assert "\n" not in str(refusal.value)


def test_a_text_measures_what_its_id_measures_wherever_a_target_is_taken(model):
    (mary,), (john,) = model.vocabulary.pieces(" Mary"), model.vocabulary.pieces(" John")
    ids = torch.tensor([mary])
    texts = [TEXT, OTHER]
    pairs = (
        (attnlab.ablate(model, TEXT, target=" Mary"), attnlab.ablate(model, TEXT, target=ids)),
        (
            attnlab.patch_all(model, TEXT, OTHER, target=" Mary"),
            attnlab.patch_all(model, TEXT, OTHER, target=mary),
        ),
        (
            attnlab.ablate(
                model, TEXT, metric=Metric("logit_difference", target=" Mary", others=" John")
            ),
            attnlab.ablate(
                model, TEXT, metric=Metric("logit_difference", target=ids, others=ids * 0 + john)
            ),
        ),
        (
            attnlab.patch_paths(model, TEXT, OTHER, target=" Mary"),
            attnlab.patch_paths(model, TEXT, OTHER, target=ids),
        ),
        (
            attnlab.ablate(model, texts, target=[" Mary", " John"]),
            attnlab.ablate(model, texts, target=[mary, john]),
        ),
    )
    for one, other in pairs:
        assert torch.equal(one.after, other.after)
    one = attnlab.direct_logits(model, TEXT, target=" Mary", others=" John")
    other = attnlab.direct_logits(model, TEXT, target=[mary], others=[john])
    assert torch.equal(one.shares, other.shares)
    edit = attnlab.ZeroHead(layer=0, head=0)
    changed = attnlab.effect(model, TEXT, edit, target=" Mary")
    assert torch.equal(changed.loss.after, attnlab.effect(model, TEXT, edit, target=ids).loss.after)
    effects = attnlab.pattern_effects(model, texts, target=" Mary", controls=["zeroed"])
    same = attnlab.pattern_effects(model, texts, target=[mary, mary], controls=["zeroed"])
    assert torch.equal(effects.effects, same.effects)


def test_a_class_is_named_by_its_text():
    judge = opened("bert-judge")
    assert int(target_ids("good", judge)) == 1
    assert attnlab.ablate(judge, "a warm film", target="good").before.shape == (1,)


def test_a_word_piece_is_found_in_any_case_and_an_unknown_word_is_refused():
    masked = opened("bert-masked")
    assert masked.vocabulary[int(target_ids("Mary", masked, "a [MASK]"))] == "mary"
    with pytest.raises(WrongUsage, match="no token of this model is called 'Ω'"):
        target_ids("Ω", masked)


def test_a_model_without_names_asks_for_an_id():
    decoder = Decoder(DecoderConfig(vocab_size=5, d_model=8, num_heads=2, max_length=8)).eval()
    with pytest.raises(WrongUsage, match="give the id instead of 'a'"):
        attnlab.ablate(decoder, [1, 2], target="a")
    assert attnlab.ablate(decoder, [1, 2], target=3).before.shape == (1,)
