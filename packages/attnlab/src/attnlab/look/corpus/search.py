"""Search many texts for a pattern of heads: each text is read once, every head measured at every
token.

    search = search_corpus(model, "reviews.csv", "induction", out="searches/induction")
    search.table()                 # every head: mean with interval, quantiles
    search.examples("3.5")         # the queries with the largest values, with their texts

Texts are read in windows of some hundred, batched by length, and forgotten; the state does not grow
with the corpus (`tally.py`). It is written after each window, and the same call resumes from it.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from operator import index
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from attnlab.core.store import JsonObject, locked, make_folder, remove_remains
from attnlab.errors import CouldNotRun, WrongUsage, is_integer, type_words
from attnlab.look.collector import run_collector
from attnlab.look.corpus.measures import Measure, Measurer, Rows, digest_of, measure_of
from attnlab.look.corpus.result import CorpusSearch, SearchFolder, write_tables
from attnlab.look.corpus.tally import Tally
from attnlab.look.corpus.text_files import Row, rows_of
from attnlab.look.heads import chosen_heads, head_name
from attnlab.look.inputs import foreign_of
from attnlab.look.long_text.inputs import arguments_for, check_ids, parts_of
from attnlab.look.long_text.long_text import fingerprint
from attnlab.look.recording.tokens import Vocabulary, name_of, names_of, vocabulary_of
from attnlab.pretrained.text import max_tokens, tokenized
from attnlab.progress import notebook_bar
from attnlab.shapes import require_integer

_WINDOW = 256  # texts that are batched by length together
_SAME = ("measure", "code", "fingerprint", "heads", "column", "top", "longest", "lowest", "seed")
Encode = Callable[[str], Sequence[int]]
_USUAL = 1024  # the most tokens of a text by default


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
class Batch:
    """A batch of texts: ids and real (text, length), the numbers and lengths of the texts."""

    ids: Tensor
    real: Tensor
    numbers: list[int]
    lengths: list[int]


@dataclass(frozen=True)
class Progress:
    """The progress of a search: texts and tokens read, rows left out, seconds and tokens a second
    of this call."""

    texts: int
    tokens: int
    left_out: int
    seconds: float
    rate: float


def search_corpus(
    model: nn.Module,
    corpus: Corpus | Path | str | Iterable[str],
    measure: str | Callable[[Rows], Tensor],
    *,
    heads: list[str] | None = None,
    out: Path | str | None = None,
    top: int = 20,
    lowest: bool = False,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> CorpusSearch:
    """Measure heads on every token of many texts, and keep the queries with the largest values.

    Args:
        model: any model with sites; in an encoder–decoder, the encoder is measured.
        corpus: a file, or the texts one after another; a `Corpus` to say how they are read, such as
            Corpus("reviews.csv", column="review", limit=1000).
        measure: one of `MEASURES`, "token:REGEX", or a function of `Rows`.
        heads: such as ["3.5", "4"]; None for all.
        out: a folder to create or to resume from; None to write nothing.
        top: examples for each head, at most one of each text.
        lowest: keep the least values instead of the largest.
        seed: of the sample and of the intervals.
        progress: called after each batch; None for a bar in a notebook.

    Raises:
        WrongUsage: invalid arguments, a corpus without any text, or a folder with another search.
        CouldNotRun: the corpus or the folder cannot be read or written.
    """
    name, measured = measure_of(measure)
    require_integer("top", top)
    texts = corpus if isinstance(corpus, Corpus) else Corpus(corpus)
    longest = longest_of(model, texts.max_length)
    chosen = chosen_heads(model, parts_of(model), heads)
    if not chosen:
        raise WrongUsage("heads= has no head; leave it out for all.")
    state: JsonObject = {
        "model": str(getattr(model, "name", "") or type(model).__name__),
        "fingerprint": fingerprint(model),
        "measure": name,
        "code": digest_of(measure),
        "heads": [head_name(part, head) for part, numbers in chosen.items() for head in numbers],
        "column": texts.column,
        "top": top,
        "longest": longest,
        "lowest": lowest,
        "seed": seed,
        "rows": 0,
        "counts": Counter(),
        "texts": {},
        "is_done": False,
    }
    if progress is None and (bar := notebook_bar("texts read")) is not None:
        progress = lambda far: bar.count(far.texts)  # noqa: E731
    vocabulary = vocabulary_of(model, texts.vocabulary)
    encode = encoder_of(model, texts.encode, longest)
    search = _Search(model, measured, chosen, encode, vocabulary, state)
    rows = islice(rows_of(texts.source, texts.column), texts.limit)
    if out is None:
        return search.read(rows, texts.batch_tokens, progress)
    folder = SearchFolder(Path(out))
    make_folder(folder.path)
    with locked(folder.path):
        remove_remains(folder.path)
        search.resume(rows, folder)
        result = search.read(rows, texts.batch_tokens, progress)
        write_tables(result, folder.path)
        return result


class _Search:
    """A search while it runs; `state` is written to its folder, beside the tally."""

    def __init__(
        self,
        model: nn.Module,
        measure: Measure,
        heads: dict[str, list[int]],
        encode: Encode,
        vocabulary: Vocabulary | None,
        state: JsonObject,
    ) -> None:
        self._model, self._measure, self._heads = model, measure, heads
        self._encode, self._vocabulary = encode, vocabulary
        self._state = state
        self._folder: SearchFolder | None = None
        self._tally = Tally(
            len(state["heads"]), state["top"], state["seed"], lowest=state["lowest"]
        )
        self._digest = hashlib.sha256()
        self._began, self._before = time.monotonic(), 0.0

    def read(
        self, rows: Iterator[Row], most: int, progress: Callable[[Progress], None] | None
    ) -> CorpusSearch:
        """Read all rows, and return the result."""
        counts = self._state["counts"]
        tokens_before = counts["tokens read"]
        while window := list(islice(rows, _WINDOW)):
            for batch in batches(self._encoded(window), most):
                self._measure_batch(batch)
                if progress is not None:
                    spent = time.monotonic() - self._began
                    tokens, left = counts["tokens read"], counts["rows left out"]
                    rate = (tokens - tokens_before) / max(spent, 1e-9)
                    progress(Progress(counts["texts read"], tokens, left, spent, rate))
            self._state["rows"] = window[-1].number + 1
            self._keep()
        if not counts["texts read"]:
            reasons = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
            raise WrongUsage(f"no text could be read: {reasons or 'no row at all'}.")
        self._state["is_done"] = True
        self._keep()
        return CorpusSearch(self._state, self._tally)

    def resume(self, rows: Iterator[Row], folder: SearchFolder) -> None:
        """Write into a folder, and resume the search there, if it is this one.

        Raises:
            WrongUsage: the folder holds another search; the message names the difference.
        """
        self._folder = folder
        if not folder.is_there:
            return
        before, tally = folder.load()
        different = [name for name in _SAME if before.get(name) != self._state[name]]
        different = different or self._differences(rows, before)
        if different:
            raise WrongUsage(
                f"{folder.path} holds another search: {', '.join(different)} differs. Choose "
                "another folder."
            )
        self._state["counts"].update(before["counts"])
        self._state |= {"rows": before["rows"], "texts": before["texts"]}
        self._before, self._tally = before["seconds"], tally

    def _encoded(self, window: list[Row]) -> list[tuple[int, list[int]]]:
        texts, counts = [], self._state["counts"]
        for row in window:
            self._learn(row)
            ids = [] if row.text is None else list(self._encode(row.text))
            if not ids:
                counts["rows left out"] += 1
                counts[f"left out: {row.why or 'no token'}"] += 1
                continue
            counts["texts read"] += 1
            counts["tokens read"] += len(ids)
            is_longest = len(ids) >= self._state["longest"]
            counts["texts of the longest length, perhaps cut"] += is_longest
            texts.append((row.number, ids))
        return texts

    def _measure_batch(self, batch: Batch) -> None:
        arguments, options = inputs_of(self._model, batch)
        ids = arguments[0]
        names = partial(name_of, vocabulary=self._vocabulary)
        measurer = Measurer(self._heads, self._measure, ids, batch.real.to(ids.device), names)
        run_collector(self._model, measurer, arguments, options)
        self._tally.add(*measurer.values_and_keys(), batch.numbers, batch.lengths)
        texts = self._state["texts"]  # of the examples
        for row, number in enumerate(batch.numbers):
            texts[str(number)] = batch.ids[row, : batch.lengths[row]].tolist()
        kept = set(map(str, set(self._tally.places[..., 0].flatten().tolist())))
        self._state["texts"] = {number: ids for number, ids in texts.items() if number in kept}

    def _learn(self, row: Row) -> None:
        """Add a row to the digest of the corpus."""
        text = row.why if row.text is None else row.text
        self._digest.update(hashlib.sha256(text.encode("utf-8", "replace")).digest())

    def _keep(self) -> None:
        tokens = chain.from_iterable(self._state["texts"].values())
        self._state |= {
            "digest": self._digest.hexdigest(),
            "names": names_of(tokens, self._vocabulary),
            "seconds": round(self._before + time.monotonic() - self._began, 3),
        }
        if self._folder is not None:
            self._folder.keep(self._state, self._tally)

    def _differences(self, rows: Iterator[Row], before: JsonObject) -> list[str]:
        """Read the rows of a search again, and list the differences."""
        count = 0
        for row in islice(rows, before["rows"]):
            count += 1
            self._learn(row)
            known = before["texts"].get(str(row.number))
            if known is None:
                continue
            if row.text is None or list(self._encode(row.text)) != known:
                return ["the corpus, or how its texts become ids,"]
        if count < before["rows"]:
            were = f"{before['rows']:,} rows were read and {count:,} are left"
            return [f"the corpus, of which {were},"]
        return ["the corpus"] if self._digest.hexdigest() != before["digest"] else []


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


def batches(texts: Sequence[tuple[int, Sequence[int]]], most: int) -> Iterator[Batch]:
    """Group texts, (number, ids), of similar length into batches of at most `most` places.

    >>> [batch.numbers for batch in batches([(0, [1, 2]), (1, [1]), (2, [1, 2, 3, 4])], 4)]
    [[1, 0], [2]]
    """
    waiting: list[tuple[int, Sequence[int]]] = []
    for number, ids in sorted(texts, key=lambda text: (len(text[1]), text[0])):
        if waiting and (len(waiting) + 1) * len(ids) > most:
            yield _batch(waiting)
            waiting = []
        waiting.append((number, ids))
    if waiting:
        yield _batch(waiting)


def _batch(texts: Sequence[tuple[int, Sequence[int]]]) -> Batch:
    numbers, rows = zip(*texts, strict=True)
    lengths = list(map(len, rows))
    padded = pad_sequence([torch.tensor(list(ids)) for ids in rows], batch_first=True)
    real = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(-1)
    return Batch(padded, real, list(numbers), lengths)


def inputs_of(model: nn.Module, batch: Batch) -> tuple[tuple[Tensor, ...], dict[str, object]]:
    """Return a model's arguments for a batch: in order, and by name."""
    parameters = foreign_of(model).parameters()
    device = next((parameter.device for parameter in parameters), torch.device("cpu"))
    real = None if bool(batch.real.all()) else batch.real.to(device)
    return arguments_for(model, batch.ids.to(device), real)
