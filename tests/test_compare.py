"""The table beside the peers is whole and up to date, and our answers lead to what shows them."""

import pytest

from docs import compare


def test_every_answer_is_one_of_three_and_every_link_of_ours_leads_somewhere():
    assert list(compare.faults()) == []


def test_the_page_is_the_one_that_the_answers_make():
    assert compare.PAGE.read_text() == compare.page(), "python docs/compare.py writes it"


def test_there_is_something_that_a_peer_does_and_we_do_not():
    _, sections = compare.cells()
    rows = [row for rows in sections.values() for row in rows]
    behind = [row for row in rows if row["attnlab"][0].startswith("no")]
    assert len(rows) >= 25
    assert any("yes" in str(row) for row in behind)


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"attnlab": ["yes", "tests/gone.py"]}, "tests/gone.py is not there"),
        ({"attnlab": ["sure", "README.md"]}, "'sure' does not begin with"),
        ({"Peer": "perhaps"}, "'perhaps' does not begin with"),
        ({"Other": "yes"}, "has feature"),
    ],
)
def test_a_wrong_cell_is_found(monkeypatch, row, fault):
    whole = {"feature": "Looking", "attnlab": ["yes", "README.md"], "Peer": "no"} | row
    monkeypatch.setattr(compare, "cells", lambda: ({"Peer": "1.0"}, {"Look": [whole]}))
    assert fault in "\n".join(compare.faults())
