"""Tokenizers: from a text to ids. Three of one form; none knows a model.

`WordTokenizer` has an id for each word; `PartTokenizer` gives each word several ids (the word, its
beginning, and the word together with the next one), whose vectors a model adds up;
`SubwordTokenizer` learns pieces of words by byte-pair encoding (Sennrich et al. 2016). All lower
the case, fold white space, put `<CLS>` in front and cut at `max_length`.

What a word is, the library `tokenizers` says: words, numbers, apostrophes and punctuation marks are
tokens of their own, so that `Brilliant!` holds `brilliant`, and so is each character of Chinese,
Japanese, Thai and other scripts that put no blanks between words.
"""

import abc
import functools
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.shapes import require_integer

PAD, UNK, CLS = 0, 1, 2
SPECIALS = ("<PAD>", "<UNK>", "<CLS>")
"""The names of ids 0, 1 and 2. No word is one of them: words are in lower case, and `<pad>` in a
text is a word."""

Plain = dict[str, Any]
"""A tokenizer as plain values, for a file of JSON."""

_WITHOUT_BLANKS = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]\p{M}*"
"""A character, with its marks, of scripts that put no blanks between words."""

_BEGINNING = 5  # letters that `PartTokenizer` takes as a word's beginning


def clean(text: str) -> str:
    """Lower the case and fold all white space to single spaces; doing it twice changes nothing
    more.

    >>> clean("  A Warm,\\tFUNNY  film ")
    'a warm, funny film'
    """
    return " ".join(text.lower().split())


def words_of(text: str) -> list[str]:
    """Split a text, in its clean form, into words, numbers, apostrophes and punctuation marks.

    >>> words_of("It's a warm, 90s film!")
    ['it', "'", 's', 'a', 'warm', ',', '90', 's', 'film', '!']
    >>> words_of("天气 ok")
    ['天', '气', 'ok']
    """
    return [piece for piece, _ in _splitter().pre_tokenize_str(_encodable(clean(text)))]


@functools.cache
def _splitter() -> Any:
    """Return the splitter: at blanks, at every punctuation mark, where digits begin and end, and
    around each character of a script that puts no blanks between words."""
    library = _library("the words of texts need")
    parts = library.pre_tokenizers
    characters = parts.Split(library.Regex(_WITHOUT_BLANKS), "isolated")
    digits = parts.Digits(individual_digits=False)
    return parts.Sequence([parts.BertPreTokenizer(), characters, digits])


def _encodable(text: str) -> str:
    """Replace half a surrogate pair, which is no character, by a question mark."""
    return text.encode("utf-8", "replace").decode()


class TextTokenizer(abc.ABC):
    """The interface of all tokenizers.

    Args:
        max_length: tokens of a text at most, CLS included.
    """

    first: ClassVar[Any] = CLS
    num_parts = 1
    """1, or how many ids each token has."""
    vocab_size: int
    """How many ids there are, the three special ones included."""

    def __init__(self, max_length: int) -> None:
        self.max_length = require_integer("max_length", max_length)

    @classmethod
    def build(cls, texts: Iterable[str], vocab_size: int, max_length: int) -> Self:
        """Learn a vocabulary from texts, the most frequent words first, `vocab_size` ids in all."""
        require_integer("vocab_size", vocab_size)
        if vocab_size < len(SPECIALS):
            names = ", ".join(SPECIALS)
            raise WrongUsage(f"vocab_size must be at least 3, for {names}; got {vocab_size}.")
        return cls._learnt(texts, vocab_size, max_length)

    @classmethod
    @abc.abstractmethod
    def _learnt(cls, texts: Iterable[str], vocab_size: int, max_length: int) -> Self: ...

    @abc.abstractmethod
    def _split(self, text: str) -> Sequence[Any]:
        """Return all tokens of a text, without CLS: words, or the items of `_as_ids`."""

    @abc.abstractmethod
    def _as_ids(self, tokens: Sequence[Any]) -> list[Any]: ...

    @abc.abstractmethod
    def _as_names(self, tokens: Sequence[Any]) -> list[str]: ...

    @abc.abstractmethod
    def to_mapping(self) -> Plain:
        """Return all there is to know as plain values; `open_tokenizer` reads them."""

    def ids(self, text: str) -> list[Any]:
        """Return the tokens of a text, CLS in front, at most `max_length`: ids, or lists of
        `num_parts` ids."""
        return [self.first, *self._as_ids(self._cut(text))][: self.max_length]

    def words(self, text: str) -> list[str]:
        """Return the names of the same tokens, as a person reads them; unknown words in
        brackets."""
        return [SPECIALS[CLS], *self._as_names(self._cut(text))][: self.max_length]

    def count(self, text: str) -> int:
        """Count the tokens of a text, CLS included, before it is cut."""
        return 1 + len(self._split(text))

    def _cut(self, text: str) -> Sequence[Any]:
        # One more than have room beside CLS: the last may be named together with its next word.
        return self._split(text)[: self.max_length]


