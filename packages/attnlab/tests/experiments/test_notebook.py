"""A page in a notebook takes edits, without any notebook: see `live_page.py`."""

import json

import pytest
import torch
from live_page import LivePage, PlainWidget

import attnlab
from attnlab.draw.view import view_page
from attnlab.edits import CutEdge, ZeroHead, edits_from_json, edits_to_json
from attnlab.experiments import notebook
from attnlab.experiments.notebook import Asker, EditableView, PageState, result_of
from attnlab.look.questions import Continuation, Translation
from tests.random_models import new_model
from tests.sampling import sampled

NAMES = ["SEP", "a", "b", "c"]
CUT = CutEdge(layer=0, head=1, query=4, key=0)
OUT = ZeroHead(layer=1, head=0)


@pytest.fixture(autouse=True)
def _plain_widgets(monkeypatch):
    monkeypatch.setattr(notebook, "_widget_class", lambda: PlainWidget)


@pytest.fixture(scope="module")
def question():
    model = new_model("decoder", vocab_size=4, d_model=8, num_heads=2)
    return Continuation(model, torch.tensor([[3, 1, 2, 0]]), 3, NAMES, forbidden=[0])


def view_of(question):
    asker = Asker(lambda _seed, _text: question)
    return EditableView(view_page(attnlab.recorded(question)), asker)


def forms(*edits):
    return tuple(json.loads(edits_to_json(edits)))


@pytest.fixture
def live(blank, question):
    return opened(blank, view_of(question))


def opened(blank, shown, *, is_rendered=False):
    live = LivePage(blank, shown, is_rendered=is_rendered)
    live.frame.get_by_role("button", name="Cut squares").wait_for()
    return live


def walk_to(frame, row, column):
    """Go to a square of the map with the keyboard."""
    canvas = frame.locator("canvas.heatmap")
    frame.locator("#row-number").fill(str(row))
    for key in ("Home", *["ArrowRight"] * column):
        canvas.press(key)
    return canvas


@pytest.mark.parametrize("is_rendered", sampled([False, True], 1))
def test_what_is_done_on_the_page_comes_back_as_edits(blank, question, is_rendered):
    live = opened(blank, view_of(question), is_rendered=is_rendered)
    frame, shown = live.frame, live.shown
    frame.locator(".head[data-layer='0'][data-head='1']").click()
    frame.get_by_role("heading", name="Head 0.1").wait_for()
    walk_to(frame, 4, 0).press("x")
    assert edits_from_json(json.dumps(live.heard())) == [CUT]
    assert shown.edits == [CUT]
    frame.locator(".head[data-layer='1'][data-head='0']").click()
    frame.get_by_role("button", name="Knock out head 1.0").click()
    live.heard()
    assert shown.edits == [CUT, OUT]
    frame.get_by_role("button", name="Undo CutEdge layer=0 head=1 query=4 key=0").click()
    live.heard()
    assert shown.edits == [OUT]
    frame.get_by_role("button", name="Undo all").click()
    live.heard()
    assert shown.edits == []


def test_an_edit_of_cross_attention_says_which_part_it_is_for(blank):
    model = new_model("encoder-decoder", vocab_size=4, d_model=8, num_heads=2, num_layers=1)
    source, start = torch.tensor([[3, 1, 2]]), torch.tensor([[0]])
    live = opened(blank, view_of(Translation(model, source, ["c", "a", "b"], start, 2, NAMES)))
    frame = live.frame
    frame.get_by_label("Attention", exact=True).select_option(label="Decoder cross-attention")
    frame.get_by_role("heading", name="Head cross 0.0").wait_for()
    walk_to(frame, 1, 2).press("x")
    live.heard()
    site = "decoder.layers.0.cross_attention"
    assert live.shown.edits == [CutEdge(site=site, head=0, query=1, key=2)]
    live.answer()
    frame.get_by_label("Show", exact=True).wait_for()
    assert frame.locator(".map-part h2").inner_text() == "Head cross 0.0"


def test_a_click_cuts_only_while_the_tool_is_taken_and_a_finger_reads_a_square_before(live):
    frame, shown = live.frame, live.shown
    canvas = frame.locator("canvas.heatmap")
    box = canvas.evaluate("node => ({ ...node.dataset })")
    side = float(box["cellWidth"])
    at = {"x": float(box["left"]) + side / 2, "y": float(box["top"]) + 4.5 * side}
    canvas.click(position=at)
    frame.get_by_role("button", name="Cut squares").click()
    canvas.click(position=at)
    live.heard()
    assert shown.edits == [CutEdge(layer=0, head=0, query=4, key=0)]
    masked = {"x": float(box["left"]) + 4.5 * side, "y": float(box["top"]) + side / 2}
    canvas.click(position=masked)  # there is nothing to cut
    canvas.click(position=at)
    live.heard()
    assert shown.edits == []
    place, touch = canvas.bounding_box(), canvas.page.context.new_cdp_session(canvas.page)
    for key in (2, 1, 1):
        x = place["x"] + float(box["left"]) + (key + 0.5) * side
        y = place["y"] + float(box["top"]) + 4.5 * side
        for kind, points in ("touchStart", [{"x": x, "y": y}]), ("touchEnd", []):
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    live.heard()
    assert shown.edits == [CutEdge(layer=0, head=0, query=4, key=1)]


