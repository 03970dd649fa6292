"""Text as input of a foreign model: ids, the attention mask, and what else its tokenizer makes; and
readable names of its ids.

Tokenizers write their pieces in different ways: GPT-2's writes every byte as a letter (`Ġcaf` and
`Ã©`), SentencePiece puts `▁` before a word, WordPiece `##` inside one. Here a blank is always `␣`,
text is text, invisible characters are written as in Python (`\\n`, `\\xe2`), and special tokens
stay as they are. Two ids share a name only if a token was added that existed already.
"""

import functools
import inspect
import operator
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from attnlab.errors import CouldNotRun, WrongUsage, one_line, type_words

_FILLS = {"attention_mask": 0, "token_type_ids": 0}  # values at padding


def text_inputs(
    model: Any,
    text: str | Sequence[str],
    pair: str | Sequence[str] | None = None,
    *,
    target: str | Sequence[str] | None = None,
    beyond: bool = False,
) -> dict[str, Tensor]:
    """Return what a model takes by name: each (batch, length), shorter texts padded on the right.

    Args:
        text: one text or several.
        pair: the second text of each, for models that read two.
        target: what the decoder of an encoder–decoder reads after the start token; None for the
            start token alone.
        beyond: allow more tokens than the model was made for, where its positions have no end.

    Raises:
        CouldNotRun: the model has no tokenizer.
        WrongUsage: an empty text, one too long for the model, or a model that reads no text.
    """
    foreign, tokenizer = model.foreign, _tokenizer_of(model)
    texts = _listed(text, "text")
    pairs = [None] * len(texts) if pair is None else _listed(pair, "pair")
    if len(pairs) != len(texts):
        raise WrongUsage(f"{len(texts)} texts need as many second texts; got {len(pairs)}.")
    takes = inspect.signature(foreign.forward).parameters
    both = zip(texts, pairs, strict=True)
    rows = [tokenized(tokenizer, one, other, verbose=False) for one, other in both]
    _check_lengths(model, [len(row["input_ids"]) for row in rows], texts, beyond=beyond)
    names = sorted(rows[0].keys() & {*takes, "input_ids"})
    named = {name: [row[name] for row in rows] for name in names}
    if is_encoder_decoder(foreign):
        named["decoder_input_ids"] = _decoder_ids(model, target, len(texts))
    elif target is not None:
        raise WrongUsage(f"{model.name} has no decoder beside its encoder, so it takes no target.")
    device = device_of(foreign)
    return {name: _padded(name, ids, tokenizer).to(device) for name, ids in named.items()}


def _decoder_ids(model: Any, target: str | Sequence[str] | None, number: int) -> list[list[int]]:
    """Return what a decoder reads: its start, and the targets if there are any."""
    if target is None:
        return [[start_of(model)]] * number
    targets = _listed(target, "target")
    start = [start_of(model)]
    return [start + answer_ids(model, text) for text in targets]


def _padded(name: str, rows: Sequence[Sequence[int]], tokenizer: Any) -> Tensor:
    usual = [_FILLS.get(name), tokenizer.pad_token_id, tokenizer.eos_token_id]
    # Without a padding token any will do: it is masked.
    fill = next((int(token) for token in usual if token is not None), 0)
    return pad_sequence(list(map(torch.tensor, rows)), batch_first=True, padding_value=fill)


def device_of(foreign: nn.Module) -> torch.device:
    """Return the device on which a model takes its inputs: that of its first weight, but for those
    that accelerate has put aside.

    Raises:
        CouldNotRun: all weights are on the meta device, which has no numbers.
    """
    for parameter in foreign.parameters():
        if parameter.device.type != "meta":
            return parameter.device
    for module in foreign.modules():
        hook = getattr(module, "_hf_hook", None)
        for one in getattr(hook, "hooks", [hook]):
            if getattr(one, "execution_device", None) is not None:
                return torch.device(one.execution_device)
    if next(foreign.parameters(), None) is not None:
        raise CouldNotRun(
            f"the weights of this {type(foreign).__name__} are on the meta device, which holds no "
            "numbers; open it on a real one."
        )
    return torch.device("cpu")


