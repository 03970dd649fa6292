"""The room Runs in a browser, with the server of `attnlab lab` behind it."""

import json
import re
import shlex
import shutil
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import attnlab
from attnlab.cli import main
from attnlab.edits import CutEdge

from .playing import answers, click_cell, dots, edits, margin, press, settled, trained, violations
from .serving import PATIENCE, Lab

WAIT = PATIENCE * 1000


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    made.end(signal.SIGTERM)


@pytest.fixture
def context(browser: Any) -> Iterator[Any]:
    """A browser's window; at the end, no complaint of a page but of a server that was away."""
    made = browser.new_context(viewport={"width": 1280, "height": 900})
    complaints: list[str] = []
    made.on("console", lambda told: complaints.append(f"{told.text} {told.location['url']}"))
    made.on("weberror", lambda error: complaints.append(str(error.error)))
    yield made
    made.close()
    away = "net::ERR_|status of 403|status of 409"
    assert [each for each in complaints if not re.search(away, each)] == []


def opened(context: Any, lab: Lab, **link: str) -> Any:
    """Start the lab, and open its room Runs."""
    page = context.new_page()
    page.goto(lab.start())
    page.goto(lab.link(**link))
    page.wait_for_selector(".run-form form:visible", timeout=WAIT)
    return page


def fill(page: Any, **settings: Any) -> None:
    """Type settings, opening the folded ones."""
    page.locator(".run-form details:visible").evaluate_all("all => all.map(each => each.open = 1)")
    for name, value in settings.items():
        page.locator(f"#setting-{name}").fill(str(value))


def start(page: Any, **settings: Any) -> None:
    fill(page, **settings)
    page.get_by_role("button", name="Start", exact=True).dblclick()  # which starts one run


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


def check_domain(page: Any, folder: Path, *changes: CutEdge) -> None:
    """Check the dots and the smallest margin against the run's model, asked one by one."""
    margins, right = [], {}
    model = attnlab.open(folder).model
    with (
        attnlab.edit(model, *changes, certify=False) if changes else nullcontext(),
        torch.no_grad(),
    ):
        for text in dots(page):
            tokens, lead = [*("abc".index(letter) + 1 for letter in text), 0], []
            for wanted in sorted(tokens[:3]):
                logits = model(torch.tensor([tokens]))[0, -1].tolist()
                others = [logits[letter] for letter in (1, 2, 3) if letter != wanted]
                lead.append(logits[wanted] - max(others))
                tokens.append(logits.index(max(logits[1:]), 1))
            margins.append(min(lead))
            right[text] = min(lead) > 0
    assert dots(page) == right
    assert margin(page) == pytest.approx(min(margins), abs=0.0051)


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


def test_from_an_empty_folder_to_a_run_on_the_bench(context: Any, lab: Lab) -> None:
    page = opened(context, lab)
    assert page.locator(".run-list .note").inner_text().startswith("None yet.")
    start(page, steps=2000, learning_rate=0.03, weight_decay=0.1)
    until_training(page)
    assert page.locator(".run-details .margin-line").first.inner_text().startswith("training: step")
    until(page, "finished")
    folder = lab.folder / "runs" / "sorting"
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
    report.value.close()

    page.get_by_role("link", name="Open in the Bench").click()
    trained(page)
    assert page.locator("#title").inner_text() == "The run sorting"
    assert answers(page) == ["abc"]
    assert len(dots(page)) == 27
    check_domain(page, folder)
    trace = attnlab.ask(folder, "cab").trace()
    page.locator("canvas.heatmap").nth(0).focus()
    for _ in range(5):
        page.keyboard.press("ArrowDown")
    weight = re.search(r"weight ([\d.]+)", page.locator(".map-reading").first.inner_text())
    assert weight is not None
    assert any(abs(float(weight[1]) - each) < 1e-3 for each in trace.attention[0].rows[5])
    click_cell(page, 0, 3, 1)
    assert edits(page) == ["Head 0.0: SEP → letter 2 is cut."]
    check_domain(page, folder, CutEdge(layer=0, head=0, query=3, key=1))
    with pytest.raises(AssertionError):  # the check would see a page that ignores the edit
        check_domain(page, folder)
    link = page.url
    press(page, "Undo")
    assert edits(page) == []
    check_domain(page, folder)
    assert page.locator("#notice").is_hidden()
    again = context.new_page()
    again.goto(link)
    trained(again)
    again.wait_for_selector(".edits .remove")
    check_domain(settled(again), folder, CutEdge(layer=0, head=0, query=3, key=1))


