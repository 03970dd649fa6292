"""Traces and verdicts on the page: stepping, playing, choosing, heads and their maps."""

import re

import pytest

from .documents import (
    make_cross_document,
    make_document,
)
from .views import hatched, numbers, picture, read_cell, said, shown_weights, written


def test_steps_by_button_change_the_pictured_weights(open_page):
    document = make_document(num_steps=10)
    page = open_page(document)
    page.locator(".chooser select").select_option(label="cab")
    trace = next(t for t in document["sections"][3]["traces"] if t["input"] == ["c", "a", "b"])
    for k, step in enumerate(trace["steps"]):
        chance = step["probabilities"][step["candidates"].index(step["choice"])]
        prefix = " ".join(trace["tokens"][: 4 + k])
        assert said(page) == (
            f"Step {k + 1} of 3: after {prefix}, the model looks back from "
            f"{trace['tokens'][3 + k]} and picks {step['choice']} with probability {chance:.3f}."
        )
        row = trace["attention"][0]["rows"][step["position"]]
        pictured = [title.rsplit(" ", 1)[1] for title in shown_weights(page)]
        assert pictured == [f"{weight:.3f}" for weight in row] + ["masked"] * (7 - len(row))
        assert read_cell(page, 0, 3 + k, 1) == (
            f"Query {3 + k} ‘{trace['tokens'][3 + k]}’ → key 1 ‘a’: {row[1]:.5g}"
        )
        assert page.locator(".token.query").inner_text() == trace["tokens"][3 + k]
        assert page.locator(".token.next").inner_text() == step["choice"]
        assert page.locator(".chances .is-choice .word").inner_text() == step["choice"]
        if k < 2:
            page.get_by_role("button", name="Next step").click()
    assert page.get_by_role("button", name="Next step").is_disabled()
    page.get_by_role("button", name="Previous step").click()
    assert said(page).startswith("Step 2 of 3")


def test_keys_step_and_read_cells_of_a_map_whose_row_is_its_step(open_page):
    document = make_document(num_steps=10)
    page = open_page(document)
    page.locator(".stepper").scroll_into_view_if_needed()
    before = shown_weights(page)
    page.keyboard.press("ArrowRight")
    assert said(page).startswith("Step 2 of 3")
    assert shown_weights(page) != before
    page.get_by_role("button", name="Next step").focus()
    page.keyboard.press("ArrowRight")
    assert said(page).startswith("Step 3 of 3")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert shown_weights(page) == before
    page.get_by_label("Input", exact=True).focus()
    page.keyboard.press("ArrowRight")
    assert said(page).startswith("Step 1 of 3")
    page.get_by_role("button", name="Next step").click()
    page.locator("canvas.heatmap").first.focus()
    page.keyboard.press("Home")
    trace = next(t for t in document["sections"][3]["traces"] if t["input"] == ["c", "b", "a"])
    reading = page.locator(".map-reading").first

    def weight(head, row, column):
        return f"{trace['attention'][head]['rows'][row][column]:.5g}"

    assert reading.inner_text() == f"Query 4 ‘a’ → key 0 ‘c’: {weight(0, 4, 0)}"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    assert reading.inner_text() == f"Query 3 ‘SEP’ → key 1 ‘b’: {weight(0, 3, 1)}"
    assert said(page).startswith("Step 1 of 3")
    # The other head is read at the same cell.
    other = page.locator(".map-reading").nth(1)
    assert other.inner_text() == f"Query 3 ‘SEP’ → key 1 ‘b’: {weight(1, 3, 1)}"
    page.keyboard.press("ArrowUp")  # to a letter of the input, where no step begins
    assert said(page).startswith("Step 1 of 3")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('canvas.heatmap')")


@pytest.mark.slow
@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_playing_walks_to_the_last_step_and_stops_without_motion_where_asked(open_page, motion):
    page = open_page(make_document(num_steps=10), reduced_motion=motion)
    page.clock.install()
    page.get_by_role("button", name="Play").click()
    if motion == "reduce":  # a slower walk
        style = "node => getComputedStyle(node).transitionDuration"
        assert page.locator(".column i").first.evaluate(style) == "0s"
        page.clock.run_for(1300)
    assert said(page).startswith("Step 2 of 3")
    page.clock.run_for(1300)
    assert said(page).startswith("Step 3 of 3")
    if motion != "reduce":
        page.clock.run_for(1300)
        assert page.locator(".play").inner_text() == "▶ Play"


