"""Every claim of the pages has what shows it, and counts that stand on several pages are so."""

import re
from pathlib import Path

import pytest

from attnlab.programs import compile_program, library
from attnlab_course.catalog import exercise_names
from docs import evidence
from tests.pretrained.families import FAMILIES

ROOT = Path(__file__).parents[1]


def test_every_claim_has_what_shows_it():
    _, faults = evidence.matched()
    assert not faults, "\n".join(faults)


def test_the_page_of_evidence_is_the_one_that_is_written_now():
    assert evidence.PAGE.read_text() == evidence.page(), "python docs/evidence.py writes it"


def test_the_page_has_every_claim_and_a_page_outside_the_menu_is_not_left_out(monkeypatch):
    shown = re.findall(r"^\| (?!it says|shown by|---).+? \|", evidence.page(), re.M)
    assert len(shown) - len(evidence.KINDS) - len(evidence.SOURCES) - 1 == len(evidence.claims())
    groups = {
        name: pages for name, pages in evidence.groups().items() if "docs/edit.md" not in pages
    }
    monkeypatch.setattr(evidence, "groups", lambda: groups)
    with pytest.raises(AssertionError, match=r"in no menu of docs/index\.md.*docs/edit\.md"):
        evidence.page()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It takes 3 ms. Is that 2 ms? It is quick.", ["It takes 3 ms."]),
        ("Looking never\nchanges `x[0]`.", ["Looking never changes `x[0]`."]),
        ("SmolLM2 reads it. SmolLM2 reads 2.", ["SmolLM2 reads 2."]),
        ("```\n1 2 3\n```\n\n# 5 things\n\nSee `head 0`.", []),
        ("1. Take one.\n2. Take 2.", ["Take 2."]),
        ("| a | b |\n| --- | --- |\n| `1` | 2 |", ["table: a | b"]),
    ],
)
def test_claims_are_sentences_with_a_number_or_a_word_that_leaves_nothing_out(text, found):
    assert list(evidence.claims_of(text)) == found


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ({}, "0 entries for"),
        ({"3 ms": "needed", "takes": "needed"}, "2 entries for"),
        ({"3 ms": "needed", "5 ms": "needed"}, "no sentence has: 5 ms"),
        ({"3 ms": "tests/test_gone.py"}, "is not there"),
        ({"3 ms": "tests/test_evidence.py::test_gone"}, "has no test_gone"),
    ],
)
def test_a_claim_without_a_source_is_found(monkeypatch, entry, fault):
    claim = evidence.Claim("page.md", "It takes 3 ms.")
    monkeypatch.setattr(evidence, "claims", lambda: [claim])
    monkeypatch.setattr(evidence, "entries", lambda: {"page.md": entry})
    _, faults = evidence.matched()
    assert fault in "\n".join(faults)


@pytest.mark.parametrize(
    ("words", "count"),
    [(r"(\d+) \[?families\b", len(FAMILIES)), (r"(\d+) exercises\b", len(exercise_names()))],
)
def test_pages_say_how_many_there_are(words, count):
    said = [number for page in evidence.pages() for number in re.findall(words, page.read_text())]
    assert said
    assert set(map(int, said)) == {count}


def test_reversing_20_tokens_takes_38_hidden_units():
    assert compile_program(library.reverse("abc"), 20).model.config.inner_width == 38
