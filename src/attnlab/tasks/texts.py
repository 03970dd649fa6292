"""Labelled texts: read from a file or a hub, tidied, counted, and split so that no text is on both
sides.

A text is known by its clean form (lower case, single spaces): two rows with the same clean form are
the same text. Across a split texts are compared more strictly, by their letters and digits alone,
so that "Great film!" does not train a model that is judged on "great film". Everything that is left
out is counted, so that a report can say it.
"""

import csv
import io
import itertools
import json
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.tasks.tokenizers import clean

__all__ = [
    "Collection",
    "Columns",
    "LabelledText",
    "Split",
    "letters_of",
    "read_texts",
    "shared_texts",
    "split_by_row",
    "split_by_text",
    "split_given",
    "tidied",
]

_SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev", "development"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_MOST_CLASSES = 1_000


class LabelledText(NamedTuple):
    """One row: a text, its label, and the split its file puts it in (None where it says
    nothing)."""

    text: str
    label: str
    split: str | None = None


class Columns(NamedTuple):
    """Which columns hold what (the split's may be absent), and how a file of text is written.

    encoding: such as cp1252 · has_header: without one, the columns of a CSV or TSV are 1, 2, 3, … ·
    delimiter: what stands between cells; None for what the file's ending says.
    """

    text: str = "text"
    label: str = "label"
    split: str = "split"
    encoding: str = "utf-8"
    has_header: bool = True
    delimiter: str | None = None


class Collection(NamedTuple):
    """Rows that are fit for use, and what was counted on the way: (what, how many)."""

    rows: list[LabelledText]
    counts: list[tuple[str, int]]


class Split(NamedTuple):
    """Rows to learn from, rows to choose the best moment by, rows to judge by."""

    train: list[LabelledText]
    validation: list[LabelledText]
    test: list[LabelledText]


def read_texts(source: str, columns: Columns | None = None) -> list[dict[str, Any]]:
    """Read the rows of a CSV, TSV, JSONL or Parquet file, or of a data set on the Hugging Face hub.

    Returns:
        a mapping for each row, with the keys text, label and split, values as they came.

    Raises:
        WrongUsage: a column is missing, or the file is of no kind that can be read.
        CouldNotRun: the file is missing or damaged, or an optional library is not installed.
    """
    columns = columns or Columns()
    path = Path(source)
    kind = path.suffix.lower()
    if path.is_dir():
        raise WrongUsage(f"data must be a file with texts and labels; {source} is a folder.")
    if (
        not path.exists()
        and re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", source)
        and kind not in _READERS
    ):
        return _read_hub(source, columns)
    if not path.exists():
        raise CouldNotRun(f"there is no file {source}. A data set on the hub is named owner/name.")
    if columns.delimiter is not None:
        if kind in _READERS and kind not in (".csv", ".tsv"):
            raise WrongUsage(
                f"delimiter is for files of cells, such as CSV; {path.name} is none, leave it out."
            )
        kind = ".tsv" if columns.delimiter == "\t" else ".csv"
    if kind not in _READERS:
        raise WrongUsage(
            f"data must be a file ending in {', '.join(_READERS)}; got {path.name}. Of any other "
            "file of cells say what stands between them, such as delimiter=tab."
        )
    if not columns.has_header and kind not in (".csv", ".tsv"):
        raise WrongUsage(f"header=false is for CSV and TSV; {path.name} names its columns itself.")
    try:
        return _READERS[kind](path, columns)
    except OSError as error:
        raise CouldNotRun(f"could not read {path}: {error.strerror or error}.") from None


