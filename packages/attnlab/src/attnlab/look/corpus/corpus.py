"""A corpus: many texts, how they become ids and batches; and a pass over all of them, whose state
is kept in a folder, so that a stopped one resumes from there."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import index
from pathlib import Path
from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from attnlab.core.store import JsonObject, StateFolder, locked, make_folder, remove_remains
from attnlab.errors import CouldNotRun, WrongUsage, is_integer, type_words
from attnlab.look.collector import run_collector
from attnlab.look.corpus.measures import HeadReader
from attnlab.look.corpus.text_rows import TextRow, rows_of
from attnlab.look.heads import chosen_heads, head_name
from attnlab.look.inputs import foreign_of
from attnlab.look.long_text.inputs import (
    arguments_for,
    check_ids,
    reading_attentions,
    takes_padding,
)
from attnlab.look.long_text.long_text import fingerprint
from attnlab.look.readers import model_name
from attnlab.look.recording.tokens import Vocabulary, name_of, vocabulary_of
from attnlab.pretrained.text import device_of, max_tokens, tokenized
from attnlab.progress import notebook_bar
from attnlab.shapes import require_integer

Encode = Callable[[str], Sequence[int]]
_USUAL = 1024  # the most tokens of a text by default
_Reader = TypeVar("_Reader", bound=HeadReader)


@dataclass(frozen=True)
class Corpus:
    """Many texts, and how they are read.

    source: a .csv, .tsv, .jsonl, .parquet or .txt file, or the texts one after another. column: of
    the texts. limit: the most rows; None for all. max_length: the most tokens of a text; longer
    ones are cut and counted; None for the model's limit, at most 1,024. batch_tokens: places in a
    batch, padding included; values may differ in their last digits with another number. encode: a
    function from a text to its ids, for a model without a tokenizer. vocabulary: the names of ids;
    None for the model's own.
    """

    source: Path | str | Iterable[str]
    column: str = "text"
    limit: int | None = None
    max_length: int | None = None
    batch_tokens: int = 4096
    encode: Encode | None = None
    vocabulary: Vocabulary | None = None

    def __post_init__(self) -> None:
        require_integer("batch_tokens", self.batch_tokens)
        if self.limit is not None:
            require_integer("limit", self.limit)
        if not isinstance(self.source, Iterable | Path):
            raise WrongUsage(f"a corpus is a file or texts; got {type_words(self.source)}.")

    @property
    def name(self) -> str:
        """The name of the file, or "texts"."""
        return Path(self.source).name if isinstance(self.source, Path | str) else "texts"


@dataclass(frozen=True)
class CorpusBatch:
    """A batch of texts: ids and real (text, length), the numbers and lengths of the texts."""

    ids: Tensor
    real: Tensor
    numbers: list[int]
    lengths: list[int]


@dataclass(frozen=True)
class CorpusProgress:
    """The progress of a pass over a corpus.

    texts, tokens: read so far · left_out: rows without a text · seconds: of this call · rate:
    tokens a second of this call.
    """

    texts: int
    tokens: int
    left_out: int
    seconds: float
    rate: float


class CorpusPass:
    """A pass over a corpus that reads chosen heads, and its state.

    state: plain values for the folder, `settings` among them; a subclass has tensors beside them ·
    vocabulary: of the ids.
    """

    SAME: ClassVar[tuple[str, ...]]
    """The entries of the state that a resumed pass shares with the stopped one."""
    NOUN: ClassVar[str]

    def __init__(
        self,
        model: nn.Module,
        corpus: Corpus | Path | str | Iterable[str],
        heads: list[str] | None,
        progress: Callable[[CorpusProgress], None] | None,
        settings: JsonObject,
    ) -> None:
        self.corpus = corpus if isinstance(corpus, Corpus) else Corpus(corpus)
        self._heads = chosen_heads(model, reading_attentions(model), heads)
        self._model, longest = model, longest_of(model, self.corpus.max_length)
        if not self._heads:
            raise WrongUsage("heads= has no head; leave it out for all.")
        names = [head_name(part, head) for part, some in self._heads.items() for head in some]
        self.state: JsonObject = {
            "model": model_name(model),
            "fingerprint": fingerprint(model),
            "heads": names,
            "column": self.corpus.column,
            "longest": longest,
            "counts": Counter({"texts read": 0, "tokens read": 0}),
            "texts": {},
            "names": {},
            **settings,
        }
        if progress is None and (bar := notebook_bar("texts read")) is not None:
            progress = lambda far: bar.count(far.texts)  # noqa: E731
        self._progress = progress
        self.vocabulary = vocabulary_of(model, self.corpus.vocabulary)
        self.encode = encoder_of(model, self.corpus.encode, longest)
        self.folder: StateFolder | None = None
        self.began, self._tokens_before = time.monotonic(), 0

    def read(self, rows: Iterator[TextRow]) -> None:
        """Read rows of the corpus."""
        raise NotImplementedError

    def resume(
        self, before: JsonObject, tensors: dict[str, Tensor], rows: Iterator[TextRow]
    ) -> None:
        """Take over the state of a stopped pass, which agrees in `SAME`."""
        raise NotImplementedError

    def run(self, folder: StateFolder | None) -> None:
        """Read the corpus; write the state into a folder, and resume what is there.

        Raises:
            WrongUsage: no text could be read, or the folder holds another pass.
        """
        rows = islice(rows_of(self.corpus.source, self.corpus.column), self.corpus.limit)
        if folder is None:
            self.read(rows)
            return
        self.folder = folder
        make_folder(folder.path)
        with locked(folder.path):
            remove_remains(folder.path)
            if folder.is_there:
                before, tensors = folder.load()
                different = [name for name in self.SAME if before.get(name) != self.state[name]]
                self.check_same(different)
                before["counts"] = Counter(before["counts"])
                self._tokens_before = before["counts"]["tokens read"]
                self.resume(before, tensors, rows)
            self.read(rows)

    def check_same(self, different: Sequence[str]) -> None:
        """Raise if the folder's pass differs from this one in something."""
        if different and self.folder is not None:
            raise WrongUsage(
                f"{self.folder.path} holds another {self.NOUN}: {', '.join(different)} differs. "
                "Choose another folder."
            )

    def check_any(self) -> None:
        """Raise if no text was read."""
        counts = self.state["counts"]
        if not counts["texts read"]:
            reasons = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
            raise WrongUsage(f"no text could be read: {reasons or 'no row at all'}.")

    def encoded(self, rows: Iterable[TextRow]) -> list[tuple[int, list[int]]]:
        """Return the numbers and ids of the rows that have a text, and count all."""
        texts, counts = [], self.state["counts"]
        for row in rows:
            ids = [] if row.text is None else list(self.encode(row.text))
            if not ids:
                counts["rows left out"] += 1
                counts[f"left out: {row.why or 'no token'}"] += 1
                continue
            counts["texts read"] += 1
            counts["tokens read"] += len(ids)
            is_longest = len(ids) >= self.state["longest"]
            counts["texts of the longest length, perhaps cut"] += is_longest
            texts.append((row.number, ids))
        return texts

    def batches(self, texts: Sequence[tuple[int, Sequence[int]]]) -> Iterator[CorpusBatch]:
        """Group texts, (number, ids), into batches that the model can read."""
        return batches(texts, self.corpus.batch_tokens, padded=takes_padding(self._model))

    def read_heads(self, batch: CorpusBatch, reader: Callable[..., _Reader]) -> _Reader:
        """Run the model on a batch, and return what has read the chosen heads."""
        arguments, options = batch_inputs(self._model, batch)
        ids = arguments[0]
        names = partial(name_of, vocabulary=self.vocabulary)
        hook = reader(self._heads, ids, batch.real.to(ids.device), names)
        run_collector(self._model, hook, arguments, options)
        return hook

    def show(self) -> None:
        """Tell the progress."""
        if self._progress is not None:
            spent, counts = time.monotonic() - self.began, self.state["counts"]
            tokens, left_out = counts["tokens read"], counts["rows left out"]
            rate = (tokens - self._tokens_before) / max(spent, 1e-9)
            self._progress(CorpusProgress(counts["texts read"], tokens, left_out, spent, rate))


