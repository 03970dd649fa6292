"""Texts with labels from CSV, TSV, JSON and Parquet files, and from the Hugging Face hub.

Each reader returns a mapping for each row, with the keys text, label and split and the values as
they came, or with the reason why the row has none; `texts.py` tidies and counts them. A file may be
compressed (.csv.gz, .bz2, .xz).
"""

import csv
import io
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.tasks.csv_rows import (
    DAMAGED,
    PACKED,
    CsvRows,
    Quoting,
    columns_of,
    encoding_of,
    file_format,
    open_bytes,
)
from attnlab.tasks.texts import REFUSED, SPLITS

_CELLS = (".csv", ".tsv")
_INSTEAD = {  # of other files, by their endings
    (".zip", ".7z", ".rar", ".tar"): "This is an archive: unpack it and name the file inside.",
    (".xlsx", ".xls", ".ods"): "This is a workbook: save its sheet as CSV.",
}
_STARTS = {  # of files that are no text, whatever their endings say
    b"\x1f\x8b": "compressed with gzip: let its name end in .gz.",
    b"\xfd7zXZ\0": "compressed with xz: let its name end in .xz.",
    b"PK\3\4": "an archive or a workbook: unpack it, or save its sheet as CSV.",
    b"\xd0\xcf\x11\xe0": "a workbook: save its sheet as CSV.",
    b"PAR1": "a Parquet file: let its name end in .parquet.",
}
_DELIMITERS = {";": "';'", ",": "','", "|": "'|'", "\t": "tab"}  # how each is written as a setting


@dataclass(frozen=True)
class Columns:
    """The columns of text, label and split (which may be absent), and the format of a file of text.

    encoding: such as cp1252 · has_header: without one, the columns of a CSV or TSV are 1, 2, 3, … ·
    delimiter: what stands between cells; None for what the file's ending says.
    """

    text: str = "text"
    label: str = "label"
    split: str = "split"
    encoding: str = "utf-8"
    has_header: bool = True
    delimiter: str | None = None

    def __post_init__(self) -> None:
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise WrongUsage(f"delimiter must be one character; got {self.delimiter!r}.")


LabeledRow = dict[str, object]
"""A row by the names text, label and split, the values as they came; or by `texts.REFUSED` alone,
the reason why it was left out."""


def read_labeled_texts(source: str, columns: Columns | None = None) -> list[LabeledRow]:
    """Read the rows of a CSV, TSV, JSON, JSONL or Parquet file, or of a data set on the hub.

    Returns:
        a mapping for each row, with the keys text, label and split, values as they came; a row that
        cannot be read is a mapping from `texts.REFUSED` to the reason.

    Raises:
        WrongUsage: a column is missing, or the file is of no kind that can be read.
        CouldNotRun: the file is missing or damaged, or an optional library is not installed.
    """
    columns = columns or Columns()
    path = Path(source)
    if path.is_dir():
        raise WrongUsage(f"data must be a file with texts and labels; {source} is a folder.")
    if not path.exists():
        is_name = re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", source)
        if is_name and path.suffix.lower() not in _READERS:
            return _read_hub(source, columns)
        raise CouldNotRun(f"there is no file {source}. A data set on the hub is named owner/name.")
    read = _READERS[_kind_of(path, columns)]
    try:
        return read(path, columns)
    except OSError as error:
        raise CouldNotRun(f"could not read {path}: {error.strerror or error}.") from None


def _kind_of(path: Path, columns: Columns) -> str:
    """Return the ending of the files that are read as this one is."""
    kind = file_format(path)
    if kind == ".parquet" and path.suffix.lower() in PACKED:
        raise WrongUsage(f"{path.name} is a compressed Parquet file: unpack it first.")
    for endings, instead in _INSTEAD.items():
        if kind in endings:
            raise WrongUsage(f"{_EXPECTED}; got {path.name}. {instead}")
    if columns.delimiter is not None:
        if kind in _READERS and kind not in _CELLS:
            raise WrongUsage(
                f"delimiter is for files of cells, such as CSV; {path.name} is none, leave it out."
            )
        return ".tsv" if columns.delimiter == "\t" else ".csv"
    if kind not in _READERS:
        raise WrongUsage(
            f"{_EXPECTED}; got {path.name}. Of any other file of cells say what stands between "
            "them, such as delimiter=tab."
        )
    if not columns.has_header and kind not in _CELLS:
        raise WrongUsage(f"header=false is for CSV and TSV; {path.name} names its columns itself.")
    return kind


