"""`attnlab.show` shows whatever can be looked at, and refuses the rest in one sentence."""

import html
import re

import pytest
import torch

import attnlab
from attnlab.draw.sections import ReportContent
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.claims import Claim
from attnlab.experiments.report import Report
from attnlab.look.questions import Classification, Continuation
from attnlab.models.storage import describe_model
from tests.random_models import new_model

NAMES = ["SEP", "a", "b", "c"]
IDS = torch.tensor([[3, 1, 2, 0]])


def decoder():
    return new_model(vocab_size=4, max_length=9, d_model=8, num_heads=2)


def encoder():
    return new_model("encoder", vocab_size=4, d_model=8, num_heads=2, num_classes=2)


def recording():
    model = decoder()
    with attnlab.record(model, "*weights", vocabulary=NAMES) as found:
        model(IDS)
    return found


def report():
    described = {"experiment": "sorting", "seed": 0, "started": "2026-01-01T00:00:00+00:00"}
    described |= {"settings": {}, "versions": {}, "model": describe_model(decoder())}
    content = ReportContent(title="A run of mine", subtitle="", facts=[], sections=[])
    claims = (Claim("one", "", "", "", True),)
    return Report("sorting", described, claims, [], content, None, decoder())


@pytest.fixture(autouse=True)
def _without_widgets(ipython, monkeypatch):
    monkeypatch.setattr("attnlab.experiments.viewer.has_widgets", lambda: False)


def page_of(thing, *arguments, **options):
    (page,) = re.findall(
        r'srcdoc="([^"]*)"', attnlab.show(thing, *arguments, **options)._repr_html_()
    )
    return html.unescape(page)


def test_a_run_is_shown_by_its_report_or_its_folder(tmp_path):
    found = report()
    assert "<h1>A run of mine</h1>" in page_of(found)
    found.save(tmp_path / "run")
    assert "<h1>A run of mine</h1>" in page_of(tmp_path / "run")
    assert "<h1>A run of mine</h1>" in page_of(str(tmp_path / "run"))


def test_a_trace_is_shown_step_by_step_and_a_question_is_answered_first():
    question = Continuation(decoder(), IDS, 3, NAMES, expected=["a", "b", "c"])
    assert '"kind":"trace"' in page_of(question)
    assert page_of(question) == page_of(question.trace())


def test_a_run_is_asked_a_text(sorter):
    assert page_of(sorter, "cab") == page_of(attnlab.ask(sorter, "cab").trace())


def test_a_model_that_knows_no_names_is_asked_ids():
    names = ["0", "1", "2", "3"]
    assert page_of(decoder(), "3 1 2 0") == page_of(Continuation(decoder(), IDS, 5, names))
    with pytest.raises(WrongUsage, match="expected ids of tokens from 0 to 3"):
        attnlab.show(decoder(), "cab")


def test_a_trace_without_steps_in_order_is_shown_as_maps_with_its_answer():
    found = Classification(encoder(), IDS, ["a", "b", "c", "d"], ["bad", "good"]).trace()
    page = page_of(found)
    assert "<dt>Answer</dt>" in page
    assert found.steps[0].choice in page
    assert '"a"' in page


def test_recordings_are_shown_and_opened_from_their_folder(tmp_path):
    found = recording()
    found.save(tmp_path)
    assert 'id="view"' in page_of(found)
    assert page_of(tmp_path) == page_of(found)
    assert "before" in page_of(found, other=recording())
    assert "renamed" in page_of(found, ["renamed", "x", "y", "z"])


def test_a_recording_s_page_is_named_by_model_and_input_and_opens_at_the_telling_head(
    sorter,
):
    recorded = attnlab.record(attnlab.load(sorter), "cab")
    page = page_of(recorded)
    assert f"<h1>{sorter.name}: c a b SEP a b</h1>" in page
    assert f"<dt>Model</dt><dd>{sorter.name}, decoder</dd>" in page
    assert str(recorded).startswith(f"Recording of {sorter.name}, decoder: ")
    assert "<dt>Shown first</dt>" in page
    assert "of the heads that do not rest on the first key" in page
    text = recording().named({"": ["␣the", "␣cat", "s", "."]})
    assert "<h1>Decoder: the cats.</h1>" in page_of(text)
    asked = page_of(recording(), title="Mine", opens=("layers.0.attention.weights", 1))
    assert "<h1>Mine</h1>" in asked
    assert "<dt>Shown first</dt>" not in asked


def test_weights_are_shown_with_their_tokens_wherever_they_come_from():
    weights = recording()["layers.0.attention.weights"]
    assert '"sleeps"' in page_of(weights, ["the", "cat", "sleeps", "."])
    assert '"sleeps"' in page_of([weights, weights], ["the", "cat", "sleeps", "."])


def test_an_ablation_s_page_says_of_what_it_is_and_lists_the_largest_heads(sorter):
    ablation = attnlab.ablate(attnlab.load(sorter), ["cab", "bca"])
    page = page_of(ablation)
    assert "<h1>Which head matters?</h1>" in page
    told = [html.unescape(words) for words in re.findall(r"<dd[^>]*>([^<]*)</dd>", page)]
    assert told[:2] == [sorter.name, "cab · bca"]
    assert told[2] == ablation.measured
    table = page[page.index("In numbers") :]
    rows = re.findall(r"<td[^>]*>(head [^<]*)<", table)
    assert rows == [f"head 0.{place.head}" for place, _ in ablation.largest(5)]
    by_ids = page_of(attnlab.ablate(decoder(), IDS, "edges"))
    assert "<dt>tokens</dt>" in by_ids
    assert len(re.findall("<tr", by_ids[by_ids.index("In numbers") :])) == 1 + 5


def test_documents_and_corpus_searches_are_shown_and_opened_from_their_folders(tmp_path):
    model = decoder()
    document = attnlab.summarize_document(model, IDS, out=tmp_path / "document")
    corpus = attnlab.Corpus(
        ["ab", "abc", "abcb"], encode=lambda text: [NAMES.index(letter) for letter in text]
    )
    found = attnlab.search_corpus(model, corpus, "previous", out=tmp_path / "search")
    assert page_of(tmp_path / "document") == page_of(document)
    assert page_of(tmp_path / "search") == page_of(found)


def test_what_cannot_be_shown_is_refused_in_one_sentence():
    for thing, options, error, sentence in (
        (report(), {"tokens": NAMES}, WrongUsage, "a Report is shown as it is; tokens, other and"),
        (object(), {}, WrongUsage, "expected a recording, weights, .*; got an object"),
        (recording(), {"tokens": recording()}, WrongUsage, "tokens are a list of texts, a pair"),
        ("nowhere/at/all", {}, CouldNotRun, "nowhere/at/all"),
    ):
        with pytest.raises(error, match=sentence):
            attnlab.show(thing, **options)


def test_a_page_is_written_to_a_file_and_not_opened(tmp_path, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda page: pytest.fail("it opens"))
    for name, thing in (("weights", recording()), ("report", report())):
        page = attnlab.show(thing, out=tmp_path / f"{name}.html")
        assert page == tmp_path / f"{name}.html"
        assert "</html>" in page.read_text()
    with pytest.raises(CouldNotRun, match="folder is not there"):
        attnlab.show(recording(), out=tmp_path / "nowhere" / "page.html")
    for name in ("page.txt", "page.png", "page"):
        with pytest.raises(WrongUsage, match=r"a name that ends in \.html; got .*page"):
            attnlab.show(recording(), out=tmp_path / name)
        assert not (tmp_path / name).exists()
