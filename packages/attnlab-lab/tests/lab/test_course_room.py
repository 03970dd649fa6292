"""The room Course in a browser: read, answer, be told the mistake, mend it; saved in files."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.cli import main
from attnlab.errors import WrongUsage
from attnlab_course.catalog import CHAPTERS, exercise_names, find_exercise
from attnlab_course.cells import leaked_lines, solution_text
from attnlab_course.exercise import Case
from attnlab_course.workspace import Workspace
from attnlab_lab.server import course_answers
from tests.sampling import sampled

from .jobs_checks import is_running
from .playing import (
    check_look,
    enter,
    press,
    read_code,
    settled,
    tamper,
    write_code,
)
from .serving import PATIENCE, until

PART = "body[data-busy=false] .statement h2"
WRONG = """import torch

def attention(query, key, value, mask=None):
    scores = query @ key.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return weights @ value, weights
"""
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture
def opened(open_room: Any) -> Any:
    """Open the room at an exercise, `attention` unless another is named."""
    return lambda **link: open_room("course", PART, **({"exercise": "attention"} | link))


def test_until_an_exercise_is_there_the_room_says_that_it_is_prepared(
    open_room: Any, context: Any
) -> None:
    page = context.new_page()
    waiting: list[Any] = []

    def wait(route: Any) -> None:
        waiting.append(route)

    page.route("**/api/course/open", wait)
    open_room("course", ".exercise-place:visible", page, exercise="attention")
    line = page.get_by_text("The exercises are being prepared.")
    until(lambda: page.wait_for_timeout(50) or waiting)
    assert line.is_visible()
    own = {**waiting[0].request.headers, "sec-fetch-site": "same-origin"}
    waiting[0].continue_(headers=own)
    page.wait_for_selector(PART)
    assert line.is_hidden()


def check(page: Any, code: str | None = None) -> str:
    """Type an answer, check it, and return what is said of it."""
    if code is not None:
        write_code(page, code)
    with page.expect_response("**/api/course/check", timeout=PATIENCE * 1000):
        page.get_by_role("button", name="Check", exact=True).click()
    settled(page)
    return str(page.locator(".feedback").inner_text())


def tries(home: Path) -> int:
    """How often attention was checked in a home, by other tests too."""
    state = Workspace(home / "course").states().get("attention")
    return 0 if state is None else state.tries


def test_a_wrong_answer_is_told_its_mistake_and_mended_and_both_are_in_the_folder(
    opened: Any, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = opened()
    before = tries(home)
    assert "softmax(Q Kᵀ / √width) V" in page.locator(".statement").inner_text()
    assert page.locator(".statement table td code").first.inner_text() == "query"
    assert page.locator("img.course-picture").evaluate("node => node.naturalWidth") > 100
    told = check(page, WRONG)
    attention = find_exercise("attention")
    assert attention.mistake("no scaling").says in told
    assert "This is a known mistake" in told
    assert page.locator(".shaded").count() == 3
    check_look(page)
    told = check(page, solution_text(attention.source))
    assert "8 of 8 checks pass" in told
    assert page.locator(".criteria .mark.refused").count() == 0
    solved = page.locator(".all-exercises [data-state=solved] a").all_text_contents()
    assert attention.parts.title in solved
    monkeypatch.chdir(home)
    assert main(["course", "check", "attention"]) == 0
    assert "✓ values" in capsys.readouterr().out
    states = Workspace(home / "course").states()
    assert states["attention"].passed
    assert tries(home) == before + 3


def opened_exercise(page: Any, name: str) -> None:
    """Wait until an exercise is open."""
    title = find_exercise(name).parts.title
    page.locator(".all-exercises [aria-current=page]", has_text=title).wait_for(state="attached")
    settled(page)
    assert f"exercise={name}" in page.url


def test_any_exercise_is_found_by_its_chapter_a_word_or_as_the_next_one(opened: Any) -> None:
    page = opened()
    place = page.locator(".exercise-place")
    assert place.inner_text() == "Attention: exercise 2 of 8"
    page.get_by_role("link", name="Next", exact=True).click()
    opened_exercise(page, "attention_heatmap")
    assert place.inner_text() == "Attention: exercise 3 of 8"
    assert place.evaluate("node => node === document.activeElement")
    page.locator(".all-exercises summary").click()
    shown = page.locator(".chapters li:visible")
    assert shown.count() == len(exercise_names())
    find = page.get_by_label("Find an exercise")
    find.fill("nothing at all")
    assert shown.count() == 0
    assert "No exercise has “nothing at all”" in page.locator(".all-exercises").inner_text()
    find.fill("modern")
    assert shown.locator("a").all_inner_texts() == [
        find_exercise(name).parts.title for name in CHAPTERS["Modern parts"]
    ]
    find.fill("rotary")
    find.press("Enter")
    opened_exercise(page, "rotary_positions")
    assert shown.count() == 0
    assert find.input_value() == ""


@pytest.mark.slow
def test_an_exercise_that_is_solved_leads_to_the_next_one(opened: Any, home: Path) -> None:
    page = opened()
    following = page.locator(".feedback a.button")
    check(page, WRONG)
    assert following.count() == 0
    check(page, solution_text(find_exercise("attention").source))
    states = Workspace(home / "course").states()
    at = exercise_names().index("attention")
    in_order = exercise_names()[at + 1 :] + exercise_names()[:at]
    wanted = next(name for name in in_order if name not in states or not states[name].solved)
    assert following.inner_text() == f"Next: {find_exercise(wanted).parts.title}"
    following.click()
    opened_exercise(page, wanted)
    assert following.count() == 0
    page.go_back()
    opened_exercise(page, "attention")


def test_what_is_not_yet_checked_outlives_another_room_and_a_reload(opened: Any) -> None:
    page = opened(exercise="scaling")
    write_code(page, "typed = 1")
    enter(page, "Bench")
    enter(page, "Course")
    page.wait_for_selector(PART)
    assert read_code(page) == "typed = 1"
    write_code(page, "typed = 2")
    page.reload()
    page.wait_for_selector(PART)
    assert read_code(page) == "typed = 2"
    page.get_by_role("link", name="Next", exact=True).click()
    opened_exercise(page, exercise_names()[exercise_names().index("scaling") + 1])
    page.reload()
    page.wait_for_selector(PART)
    assert "typed" not in read_code(page)  # a draft is of one exercise


def test_a_check_ends_a_draft_and_a_file_changed_elsewhere_goes_first(
    opened: Any, home: Path
) -> None:
    page = opened(exercise="scaling")

    def reload() -> str:
        page.reload()
        page.wait_for_selector(PART)
        return read_code(page)

    check(page, "checked = 1\n\n\n")
    assert page.evaluate("sessionStorage.length") == 0
    assert reload() == "checked = 1\n"
    check(page, "checked = 2\n\n\n")
    write_code(page, "typed = 3")
    assert reload() == "typed = 3"
    file = home / "course" / "scaling.py"
    file.write_text(file.read_text().replace("checked = 2", "elsewhere = 4"))
    assert reload() == "elsewhere = 4\n"


def test_no_formula_of_a_statement_is_cut(opened: Any) -> None:
    formula = opened(exercise="identity").locator(".statement pre").first
    assert "softmax(Q Kᵀ / √qk_dim) V" in formula.inner_text()
    assert formula.evaluate("node => node.scrollWidth <= node.clientWidth")


@pytest.mark.slow
def test_what_stands_in_backticks_is_code_and_never_markup(opened: Any, context: Any) -> None:
    page = context.new_page()
    words = f"`{HOSTILE}` is no `mask`, and ` alone is none; {HOSTILE}"

    def alter(told: Any) -> None:
        told["mistake"] = words
        told["checks"][0]["words"] = "is `small`"

    tamper(page, "/api/course/check", alter)
    page.goto(opened().url)
    page.wait_for_selector(PART)
    check(page, WRONG)
    known = page.locator(".known-mistake p")
    assert known.locator("code").all_inner_texts() == [HOSTILE, "mask"]
    assert known.inner_text() == f"{HOSTILE} is no mask, and ` alone is none; {HOSTILE}"
    assert known.locator("img, script").count() == 0
    assert page.locator(".criteria li").first.locator("code").inner_text() == "small"


@pytest.mark.slow
def test_hints_come_one_by_one_and_stay(opened: Any) -> None:
    page = opened(exercise="causal_mask")
    hints = find_exercise("causal_mask").hints
    press(page, "A hint")
    page.get_by_role("button", name="Next hint").click()
    settled(page)
    assert page.locator(".hints li").all_inner_texts() == list(hints[:2])
    again = opened(exercise="causal_mask")
    assert again.locator(".hints li").count() == 2


FILLED_SMALL = WRONG.replace('float("-inf")', "-10.0").replace(
    "transpose(-2, -1)", "transpose(-2, -1) / query.shape[-1] ** 0.5"
)


@pytest.mark.slow
def test_a_hint_is_first_about_the_mistake_that_was_found(opened: Any) -> None:
    page = opened()
    told = check(page, FILLED_SMALL)
    assert "Masked scores are set to a small number" in told
    assert "3 of 8 checks pass, 1 fails; 4 more, marked –, fail by the same mistake" in told
    assert told.count("costs nothing more") == 1
    assert page.locator(".criteria .mark", has_text="–").count() == 4
    assert page.locator(".criteria .mark.refused").count() == 1
    press(page, "A hint on this mistake")
    page.locator(".mistake-hint pre").wait_for()
    line = page.locator(".mistake-hint pre").inner_text().strip()
    assert line == "scores = scores.masked_fill(~mask, -10.0)"
    assert page.get_by_role("button", name="A hint on this mistake").count() == 0
    check(page)
    assert page.locator(".mistake-hint pre").count() == 0
    check(
        page, "def attention(query, key, value, mask=None):\n    return value, query\n"
    )  # unknown
    assert page.get_by_role("button", name="A hint on this mistake").count() == 0


@pytest.mark.slow
def test_a_mistakes_hint_stays_until_the_next_check_and_is_no_second_time_in_the_list(
    opened: Any,
) -> None:
    page, hints = opened(exercise="softmax"), find_exercise("softmax").hints
    assert "Nothing is written yet." in check(page, "")
    steps = "e = torch.exp(x)\n    return e / e.sum(dim, keepdim=True)"
    check(page, f"import torch\ndef softmax(x, dim=-1):\n    {steps}\n")
    press(page, "A hint on this mistake")
    press(page, "A hint")
    shown, listed = page.locator(".mistake-hint p"), page.locator(".hints li")
    listed.first.wait_for()
    press(page, "Next hint (1 of 4 seen)")
    listed.nth(1).wait_for()
    assert shown.all_inner_texts() == [hints[1]]
    assert listed.all_inner_texts() == [hints[0], hints[2].replace("`", "")]
    assert listed.nth(1).evaluate("node => node.value") == 3
    check(page)
    assert shown.count() == 0
    assert listed.count() == 3


def test_nothing_leads_on_from_a_text_that_cannot_be_checked(opened: Any) -> None:
    page = opened(exercise="reflect_attention")
    told = check(page, "plain words")
    assert "Your answer cannot be checked: " in told
    assert "Next: " not in told
    assert "Next: " in check(page, 'answer = "Words."')


def test_the_solution_is_shown_and_noted_and_answers_handed_in(opened: Any, home: Path) -> None:
    page = opened()
    ours = page.locator(".ours")
    check(page, WRONG)
    assert "Give up" in ours.inner_text()
    check(page, solution_text(find_exercise("attention").source))
    assert "Compare" in ours.inner_text()
    ours.locator("summary").click()
    ours.get_by_role("button", name="Show it").click()
    assert "masked_fill(~mask, -math.inf)" in ours.locator("pre").inner_text()
    events = [event["event"] for event in Workspace(home / "course").events()]
    assert events[-1] == "solution"
    page.locator("#student").fill("José García")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the file").click()
    assert download.value.suggested_filename == "José-García.zip"
    with zipfile.ZipFile(download.value.path()) as archive:
        assert "work/attention.py" in archive.namelist()
    told = page.locator(".hand-in").inner_text()
    assert "José-García.zip is among your downloads" in told
    assert not list(home.glob("*.zip"))


def test_a_solution_of_no_exercise_is_refused_and_leaves_no_log(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="no exercise named 'nothing'"):
        course_answers.WORK["solution_exercise"](folder=str(tmp_path / "course"), name="nothing")
    assert not (tmp_path / "course").exists()


@pytest.mark.slow
def test_two_mistakes_are_shown_with_a_case_of_each(opened: Any) -> None:
    both = WRONG.replace("dim=-1)", "dim=-1).nan_to_num()")
    both = both.replace("weights @ value, weights", "(weights @ value).float(), weights.float()")
    page = opened()
    told = check(page, both)
    assert "Something else is wrong, too: see dtype" in told
    assert page.locator(".failed-case h3").all_inner_texts() == [
        "values: the smallest case that fails", "dtype: the smallest case that fails"
    ]  # fmt: skip


@pytest.mark.slow
def test_what_is_banned_is_told_beside_the_verdict(opened: Any) -> None:
    own = "import torch\ndef softmax(x, dim=-1):\n    return torch.softmax(x, dim).nan_to_num(0)\n"
    told = check(opened(exercise="softmax"), own)
    assert "It uses softmax, which this exercise does not allow" in told
    assert "not allow" not in check(opened(), WRONG)


def test_the_tables_are_of_every_array_where_one_is_far_off() -> None:
    expected = [np.zeros((2, 3, 2, 2)), np.zeros(2)]
    got = [expected[0].copy(), expected[1] + 1e-9]
    got[0][1, 2, 1, 1] = 5.0
    case = Case("attention", expected=expected, tolerance=1e-6)
    first, second = course_answers._compared(case, got, ("output", "weights"))
    assert (first["name"], first["leading"], np.shape(first["yours"])) == (
        "output", [2, 3], (6, 2, 2)
    )  # fmt: skip
    assert np.argwhere(first["difference"]).tolist() == [[5, 1, 1]]
    assert (second["name"], second["leading"], second["difference"]) == (
        "weights", [], [[[0.0, 0.0]]]
    )  # fmt: skip
    assert course_answers._compared(case, expected, ()) == []


BROKEN = {
    "import os\nos._exit(0)\n": "ended before it had answered",
    f"raise ValueError({HOSTILE!r})": HOSTILE,
    "def attention(:\n": "SyntaxError",
    "import time\ntime.sleep(900)\n": "took too long",
}


@pytest.mark.parametrize("code", sampled(BROKEN, 1))
def test_an_answer_that_breaks_is_told_and_the_next_is_checked(opened: Any, code: str) -> None:
    page = opened()
    assert BROKEN[code] in check(page, code)
    assert "known mistake" in check(page, WRONG)


ENDLESS = """import os, pathlib
pathlib.Path({path!r}).write_text(str(os.getpid()))
while True:
    pass
