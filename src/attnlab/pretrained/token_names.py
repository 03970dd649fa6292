"""Readable names of a tokenizer's ids.

Tokenizers write their pieces in different ways: GPT-2's writes every byte as a letter (`Ġcaf` and
`Ã©`), SentencePiece puts `▁` before a word, WordPiece `##` inside one. Here a blank is always `␣`,
text is text, invisible characters are written as in Python (`\\n`, `\\xe2`), and special tokens
stay as they are. Two ids share a name only if a token was added that existed already.
"""

import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from attnlab.pretrained.tokenization import tokenized

__all__ = ["BLANK", "TokenNames"]

BLANK = "␣"
_WORD = "▁"  # a blank, as SentencePiece writes it


def _drawn_bytes() -> dict[str, int]:
    """Return the letters that represent bytes: visible bytes as themselves, the others as letters
    from 256 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(byte): byte for byte in visible}
    hidden = [byte for byte in range(256) if byte not in visible]
    letters.update((chr(256 + index), byte) for index, byte in enumerate(hidden))
    return letters


_BYTES = _drawn_bytes()


class TokenNames(Sequence[str]):
    """The names of a tokenizer's ids, from 0 on; a sequence whose items are made when read.

    Args:
        tokenizer: of transformers.
        size: the model's number of ids, if larger; ids beyond the tokenizer are called `<id
            50263>`.
    """

    def __init__(self, tokenizer: Any, size: int = 0) -> None:
        self._tokenizer = tokenizer
        self._known = len(tokenizer)  # kept: len counts the added tokens each time
        self._size = max(size, self._known)
        self._special = frozenset(tokenizer.all_special_ids)
        self._added = frozenset(map(int, getattr(tokenizer, "added_tokens_decoder", {})))
        self._style = _style_of(tokenizer)
        self._names: dict[int, str] = {}

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, token: int) -> str: ...
    @overload
    def __getitem__(self, token: slice) -> list[str]: ...
    def __getitem__(self, token: int | slice) -> str | list[str]:
        if isinstance(token, slice):
            return [self[each] for each in range(*token.indices(self._size))]
        token = operator.index(token)  # of a tensor too
        if not -self._size <= token < self._size:
            raise IndexError(token)
        token %= self._size
        if token not in self._names:
            self._names[token] = self._named(token)
        return self._names[token]

    def __iter__(self) -> Iterator[str]:
        return (self[token] for token in range(self._size))

    def ids_of(self, name: str) -> list[int]:
        """Return the ids that a name may mean: `Mary` with or without a blank before it, `␣Mary`
        only with one.

        A text that the tokenizer turns into one token counts too, so an uncased one knows `Mary` as
        `mary`.
        """
        found = list(self._ids.get(name, ()))
        plain = name.replace(BLANK, " ")
        if not plain.strip() or (found and plain.startswith(" ")):
            return found
        for text in (plain, f" {plain}"):
            pieces = self.pieces(text)
            if len(pieces) == 1 and pieces[0] != self._tokenizer.unk_token_id:
                found += pieces
        return list(dict.fromkeys(found))

    def id_of(self, name: str) -> int:
        """Return the id with exactly this name."""
        return self._ids[name][0]

    def pieces(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens around it."""
        found = tokenized(self._tokenizer, text, add_special_tokens=False)
        return [int(each) for each in found["input_ids"]]

    def missing(self, name: str) -> str:
        """Return the reason why no id has a name, and what to do."""
        pieces = self.pieces(name.replace(BLANK, " "))
        if len(pieces) > 1:
            listed = " ".join(repr(self[each]) for each in pieces)
            return (
                f"{name!r} is {len(pieces)} tokens here, {listed}; name one of them, or give its "
                "position"
            )
        return f"no token is called {name!r}; `attnlab look` shows the names of a text's tokens"

    @functools.cached_property
    def _ids(self) -> Mapping[str, list[int]]:
        found: dict[str, list[int]] = {}
        for token, name in enumerate(self):
            found.setdefault(name, []).append(token)
        return found

    def _named(self, token: int) -> str:
        raw = self._tokenizer.convert_ids_to_tokens(token) if token < self._known else None
        if raw is None:
            return f"<id {token}>"
        if token in self._special:
            return str(raw)
        is_bytes = self._style == "bytes" and token not in self._added
        if is_bytes and all(letter in _BYTES for letter in raw):
            raw = bytes(_BYTES[letter] for letter in raw).decode("utf-8", "surrogateescape")
        elif self._style == "words":
            raw = raw.replace(_WORD, " ")
        return "".join(map(_shown, raw))


def _style_of(tokenizer: Any) -> str:
    """Return how pieces are written: "bytes" as letters, "words" after `▁`, or "plain"."""
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    if decoder is not None:
        state = bytes(decoder.__getstate__()).decode()
        if "ByteLevel" in state:
            return "bytes"
        return "words" if _WORD in state or "Metaspace" in state else "plain"
    vocabulary = tokenizer.get_vocab()
    if any(name.startswith(_WORD) for name in vocabulary):
        return "words"
    return "bytes" if any(name.startswith("Ġ") for name in vocabulary) else "plain"


def _shown(letter: str) -> str:
    """Write one letter visibly, and different from all others."""
    if letter == " ":
        return BLANK
    if "\udc80" <= letter <= "\udcff":  # a byte that is not a letter by itself
        return f"\\x{ord(letter) - 0xDC00:02x}"
    if letter in ("\\", BLANK) or not letter.isprintable():
        return letter.encode("unicode_escape").decode()
    return letter