def _other_delimiter(wanted: str, names: Sequence[str]) -> str:
    """Name the delimiter that would split a single column into several with this name; or ""."""
    for mark, spelling in _DELIMITERS.items():
        if len(names) == 1 and wanted in names[0].split(mark):
            return f"its columns are separated by {mark!r}: say delimiter={spelling}."
    return ""


def _pick(names: Sequence[str], columns: Columns, where: str) -> dict[str, str]:
    """Return the columns of text, label and split; the split's is left out where there is none."""
    for wanted, setting in ((columns.text, "text"), (columns.label, "label")):
        if wanted not in names:
            raise WrongUsage(
                f"{where} has no column {wanted!r} (set with {setting}=COLUMN); "
                f"{_other_delimiter(wanted, names) or did_you_mean(wanted, names)}"
            )
        if list(names).count(wanted) > 1:
            raise WrongUsage(f"{where} has several columns {wanted!r}; give each its own name.")
    chosen = {"text": columns.text, "label": columns.label}
    if columns.split in names:
        chosen["split"] = columns.split
    return chosen


def _read_csv(path: Path, columns: Columns) -> list[LabeledRow]:
    try:
        return _read_cells(path, columns, columns.delimiter or ",")
    except csv.Error as error:
        raise CouldNotRun(
            f"{path} is not valid CSV, {error}. Put each text that holds a comma or a quote into "
            "quotes, with every quote inside it written twice, or save the file as TSV, where "
            "quotes may stand alone."
        ) from None


def _read_tsv(path: Path, columns: Columns) -> list[LabeledRow]:
    try:
        return _read_cells(path, columns, "\t")
    except csv.Error:  # many a TSV knows no quoting: there a quote is a character like any other
        pass
    try:
        return _read_cells(path, columns, "\t", csv.QUOTE_NONE)
    except csv.Error as error:
        raise CouldNotRun(f"{path} is not valid TSV, {error}.") from None


def _read_cells(
    path: Path, columns: Columns, delimiter: str, quoting: Quoting = csv.QUOTE_MINIMAL
) -> list[LabeledRow]:
    content = _decoded(path, columns.encoding)
    limit = csv.field_size_limit(2**31 - 1)
    rows = CsvRows(_lines(content), delimiter, quoting, strict=True)
    try:
        header = next((cells for cells in rows if "".join(cells).strip()), None)
        if header is None:
            raise WrongUsage(f"{path} is empty; expected a line with the names of columns.")
        if not columns.has_header:
            header = list(map(str, range(1, len(header) + 1)))
            rows = CsvRows(_lines(content), delimiter, quoting, strict=True)
        chosen = _pick(header, columns, str(path))
        known = columns_of(_lines(content), delimiter, header)
        rows.name_columns(header, columns.text, known)
        places = {name: header.index(column) for name, column in chosen.items()}
        return [_row_of(cells, header, places) for cells in rows]
    except csv.Error as error:
        raise csv.Error(f"line {rows.line}: {error}") from None
    finally:
        csv.field_size_limit(limit)


def _lines(content: str) -> Iterable[str]:
    # A text may hold line separators other than \n, so they stay as they are.
    return io.StringIO(content, newline="")


def _row_of(cells: Sequence[str], header: Sequence[str], places: Mapping[str, int]) -> LabeledRow:
    if len(cells) != len(header):
        return {REFUSED: "rows with more or fewer cells than the file has columns, left out"}
    if cells == header:
        return {REFUSED: "rows that repeat the names of the columns, left out"}
    return {name: cells[place] for name, place in places.items()}


def _read_json(path: Path, columns: Columns) -> list[LabeledRow]:
    """Read a JSON array of objects, or an object a line."""
    content = _decoded(path, columns.encoding)
    if content.lstrip().startswith("["):
        values = _array(content, path)
    else:
        values = _objects_of_lines(content, path)
    if not values:
        return []
    # A row may leave out what another has, so the columns are those of all rows together.
    names = list(dict.fromkeys(itertools.chain(*values)))
    chosen = _pick(names, columns, str(path))
    return [{name: row.get(column) for name, column in chosen.items()} for row in values]


