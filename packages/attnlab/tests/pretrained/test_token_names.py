"""What a tokenizer's ids are called: readable, unlike one another."""

import json

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import attnlab
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.pretrained import text as token_names
from attnlab.pretrained.attach import attach
from attnlab.pretrained.text import TokenNames, tokenized
from tests.pretrained.folders import llama
from tests.pretrained.speaking import byte_level, made, sentence_piece, word_piece


def named(tokenizer, text):
    names = TokenNames(tokenizer)
    return [names[token] for token in tokenizer(text)["input_ids"]]


def check_no_two_alike(names):
    listed = list(names)
    assert len(set(listed)) == len(listed) == len(names)


def test_pieces_of_all_three_kinds_are_called_what_they_say():
    assert named(byte_level(), "John and Mary") == ["John", "␣and", "␣Mary"]
    assert named(word_piece(), "John and Mary") == ["[CLS]", "john", "and", "mary", "[SEP]"]
    assert "".join(named(sentence_piece(), "the cat")) == "␣the␣cat</s>"


def test_text_beyond_ascii_is_written_as_it_is_and_what_cannot_be_seen_as_python_writes_it():
    assert named(byte_level(), "The café")[-1] == "␣café"
    assert named(byte_level(), "a\n\t")[-2:] == ["\\n", "\\t"]
    assert named(byte_level(), "\\")[-1] == "\\\\"
    # Of letters never seen, the bytes.
    assert "".join(named(byte_level(), "ß☃")) == "\\xc3\\x9f\\xe2\\x98\\x83"


@pytest.mark.parametrize("tokenizer", [byte_level, word_piece, sentence_piece])
def test_no_two_ids_have_one_name(tokenizer):
    check_no_two_alike(TokenNames(tokenizer(), 400))


def test_the_check_of_names_finds_letters_that_are_not_told_apart(monkeypatch):
    monkeypatch.setattr(
        token_names, "_shown", lambda letter: "?" if not letter.isprintable() else letter
    )
    with pytest.raises(AssertionError):
        check_no_two_alike(TokenNames(byte_level()))


def test_ids_beyond_the_tokenizer_are_called_by_their_numbers():
    names = TokenNames(byte_level(), len(byte_level()) + 2)
    assert names[-1] == f"<id {len(byte_level()) + 1}>"
    with pytest.raises(IndexError):
        names[len(names)]


def test_a_name_means_the_word_with_and_without_a_blank_and_with_a_blank_that_alone():
    names = TokenNames(byte_level())
    mary, loose = names.ids_of("␣Mary"), names.ids_of("Mary")
    assert [names[token] for token in mary] == ["␣Mary"]
    assert set(mary) <= set(loose)
    assert names.ids_of(" Mary") == mary
    assert TokenNames(word_piece()).ids_of("Mary") == [word_piece().convert_tokens_to_ids("mary")]
    assert TokenNames(word_piece()).ids_of("☃") == []  # unknown words do not all mean [UNK]


@pytest.fixture(scope="module")
def model():
    foreign, tokenizer = made("gpt2")
    return attach(foreign, tokenizer=tokenizer, name="tiny")


def test_recordings_and_edits_know_the_names_without_being_told(model):
    inputs = model.inputs("John and Mary went")
    with attnlab.record(model, "*weights") as recording, torch.no_grad():
        model(**inputs)
    assert recording.tokens("layers.0.attention.weights").key == ["John", "␣and", "␣Mary", "␣went"]
    cutting = attnlab.edit(model, attnlab.CutEdge(layer=1, query="went", key="Mary"))
    with cutting, attnlab.record(model, "*weights") as cut, torch.no_grad():
        model(**inputs)
    weights = cut["layers.1.attention.weights"][0, :, 3]
    assert bool((weights[:, 2] == 0).all())
    assert bool((weights[:, :2] > 0).all())


def test_a_vocabulary_that_is_given_goes_before_the_models_own(model):
    with attnlab.record(model, "*weights", vocabulary=str) as recording, torch.no_grad():
        model(**model.inputs("John"))
    assert recording.tokens("layers.0.attention.weights").key == [
        str(byte_level()("John")["input_ids"][0])
    ]


