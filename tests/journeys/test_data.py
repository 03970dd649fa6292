"""Somebody brings files of their own, as other programs wrote them, and counts the rows."""

import csv
import gzip
import io
import json
import re
import warnings

import pytest

from tests.pretrained.speaking import saved

WORDS = {"dry": ["warm", "bright", "clear"], "wet": ["grey", "cold", "dark"]}
ROWS = [
    (f"the {hour} was {first} and {second}", label)
    for label, words in WORDS.items()
    for hour in ("morning", "noon", "evening", "night")
    for first in words
    for second in words
]
REFUSED = {
    "scores.xlsx": (b"PK", "This is a workbook: save its sheet as CSV"),
    "texts.zip": (b"PK", "This is an archive: unpack it and name the file inside"),
    "lists.jsonl": (
        json.dumps({"text": "warm", "label": [0, 1]}).encode(),
        "each label must be a word or a number; row 1 holds a list",
    ),
    "other.csv": (b"review;stars\nfine;5\n", "say delimiter=';'"),
    "half.csv.gz": (gzip.compress(b"text,label\nwarm,dry\n" * 9)[:30], "cannot be unpacked"),
}
READ_ALL = """
import sys
from attnlab.cli import main

for command in sys.stdin.read().splitlines():
    print("command:", command)
    assert main(command.split()) == 0
"""


def run_all(home, commands):
    """Run commands in one process, as quick as one of them; return what each printed."""
    (home.here / "all.py").write_text(READ_ALL)
    printed = home.run("python all.py", typed="\n".join(commands)).out
    parts = re.split(r"^command: .*\n", printed, flags=re.MULTILINE)[1:]
    return [" ".join(part.split()) for part in parts]


def cells(delimiter, *, rows=ROWS, header=True, more=()):
    """Write rows as a program that writes cells does, and lines that it would not write."""
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    writer.writerows([("text", "label")] * header + list(rows))
    return file.getvalue() + "".join(f"{line}\n" for line in more)


def objects(rows=ROWS):
    return [{"text": text, "label": label} for text, label in rows]


def parquet(rows=ROWS):
    with warnings.catch_warnings():
        pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    file = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(objects(rows)), file)
    return file.getvalue()


def with_stray_quotes(delimiter):
    """Two texts with a quotation mark that no program closed, far from each other."""
    lines = cells(delimiter).splitlines()
    lines[4] = '"' + lines[4]
    lines[41] = lines[41].replace(delimiter, f'"{delimiter}')
    return "\n".join(lines)


JSON_LINES = "\n".join(map(json.dumps, objects()))
TEXTS = "\n".join(text for text, _ in ROWS)
CORPORA = {  # content, and the rows of it that are no texts
    "a.csv": (cells(",", more=["one,two,three"]).encode(), 1),
    "blank-lines-first.csv": (("\n\r\n\n" + cells(",", more=[",wet"])).encode(), 1),
    "mark.csv": (cells(",").encode("utf-8-sig"), 0),
    "utf16.tsv": (cells("\t", more=["no label"]).encode("utf-16"), 1),
    "stray.tsv": (with_stray_quotes("\t").encode(), 0),
    "stray.csv": (with_stray_quotes(",").encode(), 0),
    "packed.csv.gz": (gzip.compress(cells(",").encode()), 0),
    "a.jsonl": ((JSON_LINES + '\n{"label": "dry"}\n{"text": null}\nno JSON').encode(), 3),
    "a.parquet": (parquet, 0),
    "a.txt": ((TEXTS + "\n\n").encode(), 0),
    "packed.txt.gz": (gzip.compress(TEXTS.encode()), 0),
}


def test_a_head_is_searched_for_in_files_of_each_kind_and_no_row_is_lost(home):
    pytest.importorskip("transformers")
    saved("gpt2", home.here / "tiny")
    for name, (content, _) in CORPORA.items():
        (home.here / name).write_bytes(content() if callable(content) else content)
    for (name, (_, left_out)), printed in zip(
        CORPORA.items(), run_all(home, [f"search tiny --corpus {n}" for n in CORPORA]), strict=True
    ):
        assert f"texts read {len(ROWS)}," in printed, name
        assert (f"rows left out {left_out}," in printed) == bool(left_out), name
        reasons = map(int, re.findall(r"left out: .*? (\d+)(?:,|$| head)", printed))
        assert sum(reasons) == left_out, (name, printed)


def test_a_classifier_learns_from_an_array_and_from_cells_without_names_and_says_what_it_read(home):
    rows = objects([*ROWS, (None, "dry"), *ROWS[:2], (ROWS[5][0], "wet")])
    (home.here / "array.json").write_text(json.dumps(rows, indent=1))
    nameless = cells("\t", header=False, more=["the sky\tis\tfar"])
    (home.here / "nameless.tsv").write_text(nameless, encoding="utf-16")
    run = "run sentiment -q --set epochs=1 seeds=1 show=1"
    array, tsv, shown_array, shown_tsv = run_all(
        home,
        [
            f"{run} data=array.json --out runs/array",
            f"{run} data=nameless.tsv header=false text=1 label=2 --out runs/tsv",
            "show array",
            "show tsv",
        ],
    )
    assert "claims hold" in array
    assert "claims hold" in tsv
    assert (
        "rows read: 76; rows with a missing text, label or split, left out: 1; repeated texts, "
        "kept once: 3; texts with two labels, left out: 1; texts used: 71"
    ) in shown_array
    assert (
        "rows read: 73; rows with more or fewer cells than the file has columns, left out: 1; "
        "texts used: 72"
    ) in shown_tsv


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_cannot_be_used_is_refused_in_a_sentence_that_says_what_to_do(home, name):
    content, words = REFUSED[name]
    (home.here / name).write_bytes(content)
    settings = f"data={name}" + (" text=review label=stars" if name == "other.csv" else "")
    answer = home.run(f"attnlab run sentiment --set {settings}", status=3 if "gz" in name else 2)
    assert words in answer.err
    assert len(answer.err.splitlines()) == 1
    assert not (home.here / "runs").exists()


def test_every_row_of_a_file_with_stray_quotes_is_in_the_report(home, visit):
    lines = with_stray_quotes("\t").splitlines()
    lines[51] = lines[51].replace("wet", "Wet")
    lines[61] += "\tmore"
    content = "\n".join(lines).encode("utf-16")
    (home.here / "weather.tsv.gz").write_bytes(gzip.compress(content))
    home.run("attnlab run sentiment -q --set data=weather.tsv.gz epochs=1 seeds=1", status=0)
    page = visit(home.here / "runs/sentiment/report.html")
    facts = " ".join(page.locator("body").inner_text().split())
    for said in (
        r"rows read\W+72",
        r"rows with more or fewer cells than the file has columns, left out\W+1\b",
        r"labels written Wet, taken as wet\W+1\b",
        r"texts used\W+71",
    ):
        assert re.search(said, facts, re.IGNORECASE), said
