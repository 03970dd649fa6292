"""Search many texts for a pattern of heads: each text is read once, every head measured at every
token.

    found = search_corpus(model, "reviews.csv", "induction", out="searches/induction")
    found.table()                 # every head: mean with interval, quantiles
    found.examples("3.5")         # the queries with the largest values, with their texts

Texts are read in windows of some hundred, batched by length, and forgotten; the state does not grow
with the corpus (`tally.py`). It is written after each window, and the same call resumes from it.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from attnlab.core.store import locked, make_folder, remove_remains
from attnlab.errors import WrongUsage
from attnlab.look.collector import run_collector
from attnlab.look.corpus.batches import Batch, Encode, batches, encoder_of, inputs_of, longest_of
from attnlab.look.corpus.measurer import Measurer
from attnlab.look.corpus.measures import Measure, Rows, digest_of, measure_of
from attnlab.look.corpus.result import Found, write_tables
from attnlab.look.corpus.state import is_there, read_state, write_state
from attnlab.look.corpus.tally import Measured, Tally
from attnlab.look.corpus.text_files import Row, rows_of
from attnlab.look.heads import chosen_heads, head_name
from attnlab.look.long_text.files import fingerprint
from attnlab.look.long_text.inputs import parts_of
from attnlab.look.recording.tokens import Vocabulary, check_vocabulary, name_of, vocabulary_of
from attnlab.progress import notebook_bar
from attnlab.shapes import require_integer

_WINDOW = 256  # texts that are batched by length together
_SAME = ("measure", "code", "fingerprint", "heads", "column", "top", "longest", "lowest", "seed")


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
            raise WrongUsage(
                "a corpus is a file, or texts one after another; got a "
                f"{type(self.source).__name__}."
            )


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
) -> Found:
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
        raise WrongUsage("heads names no head; leave it out for all.")
    vocabulary = vocabulary_of(model, texts.vocabulary)
    check_vocabulary(vocabulary)
    told: dict[str, Any] = {
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
        "digest": "",
        "counts": {},
        "texts": {},
        "names": {},
        "seconds": 0.0,
        "is_done": False,
    }
    search = _Search(model, measured, chosen, told, Path(out) if out is not None else None)
    search.encode, search.vocabulary = encoder_of(model, texts.encode, longest), vocabulary
    rows = rows_of(texts.source, texts.column)
    if progress is None and (bar := notebook_bar("texts read")) is not None:
        progress = lambda far: bar.count(far.texts)  # noqa: E731
    return search.run(islice(rows, texts.limit), texts.batch_tokens, progress)


class _Search:
    """A search while it runs."""

    encode: Encode
    vocabulary: Vocabulary | None

    def __init__(
        self,
        model: nn.Module,
        measure: Measure,
        heads: dict[str, list[int]],
        told: dict[str, Any],
        out: Path | None,
    ) -> None:
        self._model, self._measure, self._heads = model, measure, heads
        self._told, self._out = told, out
        self._tally = Tally(len(told["heads"]), told["top"], told["seed"], lowest=told["lowest"])
        self._counts: Counter[str] = Counter()
        self._texts: dict[str, list[int]] = {}  # the texts of the examples
        self._digest = hashlib.sha256()
        self._began = time.monotonic()
        self._before = 0.0

    def run(
        self, rows: Iterator[Row], most: int, progress: Callable[[Progress], None] | None
    ) -> Found:
        """Read all rows, and return the result."""
        if self._out is None:
            return self._read(rows, most, progress)
        make_folder(self._out)
        with locked(self._out):
            remove_remains(self._out)
            self._resume(rows)
            found = self._read(rows, most, progress)
            write_tables(found, self._out)
            return found

    def _read(
        self, rows: Iterator[Row], most: int, progress: Callable[[Progress], None] | None
    ) -> Found:
        tokens_before = self._counts["tokens read"]
        while window := list(islice(rows, _WINDOW)):
            for batch in batches(self._encoded(window), most):
                self._measure_batch(batch)
                if progress is not None:
                    spent = time.monotonic() - self._began
                    tokens, left = self._counts["tokens read"], self._counts["rows left out"]
                    rate = (tokens - tokens_before) / max(spent, 1e-9)
                    progress(Progress(self._counts["texts read"], tokens, left, spent, rate))
            self._told["rows"] = window[-1].number + 1
            self._keep(is_done=False)
        if not self._counts["texts read"]:
            counts = [f"{count:,} {name}" for name, count in self._counts.items() if count]
            reasons = ", ".join(counts) or "no row at all"
            raise WrongUsage(f"the corpus holds no text that could be read: {reasons}.")
        self._keep(is_done=True)
        return Found(self._told, self._tally.distribution(), self._tally.examples())

    def _encoded(self, window: list[Row]) -> list[tuple[int, list[int]]]:
        found = []
        for row in window:
            self._learn(row)
            ids = [] if row.text is None else list(self.encode(row.text))
            if not ids:
                self._counts["rows left out"] += 1
                self._counts[f"left out: {row.why or 'no token'}"] += 1
                continue
            self._counts["texts read"] += 1
            self._counts["tokens read"] += len(ids)
            is_longest = len(ids) >= self._told["longest"]
            self._counts["texts of the longest length, perhaps cut"] += is_longest
            found.append((row.number, ids))
        return found

    def _measure_batch(self, batch: Batch) -> None:
        arguments, options = inputs_of(self._model, batch)
        ids = arguments[0]
        measurer = Measurer(self._heads, self._measure, ids, batch.real.to(ids.device), self._names)
        run_collector(self._model, measurer, arguments, options)
        self._tally.add(Measured(*measurer.found(), batch.numbers, batch.lengths))
        for row, number in enumerate(batch.numbers):
            self._texts[str(number)] = batch.ids[row, : batch.lengths[row]].tolist()
        kept = {str(number) for number in set(self._tally.places[..., 0].flatten().tolist())}
        self._texts = {number: ids for number, ids in self._texts.items() if number in kept}

    def _names(self, token: int) -> str:
        return name_of(token, self.vocabulary)

    def _learn(self, row: Row) -> None:
        """Add a row to the digest of the corpus."""
        text = row.why if row.text is None else row.text
        self._digest.update(hashlib.sha256(text.encode("utf-8", "replace")).digest())

    def _keep(self, *, is_done: bool) -> None:
        names = {str(token): self._names(token) for ids in self._texts.values() for token in ids}
        self._told |= {
            "digest": self._digest.hexdigest(),
            "counts": dict(self._counts),
            "texts": self._texts,
            "names": names,
            "seconds": round(self._before + time.monotonic() - self._began, 3),
            "is_done": is_done,
        }
        if self._out is not None:
            write_state(self._out, self._told, self._tally.state())

    def _resume(self, rows: Iterator[Row]) -> None:
        """Resume the search in the folder, if it is this one.

        Raises:
            WrongUsage: it is another one; the sentence says what differs.
        """
        if self._out is None or not is_there(self._out):
            return
        before, tensors = read_state(self._out)
        different = [name for name in _SAME if before.get(name) != self._told[name]]
        different = different or self._differences(rows, before)
        if different:
            raise WrongUsage(
                f"{self._out} holds another search: {', '.join(different)} is not the same. "
                "Choose another folder."
            )
        self._told |= {name: before[name] for name in ("rows", "counts", "texts", "names")}
        self._counts, self._texts = Counter(before["counts"]), dict(before["texts"])
        self._before = before["seconds"]
        self._tally.restore(tensors)

    def _differences(self, rows: Iterator[Row], before: dict[str, Any]) -> list[str]:
        """Read the rows of a search again, and say what is not as it was."""
        count = 0
        for row in islice(rows, before["rows"]):
            count += 1
            self._learn(row)
            known = before["texts"].get(str(row.number))
            if known is None:
                continue
            if row.text is None or list(self.encode(row.text)) != known:
                return ["the corpus, or how its texts become ids,"]
        if count < before["rows"]:
            were = f"{before['rows']:,} rows were read and {count:,} are left"
            return [f"the corpus, of which {were},"]
        return ["the corpus"] if self._digest.hexdigest() != before["digest"] else []
