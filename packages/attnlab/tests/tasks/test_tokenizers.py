import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.tasks.tokenizers import (
    CLS,
    PAD,
    UNK,
    PartTokenizer,
    SubwordTokenizer,
    WordTokenizer,
    _splitter,
    clean,
    open_tokenizer,
    words_of,
)

NO_PARTS = {"words": [], "beginnings": []}
TEXTS = ["good film", "good good story", "bad film", "a story"]
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def word(max_length=8, vocab_size=100, texts=TEXTS):
    return WordTokenizer.build(texts, vocab_size, max_length)


@given(ANY_TEXT)
def test_cleaning_twice_changes_nothing_more(text):
    assert clean(clean(text)) == clean(text)


def test_cleaning_lowers_the_case_and_folds_white_space():
    texts = ["", " \t\n ", "A\tB\nC", "  Ä  ß ", "a\u2028b\u00a0c"]
    assert list(map(clean, texts)) == ["", "", "a b c", "ä ß", "a b c"]


def test_ids_go_by_frequency_and_ties_by_first_appearance():
    # good 3 times, film and story twice (film first), bad and a once (bad first)
    assert word().to_mapping()["words"] == ["good", "film", "story", "bad", "a"]
    assert word().ids("good film story bad a")[1:6] == [3, 4, 5, 6, 7]


def test_the_special_ids_are_the_first_three():
    assert (PAD, UNK, CLS) == (0, 1, 2)
    assert word(max_length=4).ids("new film") == [2, 1, 4]


@pytest.mark.parametrize("max_length", [1, 2, 3, 4, 9])
def test_ids_are_max_length_at_most_with_cls_in_front(max_length):
    assert word(max_length).ids("good film story") == [2, 3, 4, 5][:max_length]


@given(st.lists(ANY_TEXT, min_size=1, max_size=4))
def test_a_text_of_the_corpus_comes_back_whole(texts):
    tokenizer = WordTokenizer.build(texts, 10_000, 100)
    for text in texts:
        assert tokenizer.words(text)[1:] == words_of(text)


@given(ANY_TEXT)
def test_splitting_loses_nothing_but_blanks_and_splits_nothing_further_the_second_time(text):
    words = words_of(text)
    assert "".join(words) == clean(text).replace(" ", "")
    assert words_of(" ".join(words)) == words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Brilliant!", "brilliant !"),
        ("it.", "it ."),
        ("A warm, funny film.", "a warm , funny film ."),
        ("don't DON’T", "don ' t don ’ t"),
        ("the 90s, 3.5/10...", "the 90 s , 3 . 5 / 10 . . ."),
        ('("naïve")', '( " naïve " )'),
        ("\ud800x", "? x"),
    ],
)
def test_words_numbers_apostrophes_and_punctuation_are_tokens_of_their_own(text, expected):
    assert " ".join(words_of(text)) == expected


@pytest.mark.parametrize("kind", [WordTokenizer, PartTokenizer])
def test_punctuation_hides_no_word(kind):
    tokenizer = kind.build(["a brilliant film , truly .", "a terrible film !"], 100, 20)
    one, other, plain = (tokenizer.ids(text) for text in ("Brilliant!", "Terrible.", "brilliant"))
    assert one[1] != other[1]
    assert one[1][0] == plain[1][0] if kind is PartTokenizer else one[1] == plain[1]
    assert UNK not in [word[0] if kind is PartTokenizer else word for word in (*one, *other)]


def test_a_literal_pad_in_a_text_is_a_word_and_not_padding():
    tokenizer = word(texts=["<pad> <PAD> <cls>"])
    assert tokenizer.ids("<PAD> x")[:5] == [CLS, 3, 5, 4, UNK]
    assert tokenizer.words("<PAD> <C")[1:] == ["<", "pad", ">", "<", "[c]"]


