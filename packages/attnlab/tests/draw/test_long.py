"""Pages of long documents and of corpus searches: what they show is what was found."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from attnlab.draw.corpus import corpus_report, write_corpus_page
from attnlab.draw.long_text_report import (
    document_maps,
    document_report,
    write_document,
)
from attnlab.draw.page import render_page
from attnlab.draw.sections import Passage, PassageGroup, Passages, ReportContent
from attnlab.errors import WrongUsage
from attnlab.look import record
from attnlab.look.corpus import Corpus, search_corpus
from attnlab.look.long_text import summarize_document
from attnlab.look.summaries import Summarize
from tests.random_models import new_model

LENGTH = 300
NAMES = [f"␣w{number}" for number in range(28)] + ["<b>", "␣"]


@pytest.fixture(scope="module")
def model():
    sizes = {"vocab_size": 30, "max_length": 400, "d_model": 16}
    found = new_model("decoder", **sizes, num_heads=2)
    found.vocabulary = NAMES
    return found


@pytest.fixture(scope="module")
def ids():
    return torch.randint(0, 30, (LENGTH,), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def document(model, ids, tmp_path_factory):
    out = tmp_path_factory.mktemp("long")
    return summarize_document(model, ids, out=out, reduce=Summarize(tiles=50))


@pytest.fixture(scope="module")
def weights(model, ids):
    with torch.no_grad(), record(model, "*weights") as recording:
        model(ids[None])
    return [recording[f"layers.{layer}.attention.weights"][0] for layer in range(2)]


@pytest.fixture(scope="module")
def found(model):
    texts = [" ".join(str(number % 30) for number in range(n, n + 40, 3)) for n in range(9)]
    corpus = Corpus(texts, encode=lambda text: [int(each) for each in text.split()])
    return search_corpus(model, corpus, "previous", top=4)


def page_of(passage, title):
    section = Passages(title="x", caption="", groups=[PassageGroup(title=title, items=[passage])])
    return render_page(ReportContent(title="t", subtitle="", facts=[], sections=[section]))


def test_the_report_of_a_document_says_every_heads_numbers(document, weights):
    report = document_report(document)
    table = report.section("Every head")
    assert [row[0] for row in table.rows] == ["0.0", "0.1", "1.0", "1.1"]
    column = table.columns.index("previous")
    before = weights[1][1].diagonal(-1).sum() / LENGTH
    assert table.rows[3][column] == pytest.approx(float(before), rel=1e-3)
    page = render_page(report)
    assert "claims" not in re.sub(r"<style>.*?</style>|<script.*", "", page, flags=re.DOTALL)


def test_the_maps_of_a_document_are_those_of_its_weights(document, weights):
    for layer, maps in enumerate(document_maps(document)):
        assert maps.shape == (2, LENGTH, LENGTH)
        assert maps.query_tokens == tuple(document.tokens)
        cells = weights[layer].reshape(2, 50, 6, 50, 6)
        assert np.allclose(maps.largest, cells.amax((2, 4)), atol=1e-6)
        assert np.allclose(maps.mean, cells.mean((2, 4)), atol=1e-6)
        assert np.array_equal(maps.hidden, np.triu(np.ones((50, 50), bool), 1))


@pytest.mark.slow
def test_all_pages_and_figures_of_a_document_are_written(document, tmp_path, open_html):
    write_document(document, tmp_path / "pages")
    names = {path.name for path in (tmp_path / "pages").rglob("*.*")}
    assert {"report.html", "view.html", "entropy.png"} <= names
    for name in ("report", "view"):
        open_html((tmp_path / "pages" / f"{name}.html").read_text())


def test_the_page_of_a_search_marks_query_and_key(found, tmp_path, open_html):
    best = found.table()[0]["head"]
    page = open_html(write_corpus_page(found, tmp_path / "page.html").read_text())
    first = page.locator(".passages li").first
    example = found.examples(best)[0]
    assert first.locator("mark.query").inner_text().startswith(example.tokens[example.query])
    assert first.locator("mark.key").inner_text().startswith(example.tokens[example.key])
    assert f"query {example.query}, key {example.key}" in first.inner_text()
    assert page.locator(".passages").count() == 4
    item = corpus_report(found).section("Examples").groups[0].items[0]
    with pytest.raises(WrongUsage, match=r"Passage\.query: expected one of"):
        replace(item, query=len(item.tokens))


def test_only_heads_that_were_searched_are_shown(found):
    (group,) = corpus_report(found, heads=["0.1"]).section("Examples").groups
    assert group.title == "Head 0.1"
    with pytest.raises(WrongUsage, match="was not searched"):
        corpus_report(found, heads=["7.1"])


def test_what_stands_in_a_text_cannot_leave_its_place_and_unseen_signs_are_written_out():
    tokens = ["\u202eevil", "a\nb", "\x00", "👩\u200d🚀", '<script>"', "&"]
    page = page_of(Passage(label="<i>", tokens=tokens, query=0, key=4), "<b>")
    assert not set(page) & {"\u202e", "\x00"}
    for shown in (r"\u202eevil", r"a\nb", r"\x00", "👩\u200d🚀", "&lt;script&gt;&#34;"):
        assert shown in page
    assert "<b>" not in page
    assert "<i>" not in page


def test_a_pattern_of_ones_own_is_named_in_words(model):
    corpus = Corpus(["1 2 3"], encode=lambda text: [int(each) for each in text.split()])
    report = corpus_report(search_corpus(model, corpus, "token:w1"))
    assert report.title == "The weight on tokens that match w1"
