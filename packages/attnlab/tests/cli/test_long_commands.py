"""`look --document` and `search`: what they print and keep is what the library says."""

import json
import os

import pytest

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from attnlab.draw import long_text_report
from attnlab.look.corpus import open_corpus_search
from attnlab.look.long_text import open_document, summarize
from tests.pretrained.speaking import SENTENCES, saved


@pytest.fixture(scope="module")
def work(tmp_path_factory, opened_once):
    parent = tmp_path_factory.mktemp("long")
    saved("llama", parent / "llama")
    (parent / "book.txt").write_text(" ".join(SENTENCES * 4), encoding="utf-8")
    (parent / "texts.csv").write_text(
        "text\n" + "".join(f'"{line.strip()}"\n' for line in SENTENCES), encoding="utf-8"
    )
    (parent / "empty.txt").write_text(" \n")
    return parent


@pytest.fixture(autouse=True)
def _elsewhere(work, monkeypatch):
    monkeypatch.chdir(work)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_a_document_is_read_kept_stopped_and_gone_on_with(run, monkeypatch):
    asked = "look llama --document book.txt --tiles 16 --out book"
    monkeypatch.setattr(long_text_report, "save_figure", lambda _, path: path.touch())
    whole = summarize.Summarizer._write

    def stop(self, part, summary, call):
        if part == "layers.1.attention":
            raise KeyboardInterrupt
        whole(self, part, summary, call)

    with monkeypatch.context() as patch:
        patch.setattr(summarize.Summarizer, "_write", stop)
        status, _, error = run(asked)
    assert status == 130
    assert "--resume" in error
    assert run(asked)[0] == 2
    status, out, _ = run(f"{asked} --resume")
    assert status == 0
    document = open_document("book")
    assert f"read {document.length:,} tokens: 8 heads" in out
    best = max(document.table(), key=lambda row: row["previous"])
    assert f"the token before {best['layer']}.{best['head']} {best['previous']:.2f}" in out
    for name in ("report.html", "view.html"):
        assert str(name) in out
    status, out, _ = run(f"{asked} --resume --json")
    assert json.loads(out)["heads"] == document.table()


def test_search_prints_and_keeps_what_was_found(run):
    asked = "search llama --corpus texts.csv --measure induction --head 1 --out found"
    status, out, _ = run(asked)
    found = open_corpus_search("found")
    row = found.table()[0]
    assert status == 0
    assert row["head"].startswith("1.")
    assert f"{row['mean']:.3f}" in out
    example = found.examples(row["head"])[0]
    assert "‹" in out
    assert f"{example.value:.3f}" in out
    assert {"page.html", "search.json"} <= set(os.listdir("found"))
    status, out, _ = run(f"{asked} --resume --json")
    told = json.loads(out)
    assert told["heads"] == found.table()
    assert told["examples"][row["head"]][0]["tokens"] == list(example.tokens)


@pytest.mark.parametrize(
    ("typed", "status", "told"),
    [
        ("look llama --document book.txt", 2, "--out DIR"),
        ("look llama words --document book.txt --out x", 2, "leave the words out"),
        ("look llama --document none.txt --out x", 3, "could not read none.txt"),
        ("look llama --document empty.txt --out x", 2, "is empty"),
        ("look llama --document book.txt --out x --head 7.1", 2, "summarizes every head"),
        ("look llama --document book.txt --out x --tiles 0", 2, "tiles"),
        ("look llama words --tiles 3", 2, "--tiles"),
        ("search llama --corpus texts.csv --measure previus", 2, "did you mean 'previous'"),
        ("search llama --corpus none.csv", 3, "there is no file none.csv"),
        ("search llama --corpus texts.csv --column txt", 2, "did you mean 'text'"),
        ("search llama --corpus texts.csv --resume", 2, "--resume needs --out"),
        ("search llama --corpus texts.csv --head 1.9", 2, "there is no head 1.9"),
        ("search llama", 2, "corpus"),
        ("search llama --corpus empty.txt", 2, "no text could be read"),
    ],
)
def test_mistakes_get_one_sentence_and_a_status(refused, typed, status, told):
    refused(typed, status, told)
