"""Line charts on the page: exact values, gaps, thinning, bands and logarithmic axes."""

import itertools
import re
from typing import Any

import pytest

from .documents import make_document, make_kinds_document
from .views import Open


def test_crosshair_reads_values_and_gaps_stay_gaps(open_page: Open) -> None:
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
    assert output.inner_text() == "2 at 0"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert output.inner_text() == "n/a at 2"
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 100)
    assert output.inner_text() == "0.125 at 4"


def test_thinned_line_keeps_the_smallest_and_the_largest_value(open_page: Open) -> None:
    document = make_document()
    losses = [1.0] * 15000
    losses[7001], losses[9001] = 9.0, -7.0
    document["sections"][1]["series"] = [{"name": "loss", "x": list(range(15000)), "y": losses}]
    document["sections"][1]["levels"] = []
    page = open_page(document)
    ticks = page.locator(".chart text").all_text_contents()
    band = page.locator(".chart .envelope").evaluate(
        "node => { const b = node.getBBox(); return [b.y, b.height] }"
    )
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
    return [
        [float(part) for part in corner.split()] for corner in re.findall(r"[\d.-]+ [\d.-]+", path)
    ]


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
    assert (
        chart.locator("path.series").count() == 3
    )  # the interval of the last point, the line, the last point
    assert (
        "Shaded: the interval around each value."
        in page.locator(".lines-section .note").inner_text()
    )


def test_a_logarithmic_x_axis_spaces_equal_ratios_equally_and_names_its_places(
    open_page: Open,
) -> None:
    page = open_page(make_kinds_document())
    chart = page.locator(".lines-section .chart")
    dots = chart.locator("circle.point").evaluate_all(
        "all => all.map(c => Number(c.getAttribute('cx')))"
    )
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
    assert output.inner_text() == "0.750 (0.650 to 0.850) at 16"
    # On the screen 16 · 2^0.55 = 23.4 lies nearer to 32, which has no value, though 23.4 - 16 < 32
    # - 23.4.
    dots = chart.locator("circle.point").evaluate_all(
        "all => all.map(c => Number(c.getAttribute('cx')))"
    )
    box = chart.bounding_box()
    page.mouse.move(box["x"] + dots[1] + 0.55 * (dots[1] - dots[0]), box["y"] + 100)
    assert output.inner_text() == "n/a at 32"


def test_points_that_a_logarithmic_axis_cannot_show_are_counted(open_page: Open) -> None:
    document = make_kinds_document()
    document["sections"][1]["series"][0]["x"] = [0, 16, 32, 64]
    page = open_page(document)
    assert (
        "1 point at length 0 or below cannot be drawn"
        in page.locator(".lines-section .note").inner_text()
    )
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


def test_an_interval_is_read_only_where_it_can_be_seen(open_page: Open) -> None:
    document = make_kinds_document()
    document["sections"][1]["series"] = [
        {"name": name, "x": [1024], "y": [y], "low": [low], "high": [high]}
        for name, y, low, high in [
            ("wide", 0.51372, 0.5075, 0.52),
            ("none", 110.04, 110.04, 110.04),
            ("unseen", 0.19131, 0.191301, 0.191319),
            ("unknown", 0.5, None, 0.6),
            ("near one", 1.0, 0.9999999, 1.0),
        ]
    ]
    page = open_page(document)
    assert page.locator(".lines-section .legend output").all_inner_texts() == [
        "0.514 (0.508 to 0.520) at 1,024",
        "110 at 1,024",
        "0.191 at 1,024",
        "0.500 at 1,024",
        "1 at 1,024",
    ]


def test_places_are_read_as_they_are(open_page: Open) -> None:
    document = make_kinds_document()
    places = [-19.875, 3.16e-8, 2.0, 1e10]
    document["sections"][1] |= {
        "x_log": False,
        "series": [{"name": "a", "x": places, "y": [1.0] * 4}],
    }
    page = open_page(document)
    page.locator(".lines-section .chart").focus()
    page.keyboard.press("Home")
    read = [page.locator(".lines-section .legend output").inner_text()]
    for _ in range(3):
        page.keyboard.press("Shift+ArrowRight")
        read.append(page.locator(".lines-section .legend output").inner_text())
    assert read == ["1 at −19.875", "1 at 3.16e−8", "1 at 2", "1 at 1e10"]


@pytest.mark.parametrize("last", [2, 3, 4, 7, 10, 14, 17, 1000])
def test_between_whole_places_nothing_is_marked(open_page: Open, last: int) -> None:
    document = make_kinds_document()
    places = list(range(1, last + 1))
    document["sections"][1] |= {
        "x_log": False,
        "series": [{"name": "a", "x": places, "y": [0.5] * last}],
    }
    page = open_page(document)
    ticks = page.locator(".lines-section .chart text[y='299']").all_text_contents()
    assert 2 <= len(ticks) <= 11
    assert not any("." in tick for tick in ticks), ticks


