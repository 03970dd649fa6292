"""Somebody brings files of their own, as other programs wrote them, and counts the rows."""

import gzip
import json
import re

import pytest

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
    lines = [f"{text}\t{label}" for text, label in ROWS]
    lines[3] = '"' + lines[3]
    lines[40] = lines[40].replace("\t", '"\t')
    lines[50] = lines[50].replace("wet", "Wet")
    lines[60] += "\tmore"
    content = "\n".join(["text\tlabel", *lines]).encode("utf-16")
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
