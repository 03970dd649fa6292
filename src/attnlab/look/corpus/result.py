"""The result of a search: examples of each head in their texts, and the distribution of its
values."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from attnlab.core.store import explained, write_bytes, write_text
from attnlab.display import Card, displayed
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.look.corpus.state import read_state
from attnlab.look.corpus.tally import Tally

_AROUND = 12  # tokens of the context on either side


@displayed
class Example(NamedTuple):
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
        near: set[int] = set()
        for at in (self.query, self.key):
            near.update(range(max(0, at - around), min(at + around + 1, len(self.tokens))))
        found: list[tuple[int, str]] = []
        last = -1
        for place in sorted(near):
            if place != last + 1:
                found.append((-1, "…"))
            found.append((place, self.tokens[place]))
            last = place
        return found if not near or last == len(self.tokens) - 1 else [*found, (-1, "…")]


@displayed
class Found:
    """The result of a search so far.

    measure: its name · counts: of rows, texts and tokens · heads: their names · is_done: all of the
    corpus was read.
    """

    def __init__(
        self,
        told: Mapping[str, Any],
        distribution: Mapping[str, Tensor],
        examples: tuple[Tensor, Tensor],
    ):
        self.measure, self.model = str(told["measure"]), str(told["model"])
        self.heads: tuple[str, ...] = tuple(told["heads"])
        self.counts: dict[str, int] = dict(told["counts"])
        self.is_done, self.lowest = bool(told["is_done"]), bool(told["lowest"])
        self.seconds = float(told["seconds"])
        self._texts: dict[str, Sequence[int]] = told["texts"]
        self._names: dict[str, str] = told["names"]
        self._distribution, self._examples = dict(distribution), examples

    def _card(self) -> Card:
        rows = self.table()
        columns = list(rows[0]) if rows else []
        title = f"{self.measure} of {len(self.heads)} heads in {self.counts['texts read']:,} texts"
        return Card(title, [("model", self.model)], columns, [list(row.values()) for row in rows])

    def table(self) -> list[dict[str, Any]]:
        """Return a row for each head, the largest mean first: count, mean with its 95 % interval,
        quantiles."""
        rows: list[dict[str, Any]] = []
        for index, head in enumerate(self.heads):
            values = {name: _plain(each[index]) for name, each in self._distribution.items()}
            rows.append({"head": head, **values})
        sign = 1 if self.lowest else -1
        return sorted(rows, key=lambda row: math.inf if row["mean"] is None else sign * row["mean"])

    def examples(self, head: str) -> list[Example]:
        """Return the best examples of a head, the best first, at most one of each text."""
        if head not in self.heads:
            raise WrongUsage(
                f"the head {head!r} was not searched; {did_you_mean(head, self.heads)}"
            )
        index = self.heads.index(head)
        values, places = (each[index].tolist() for each in self._examples)
        return [
            Example(head, value, text, query, key, self._tokens(text))
            for value, (text, query, key) in zip(values, places, strict=True)
            if text >= 0
        ]

    def _tokens(self, text: int) -> tuple[str, ...]:
        return tuple(self._names[str(token)] for token in self._texts[str(text)])


def write_tables(found: Found, folder: Path) -> None:
    """Write `examples` and `heads` as Parquet where pyarrow is installed, else as CSV."""
    examples = [
        {
            "head": each.head,
            "rank": rank,
            "value": each.value,
            "text": each.text,
            "query": each.query,
            "key": each.key,
            "query_token": each.tokens[each.query],
            "key_token": each.tokens[each.key],
            "context": " ".join(token for _, token in each.context()),
        }
        for head in found.heads
        for rank, each in enumerate(found.examples(head), 1)
    ]
    _write_table(folder, "examples", examples)
    _write_table(folder, "heads", found.table())


def _write_table(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        stream = io.StringIO()
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(folder / f"{name}.csv", stream.getvalue())
        return
    stream_of_bytes = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), stream_of_bytes)
    with explained(folder / f"{name}.parquet"):
        write_bytes(folder / f"{name}.parquet", stream_of_bytes.getvalue().to_pybytes())


def open_search(folder: Path | str) -> Found:
    """Open the folder of a search, finished or not.

    Raises:
        CouldNotRun: it is missing or damaged.
    """
    told, tensors = read_state(Path(folder))
    try:
        tally = Tally(len(told["heads"]), told["top"], told["seed"], lowest=told["lowest"])
        tally.restore(tensors)
        return Found(told, tally.distribution(), tally.examples())
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError) as error:
        raise CouldNotRun(f"the search in {folder} is damaged: {error}.") from None


def _plain(number: Tensor) -> float | None:
    value = float(number)
    return None if math.isnan(value) else value
