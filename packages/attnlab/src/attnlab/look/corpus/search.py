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
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from attnlab.core.store import JsonObject
from attnlab.look.corpus.corpus import (
    Corpus,
    CorpusBatch,
    CorpusPass,
    CorpusProgress,
    digest_of_row,
)
from attnlab.look.corpus.measures import Measure, Measurer, WeightRows, measure_of, source_digest
from attnlab.look.corpus.result import CorpusSearch, search_folder, write_tables
from attnlab.look.corpus.tally import Tally
from attnlab.look.corpus.text_rows import TextRow
from attnlab.look.recording.tokens import names_of
from attnlab.shapes import require_integer

_WINDOW = 256  # texts that are batched by length together


def search_corpus(
    model: nn.Module,
    corpus: Corpus | Path | str | Iterable[str],
    measure: str | Callable[[WeightRows], Tensor],
    *,
    heads: list[str] | None = None,
    out: Path | str | None = None,
    top: int = 20,
    lowest: bool = False,
    seed: int = 0,
    progress: Callable[[CorpusProgress], None] | None = None,
) -> CorpusSearch:
    """Measure heads on every token of many texts, and keep the queries with the largest values.

    Args:
        model: any model with sites; in an encoder–decoder, the encoder is measured.
        corpus: a file, or the texts one after another; a `Corpus` to say how they are read, such as
            Corpus("reviews.csv", column="review", limit=1000).
        measure: one of `MEASURES`, "token:REGEX", or a function of `WeightRows`, which returns a
            number for each query, (row, head, query).
        heads: such as ["3.5", "4"]; None for all.
        out: a folder to create or to resume from; None to write nothing.
        top: examples for each head, at most one of each text.
        lowest: keep the least values instead of the largest.
        seed: of the sample and of the intervals.
        progress: called after each batch; None for a bar in a notebook.

    Returns:
        the `CorpusSearch`: each head's mean with an interval, and its strongest examples.

    Raises:
        WrongUsage: invalid arguments, a corpus without any text, or a folder with another search.
        CouldNotRun: the corpus or the folder cannot be read or written.

    >>> import attnlab, torch
    >>> model = attnlab.Decoder(attnlab.DecoderConfig()).eval()
    >>> letters = {"a": 1, "b": 2}
    >>> corpus = attnlab.Corpus(["aba", "bb"], encode=lambda text: [letters[c] for c in text])
    >>> found = search_corpus(model, corpus, "previous")
    >>> list(found.heads)
    ['0.0', '0.1', '0.2', '0.3']
    """
    name, measured = measure_of(measure)
    require_integer("top", top)
    settings = {
        "measure": name,
        "code": source_digest(measure),
        "top": top,
        "lowest": lowest,
        "seed": seed,
        "rows": 0,
        "is_done": False,
    }
    search = _Search(measured, model, corpus, heads, progress, settings)
    search.run(None if out is None else search_folder(Path(out)))
    return search.result()


class _Search(CorpusPass):
    """A search while it runs."""

    SAME = ("measure", "code", "fingerprint", "heads", "column", "top", "longest", "lowest", "seed")
    NOUN = "search"

    def __init__(self, measure: Measure, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._reader = partial(Measurer, measure)
        self._tally = Tally.of(self.state)
        self._digest, self._before = hashlib.sha256(), 0.0

    def result(self) -> CorpusSearch:
        """Return the result so far."""
        return CorpusSearch(self.state, self._tally)

    def read(self, rows: Iterator[TextRow]) -> None:
        """Read all rows."""
        while window := list(islice(rows, _WINDOW)):
            self._learn(window)
            for batch in self.batches(self.encoded(window)):
                self._measure_batch(batch)
                self.show()
            self.state["rows"] = window[-1].number + 1
            self._keep()
        self.check_any()
        self.state["is_done"] = True
        self._keep()
        if self.folder is not None:
            write_tables(self.result(), self.folder.path)

    def resume(
        self, before: JsonObject, tensors: dict[str, Tensor], rows: Iterator[TextRow]
    ) -> None:
        """Take over the state of a stopped search of this corpus, which may have grown."""
        self.check_same(self._differences(rows, before))
        self.state = before | {"is_done": False}
        self._before, self._tally = before["seconds"], Tally.of(before, tensors)

    def _measure_batch(self, batch: CorpusBatch) -> None:
        measurer = self.read_heads(batch, self._reader)
        self._tally.add(measurer.values, measurer.keys, batch.numbers, batch.lengths)
        texts = self.state["texts"]  # of the examples
        for row, number in enumerate(batch.numbers):
            texts[str(number)] = batch.ids[row, : batch.lengths[row]].tolist()
        kept = set(map(str, set(self._tally.places[..., 0].flatten().tolist())))
        self.state["texts"] = {number: ids for number, ids in texts.items() if number in kept}

    def _learn(self, rows: Iterable[TextRow]) -> None:
        """Add rows to the digest of the corpus."""
        for row in rows:
            self._digest.update(digest_of_row(row))

    def _keep(self) -> None:
        tokens = chain.from_iterable(self.state["texts"].values())
        self.state |= {
            "digest": self._digest.hexdigest(),
            "names": names_of(tokens, self.vocabulary),
            "seconds": round(self._before + time.monotonic() - self.began, 3),
        }
        if self.folder is not None:
            self.folder.keep(self.state, self._tally.tensors())

    def _differences(self, rows: Iterator[TextRow], before: JsonObject) -> list[str]:
        """Read the rows of a search again, and list the differences."""
        count = 0
        for row in islice(rows, before["rows"]):
            count += 1
            self._learn([row])
            known = before["texts"].get(str(row.number))
            if known is not None and (row.text is None or list(self.encode(row.text)) != known):
                return ["the corpus, or how its texts become ids,"]
        if count < before["rows"]:
            were = f"{before['rows']:,} rows were read and {count:,} are left"
            return [f"the corpus, of which {were},"]
        return ["the corpus"] if self._digest.hexdigest() != before["digest"] else []
