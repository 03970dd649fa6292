"""Texts one after another from a file of any length: CSV, TSV, JSONL, Parquet, or plain lines.

A row without a text is returned with the reason, so that it can be counted.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean, type_words
from attnlab.tasks.csv_rows import (
    DAMAGED,
    CsvRows,
    columns_of,
    encoding_of,
    file_format,
    open_bytes,
)

_LONGEST = 2**22  # characters of a text; a book has some 2**20
_MOST_LINE = 4 * _LONGEST  # characters of a line, with what surrounds the text
_NUM_LEARNED = 10_000  # lines of which the values of the columns beside the text are learned
_PIECE = 2**20  # characters of the rest of a longer line, read at a time
_BROKEN, _TOO_LONG = "not UTF-8", f"longer than {_LONGEST:,} characters"


@dataclass(frozen=True)
class TextRow:
    """A row: its number from 0, and its text, or None and the reason why it has none."""

    number: int
    text: str | None
    why: str = ""


def rows_of(source: Path | str | Iterable[str], column: str = "text") -> Iterator[TextRow]:
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
        return _rows(((text, "") for text in source), _Lines(Path()))
    lines = _Lines(Path(source))
    kind = file_format(lines.path)
    if kind not in _READERS:
        got = lines.path.name or source
        raise WrongUsage(f"a corpus is a file ending in {', '.join(_READERS)}; got {got!r}.")
    if not lines.path.is_file():
        raise CouldNotRun(f"there is no file {source}.")
    return _rows(_READERS[kind](lines, column), lines)


def _rows(texts: Iterable[tuple[Any, str]], lines: "_Lines") -> Iterator[TextRow]:
    try:
        for number, (text, why) in enumerate(texts):
            why = _TOO_LONG if lines.was_cut() else why or _reason_against(text)
            yield TextRow(number, None if why else text, why)
    except OSError as error:
        raise CouldNotRun(f"could not read {lines.path}: {error.strerror or error}.") from None
    except DAMAGED as error:
        raise CouldNotRun(f"{lines.path} cannot be unpacked whole: {error}.") from None
    finally:  # an error keeps the frames below alive, and would keep the file open
        lines.close()


def _reason_against(text: Any) -> str:
    """Return why a row has no text that can be read; "" if it has one."""
    if text is None or isinstance(text, float):  # NaN is a missing text
        return "no text"
    if not isinstance(text, str):
        return f"{type_words(text)}, no text"
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

    is_cut: whether a line was cut since `was_cut` was called.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.is_cut = path, False
        self._file: TextIO | None = None

    def __iter__(self) -> Iterator[str]:
        raw = open_bytes(self.path)
        encoding = encoding_of(raw.read(4)) or "utf-8"
        raw.seek(0)
        # Bytes that are not UTF-8 become half characters, by which the row is recognized.
        errors = "surrogateescape" if encoding.startswith("utf-8") else "replace"
        file = io.TextIOWrapper(raw, encoding=encoding, errors=errors, newline="")
        self._file = file
        while line := file.readline(_MOST_LINE):
            if len(line) == _MOST_LINE and line[-1] not in "\r\n":
                self.is_cut = True
                while (rest := file.readline(_PIECE)) and rest[-1] not in "\r\n":
                    pass
            yield line

    def close(self) -> None:
        """Close the file, if one is open."""
        if self._file is not None:
            self._file.close()

    def was_cut(self) -> bool:
        """Was a line cut since the last call?"""
        was_cut, self.is_cut = self.is_cut, False
        return was_cut


def _plain(lines: _Lines, column: str) -> Iterator[tuple[Any, str]]:
    for line in lines:
        if line.strip():
            yield line.rstrip("\r\n"), ""


def _cells(lines: _Lines, column: str, delimiter: str) -> Iterator[tuple[Any, str]]:
    limit = csv.field_size_limit(_MOST_LINE)
    try:
        rows = CsvRows(lines, delimiter)
        header = _header(rows, lines.path)
        _check_column(column, header, lines.path)
        first = _Lines(lines.path)
        known = columns_of(islice(first, _NUM_LEARNED), delimiter, header)
        first.close()
        rows.name_columns(header, column, known)
        place = header.index(column)
        while True:
            try:
                cells = next(rows)
            except StopIteration:
                return
            except csv.Error:  # the only one possible here: a cell beyond the limit
                yield None, f"longer than the limit, from line {rows.line:,}"
                continue
            if rows.is_unclosed:
                yield None, f"a quotation mark in line {rows.line:,} is never closed"
            elif cells == header:
                yield None, "the header row again"
            elif len(cells) == len(header):
                yield cells[place], ""
            else:
                yield None, f"{len(cells)} cells for {len(header)} columns"
    finally:
        csv.field_size_limit(limit)


def _header(rows: CsvRows, path: Path) -> list[str]:
    """Return the first row that is not blank."""
    try:
        header = next((cells for cells in rows if "".join(cells).strip()), [])
        "".join(header).encode()
    except (csv.Error, UnicodeEncodeError):
        header = ["\0"]
    if "\0" in "".join(header):
        raise CouldNotRun(f"{path} has no header row; save it as CSV in UTF-8.")
    return header


def _check_column(column: str, names: Sequence[str], path: Path) -> None:
    if not names:
        raise WrongUsage(f"{path} is empty; expected a header row with {column!r}.")
    if column not in names:
        raise WrongUsage(f"{path} has no column {column!r}; {did_you_mean(column, names)}")
    if list(names).count(column) > 1:
        raise WrongUsage(f"{path} has several columns {column!r}; give them different names.")


def _jsonl(lines: _Lines, column: str) -> Iterator[tuple[Any, str]]:
    for line in lines:
        if not line.strip() and not lines.is_cut:
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            yield None, "not JSON"
            continue
        if isinstance(value, str):
            yield value, ""
        elif isinstance(value, dict):
            yield value.get(column), "" if column in value else f"no {column!r}"
        else:
            yield None, "neither an object nor a text"


def _parquet(lines: _Lines, column: str) -> Iterator[tuple[Any, str]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CouldNotRun("a Parquet file needs pyarrow: pip install 'attnlab[text]'.") from None
    try:
        with pyarrow.parquet.ParquetFile(lines.path) as file:
            _check_column(column, file.schema_arrow.names, lines.path)
            for batch in file.iter_batches(batch_size=256, columns=[column]):
                for value in batch.column(0):
                    try:
                        yield value.as_py(), ""
                    except UnicodeDecodeError:  # Parquet does not check its text
                        yield None, _BROKEN
    except pyarrow.ArrowException as error:
        raise CouldNotRun(f"{lines.path} is not a readable Parquet file: {error}.") from None


_READERS: dict[str, Callable[[_Lines, str], Iterator[tuple[Any, str]]]] = {
    ".csv": partial(_cells, delimiter=","),
    ".tsv": partial(_cells, delimiter="\t"),
    ".jsonl": _jsonl,
    ".parquet": _parquet,
    ".txt": _plain,
}