def digest_of_row(row: TextRow) -> bytes:
    """Return a digest of a text, or of why there is none, by which another corpus is recognized."""
    text = row.why if row.text is None else row.text
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


def encoder_of(model: nn.Module, encode: Encode | None, longest: int) -> Encode:
    """Return a function from a text to its ids, cut to `longest`.

    Raises:
        CouldNotRun: the model has no tokenizer, and `encode` is None.
        WrongUsage: `encode` is not a function; or, when called, does not return ids of this model.
    """
    tokenizer = getattr(model, "tokenizer", None)
    if encode is None and tokenizer is None:
        raise CouldNotRun("this model has no tokenizer: give a function from text to ids, encode=.")
    if not (encode is None or callable(encode)):
        raise WrongUsage(f"encode is a function from a text to its ids; got {encode!r}.")

    def encoded(text: str) -> list[int]:
        if encode is None:
            encoding = tokenized(tokenizer, text, truncation=True, max_length=longest)
            return list(map(int, encoding["input_ids"]))
        try:
            ids = list(map(index, encode(text)))[:longest]
        except TypeError:
            raise WrongUsage("encode returns ids, one for each token of a text.") from None
        check_ids(model, torch.tensor(ids))
        return ids

    return encoded


def longest_of(model: nn.Module, length: int | None) -> int:
    """Return the most tokens of a text: a given number, or the model's limit, at most 1,024."""
    most = max_tokens(foreign_of(model))
    if length is None:
        return min(most or _USUAL, _USUAL)
    if not is_integer(length) or length < 2 or (most is not None and length > most):
        raise WrongUsage(f"max_length is a number from 2 to {most or 'any'}; got {length!r}.")
    return length


def batches(
    texts: Sequence[tuple[int, Sequence[int]]], most: int, *, padded: bool = True
) -> Iterator[CorpusBatch]:
    """Group texts, (number, ids), of similar length into batches of at most `most` places; of one
    length where there is to be no padding.

    >>> [batch.numbers for batch in batches([(0, [1, 2]), (1, [1]), (2, [1, 2, 3, 4])], 4)]
    [[1, 0], [2]]
    """
    waiting: list[tuple[int, Sequence[int]]] = []
    for number, ids in sorted(texts, key=lambda text: (len(text[1]), text[0])):
        is_full = (len(waiting) + 1) * len(ids) > most
        if waiting and (is_full or (not padded and len(ids) > len(waiting[-1][1]))):
            yield _batch(waiting)
            waiting = []
        waiting.append((number, ids))
    if waiting:
        yield _batch(waiting)


def _batch(texts: Sequence[tuple[int, Sequence[int]]]) -> CorpusBatch:
    numbers, rows = zip(*texts, strict=True)
    lengths = list(map(len, rows))
    padded = pad_sequence([torch.tensor(list(ids)) for ids in rows], batch_first=True)
    real = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(-1)
    return CorpusBatch(padded, real, list(numbers), lengths)


def batch_inputs(
    model: nn.Module, batch: CorpusBatch
) -> tuple[tuple[Tensor, ...], dict[str, object]]:
    """Return a model's arguments for a batch: in order, and by name."""
    device = device_of(model)
    real = None if bool(batch.real.all()) else batch.real.to(device)
    return arguments_for(model, batch.ids.to(device), real)
