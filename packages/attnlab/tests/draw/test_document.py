"""The form of documents: what is refused, in which words, and what is stored."""

import dataclasses
import json
import math
import re

import pytest

from attnlab.draw.page import render_page
from attnlab.draw.sections import Series, Table
from attnlab.errors import WrongUsage

from .documents import content_of, edited, make_cross_document, make_document, make_kinds_document
from .view.reading import read_back

TRACE = "sections.3.traces.0"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("title", ..., r"report: expected the keys title, .*; got subtitle"),
        ("colour", "red", r"report: expected the keys title, .*; got .*, colour"),
        ("sections.0.kind", "txt", r"\[0\]: .* known kind, one of .*text.*, got str 'txt'"),
        ("sections.0.kind", ["text"], r"with a known kind, .*, got list"),
        ("sections.0.kind", ..., r"sections\[0\]: expected an object with a known kind"),
        ("sections.1.y_label", ..., r"sections\[1\]: expected the keys .*y_label"),
        ("sections.1.series.0.y", [1.0], r"Series: expected as many y as x, 10, got 1"),
        ("sections.4.rows.0", [1], r"Table.rows\[0\]: expected one cell per column, 3, got 1"),
        ("claims.0.passed", "yes", r"claims\[0\].passed: expected True, False or None, got str"),
        ("claims", {"name": "x"}, r"report.claims: expected a list, got dict"),
        ("facts.0", ["seed"], r"facts\[0\]: expected 2 values, got 1"),
        (f"{TRACE}.steps.0.position", 6, r"position: expected a token after it, below 6, got 6"),
        (f"{TRACE}.steps.0.probabilities", [1.0], r"one probability per candidate, 3, got 1"),
        (f"{TRACE}.attention.0.rows.0", [0.1] * 8, r"rows of at most 7 keys, got 8"),
        (f"{TRACE}.attention.0.rows.0", ["1"], r"rows\[0\]\[0\]: .* plain number or None, got str"),
        (f"{TRACE}.tokens.0", 3, r"tokens\[0\]: expected a string, got int '3'"),
    ],
)
def test_malformed_document_is_refused_with_expected_and_got(path, value, message):
    with pytest.raises(WrongUsage, match=message):
        content_of(edited(path, value))


SERIES = "sections.0.series.0"
CHOICE = "sections.2.choices.1"
MAP = "sections.2.choices.0.maps.1"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("sections.0.figure", "My Figure", r"figure: expected a name for files"),
        ("sections.0.figure", "../x", r"figure: expected a name for files"),
        ("sections.0.figure", "maps", r"\[2\].figure: .* own, got 'maps' for the second time"),
        ("sections.0.groups", ["a"], r"series\[0\].values: expected one value per group, 1, got 2"),
        (f"{SERIES}.values", [1.0], r"BarSeries.low: expected one number per value, 1, got 2"),
        (f"{SERIES}.low", ..., r"BarSeries: expected low and high together, got one of them"),
        (f"{SERIES}.low", [0.1], r"BarSeries.low: expected one number per value, 2, got 1"),
        (f"{SERIES}.high", [0.1] * 3, r"BarSeries.high: expected one number per value, 2, got 3"),
        (f"{SERIES}.low.1", 0.7, r"BarSeries.low\[1\]: expected low at most high, 0.6, got 0.7"),
        ("sections.0.groups", ["group"] * 501, r"expected at most 1,000 bars, .* got 1,002"),
        ("sections.1.series.0.high", [1.0], r"Series.high: expected one number per y, 4, got 1"),
        ("sections.1.x_log", 1, r"x_log: expected True or False, got int"),
        ("sections.2.choices", [], r"choices: expected one choice or more, got none"),
        (f"{CHOICE}.maps", [], r"MapChoice.maps: expected one map or more, got none"),
        (f"{MAP}.rows", [[1.0, 2.0]], r"Heatmap.rows: expected one row per label, 2, got 1"),
        (f"{MAP}.rows.0", [1.0], r"Heatmap.rows\[0\]: expected one number per column, 2, got 1"),
        (f"{MAP}.row_labels", [], r"Heatmap: expected one row and one column or more, got none"),
        (f"{MAP}.low", 2.0, r"Heatmap.low: expected a number below high, 2.0, got 2.0"),
        (f"{MAP}.low", -1.0, r"Heatmap.high: .* so high = 1.0, as low is -1.0; got 2.0"),
        (f"{MAP}.low", math.nan, r"maps\[1\].low: expected a plain finite number, got float 'nan'"),
        (f"{MAP}.high", None, r"maps\[1\].high: expected a plain finite number, got NoneType"),
        ("sections.3.boxes.1.tone", "loud", r"tone: expected one of plain, accent, quiet, got str"),
        ("sections.3.arrows.1.points.0", [1], r"\[1\].points\[0\]: expected 2 values, got 1"),
    ],
)
def test_contradictions_inside_new_kinds_are_refused(path, value, message):
    document = edited(path, value, make_kinds_document())
    if path == "sections.0.groups" and len(value) > 1:
        for series in document["sections"][0]["series"]:
            series.update(values=[0.5] * 501, low=[0.4] * 501, high=[0.6] * 501)
    with pytest.raises(WrongUsage, match=message):
        content_of(document)


