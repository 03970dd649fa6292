"""Texts from files of strangers: what is no text is counted with the reason, and ends nothing."""

import csv
import gzip
from pathlib import Path

import pytest

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.corpus import text_rows
from attnlab.look.corpus.text_rows import rows_of


def read(path, content, column="text"):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [row.text if row.text is not None else row.why for row in rows_of(path, column)]


ROWS = {
    "quoted lines": ("a.csv", 'id,text\n1,"a\nb, ""c"""\n2,d\n', ['a\nb, "c"', "d"]),
    "a byte order mark": ("a.csv", "\ufeffid,text\n1,a\n", ["a"]),
    "blank lines at the head": ("a.csv", "\n\ntext\na\n", ["a"]),
    "Latin-1 in a row": ("a.csv", "text\ncaf\u00e9\nok\n".encode("latin-1"), ["not UTF-8", "ok"]),
    "old line ends": ("a.csv", "text\ra\rb\r", ["a", "b"]),
    "quotation marks within": (
        "a.csv",
        'text\n5" disk\n"ok" then\nlast "x\n',
        ['5" disk', "ok then", 'last "x'],
    ),
    "a quotation mark that is never closed": (
        "a.csv",
        'text\na\n"b\nc\nd\n',
        ["a", "a quotation mark in line 3 is never closed"],
    ),
    "one that is never closed, over lines that are rows": (
        "a.csv",
        'id,text\n1,a\n2,"b\n3,c\n4,d\n',
        ["a", '"b', "c", "d"],
    ),
    "two stray ones, over lines that are rows": (
        "a.tsv",
        'id\ttext\n1\ta\n2\t"b\n3\tc\n4\td"\n5\te\n',
        ["a", '"b', "c", 'd"', "e"],
    ),
    "the names once more, and cells too many": (
        "a.csv",
        "id,text\n1,a,\nid,text\n2,b,c\n",
        ["a", "the header row again", "3 cells for 2 columns"],
    ),
    "UTF-16": ("a.csv", "text\na\n".encode("utf-16"), ["a"]),
    "a compressed file": ("a.jsonl.gz", gzip.compress(b'"a"\n"b"\n'), ["a", "b"]),
    "one that is closed at the very end": ("a.csv", 'text\n"a\nb"', ["a\nb"]),
    "half characters": ("a.jsonl", '{"text": "\\ud800"}\n"ok"\n', ["not UTF-8", "ok"]),
    "deep nesting": ("a.jsonl", "[" * 100_000 + '\n"ok"\n', ["not JSON", "ok"]),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_what_stands_in_the_file(name, tmp_path):
    file, content, expected = ROWS[name]
    assert read(tmp_path / file, content) == expected


@pytest.mark.parametrize("kind", ["csv", "jsonl", "txt"])
def test_a_line_without_end_is_left_out_and_never_held(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(text_rows, "_LONGEST", 50)
    monkeypatch.setattr(text_rows, "_MOST_LINE", 200)
    monkeypatch.setattr(text_rows, "_PIECE", 100)
    pieces, form = [], {"csv": "{}", "jsonl": '"{}"', "txt": "{}"}[kind]
    lines = text_rows._Lines.__iter__
    monkeypatch.setattr(
        text_rows._Lines,
        "__iter__",
        lambda self: (pieces.append(len(x)) or x for x in lines(self)),
    )
    rows = ["a", "x" * 51, "y" * 1000, "z" * 50, "b"]
    head = "text\n" if kind == "csv" else ""
    found = read(tmp_path / f"a.{kind}", head + "".join(form.format(row) + "\n" for row in rows))
    assert found == ["a", text_rows._TOO_LONG, text_rows._TOO_LONG, "z" * 50, "b"]
    assert max(pieces) <= 200
    assert csv.field_size_limit() > 200  # as it was


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        ("text\na\n".encode("utf-16-le"), CouldNotRun, "save it as CSV in UTF-8"),
        ("t\u00e9xt\na\n".encode("latin-1"), CouldNotRun, "save it as CSV in UTF-8"),
        (b"", WrongUsage, "is empty"),
        (b"\n\n", WrongUsage, "is empty"),
        (b"text,text\na,b\n", WrongUsage, "several columns 'text'"),
        (b"id;text\n1;a\n", WrongUsage, "no column 'text'"),
    ],
)
def test_a_file_head_that_says_nothing_is_refused_in_plain_words(content, error, words, tmp_path):
    with pytest.raises(error, match=words) as raised:
        read(tmp_path / "a.csv", content)
    str(raised.value).encode()


def test_a_file_that_is_refused_is_closed_at_once(tmp_path):
    with pytest.raises(WrongUsage) as raised:
        read(tmp_path / "a.csv", b"words\nfine\n")
    assert raised.value.__traceback__ is not None  # which keeps what was read from
    is_open = [each.resolve().name for each in Path("/proc/self/fd").iterdir() if each.exists()]
    assert "a.csv" not in is_open


def test_text_of_parquet_that_is_no_text_is_left_out(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["one", "two"]}), tmp_path / "whole.parquet")
    assert [row.text for row in rows_of(tmp_path / "whole.parquet")] == ["one", "two"]
    ends = pa.array([0, 2, 4], pa.int32()).buffers()[1]
    column = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"ok\xff\xfe")])
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    assert [row.text or row.why for row in rows_of(tmp_path / "a.parquet")] == ["ok", "not UTF-8"]


def test_a_blank_line_without_end_is_a_row_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(text_rows, "_MOST_LINE", 20)
    monkeypatch.setattr(text_rows, "_PIECE", 10)
    (tmp_path / "a.jsonl").write_text(" " * 40 + '\n"one"\n"two"\n')
    assert [row.text for row in rows_of(tmp_path / "a.jsonl")] == [None, "one", "two"]
