"""Bars on the page: heights, whiskers, gaps, reading by pointer and keyboard, names that fit."""

import pytest

from .documents import make_kinds_document, report_of

READING = ".bars-section .reading-line"


def boxes(page, what):
    return page.locator(f".bars-section {what}").evaluate_all(
        "all => all.map(n => { const b = n.getBBox(); return {x: b.x, y: b.y, width: "
        "b.width, height: b.height} })"
    )


def test_bars_stand_at_their_values_and_are_read_by_keyboard_pointer_and_description(open_page):
    page = open_page(make_kinds_document())
    pillars = boxes(page, "rect.pillar")
    assert len(pillars) == 3  # the fourth has no value
    full, longer, without = (bar["height"] for bar in pillars)
    assert (longer / full, without / full) == pytest.approx((0.9 / 0.96, 0.5 / 0.96), rel=0.001)
    assert len({round(bar["y"] + bar["height"], 1) for bar in pillars}) == 1
    assert "n/a" in page.locator(".bars-section .chart text").all_text_contents()
    heights = [each["height"] / (full / 0.96) for each in boxes(page, ".whisker:not(.halo)")]
    assert heights == pytest.approx([0.04, 0.04, 0.2], abs=0.001)
    (level,) = boxes(page, ".chart .level")
    foot = pillars[0]["y"] + full
    assert (foot - level["y"]) / full == pytest.approx(0.25 / 0.96, rel=0.001)
    names = page.locator(".bars-section .legend li").all_inner_texts()
    assert names == ["seen lengths", "longer", "chance"]
    assert "a whisker is the interval" in page.locator(".bars-section .look").inner_text()
    chart, reading = page.locator(".bars-section .chart"), page.locator(READING)
    chart.focus()
    read = []
    for _ in range(5):
        page.keyboard.press("ArrowRight")
        read.append(reading.inner_text())
    assert read == [
        "full model, seen lengths: 0.960 (0.940 to 0.980)",
        "full model, longer: 0.900 (0.880 to 0.920)",
        "no positions, seen lengths: 0.500 (0.400 to 0.600)",
        "no positions, longer: no value",
        "no positions, longer: no value",
    ]
    page.keyboard.press("Home")
    assert page.locator("rect.pillar.read").count() == 1
    assert reading.inner_text() == read[0]
    bar = page.locator(".bars-section rect.pillar").nth(2).bounding_box()
    page.mouse.move(bar["x"] + 4, bar["y"] + 4)
    assert reading.inner_text() == read[2]
    page.mouse.move(1, 1)
    assert reading.inner_text().startswith("Point at a bar")
    assert read[2] in chart.get_attribute("aria-label")


@pytest.mark.parametrize(
    ("width", "sizes"), [(360, [(2, 60), (12, 30), (300, 3)]), (1280, [(40, 12)])]
)
def test_names_of_groups_stay_inside_and_bars_without_intervals_promise_no_whisker(
    open_page, width, sizes
):
    bars = make_kinds_document()["sections"][0] | {"levels": []}
    sections = [
        bars
        | {
            "groups": [f"{i} {'word ' * 20}"[:length] for i in range(number)],
            "series": [{"name": "", "values": [0.5] * number}],
            "figure": f"bars{number}",
        }
        for number, length in sizes
    ]
    page = open_page(report_of(*sections), width=width)
    outside = """svg => [...svg.querySelectorAll('.group-name')].filter(name => {
      const [a, b] = [name.getBoundingClientRect(), svg.getBoundingClientRect()];
      return a.left < b.left - 1 || a.right > b.right + 1 || a.bottom > b.bottom + 1;
    }).map(name => name.textContent)"""
    for chart in page.locator(".bars-section .chart").all():
        assert chart.evaluate(outside) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator(".whisker").count() == 0
    looks = page.locator(".bars-section .look").all_inner_texts()
    assert looks == ["Compare the heights."] * len(sizes)
