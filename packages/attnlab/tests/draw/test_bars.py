"""Bars on the page: heights, whiskers, gaps, reading by pointer and keyboard, names that fit."""

from typing import Any

import pytest

from .documents import make_kinds_document
from .views import Open

READING = ".bars-section .reading-line"


def boxes(page: Any, what: str) -> list[dict[str, float]]:
    return page.locator(f".bars-section {what}").evaluate_all(
        "all => all.map(n => { const b = n.getBBox(); return {x: b.x, y: b.y, width: "
        "b.width, height: b.height} })"
    )


def test_bars_are_as_high_as_their_values_and_begin_at_zero(open_page: Open) -> None:
    page = open_page(make_kinds_document())
    pillars = boxes(page, "rect.pillar")
    assert len(pillars) == 3  # the fourth has no value
    full, longer, without = (bar["height"] for bar in pillars)
    assert (longer / full, without / full) == pytest.approx((0.9 / 0.96, 0.5 / 0.96), rel=0.001)
    feet = {round(bar["y"] + bar["height"], 1) for bar in pillars}
    assert len(feet) == 1
    assert "n/a" in page.locator(".bars-section .chart text").all_text_contents()


def test_whiskers_span_the_intervals(open_page: Open) -> None:
    page = open_page(make_kinds_document())
    pillars, whiskers = boxes(page, "rect.pillar"), boxes(page, ".whisker:not(.halo)")
    assert len(whiskers) == 3
    unit = pillars[0]["height"] / 0.96
    assert [whisker["height"] / unit for whisker in whiskers] == pytest.approx(
        [0.04, 0.04, 0.2], abs=0.001
    )


def test_arrow_keys_read_one_bar_after_the_other(open_page: Open) -> None:
    page = open_page(make_kinds_document())
    page.locator(".bars-section .chart").focus()
    read = []
    for _ in range(5):
        page.keyboard.press("ArrowRight")
        read.append(page.locator(READING).inner_text())
    assert read == [
        "full model, seen lengths: 0.960 (0.940 to 0.980)",
        "full model, longer: 0.900 (0.880 to 0.920)",
        "no positions, seen lengths: 0.500 (0.400 to 0.600)",
        "no positions, longer: no value",
        "no positions, longer: no value",
    ]
    page.keyboard.press("Home")
    assert page.locator("rect.pillar.read").count() == 1
    assert page.locator(READING).inner_text() == read[0]


def test_the_pointer_reads_the_bar_below_it(open_page: Open) -> None:
    page = open_page(make_kinds_document())
    bar = page.locator(".bars-section rect.pillar").nth(2).bounding_box()
    page.mouse.move(bar["x"] + 4, bar["y"] + 4)
    assert (
        page.locator(READING).inner_text() == "no positions, seen lengths: 0.500 (0.400 to 0.600)"
    )
    page.mouse.move(1, 1)
    assert page.locator(READING).inner_text().startswith("Point at a bar")


def test_levels_are_lines_at_their_height_and_named_in_the_legend(open_page: Open) -> None:
    page = open_page(make_kinds_document())
    (level,), pillars = boxes(page, ".chart .level"), boxes(page, "rect.pillar")
    foot = pillars[0]["y"] + pillars[0]["height"]
    assert (foot - level["y"]) / pillars[0]["height"] == pytest.approx(0.25 / 0.96, rel=0.001)
    assert page.locator(".bars-section .legend li").all_inner_texts() == [
        "seen lengths",
        "longer",
        "chance",
    ]


def test_bars_are_described_for_those_who_do_not_see_them(open_page: Open) -> None:
    page = open_page(make_kinds_document())
    words = page.locator(".bars-section .chart").get_attribute("aria-label")
    assert "no positions, seen lengths: 0.500 (0.400 to 0.600)" in words


def test_negative_bars_hang_from_zero(open_page: Open) -> None:
    document = make_kinds_document()
    document["sections"][0] |= {
        "groups": ["a", "b"],
        "series": [{"name": "", "values": [1.0, -2.0]}],
        "levels": [],
    }
    page = open_page(document)
    up, down = boxes(page, "rect.pillar")
    assert up["y"] + up["height"] == pytest.approx(down["y"], abs=0.1)
    assert down["height"] == pytest.approx(2 * up["height"], rel=0.001)


@pytest.mark.parametrize(
    ("num_groups", "length", "width"), [(2, 60, 360), (12, 30, 360), (40, 12, 1280), (300, 3, 360)]
)
def test_names_of_groups_stay_inside_the_picture(
    open_page: Open, num_groups: int, length: int, width: int
) -> None:
    document = make_kinds_document()
    names = [f"{i} {'word ' * 20}"[:length] for i in range(num_groups)]
    document["sections"][0] |= {
        "groups": names,
        "series": [{"name": "", "values": [0.5] * num_groups}],
    }
    page = open_page(document, width=width)
    outside = page.locator(".bars-section .chart").evaluate(
        """svg => [...svg.querySelectorAll('.group-name')].filter(name => {
          const [a, b] = [name.getBoundingClientRect(), svg.getBoundingClientRect()];
          return a.left < b.left - 1 || a.right > b.right + 1 || a.bottom > b.bottom + 1;
        }).map(name => name.textContent)"""
    )
    assert outside == []
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_bars_without_any_value_say_so(open_page: Open) -> None:
    document = make_kinds_document()
    document["sections"][0] |= {"groups": [], "series": []}
    assert (
        open_page(document).locator(".bars-section .stage").inner_text()
        == "There is no finite value to draw."
    )
