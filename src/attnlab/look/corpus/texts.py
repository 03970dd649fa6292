"""Texts one after another from a file of any length: CSV, TSV, JSONL, Parquet, or plain lines.

A row that holds no text is passed on with the reason, so that it can be counted; it ends nothing.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean

__all__ = ["Row", "rows_of"]

_LONGEST = 2**24  # characters of a cell
_BROKEN = "not UTF-8"


class Row(NamedTuple):
    """A row: its number from 0, its text, or None and why there is none."""

    number: int
    text: str | None
    why: str = ""


def rows_of(source: Path | str | Iterable[str], column: str = "text") -> Iterator[Row]:
    """Read texts from a file, one row at a time, or from anything that gives texts.

    Args:
        source: a file ending in .csv, .tsv, .jsonl, .parquet or .txt (a text a line), or the texts themselves.
        column: where the text stands, in files that have columns.

    Raises:
        WrongUsage: a file of another kind, or without this column.
        CouldNotRun: it cannot be read.
    """
    if not isinstance(source, str | Path):
        found: Iterator[tuple[Any, str]] = ((text, "") for text in source)
    else:
        path = Path(source)
        kind = path.suffix.lower()
        if kind not in _READERS:
            raise WrongUsage(f"a corpus is a file ending in {', '.join(_READERS)}; got {path.name or source!r}.")
        if not path.is_file():
            raise CouldNotRun(f"there is no file {path}.")
        found = _READERS[kind](path, column)
    return _judged(found, source)


def _judged(found: Iterable[tuple[Any, str]], source: Any) -> Iterator[Row]:
    try:
        for number, (text, why) in enumerate(found):
            yield _row(number, text, why)
    except OSError as error:
        raise CouldNotRun(f"could not read {source}: {error.strerror or error}.") from None


def _row(number: int, text: Any, why: str) -> Row:
    if why:
        return Row(number, None, why)
    if text is None or isinstance(text, float):  # NaN stands for what is missing
        return Row(number, None, "no text")
    if not isinstance(text, str):
        return Row(number, None, f"a {type(text).__name__}, no text")
    if not text.strip():
        return Row(number, None, "empty")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        return Row(number, None, _BROKEN)
    return Row(number, text)


def _lines(path: Path) -> Iterator[str]:
    # Bytes that are no UTF-8 become half characters, by which the row is known.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        yield from file


def _plain(path: Path, column: str) -> Iterator[tuple[Any, str]]:
    return ((line.rstrip("\r\n"), "") for line in _lines(path) if line.strip())


def _cells(path: Path, column: str, delimiter: str) -> Iterator[tuple[Any, str]]:
    limit = csv.field_size_limit(_LONGEST)
    try:
        reader = csv.reader(_lines(path), delimiter=delimiter)
        header = next(reader, [])
        if column not in header:
            raise WrongUsage(f"{path} has no column {column!r}; {did_you_mean(column, header)}")
        place = header.index(column)
        for cells in reader:
            if cells:
                is_whole = len(cells) == len(header)
                yield (cells[place], "") if is_whole else (None, f"{len(cells)} cells where {len(header)} have names")
    except csv.Error as error:
        raise CouldNotRun(f"{path} is not clean CSV, line {reader.line_num}: {error}.") from None
    finally:
        csv.field_size_limit(limit)


def _csv(path: Path, column: str) -> Iterator[tuple[Any, str]]:
    return _cells(path, column, ",")


def _tsv(path: Path, column: str) -> Iterator[tuple[Any, str]]:
    return _cells(path, column, "\t")


def _jsonl(path: Path, column: str) -> Iterator[tuple[Any, str]]:
    for line in _lines(path):
        if line.strip():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                yield None, "not JSON"
                continue
            if isinstance(value, str):
                yield value, ""
            elif isinstance(value, dict):
                yield (value[column], "") if column in value else (None, f"no {column!r}")
            else:
                yield None, "neither an object nor a text"


def _parquet(path: Path, column: str) -> Iterator[tuple[Any, str]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CouldNotRun("a Parquet file needs pyarrow; install it with: pip install 'attnlab[text]'.") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names: Sequence[str] = file.schema_arrow.names
            if column not in names:
                raise WrongUsage(f"{path} has no column {column!r}; {did_you_mean(column, names)}")
            for batch in file.iter_batches(batch_size=256, columns=[column]):
                yield from ((value, "") for value in batch.column(0).to_pylist())
    except pyarrow.ArrowException as error:
        raise CouldNotRun(f"{path} is not a Parquet file that can be read: {error}.") from None


_READERS = {".csv": _csv, ".tsv": _tsv, ".jsonl": _jsonl, ".parquet": _parquet, ".txt": _plain}