class WordTokenizer(TextTokenizer):
    """One id for each word.

    Args:
        words: those with ids of their own, from 3 on; every other is `<UNK>`.

    >>> tokenizer = WordTokenizer.build(["good film", "bad film"], vocab_size=5, max_length=5)
    >>> tokenizer.ids("Bad, good film")
    [2, 1, 1, 4, 3]
    """

    def __init__(self, words: Sequence[str], max_length: int) -> None:
        super().__init__(max_length)
        self._names = [*SPECIALS, *words]
        self._ids = _numbered(self._names, 0)
        self.vocab_size = len(self._names)

    @classmethod
    def _learnt(cls, texts: Iterable[str], vocab_size: int, max_length: int) -> Self:
        counts = Counter(itertools.chain.from_iterable(map(words_of, texts)))
        # Counter keeps the order of first appearance, and most_common keeps it among equals.
        return cls([word for word, _ in counts.most_common(vocab_size - len(SPECIALS))], max_length)

    def _split(self, text: str) -> list[str]:
        return words_of(text)

    def _as_ids(self, tokens: Sequence[str]) -> list[int]:
        return [self._ids.get(word, UNK) for word in tokens]

    def _as_names(self, tokens: Sequence[str]) -> list[str]:
        return _named(tokens, self._ids)

    def to_mapping(self) -> Plain:
        """Return the words and the length as plain values."""
        words = self._names[len(SPECIALS) :]
        return {"kind": "word", "max_length": self.max_length, "words": words}


class PartTokenizer(TextTokenizer):
    """Three ids for each word: the word, its first five letters if it is longer, and it with the
    next word.

    The parts that a word has not, or that the vocabulary has not, are PAD; a model adds the vectors
    of the parts. A text is so a sequence of its words, and yet `not good` is known as a pair, and
    `boringly` as a kind of `boring`.

    Args:
        words, beginnings, pairs: those with ids, in this order, from 3 on; a pair has a space
            between its words.
    """

    first: ClassVar[Any] = [CLS, PAD, PAD]
    num_parts = 3

    def __init__(
        self, words: Sequence[str], beginnings: Sequence[str], pairs: Sequence[str], max_length: int
    ) -> None:
        super().__init__(max_length)
        self._parts = (list(words), list(beginnings), list(pairs))
        self.vocab_size, self._ids = len(SPECIALS), []
        for names in self._parts:
            self._ids.append(_numbered(names, self.vocab_size))
            self.vocab_size += len(names)

    @classmethod
    def _learnt(cls, texts: Iterable[str], vocab_size: int, max_length: int) -> Self:
        counts: Counter[tuple[int, str]] = Counter()
        for text in texts:
            for parts in _parts_of(words_of(text)):
                counts.update(enumerate(parts))
        for kind in range(3):
            del counts[kind, ""]  # words without this part
        kept: tuple[list[str], ...] = ([], [], [])
        for (kind, name), _ in counts.most_common(vocab_size - len(SPECIALS)):
            kept[kind].append(name)
        words, beginnings, pairs = kept
        return cls(words, beginnings, pairs, max_length)

    @property
    def names(self) -> list[str]:
        """The name of each id, for people; beginnings end with a dash."""
        words, beginnings, pairs = self._parts
        return [*SPECIALS, *words, *map("{}-".format, beginnings), *pairs]

    def _split(self, text: str) -> list[str]:
        return words_of(text)

    def _as_ids(self, tokens: Sequence[str]) -> list[list[int]]:
        known, beginnings, pairs = self._ids
        ids_of_words = []
        for word, beginning, pair in _parts_of(tokens):
            ids = [known.get(word, UNK), beginnings.get(beginning, PAD), pairs.get(pair, PAD)]
            ids_of_words.append(ids)
        return ids_of_words

    def _as_names(self, tokens: Sequence[str]) -> list[str]:
        return _named(tokens, self._ids[0])

    def to_mapping(self) -> Plain:
        """Return the parts and the length as plain values."""
        words, beginnings, pairs = self._parts
        return {
            "kind": "parts", "max_length": self.max_length,
            "words": words, "beginnings": beginnings, "pairs": pairs,
        }  # fmt: skip


