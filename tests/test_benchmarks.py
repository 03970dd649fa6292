"""Pages have the numbers of the results, losses are bold, a missing peer leaves its last result."""

import json
import re

import pytest

import page
import results
from results import Table, leave_without, measured, read_tables


def table(**options: object) -> Table:
    """Return a table of three rounds: ours behind the best peer in one row, ahead in the other."""
    found = Table("passes", ours=["attnlab"], reference="plain", rounds=3, **options)
    found.add(
        "behind", {"plain": [1.0, 2.0, 4.0], "peer": [1.0, 2.0, 4.0], "attnlab": [1.5, 3.0, 6.0]}
    )
    found.add(
        "ahead", {"plain": [1.0, 2.0, 4.0], "peer": [2.0, 4.0, 8.0], "attnlab": [1.0, 2.0, 4.0]}
    )
    return found


def test_the_pages_are_those_that_the_results_make():
    assert page.PAGE.read_text() == page.render("page.md.j2"), "python benchmarks/page.py writes it"
    assert page.README.read_text() == page.readme_text(), "python benchmarks/page.py writes it"


def test_another_result_makes_another_readme(monkeypatch, tmp_path):
    for path in results.RESULTS.glob("*.json"):
        (tmp_path / path.name).write_text(path.read_text())
    path = tmp_path / "populations.json"
    tables = json.loads(path.read_text())
    row = next(row for row in tables["sorting"]["rows"] if row["what"] == "1,024 models")
    row["ratios"]["attnlab"] = [7.25, 7.0, 7.5]
    path.write_text(json.dumps(tables))
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    assert "7.25 times as fast as a notebook's loop" in page.readme_text()
    assert page.readme_text() != page.README.read_text()


def test_a_loss_is_bold_and_a_gain_is_not():
    behind, ahead = page.markdown(table()).splitlines()[4:6]
    assert behind == "| behind | 2 [1.50, 3] | 1.00 | **1.50** | 1.50 of peer |"
    assert ahead == "| ahead | 2 [1.50, 3] | 2.00 | 1.00 | 0.50 of peer |"


def test_where_more_is_better_less_is_the_loss():
    fast = table(better="higher")
    assert [fast.is_loss(row) for row in fast.rows] == [True, False]
    assert fast.row("behind").ratios["attnlab"].median == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("options", "behind", "ahead"),
    [({}, "**1.50**", "0.50"), ({"better": "higher"}, "**1.50**", "0.50")],
)
def test_a_headline_is_ours_over_the_best_other_and_bold_where_it_is_more(options, behind, ahead):
    made = page.Results()
    made.tables = {"mine": {"first": table(**options)}}
    assert made.headline("mine", "first", "behind") == f"{behind} | peer"
    assert made.headline("mine", "first", "ahead") == f"{ahead} | peer"
    assert made.contests(("mine", "first")) == "2 rows; in **1** attnlab is behind"


def test_the_page_begins_with_the_headlines_and_folds_every_other_table():
    text = page.render("page.md.j2")
    begin, *sections = text.split("\n## ")
    assert begin.count("attnlab / best other") == 2
    for section in sections:
        shown = re.sub(r"<details>.*?</details>", "", section, flags=re.S)
        assert "| --- |" not in shown
        assert len(shown.splitlines()) < 12


def test_a_count_of_nothing_has_no_ratio_and_still_wins():
    counts = Table("wrong inputs", ours=["attnlab"])
    row = counts.add("reverse", {"attnlab": [0], "Tracr": [3]}, unit="inputs")
    assert row.lead is None
    assert not counts.is_loss(row)
    assert counts.is_loss(counts.add("length", {"attnlab": [2], "Tracr": [0]}, unit="inputs"))


@pytest.mark.parametrize(
    ("others", "words"),
    [(0.02, "load 0.1 to 1.0, 0.02 cores"), (1.4, "**a busy machine**"), (None, "not recorded")],
)
def test_a_table_says_how_busy_the_machine_was(others, words):
    assert words in page.conditions(table(load=[0.1, 1.0], others=others))


def test_what_was_measured_is_read_back(monkeypatch, tmp_path):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    for value in (1.0, 2.0):
        with measured("mine", "first", "a pass", ours=["attnlab"]) as found:
            found.add("row", {"attnlab": [value]})
    with measured("mine", "other", "a trial", ours=["attnlab"], keep=False) as trial:
        trial.add("row", {"attnlab": [3.0]})
    assert read_tables("mine") == {"first": found}
    assert found.row("row").values["attnlab"].median == 2.0
    assert found.others is not None
    assert len(found.load) == 2


def test_a_missing_peer_ends_the_program_and_leaves_the_last_result(capsys):
    leave_without("json")
    with pytest.raises(SystemExit) as ending:
        leave_without("json", "no_such_peer")
    assert ending.value.code == results.NOT_MEASURED
    assert "not installed here: no_such_peer. The last result stays" in capsys.readouterr().err