def test_the_models_answer_is_shown_before_and_after_with_the_difference(live, question):
    frame = live.frame
    plain = "Answer: " + " ".join(step.choice for step in question.trace().steps)
    assert frame.locator(".edit-answer > p").inner_text() == plain
    frame.get_by_role("button", name="Knock out head 0.0").click()
    live.heard()
    frame.get_by_text("The model answers …").wait_for()
    live.answer()
    frame.get_by_text("what the edits did").wait_for()
    expected = attnlab.fork(question, ZeroHead(layer=0, head=0))
    rows = frame.locator(".edit-answer tbody tr").all()
    for row, before, after in zip(rows, expected.before.steps, expected.after.steps, strict=True):
        cells = row.locator("td").all_text_contents()
        assert (cells[1], cells[3]) == (before.choice, after.choice)
        share = after.probabilities[after.candidates.index(after.choice)]
        assert float(cells[4]) == pytest.approx(share, abs=6e-4)
    assert "ZeroHead(layer=0, head=0)" in frame.locator(".edit-answer pre").text_content()
    choices = frame.get_by_label("Show", exact=True)
    assert choices.locator("option").all_inner_texts() == ["after − before", "before", "after"]
    frame.get_by_role("button", name="Undo all").click()
    live.heard()
    live.answer()
    choices.wait_for(state="hidden")
    assert frame.locator(".edit-answer > p").inner_text() == plain
    frame.get_by_role("button", name="Knock out head 0.0").click()
    live.heard()
    live.answer()
    choices.wait_for()
    live.shown.widget.edits = [ZeroHead(layer=7, head=0).to_json()]  # as an observer would
    live.put("edits")
    frame.get_by_text("The model answers …").wait_for()
    live.answer()
    frame.get_by_role("alert").get_by_text("layer=7 is out of range").wait_for()
    choices.wait_for(state="hidden")  # an error takes the place of the answer before it


def test_maps_without_a_model_keep_the_edits_for_python(blank):
    live = opened(blank, EditableView(view_page(torch.rand(2, 4, 4).softmax(-1))))
    assert live.frame.get_by_label("Input", exact=True).count() == 0
    live.frame.get_by_role("button", name="Knock out").click()
    live.heard()
    assert list(map(type, live.shown.edits)) == [ZeroHead]
    live.answer()
    live.frame.get_by_text("No model is behind these maps").wait_for()


def test_the_answer_of_the_kernel_is_that_of_a_fork(question):
    asker = Asker(lambda _seed, _text: question)
    found = result_of(PageState(edits=forms(CUT, OUT)), asker)
    expected = attnlab.fork(question, CUT, OUT)
    assert [step["after"]["choice"] for step in found["steps"]] == [
        step.choice for step in expected.after.steps
    ]
    assert found["certificate"] == str(expected.certificate)
    assert found["maps"]["variants"] == 2
    assert found["maps"]["change"] > 0


def test_no_edits_and_wrong_edits_are_answered_too(question):
    nothing = {"seed": "", "input": "", "edits": []}
    assert result_of(PageState(), None) == nothing
    out = forms(OUT)
    assert result_of(PageState(edits=out), None) == {**nothing, "edits": list(out)}
    wrong = PageState(edits=({"edit": "ZeroHed"},))
    assert "there is no edit 'ZeroHed'" in result_of(wrong, None)["error"]
    asker = Asker(lambda _seed, _text: question)
    plain = result_of(PageState(), asker, PageState())  # the page holds the maps of this state
    assert [step["after"] for step in plain["steps"]] == [step["before"] for step in plain["steps"]]
    assert "maps" not in plain


def test_a_real_widget_has_what_the_page_and_python_share(question, monkeypatch):
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    monkeypatch.undo()
    shown = view_of(question)
    shown.edits = [OUT]
    assert shown.widget.edits == list(forms(OUT))
    assert shown.edits == [OUT]
    assert shown.widget.result["steps"]
    assert shown.widget.frame in shown._repr_html_()