def test_a_killed_server_s_training_resumes_and_all_tabs_show_it(context: Any, lab: Lab) -> None:
    page = opened(context, lab)
    start(page, steps=4000, evaluate_every=2000)
    until_training(page)
    other = context.new_page()
    other.goto(lab.link(show="sorting"))
    until_training(other)
    lab.end(signal.SIGKILL)
    page.get_by_text("The lab does not answer.").wait_for(timeout=WAIT)
    until(page, "unknown")
    assert not page.get_by_role("button", name="Pause").is_visible()
    address = lab.start()
    page.get_by_text("The lab was started anew.").wait_for(timeout=WAIT)
    context.new_page().goto(address)
    for each in (page, other):
        until(each, "stopped")
        each.wait_for_selector(".notice", state="hidden")
        assert each.locator("[data-figure=loss] path").get_attribute("d").startswith("M")
    page.get_by_role("button", name="Resume").click()
    until_training(other)
    until(page, "finished")
    until(other, "finished")
    other.reload()
    until(other, "finished")
    alone = attnlab.run("sorting", steps=4000, evaluate_every=2000)
    resumed = attnlab.open(lab.folder / "runs" / "sorting").model.state_dict()
    for name, value in alone.model.state_dict().items():
        assert value.equal(resumed[name]), name


def test_one_run_is_paused_and_one_is_canceled_by_keyboard(context: Any, lab: Lab) -> None:
    page = opened(context, lab)

    def reach(name: str, key: str = "Tab") -> None:
        """Move the focus to the control of this name, as a keyboard does."""
        for _ in range(80):
            page.keyboard.press(key)
            focused = "(node => node.labels?.[0]?.innerText || node.innerText)"
            if page.evaluate(f"{focused}(document.activeElement)").strip() == name:
                return
        raise AssertionError(f"the keyboard does not reach {name}")

    reach("21 more settings")
    page.keyboard.press("Enter")
    reach("steps", "Shift+Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("900000")
    reach("Start")
    page.keyboard.press("Enter")
    until_training(page)
    reach("Pause", "Shift+Tab")
    page.keyboard.press("Space")
    until(page, "paused")
    assert page.evaluate("document.activeElement.innerText") == "Resume"
    page.keyboard.press("Enter")
    until_training(page)
    reach("Cancel")
    page.keyboard.press("Enter")
    until(page, "canceled")
    assert page.locator("#status").inner_text() == "sorting: canceled."
    assert page.evaluate("document.activeElement.innerText") == "Resume"
    assert states(page) == {"sorting": "canceled"}
    told = page.locator(".run-details .command").inner_text()
    assert told == "attnlab resume runs/sorting"


def test_the_form_says_what_the_command_line_says(
    context: Any, lab: Lab, capsys: Any, monkeypatch: Any
) -> None:
    page = opened(context, lab)
    fill(page, letters=99)
    message = page.locator(".run-form .message")
    message.filter(has_text="letters").wait_for()
    monkeypatch.chdir(lab.folder)
    assert main(["run", "sorting", "--set", "letters=99"]) == 2
    assert message.inner_text() in " ".join(capsys.readouterr().err.split())
    assert page.locator("[aria-invalid=true]").evaluate_all("all => all.map(each => each.id)") == [
        "setting-letters"
    ]
    command = page.locator(".run-form .command")
    fill(page, letters="")  # which is as usual
    message.filter(has_text=re.compile("^$")).wait_for(state="attached")
    assert "letters" not in command.inner_text()
    fill(page, letters=2, length=2, steps=40, evaluate_every=20, seed=7)
    command.filter(has_text="evaluate_every=20").filter(has_text="--seed 7").wait_for()
    assert message.inner_text() == ""
    words = shlex.split(command.inner_text())
    start(page)
    until(page, "finished")
    main([*words[1:], "--out", "same"])
    one, two = (lab.folder / each / "model.safetensors" for each in ("runs/sorting", "same"))
    assert one.read_bytes() == two.read_bytes()
    page.locator("#experiment").select_option("handmade")
    assert page.locator("#setting-steps").input_value() == "10001"
    assert "experiment=handmade" in page.url


def test_two_runs_side_by_side_at_any_width(context: Any, lab: Lab, sorter: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(sorter, lab.folder / "runs" / name)
    config = lab.folder / "runs" / "two" / "config.json"
    config.write_text(config.read_text().replace('"seed": 0', '"seed": 5'))
    page = opened(context, lab, **{"show": "one", "with": "two"})
    rows = page.locator(".comparison tr")
    page.wait_for_selector(".comparison")
    assert page.locator("#compare").input_value() == "two"
    found = [row.inner_text().split("\t") for row in rows.all()]
    assert found[2] == ["seed", "0", "5"]
    assert found[3] == ["Claims"]
    claims = json.loads((lab.folder / "runs" / "one" / "claims.json").read_text())
    assert found[4][1:] == [f"✓ {claims[0]['measured']}"] * 2
    for width in (360, 390, 1280, 2560):
        for scheme in ("light", "dark"):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
    same = context.browser.new_context(bypass_csp=True, storage_state=context.storage_state())
    other = same.new_page()
    other.goto(page.url)
    other.wait_for_selector(".comparison")
    assert violations(other) == []
    same.close()
    page.locator("#compare").select_option("")
    page.wait_for_selector(".comparison", state="detached")
    assert "with=" not in page.url
    page.goto(lab.link(show="two"))
    page.get_by_role("heading", name="two", exact=True).wait_for()
    page.goto(lab.link(show="three"))
    page.locator("#notice").filter(has_text="There is no run “three”").wait_for()


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
