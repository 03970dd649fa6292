import bz2
import gzip
import json
import lzma
import re
import sys
from types import SimpleNamespace

import pytest
import torch

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.corpus.text_rows import rows_of as corpus_rows
from attnlab.tasks.labeled_files import Columns, read_labeled_texts
from attnlab.tasks.texts import (
    LabeledText,
    shared_texts,
    split_by_file,
    split_by_row,
    split_by_text,
    tidied,
)
from attnlab.tasks.verdicts import VERDICTS


def generator():
    return torch.Generator().manual_seed(0)


def rows_of(*pairs):
    return [{"text": text, "label": label} for text, label in pairs]


def labelled(number, label="a"):
    return [LabeledText(f"{label} {index}", label) for index in range(number)]


def counts_of(raw):
    return dict(tidied(raw).counts)


FILES = {
    "separators inside a text": (
        *("t.csv", 'text,label\n"one\u2028line, ""so""\x1e\nto say",good\nplain,bad\n'.encode()),
        ['one\u2028line, "so"\x1e\nto say', "plain"],
    ),
    "a byte order mark": ("t.csv", b"\xef\xbb\xbftext,label\r\nwarm,good\r\n", ["warm"]),
    "UTF-8 by its mark": ("t.tsv", "text\tlabel\ncafé\tgood\n".encode("utf-8-sig"), ["café"]),
    "UTF-16 by its mark": ("t.tsv", "text\tlabel\ncafé\tgood\n".encode("utf-16"), ["café"]),
    "UTF-32 by its mark": ("t.tsv", "text\tlabel\ncafé\tgood\n".encode("utf-32"), ["café"]),
    "a lone quote in a TSV": (
        *("t.tsv", b'text\tlabel\n" lone quote\ta\n"so-called" comedy\tb\n'),
        ['" lone quote', '"so-called" comedy'],
    ),
    "a long text": ("t.csv", b"text,label\n" + b"word " * 50_000 + b",good\n", ["word " * 50_000]),
}


@pytest.mark.parametrize(("name", "content", "texts"), FILES.values(), ids=FILES)
def test_texts_are_read_as_they_are_written(name, content, texts, tmp_path):
    (tmp_path / name).write_bytes(content)
    rows = read_labeled_texts(str(tmp_path / name))
    assert [row["text"] for row in rows] == texts
    assert {row["label"] for row in rows} <= {"good", "bad", "a", "b"}


def write(path, kind):
    values = [
        {"text": "warm", "label": "good", "split": "train"},
        {"text": "cold", "label": "bad", "split": "test"},
    ]
    file = path / f"t.{kind}"
    if kind == "jsonl":
        file.write_text("\n".join(json.dumps(value) for value in values) + "\n\n")
    elif kind == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        pyarrow = pytest.importorskip("pyarrow")
        parquet.write_table(pyarrow.Table.from_pylist(values), file)
    else:
        comma = "," if kind == "csv" else "\t"
        lines = [values[0], *(each.values() for each in values)]
        file.write_text("\n".join(map(comma.join, lines)) + "\n")
    return str(file), values


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_every_kind_of_file_gives_the_same_rows_or_a_suggestion_for_a_column(kind, tmp_path):
    file, values = write(tmp_path, kind)
    assert read_labeled_texts(file) == values
    with pytest.raises(WrongUsage, match=r"no column 'txt' .*; did you mean 'text'"):
        read_labeled_texts(file, Columns(text="txt"))


def test_what_is_left_out_is_counted():
    raw = rows_of(
        *(("one", "a"), ("One ", "a"), ("two", "a"), ("two", "b"), (" ", "a"), (None, "a")),
        *(("x", None), ("y", ""), ("z", float("nan")), ("last", "b")),
    )
    assert counts_of(raw) == {
        "rows read": 10,
        "repeated texts, kept once": 2,
        "texts with two labels, left out": 1,
        "empty texts, left out": 1,
        "rows with a missing text, label or split, left out": 4,
        "texts used": 2,
    }


