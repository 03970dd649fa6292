"""Diagrams: the SVG that needs no script."""

import re

from attnlab.draw.page import render_page

from .documents import PAYLOADS, content_of, make_box, make_kinds_document


def test_a_diagram_needs_no_script_keeps_its_size_and_its_words_inside_their_boxes(open_page):
    page = open_page(make_kinds_document(), width=360, java_script_enabled=False)
    drawing = page.locator("svg.drawing")
    size = drawing.bounding_box()
    assert (size["width"], size["height"]) == (460, 260)
    assert drawing.locator("rect").count() == 3
    assert drawing.locator("polyline").count() == 3
    assert page.locator(".diagram-section .scroll").bounding_box()["width"] < 360
    words = "Feed-forward; Attention; input"
    assert page.get_by_role("img", name=words).count() == 1
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        inks = drawing.locator("text").evaluate_all("all => all.map(t => getComputedStyle(t).fill)")
        paper = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        light = [sum(map(int, re.findall(r"\d+", ink)[:3])) / 765 for ink in [paper, *inks]]
        assert all(abs(ink - light[0]) > 0.35 for ink in light[1:])
    outside = drawing.locator(".box").evaluate_all(
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
    document["sections"][3]["boxes"] = [make_box(0, 0, 460, 260, title="".join(PAYLOADS))]
    html = render_page(content_of(document))
    assert "<script>window.canary" not in html
    assert "<img" not in html
    assert html.count("<script") == render_page(content_of(make_kinds_document())).count("<script")