"""


def test_an_answer_that_never_ends_is_stopped_with_its_process(opened: Any, tmp_path: Path) -> None:
    page = opened()
    note = tmp_path / "process"
    write_code(page, ENDLESS.format(path=str(note)))
    page.get_by_role("button", name="Check", exact=True).click()
    number = int(until(lambda: note.exists() and note.read_text()))
    page.get_by_role("button", name="Stop").click()
    page.locator(".feedback", has_text="You stopped it after").wait_for()
    until(lambda: not is_running(number))
    assert page.get_by_role("button", name="Stop").count() == 0
    with page.expect_response("**/api/course/check", timeout=PATIENCE * 1000) as told:
        page.get_by_role("button", name="Check", exact=True).click()
        page.get_by_role("button", name="Stop").click()  # before a new process is ready
    assert "stopped" in told.value.json()
    assert "known mistake" in check(page, WRONG)


@pytest.mark.parametrize("name", sampled(exercise_names(), 3))
def test_an_exercise_opens_without_its_solution(tmp_path: Path, name: str) -> None:
    told = course_answers.WORK["open_exercise"](folder=str(tmp_path), name=name)
    assert told["statement"]
    assert told["code"]
    assert leaked_lines(told["code"], find_exercise(name).source) == []


@pytest.mark.slow
def test_a_link_to_no_exercise_is_told_so(open_room: Any) -> None:
    page = open_room("course", ".notice:not([hidden])", exercise="nothing")
    assert "no exercise named 'nothing'" in page.locator(".course-room .notice").inner_text()


def test_nothing_that_a_file_says_becomes_markup(opened: Any, context: Any) -> None:
    page = context.new_page()

    def alter(told: Any) -> None:
        told["statement"] = [["p", HOSTILE], ["script", "alert(3)"], ["iframe", HOSTILE]]
        told["hint"] = [HOSTILE]
        told["picture"] = "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(4)'/>"

    tamper(page, "/api/course/open", alter)
    page.goto(opened().url)
    page.wait_for_selector(PART.replace("h2", "p"))
    assert page.locator(".statement script, .statement iframe").count() == 0
    assert HOSTILE in page.locator(".statement").inner_text()