def test_a_row_without_a_split_is_left_out_where_others_have_one():
    raw = [
        {"text": "one", "label": "a", "split": "train"},
        {"text": "two", "label": "b", "split": None},
        {"text": "three", "label": "b", "split": ""},
        {"text": "four", "label": "b", "split": float("nan")},
        {"text": "five", "label": "b", "split": "test"},
    ]
    kept = tidied(raw)
    assert [row.text for row in kept.rows] == ["one", "five"]
    assert dict(kept.counts)["rows with a missing text, label or split, left out"] == 3


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        *(("Great film!", other, 1) for other in ("great  film", "GREAT film…", "\uff27reat film")),
        *(("Cafe\u0301.", "caf\u00e9", 1), ("zerowidth", "zero\u200bwidth", 1)),
        *(("straße", "STRASSE", 1), (" :)", ":)", 1), (":)", ":(", 0), ("film 1", "film 2", 0)),
        ("\u0915\u093f", "\u0915\u0940", 0),
    ],
)
def test_texts_alike_but_for_punctuation_case_or_unicode_form_are_one_text(one, other, shared):
    assert shared_texts([LabeledText(one, "x")], [LabeledText(other, "x")]) == shared


def test_texts_alike_are_drawn_to_one_side_in_the_shares_of_the_labels():
    rows = [
        LabeledText(f"film {number}{end}", "ab"[number % 2])
        for number in range(40)
        for end in ("", "!", "?")
    ]
    train, held = split_by_text(rows, 0.2, generator())
    assert shared_texts(train, held) == 0
    assert len(held) == 24
    assert sum(row.label == "a" for row in held) == 12


def test_texts_alike_in_several_of_the_files_splits_stay_in_the_first_and_are_counted():
    raw = [
        {"text": text, "label": label, "split": split}
        for text, label, split in [
            ("Great film!", "a", "test"), ("great film", "a", "train"), ("great film.", "b", "dev"),
            ("great, film", "a", "train"), ("other", "b", "test"),
        ]
    ]  # fmt: skip
    kept = tidied(raw)
    assert [row.text for row in kept.rows] == ["great film", "great, film", "other"]
    counts = dict(kept.counts)
    assert counts["texts alike another but for punctuation or Unicode form"] == 3
    assert counts["of these in a later one of the file's splits, left out"] == 2
    assert counts["texts used"] == 3


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ([], "no text with a label"),
        (rows_of(("one", "a")), "only the label 'a'"),
        (rows_of(("one", "a"), ("one", "b")), "with two labels, left out: 1"),
        (rows_of(*((f"t{number}", number) for number in range(1_001))), "found 1,001"),
        ([{"text": "a", "label": "b", "split": "tset"}], "holds 'tset' .*did you mean 'test'"),
    ],
)
def test_texts_that_teach_no_classes_are_refused(raw, words):
    with pytest.raises(WrongUsage, match=words):
        tidied(raw)


