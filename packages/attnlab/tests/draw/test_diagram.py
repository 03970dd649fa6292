"""Diagrams: where words and arrow heads go, and the SVG that needs no script."""

import math
import re
from typing import Any

import pytest

from attnlab.draw.diagram import lay_out
from attnlab.draw.page import render_page
from tests.sampling import sampled

from .documents import PAYLOADS, content_of, make_box, make_kinds_document, section_of


def diagram(**changes: Any) -> Any:
    return section_of(make_kinds_document()["sections"][3] | changes)


def box(**changes: Any) -> dict[str, Any]:
    return make_box(0, 0, 120, 40, title="box") | changes


def test_a_box_around_others_wears_its_title_at_the_top():
    layout = lay_out(diagram())
    assert [frame.words for frame in layout.frames] == ["Layer: twice"]
    assert [each.words for each in layout.boxes] == ["Feed-forward", "Attention: 2 heads", "input"]
    title = layout.frames[0].lines[0]
    assert (title.anchor, title.x) == ("start", 70)
    assert 20 < title.y < 45


def test_words_stand_in_the_middle_of_their_box_in_lines_that_fit():
    (only,) = lay_out(
        diagram(boxes=[box(width=100, height=90, title="a title of many words", note="note")])
    ).boxes
    assert len(only.lines) > 2
    assert all(line.x == 50 for line in only.lines)
    # Letters reach three quarters of a line above their baseline, and a quarter below it.
    assert only.lines[0].y - 0.75 * 17 == pytest.approx(90 - (only.lines[-1].y + 0.25 * 15))
    assert all(len(line.text) * 7.6 <= 100 for line in only.lines)
    assert " ".join(line.text for line in only.lines) == "a title of many words note"


def test_what_has_no_room_is_cut_and_kept_in_the_tooltip():
    long = box(title="a title of many words", note="a long note indeed")
    (only,), (taller,) = (
        lay_out(diagram(boxes=[long | {"height": height}])).boxes for height in (40, 60)
    )
    assert [line.text for line in only.lines] == ["a title of", "many words …"]
    assert [line.text for line in taller.lines] == ["a title of", "many words", "a long note…"]
    assert only.words == "a title of many words: a long note indeed"


@pytest.mark.parametrize("tip", [[90, 50], [10, 50], [50, 90], [50, 10], [80, 90]])
def test_an_arrow_ends_in_a_head_whose_tip_is_its_last_point(tip):
    arrows = [{"points": [[50, 50], tip]}, {"points": [[5, 5], [5, 5]]}]
    arrow, without_length = lay_out(diagram(boxes=[], arrows=arrows)).arrows
    head, left, right = arrow.head
    assert head == tuple(tip)
    assert math.dist(head, left) == pytest.approx(math.dist(head, right))
    # The shaft comes from the start, and ends in the middle of the head's base.
    assert arrow.shaft[0] == (50, 50)
    assert tuple(tip) not in arrow.shaft
    assert arrow.shaft[-1] == pytest.approx(((left[0] + right[0]) / 2, (left[1] + right[1]) / 2))
    assert without_length.head == ()


def test_a_label_at_the_edge_turns_inward():
    arrows = [
        {"points": [[450, 10], [450, 200]], "label": "residual"},
        {"points": [[9, 9], [20, 9]], "label": "start"},
    ]
    upright, flat = (arrow.label for arrow in lay_out(diagram(boxes=[], arrows=arrows)).arrows)
    assert (upright.anchor, upright.x) == ("end", 443)
    assert flat.x == pytest.approx(5 * 6.5 / 2)


def test_a_diagram_is_there_without_javascript_and_keeps_its_size_on_narrow_screens(open_page):
    page = open_page(make_kinds_document(), width=360, java_script_enabled=False)
    drawing = page.locator("svg.drawing")
    size = drawing.bounding_box()
    assert (size["width"], size["height"]) == (460, 260)
    assert drawing.locator("rect").count() == 4
    assert drawing.locator("polygon").count() == 3
    assert page.locator(".diagram-section .scroll").bounding_box()["width"] < 360
    words = "Layer: twice; Feed-forward; Attention: 2 heads; input"
    assert page.get_by_role("img", name=words).count() == 1


@pytest.mark.parametrize("scheme", sampled(["dark", "light"], 1))
def test_words_of_a_diagram_stand_out_and_stay_inside_their_boxes(open_page, scheme):
    page = open_page(make_kinds_document(), color_scheme=scheme)
    inks = page.locator("svg.drawing text").evaluate_all(
        "all => all.map(t => getComputedStyle(t).fill)"
    )
    paper = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    light = [sum(map(int, re.findall(r"\d+", ink)[:3])) / 765 for ink in [paper, *inks]]
    assert all(abs(ink - light[0]) > 0.35 for ink in light[1:])
    outside = page.locator("svg.drawing .box").evaluate_all(
        """all => all.filter(group => {
          const box = group.querySelector('rect').getBBox();
          return [...group.querySelectorAll('text')].map(t => t.getBBox()).some(t =>
            t.x < box.x || t.y < box.y || t.x + t.width > box.x + box.width
            || t.y + t.height > box.y + box.height);
        }).length"""
    )
    assert outside == 0


def test_hostile_words_in_a_diagram_stay_words():
    document = make_kinds_document()
    document["sections"][3]["boxes"] = [
        box(x=0, y=0, width=460, height=260, title="".join(PAYLOADS), note=PAYLOADS[2])
    ]
    document["sections"][3]["arrows"][0]["label"] = PAYLOADS[0]
    html = render_page(content_of(document))
    assert "<script>window.canary" not in html
    assert "<img" not in html
    assert html.count("<script") == render_page(content_of(make_kinds_document())).count("<script")
