"""Rows of CSV and TSV files, and the bytes of a text file as characters.

A quoted cell may hold line ends, so a stray quotation mark hides every row up to the next one. The
lines of such a record give it away: the first and the last are rows by themselves, with a cell for
each column and, in the columns beside the text's, values that other rows have too (but for columns
whose values differ from row to row, such as ids and dates). All are then read as rows, and the
quotation marks of their texts as characters.
"""

import bz2
import codecs
import csv
import gzip
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from attnlab.errors import CouldNotRun

Quoting = Literal[0, 3]
PACKED: dict[str, Any] = {".gz": gzip, ".bz2": bz2, ".xz": lzma}
DAMAGED = (EOFError, lzma.LZMAError, zlib.error)
"""What reading a compressed file raises beside OSError."""
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # begins with the mark of UTF-16, so it stands before it
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_QUOTED = re.compile(r'"([^"]*)"')  # a cell that is quoted as a whole
_MAX_VALUES = 1_000  # of a column that are remembered
_MAX_LENGTH = 200  # of a value by which a row is recognized


def file_format(path: Path) -> str:
    """Return the ending that names a file's format, without the ending of its compression.

    >>> file_format(Path("reviews.CSV.gz"))
    '.csv'
    """
    if path.suffix.lower() in PACKED:
        path = path.with_suffix("")
    return path.suffix.lower()


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading, unpacked if its ending says that it is compressed.

    Raises:
        CouldNotRun: it is compressed in another way than its ending says.
    """
    packed = PACKED.get(path.suffix.lower())
    if packed is None:
        return path.open("rb")
    file: IO[bytes] = packed.open(path, "rb")
    try:
        file.read(1)
    except (OSError, *DAMAGED) as error:
        file.close()
        raise CouldNotRun(f"{path} cannot be unpacked: {error}.") from None
    file.seek(0)
    return file


def encoding_of(start: bytes) -> str | None:
    """Return the encoding that the byte order mark at the start of a file names; None without."""
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if start.startswith(mark):
            return encoding
    return None


@dataclass
class Column:
    """Values that a column has had, up to a limit; whether all of them are numbers; and whether
    most rows have one of their own."""

    values: set[str] = field(default_factory=set)
    is_numeric: bool = True
    is_varied: bool = False

    def add(self, value: str) -> None:
        """Take in the value of a row."""
        is_first = not self.values
        self.is_numeric = (is_first or self.is_numeric) and _is_number(value)
        if len(self.values) < _MAX_VALUES:
            self.values.add(value)

    def take_repeated(self, counts: Counter[str]) -> None:
        """Take in the values that several rows have; most rows may have one of their own."""
        self.values = {value for value, number in counts.items() if number > 1}
        num_repeated = sum(map(counts.__getitem__, self.values))
        self.is_varied = not self.is_numeric and 2 * num_repeated < counts.total()

    def fits(self, value: str) -> bool:
        """Does a value look like the others?"""
        if not value.strip():  # what a line of a poem leaves after its last comma
            return False
        return self.is_varied or value in self.values or (self.is_numeric and _is_number(value))


def columns_of(lines: Iterable[str], delimiter: str, header: Sequence[str]) -> list[Column]:
    """Learn the columns of a file from those of its lines that are rows, whatever is quoted: the
    short values that come twice or more, and whether all are numbers."""
    counts = [Counter[str]() for _ in header]
    columns = [Column() for _ in header]
    for line in lines:
        cells = line.rstrip("\r\n").split(delimiter)
        if len(cells) != len(header) or cells == header:
            continue
        for count, column, value in zip(counts, columns, cells, strict=True):
            column.is_numeric = column.is_numeric and _is_number(value)
            if len(value) <= _MAX_LENGTH:
                count[value] += 1
    for count, column in zip(counts, columns, strict=True):
        column.take_repeated(count)
    return columns


class CsvRows:
    """Iterate over the rows of a file of cells.

    Args:
        lines: the lines with their ends as they are.
        delimiter: what stands between cells.
        quoting: csv.QUOTE_MINIMAL, or csv.QUOTE_NONE where a quotation mark is a character.
        strict: raise csv.Error where a quoted cell goes on after its closing mark, or never ends;
            but not if the line is a row without quoting.
    """

    def __init__(
        self,
        lines: Iterable[str],
        delimiter: str,
        quoting: Quoting = csv.QUOTE_MINIMAL,
        *,
        strict: bool = False,
    ) -> None:
        self.header: list[str] = []
        self.line = 0
        """The number of the row's first line, from 1."""
        self.is_unclosed = False
        """Does the row hold the rest of the file, since a quotation mark is never closed?"""
        self._is_over = False
        self._delimiter = delimiter
        self._lines: list[str] = []  # of the row that is read
        self._reader = csv.reader(
            self._kept(lines), delimiter=delimiter, quoting=quoting, strict=strict
        )
        self._waiting: list[list[str]] = []
        self._columns: list[Column] = []
        self._text = 0

    def name_columns(self, header: list[str], text: str, columns: list[Column]) -> None:
        """Say what the columns are called, and which of them holds the text.

        Args:
            header: the names.
            text: the name of the text's column.
            columns: the values by which lines are recognized as rows.
        """
        self.header, self._text = header, header.index(text)
        self._columns = columns

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        """Return the next row that is not blank, without empty cells beyond the last column."""
        while not self._waiting:
            self._waiting = [cells for cells in self._next_rows() if cells not in ([], [""])]
        return self._without_empty(self._waiting.pop(0))

    def _without_empty(self, cells: list[str]) -> list[str]:
        """Leave out empty cells beyond the last column."""
        has_more = any(cells[len(self.header) :])
        return cells if has_more or not self.header else cells[: len(self.header)]

    def _kept(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            line = line.lstrip("\ufeff")  # files joined end to end have a mark at every seam
            self._lines.append(line)
            yield line
        self._is_over = True

    def _next_rows(self) -> list[list[str]]:
        """Return the next record, or the rows that its lines are."""
        self._lines, self.line = [], self._reader.line_num + 1
        try:
            cells = next(self._reader)
        except csv.Error:
            hidden = self._rows_of_lines()
            if hidden is None:
                raise
            return hidden
        if len(self._lines) > 1 and (hidden := self._rows_of_lines()) is not None:
            return hidden
        self.is_unclosed = self._is_over
        if len(cells) == len(self._columns) and len(self._lines) == 1:
            for column, value in zip(self._columns, cells, strict=True):
                column.add(value)
        return [cells]

    def _rows_of_lines(self) -> list[list[str]] | None:
        """Return each line of the record as a row, if its first and last line are rows."""
        if len(self.header) < 2:
            return None
        rows = [line.rstrip("\r\n").split(self._delimiter) for line in self._lines]
        hides_rows = self._is_row(rows[0]) and self._is_row(rows[-1])
        return [self._unquoted(cells) for cells in rows] if hides_rows else None

    def _unquoted(self, cells: list[str]) -> list[str]:
        """Take the quotation marks from around each value beside the text, as in other rows."""
        return [
            quoted[1] if place != self._text and (quoted := _QUOTED.fullmatch(cell)) else cell
            for place, cell in enumerate(cells)
        ]

    def _is_row(self, cells: list[str]) -> bool:
        cells = self._without_empty(cells)
        if len(cells) != len(self.header):
            return False
        others = list(zip(self._columns, cells, strict=True))
        del others[self._text]
        can_tell = any(not column.is_varied for column, _ in others)
        return can_tell and all(column.fits(cell) for column, cell in others)


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
