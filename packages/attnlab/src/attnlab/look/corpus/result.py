"""The result of a search: examples of each head in their texts, and the distribution of its values;
and its folder, whose state is replaced as a whole, so that a stopped search resumes from it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attnlab.core import store
from attnlab.core.row_files import write_rows
from attnlab.core.store import JsonObject
from attnlab.display import Card, count_words, displayed
from attnlab.errors import WrongUsage, did_you_mean
from attnlab.look.corpus.tally import Tally

_AROUND, _AROUND_SHOWN = 12, 4  # tokens of the context on either side


@displayed
@dataclass(frozen=True)
class Example:
    """One query with an extreme value of a head.

    text: the number of the row in the corpus · query, key: their positions in it · tokens: of the
    whole text.
    """

    head: str
    value: float
    text: int
    query: int
    key: int
    tokens: tuple[str, ...]

    def context(self, around: int = _AROUND) -> list[tuple[int, str]]:
        """Return the tokens around query and key with their positions; omissions have position
        -1."""
        length = len(self.tokens)
        near: set[int] = set()
        for at in (self.query, self.key):
            near.update(range(max(0, at - around), min(at + around + 1, length)))
        neighbours: list[tuple[int, str]] = []
        last = -1
        for place in sorted(near):
            if place > last + 1:
                neighbours.append((-1, "…"))
            neighbours.append((place, self.tokens[place]))
            last = place
        if last < length - 1:
            neighbours.append((-1, "…"))
        return neighbours


def example_row(example: Example) -> list[str]:
    """Return an example as a row of a table, below `EXAMPLE_COLUMNS`."""
    query, key = example.tokens[example.query], example.tokens[example.key]
    text = " ".join(token for _, token in example.context(_AROUND_SHOWN))
    return [f"{example.value:.2f}", query, key, str(example.text), text]


EXAMPLE_COLUMNS = ("value", "query", "key", "row", "text")


@displayed
class Examples(list[Example]):
    """Examples of one head; printed, a table with their texts."""

    def _card(self) -> Card:
        title = f"head {self[0].head}: " if self else ""
        rows = list(map(example_row, self))
        return Card(f"{title}{count_words(len(self), 'example')}", (), EXAMPLE_COLUMNS, rows)


@displayed
class CorpusSearch:
    """The result of a search so far.

    measure: its name · counts: of rows, texts and tokens · heads: their names · is_done: the whole
    corpus was read.
    """

    def __init__(self, state: JsonObject, tally: Tally):
        self.measure, self.model = str(state["measure"]), str(state["model"])
        self.heads: tuple[str, ...] = tuple(state["heads"])
        self.counts: dict[str, int] = dict(state["counts"])
        self.is_done, self.lowest = bool(state["is_done"]), bool(state["lowest"])
        self.seconds = float(state["seconds"])
        self._texts: dict[str, Sequence[int]] = state["texts"]
        self._names: dict[str, str] = state["names"]
        self._distribution, self._examples = tally.distribution(), tally.examples()

    def _card(self) -> Card:
        rows = self.table()
        columns = list(rows[0]) if rows else []
        texts = count_words(self.counts["texts read"], "text")
        title = f"{self.measure} of {count_words(len(self.heads), 'head')} in {texts}"
        return Card(title, [("model", self.model)], columns, [list(row.values()) for row in rows])

    def table(self) -> list[JsonObject]:
        """Return a row for each head, the largest mean first: count, mean with its 95 % interval,
        quantiles."""
        rows = []
        for index, head in enumerate(self.heads):
            row: JsonObject = {"head": head}
            for name, values in self._distribution.items():
                value = float(values[index])
                row[name] = None if math.isnan(value) else value
            rows.append(row)
        sign = 1 if self.lowest else -1
        return sorted(rows, key=lambda row: math.inf if row["mean"] is None else sign * row["mean"])

    def examples(self, head: str) -> Examples:
        """Return the best examples of a head, the best first, at most one of each text."""
        if head not in self.heads:
            raise WrongUsage(f"{head!r} was not searched; {did_you_mean(head, self.heads)}")
        index = self.heads.index(head)
        values, places = (column[index].tolist() for column in self._examples)
        examples = Examples()
        for value, (text, query, key) in zip(values, places, strict=True):
            if text >= 0:
                tokens = tuple(self._names[str(token)] for token in self._texts[str(text)])
                examples.append(Example(head, value, text, query, key, tokens))
        return examples


def search_folder(path: Path) -> store.StateFolder:
    """Return the folder of a search."""
    return store.StateFolder(path, "search.json", "attnlab corpus search 1", "search")


def open_corpus_search(folder: Path | str) -> CorpusSearch:
    """Open the folder of a search, finished or not.

    Raises:
        CouldNotRun: it is missing or damaged.
    """
    state, tensors = search_folder(Path(folder)).load()
    with store.refusing_damage(f"the search in {folder}"):
        return CorpusSearch(state, Tally.of(state, tensors))


def write_tables(result: CorpusSearch, folder: Path) -> None:
    """Write `examples` and `heads` as Parquet; as CSV where pyarrow is missing."""
    examples = []
    for head in result.heads:
        for rank, example in enumerate(result.examples(head), 1):
            row = {"head": head, "rank": rank, **vars(example)}
            tokens = row.pop("tokens")
            row |= {"query_token": tokens[example.query], "key_token": tokens[example.key]}
            examples.append(row | {"context": " ".join(token for _, token in example.context())})
    write_rows(folder / "examples", examples)
    write_rows(folder / "heads", result.table())
