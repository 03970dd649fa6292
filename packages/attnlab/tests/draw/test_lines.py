"""Line charts on the page: exact values, gaps, thinning, bands and logarithmic axes."""

import itertools
import re
from typing import Any

import pytest

from .documents import make_kinds_document, report_of
from .views import Open

PATHS = "all => all.map(path => path.getAttribute('d'))"
PLACES = "all => all.map(c => Number(c.getAttribute('cx')))"
SERIES = {
    "name": "each",
    "x": [1, 10, 100],
    "y": [0.2, 0.6, 0.4],
    "low": [0.1, 0.5, 0.3],
    "high": [0.3, 0.7, 0.5],
}


def open_series(open_page: Open, *series: dict[str, Any], **changes: Any) -> Any:
    """Open a page of one chart: that of the kinds, without levels and with its own series."""
    lines = make_kinds_document()["sections"][1]
    changes = {"series": series, "levels": [], "x_log": False} | changes
    return open_page(report_of({**lines, **changes}))


def corners(path: str) -> list[list[float]]:
    """The corners of a path of straight strokes."""
    pairs = re.findall(r"[\d.-]+ [\d.-]+", path)
    return [[float(part) for part in corner.split()] for corner in pairs]


def test_crosshair_reads_values_and_gaps_stay_gaps(open_page):
    loss = {"name": "loss", "x": [0, 1, 2, 3, 4], "y": [2.0, 1.0, float("nan"), None, 0.125]}
    page = open_series(open_page, loss)
    chart = page.locator(".chart")
    paths = chart.locator("path.series").evaluate_all(PATHS)
    assert [len(re.findall("[ML]", path)) for path in paths] == [2, 1]
    assert page.locator(".note").inner_text() == "2 values not finite, left as gaps."
    output = page.locator(".legend output")
    chart.focus()
    page.keyboard.press("Home")
    assert output.inner_text() == "2 at 0"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert output.inner_text() == "n/a at 2"
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 100)
    assert output.inner_text() == "0.125 at 4"


def test_thinned_line_keeps_the_extremes_and_log_scale_is_a_switch(open_page):
    losses = [1.0] * 15000
    losses[7001], losses[9001] = 9.0, -7.0
    page = open_series(open_page, {"name": "loss", "x": list(range(15000)), "y": losses})
    ticks = page.locator(".chart text").all_text_contents()
    band = page.locator(".chart .envelope").evaluate(
        "node => { const b = node.getBBox(); return [b.y, b.height] }"
    )
    # The band spans 16 of the 17.6 units between the padded ends of the axis.
    assert band[1] == pytest.approx((320 - 14 - 40) * 16 / 17.6, rel=0.01)
    assert "smallest to largest" in page.locator(".note").inner_text()
    assert "−5" in ticks
    path = page.locator(".chart path.series").first
    before = path.get_attribute("d")
    button = page.get_by_role("button", name="Log scale")
    button.click()
    assert path.get_attribute("d") != before
    assert button.get_attribute("aria-pressed") == "true"


def test_a_band_stops_at_gaps_and_a_logarithmic_axis_spaces_ratios_equally(open_page):
    page = open_page(make_kinds_document())
    chart = page.locator(".lines-section .chart")
    bands = chart.locator("path.band")
    assert bands.count() == 1  # 8 to 16; the point after the gap stands alone
    high8, high16, low16, low8 = corners(bands.get_attribute("d"))
    assert high8[0] == low8[0]
    assert high16[0] == low16[0]
    # Heights of the interval in pixels have the ratio of the intervals: 0.1 and 0.2.
    assert (low16[1] - high16[1]) / (low8[1] - high8[1]) == pytest.approx(2, rel=0.01)
    # The interval of the last point, the line, the last point.
    assert chart.locator("path.series").count() == 3
    note = page.locator(".lines-section .note").inner_text()
    assert "Shaded: the interval around each value." in note
    dots = chart.locator("circle.point").evaluate_all(PLACES)
    assert len(dots) == 3
    assert (dots[2] - dots[1]) / (dots[1] - dots[0]) == pytest.approx(2, rel=0.001)
    assert {"8", "16", "32", "64"} <= set(chart.locator("text").all_text_contents())
    # The legend reads the nearest place on the screen.
    output = page.locator(".lines-section .legend output")
    chart.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert output.inner_text() == "0.750 (0.650 to 0.850) at 16"
    # There 16 · 2^0.55 = 23.4 lies nearer to 32, which has no value, though 23.4 - 16 < 32 - 23.4.
    box = chart.bounding_box()
    page.mouse.move(box["x"] + dots[1] + 0.55 * (dots[1] - dots[0]), box["y"] + 100)
    assert output.inner_text() == "n/a at 32"


def test_points_that_a_logarithmic_axis_cannot_show_are_counted(open_page):
    page = open_series(open_page, SERIES | {"x": [0, 16, 64]}, x_log=True)
    assert "1 point at length 0 or below cannot be drawn" in page.locator(".note").inner_text()
    assert page.locator("circle.point").count() == 2


@pytest.mark.slow
def test_small_values_of_a_logarithmic_axis_do_not_write_over_its_name(open_page):
    page = open_series(open_page, {"name": "a", "x": [1, 10], "y": [1.0, 0.00002]}, y_log=True)
    assert "1e−4" in page.locator(".chart text").all_text_contents()
    left = page.locator(".chart text[text-anchor=end]").evaluate_all(
        "all => Math.min(...all.map(t => t.getBBox().x))"
    )
    assert left >= 18


