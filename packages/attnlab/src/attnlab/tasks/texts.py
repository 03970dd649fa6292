"""Labelled texts: tidied, counted, and split so that no text is on both sides.

`labeled_files.py` reads them from a file or a hub.

A text is known by its clean form (lower case, single spaces): two rows with the same clean form are
the same text. Across a split texts are compared more strictly, by their letters and digits alone:
a model that was trained on "Great film!" is not evaluated on "great film". Rows that are left out
are counted, so that a report can say how many.
"""

import itertools
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from attnlab.errors import WrongUsage, did_you_mean, type_words
from attnlab.tasks.tokenizers import clean

SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev", "development"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_MAX_CLASSES = 1_000
_WHOLE = re.compile(r"[+-]?\d+\.0*|[+-]\d+")


@dataclass(frozen=True)
class LabeledText:
    """One row: a text, its label, and the split its file puts it in (None where it says
    nothing)."""

    text: str
    label: str
    split: str | None = None


@dataclass(frozen=True)
class Collection:
    """Rows that are fit for use, and the counts made on the way: (description, number)."""

    rows: list[LabeledText]
    counts: list[tuple[str, int]]


class TextSplit(NamedTuple):
    """Rows for training, for validation and for test."""

    train: list[LabeledText]
    validation: list[LabeledText]
    test: list[LabeledText]


def letters_of(text: str) -> str:
    """Return a text's letters, marks and digits in one Unicode form and case, to compare texts by.

    A text that has none of them, such as ":)", is compared by its other characters.

    >>> letters_of("Great  film!") == letters_of("great film"), letters_of(":)")
    (True, ':)')
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return folded.translate(_LETTERS) or "".join(folded.split())


class _Letters(dict[int, int | None]):
    """The table of `str.translate`, filled once for each character."""

    def __missing__(self, code: int) -> int | None:
        self[code] = code if unicodedata.category(chr(code))[0] in "LMN" else None
        return self[code]


_LETTERS = _Letters()

REFUSED = "refused"
"""The key of a row that could not be read; its value says why, as a count is called."""

_READ = "rows read"
_MISSING = "rows with a missing text, label or split, left out"
_EMPTY = "empty texts, left out"
_REPEATED = "repeated texts, kept once"
_TWOFOLD = "texts with two labels, left out"
_NOT_UTF8 = "rows that are not UTF-8, left out"
_ACROSS = "of these repeated across the file's splits, kept in one"


def tidied(raw: Iterable[Mapping[str, object]]) -> Collection:
    """Turn raw rows into distinct texts with one label each, and count the rows left out.

    A text that stands there twice with one label is kept once, in the first of the splits train,
    validation, test; one with two labels is left out. Of texts that are alike by `letters_of` in
    several splits, those in the first of them are kept. Where any row says its split, one that does
    not is left out. Labels become texts: 1.0 and 1 are the same, in a file of text too, and so are
    labels alike but for case, blanks, marks that cannot be seen or Unicode form (True, true); the
    commonest spelling stands.

    Raises:
        WrongUsage: nothing is left, there is one class only, or the labels are no classes.
    """
    counts: Counter[str] = Counter()
    rows = _in_earliest_split(_distinct(list(raw), counts), counts)
    counts["texts used"] = len(rows)
    classes = {row.label for row in rows}
    if len(classes) < 2:
        what = f"only the label {min(classes)!r}" if classes else "no text with a label"
        facts = "; ".join(f"{name}: {count:,}" for name, count in counts.items())
        raise WrongUsage(
            f"a classifier needs texts of two classes or more; found {what} ({facts})."
        )
    if len(classes) > _MAX_CLASSES:
        raise WrongUsage(
            f"the labels must be classes, at most {_MAX_CLASSES:,}; found {len(classes):,} "
            "different ones."
        )
    return Collection(rows, list(counts.items()))


def _distinct(raw: Sequence[Mapping[str, object]], counts: Counter[str]) -> list[LabeledText]:
    """Return each text once, in the first of its splits, if it has one label."""
    labels_of: defaultdict[str, set[str]] = defaultdict(set)
    first: dict[str, LabeledText] = {}
    for text_row in _read(raw, counts):
        key = clean(text_row.text)
        if not key:
            counts[_EMPTY] += 1
            continue
        labels_of[key].add(text_row.label)
        before = first.setdefault(key, text_row)
        if before is not text_row:
            counts[_REPEATED] += 1
            if text_row.split is not None and text_row.split != before.split:
                counts[_ACROSS] += 1
                first[key] = min(text_row, before, key=_split_number)
    rows = [row for key, row in first.items() if len(labels_of[key]) == 1]
    if len(rows) < len(first):
        counts[_TWOFOLD] = len(first) - len(rows)
    return rows


def _read(raw: Sequence[Mapping[str, object]], counts: Counter[str]) -> Iterator[LabeledText]:
    """Yield the rows that have a text, a label and, where any row has one, a split."""
    counts[_READ] = len(raw)
    rows = list(_legible(raw, counts))
    splits = [_as_split(row.get("split")) for row in rows]
    labels = _one_spelling([_as_label(row.get("label")) for row in rows], counts)
    has_split = any(splits)
    for row, label, split in zip(rows, labels, splits, strict=True):
        if _is_missing(row.get("text")) or label is None or (has_split and split is None):
            counts[_MISSING] += 1
            continue
        # Half a surrogate pair, which JSON can hold, is no character and could not be written down.
        yield LabeledText(str(row["text"]).encode("utf-8", "replace").decode(), label, split)


def _legible(
    raw: Sequence[Mapping[str, object]], counts: Counter[str]
) -> Iterator[dict[str, object]]:
    """Yield the rows that were read, bytes as UTF-8; count the others."""
    for number, row in enumerate(raw, 1):
        if REFUSED in row:
            counts[str(row[REFUSED])] += 1
            continue
        try:
            values = {name: _plain(value, name, number) for name, value in row.items()}
        except UnicodeDecodeError:
            counts[_NOT_UTF8] += 1
            continue
        yield values


def _plain(value: object, name: str, number: int) -> object:
    """Return a value that can be a text, a label or a split; bytes are read as UTF-8."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        raise WrongUsage(
            f"each {name} must be a word or a number; row {number:,} holds "
            f"{type_words(value)}, {str(value)[:60]}. Choose another column, or write one {name} "
            "for each row."
        )
    return value