def test_between_places_with_fractions_there_are_marks(open_page: Open) -> None:
    document = make_kinds_document()
    document["sections"][1] |= {
        "x_log": False,
        "series": [{"name": "a", "x": [1, 1.5, 2], "y": [0.5] * 3}],
    }
    ticks = open_page(document).locator(".lines-section .chart text[y='299']").all_text_contents()
    assert "1.4" in ticks or "1.5" in ticks or "1.50" in ticks


SERIES = {
    "name": "each",
    "x": [1, 10, 100],
    "y": [0.2, 0.6, 0.4],
    "low": [0.1, 0.5, 0.3],
    "high": [0.3, 0.7, 0.5],
}


def open_series(open_page: Open, series: list[dict[str, object]], **more: object) -> Any:
    document = make_kinds_document()
    document["sections"] = [{**document["sections"][1], "levels": [], "series": series, **more}]
    return open_page(document)


def test_points_have_whiskers_and_are_joined_by_nothing(open_page: Open) -> None:
    page = open_series(open_page, [{**SERIES, "style": "points"}], x_log=True)
    chart = page.locator(".chart")
    assert chart.locator("circle.point").count() == 3
    assert chart.locator("path.band").count() == 0
    strokes = [
        numbers(path)
        for path in chart.locator("path.series").evaluate_all(
            "a => a.map(p => p.getAttribute('d'))"
        )
    ]
    assert len(strokes) == 3
    assert all(one[0] == other[0] for one, other in strokes)  # upright
    assert "Vertical strokes: the interval around each point." in page.locator(".note").inner_text()
    ticks = chart.locator("text").all_text_contents()
    assert "2" in ticks  # round numbers, wherever points fell


def test_a_step_holds_until_the_next_value(open_page: Open) -> None:
    page = open_series(
        open_page,
        [{"name": "best", "x": [0, 1, 2], "y": [1.0, 1.0, 3.0], "style": "steps"}],
        x_log=False,
    )
    corners = numbers(page.locator(".chart path.series").first.get_attribute("d"))
    assert all(
        one[0] == other[0] or one[1] == other[1] for one, other in itertools.pairwise(corners)
    )
    assert len(corners) == 5


def test_bands_are_named_and_read_out_beside_one_line(open_page: Open) -> None:
    bands = [
        {"name": "nine in ten", "low": [0.0, 0.1, None], "high": [1.0, 0.9, None]},
        {"name": "the middle half", "low": [0.4, 0.4, None], "high": [0.6, 0.6, None]},
    ]
    series = [{"name": "median", "x": [0, 1, 2], "y": [0.5, 0.5, None], "bands": bands}]
    page = open_series(open_page, series, x_log=False)
    assert page.locator(".chart path.band").count() == 2
    assert page.locator(".legend li span").all_inner_texts() == [
        "median",
        "nine in ten",
        "the middle half",
    ]
    # Without a place the last value there is.
    assert page.locator(".legend output").all_inner_texts() == [
        "0.500 at 1",
        "0.100 to 0.900",
        "0.400 to 0.600",
    ]
    assert "interval around" not in page.locator(".note").inner_text()


def test_an_axis_from_zero_has_zero_on_it(open_page: Open) -> None:
    series = [{"name": "share", "x": [0, 1], "y": [0.8, 0.9]}]
    assert (
        "0.0"
        not in open_series(open_page, series, x_log=False)
        .locator(".chart text")
        .all_text_contents()
    )
    page = open_series(open_page, series, x_log=False, from_zero=True)
    assert "0.0" in page.locator(".chart text").all_text_contents()


def test_the_name_of_a_level_is_written_where_fewer_points_are(open_page: Open) -> None:
    x = [index / 10 for index in range(11)]
    below = {"name": "a", "x": x, "y": [-0.3] * 11, "style": "points"}
    above = {"name": "b", "x": x, "y": [0.3] * 11, "style": "points"}
    ends = {"name": "c", "x": [0.0, 0.0], "y": [-3.0, 3.0], "style": "points"}

    def place(series: dict[str, object]) -> float:
        page = open_series(
            open_page, [series, ends], x_log=False, levels=[{"name": "no change", "y": 0.0}]
        )
        name, line = page.locator(".level-name"), page.locator("line.level")
        return float(name.get_attribute("y")) - float(line.get_attribute("y1"))

    assert place(below) < 0 < place(above)
