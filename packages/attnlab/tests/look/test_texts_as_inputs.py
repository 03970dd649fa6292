"""Texts in the place of ids: inputs that a pretrained model reads with its own tokenizer."""

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import attnlab
from attnlab.edits.effects import Metric
from attnlab.errors import WrongUsage
from attnlab.look.inputs import Call
from attnlab.look.target_ids import target_ids
from tests.pretrained.speaking import opened
from tests.random_models import new_model

TEXT = "John and Mary went to the store. Mary gave a drink to"
OTHER = "John and Mary went to the store. John gave a drink to"
TEXTS = [TEXT, OTHER]
HEAD = attnlab.ZeroHead(layer=1, head=2)


@pytest.fixture(scope="module")
def model():
    return opened("gpt2")


@pytest.fixture(scope="module")
def bert():
    return opened("bert-masked")


def test_texts_are_measured_as_their_ids(model, bert):
    for each, texts in ((model, TEXT), (model, TEXTS), (bert, TEXTS)):
        told, right = (attnlab.effect(each, inputs, HEAD) for inputs in (texts, each.inputs(texts)))
        assert torch.equal(told.logits.before, right.logits.before)
        assert torch.equal(told.logits.after, right.logits.after)
    ids = model.inputs(TEXTS)["input_ids"]
    assert torch.equal(attnlab.ablate(model, TEXTS).table(), attnlab.ablate(model, ids).table())
    patched = [attnlab.patch_all(model, *pair) for pair in (TEXTS, (ids[:1], ids[1:]))]
    assert patched[0].rows() == patched[1].rows()


def test_a_text_is_gone_on_with_and_its_answer_is_in_words(model):
    cut = attnlab.CutEdge(query="␣went", key="␣Mary")
    found = attnlab.effect(model, "John and Mary went", cut, num_tokens=2)
    assert found.text().before[:2] == ["John", "␣and"]
    assert len(found.text().after) == len(found.text().before)


def test_a_question_at_the_prompt_answers_without_recording_attention(model, monkeypatch):
    question = attnlab.ask(model, "the cat sat")
    answer = question.trace().choices
    assert question.trace().attention
    refuse = lambda *_, **__: pytest.fail("attention was recorded")  # noqa: E731
    monkeypatch.setattr("attnlab.look.pretrained_questions.record", refuse)
    assert " ".join(answer) in repr(question)
    with pytest.raises(pytest.fail.Exception):
        question.trace()


def test_an_effect_says_whose_loss_it_is_and_where(model):
    change = attnlab.effect(model, "the cat sat", attnlab.ZeroHead(layer=0, head=0), target="on")
    assert "nats of '␣on', last position" in str(change)


def test_texts_that_do_not_fit_are_refused(bert):
    with pytest.raises(WrongUsage, match=r"tokens.*model\.inputs"):
        attnlab.ablate(bert, [TEXT, "Mary"])
    with pytest.raises(WrongUsage, match="inputs are a tensor"):
        Call.of("cab", torch.nn.Linear(1, 1))


def test_each_row_keeps_its_own_padding_when_inputs_are_repeated_or_parted(bert):
    padded = bert.inputs([TEXT, "Mary"])
    call, mask = Call.of(padded), padded["attention_mask"]
    assert torch.equal(call.repeated(2).options["attention_mask"], mask.repeat(2, 1))
    assert torch.equal(call.rows(slice(1, 2)).options["attention_mask"], mask[1:])
    first = Metric(lambda logits: logits[:, 0].norm(dim=-1))
    both = attnlab.ablate(bert, padded, metric=first)
    alone = attnlab.ablate(bert, bert.inputs("Mary"), metric=first)
    torch.testing.assert_close(both.effects[:, 1], alone.effects[:, 0], atol=1e-5, rtol=0)


def test_a_target_is_the_token_that_goes_on_with_the_input(model):
    (mary,), (john,) = model.vocabulary.pieces(" Mary"), model.vocabulary.pieces("John")
    for target in (" Mary", "Mary", "␣Mary", mary, torch.tensor(mary)):
        assert int(target_ids(target, model, TEXT)) == mary
    assert int(target_ids("John", model, "so said ")) == john
    assert target_ids([" Mary", john], model, TEXTS).tolist() == [mary, john]
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
    by_text = Metric("logit_difference", target=" Mary", others=" John")
    by_id = Metric("logit_difference", target=ids, others=ids * 0 + john)
    for find, inputs, name, target, same in (
        (attnlab.ablate, [TEXT], "target", " Mary", ids),
        (attnlab.ablate, [TEXT], "metric", by_text, by_id),
        (attnlab.ablate, [TEXTS], "target", [" Mary", " John"], [mary, john]),
        (attnlab.patch_all, TEXTS, "target", " Mary", mary),
        (attnlab.patch_paths, TEXTS, "target", " Mary", ids),
    ):
        one, other = (find(model, *inputs, **{name: each}) for each in (target, same))
        assert torch.equal(one.after, other.after)
    one = attnlab.direct_logits(model, TEXT, target=" Mary", others=" John")
    other = attnlab.direct_logits(model, TEXT, target=[mary], others=[john])
    assert torch.equal(one.shares, other.shares)
    one, other = (attnlab.effect(model, TEXT, HEAD, target=each) for each in (" Mary", ids))
    assert torch.equal(one.loss.after, other.loss.after)
    one, other = (
        attnlab.pattern_effects(model, TEXTS, target=each, controls=["zeroed"])
        for each in (" Mary", [mary, mary])
    )
    assert torch.equal(one.effects, other.effects)


def test_a_class_or_a_word_piece_is_named_by_its_text(bert):
    judge = opened("bert-judge")
    assert int(target_ids("good", judge)) == 1
    assert attnlab.ablate(judge, "a warm film", target="good").before.shape == (1,)
    assert bert.vocabulary[int(target_ids("Mary", bert, "a [MASK]"))] == "mary"
    with pytest.raises(WrongUsage, match="no token of this model is called 'Ω'"):
        target_ids("Ω", bert)


def test_a_model_without_names_asks_for_an_id():
    decoder = new_model("decoder", vocab_size=5, d_model=8, num_heads=2)
    with pytest.raises(WrongUsage, match="give the id instead of 'a'"):
        attnlab.ablate(decoder, [1, 2], target="a")
    assert attnlab.ablate(decoder, [1, 2], target=3).before.shape == (1,)