def test_a_map_that_no_page_could_hold_is_refused():
    document = make_kinds_document()
    one = document["sections"][2]["choices"][0]["maps"][0]
    one |= {"rows": [[0.5] * 201] * 200, "row_labels": ["r"] * 200, "column_labels": ["c"] * 201}
    with pytest.raises(WrongUsage, match=r"at most 40,000 cells, .* got 40,200"):
        content_of(document)
    one |= {"rows": [[0.5] * 200] * 200, "column_labels": ["c"] * 200}
    content_of(document)
    document["sections"][2]["choices"][0]["maps"] = [one] * 26
    with pytest.raises(WrongUsage, match=r"at most 1,000,000 cells .* got 1,040,009"):
        content_of(document)


def test_array_in_the_document_is_refused_with_the_way_out():
    numpy = pytest.importorskip("numpy")
    with pytest.raises(WrongUsage, match=r"\.y: expected a list, got ndarray .*\.tolist\(\)"):
        content_of(edited("sections.1.series.0.y", numpy.ones(10)))


def stored(document):
    """The data of a page."""
    block = r'<script type="application/json" id="document">(.*?)</script>'
    (data,) = re.findall(block, render_page(content_of(document)), re.DOTALL)
    return json.loads(data)


def test_stored_numbers_keep_the_stated_precision():
    document = make_document(num_steps=50)
    traces, _, lines, *_ = stored(document)
    for kept, given in zip(traces["traces"], document["sections"][3]["traces"], strict=True):
        for one, other in zip(kept["attention"], given["attention"], strict=True):
            rows, _ = read_back(one["weights"])
            for row, length, exact in zip(rows, one["lengths"], other["rows"], strict=True):
                assert row[:length] == pytest.approx(exact, rel=1e-6)
                assert all(map(math.isnan, row[length:]))
    losses = document["sections"][1]["series"][0]["y"]
    assert lines["series"][0]["y"] == pytest.approx(losses, rel=5e-7)


def test_drawn_numbers_of_every_kind_keep_seven_digits():
    document = make_kinds_document()
    document["sections"][0]["series"][0]["low"] = [1 / 3, 1 / 7]
    document["sections"][2]["choices"][0]["maps"][0]["rows"][0] = [1 / 3, math.inf, None]
    bars, _, maps, diagram = stored(document)
    assert bars["series"][0]["low"] == [0.3333333, 0.1428571]
    rows, _ = read_back(maps["choices"][0]["maps"][0]["rows"])
    assert str(rows[0].tolist()) == "[0.3333333333333333, nan, nan]"
    assert diagram is None


@pytest.mark.parametrize("make", [make_document, make_cross_document, make_kinds_document])
def test_a_report_that_is_written_and_read_again_is_the_same(make):
    content = content_of(make())
    again = json.loads(json.dumps(content.to_json()))
    assert json.dumps(content_of(again).to_json()) == json.dumps(content.to_json())
    for kept, section in zip(again["sections"], content.sections, strict=True):
        names = {field.name for field in dataclasses.fields(section)}
        assert kept.keys() == names | {"kind"}  # a later default must not change what was kept


def test_sections_made_in_python_are_checked_as_those_of_a_file_are():
    with pytest.raises(WrongUsage, match=r"^Series: expected as many y as x, 2, got 1$"):
        Series(name="loss", x=[1, 2], y=[0.5])
    with pytest.raises(WrongUsage, match=r"^Table.rows\[1\]: expected one cell per column"):
        Table(title="", caption="", columns=["a"], rows=[[1], [1, 2]])
    whole = Series.of_intervals("share", [1], [(0.5, 0.4, 0.6)])
    assert (whole.y, whole.low, whole.high) == ([0.5], [0.4], [0.6])
    table = Table.of_records("", "", [{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    assert (table.columns, table.rows) == (["a", "b"], [[1, 2], [3, 4]])
