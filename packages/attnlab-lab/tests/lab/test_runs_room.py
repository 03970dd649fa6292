"""The room Runs in a browser, with the server of `attnlab lab` behind it."""

import json
import re
import shlex
import shutil
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import attnlab
from attnlab.cli import main
from attnlab.edits import CutEdge
from attnlab.experiments.sweeps import open_sweep

from .playing import answers, click_cell, dots, edits, margin, press, settled, trained, violations
from .serving import NO_FIGURES, PATIENCE, Lab, opened_room, running

WAIT = PATIENCE * 1000
CUT = CutEdge(layer=0, head=0, query=3, key=1)


@pytest.fixture(scope="module")
def runs_lab(window: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab of this file, over a folder that is empty before the first test."""
    with running(tmp_path_factory.mktemp("runs-room"), **NO_FIGURES) as made:
        window.new_page().goto(made.first_address)
        yield made


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paint no figures of what is typed here either."""
    monkeypatch.setattr("attnlab.draw.figures.is_available", lambda: False)


@pytest.fixture
def opened(context: Any, runs_lab: Lab) -> Any:
    """Open the room with what a link says."""
    return partial(opened_room, context, runs_lab, "runs", ".run-form form:visible")


def fill(page: Any, **settings: Any) -> None:
    """Type settings, opening the folded ones."""
    page.locator(".run-form details:visible").evaluate_all("all => all.map(each => each.open = 1)")
    for name, value in settings.items():
        page.locator(f"#setting-{name}").fill(str(value))


def start(page: Any, **settings: Any) -> str:
    """Start a run with these settings, and return its name."""
    fill(page, **settings)
    before = page.locator("#run-title").text_content()
    page.get_by_role("button", name="Start", exact=True).dblclick()  # which starts one run
    page.wait_for_function(
        "before => document.querySelector('#run-title').textContent !== before", arg=before
    )
    return str(page.locator("#run-title").text_content())


def until(page: Any, state: str) -> None:
    """Wait until the run that is shown is in a state."""
    page.wait_for_selector(f".run-details[data-state={state}]", timeout=WAIT)


def until_training(page: Any) -> None:
    until(page, "running")
    page.wait_for_selector(".run-details progress:visible", timeout=WAIT)


def states(page: Any) -> dict[str, str]:
    """The state of every run, by its card."""
    cards = page.locator(".run-card").all()
    return {
        card.locator(".run-name").inner_text(): card.locator(".run-state").inner_text()
        for card in cards
    }


@torch.no_grad()
def check_domain(page: Any, model: Any, *changes: CutEdge) -> None:
    """Check the dots and the smallest margin against the run's model."""
    shown = dots(page)
    tokens = torch.tensor([[*("abc".index(letter) + 1 for letter in text), 0] for text in shown])
    margins = torch.full((len(shown),), torch.inf)
    with attnlab.edit(model, *changes, certify=False) if changes else nullcontext():
        for wanted in tokens[:, :3].sort().values.T.unsqueeze(-1):
            logits = model(tokens)[:, -1, 1:]
            others = logits.scatter(1, wanted - 1, -torch.inf).amax(1)
            margins = margins.minimum(logits.gather(1, wanted - 1).squeeze(1) - others)
            tokens = torch.cat([tokens, 1 + logits.argmax(1, keepdim=True)], 1)
    assert shown == dict(zip(shown, (margins > 0).tolist(), strict=True))
    assert margin(page) == pytest.approx(float(margins.min()), abs=0.0051)


def check_claims(page: Any, claims: list[dict[str, Any]]) -> None:
    """Every claim is there, held, and opens to what it says and what was measured; self-checks are
    one line."""
    *shown, checks = page.locator(".run-details > .run-claims > li").all()
    listed = [claim for claim in claims if not claim["is_self_check"]]
    number = len(claims) - len(listed)
    assert checks.locator("summary").first.inner_text() == f"Self-checks: {number} of {number} hold"
    for claim, line in zip(listed, shown, strict=True):
        assert line.inner_text().startswith("✓")
        statement = claim["statement"][0].upper() + claim["statement"][1:]
        line.locator("summary").click()
        assert line.locator("summary").inner_text() == f"✓{statement}."
        told = f"Measured: {claim['measured']}. Bound: {claim['bound']}."
        assert line.locator(".note").inner_text() == told


def test_from_an_empty_folder_to_a_run_on_the_bench(context: Any, runs_lab: Lab) -> None:
    page, home = context.new_page(), runs_lab.folder
    for room, words in (("populations", "no population yet"), ("sweeps", "no sweep yet")):
        opened_room(context, runs_lab, room, f".{room}-room:has-text('{words}')", page)
    page.get_by_role("link", name="Start one in Runs").click()
    page.wait_for_selector(".run-form form:visible", timeout=WAIT)
    assert page.locator(".run-list .note").inner_text().startswith("None yet.")
    assert start(page, steps=1200, learning_rate=0.01, evaluate_every=200) == "sorting"
    page.locator(".run-details .margin-line", has_text="training: step").wait_for(timeout=WAIT)
    until(page, "finished")
    folder = home / "runs" / "sorting"
    claims = json.loads((folder / "claims.json").read_text())
    page.wait_for_selector(".run-claims li")
    assert states(page) == {"sorting": "finished"}
    check_claims(page, claims)
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    loss = [line["loss"] for line in metrics if "loss" in line][-1]
    written = page.locator("[data-figure=loss] output").inner_text()
    assert float(written) == pytest.approx(loss, abs=5e-4)
    with context.expect_page() as report:
        page.get_by_role("link", name="Report").click()
    report.value.wait_for_selector("h1")
    assert "sort" in report.value.title().lower()

    page.get_by_role("link", name="Open in the Bench").click()
    trained(page)
    assert page.locator("#title").inner_text() == "The run sorting"
    assert answers(page) == ["abc"]
    assert len(dots(page)) == 27
    model = attnlab.open(folder).model
    check_domain(page, model)
    trace = attnlab.ask(folder, "cab").trace()
    page.locator("canvas.heatmap").nth(0).focus()
    for _ in range(5):
        page.keyboard.press("ArrowDown")
    weight = re.search(r"weight ([\d.]+)", page.locator(".map-reading").first.inner_text())
    assert weight is not None
    assert any(abs(float(weight[1]) - each) < 1e-3 for each in trace.attention[0].rows[5])
    click_cell(page, 0, 3, 1)
    assert edits(page) == ["Head 0.0: query 3 ‘SEP’ → key 1 ‘a’ is cut."]
    check_domain(page, model, CUT)
    with pytest.raises(AssertionError):  # the check would see a page that ignores the edit
        check_domain(page, model)
    link = page.url
    press(page, "Undo")
    assert edits(page) == []
    check_domain(page, model)
    assert page.locator("#notice").is_hidden()
    again = context.new_page()
    again.goto(link)
    trained(again)
    again.wait_for_selector(".edits .remove")
    check_domain(settled(again), model, CUT)


@pytest.mark.slow
def test_the_form_is_the_command_line(
    opened: Any, runs_lab: Lab, capsys: Any, monkeypatch: Any
) -> None:
    home = runs_lab.folder
    page = opened()
    fill(page, letters=99)
    message = page.locator(".run-form .message")
    message.filter(has_text="letters").wait_for()
    monkeypatch.chdir(home)
    assert main(["run", "sorting", "--set", "letters=99"]) == 2
    assert message.inner_text() in " ".join(capsys.readouterr().err.split())
    assert page.locator("[aria-invalid=true]").evaluate_all("all => all.map(each => each.id)") == [
        "setting-letters"
    ]
    assert message.evaluate("message => message.previousElementSibling.id") == "setting-letters"
    command = page.locator(".run-form .command")
    assert "letters=99" in command.inner_text()
    fill(page, **{"letters": "", "number-of-seeds": "none"})
    message.filter(has_text="seeds must be").wait_for()
    assert message.evaluate("message => message.previousElementSibling.id") == (
        "setting-number-of-seeds"
    )
    assert "--seeds none" in command.inner_text()
    fill(page, **{"number-of-seeds": 1})
    fill(page, letters="")  # which is as usual
    message.filter(has_text=re.compile("^$")).wait_for(state="attached")
    assert "letters" not in command.inner_text()
    fill(page, letters=2, length=2, steps=40, evaluate_every=20, seed=7)
    command.filter(has_text="evaluate_every=20").filter(has_text="--seed 7").wait_for()
    assert message.inner_text() == ""
    words = shlex.split(command.inner_text())
    name = start(page)
    until(page, "finished")
    main([*words[1:], "--out", "same"])
    one, two = (home / each / "model.safetensors" for each in (f"runs/{name}", "same"))
    assert one.read_bytes() == two.read_bytes()
    page.locator("#experiment").select_option("handmade")
    assert page.locator("#setting-steps").input_value() == "10001"
    assert "experiment=handmade" in page.url


def test_two_runs_side_by_side_at_any_width(opened: Any, runs_lab: Lab, sorter: Path) -> None:
    home = runs_lab.folder
    for name in ("one", "two"):
        shutil.copytree(sorter, home / "runs" / name)
    config = home / "runs" / "two" / "config.json"
    config.write_text(config.read_text().replace('"seed": 0', '"seed": 5'))
    page = opened(**{"show": "one", "with": "two"})
    rows = page.locator(".comparison tr")
    page.wait_for_selector(".comparison")
    assert page.locator("#compare").input_value() == "two"
    found = [row.inner_text().split("\t") for row in rows.all()]
    assert found[2] == ["seed", "0", "5"]
    assert found[3] == ["Claims"]
    claims = json.loads((home / "runs" / "one" / "claims.json").read_text())
    assert found[4][1:] == [f"✓ {claims[0]['measured']}"] * 2
    for width in (360, 390, 1280, 2560):
        for scheme in ("light", "dark"):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []
    page.locator("#compare").select_option("")
    page.wait_for_selector(".comparison", state="detached")
    assert "with=" not in page.url
    opened(page=page, show="two")
    page.get_by_role("heading", name="two", exact=True).wait_for()
    opened(page=page, show="three")
    page.locator("#notice").filter(has_text="There is no run “three”").wait_for()


@pytest.mark.slow
def test_a_sweep_is_started_and_a_cell_of_it_is_trained_again(opened: Any, runs_lab: Lab) -> None:
    home = runs_lab.folder
    page = opened()
    page.locator("#setting-number-of-seeds").fill("2")
    fill(page, steps=20, evaluate_every=20, d_model="4,6", seed=5)
    page.locator(".run-form .command", has_text="d_model=4,6").wait_for()
    sweep_folder = home / "runs" / start(page)
    until(page, "finished")
    page.get_by_role("link", name="Open in Sweeps").click()
    page.wait_for_selector(".cell-part:visible", timeout=WAIT)
    sweep = open_sweep(sweep_folder)
    assert sweep.outcome.seeds == (5, 6)
    assert [cell.fields for cell in sweep.cells] == [{"d_model": 4}, {"d_model": 6}]
    typed = shlex.split(page.locator(".cell-part .command").inner_text())
    page.get_by_role("button", name="Train them in Runs").click()
    until(page, "finished")
    again = attnlab.open(home / "runs" / str(page.locator("#run-title").text_content()))
    assert again.seeds == (5, 6)
    assert main([*typed[1:], "--out", str(home / "typed"), "--quiet"]) in (0, 1)
    same = attnlab.open(home / "typed")
    assert (same.seeds, same.config) == (again.seeds, again.config)
    cell = next(each for each in sweep.cells if each.fields["d_model"] == again.config.d_model)
    assert [member.solved_at for member in cell.members] == list(again.solved_at)


def focused(page: Any) -> str:
    """The name of the control that has the focus."""
    words = "(node => node.labels?.[0]?.innerText || node.innerText)(document.activeElement)"
    return str(page.evaluate(words)).strip()


def reach(page: Any, name: str, key: str = "Tab") -> None:
    """Move the focus to the control of this name, as a keyboard does."""
    for _ in range(80):
        page.keyboard.press(key)
        if focused(page) == name:
            return
    raise AssertionError(f"the keyboard does not reach {name}")


@pytest.fixture
def allowed() -> str:
    """What pages may complain of here: requests that a lab refused, or did not live to answer."""
    return "status of 40[039]|net::ERR_"


@pytest.mark.slow
def test_by_keyboard_runs_are_canceled_and_paused_and_one_outlives_its_server(
    context: Any, opened: Any, runs_lab: Lab
) -> None:
    page = opened()

    reach(page, "21 more settings")
    page.keyboard.press("Enter")
    reach(page, "steps", "Shift+Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("4000")
    reach(page, "Start")
    page.keyboard.press("Enter")
    until(page, "running")
    canceled = page.locator("#run-title").inner_text()
    reach(page, "Cancel", "Shift+Tab")
    page.keyboard.press("Enter")
    until(page, "canceled")
    page.locator("#status", has_text=f"{canceled}: canceled.").wait_for()
    assert focused(page) == "Resume"
    told = page.locator(".run-details .command").inner_text()
    assert told == f"attnlab resume runs/{canceled}"
    reach(page, "Start")
    page.keyboard.press("Enter")
    until_training(page)
    name = page.locator("#run-title").inner_text()
    assert name != canceled
    reach(page, "Pause", "Shift+Tab")
    page.keyboard.press("Space")
    until(page, "paused")
    assert focused(page) == "Resume"
    page.keyboard.press("Enter")
    until_training(page)

    other = opened(show=name)
    until_training(other)
    runs_lab.end(signal.SIGKILL)
    page.get_by_text("The lab does not answer.").wait_for(timeout=WAIT)
    until(page, "unknown")
    assert not page.get_by_role("button", name="Pause").is_visible()
    address = runs_lab.start()
    page.get_by_text("The lab was started anew.").wait_for(timeout=WAIT)
    context.new_page().goto(address)
    for each in (page, other):
        until(each, "stopped")
        each.wait_for_selector(".notice", state="hidden")
        assert each.locator("[data-figure=loss] path").get_attribute("d").startswith("M")
    page.get_by_role("button", name="Resume").click()
    until_training(other)
    for each in (page, other):
        until(each, "finished")
    other.reload()
    until(other, "finished")
    metrics = (runs_lab.folder / "runs" / name / "metrics.jsonl").read_text().splitlines()
    steps = [line["step"] for line in map(json.loads, metrics) if "learning_rate" in line]
    assert steps == sorted(set(steps))
    assert steps[0] <= 50 < 4000 == steps[-1]


def test_the_command_says_what_it_needs(capsys: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cases = [
        (["--port", "99999"], 2, "--port must be from 1 to 65,535; got 99999."),
        (["--runs", str(tmp_path / "file")], 2, "--runs must be a folder; "),
        (["--static", str(tmp_path / "file")], 2, "--static must be a folder; "),
    ]
    for words, status, sentence in cases:
        assert main(["lab", *words]) == status
        assert sentence in " ".join(capsys.readouterr().err.split())