def test_choosing_another_input_changes_everything_pictured(open_page):
    page = open_page(make_document(num_steps=10))
    assert page.get_by_role("button", name=re.compile("Only wrong")).count() == 0
    field = page.get_by_label("Input", exact=True)
    before = shown_weights(page), picture(page), said(page)
    field.fill("b c, a")
    assert "after b c a SEP" in said(page)
    by_typing = shown_weights(page), picture(page), said(page)
    assert all(one != other for one, other in zip(before, by_typing, strict=True))
    page.get_by_role("button", name="Next input").click()
    assert "after b c b SEP" in said(page)
    page.get_by_role("button", name="Previous input").click()
    assert (shown_weights(page), picture(page), said(page)) == by_typing
    page.locator(".chooser select").select_option(label="aab")
    assert "after a a b SEP" in said(page)
    assert field.input_value() == "aab"
    # What is typed is completed, or refused in a sentence.
    message, before = page.locator(".chooser .message"), said(page)
    field.fill("xyz")
    assert message.inner_text() == (
        "“xyz” is not among the 27 inputs recorded here; each has 3 tokens from a b c, "
        "for example aaa, aab, aac, aba, …."
    )
    assert field.get_attribute("aria-invalid") == "true"
    assert said(page) == before
    field.fill("ca")
    assert message.inner_text().startswith("3 inputs begin so: caa, cab, cac.")
    assert page.locator(".chooser option").all_inner_texts() == ["caa", "cab", "cac"]
    field.press("Enter")
    assert "after c a a SEP" in said(page)
    assert page.locator(".chooser option").count() == 27


def test_masked_keys_are_not_drawn_as_zero_and_wrong_verdicts_lead_to_their_trace(open_page):
    page = open_page(make_document(num_wrong=3, num_steps=10))
    for row in range(4):  # later rows are faint
        for column in (row, row + 1):
            assert hatched(page, 0, row, column) == (column > row), (row, column)
    assert len(numbers(page)) == 21
    assert read_cell(page, 0, 0, 1) == "Query 0 ‘c’ may not attend to key 1 ‘b’: masked."
    # A click on a row goes to its step, and one on a head's name draws its arcs.
    read_cell(page, 1, 5, 0)
    page.mouse.down()
    page.mouse.up()
    assert said(page).startswith("Step 3 of 3")
    arcs = "[...document.querySelectorAll('.arcs path')].map(p => p.getAttribute('stroke-width'))"
    before, head = page.evaluate(arcs), page.get_by_role("button", name="0.1", exact=True)
    head.click()
    assert page.evaluate(arcs) != before
    assert head.get_attribute("aria-pressed") == "true"
    wrong = page.locator(".cell.wrong")
    assert wrong.count() == 3
    assert "✗" in wrong.first.inner_text()
    assert "expected abc" in wrong.first.inner_text()
    page.get_by_role("button", name="Only wrong (3)").click()
    assert page.locator(".cell:visible").count() == 3
    wrong.nth(1).click()
    assert "after b a c SEP" in said(page)
    assert page.locator(".stepper").is_visible()


def test_cross_attention_names_its_own_keys_and_gaps_are_worded(open_page):
    page = open_page(make_cross_document())
    assert page.locator(".map h4").nth(1).inner_text().startswith("Head cross 0.0")
    assert "shade: linear" in page.locator(".maps-part .scale").inner_text()
    assert set(written(page, 1)) > {"the", "cat", "sleeps", "<end>"}
    assert not hatched(page, 1, 0, 3)
    assert (
        "Head cross 0.0 looks most at ‘cat’, position 1 (0.625)"
        in page.locator(".said + .note").inner_text()
    )
    assert page.locator(".chances li").count() == 13
    assert page.locator(".chances .rest").inner_text().startswith("11 others")
    assert "n/a" in [each["text"] for each in numbers(page)]
