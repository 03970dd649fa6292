"""Count what every head does over a corpus, one block of texts after another; add up shards.

    census = count_heads(model, "reviews.csv", out="census", shard=(1, 2))
    census = merge_censuses(["census-1", "census-2"], out="census")

A block is 256 rows of the corpus. Its texts are batched among themselves alone, so its numbers are
the same in whatever shard, order or call it is read. The state is written after each block, and the
same call resumes from it.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count, islice
from pathlib import Path

from torch import nn

from attnlab.core.store import JsonObject, locked, make_folder, remove_remains
from attnlab.display import short
from attnlab.errors import WrongUsage, is_integer
from attnlab.look.census.meter import Meter
from attnlab.look.census.result import Census, CensusFolder
from attnlab.look.census.sketch import Sketch
from attnlab.look.collector import run_collector
from attnlab.look.corpus.search import (
    Corpus,
    Encode,
    Progress,
    batches,
    encoder_of,
    inputs_of,
    longest_of,
)
from attnlab.look.corpus.text_files import Row, rows_of
from attnlab.look.heads import chosen_heads, head_name
from attnlab.look.long_text.inputs import parts_of
from attnlab.look.long_text.long_text import fingerprint
from attnlab.look.recording.tokens import Vocabulary, name_of, names_of, vocabulary_of
from attnlab.progress import notebook_bar

BLOCK = 256
"""Rows of the corpus in a block."""

_SAME = ("fingerprint", "heads", "column", "longest", "batch_tokens", "limit", "seed")
Shard = tuple[int, int]


def count_heads(
    model: nn.Module,
    corpus: Corpus | Path | str | Iterable[str],
    *,
    heads: list[str] | None = None,
    shard: Shard = (1, 1),
    out: Path | str | None = None,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> Census:
    """Measure every head on every token of many texts.

    Args:
        model: any model with sites; in an encoder–decoder, the encoder is measured.
        corpus: a file, or the texts one after another; a `Corpus` to say how they are read.
        heads: such as ["3.5", "4"]; None for all.
        shard: (2, 7) reads the second of seven shares of the corpus; see `merge_censuses`.
        out: a folder to create or to resume from; None to write nothing.
        seed: of the intervals and of the choice of examples.
        progress: called after each batch; None for a bar in a notebook.

    Raises:
        WrongUsage: invalid arguments, a corpus without any text, or a folder with another census.
        CouldNotRun: the corpus or the folder cannot be read or written.
    """
    texts = corpus if isinstance(corpus, Corpus) else Corpus(corpus)
    longest = longest_of(model, texts.max_length)
    chosen = chosen_heads(model, parts_of(model), heads)
    if not chosen:
        raise WrongUsage("heads= has no head; leave it out for all.")
    state: JsonObject = {
        "model": str(getattr(model, "name", "") or type(model).__name__),
        "fingerprint": fingerprint(model),
        "corpus": texts.name,
        "heads": [head_name(part, head) for part, numbers in chosen.items() for head in numbers],
        "column": texts.column,
        "limit": texts.limit,
        "longest": longest,
        "batch_tokens": texts.batch_tokens,
        "seed": seed,
        "shards": [list(_checked_shard(shard))],
        "blocks": {},
        "in_all": None,
        "counts": Counter({"texts read": 0, "tokens read": 0}),
        "texts": {},
        "names": {},
    }
    if progress is None and (bar := notebook_bar("texts read")) is not None:
        progress = lambda far: bar.count(far.texts)  # noqa: E731
    vocabulary = vocabulary_of(model, texts.vocabulary)
    encode = encoder_of(model, texts.encode, longest)
    counting = _Counting(model, chosen, encode, vocabulary, state, progress)
    rows = islice(rows_of(texts.source, texts.column), texts.limit)
    if out is None:
        return counting.read(rows)
    folder = CensusFolder(Path(out))
    make_folder(folder.path)
    with locked(folder.path):
        remove_remains(folder.path)
        counting.resume(folder)
        return counting.read(rows)


def merge_censuses(folders: Sequence[Path | str], *, out: Path | str | None = None) -> Census:
    """Add up the censuses of shards of one corpus; `Census.missing` tells the blocks that no shard
    read.

    Raises:
        WrongUsage: they are of different models, settings or corpora, or two read the same block.
        CouldNotRun: a folder cannot be read, or `out` not be written.
    """
    if not folders:
        raise WrongUsage("name the folders of the shards; got none.")
    loaded = [(*CensusFolder(Path(folder)).load(), str(folder)) for folder in folders]
    loaded.sort(key=lambda part: min(map(int, part[0]["blocks"]), default=0))
    state, sketch, first = loaded[0]
    counts: Counter[str] = Counter(state["counts"])
    for other, numbers, folder in loaded[1:]:
        different = [name for name in _SAME if other[name] != state[name]]
        if None not in (state["in_all"], other["in_all"]) and state["in_all"] != other["in_all"]:
            different.append("the number of blocks of the corpus")
        if different:
            raise WrongUsage(
                f"{first} and {folder} are no shards of one census: {', '.join(different)} differs."
            )
        both = sorted(set(state["blocks"]) & set(other["blocks"]), key=int)
        if both:
            raise WrongUsage(
                f"{folder} has blocks of the corpus that another shard has already, "
                f"{short(list(map(int, both)))}: each block counts once."
            )
        sketch.add(numbers)
        counts.update(other["counts"])
        for name in ("blocks", "texts", "names"):
            state[name] |= other[name]
        state["shards"] += other["shards"]
        state["in_all"] = state["in_all"] if state["in_all"] is not None else other["in_all"]
    state["counts"] = counts
    state["texts"] = {str(number): state["texts"][str(number)] for number in sketch.texts()}
    if out is not None:
        folder_out = CensusFolder(Path(out))
        if folder_out.is_there:
            raise WrongUsage(f"{out} holds a census already; choose another folder.")
        make_folder(folder_out.path)
        with locked(folder_out.path):
            folder_out.keep(state, sketch)
    return Census(state, sketch)


class _Counting:
    """A census while it runs; `state` is written to its folder, beside the sums."""

    def __init__(
        self,
        model: nn.Module,
        heads: dict[str, list[int]],
        encode: Encode,
        vocabulary: Vocabulary | None,
        state: JsonObject,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._model, self._heads = model, heads
        self._encode, self._vocabulary = encode, vocabulary
        self._state, self._progress = state, progress
        self._sketch = Sketch.empty(len(state["heads"]))
        self._folder: CensusFolder | None = None
        self._began, self._tokens = time.monotonic(), 0

    def resume(self, folder: CensusFolder) -> None:
        """Write into a folder, and resume the census there, if it is this one.

        Raises:
            WrongUsage: the folder holds another census; the message names the difference.
        """
        self._folder = folder
        if not folder.is_there:
            return
        before, sketch = folder.load()
        different = [name for name in (*_SAME, "shards") if before[name] != self._state[name]]
        if different:
            raise WrongUsage(
                f"{folder.path} holds another census: {', '.join(different)} differs. Choose "
                "another folder."
            )
        before["counts"] = Counter(before["counts"])
        self._state, self._sketch = before, sketch

    def read(self, rows: Iterator[Row]) -> Census:
        """Read all blocks of this shard, and return the result."""
        share, shards = self._state["shards"][0]
        done = self._state["blocks"]
        for number in count():
            block = list(islice(rows, BLOCK))
            if not block:
                break
            if number % shards != share - 1:
                continue
            digest = _digest(block)
            if done.get(str(number), digest) != digest:
                raise WrongUsage(
                    f"the corpus is not the one that was begun: rows {block[0].number:,} to "
                    f"{block[-1].number:,} differ. Choose another folder."
                )
            if str(number) not in done:
                self._read_block(block)
                done[str(number)] = digest
                self._keep()
        counts = self._state["counts"]
        if self._state["in_all"] != number:
            self._state["in_all"] = number
            self._keep()
        if not (counts["texts read"] or (number and shards > 1)):  # a share may be empty
            reasons = ", ".join(f"{many:,} {name}" for name, many in counts.items() if many)
            raise WrongUsage(f"no text could be read: {reasons or 'no row at all'}.")
        return Census(self._state, self._sketch)

    def _read_block(self, block: list[Row]) -> None:
        texts, ids_of = self._encoded(block), self._state["texts"]
        sketch = Sketch.empty(len(self._state["heads"]))
        for batch in batches(texts, self._state["batch_tokens"]):
            arguments, options = inputs_of(self._model, batch)
            ids = arguments[0]
            names = partial(name_of, vocabulary=self._vocabulary)
            meter = Meter(self._heads, ids, batch.real.to(ids.device), names)
            run_collector(self._model, meter, arguments, options)
            seed = self._state["seed"]
            sketch.add(Sketch.of(meter.measured(), ids, batch.numbers, batch.lengths, seed))
            self._show(batch.lengths)
        self._sketch.add(sketch)
        ids_of |= {str(number): ids for number, ids in texts}
        self._state["texts"] = {str(text): ids_of[str(text)] for text in self._sketch.texts()}
        known = self._state["names"]
        unknown = [token for token in sketch.tokens.tolist() if str(token) not in known]
        known |= names_of(unknown, self._vocabulary)

    def _encoded(self, block: list[Row]) -> list[tuple[int, list[int]]]:
        texts, counts = [], self._state["counts"]
        for row in block:
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

    def _show(self, lengths: Sequence[int]) -> None:
        self._tokens += sum(lengths)
        seconds, counts = time.monotonic() - self._began, self._state["counts"]
        far = Progress(
            counts["texts read"],
            counts["tokens read"],
            counts["rows left out"],
            seconds,
            self._tokens / max(seconds, 1e-9),
        )
        if self._progress is not None:
            self._progress(far)

    def _keep(self) -> None:
        if self._folder is not None:
            self._folder.keep(self._state, self._sketch)


def _digest(block: list[Row]) -> str:
    """Return a digest of the texts of a block, by which another corpus is recognized."""
    digest = hashlib.sha256()
    for row in block:
        text = row.why if row.text is None else row.text
        digest.update(hashlib.sha256(text.encode("utf-8", "replace")).digest())
    return digest.hexdigest()[:16]


def _checked_shard(shard: Shard) -> Shard:
    match shard:
        case (share, shards) if is_integer(share) and is_integer(shards) and 1 <= share <= shards:
            return share, shards
    raise WrongUsage(f"a shard is (share, shares), such as (2, 7); got {shard!r}.")