@pytest.mark.parametrize(
    ("name", "content", "error", "words"),
    [
        ("t.csv", b"", WrongUsage, "is empty"),
        ("t.csv", b"text,label\ncaf\xe9,good\n", CouldNotRun, "is not UTF-8 .byte 14 is 0xe9"),
        ("t.csv", b'text,label\n"never closed,good\n', CouldNotRun, "is not valid CSV, line 2:"),
        ("t.jsonl", b'{"text": "a", "label": 1}\nnonsense\n', CouldNotRun, "line 2 of .* is not"),
        ("t.jsonl", b"[1]\n", CouldNotRun, "each item of .* must be an object; item 1 is '1'"),
        ("t.json", b'[{"text": 1},', CouldNotRun, "begins like a JSON array but is not one"),
        ("t.json", b'{\n"text": ["a"]\n}', CouldNotRun, "is not JSON: .*; expected an array"),
        ("t.csv.gz", b"text,label\n", CouldNotRun, "cannot be unpacked"),
        (
            "t.csv",
            gzip.compress(b"text,label\n", mtime=0),
            CouldNotRun,
            "compressed with gzip: let its name",
        ),
        ("t.csv", b"PK\3\4[Content_Types].xml", CouldNotRun, "is an archive or a workbook: unpack"),
        ("t.csv", b"\xd0\xcf\x11\xe0\xa1\xb1", CouldNotRun, "is a workbook: save its sheet as CSV"),
        ("t.json", b"PAR1", CouldNotRun, "is a Parquet file: let its name end in .parquet"),
        ("t.csv", "text,label\n".encode("utf-16-le"), CouldNotRun, "say encoding=utf-16-le"),
        ("t.csv", b"text,label,text\na,b,c\n", WrongUsage, "has several columns 'text'"),
        ("t.parquet.gz", b"", WrongUsage, "compressed Parquet file: unpack it"),
        ("t.zip", b"", WrongUsage, "This is an archive: unpack it"),
        ("t.xlsx", b"", WrongUsage, "This is a workbook: save its sheet as CSV"),
        ("t.parquet", b"no parquet", CouldNotRun, "is not a Parquet file"),
    ],
)
def test_files_that_cannot_be_read_say_why(name, content, error, words, tmp_path):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(error, match=words):
        read_labeled_texts(str(file))


WEATHER = [
    (f"the {hour} was {first} and {second}", label)
    for label, words in {"dry": ["warm", "clear"], "wet": ["grey", "cold"]}.items()
    for hour in ("morning", "noon", "evening")
    for first in words
    for second in words
]


def as_cells(rows, mark, quoted=()):
    """Write rows as lines, with a stray quotation mark before or after some texts."""
    before, after = (*quoted, None, None)[:2]
    texts = [
        '"' * (number == before) + text + '"' * (number == after)
        for number, (text, _) in enumerate(rows)
    ]
    return [f"{text}{mark}{label}" for text, (_, label) in zip(texts, rows, strict=True)]


@pytest.mark.parametrize(("kind", "mark"), [("csv", ","), ("tsv", "\t")])
@pytest.mark.parametrize("has_header", [True, False])
@pytest.mark.parametrize("quoted", [(3, 17), (7,), (0, 23)])
def test_stray_quotation_marks_hide_no_row(kind, mark, has_header, quoted, tmp_path):
    head = [f"text{mark}label"] if has_header else []
    file = tmp_path / f"t.{kind}"
    file.write_text("\n".join(head + as_cells(WEATHER, mark, quoted)) + "\n")
    columns = Columns() if has_header else Columns("1", "2", has_header=False)
    found = read_labeled_texts(str(file), columns)
    assert [row["text"].strip('"') for row in found] == [text for text, _ in WEATHER]
    assert [row["label"] for row in found] == [label for _, label in WEATHER]


@pytest.mark.parametrize("other", ["u{}x", "2026-01-{}T10", "{:.2f}"], ids=["id", "date", "number"])
def test_stray_quotation_marks_hide_no_row_beside_values_that_are_all_different(other, tmp_path):
    lines = as_cells(WEATHER, ",", (3, 17))
    file = tmp_path / "t.csv"
    rows = [f"{other.format(number)},{line}" for number, line in enumerate(lines)]
    file.write_text("\n".join(["other,text,label", *rows]))
    assert [row["label"] for row in read_labeled_texts(str(file))] == [
        label for _, label in WEATHER
    ]
    assert len(list(corpus_rows(file))) == len(WEATHER)


def test_no_byte_order_mark_between_joined_files_makes_a_class(tmp_path):
    file = tmp_path / "t.csv"
    part = "\ufeff" + "\n".join(["text,label", *as_cells(WEATHER, ",")]) + "\n"
    file.write_text(part + part)
    found = tidied(read_labeled_texts(str(file)))
    assert {row.label for row in found.rows} == {"dry", "wet"}
    assert ("rows that repeat the names of the columns, left out", 1) in found.counts
    assert [row.text for row in corpus_rows(file)][:1] == [WEATHER[0][0]]


