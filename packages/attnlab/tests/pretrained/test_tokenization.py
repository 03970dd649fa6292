"""A tokenizer that multiplies what it is given, or dies of it, is refused before it takes memory,
in one sentence."""

import json

import pytest

import attnlab
from attnlab.errors import CouldNotRun
from attnlab.pretrained import text as tokenization
from attnlab.pretrained.text import tokenized
from tests.pretrained.folders import llama
from tests.pretrained.speaking import byte_level, sentence_piece, word_piece

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")


def replacing(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


GROWING = [replacing({"String": "a"}, "a" * 300)] * 3
EMPTY = [replacing({"Regex": "(?=a)|b*"}, "a" * 300)] * 3
REPEATED = {"type": "TemplateProcessing", "pair": [], "special_tokens": {}}
REPEATED["single"] = [{"Sequence": {"id": "A", "type_id": 0}}] * 100_000


def opened(folder, **changed):
    """Load a small model whose tokenizer was changed."""
    llama(folder, vocab_size=16)
    said = json.loads(byte_level().backend_tokenizer.to_str())
    (folder / "tokenizer.json").write_text(json.dumps({**said, **changed}))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return attnlab.load(folder)


@pytest.mark.parametrize(
    "changed",
    [
        {"normalizer": {"type": "Sequence", "normalizers": GROWING}},
        {"normalizer": {"type": "Sequence", "normalizers": EMPTY}},
        {
            "normalizer": {
                "type": "Sequence",
                "normalizers": [{"type": "Prepend", "prepend": "a" * 300}] * 3,
            }
        },
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}] * 40}},
        {"post_processor": REPEATED},
    ],
    ids=["replacements", "insertions", "beginnings", "bytes of bytes", "a text many times over"],
)
def test_what_multiplies_a_text_is_refused_with_figures(changed, tmp_path):
    for part in (changed.get("pre_tokenizer") or {}).get("pretokenizers", ()):
        part.update(add_prefix_space=False, trim_offsets=True, use_regex=False)
    model = opened(tmp_path / "model", added_tokens=[], **changed)
    with pytest.raises(
        CouldNotRun, match=r"would make [\d,]+ letters or tokens of \d letters; no .* or a trap\.$"
    ):
        model.inputs("aé")


def test_added_tokens_that_are_multiplied_leave_a_model_without_a_tokenizer(tmp_path):
    token = {
        "id": 0,
        "content": "a",
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "special": False,
    }
    normalizer = {"type": "Sequence", "normalizers": GROWING}
    model = opened(
        tmp_path / "model", normalizer=normalizer, added_tokens=[{**token, "normalized": True}]
    )
    assert model.tokenizer is None
    assert (
        "there is no tokenizer: the tokenizer's rules would make 90,000 letters" in model.notes[0]
    )


@pytest.mark.parametrize("pattern", ["(a+)+$", ""])
def test_a_regular_expression_that_panics_is_told(pattern, tmp_path, capfd):
    model = opened(tmp_path / "model", normalizer=replacing({"Regex": pattern}, "x"))
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


def test_many_rules_that_each_could_lengthen_a_text_are_no_trap_where_they_do_not(monkeypatch):
    ligatures = [replacing({"String": letter}, "fi") for letter in "ﬁﬂﬀﬃﬄﬅﬆ" * 5]
    assert tokenization._check_length(ligatures, "ﬁnally " * 1_000) is None
    with pytest.raises(CouldNotRun):
        tokenization._check_length([*ligatures, *GROWING], "a")