@pytest.mark.parametrize("kind", [WordTokenizer, PartTokenizer, SubwordTokenizer])
def test_the_vocabulary_is_cut_at_its_size_which_is_three_at_least(kind):
    with pytest.raises(WrongUsage, match="at least 3, for <PAD>, <UNK>, <CLS>; got 2"):
        kind.build(TEXTS, 2, 8)
    if kind is not SubwordTokenizer:
        assert kind.build(TEXTS, 3, 8).vocab_size == 3
    assert WordTokenizer.build(TEXTS, 3, 4).ids("good film") == [2, 1, 1]
    assert word(vocab_size=5).vocab_size == 5
    assert word(vocab_size=5).ids("story")[1] == UNK


def test_parts_are_the_word_its_beginning_and_its_pair_with_the_next():
    tokenizer = PartTokenizer.build(["not boring", "boringly good"], 100, 8)
    names = tokenizer.names
    ids = tokenizer.ids("not boring")
    assert [[names[part] for part in token] for token in ids] == [
        ["<CLS>", "<PAD>", "<PAD>"],
        ["not", "<PAD>", "not boring"],
        ["boring", "borin-", "<PAD>"],
    ]
    assert ids[2][1] == tokenizer.ids("boringly")[1][1]
    assert tokenizer.ids("strange good")[1] == [UNK, PAD, PAD]  # parts that are not known


def test_subwords_come_back_as_the_text_and_know_words_they_never_saw():
    texts = ["the lower the better", "lowest newest widest", "new low wide"] * 5
    tokenizer = SubwordTokenizer.build(texts, 60, 40)
    assert tokenizer.vocab_size <= 60
    assert tokenizer.ids("the lower")[0] == CLS
    assert "".join(tokenizer.words("The  newer widow")[1:]) == "▁the▁newer▁widow"
    assert UNK in tokenizer.ids("日本")


@pytest.mark.parametrize("kind", [WordTokenizer, PartTokenizer, SubwordTokenizer])
def test_a_tokenizer_saved_and_opened_again_gives_the_same_ids(kind):
    tokenizer = kind.build(TEXTS, 50, 8)
    again = open_tokenizer(json.loads(json.dumps(tokenizer.to_mapping())))
    for text in [*TEXTS, "new words", "", "<PAD>"]:
        assert again.ids(text) == tokenizer.ids(text)
        assert again.words(text) == tokenizer.words(text)
        assert len(again.ids(text)) == len(again.words(text)) <= 8
    assert again.vocab_size == tokenizer.vocab_size


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        (None, "expected a tokenizer of kind word, parts or subword"),
        ({"kind": "other"}, "expected a tokenizer of kind"),
        ({"kind": "word", "max_length": 3}, "'words' is missing"),
        ({"kind": "word", "max_length": 3, "words": [1]}, "expected a list of words"),
        ({"kind": "word", "max_length": 3, "words": ["a", "a"]}, "one id"),
        ({"kind": "word", "max_length": 0, "words": []}, "max_length must be"),
        ({"kind": "parts", "max_length": 3, **NO_PARTS, "pairs": ["a b", "a b"]}, "one id"),
        ({"kind": "subword", "max_length": 3, "state": {}}, "not the state of a subword tokenizer"),
    ],
)
def test_a_damaged_tokenizer_is_refused(mapping, words):
    with pytest.raises(CouldNotRun, match=words):
        open_tokenizer(mapping)


@pytest.mark.parametrize(
    ("kind", "what"),
    [(SubwordTokenizer, "subwords need"), (WordTokenizer, "the words of texts need")],
)
def test_without_the_library_tokenizers_say_what_to_install(kind, what, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    _splitter.cache_clear()
    with pytest.raises(
        CouldNotRun, match=rf"{what} the library tokenizers; .*pip install 'attnlab\[text\]'"
    ):
        kind.build(TEXTS, 50, 8)


def test_a_tokenizer_that_forgets_the_order_of_its_words_is_caught(monkeypatch):
    whole = WordTokenizer.to_mapping
    backwards = lambda self: {**whole(self), "words": whole(self)["words"][::-1]}  # noqa: E731
    monkeypatch.setattr(WordTokenizer, "to_mapping", backwards)
    with pytest.raises(AssertionError):
        test_a_tokenizer_saved_and_opened_again_gives_the_same_ids(WordTokenizer)
