"""A page in a notebook takes edits, without any notebook: the widget's module runs in a blank page
beside a stub of the kernel's model."""

import json

import pytest
import torch

import attnlab
from attnlab.draw.bundle import bundle
from attnlab.draw.view import view_page
from attnlab.draw.view.page import Shown
from attnlab.edits import CutEdge, ZeroHead, edits_from_json, edits_to_json
from attnlab.experiments.notebook import Answerer, result_of
from attnlab.look.questions import Continuation, Translation

NAMES = ["SEP", "a", "b", "c"]
FRAME = "attnlab-1"
CUT = CutEdge(layer=0, head=1, query=4, key=0)
OUT = ZeroHead(layer=1, head=0)

# A widget's model as a notebook gives it: what is set is told at once, and kept when it is saved.
STUB = """([code, name, page]) => {
  const state = { frame: name, page, height: 700, has_model: true, edits: [] };
  state.result = { edits: [] };
  const listeners = {};
  window.saved = [];
  window.put = (key, value) => {
    state[key] = value;
    (listeners[`change:${key}`] ?? []).forEach((hear) => hear());
  };
  const model = {
    get: (key) => state[key], set: window.put, save_changes: () => window.saved.push(state.edits),
    on: (event, hear) => (listeners[event] ??= []).push(hear),
  };
  const file = new Blob([code], { type: "text/javascript" });
  return import(URL.createObjectURL(file)).then(({ default: widget }) => {
    widget.initialize({ model });
    if (page) widget.render({ model, el: document.body });
  });
}"""
CODE = f"{bundle('view/modules/widget.js')}export default widget;\n"


@pytest.fixture(scope="module")
def answerer():
    torch.manual_seed(0)
    config = attnlab.DecoderConfig(
        vocab_size=4, max_length=9, d_model=8, num_heads=2, num_layers=2, d_ff=8
    )
    model = attnlab.Decoder(config).eval()
    question = Continuation(model, torch.tensor([[3, 1, 2, 0]]), 3, NAMES, forbidden=[0])
    return Answerer(question)


@pytest.fixture
def blank(browser):
    """A blank page, which asks nothing of a network."""
    context = browser.new_context()
    asked = []
    try:
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        yield page
    finally:
        context.close()
    assert [url for url in asked if not url.startswith(("blob:", "data:"))] == []


def shown_in(page, html, is_rendered=False):
    """Show a page in a frame, as HTML or by the widget itself, with its widget."""
    page.set_content("" if is_rendered else Shown(html, name=FRAME)._repr_html_())
    page.evaluate(STUB, [CODE, FRAME, html if is_rendered else ""])
    frame = page.frame_locator("iframe")
    frame.get_by_role("button", name="Cut squares").wait_for()
    return frame


def saved(page, number):
    """Wait for so many changes, and return the last as edits."""
    page.wait_for_function("number => window.saved.length === number", arg=number)
    return edits_from_json(page.evaluate("window.saved.at(-1)"))


def tell(page, answerer):
    """Let the stub's kernel answer to the edits that it was told last."""
    result = result_of(page.evaluate("window.saved.at(-1)"), answerer)
    tiles = {name: list(tile) for name, tile in result.pop("tiles", {}).items()}
    page.evaluate(
        """([result, tiles]) => {
          const bytes = ([name, tile]) => [name, new DataView(Uint8Array.from(tile).buffer)];
          const packed = Object.fromEntries(Object.entries(tiles).map(bytes));
          window.put("result", { ...result, tiles: packed });
        }""",
        [result, tiles],
    )


def walk_to(frame, row, column):
    """Go to a square of the map with the keyboard."""
    canvas = frame.locator("canvas.heatmap")
    frame.locator("#row-number").fill(str(row))
    for key in ("Home", *["ArrowRight"] * column):
        canvas.press(key)
    return canvas