def letters_of(text: str) -> str:
    """Return a text's letters, marks and digits in one Unicode form and case, to compare texts by.

    A text that has none of them, such as ":)", is compared by its other characters.

    >>> letters_of("Great  film!") == letters_of("great film"), letters_of(":)")
    (True, ':)')
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return folded.translate(_LETTERS) or "".join(folded.split())


class _Letters(dict[int, int | None]):
    """What `str.translate` keeps, found out once for each character."""

    def __missing__(self, code: int) -> int | None:
        self[code] = code if unicodedata.category(chr(code))[0] in "LMN" else None
        return self[code]


_LETTERS = _Letters()
_DELIMITERS = {";": "';'", ",": "','", "|": "'|'", "\t": "tab"}  # how each is written as a setting


def tidied(raw: Iterable[Mapping[str, Any]]) -> Collection:
    """Turn raw rows into distinct texts with one label each, and count what was left out.

    A text that stands there twice with one label is kept once, in the first of the splits train,
    validation, test; one with two labels is left out. Of texts that are alike by `letters_of` in
    several splits, those in the first of them are kept. Where any row says its split, one that does
    not is left out. Labels become texts: 1.0 and 1 are the same, True is "true".

    Raises:
        WrongUsage: nothing is left, there is one class only, or the labels are no classes.
    """
    counts: Counter[str] = Counter()
    labels_of: defaultdict[str, set[str]] = defaultdict(set)
    first: dict[str, LabelledText] = {}
    raw = list(raw)
    has_split = any(_as_split(row.get("split")) is not None for row in raw)
    for row in raw:
        counts["rows read"] += 1
        label, split = _as_label(row.get("label")), _as_split(row.get("split"))
        if _is_missing(row.get("text")) or label is None or (has_split and split is None):
            counts["rows with a missing text, label or split, left out"] += 1
            continue
        # Half a surrogate pair, which JSON can hold, is no character and could not be written down.
        text = str(row["text"]).encode("utf-8", "replace").decode()
        key = clean(text)
        if not key:
            counts["empty texts, left out"] += 1
            continue
        labels_of[key].add(label)
        found = LabelledText(text, label, split)
        if key in first:
            counts["repeated texts, kept once"] += 1
            if split is not None and split != first[key].split:
                counts["of these repeated across the file's splits, kept in one"] += 1
                first[key] = min(found, first[key], key=_split_number)
            continue
        first[key] = found
    twofold = {key for key, labels in labels_of.items() if len(labels) > 1}
    rows = [row for key, row in first.items() if key not in twofold]
    if twofold:
        counts["texts with two labels, left out"] = len(twofold)
    rows = _in_earliest_split(rows, counts)
    counts["texts used"] = len(rows)
    classes = {row.label for row in rows}
    if len(classes) < 2:
        what = f"only the label {min(classes)!r}" if classes else "no text with a label"
        raise WrongUsage(
            f"a classifier needs texts of two classes or more; found {what} (rows read: "
            f"{counts['rows read']:,}, missing: "
            f"{counts['rows with a missing text, label or split, left out']:,}, empty: "
            f"{counts['empty texts, left out']:,}, with two labels: {len(twofold):,})."
        )
    if len(classes) > _MOST_CLASSES:
        raise WrongUsage(
            f"the labels must be classes, at most {_MOST_CLASSES:,}; found {len(classes):,} "
            "different ones."
        )
    return Collection(rows, list(counts.items()))


def _in_earliest_split(rows: list[LabelledText], counts: Counter[str]) -> list[LabelledText]:
    """Of texts that are alike by their letters, keep those in the first split; count the others."""
    alike: defaultdict[str, list[LabelledText]] = defaultdict(list)
    for each in rows:
        alike[letters_of(each.text)].append(each)
    if len(alike) < len(rows):
        counts["texts alike another but for punctuation or Unicode form"] = len(rows) - len(alike)
    earliest = {key: min(map(_split_number, group)) for key, group in alike.items()}
    kept = [each for each in rows if _split_number(each) == earliest[letters_of(each.text)]]
    if len(kept) < len(rows):
        counts["of these in a later one of the file's splits, left out"] = len(rows) - len(kept)
    return kept


def split_by_row(
    rows: Sequence[LabelledText], share: float, generator: torch.Generator
) -> tuple[list[LabelledText], list[LabelledText]]:
    """Hold out a share of the rows of each class, whatever their texts: repeated texts land on both
    sides."""
    return _stratified([[row] for row in rows], share, generator)


def split_by_text(
    rows: Sequence[LabelledText], share: float, generator: torch.Generator
) -> tuple[list[LabelledText], list[LabelledText]]:
    """Hold out a share of the distinct texts of each class, with all their rows: no text is on both
    sides.

    Texts are told apart by `letters_of`. A class with a single text keeps it in training.
    """
    groups: defaultdict[str, list[LabelledText]] = defaultdict(list)
    for row in rows:
        groups[letters_of(row.text)].append(row)
    return _stratified(list(groups.values()), share, generator)


def split_given(
    rows: Sequence[LabelledText], share: float, generator: torch.Generator
) -> tuple[Split, str]:
    """Split as the file says, as far as it does, and by distinct text where it does not.

    Returns:
        the split, and a sentence on where it came from.

    Raises:
        WrongUsage: a part would be empty.
    """
    parts: dict[str, list[LabelledText]] = {
        name: [row for row in rows if row.split == name] for name in _SPLITS
    }
    unnamed = [row for row in rows if row.split is None]
    names = [name for name, part in parts.items() if part]
    train, validation, test = parts["train"] + unnamed, parts["validation"], parts["test"]
    said = f"The file's own split was used ({', '.join(names)})." if names else ""
    if not train:
        train, validation, test, said = (
            list(rows),
            [],
            [],
            "The file names no training texts, so its split was not used.",
        )
    if not test and validation:
        test, validation = validation, []
        said += " It has no test texts, so its validation texts are the test."
    if not test:
        train, test = split_by_text(train, share / 2, generator)
        said += " The test texts were drawn by distinct text, class by class."
    if not validation:
        train, validation = split_by_text(train, share / 2, generator)
        said += " The validation texts were drawn by distinct text, class by class."
    split = Split(train, validation, test)
    empty = [name for name, part in zip(Split._fields, split, strict=True) if not part]
    if empty:
        raise WrongUsage(
            f"there are too few texts to split: {len(rows):,} leave none for "
            f"{' and '.join(empty)}. At least one class needs three different texts."
        )
    return split, said.strip()


def shared_texts(one: Iterable[LabelledText], other: Iterable[LabelledText]) -> int:
    """Count the distinct texts, told apart by `letters_of`, that are on both sides."""
    return len({letters_of(row.text) for row in one} & {letters_of(row.text) for row in other})


def _stratified(
    groups: Sequence[list[LabelledText]], share: float, generator: torch.Generator
) -> tuple[list[LabelledText], list[LabelledText]]:
    by_label: defaultdict[str, list[int]] = defaultdict(list)
    for number, group in enumerate(groups):
        by_label[group[0].label].append(number)
    held: set[int] = set()
    for label in sorted(by_label):
        numbers = by_label[label]
        num_held = min(max(1, round(share * len(numbers))), len(numbers) - 1)
        order = torch.randperm(len(numbers), generator=generator).tolist()
        held.update(numbers[place] for place in order[:num_held])
    kept_rows = [row for number, group in enumerate(groups) if number not in held for row in group]
    return kept_rows, [row for number in sorted(held) for row in groups[number]]


def _split_number(row: LabelledText) -> int:
    """Return a row's split as a number; rows without a split all have the same."""
    return 0 if row.split is None else list(_SPLITS).index(row.split)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _as_label(value: Any) -> str | None:
    if _is_missing(value):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip() or None