@pytest.mark.parametrize("is_label_first", [False, True])
def test_a_stray_quotation_mark_makes_no_class_of_its_own(is_label_first, tmp_path):
    rows = [["text", "label"], *([f"a day {place}", "ab"[place % 2]] for place in range(12))]
    rows[7][0] += '" x'
    cells = (reversed(row) if is_label_first else row for row in rows)
    file = tmp_path / "quoted.csv"
    file.write_text("".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in cells))
    assert [row["label"] for row in read_labeled_texts(str(file))] == [*"abababababab"]


@pytest.mark.parametrize("ending", ["", ",\nand so on"])
def test_poems_of_several_lines_stay_whole(ending, tmp_path):
    poems = [f"Roses {n} are red,\nviolets, too{ending}" for n in range(9)]
    file = tmp_path / "t.csv"
    quoted = [f'"{poem}",dry' for poem in poems]
    file.write_text("\n".join(["text,label", *as_cells(WEATHER, ","), *quoted]) + "\n")
    assert [row["text"] for row in read_labeled_texts(str(file))][len(WEATHER) :] == poems


def test_rows_read_and_rows_refused_are_the_rows_of_the_file(tmp_path):
    lines = as_cells(WEATHER, ",", (3, 17))
    lines[9] += ",,"  # empty cells beyond the last column are no cells
    lines[10] += ",more"
    lines[11] = "text,label"  # a file that was joined from two
    lines[12] = "only a text"
    (tmp_path / "t.csv").write_text("\n\n   \n" + "\n".join(["text,label", *lines]) + "\n")
    assert counts_of(read_labeled_texts(str(tmp_path / "t.csv"))) == {
        "rows read": 24,
        "rows with more or fewer cells than the file has columns, left out": 2,
        "rows that repeat the names of the columns, left out": 1,
        "texts used": 21,
    }


PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.mark.parametrize("ending", PACKERS)
def test_a_compressed_file_is_read_and_a_damaged_one_refused(ending, tmp_path):
    packed = PACKERS[ending]("\n".join(["text,label", *as_cells(WEATHER, ",")]).encode())
    file = tmp_path / f"t.csv{ending}"
    file.write_bytes(packed)
    assert len(read_labeled_texts(str(file))) == 24
    file.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(CouldNotRun, match=f"t.csv{ending} cannot be unpacked"):
        read_labeled_texts(str(file))


@pytest.mark.parametrize("name", ["t.json", "t.jsonl"])
def test_a_json_array_or_lines_are_read_as_their_objects(name, tmp_path):
    rows = [{"text": "warm", "label": "good"}, {"text": "cold", "label": None, "split": "test"}]
    for text in (json.dumps(rows, indent=1), "\n".join(map(json.dumps, rows))):
        (tmp_path / name).write_text(text)
        assert read_labeled_texts(str(tmp_path / name)) == [{"split": None, **row} for row in rows]