@pytest.mark.parametrize("is_rendered", [False, True])
def test_what_is_done_on_the_page_comes_back_as_edits(blank, answerer, is_rendered):
    frame = shown_in(blank, view_page(answerer.recording), is_rendered)
    frame.locator(".head[data-layer='0'][data-head='1']").click()
    frame.get_by_role("heading", name="Head 0.1").wait_for()
    walk_to(frame, 4, 0).press("x")
    assert saved(blank, 1) == [CUT]
    assert json.dumps(blank.evaluate("window.saved.at(-1)")) == edits_to_json([CUT])
    frame.locator(".head[data-layer='1'][data-head='0']").click()
    frame.get_by_role("button", name="Knock out head 1.0").click()
    assert saved(blank, 2) == [CUT, OUT]
    frame.get_by_role("button", name="Undo CutEdge layer=0 head=1 query=4 key=0").click()
    assert saved(blank, 3) == [OUT]
    frame.get_by_role("button", name="Undo all").click()
    assert saved(blank, 4) == []


def test_an_edit_of_cross_attention_says_which_part_it_is_for(blank):
    torch.manual_seed(0)
    config = attnlab.EncoderDecoderConfig(
        vocab_size=4, max_length=6, d_model=8, num_heads=2, num_layers=1
    )
    model = attnlab.EncoderDecoder(config).eval()
    source, start = torch.tensor([[3, 1, 2]]), torch.tensor([[0]])
    question = Translation(model, source, ["c", "a", "b"], start, 2, NAMES)
    answerer = Answerer(question)
    frame = shown_in(blank, view_page(answerer.recording))
    frame.get_by_label("Attention", exact=True).select_option(label="Decoder cross-attention")
    frame.get_by_role("heading", name="Head cross 0.0").wait_for()
    walk_to(frame, 1, 2).press("x")
    assert saved(blank, 1) == [
        CutEdge(site="decoder.layers.0.cross_attention", head=0, query=1, key=2)
    ]
    tell(blank, answerer)
    frame.get_by_label("Show", exact=True).wait_for()
    assert frame.locator(".map-part h2").inner_text() == "Head cross 0.0"


def test_a_click_cuts_only_while_the_tool_is_taken(blank, answerer):
    frame = shown_in(blank, view_page(answerer.recording))
    canvas = frame.locator("canvas.heatmap")
    box = canvas.evaluate("node => ({ ...node.dataset })")
    side = float(box["cellWidth"])
    at = {"x": float(box["left"]) + side / 2, "y": float(box["top"]) + 4.5 * side}
    canvas.click(position=at)
    frame.get_by_role("button", name="Cut squares").click()
    canvas.click(position=at)
    assert saved(blank, 1) == [CutEdge(layer=0, head=0, query=4, key=0)]
    masked = {"x": float(box["left"]) + 4.5 * side, "y": float(box["top"]) + side / 2}
    canvas.click(position=masked)  # there is nothing to cut
    canvas.click(position=at)
    assert saved(blank, 2) == []


def test_the_models_answer_is_shown_before_and_after_with_the_difference(blank, answerer):
    frame = shown_in(blank, view_page(answerer.recording))
    frame.get_by_role("button", name="Knock out head 0.0").click()
    saved(blank, 1)
    frame.get_by_text("The model answers …").wait_for()
    tell(blank, answerer)
    steps = frame.locator(".edit-answer tbody tr")
    steps.first.wait_for(state="attached")
    expected = attnlab.fork(answerer._question, ZeroHead(layer=0, head=0))
    for row, before, after in zip(
        steps.all(), expected.before.steps, expected.after.steps, strict=True
    ):
        cells = row.locator("td").all_text_contents()
        assert (cells[1], cells[3]) == (before.choice, after.choice)
        share = after.probabilities[after.candidates.index(after.choice)]
        assert float(cells[4]) == pytest.approx(share, abs=6e-4)
    assert "ZeroHead(layer=0, head=0)" in frame.locator(".edit-answer pre").text_content()
    choices = frame.get_by_label("Show", exact=True)
    assert choices.locator("option").all_inner_texts() == ["after − before", "before", "after"]
    frame.get_by_role("button", name="Undo all").click()
    saved(blank, 2)
    choices.wait_for(state="hidden")
    assert frame.locator(".edit-answer").inner_text() == ""


