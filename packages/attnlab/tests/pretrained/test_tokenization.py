"""A tokenizer that dies of a text is refused in one sentence; the usual ones read as ever."""

import json

import pytest

import attnlab
from attnlab.errors import CouldNotRun
from attnlab.pretrained.text import tokenized
from tests.pretrained.folders import llama
from tests.pretrained.speaking import byte_level, sentence_piece, word_piece

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")


@pytest.mark.parametrize("pattern", ["(a+)+$", ""])
def test_a_regular_expression_that_panics_is_told(pattern, tmp_path, capfd):
    folder = llama(tmp_path / "model", vocab_size=16)
    said = json.loads(byte_level().backend_tokenizer.to_str())
    said["normalizer"] = {"type": "Replace", "pattern": {"Regex": pattern}, "content": "x"}
    (folder / "tokenizer.json").write_text(json.dumps(said))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    model = attnlab.load(folder)
    with pytest.raises(
        CouldNotRun,
        match=r"^the tokenizer, a \w+, fails on this text \(PanicException: .*ids",
    ):
        model.inputs("aaa bbb aaaaaaaaaaaaaaaaaaaaaaaaaaaaab")
    capfd.readouterr()  # what Rust writes of it


@pytest.mark.parametrize("make", [byte_level, word_piece, sentence_piece])
def test_usual_tokenizers_read_short_and_long_texts_as_ever(make):
    for text in ("a café ﷺ", "the cat sat on the mat, ﷺ 🙂 " * 1_000):
        assert tokenized(make(), text)["input_ids"] == make()(text)["input_ids"]
