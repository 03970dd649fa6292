"""Count what every head does over a corpus, one block of texts after another; add up shards.

    census = count_heads(model, "reviews.csv", out="census", shard=(1, 2))
    census = merge_censuses(["census-1", "census-2"], out="census")

A block is 256 rows of the corpus. Its texts are batched among themselves alone, so its numbers are
the same in whatever shard, order or call it is read. The state is written after each block, and the
same call resumes from it.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from attnlab.core.store import JsonObject, locked, make_folder
from attnlab.display import short
from attnlab.errors import WrongUsage, is_integer
from attnlab.look.census.meter import Meter
from attnlab.look.census.result import Census, census_folder
from attnlab.look.census.sketch import Sketch
from attnlab.look.corpus.corpus import Corpus, CorpusPass, CorpusProgress, digest_of_row
from attnlab.look.corpus.text_rows import TextRow
from attnlab.look.recording.tokens import names_of

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
    progress: Callable[[CorpusProgress], None] | None = None,
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
    settings: JsonObject = {
        "corpus": texts.name,
        "limit": texts.limit,
        "batch_tokens": texts.batch_tokens,
        "seed": seed,
        "shards": [list(_checked_shard(shard))],
        "blocks": {},
        "in_all": None,
    }
    counting = _Counting(model, texts, heads, progress, settings)
    counting.run(None if out is None else census_folder(Path(out)))
    return Census(counting.state, counting.sketch)


class _Counting(CorpusPass):
    """A census while it runs."""

    SAME = (*_SAME, "shards")
    NOUN = "census"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.sketch = Sketch.empty(len(self.state["heads"]))

    def resume(
        self, before: JsonObject, tensors: dict[str, Tensor], rows: Iterator[TextRow]
    ) -> None:
        """Take over the state of a stopped census."""
        self.state, self.sketch = before, Sketch(**tensors)

    def read(self, rows: Iterator[TextRow]) -> None:
        """Read all blocks of this shard."""
        share, shards = self.state["shards"][0]
        done = self.state["blocks"]
        for number in count():
            block = list(islice(rows, BLOCK))
            if not block:
                break
            if number % shards != share - 1:
                continue
            digest = hashlib.sha256(b"".join(map(digest_of_row, block))).hexdigest()[:16]
            if done.get(str(number), digest) != digest:
                raise WrongUsage(
                    f"the corpus is not the one that was begun: rows {block[0].number:,} to "
                    f"{block[-1].number:,} differ. Choose another folder."
                )
            if str(number) not in done:
                self._read_block(block)
                done[str(number)] = digest
                self._keep()
        if self.state["in_all"] != number:
            self.state["in_all"] = number
            self._keep()
        if shards == 1 or not number:  # a share may be empty
            self.check_any()

    def _read_block(self, block: list[TextRow]) -> None:
        texts, ids_of = self.encoded(block), self.state["texts"]
        sketch = Sketch.empty(len(self.state["heads"]))
        for batch in self.batches(texts):
            sketch.add(Sketch.of(self.read_heads(batch, Meter).measured, batch, self.state["seed"]))
            self.show()
        self.sketch.add(sketch)
        ids_of |= {str(number): ids for number, ids in texts}
        self.state["texts"] = {str(text): ids_of[str(text)] for text in self.sketch.texts()}
        known = self.state["names"]
        unknown = [token for token in self.sketch.tokens.tolist() if str(token) not in known]
        known |= names_of(unknown, self.vocabulary)

    def _keep(self) -> None:
        if self.folder is not None:
            self.folder.keep(self.state, vars(self.sketch))


def merge_censuses(folders: Sequence[Path | str], *, out: Path | str | None = None) -> Census:
    """Add up the censuses of shards of one corpus; `Census.missing` tells the blocks that no shard
    read.

    Args:
        folders: one of each shard.
        out: a folder to write the whole census to; None to write nothing.

    Returns:
        the `Census` of all shards.

    Raises:
        WrongUsage: they are of different models, settings or corpora, or two read the same block.
        CouldNotRun: a folder cannot be read, or `out` not be written.
    """
    if not folders:
        raise WrongUsage("name the folders of the shards; got none.")
    loaded = [(*census_folder(Path(folder)).load(), str(folder)) for folder in folders]
    loaded.sort(key=lambda part: min(map(int, part[0]["blocks"]), default=0))
    state, tensors, first = loaded[0]
    sketch = Sketch(**tensors)
    counts: Counter[str] = Counter(state["counts"])
    for other, tensors, folder in loaded[1:]:
        _check_fits(state, other, first, folder)
        sketch.add(Sketch(**tensors))
        counts.update(other["counts"])
        for name in ("blocks", "texts", "names"):
            state[name] |= other[name]
        state["shards"] += other["shards"]
        state["in_all"] = state["in_all"] if state["in_all"] is not None else other["in_all"]
    state["counts"] = counts
    state["texts"] = {str(number): state["texts"][str(number)] for number in sketch.texts()}
    if out is not None:
        kept = census_folder(Path(out))
        if kept.is_there:
            raise WrongUsage(f"{out} holds a census already; choose another folder.")
        make_folder(kept.path)
        with locked(kept.path):
            kept.keep(state, vars(sketch))
    return Census(state, sketch)


def _check_fits(state: JsonObject, other: JsonObject, first: str, folder: str) -> None:
    """Raise unless the census in a folder is another share of the same one."""
    different = [name for name in _SAME if other[name] != state[name]]
    if None not in (state["in_all"], other["in_all"]) and state["in_all"] != other["in_all"]:
        different.append("the number of blocks of the corpus")
    if different:
        raise WrongUsage(
            f"{first} and {folder} are no shards of one census: {', '.join(different)} differs."
        )
    both = sorted(map(int, set(state["blocks"]) & set(other["blocks"])))
    if both:
        raise WrongUsage(
            f"{folder} has blocks of the corpus that another shard has already, {short(both)}: "
            "each block counts once."
        )


def _checked_shard(shard: Shard) -> Shard:
    match shard:
        case (share, shards) if is_integer(share) and is_integer(shards) and 1 <= share <= shards:
            return share, shards
    raise WrongUsage(f"a shard is (share, shares), such as (2, 7); got {shard!r}.")