@pytest.mark.slow
def test_an_interval_is_read_only_where_it_can_be_seen(open_page):
    intervals = {  # the value and its ends, as they are read
        "0.514 (0.508 to 0.520)": (0.51372, 0.5075, 0.52),
        "110": (110.04, 110.04, 110.04),
        "0.191": (0.19131, 0.191301, 0.191319),
        "0.500": (0.5, None, 0.6),
        "1": (1.0, 0.9999999, 1.0),
    }
    series = []
    for name, (y, low, high) in intervals.items():
        series.append({"name": name, "x": [1024], "y": [y], "low": [low], "high": [high]})
    outputs = open_series(open_page, *series).locator(".legend output")
    assert outputs.all_inner_texts() == [f"{words} at 1,024" for words in intervals]


@pytest.mark.slow
def test_places_are_read_as_they_are(open_page):
    places = {-19.875: "−19.875", 3.16e-8: "3.16e−8", 2.0: "2", 1e10: "1e10"}
    page = open_series(open_page, {"name": "a", "x": list(places), "y": [1.0] * 4})
    page.locator(".chart").focus()
    page.keyboard.press("Home")
    for words in places.values():
        assert page.locator(".legend output").inner_text() == f"1 at {words}"
        page.keyboard.press("Shift+ArrowRight")


@pytest.mark.slow
def test_between_whole_places_nothing_is_marked(open_page):
    lines = make_kinds_document()["sections"][1] | {"x_log": False, "levels": []}
    sections = []
    for last in (2, 3, 4, 7, 10, 14, 17, 1000):
        places = list(range(1, last + 1))
        series = [{"name": "a", "x": places, "y": [0.5] * last}]
        sections.append({**lines, "series": series, "figure": f"to-{last}"})
    halves = [{"name": "a", "x": [1, 1.5, 2], "y": [0.5] * 3}]
    page = open_page(report_of(*sections, {**lines, "series": halves}))
    *whole, broken = [
        chart.locator("text[y='299']").all_text_contents() for chart in page.locator(".chart").all()
    ]
    assert len(whole) == 8
    for ticks in whole:
        assert 2 <= len(ticks) <= 11
        assert not any("." in tick for tick in ticks), ticks
    assert {"1.4", "1.5", "1.50"} & set(broken)


def test_points_have_whiskers_and_are_joined_by_nothing(open_page):
    page = open_series(open_page, {**SERIES, "style": "points"}, x_log=True)
    chart = page.locator(".chart")
    assert chart.locator("circle.point").count() == 3
    assert chart.locator("path.band").count() == 0
    strokes = [corners(path) for path in chart.locator("path.series").evaluate_all(PATHS)]
    assert len(strokes) == 3
    assert all(one[0] == other[0] for one, other in strokes)  # upright
    assert "Vertical strokes: the interval around each point." in page.locator(".note").inner_text()
    # Round numbers, wherever points fell.
    assert "2" in chart.locator("text").all_text_contents()


@pytest.mark.slow
def test_a_step_holds_until_the_next_value(open_page):
    best = {"name": "best", "x": [0, 1, 2], "y": [1.0, 1.0, 3.0], "style": "steps"}
    page = open_series(open_page, best)
    path = corners(page.locator(".chart path.series").first.get_attribute("d"))
    pairs = itertools.pairwise(path)
    assert all(one[0] == other[0] or one[1] == other[1] for one, other in pairs)
    assert len(path) == 5


def test_bands_are_named_and_read_out_beside_one_line(open_page):
    bands = [
        {"name": "nine in ten", "low": [0.0, 0.1, None], "high": [1.0, 0.9, None]},
        {"name": "the middle half", "low": [0.4, 0.4, None], "high": [0.6, 0.6, None]},
    ]
    median = {"name": "median", "x": [0, 1, 2], "y": [0.5, 0.5, None], "bands": bands}
    page = open_series(open_page, median)
    assert page.locator(".chart path.band").count() == 2
    names, outputs = page.locator(".legend li span"), page.locator(".legend output")
    assert names.all_inner_texts() == ["median", "nine in ten", "the middle half"]
    # Without a place the last value there is.
    assert outputs.all_inner_texts() == ["0.500 at 1", "0.100 to 0.900", "0.400 to 0.600"]
    assert "interval around" not in page.locator(".note").inner_text()


@pytest.mark.slow
def test_an_axis_from_zero_has_zero_on_it(open_page):
    share = {"name": "share", "x": [0, 1], "y": [0.8, 0.9]}
    for from_zero in (False, True):
        page = open_series(open_page, share, from_zero=from_zero)
        assert ("0.0" in page.locator(".chart text").all_text_contents()) is from_zero


@pytest.mark.slow
def test_the_name_of_a_level_is_written_where_fewer_points_are(open_page):
    x = [index / 10 for index in range(11)]
    ends = {"name": "c", "x": [0.0, 0.0], "y": [-3.0, 3.0], "style": "points"}
    level = [{"name": "no change", "y": 0.0}]
    for height in (-0.3, 0.3):
        points = {"name": "a", "x": x, "y": [height] * 11, "style": "points"}
        page = open_series(open_page, points, ends, levels=level)
        name, line = page.locator(".level-name"), page.locator("line.level")
        below = float(name.get_attribute("y")) - float(line.get_attribute("y1"))
        assert below * height > 0  # down is positive: the name is on the other side
