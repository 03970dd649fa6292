"""Line charts on the page: exact values, gaps, thinning, bands and logarithmic axes."""

import re

import pytest

from .documents import make_kinds_document, report_of

PATHS = "all => all.map(path => path.getAttribute('d'))"
PLACES = "all => all.map(c => Number(c.getAttribute('cx')))"
SERIES = {
    "name": "each",
    "x": [1, 10, 100],
    "y": [0.2, 0.6, 0.4],
    "low": [0.1, 0.5, 0.3],
    "high": [0.3, 0.7, 0.5],
}


def open_series(open_page, *charts):
    """Open a page of charts: those of the kinds, without levels and with series of their own."""
    lines = make_kinds_document()["sections"][1] | {"levels": [], "x_log": False}
    sections = [lines | {"figure": f"chart{n}"} | chart for n, chart in enumerate(charts)]
    return open_page(report_of(*sections))


def corners(path):
    """The corners of a path of straight strokes."""
    pairs = re.findall(r"[\d.-]+ [\d.-]+", path)
    return [[float(part) for part in corner.split()] for corner in pairs]


def test_gaps_stay_gaps_and_a_thinned_line_keeps_its_extremes(open_page):
    loss = {"name": "loss", "x": [0, 1, 2, 3, 4], "y": [2.0, 1.0, float("nan"), None, 0.125]}
    losses = [1.0] * 15000
    losses[7001], losses[9001] = 9.0, -7.0
    long = {"name": "loss", "x": list(range(15000)), "y": losses}
    page = open_series(open_page, {"series": [loss]}, {"series": [long]})
    one, other = page.locator(".lines-section").all()
    chart = one.locator(".chart")
    paths = chart.locator("path.series").evaluate_all(PATHS)
    assert [len(re.findall("[ML]", path)) for path in paths] == [2, 1]
    assert one.locator(".note").inner_text() == "2 values not finite, left as gaps."
    output = one.locator(".legend output")
    chart.focus()
    page.keyboard.press("Home")
    assert output.inner_text() == "2 at 0"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert output.inner_text() == "n/a at 2"
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 100)
    assert output.inner_text() == "0.125 at 4"
    ticks = other.locator(".chart text").all_text_contents()
    band = other.locator(".chart .envelope").evaluate(
        "node => { const b = node.getBBox(); return [b.y, b.height] }"
    )
    # The band spans 16 of the 17.6 units between the padded ends of the axis.
    assert band[1] == pytest.approx((320 - 14 - 40) * 16 / 17.6, rel=0.01)
    assert "smallest to largest" in other.locator(".note").inner_text()
    assert "−5" in ticks
    path = other.locator(".chart path.series").first
    before = path.get_attribute("d")
    button = other.get_by_role("button", name="Log scale")
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


def test_bands_are_named_and_points_that_a_logarithmic_axis_cannot_show_are_counted(open_page):
    bands = [
        {"name": "nine in ten", "low": [0.0, 0.1, None], "high": [1.0, 0.9, None]},
        {"name": "the middle half", "low": [0.4, 0.4, None], "high": [0.6, 0.6, None]},
    ]
    median = {"name": "median", "x": [0, 1, 2], "y": [0.5, 0.5, None], "bands": bands}
    each = SERIES | {"x": [0, 16, 64]}
    page = open_series(open_page, {"series": [median]}, {"series": [each], "x_log": True})
    one, other = page.locator(".lines-section").all()
    assert one.locator(".chart path.band").count() == 2
    names, outputs = one.locator(".legend li span"), one.locator(".legend output")
    assert names.all_inner_texts() == ["median", "nine in ten", "the middle half"]
    # Without a place the last value there is.
    assert outputs.all_inner_texts() == ["0.500 at 1", "0.100 to 0.900", "0.400 to 0.600"]
    assert "interval around" not in one.locator(".note").inner_text()
    assert "1 point at length 0 or below cannot be drawn" in other.locator(".note").inner_text()
    assert other.locator("circle.point").count() == 2