def answer_ids(model: Any, text: str) -> list[int]:
    """Return the ids of an answer, without the token that ends it."""
    ids = list(map(int, tokenized(_tokenizer_of(model), text_target=text)["input_ids"]))
    if ids and ids[-1] in stops_of(model):
        ids.pop()
    return ids


def is_encoder_decoder(foreign: nn.Module) -> bool:
    """Does the config of a model say that it has an encoder and a decoder?"""
    return bool(getattr(getattr(foreign, "config", None), "is_encoder_decoder", False))


def max_tokens(model: nn.Module) -> int | None:
    """Return how many tokens a foreign model can read, the number of its positions; None without a
    limit."""
    config, named = text_config(model), model.named_modules()
    tables = [part for name, part in named if isinstance(part, nn.Embedding) and "pos" in name]
    if config is None:  # a hand-written model
        return min((table.num_embeddings for table in tables), default=None)
    most = length_made_for(model)
    if most is None or getattr(config, "rope_parameters", None) is not None:
        return None
    for table in tables:
        if table.padding_idx is not None:  # positions are counted from the one after padding
            return min(most, table.num_embeddings - table.padding_idx - 1)
    return most


def length_made_for(model: nn.Module) -> int | None:
    """Return how many tokens a foreign model was trained to read; None if its config does not
    say."""
    most = getattr(text_config(model), "max_position_embeddings", None)
    return most if isinstance(most, int) and most > 0 else None


def text_config(model: nn.Module) -> Any:
    """Return the config of the part of a foreign model that reads text, or None."""
    config: Any = getattr(model, "config", None)
    if hasattr(config, "get_text_config"):
        config = config.get_text_config()
    return config


def start_of(model: Any) -> int:
    """Return the id that a decoder starts from.

    Raises:
        CouldNotRun: the model does not say.
    """
    for settings in _settings(model):
        for name in ("decoder_start_token_id", "bos_token_id"):
            if isinstance(token := getattr(settings, name, None), int):
                return token
    raise CouldNotRun(
        f"the decoder of {model.name} has no known start token; give decoder_input_ids."
    )


def stops_of(model: Any) -> frozenset[int]:
    """Return the ids that end an answer."""
    for settings in _settings(model):
        token = getattr(settings, "eos_token_id", None)
        if isinstance(token, list | tuple):
            return frozenset(token)
        if token is not None:
            return frozenset((int(token),))
    return frozenset()


def _settings(model: Any) -> list[Any]:
    configs = [getattr(model.foreign, name, None) for name in ("generation_config", "config")]
    return [config for config in configs if config is not None]


def _tokenizer_of(model: Any) -> Any:
    main = getattr(model.foreign, "main_input_name", "input_ids")
    if main != "input_ids":
        raise WrongUsage(f"{model.name} reads {main}, not text: model({main}=...).")
    if model.tokenizer is None:
        raise CouldNotRun(
            f"{model.name} came without a tokenizer, so text cannot be read: give ids of shape "
            "(batch, length), or a tokenizer of transformers with attnlab.load(model, "
            "tokenizer=...)."
        )
    return model.tokenizer


def _listed(text: str | Sequence[str], what: str) -> list[str]:
    texts = [text] if isinstance(text, str) else text
    if not isinstance(texts, Sequence) or not texts or any(not isinstance(t, str) for t in texts):
        raise WrongUsage(f"the {what} is one text or several; got {text!r:.80}.")
    if any(not text.strip() for text in texts):
        raise WrongUsage(f"the {what} is empty; give at least one word.")
    return list(texts)


def _check_lengths(
    model: Any, lengths: Sequence[int], texts: Sequence[str], *, beyond: bool
) -> None:
    if not min(lengths):
        text = texts[lengths.index(0)]
        raise WrongUsage(f"the tokenizer of {model.name} finds no token in {text!r:.80}.")
    most = max_tokens(model.foreign)
    if most is not None and max(lengths) > most:
        raise WrongUsage(
            f"the text has {max(lengths):,} tokens, and this model reads at most {most:,}, "
            "special ones included; shorten it."
        )
    made_for = length_made_for(model.foreign)
    if made_for is not None and max(lengths) > made_for and not beyond:
        raise WrongUsage(
            f"the text has {max(lengths):,} tokens, and this model was made for {made_for:,}: "
            "shorten it, summarize its attention by attnlab.summarize_document(model, text, "
            "beyond=True), or read it anyway by model.inputs(text, beyond=True)."
        )