def test_bytes_of_parquet_are_read_as_utf8_and_others_counted(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = {"text": [b"warm", b"caf\xe9", "caf\u00e9".encode()], "label": [b"a", b"a", b"b"]}
    parquet.write_table(pyarrow.table(table), tmp_path / "t.parquet")
    kept = tidied(read_labeled_texts(str(tmp_path / "t.parquet")))
    assert [(row.text, row.label) for row in kept.rows] == [("warm", "a"), ("café", "b")]
    assert dict(kept.counts)["rows that are not UTF-8, left out"] == 1
    ends = pyarrow.array([0, 2, 4], pyarrow.int32()).buffers()[1]
    broken = pyarrow.py_buffer(b"ok\xff\xfe")
    text = pyarrow.Array.from_buffers(pyarrow.string(), 2, [None, ends, broken])
    parquet.write_table(pyarrow.table({"text": text, "label": [1, 2]}), tmp_path / "t.parquet")
    assert read_labeled_texts(str(tmp_path / "t.parquet"))[1] == {"text": b"\xff\xfe", "label": 2}


@pytest.mark.parametrize("value", [[0, 1], {"a": 1}, (1,)])
@pytest.mark.parametrize("column", ["text", "label", "split"])
def test_a_container_is_no_text_no_label_and_no_split(value, column):
    rows = [{"text": "one", "label": "a", "split": "train"}, {"text": "two", "label": "b"}]
    rows[1] |= {"split": "test"} | {column: value}
    with pytest.raises(WrongUsage, match=f"each {column} must be a word or a number; row 2 holds"):
        tidied(rows)


@pytest.mark.parametrize(
    ("labels", "chosen"),
    [
        (["1", "1.0", "1."], "1"),
        ([1, "1.0", 1.0], "1"),
        (["0", "-0", "+0.0"], "0"),
        (["good", "good\u200b", "good"], "good"),
        (["-2.00", "-2", -2.0], "-2"),
        (["True", "True", True], "True"),
        (["Pos", "pos ", "pos"], "pos"),
        (["caf\u00e9", "cafe\u0301", "caf\u00e9"], "caf\u00e9"),
        (["a\u00a0b", "a b", "a  b"], "a b"),
    ],
)
def test_labels_alike_but_for_their_form_are_one_label_and_it_is_said(labels, chosen):
    raw = rows_of(*((f"text {n}", label) for n, label in enumerate(labels)), ("other", "0.5"))
    kept = tidied(raw)
    assert {row.label for row in kept.rows} == {chosen, "0.5"}
    said = [name for name, _ in kept.counts if name.startswith("labels written")]
    is_spelled = chosen[0].isalpha() and chosen != "a b"  # numbers and blanks are one by themselves
    assert len(said) == is_spelled


def test_many_small_classes_hold_out_the_share_that_was_asked():
    rows = [LabeledText(f"{c} {n}", f"class {c}") for c in range(100) for n in range(4)]
    split, _ = split_by_file(rows, 0.2, generator())
    assert [len(part) for part in split] == [324, 36, 40]
    assert {row.label for row in split.train} == {f"class {c}" for c in range(100)}


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("t.csv", "café,good\n", Columns("1", "2", encoding="cp1252", has_header=False)),
        ("t.csv", "text;label\ncafé;good\n", Columns(encoding="latin-1", delimiter=";")),
        (
            "t.label",
            "good\tcafé\n",
            Columns("2", "1", encoding="utf-16", has_header=False, delimiter="\t"),
        ),
        ("t", "label\ttext\ngood\tcafé\n", Columns(encoding="utf-8-sig", delimiter="\t")),
    ],
)
def test_encoding_header_and_delimiter_are_read_as_they_are_given(name, content, columns, tmp_path):
    (tmp_path / name).write_bytes(content.encode(columns.encoding))
    assert read_labeled_texts(str(tmp_path / name), columns) == [{"text": "café", "label": "good"}]


@pytest.mark.parametrize(
    ("name", "columns", "words"),
    [
        ("t.csv", Columns(has_header=False), r"no column 'text' \(set with text=COLUMN\).* 1"),
        ("t.jsonl", Columns(has_header=False), "t.jsonl names its columns itself"),
        ("t.jsonl", Columns(delimiter=";"), "files of cells, such as CSV; t.jsonl is none"),
        ("t.data", Columns(), "say what stands between them, such as delimiter=tab"),
    ],
)
def test_what_does_not_go_with_a_file_is_refused(name, columns, words, tmp_path):
    (tmp_path / name).write_text("a,b\n")
    with pytest.raises(WrongUsage, match=words):
        read_labeled_texts(str(tmp_path / name), columns)


def test_a_folder_and_a_missing_file_are_told_apart(tmp_path):
    with pytest.raises(WrongUsage, match="is a folder"):
        read_labeled_texts(str(tmp_path))
    with pytest.raises(CouldNotRun, match="there is no file"):
        read_labeled_texts(str(tmp_path / "none.csv"))