def _one_spelling(labels: Sequence[str | None], counts: Counter[str]) -> list[str | None]:
    """Write labels that are alike but for case, blanks, marks that cannot be seen or Unicode form
    in their commonest form."""
    spellings: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for label in filter(None, labels):
        spellings[_folded(label)][label] += 1
    chosen = {}
    for folded, forms in spellings.items():
        chosen[folded] = max(sorted(forms), key=forms.__getitem__)
        if len(forms) > 1:
            others = ", ".join(form for form in sorted(forms) if form != chosen[folded])
            what = f"labels written {others}, taken as {chosen[folded]}"
            counts[what] = forms.total() - forms[chosen[folded]]
    return [chosen[_folded(label)] if label else None for label in labels]


def _folded(label: str) -> str:
    seen = "".join(letter for letter in label if unicodedata.category(letter) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", seen).casefold().split())


def _in_earliest_split(rows: list[LabeledText], counts: Counter[str]) -> list[LabeledText]:
    """Keep texts that are alike by their letters in the first split; count the others."""
    earliest: dict[str, int] = {}
    for row in rows:
        key, number = letters_of(row.text), _split_number(row)
        earliest[key] = min(number, earliest.get(key, number))
    if len(earliest) < len(rows):
        alike = len(rows) - len(earliest)
        counts["texts alike another but for punctuation or Unicode form"] = alike
    kept = [row for row in rows if _split_number(row) == earliest[letters_of(row.text)]]
    if len(kept) < len(rows):
        counts["of these in a later one of the file's splits, left out"] = len(rows) - len(kept)
    return kept


def split_by_row(
    rows: Sequence[LabeledText], share: float, generator: torch.Generator
) -> tuple[list[LabeledText], list[LabeledText]]:
    """Hold out a share of the rows of each class, whatever their texts: repeated texts land on both
    sides."""
    return _stratified([[row] for row in rows], share, generator)


def split_by_text(
    rows: Sequence[LabeledText], share: float, generator: torch.Generator
) -> tuple[list[LabeledText], list[LabeledText]]:
    """Hold out a share of the distinct texts of each class, with all their rows: no text is on both
    sides.

    Texts are told apart by `letters_of`. A class with a single text keeps it in training.
    """
    groups: defaultdict[str, list[LabeledText]] = defaultdict(list)
    for row in rows:
        groups[letters_of(row.text)].append(row)
    return _stratified(list(groups.values()), share, generator)


def split_by_file(
    rows: Sequence[LabeledText], share: float, generator: torch.Generator
) -> tuple[TextSplit, str]:
    """Split as the file says, as far as it does, and by distinct text where it does not.

    Returns:
        the split, and a sentence on where it came from.

    Raises:
        WrongUsage: a part would be empty.
    """
    parts: defaultdict[str | None, list[LabeledText]] = defaultdict(list)
    for row in rows:
        parts[row.split].append(row)
    said = []
    names = ", ".join(filter(parts.__contains__, SPLITS))
    if names:
        said.append(f"The file's own split was used ({names}).")
    train, validation, test = parts["train"] + parts[None], parts["validation"], parts["test"]
    if not train:
        train, validation, test = list(rows), [], []
        said = ["The file names no training texts, so its split was not used."]
    if not test and validation:
        test, validation = validation, []
        said.append("It has no test texts, so its validation texts are the test.")
    if not test:
        train, test = split_by_text(train, share / 2, generator)
        said.append("The test texts were drawn by distinct text, class by class.")
    if not validation:
        train, validation = split_by_text(train, share / 2, generator)
        said.append("The validation texts were drawn by distinct text, class by class.")
    split = TextSplit(train, validation, test)
    empty = [name for name, part in zip(TextSplit._fields, split, strict=True) if not part]
    if empty:
        raise WrongUsage(
            f"there are too few texts to split: {len(rows):,} leave none for "
            f"{' and '.join(empty)}. At least one class needs three different texts."
        )
    return split, " ".join(said)


def shared_texts(one: Iterable[LabeledText], other: Iterable[LabeledText]) -> int:
    """Count the distinct texts, by `letters_of`, that are on both sides."""
    return len({letters_of(row.text) for row in one} & {letters_of(row.text) for row in other})


def _stratified(
    groups: Sequence[list[LabeledText]], share: float, generator: torch.Generator
) -> tuple[list[LabeledText], list[LabeledText]]:
    by_label: defaultdict[str, list[int]] = defaultdict(list)
    for number, group in enumerate(groups):
        by_label[group[0].label].append(number)
    shuffled = []
    for _, numbers in sorted(by_label.items()):
        order = torch.randperm(len(numbers), generator=generator).tolist()
        shuffled.append([numbers[place] for place in order])
    sizes = _held_of_each(list(map(len, shuffled)), share, generator)
    held: set[int] = set()
    for numbers, num_held in zip(shuffled, sizes, strict=True):
        held.update(numbers[:num_held])
    sides: tuple[list[LabeledText], list[LabeledText]] = ([], [])
    for number, group in enumerate(groups):
        sides[number in held].extend(group)
    return sides


def _held_of_each(sizes: Sequence[int], share: float, generator: torch.Generator) -> list[int]:
    """Return how many of each class are held out: its share, rounded so that all together are the
    share of all; a class keeps at least one."""
    held = [min(int(share * size), size - 1) for size in sizes]
    missing = max(1, round(share * sum(sizes))) - sum(held)
    luck = torch.randperm(len(sizes), generator=generator).tolist()
    by_rest = sorted(range(len(sizes)), key=lambda at: (held[at] - share * sizes[at], luck[at]))
    for at in [at for at in by_rest if held[at] < sizes[at] - 1][:missing]:
        held[at] += 1
    return held


def _split_number(row: LabeledText) -> int:
    """Return a row's split as a number; rows without a split all have the same."""
    return 0 if row.split is None else list(SPLITS).index(row.split)


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _as_label(value: object) -> str | None:
    if _is_missing(value):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    word = " ".join(str(value).split())
    if _WHOLE.fullmatch(word):  # as a column of numbers with gaps is written, or +1 beside -1
        word = str(int(word.partition(".")[0]))
    return word or None


def _as_split(value: object) -> str | None:
    """Return the split's usual name; None where it is missing."""
    word = str(value).strip().lower()
    if _is_missing(value) or not word:
        return None
    for name, spellings in SPLITS.items():
        if word in spellings:
            return name
    known = list(itertools.chain(*SPLITS.values()))
    raise WrongUsage(
        f"the column of splits holds {word[:40]!r} (choose it with split=COLUMN); "
        f"{did_you_mean(word, known)}"
    )