BLANK = "␣"
_WORD = "▁"  # a blank, as SentencePiece writes it


def _drawn_bytes() -> dict[str, int]:
    """Return the letters that represent bytes: visible bytes as themselves, the others as letters
    from 256 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    letters = [*map(chr, visible), *map(chr, range(256, 256 + len(hidden)))]
    return dict(zip(letters, visible + hidden, strict=True))


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

    def __getitem__(self, token: Any) -> Any:
        if isinstance(token, slice):
            return [self[index] for index in range(*token.indices(self._size))]
        token = operator.index(token)  # of a tensor too
        if not -self._size <= token < self._size:
            raise IndexError(token)
        token %= self._size
        if token not in self._names:
            self._names[token] = self._named(token)
        return self._names[token]

    def ids_of(self, name: str) -> list[int]:
        """Return the ids that a name may mean: `Mary` with or without a blank before it, `␣Mary`
        only with one.

        A text that the tokenizer turns into one token counts too, so an uncased one knows `Mary` as
        `mary`.
        """
        ids = list(self._ids.get(name, ()))
        plain = name.replace(BLANK, " ")
        if not plain.strip() or (ids and plain.startswith(" ")):
            return ids
        for text in (plain, f" {plain}"):
            pieces = self.pieces(text)
            if len(pieces) == 1 and pieces[0] != self._tokenizer.unk_token_id:
                ids += pieces
        return list(dict.fromkeys(ids))

    def id_of(self, name: str) -> int:
        """Return the id with exactly this name."""
        return self._ids[name][0]

    def pieces(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens around it."""
        encoding = tokenized(self._tokenizer, text, add_special_tokens=False)
        return list(map(int, encoding["input_ids"]))

    def is_unknown(self, token: int) -> bool:
        """Is this the id of the unknown token?"""
        return bool(token == self._tokenizer.unk_token_id and token in self._special)

    def missing(self, name: str) -> str:
        """Return the reason why no id has a name, and what to do."""
        pieces = self.pieces(name.replace(BLANK, " "))
        if len(pieces) > 1:
            listed = " ".join(repr(self[token]) for token in pieces)
            return (
                f"{name!r} is {len(pieces)} tokens here, {listed}; name one of them, or give its "
                "position"
            )
        return f"no token is called {name!r}; `attnlab look` shows the names of a text's tokens"

    @functools.cached_property
    def _ids(self) -> Mapping[str, list[int]]:
        ids: defaultdict[str, list[int]] = defaultdict(list)
        for token, name in enumerate(self):
            ids[name].append(token)
        return dict(ids)

    def _named(self, token: int) -> str:
        raw = None
        if token < self._known:
            raw = self._tokenizer.convert_ids_to_tokens(token)
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
        if _WORD in state or "Metaspace" in state:
            return "words"
        return "plain"
    begins = {name[:1] for name in tokenizer.get_vocab()}
    if _WORD in begins:
        return "words"
    if "Ġ" in begins:
        return "bytes"
    return "plain"


def _shown(letter: str) -> str:
    """Write one letter visibly, and different from all others."""
    if letter == " ":
        return BLANK
    if "\udc80" <= letter <= "\udcff":  # a byte that is not a letter by itself
        return f"\\x{ord(letter) - 0xDC00:02x}"
    if letter in ("\\", BLANK) or not letter.isprintable():
        return letter.encode("unicode_escape").decode()
    return letter


def tokenized(tokenizer: Any, *texts: Any, **options: Any) -> Any:
    """Call a tokenizer of transformers.

    Raises:
        CouldNotRun: it crashes.
    """
    try:
        return tokenizer(*texts, **options)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of its Rust code is no Exception
        words = one_line(error, 200).rstrip(".")
        raise CouldNotRun(
            f"the tokenizer, {type_words(tokenizer)}, fails on this text "
            f"({type(error).__name__}: {words}). Shorten it, or give ids of another tokenizer."
        ) from None
