"""Line charts on the page: exact values, gaps, thinning, bands and logarithmic axes."""

import re

import pytest

from .documents import make_document, make_kinds_document
from .views import Open


def test_crosshair_reads_exact_values_and_gaps_stay_gaps(open_page: Open) -> None:
    document = make_document(num_steps=10)
    document["sections"][1]["series"] = [
        {"name": "loss", "x": [0, 1, 2, 3, 4], "y": [2.0, 1.0, float("nan"), None, 0.125]}
    ]
    page = open_page(document)
    chart = page.locator(".chart")
    paths = chart.locator("path.series").evaluate_all("all => all.map(p => p.getAttribute('d'))")
    assert [len(re.findall("[ML]", path)) for path in paths] == [2, 1]
    assert page.locator(".lines-section .note").inner_text() == "2 values not finite, left as gaps."
    output = page.locator(".legend output")
    chart.focus()
    page.keyboard.press("Home")
    assert output.inner_text() == "2 at step 0"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert output.inner_text() == "n/a at step 2"
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 100)
    assert output.inner_text() == "0.12500 at step 4"


def test_thinned_line_keeps_the_smallest_and_the_largest_value(open_page: Open) -> None:
    document = make_document()
    losses = [1.0] * 15000
    losses[7001], losses[9001] = 9.0, -7.0
    document["sections"][1]["series"] = [{"name": "loss", "x": list(range(15000)), "y": losses}]
    document["sections"][1]["levels"] = []
    page = open_page(document)
    ticks = page.locator(".chart text").all_text_contents()
    band = page.locator(".chart .envelope").evaluate("node => { const b = node.getBBox(); return [b.y, b.height] }")
    # The band spans 16 of the 17.6 units between the padded ends of the axis.
    assert band[1] == pytest.approx((320 - 14 - 40) * 16 / 17.6, rel=0.01)
    assert "smallest to largest" in page.locator(".lines-section .note").inner_text()
    assert "−5" in ticks


def test_log_scale_is_a_switch(open_page: Open) -> None:
    page = open_page(make_document(num_steps=100))
    path = page.locator(".chart path.series").first
    before = path.get_attribute("d")
    page.get_by_role("button", name="Log scale").click()
    assert path.get_attribute("d") != before
    assert page.get_by_role("button", name="Log scale").get_attribute("aria-pressed") == "true"


def numbers(path: str) -> list[list[float]]:
    """The corners of a path of straight strokes."""
    return [[float(part) for part in corner.split()] for corner in re.findall(r"[\d.-]+ [\d.-]+", path)]


def test_a_band_spans_the_interval_and_stops_at_gaps(open_page: Open) -> None:
    page = open_page(make_kinds_document())
    chart = page.locator(".lines-section .chart")
    bands = chart.locator("path.band")
    assert bands.count() == 1  # 8 to 16; the point after the gap stands alone
    high8, high16, low16, low8 = numbers(bands.get_attribute("d"))
    assert high8[0] == low8[0]
    assert high16[0] == low16[0]
    # Heights of the interval in pixels have the ratio of the intervals: 0.1 and 0.2.
    assert (low16[1] - high16[1]) / (low8[1] - high8[1]) == pytest.approx(2, rel=0.01)
    assert chart.locator("path.series").count() == 3  # the interval of the last point, the line, the last point
    assert "Shaded: the interval around each value." in page.locator(".lines-section .note").inner_text()


def test_a_logarithmic_x_axis_spaces_equal_ratios_equally_and_names_its_places(open_page: Open) -> None:
    page = open_page(make_kinds_document())
    chart = page.locator(".lines-section .chart")
    dots = chart.locator("circle.point").evaluate_all("all => all.map(c => Number(c.getAttribute('cx')))")
    assert len(dots) == 3
    assert (dots[2] - dots[1]) / (dots[1] - dots[0]) == pytest.approx(2, rel=0.001)
    ticks = chart.locator("text").all_text_contents()
    assert [tick for tick in ticks if tick in ("8", "16", "32", "64")] == ["8", "16", "32", "64"]


def test_the_legend_reads_the_interval_at_the_nearest_place_on_the_screen(open_page: Open) -> None:
    page = open_page(make_kinds_document())
    chart = page.locator(".lines-section .chart")
    output = page.locator(".lines-section .legend output")
    chart.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert output.inner_text() == "0.75000 (0.65 to 0.85) at length 16"
    # On the screen 16 · 2^0.55 = 23.4 lies nearer to 32, which has no value, though 23.4 - 16 < 32 - 23.4.
    dots = chart.locator("circle.point").evaluate_all("all => all.map(c => Number(c.getAttribute('cx')))")
    box = chart.bounding_box()
    page.mouse.move(box["x"] + dots[1] + 0.55 * (dots[1] - dots[0]), box["y"] + 100)
    assert output.inner_text() == "n/a at length 32"


def test_points_that_a_logarithmic_axis_cannot_show_are_counted(open_page: Open) -> None:
    document = make_kinds_document()
    document["sections"][1]["series"][0]["x"] = [0, 16, 32, 64]
    page = open_page(document)
    assert "1 point at length 0 or below cannot be drawn" in page.locator(".lines-section .note").inner_text()
    assert page.locator(".lines-section circle.point").count() == 2


def test_small_values_of_a_logarithmic_axis_do_not_write_over_its_name(open_page: Open) -> None:
    document = make_kinds_document()
    document["sections"][1] |= {
        "y_log": True,
        "series": [{"name": "a", "x": [1, 10], "y": [1.0, 0.00002]}],
        "levels": [],
    }
    page = open_page(document)
    ticks = page.locator(".lines-section .chart text").all_text_contents()
    assert "1e−4" in ticks
    left = page.locator(".lines-section .chart text[text-anchor=end]").evaluate_all(
        "all => Math.min(...all.map(t => t.getBBox().x))"
    )
    assert left >= 18