def _array(content: str, path: Path) -> list[LabeledRow]:
    try:
        values: list[Any] = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CouldNotRun(f"{path} begins like a JSON array but is not one: {error}.") from None
    for number, value in enumerate(values, 1):
        if not isinstance(value, dict):
            raise CouldNotRun(
                f"each item of {path} must be an object; item {number} is {str(value)[:60]!r}."
            )
    return values


def _objects_of_lines(content: str, path: Path) -> list[LabeledRow]:
    values: list[LabeledRow] = []
    for number, line in enumerate(content.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CouldNotRun(
                f"line {number} of {path} is not JSON: {error}; expected an array with an object "
                "for each row, or an object a line."
            ) from None
        if not isinstance(value, dict):
            raise CouldNotRun(f"line {number} of {path} must be an object; got {line[:60]!r}.")
        values.append(value)
    return values


def _read_parquet(path: Path, columns: Columns) -> list[LabeledRow]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CouldNotRun(
            "a Parquet file needs pyarrow; install it with: pip install 'attnlab[text]'."
        ) from None
    try:
        names = pyarrow.parquet.read_schema(path).names
        chosen = _pick(names, columns, str(path))
        table = pyarrow.parquet.read_table(path, columns=list(chosen.values()))
    except pyarrow.ArrowException as error:
        raise CouldNotRun(f"{path} is not a Parquet file that can be read: {error}.") from None
    values = [map(_plain_value, table[column]) for column in chosen.values()]
    return [dict(zip(chosen, row, strict=True)) for row in zip(*values, strict=True)]


def _plain_value(value: Any) -> object:
    try:
        plain: object = value.as_py()
    except UnicodeDecodeError:  # Parquet does not check its text
        return value.as_buffer().to_pybytes()
    return plain


def _read_hub(name: str, columns: Columns) -> list[LabeledRow]:
    try:
        import datasets
    except ImportError:
        raise CouldNotRun(
            f"there is no file {name}; if it is a data set on the hub, the library datasets is "
            "needed: pip install datasets."
        ) from None
    try:
        splits = datasets.load_dataset(name)
    except Exception as error:  # the library raises errors of many kinds, all about the world
        words = str(error).splitlines()[0][:200]
        raise CouldNotRun(f"could not load {name} from the hub: {words}") from None
    rows: list[LabeledRow] = []
    known = list(itertools.chain(*SPLITS.values()))
    for split, table in splits.items():
        if split not in known:
            continue  # such as "unsupervised", whose labels are all missing
        chosen = _pick(table.column_names, columns, f"{name} ({split})")
        classes = getattr(table.features[chosen["label"]], "names", None)
        for text, label in zip(table[chosen["text"]], table[chosen["label"]], strict=True):
            if classes is not None and label is not None:  # -1: a label that is kept secret
                label = classes[label] if label >= 0 else None
            rows.append({"text": text, "label": label, "split": split})
    return rows


def _decoded(path: Path, encoding: str) -> str:
    try:
        with open_bytes(path) as file:
            content = file.read()
    except DAMAGED as error:
        raise CouldNotRun(f"{path} cannot be unpacked whole: {error}.") from None
    for start, what in _STARTS.items():
        if content.startswith(start):
            raise CouldNotRun(f"{path} is {what}")
    if encoding.lower() in ("utf-8", "utf8"):
        encoding = encoding_of(content) or encoding
    try:
        text = content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise CouldNotRun(
            f"{path} is not {encoding.upper()} (byte {error.start:,} is "
            f"0x{content[error.start]:02x}); save it as UTF-8, or name its own encoding, such as "
            "encoding=cp1252."
        ) from None
    if "\0" in text[:1_000]:
        raise CouldNotRun(
            f"{path} holds zero bytes, as UTF-16 does: say encoding=utf-16-le or utf-16-be, or "
            "save it as UTF-8."
        )
    return text


_READERS: dict[str, Callable[[Path, Columns], list[LabeledRow]]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".json": _read_json,
    ".parquet": _read_parquet,
}
_EXPECTED = f"data must be a file ending in {', '.join(_READERS)}"
