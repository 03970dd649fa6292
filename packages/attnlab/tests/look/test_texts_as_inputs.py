"""Texts in the place of ids: effects of edits on a pretrained model read them with its own
tokenizer."""

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import attnlab
from attnlab.edits.effects import Metric
from attnlab.errors import WrongUsage
from attnlab.look.inputs import Call
from tests.pretrained.speaking import saved

TEXTS = ["the cat sat on the mat", "the dog sat on the cat"]
HEAD = attnlab.ZeroHead(layer=1, head=2)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    parent = tmp_path_factory.mktemp("models")
    return {kind: attnlab.load(saved(kind, parent / kind)) for kind in ("gpt2", "bert")}


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_an_effect_on_texts_is_that_on_their_ids(models, kind):
    model = models[kind]
    for texts in (TEXTS[0], TEXTS):
        told, right = (attnlab.effect(model, each, HEAD) for each in (texts, model.inputs(texts)))
        assert torch.equal(told.logits.before, right.logits.before)
        assert torch.equal(told.logits.after, right.logits.after)


def test_a_text_is_gone_on_with_and_its_answer_is_in_words(models):
    found = attnlab.effect(
        models["gpt2"], TEXTS[0], attnlab.CutEdge(query="on", key="cat"), num_tokens=2
    )
    assert found.text().before[:2] == ["the", "␣cat"]
    assert len(found.text().after) == len(found.text().before)


def test_knock_outs_and_patches_take_texts(models):
    model = models["gpt2"]
    told, right = (
        attnlab.ablate(model, each) for each in (TEXTS, model.inputs(TEXTS)["input_ids"])
    )
    assert torch.equal(told.table(), right.table())
    assert str(attnlab.patch_all(model, *TEXTS)) == str(
        attnlab.patch_all(model, *(model.inputs(each)["input_ids"] for each in TEXTS))
    )


def test_texts_of_unequal_lengths_are_refused(models):
    with pytest.raises(WrongUsage, match=r"3 to 8 tokens.*model\.inputs"):
        attnlab.ablate(models["bert"], [TEXTS[0], "dog"])


def test_texts_for_a_model_of_ours_are_refused():
    model = torch.nn.Linear(1, 1)
    with pytest.raises(WrongUsage, match="inputs are a tensor"):
        Call.of("cab", model)


def test_each_row_keeps_its_own_padding_when_inputs_are_repeated_or_parted(models):
    model = models["bert"]
    padded = model.inputs([TEXTS[0], "dog"])
    call = Call.of(padded)
    assert torch.equal(
        call.repeated(2).options["attention_mask"], padded["attention_mask"].repeat(2, 1)
    )
    assert torch.equal(
        call.rows(slice(1, 2)).options["attention_mask"], padded["attention_mask"][1:]
    )
    first = Metric(lambda logits: logits[:, 0].norm(dim=-1))
    both = attnlab.ablate(model, padded, metric=first)
    alone = attnlab.ablate(model, model.inputs("dog"), metric=first)
    torch.testing.assert_close(both.effects[:, 1], alone.effects[:, 0], atol=1e-5, rtol=0)