def test_a_cut_square_has_no_weight_after_the_edit_and_one_before(blank, answerer):
    frame = shown_in(blank, view_page(answerer.recording))
    walk_to(frame, 4, 1).press("x")
    saved(blank, 1)
    tell(blank, answerer)
    choices = frame.get_by_label("Show", exact=True)
    choices.wait_for()
    weights = answerer.recording["layers.0.attention.weights"][0, 0, 4, 1]
    for choice, expected in (("after", 0), ("before", float(weights))):
        choices.select_option(label=choice)
        walk_to(frame, 4, 1)
        reading = frame.locator(".map-reading").inner_text()
        value, bound = reading.rpartition(": ")[2].split(" ± ")
        assert abs(float(value) - expected) <= float(bound.replace("−", "-")), reading


def test_an_error_is_told_in_its_sentence(blank, answerer):
    frame = shown_in(blank, view_page(answerer.recording))
    frame.get_by_role("button", name="Knock out head 0.0").click()
    saved(blank, 1)
    tell(blank, answerer)
    frame.get_by_text("Answer: ").wait_for()
    edits = [{"edit": "ZeroHead", "version": 1, "layer": 7, "head": 0}]
    blank.evaluate("edits => window.put('edits', edits)", edits)
    frame.get_by_text("The model answers …").wait_for()
    blank.evaluate("result => window.put('result', result)", result_of(edits, answerer))
    frame.get_by_role("alert").get_by_text("layer").wait_for()


def test_without_a_kernel_the_page_in_the_frame_has_no_tools(blank, answerer):
    blank.set_content(Shown(view_page(answerer.recording), name=FRAME)._repr_html_())
    frame = blank.frame_locator("iframe")
    frame.locator("#view[data-ready='true']").wait_for()
    assert frame.get_by_role("button", name="Cut squares").count() == 0


def test_a_square_of_a_pooled_map_cuts_all_its_edges(blank):
    weights = torch.rand(8, 900, 900).softmax(-1)
    frame = shown_in(blank, view_page(weights, max_bytes=400_000))
    walk_to(frame, 0, 1).press("x")
    saved(blank, 1)
    (edit,) = blank.evaluate("window.saved.at(-1)")
    assert edit["query"].startswith("0..")
    assert edit["key"].split("..")[0] == str(int(edit["query"].split("..")[1]) + 1)


def test_the_answer_of_the_kernel_is_that_of_a_fork(answerer):
    found = result_of(json.loads(edits_to_json([CUT, OUT])), answerer)
    expected = attnlab.fork(answerer._question, CUT, OUT)
    assert [step["after"]["choice"] for step in found["steps"]] == [
        step.choice for step in expected.after.steps
    ]
    assert found["certificate"] == str(expected.certificate)
    assert found["manifest"]["variants"] == 2
    assert found["manifest"]["change"] > 0


def test_no_edits_and_wrong_edits_are_answered_too(answerer):
    assert result_of([], answerer) == {"edits": []}
    assert result_of([{"edit": "ZeroHead", "version": 1, "head": 0}], None) == {
        "edits": [{"edit": "ZeroHead", "version": 1, "head": 0}]
    }
    assert "there is no edit 'ZeroHed'" in result_of([{"edit": "ZeroHed"}], answerer)["error"]


def test_a_view_in_a_notebook_has_its_edits_as_objects(answerer):
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    from attnlab.experiments.notebook import EditableView

    shown = EditableView(view_page(answerer.recording), answerer)
    shown.widget.edits = json.loads(edits_to_json([OUT]))
    assert shown.edits == [OUT]
    assert shown.widget.result["steps"]
    assert shown.widget.frame in shown._repr_html_()
