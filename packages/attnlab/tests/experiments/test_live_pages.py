"""Runs, models and populations answer in a notebook, without any notebook: see `live_page.py`."""

import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from live_page import LivePage, PlainWidget

import attnlab
from attnlab.draw.page import render_page
from attnlab.edits import CutEdge, ScaleHead, ShufflePattern, ZeroHead
from attnlab.errors import WrongUsage
from attnlab.experiments import notebook, viewer
from attnlab.experiments.population.blocks import MemoryBlocks
from attnlab.experiments.population.population_heads import record_heads
from tests.random_models import new_model

OUT = ZeroHead(layer=0, head=0)
SEEDS = range(4)
PIXELS = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return [...data];
}"""


@pytest.fixture(autouse=True)
def _plain_widgets(ipython, monkeypatch):
    monkeypatch.setattr(notebook, "_widget_class", lambda: PlainWidget)
    monkeypatch.setattr(viewer, "has_widgets", lambda: True)


@pytest.fixture(scope="module")
def population():
    found = attnlab.train_population(
        "sorting", seeds=SEEDS, steps=150, recipe="fast", evaluate_every=50, most_judged=5
    )
    block = found.blocks[0]
    block.history.faults[2] = "at step 7"  # as if its training had diverged
    return replace(found, blocks=MemoryBlocks(replace(block)))


def choices(trace):
    return " ".join(step.choice for step in trace.steps)


def share(step):
    return step.probabilities[step.candidates.index(step.choice)]


STEPS = """() => {
  const button = (name) => document.querySelector(`[aria-label="${name}"]`);
  const back = button("Previous step"), forward = button("Next step");
  while (!back.disabled) back.click();
  const told = [];
  for (;;) {
    told.push(document.querySelector(".trace-view .said").innerText);
    if (forward.disabled) return told;
    forward.click();
  }
}"""


def picture(live):
    """Step through the living picture, and return each choice with its probability."""
    found = []
    for words in live.frame.locator(":root").evaluate(STEPS):
        *_, choice, number = re.findall(r"picks (\S+) with probability (\S+)\.$", words)[0]
        found.append((choice, float(number.strip("<>"))))  # ">0.999"
    return found


def agree(found, trace):
    expected = [(step.choice, pytest.approx(share(step), abs=1e-3)) for step in trace.steps]
    return found == expected


def message(live):
    return live.frame.locator(".trace-view .message, #content > .chooser .message").first


def test_a_run_answers_what_is_typed_and_its_edits_stay_for_the_next_input(blank, sorter):
    live = LivePage(blank, attnlab.show(sorter))
    assert live.frame.locator("h1").inner_text() == "sorting"
    assert live.shown.input == "cba"  # as the picture begins
    for text in ("aaa", "bac"):
        live.ask(text)
        message(live).get_by_text("of 27.").wait_for()
        assert live.shown.input == text
        assert agree(picture(live), attnlab.ask(sorter, text).trace())
    evil = "<img src=x onerror=alert(1)>"
    live.ask(evil)
    refused = message(live)
    refused.get_by_text("expected 3 letters from a to c").wait_for()
    assert evil in refused.inner_text()
    assert live.frame.locator("img").count() == 0
    field = live.frame.get_by_label("Input", exact=True)
    assert (field.input_value(), field.get_attribute("aria-invalid")) == (evil, "true")
    assert live.shown.input == "bac"
    live.ask("z" * 10_000)
    refused.get_by_text("zzz").wait_for()
    assert len(refused.inner_text()) < 400
    live.frame.get_by_text("Look closer, and edit the model").click()
    live.frame.get_by_role("button", name="Knock out head 0.0").click()
    live.heard()
    live.answer()
    for text in ("bac", "bca"):
        if text != live.shown.input:
            live.ask(text)
            live.frame.get_by_text("The answer of the model with 1 edit.").wait_for()
            assert field.get_attribute("aria-invalid") == "false"
        after = attnlab.fork(attnlab.ask(sorter, text), OUT).after
        told = f"Answer: {choices(attnlab.ask(sorter, text).trace())} → {choices(after)}"
        live.frame.get_by_text(told, exact=True).wait_for()
        assert live.shown.edits == [OUT]
    assert agree(picture(live), after)
    live.frame.get_by_role("button", name="Previous step").click()
    live.frame.get_by_role("button", name="Undo all").click()
    live.heard()
    live.answer()
    message(live).get_by_text("of 27.").wait_for()
    assert live.frame.get_by_text("step 2 of 3", exact=True).is_visible()  # one step, both models
    assert agree(picture(live), attnlab.ask(sorter, "bca").trace())


def test_wrong_edits_from_python_raise_and_the_last_answer_stays(sorter):
    shown = attnlab.show(sorter)
    shown.edits = [OUT]
    before = shown.widget.result
    for wrong, words in (
        (OUT, "edits are a list, .* got a ZeroHead"),
        (None, "edits are a list"),
        ([OUT.to_json()], "edits are a list"),
        ([ZeroHead(layer=9, head=0)], "layer=9 is out of range"),
        ([ShufflePattern(layer=0, head=0, seed=2**60 + 1)], r"whole numbers up to 2\*\*53"),
    ):
        with pytest.raises(WrongUsage, match=words):
            shown.edits = wrong
        assert shown.edits == [OUT]
        assert shown.widget.result is before
    shown.edits = [ScaleHead(layer=0, head=0, factor=1e308)]  # an answer that is not finite
    json.dumps(shown.widget.result, allow_nan=False)


@pytest.mark.slow
def test_a_kernel_that_stays_silent_is_told_and_the_last_answer_stays(blank, sorter):
    blank.clock.install()
    live = LivePage(blank, attnlab.show(sorter))
    live.frame.get_by_role("button", name="Next input").click()
    live.heard()
    message(live).get_by_text("The model answers …").wait_for()
    blank.clock.run_for(10_000)
    message(live).get_by_text("There is no answer yet. If the kernel was restarted").wait_for()
    assert agree(picture(live), attnlab.ask(sorter, "cba").trace())
    live.answer()
    message(live).get_by_text("of 27.").wait_for()
    assert agree(picture(live), attnlab.ask(sorter, live.shown.input).trace())
    blank.context.close()  # with its clock


def test_python_sets_input_and_edits_and_the_page_follows(blank, sorter):
    live = LivePage(blank, attnlab.show(sorter))
    live.shown.input, live.shown.edits = "bbc", [CutEdge(layer=0, head=1, query=3, key=0)]
    live.put("input", "edits", "result")
    live.frame.get_by_text("The answer of the model with 1 edit.").wait_for()
    assert live.frame.get_by_label("Input", exact=True).input_value() == "bbc"
    assert live.frame.locator(".edit-list li").count() == 1
    after = attnlab.fork(attnlab.ask(sorter, "bbc"), *live.shown.edits).after
    assert agree(picture(live), after)
    with pytest.raises(WrongUsage, match="expected 3 letters"):
        live.shown.input = "bbcc"
    assert live.shown.input == "bbc"
    with pytest.raises(WrongUsage, match="only a population has seeds"):
        live.shown.seed = 1
    live.shown.widget.edits = [ZeroHead(layer=9, head=0).to_json()]  # as an observer would
    live.put("edits", "result")
    message(live).get_by_text("layer=9 is out of range").wait_for()
    assert agree(picture(live), attnlab.ask(sorter, "bbc").trace())


def test_a_model_of_a_run_opens_with_an_example_answered_and_asks_for_letters(blank, sorter):
    live = LivePage(blank, attnlab.show(attnlab.load(sorter)))
    assert "A Decoder of 480 parameters" in live.frame.locator(".subtitle").inner_text()
    assert live.frame.get_by_role("heading", name="sorter").count() == 1
    assert live.shown.input == "cba"
    assert [choice for choice, _ in picture(live)] == ["a", "b", "c"]
    live.ask("bab")
    assert [choice for choice, _ in picture(live)] == ["a", "b", "b"]
    live.frame.get_by_label("Input", exact=True).fill("3 1 2 0")
    live.frame.get_by_role("button", name="Ask", exact=True).click()
    live.heard()
    live.answer()
    message(live).get_by_text("expected 3 letters from a to c").wait_for()
    assert live.shown.input == "bab"


@pytest.mark.slow
def test_a_model_in_training_is_refused_until_it_is_evaluated(blank, sorter):
    model = attnlab.load(sorter).train()
    with pytest.raises(WrongUsage, match=r"call model\.eval\(\)"):
        attnlab.show(model)
    live = LivePage(blank, attnlab.show(model.eval()))
    model.train()
    live.ask("cab")
    message(live).get_by_text("call model.eval()").wait_for()
    model.eval()
    live.ask("bac")
    live.frame.get_by_text("Step 1 of 3: after").wait_for()


def test_outside_a_notebook_a_model_is_a_page_of_its_example(sorter, monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython")
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    page = attnlab.show(attnlab.load(sorter)).read_text()
    assert "SEP" in page
    assert "c b a" in page


@pytest.mark.slow
def test_a_class_is_told_in_a_sentence_above_its_maps(blank):
    model = new_model("encoder", vocab_size=4, num_classes=2, d_model=8, num_heads=2)
    live = LivePage(blank, attnlab.show(model))
    live.ask("3 1 2")
    shares = model(torch.tensor([[3, 1, 2]])).detach().softmax(-1)[0]
    best = int(shares.argmax())
    live.frame.get_by_text(f"Answer: class {best}").wait_for()
    live.frame.get_by_role("button", name="Knock out head 0.0").click()  # nothing hides the maps
    live.heard()
    live.answer()
    live.frame.get_by_text("The answer of the model with 1 edit.").wait_for()
    assert live.shown.edits == [OUT]


def test_a_model_that_answers_nothing_is_refused_as_without_a_widget():
    with pytest.raises(WrongUsage, match="Encoder does not know what its tokens are called"):
        attnlab.show(new_model("encoder", vocab_size=4, d_model=8, num_heads=2))


def test_seeds_are_small_pictures_of_their_heads_and_one_is_chosen(blank, population):
    shown = attnlab.show(population)
    live = LivePage(blank, shown)
    live.frame.locator(".seed").first.wait_for()
    names = live.frame.locator(".seed").evaluate_all("all => all.map(each => each.dataset.name)")
    assert names == ["0", "1", "2", "3"]
    assert live.frame.locator(".seed[data-name='2'] canvas").count() == 0  # it diverged
    (part,) = record_heads(population).parts
    means = torch.stack([own[order] for own, order in zip(part.means, part.order, strict=True)])
    is_masked = np.triu(np.ones(means.shape[2:], bool), 1)  # the attention is causal
    for seed, heads in zip((0, 1, 3), means.numpy(), strict=True):
        canvas = live.frame.locator(f".seed[data-name='{seed}'] canvas")
        pixels = np.array(canvas.evaluate(PIXELS), float).reshape(len(is_masked), -1, 4)
        for place, weights in enumerate(heads):
            first = place * (len(is_masked) + 1)
            drawn = pixels[:, first : first + len(is_masked)]
            assert ((drawn[..., 3] == 0) == is_masked).all()
            lightness = drawn[..., :3].sum(-1)[~is_masked]
            order = weights[~is_masked].argsort()
            assert (np.diff(lightness[order]) <= 9).all()  # 3 steps of shade
    chosen = live.frame.locator(".seed[aria-checked=true]")
    chosen.wait_for()
    assert chosen.get_attribute("data-name") == str(shown.seed) != "2"
    other = next(seed for seed in (0, 1) if seed != shown.seed)
    live.frame.locator(f".seed[data-name='{other}']").click()
    live.heard()
    assert shown.seed == other
    assert chosen.get_attribute("data-name") == str(other)
    assert population.member(shown.seed).config["seed"] == other
    live.frame.locator(f".seed[data-name='{other}']").press("End")
    live.heard()
    assert shown.seed == 3
    shown.seed = 2
    live.put("seed", "result")
    live.frame.get_by_text("Seed 2 diverged").wait_for()
    assert chosen.get_attribute("data-name") == "2"
    with pytest.raises(WrongUsage, match="no member 9; it has the seeds 0 to 3"):
        shown.seed = 9
    assert shown.seed == 2


@pytest.mark.slow
def test_an_input_is_answered_by_the_chosen_seed(blank, population):
    live = LivePage(blank, attnlab.show(population))
    live.shown.seed = 0
    live.put("seed", "result")
    live.ask("cab")
    found = {}
    for seed in (0, 1, 3):
        if seed:
            live.frame.locator(f".seed[data-name='{seed}']").click()
            live.heard()
            live.answer()
        probabilities = attnlab.ask(population.member(seed), "cab").trace()
        live.frame.get_by_text("The model’s answer.").wait_for()
        found[seed] = picture(live)
        assert agree(found[seed], probabilities)
    assert found[0] != found[1] != found[3]


def test_a_report_on_disk_has_none_of_the_scripts_of_a_notebook(population):
    assert "listenToNotebook" not in population.html()
    assert "listenToNotebook" in render_page(population.report.content, is_live=True)


@pytest.mark.slow
def test_a_failure_is_told_in_the_page_and_raised(blank, monkeypatch):
    model = new_model("decoder", vocab_size=4, d_model=8, num_heads=2)
    live = LivePage(blank, attnlab.show(model))
    live.ask("3 1 2")
    monkeypatch.setattr(model, "forward", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        live.ask("3 1")
    live.answer()
    message(live).get_by_text("ZeroDivisionError: division by zero").wait_for()