def _as_split(value: Any) -> str | None:
    """Return the split's usual name; None where it is missing."""
    word = "" if _is_missing(value) else str(value).strip().lower()
    if not word:
        return None
    for name, spellings in _SPLITS.items():
        if word in spellings:
            return name
    known = [word for spellings in _SPLITS.values() for word in spellings]
    raise WrongUsage(
        f"the column of splits holds {word[:40]!r} (choose it with split=COLUMN); "
        f"{did_you_mean(word, known)}"
    )


def _other_delimiter(wanted: str, names: Sequence[str]) -> str:
    """Say which delimiter would split a single column into several with this name; "" for none."""
    for mark, spelling in _DELIMITERS.items():
        if len(names) == 1 and wanted in names[0].split(mark):
            return f"its columns are separated by {mark!r}: say delimiter={spelling}."
    return ""


def _pick(names: Sequence[str], columns: Columns, where: str) -> dict[str, str]:
    """Say which of a file's columns holds what; the split's is left out where there is none."""
    for wanted, setting in ((columns.text, "text"), (columns.label, "label")):
        if wanted not in names:
            raise WrongUsage(
                f"{where} has no column {wanted!r} (set with {setting}=COLUMN); "
                f"{_other_delimiter(wanted, names) or did_you_mean(wanted, names)}"
            )
    chosen = {"text": columns.text, "label": columns.label}
    return chosen | ({"split": columns.split} if columns.split in names else {})


def _read_csv(path: Path, columns: Columns) -> list[dict[str, Any]]:
    try:
        return _read_cells(path, columns, delimiter=columns.delimiter or ",")
    except csv.Error as error:
        raise CouldNotRun(
            f"{path} is not clean CSV, {error}. Put each text that holds a comma or a quote into "
            "quotes, with every quote inside it written twice, or save the file as TSV, where "
            "quotes may stand alone."
        ) from None


