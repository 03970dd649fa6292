"""Tables for people: cells that no spreadsheet runs, and sheets that are filled and kept.

A cell that begins with = + - @ or a tab is a formula to a spreadsheet; an apostrophe before it
makes it a text. The same stands within a cell after a semicolon: where that is a spreadsheet's
separator, it splits there in spite of the quotes. At a comma no quoted cell is split.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from attnlab.core.store import write_text
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab_course.grading.file_names import inert
from attnlab_course.submit import file_label

_FORMULA = re.compile(r"(^|;)(\s*)(?=[=+\-@＝＋－＠])")
_MOST_CELL = 2000


class InstructorText(str):
    """What the instructor wrote into a column of their own: it is kept as it is."""

    __slots__ = ()


def inert_cell(value: object) -> str:
    """Return a cell that no spreadsheet takes for a formula; numbers stay as they are.

    >>> inert_cell("=1+1"), inert_cell(2.5), inert_cell("a;@b"), inert_cell("\\t=x")
    ("'=1+1", '2.5', "a;'@b", "'=x")
    """
    if isinstance(value, InstructorText):
        return str(value)
    if isinstance(value, int | float):
        return f"{value:g}" if abs(value) < 1e5 else f"{value:.2f}"
    return _FORMULA.sub(r"\1\2'", inert(str(value), _MOST_CELL))


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Replace a CSV file, with every cell inert and in quotes."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(list(map(inert_cell, row)) for row in rows)
    write_text(path, text.getvalue().encode("utf-8", "replace").decode())


def read_table(path: Path) -> list[dict[str, str]]:
    """Read a CSV file, with the byte order mark or semicolons of a spreadsheet.

    Raises:
        CouldNotRun: it cannot be read.
        WrongUsage: a row with more cells than there are columns.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        head = text.partition("\n")[0]
        separator = ";" if head.count(";") > head.count(",") else ","
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    except (OSError, ValueError, csv.Error) as error:
        raise CouldNotRun(f"could not read {path}: {error}.") from None
    columns = [name.strip().lower() for name in rows[0]] if rows else []
    records = []
    for number, row in enumerate(rows[1:], 2):
        if len(row) > len(columns):
            raise WrongUsage(f"row {number} of {path} has more cells than there are columns.")
        if any(row):
            cells = [*row, *[""] * (len(columns) - len(row))]
            records.append(dict(zip(columns, (cell.strip() for cell in cells), strict=True)))
    return records


def _by_file(key: tuple[str, ...]) -> tuple[str, ...]:
    """Return a row's key with the student as a file is named: `grade-one` knows no other name."""
    return file_label(key[0]), *key[1:]


@dataclass
class Sheet:
    """A sheet that an instructor fills: one column for them, kept whenever it is written.

    Args:
        path: its file.
        keys: the columns that say what a row is about.
        column: the one to fill.
        rows: what is filled, by key.
        reasons: why a row needs the instructor this time, by key.
        more: the instructor's own columns, such as comments, by key.
        filled: the rows again, by students as files are named after them.
    """

    path: Path
    keys: tuple[str, ...]
    column: str
    rows: dict[tuple[str, ...], str] = field(default_factory=dict)
    reasons: dict[tuple[str, ...], str] = field(default_factory=dict)
    more: dict[tuple[str, ...], dict[str, str]] = field(default_factory=dict)
    filled: dict[tuple[str, ...], str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, keys: tuple[str, ...], column: str) -> Self:
        """Read a sheet, or begin one where there is none.

        Raises:
            WrongUsage: a column is missing.
        """
        sheet = cls(path, keys, column)
        for row in read_table(path) if path.exists() else ():
            sheet._add(row)
        return sheet

    def _add(self, row: Mapping[str, str]) -> None:
        """Add a row of the file."""
        columns = (*self.keys, self.column)
        for name in columns:
            if name not in row and name != "answer":
                raise WrongUsage(f"{self.path} needs the column {name!r}, of {', '.join(columns)}.")
        key = tuple(row.get(name, "") for name in self.keys)
        self.rows[key] = row[self.column]
        if row[self.column]:
            self.filled[_by_file(key)] = row[self.column]
        ours = (*columns, "why", "")
        self.more[key] = {name: row[name] for name in row if name not in ours}

    def find(self, key: tuple[str, ...]) -> str:
        """Return what the instructor filled in for a key; an empty text without.

        A row without the answer's hash is about whatever was handed in.
        """
        key = tuple(map(inert_cell, key))
        place = self.keys.index("answer")
        any_answer = (*key[:place], "", *key[place + 1 :])
        entry = self.filled.get(_by_file(key)) or self.filled.get(_by_file(any_answer), "")
        return entry.lower()

    def ask(self, key: tuple[str, ...], reason: str, allowed: Sequence[str] = ()) -> str:
        """Return what the instructor filled in for a key, and keep its row in the sheet.

        Raises:
            WrongUsage: something else than what is allowed.
        """
        key = tuple(map(inert_cell, key))
        self.reasons[key] = reason
        entry = self.find(key)
        if allowed and entry not in allowed:
            hint = did_you_mean(entry, [word for word in allowed if word])
            raise WrongUsage(f"{self.path}: {self.column} of {' '.join(key)} is {entry!r}; {hint}")
        return entry

    def write(self) -> None:
        """Write the rows that were filled in or requested; no file if there are none."""
        everything = {**dict.fromkeys(self.reasons, ""), **self.rows}
        if not everything:
            return
        added = list(dict.fromkeys(name for columns in self.more.values() for name in columns))
        rows: list[tuple[object, ...]] = []
        for key in sorted(everything):
            extra = self.more.get(key, {})
            cells = [InstructorText(extra.get(name, "")) for name in added]
            rows.append((*key, everything[key], self.reasons.get(key, ""), *cells))
        write_table(self.path, (*self.keys, self.column, "why", *added), rows)