class Table(dict):
    """A split of a data set, as the hub's library gives it."""

    def __init__(self, **columns):
        super().__init__(columns)
        self.column_names = list(columns)
        self.features = {"label": SimpleNamespace(names=["neg", "pos"]), "text": None}


def test_a_data_set_of_the_hub_is_read_with_the_names_of_its_classes(monkeypatch):
    tables = {
        "train": Table(text=["a", "b"], label=[0, 1]),
        "test": Table(text=["c"], label=[-1]),
        "unsupervised": Table(text=["d"], label=[-1]),
    }
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=lambda name: tables))
    assert read_labeled_texts("owner/name") == [
        {"text": "a", "label": "neg", "split": "train"},
        {"text": "b", "label": "pos", "split": "train"},
        {"text": "c", "label": None, "split": "test"},
    ]


def unreachable(name):
    raise ConnectionError("no route to host\nand more")


@pytest.mark.parametrize(
    ("library", "module", "source", "words"),
    [
        ("datasets", None, "owner/name", "datasets"),
        ("pyarrow", None, "t.parquet", "pyarrow"),
        (
            *("datasets", SimpleNamespace(load_dataset=unreachable), "owner/name"),
            r"owner/name from the hub: no route to host$",
        ),
    ],
)
def test_a_missing_library_and_a_hub_out_of_reach_are_named(
    library, module, source, words, monkeypatch, tmp_path
):
    monkeypatch.setitem(sys.modules, library, module)
    (tmp_path / "t.parquet").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CouldNotRun, match=words):
        read_labeled_texts(source)


def test_a_split_by_row_of_repeated_texts_shares_nearly_all():
    rows = [LabeledText(text, label) for _ in range(10) for text, label in VERDICTS]
    train, held = split_by_row(rows, 0.2, generator())
    assert (len(train), len(held)) == (160, 40)
    assert shared_texts(train, held) == len({row.text for row in held}) >= 15


def test_a_class_with_one_text_keeps_it_in_training():
    train, held = split_by_text([*labelled(10), LabeledText("lonely", "b")], 0.2, generator())
    assert "lonely" in {row.text for row in train}
    assert len(held) == 2


@pytest.mark.parametrize(
    ("splits", "sizes", "words"),
    [
        (
            ["train"] * 4 + ["validation"] * 4 + ["test"] * 4,
            [4, 4, 4],
            "The file's own split was used (train, validation, test).",
        ),
        (["train"] * 20 + ["validation"] * 4, [18, 2, 4], "its validation texts are the test"),
    ],
)
def test_the_files_own_split_is_used(splits, sizes, words):
    rows = [LabeledText(str(n), "ab"[n % 2], split) for n, split in enumerate(splits)]
    split, said = split_by_file(rows, 0.2, generator())
    assert [len(part) for part in split] == sizes
    assert words in said


def test_what_the_file_does_not_split_is_drawn_by_text():
    split, said = split_by_file([*labelled(20), *labelled(20, "b")], 0.2, generator())
    assert [len(part) for part in split] == [32, 4, 4]
    assert shared_texts(split.train, [*split.validation, *split.test]) == 0
    assert "drawn by distinct text" in said


def test_too_few_texts_to_split_are_refused():
    with pytest.raises(WrongUsage, match="too few texts to split: 2"):
        split_by_file([*labelled(1), *labelled(1, "b")], 0.2, generator())


@pytest.mark.parametrize(("mark", "spelling"), [(";", "';'"), ("|", "'|'"), ("\t", "tab")])
def test_another_delimiter_is_refused_with_the_setting_that_reads_it(mark, spelling, tmp_path):
    file = tmp_path / "t.csv"
    file.write_text(f"text{mark}label\nfine{mark}good\n")
    with pytest.raises(WrongUsage, match=f"say delimiter={re.escape(spelling)}"):
        read_labeled_texts(file)