@pytest.mark.parametrize(
    ("text", "query", "told"),
    [
        ("Johnand John went", "John", "may be 'John' or '␣John' here"),
        ("John and Mary", "unbelievably", "is .* tokens here"),
        ("John and Mary", "went", "was never among the queries"),
        ("John and Mary", "qq", "'q' 'q'; name one of them"),
    ],
)
def test_a_name_that_does_not_say_which_token_gets_a_sentence(model, text, query, told):
    cutting = attnlab.edit(model, attnlab.CutEdge(layer=0, query=query, key=0))
    with pytest.raises(WrongUsage, match=told), cutting, torch.no_grad():
        model(**model.inputs(text))


def test_texts_of_several_lengths_are_padded_and_read_as_each_alone(model):
    both = model.inputs(["John and Mary went", "the cat"])
    assert both["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    with torch.no_grad():
        together, alone = model(**both), model(**model.inputs("the cat"))
    torch.testing.assert_close(together[1, :2], alone[0])


def test_pairs_and_targets_are_what_the_tokenizer_makes_of_them():
    foreign, tokenizer = made("bert-judge")
    judge = attach(foreign, tokenizer=tokenizer)
    inputs = judge.inputs("the cat", "the dog")
    assert inputs["token_type_ids"].tolist()[0] == tokenizer("the cat", "the dog")["token_type_ids"]
    with pytest.raises(WrongUsage, match="no decoder"):
        judge.inputs("the cat", target="the dog")
    foreign, tokenizer = made("t5")
    reader = attach(foreign, tokenizer=tokenizer)
    assert reader.inputs("the cat")["decoder_input_ids"].tolist() == [[0]]
    ids = reader.inputs("the cat", target="the dog")["decoder_input_ids"].tolist()[0]
    assert [0, *tokenizer("the dog")["input_ids"]] == [*ids, tokenizer.eos_token_id]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ([], "one text or several"),
        (["a", "  "], "is empty"),
        ("the cat " * 30, "reads at most 40"),
        (3, "one text or several"),
    ],
)
def test_what_is_no_text_for_the_model_gets_a_sentence(model, text, told):
    with pytest.raises(WrongUsage, match=told):
        model.inputs(text)


def test_a_model_without_a_tokenizer_says_what_to_give():
    model = attach(made("gpt2")[0])
    assert model.vocabulary is None
    with pytest.raises(CouldNotRun, match=r"give ids .* or a tokenizer"):
        model.inputs("a")


@pytest.mark.parametrize("pattern", ["(a+)+$", ""])
def test_a_regular_expression_that_panics_is_told(pattern, tmp_path, capfd):
    folder = llama(tmp_path / "model", vocab_size=16)
    said = json.loads(byte_level().backend_tokenizer.to_str())
    said["normalizer"] = {"type": "Replace", "pattern": {"Regex": pattern}, "content": "x"}
    (folder / "tokenizer.json").write_text(json.dumps(said))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    model = attnlab.load(folder)
    with pytest.raises(CouldNotRun, match=r"fails on this text \(PanicException"):
        model.inputs("aaa bbb aaaaaaaaaaaaaaaaaaaaaaaaaaaaab")
    capfd.readouterr()  # what Rust writes of it


@pytest.mark.parametrize("make", [byte_level, word_piece, sentence_piece])
def test_usual_tokenizers_read_short_and_long_texts_as_ever(make):
    for text in ("a café ﷺ", "the cat sat on the mat, ﷺ 🙂 " * 1_000):
        assert tokenized(make(), text)["input_ids"] == make()(text)["input_ids"]


def test_a_text_beyond_what_a_rotary_model_was_made_for_is_refused_before_it_is_read():
    foreign, tokenizer = made("llama")
    foreign.config.max_position_embeddings = 40
    reader = attach(foreign, tokenizer=tokenizer)
    told = r"was made for 40: .*summarize_document\(model, text, beyond=True\)"
    with pytest.raises(WrongUsage, match=told):
        attnlab.record(reader, "the cat " * 30, "layers.0.attention.weights")
    named = reader.inputs("the cat " * 30, beyond=True)
    assert named["input_ids"].shape[1] > 40