def _read_tsv(path: Path, columns: Columns) -> list[dict[str, Any]]:
    try:
        return _read_cells(path, columns, delimiter="\t")
    except csv.Error:  # many a TSV knows no quoting: there a quote is a character like any other
        pass
    try:
        return _read_cells(path, columns, delimiter="\t", quoting=csv.QUOTE_NONE)
    except csv.Error as error:
        raise CouldNotRun(f"{path} is not clean TSV, {error}.") from None


def _read_cells(
    path: Path, columns: Columns, *, delimiter: str, quoting: Literal[0, 3] = csv.QUOTE_MINIMAL
) -> list[dict[str, Any]]:
    # A text may hold line separators other than \n, so the csv module sees the characters as they
    # are.
    stream = io.StringIO(_decoded(path, columns.encoding), newline="")
    limit = csv.field_size_limit(2**31 - 1)
    try:
        reader = csv.reader(stream, delimiter=delimiter, quoting=quoting, strict=True)
        first = next(reader, [])
        if not first:
            raise WrongUsage(
                f"{path} is empty; expected a first line with the names of the columns."
            )
        header = (
            first if columns.has_header else [str(number) for number in range(1, len(first) + 1)]
        )
        places = {
            name: header.index(column) for name, column in _pick(header, columns, str(path)).items()
        }
        rows = []
        for cells in reader if columns.has_header else itertools.chain([first], reader):
            if cells:  # a row that is not as long as the header is broken: its values are missing
                whole = len(cells) == len(header)
                rows.append(
                    {name: cells[place] if whole else None for name, place in places.items()}
                )
        return rows
    except csv.Error as error:
        raise csv.Error(f"line {reader.line_num}: {error}") from None
    finally:
        csv.field_size_limit(limit)


def _read_jsonl(path: Path, columns: Columns) -> list[dict[str, Any]]:
    values: list[dict[str, Any]] = []
    for number, line in enumerate(_decoded(path, columns.encoding).split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CouldNotRun(f"line {number} of {path} is not JSON: {error}.") from None
        if not isinstance(value, dict):
            raise CouldNotRun(
                f"line {number} of {path} must be an object with texts and labels; got "
                f"{line[:60]!r}."
            )
        values.append(value)
    if not values:
        return []
    # A line may leave out what another has, so the columns are those of all lines together.
    chosen = _pick(
        list(dict.fromkeys(name for value in values for name in value)), columns, str(path)
    )
    return [{name: value.get(column) for name, column in chosen.items()} for value in values]


def _read_parquet(path: Path, columns: Columns) -> list[dict[str, Any]]:
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
        table = pyarrow.parquet.read_table(path, columns=list(chosen.values())).to_pydict()
    except pyarrow.ArrowException as error:
        raise CouldNotRun(f"{path} is not a Parquet file that can be read: {error}.") from None
    return [
        dict(zip(chosen, values, strict=True))
        for values in zip(*(table[c] for c in chosen.values()), strict=True)
    ]


def _read_hub(name: str, columns: Columns) -> list[dict[str, Any]]:
    try:
        import datasets
    except ImportError:
        raise CouldNotRun(
            f"there is no file {name}; if it is a data set on the hub, the library datasets is "
            "needed: pip install datasets."
        ) from None
    try:
        found = datasets.load_dataset(name)
    except (
        Exception
    ) as error:  # the library raises errors of many kinds, all of them about the world
        raise CouldNotRun(
            f"could not load {name} from the hub: {str(error).splitlines()[0][:200]}"
        ) from None
    rows = []
    known = [word for spellings in _SPLITS.values() for word in spellings]
    for split, table in found.items():
        if split not in known:
            continue  # such as "unsupervised", whose labels are all missing
        chosen = _pick(table.column_names, columns, f"{name} ({split})")
        classes = getattr(table.features[chosen["label"]], "names", None)
        for text, label in zip(table[chosen["text"]], table[chosen["label"]], strict=True):
            if classes is not None and label is not None:
                # -1 stands for a label that is kept secret
                label = classes[label] if label >= 0 else None
            rows.append({"text": text, "label": label, "split": split})
    return rows


def _decoded(path: Path, encoding: str) -> str:
    content = path.read_bytes()
    try:
        return content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise CouldNotRun(
            f"{path} is not {encoding.upper()} (byte {error.start:,} is "
            f"0x{content[error.start]:02x}); save it as UTF-8, or name its own encoding, such as "
            "encoding=cp1252."
        ) from None


_READERS: dict[str, Callable[[Path, Columns], list[dict[str, Any]]]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".parquet": _read_parquet,
}
