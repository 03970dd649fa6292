"""What a search found: for each head its examples in their texts, and how its values are distributed."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from attnlab.display import Card, displayed
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.files import explained, write_bytes, write_text

__all__ = ["Example", "Found", "open_search", "write_tables"]


_AROUND = 12  # tokens of the context on either side


@displayed
class Example(NamedTuple):
    """One query where a head does what was asked for most.

    text: the number of the row in the corpus · query, key: their places in it · tokens: of the whole text.
    """

    head: str
    value: float
    text: int
    query: int
    key: int
    tokens: tuple[str, ...]

    def context(self, around: int = _AROUND) -> list[tuple[int, str]]:
        """Return the tokens around query and key with their places; a place of -1 stands for what is left out."""
        near = [place for at in sorted({self.query, self.key}) for place in range(at - around, at + around + 1)]
        places = sorted({place for place in near if 0 <= place < len(self.tokens)})
        found: list[tuple[int, str]] = []
        for number, place in enumerate(places):
            if place and (not number or places[number - 1] != place - 1):
                found.append((-1, "…"))
            found.append((place, self.tokens[place]))
        return found if not places or places[-1] == len(self.tokens) - 1 else [*found, (-1, "…")]


@displayed
class Found:
    """A search, as far as it has come.

    measure: its name · counts: what became of the rows · heads: their names · is_done: the corpus has ended.
    """

    def __init__(self, told: Mapping[str, Any], distribution: Mapping[str, Tensor], examples: tuple[Tensor, Tensor]):
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
        """Return a row for each head, the largest mean first: count, mean with its 95 % interval, quantiles."""
        rows = [
            {"head": head, **{name: _plain(each[index]) for name, each in self._distribution.items()}}
            for index, head in enumerate(self.heads)
        ]
        sign = 1 if self.lowest else -1
        return sorted(rows, key=lambda row: math.inf if row["mean"] is None else sign * row["mean"])

    def examples(self, head: str) -> list[Example]:
        """Return the best examples of a head, the best first, each from a text of its own."""
        if head not in self.heads:
            raise WrongUsage(f"the head {head!r} was not searched; {did_you_mean(head, self.heads)}")
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
            "head": each.head, "rank": rank, "value": each.value, "text": each.text, "query": each.query,
            "key": each.key, "query_token": each.tokens[each.query], "key_token": each.tokens[each.key],
            "context": " ".join(token for _, token in each.context()),
        }
        for head in found.heads
        for rank, each in enumerate(found.examples(head), 1)
    ]  # fmt: skip
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
    """Open what `search_corpus` wrote, also where it was stopped.

    Raises:
        CouldNotRun: it is missing or damaged.
    """
    from attnlab.look.corpus.keeping import read_state
    from attnlab.look.corpus.tally import Tally

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
