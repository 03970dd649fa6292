"""Texts one after another from a file of any length: CSV, TSV, JSONL, Parquet, or plain lines.

A row without a text is returned with the reason, so that it can be counted; reading goes on.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean

_LONGEST = 2**22  # characters of a text; a book has some 2**20
_MOST_LINE = 4 * _LONGEST  # characters of a line, with what surrounds the text
_PIECE = 2**20  # characters of the rest of a longer line, read at a time
_BROKEN, _TOO_LONG = "not UTF-8", f"longer than {_LONGEST:,} characters"


@dataclass(frozen=True)
class Row:
    """A row: its number from 0, and its text, or None and the reason why it has none."""

    number: int
    text: str | None
    why: str = ""


def rows_of(source: Path | str | Iterable[str], column: str = "text") -> Iterator[Row]:
    """Read texts from a file, one row at a time, or from an iterable of texts.

    Args:
        source: a file ending in .csv, .tsv, .jsonl, .parquet or .txt (one text a line), or the
            texts themselves.
        column: of the text, in files that have columns.

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
            raise WrongUsage(
                f"a corpus is a file ending in {', '.join(_READERS)}; got {path.name or source!r}."
            )
        if not path.is_file():
            raise CouldNotRun(f"there is no file {path}.")
        found = _READERS[kind](path, column)
    return _rows(found, source)


def _rows(found: Iterable[tuple[Any, str]], source: Any) -> Iterator[Row]:
    try:
        for number, (text, why) in enumerate(found):
            why = why or _reason_against(text)
            yield Row(number, None if why else text, why)
    except OSError as error:
        raise CouldNotRun(f"could not read {source}: {error.strerror or error}.") from None


def _reason_against(text: Any) -> str:
    """Return why a row has no text that can be read; "" if it has one."""
    if text is None or isinstance(text, float):  # NaN is a missing text
        return "no text"
    if not isinstance(text, str):
        return f"a {type(text).__name__}, no text"
    if not text.strip():
        return "empty"
    if len(text) > _LONGEST:
        return _TOO_LONG
    try:
        text.encode()
    except UnicodeEncodeError:  # half characters
        return _BROKEN
    return ""


class _Lines:
    """The lines of a file, one at a time; a line beyond the limit is cut.

    is_cut: whether a line was cut since `was_cut` was called · is_over: the end of the file was
    reached.
    """

    def __init__(self, path: Path) -> None:
        self._path, self.is_cut, self.is_over = path, False, False

    def __iter__(self) -> Iterator[str]:
        # Bytes that are not UTF-8 become half characters, by which the row is recognized.
        with self._path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            while line := file.readline(_MOST_LINE):
                if len(line) == _MOST_LINE and line[-1] not in "\r\n":
                    self.is_cut = True
                    while (rest := file.readline(_PIECE)) and rest[-1] not in "\r\n":
                        pass
                yield line
        self.is_over = True

    def was_cut(self) -> bool:
        """Was a line cut since the last call?"""
        found, self.is_cut = self.is_cut, False
        return found


def _plain(path: Path, column: str) -> Iterator[tuple[Any, str]]:
    lines = _Lines(path)
    for line in lines:
        if line.strip():
            yield line.rstrip("\r\n"), _TOO_LONG if lines.was_cut() else ""


def _cells(path: Path, column: str, delimiter: str) -> Iterator[tuple[Any, str]]:
    limit = csv.field_size_limit(_MOST_LINE)
    try:
        lines = _Lines(path)
        reader = csv.reader(lines, delimiter=delimiter)
        header = _header(reader, path)
        _check_column(column, header, path)
        place = header.index(column)
        while True:
            first = reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error:  # the only one possible here: a cell beyond the limit
                too_long = f"longer than the limit, from line {first:,}"
                yield None, _TOO_LONG if lines.was_cut() else too_long
                continue
            if lines.was_cut():
                yield None, _TOO_LONG
            elif lines.is_over:  # only within quotation marks the reader goes on at the end
                yield None, f"a quotation mark in line {first:,} is never closed"
            elif cells and len(cells) == len(header):
                yield cells[place], ""
            elif cells:
                yield None, f"{len(cells)} cells where {len(header)} have names"
    finally:
        csv.field_size_limit(limit)


def _header(reader: Iterator[list[str]], path: Path) -> list[str]:
    """Return the first row that is not blank."""
    try:
        header = next((cells for cells in reader if cells), [])
        "".join(header).encode()
    except (csv.Error, UnicodeEncodeError):
        header = ["\0"]
    if "\0" in "".join(header):
        raise CouldNotRun(
            f"{path} is no UTF-8 text with a row of names at its head; save it as CSV in UTF-8."
        )
    return header


def _check_column(column: str, names: Sequence[str], path: Path) -> None:
    if not names:
        raise WrongUsage(
            f"{path} is empty; expected a row of names at its head, {column!r} among them."
        )
    if column not in names:
        raise WrongUsage(f"{path} has no column {column!r}; {did_you_mean(column, names)}")
    if list(names).count(column) > 1:
        raise WrongUsage(f"{path} has several columns {column!r}; give them names of their own.")


def _jsonl(path: Path, column: str) -> Iterator[tuple[Any, str]]:
    lines = _Lines(path)
    for line in lines:
        if lines.was_cut():
            yield None, _TOO_LONG
        elif line.strip():
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
        raise CouldNotRun(
            "a Parquet file needs pyarrow; install it with: pip install 'attnlab[text]'."
        ) from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            _check_column(column, file.schema_arrow.names, path)
            for batch in file.iter_batches(batch_size=256, columns=[column]):
                yield from map(_plain_value, batch.column(0))
    except pyarrow.ArrowException as error:
        raise CouldNotRun(f"{path} is not a Parquet file that can be read: {error}.") from None


def _plain_value(value: Any) -> tuple[Any, str]:
    try:
        return value.as_py(), ""
    except UnicodeDecodeError:  # Parquet does not check its text
        return None, _BROKEN


_READERS: dict[str, Callable[[Path, str], Iterator[tuple[Any, str]]]] = {
    ".csv": partial(_cells, delimiter=","),
    ".tsv": partial(_cells, delimiter="\t"),
    ".jsonl": _jsonl,
    ".parquet": _parquet,
    ".txt": _plain,
}