class SubwordTokenizer(TextTokenizer):
    """Pieces of words, learnt by byte-pair encoding; needs the library `tokenizers`. `▁` stands
    where a word begins.

    Args:
        state: what the library writes of a tokenizer, as JSON.
    """

    def __init__(self, state: str, max_length: int) -> None:
        super().__init__(max_length)
        try:
            self._inner = _library("subwords need").Tokenizer.from_str(state)
        except CouldNotRun:
            raise
        except Exception as error:
            raise CouldNotRun(f"this is not the state of a subword tokenizer: {error}.") from None
        self.vocab_size = int(self._inner.get_vocab_size())

    @classmethod
    def _learnt(cls, texts: Iterable[str], vocab_size: int, max_length: int) -> Self:
        """Learn pieces; letters that no text has are `<UNK>`."""
        library = _library("subwords need")
        inner = library.Tokenizer(library.models.BPE(unk_token=SPECIALS[UNK]))
        inner.pre_tokenizer = library.pre_tokenizers.Metaspace()
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(SPECIALS),
            show_progress=False,
            min_frequency=2,
        )
        inner.train_from_iterator(map(_encodable, map(clean, texts)), trainer)
        return cls(inner.to_str(), max_length)

    def _split(self, text: str) -> list[tuple[int, str]]:
        encoding = self._inner.encode(_encodable(clean(text)), add_special_tokens=False)
        return list(zip(encoding.ids, encoding.tokens, strict=True))

    def _as_ids(self, tokens: Sequence[tuple[int, str]]) -> list[int]:
        return [number for number, _ in tokens]

    def _as_names(self, tokens: Sequence[tuple[int, str]]) -> list[str]:
        return [name for _, name in tokens]

    def to_mapping(self) -> Plain:
        """Return the library's state and the length as plain values."""
        state = json.loads(self._inner.to_str())
        return {"kind": "subword", "max_length": self.max_length, "state": state}


def open_tokenizer(mapping: Any) -> TextTokenizer:
    """Build the tokenizer that `to_mapping` wrote down.

    Raises:
        CouldNotRun: this is no such mapping.
    """
    kind = mapping.get("kind") if isinstance(mapping, Mapping) else None
    if kind not in ("word", "parts", "subword"):
        kinds = "expected a tokenizer of kind word, parts or subword"
        raise CouldNotRun(f"{kinds}; got {str(mapping)[:60]}.")
    try:
        if kind == "subword":
            return SubwordTokenizer(json.dumps(mapping["state"]), mapping["max_length"])
        words = _texts(mapping["words"])
        if kind == "word":
            return WordTokenizer(words, mapping["max_length"])
        beginnings, pairs = _texts(mapping["beginnings"]), _texts(mapping["pairs"])
        return PartTokenizer(words, beginnings, pairs, mapping["max_length"])
    except KeyError as error:
        raise CouldNotRun(f"the tokenizer is damaged: {error} is missing.") from None
    except WrongUsage as error:
        raise CouldNotRun(f"the tokenizer is damaged: {error}") from None


def _texts(values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        words = f"expected a list of words; got {str(values)[:60]}."
        raise CouldNotRun(f"the tokenizer is damaged: {words}")
    return values


def _numbered(names: Sequence[str], start: int) -> dict[str, int]:
    numbers = {name: number for number, name in enumerate(names, start)}
    if len(numbers) != len(names):
        raise WrongUsage("each name of a vocabulary has one id; got a name twice.")
    return numbers


def _named(words: Sequence[str], known: Mapping[str, int]) -> list[str]:
    return [word if word in known else f"[{word}]" for word in words]


def _parts_of(words: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each word with its beginning and its pair, empty where it has none."""
    for word, following in itertools.zip_longest(words, words[1:], fillvalue=""):
        beginning = word[:_BEGINNING] if len(word) > _BEGINNING else ""
        yield word, beginning, f"{word} {following}" if following else ""


def _library(what: str) -> Any:
    try:
        import tokenizers
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError:
        raise CouldNotRun(
            f"{what} the library tokenizers; install it with: pip install 'attnlab[text]'."
        ) from None
    return tokenizers
