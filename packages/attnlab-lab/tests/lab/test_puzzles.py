"""The puzzles of the Bench: solved by our solutions, not before, and by nothing else."""

import re
from pathlib import Path
from typing import Any

import pytest

from attnlab_lab import static
from tests.sampling import sampled

from .playing import Open, dots, edits, follow, press, rested, settled, trained

SOLUTIONS = {
    "idle": "z0.1",
    "mend": "c0.0.4.3,s0.0.4.4.2,s0.1.4.3.-3",
    "victim": "c0.0.3.0",
    "weakest": "c0.1.3.3",
    "lean-sort": "c0.0.4.3,c0.0.5.1,c0.0.5.2,c0.0.3.2,c0.0.3.0,c0.0.5.3,c0.0.5.5,c0.0.4.4,c0.0.5.0",
    "lean-copy": "c0.1.4.1,c0.0.4.3,c0.0.3.1,c0.0.5.4,c0.1.3.0,c0.0.3.2,c0.1.3.1,c0.1.3.2,c0.1.5.0,"
    "c0.0.5.3,c0.1.5.2,c0.0.5.0,c0.1.5.4,c0.1.5.1,c0.1.4.4,c0.1.3.3,c0.1.4.2,c0.0.5.5,c0.0.4.4,"
    "c0.1.4.0,c0.1.5.3",
    "lean-reverse": "c0.1.5.3,c0.1.5.4,c0.0.4.2,c0.0.4.4,c0.0.3.0,c0.0.4.0,c0.0.3.3,c0.0.5.2,"
    "c0.0.5.4,c0.0.5.5,c0.0.4.3,c0.0.5.3,c0.0.3.1,c0.1.3.1,c0.1.4.1,c0.1.4.3,c0.0.5.1,c0.1.4.4,"
    "c0.1.3.0,c0.1.5.2,c0.1.5.1,c0.1.3.2,c0.1.5.0,c0.1.3.3",
}
NEAR_MISSES = {
    "idle": ("z0.0", "So far"),
    "weakest": ("c0.0.4.1", "So far"),
    "victim": ("z0.1", "Only cuts count here"),
    "mend": ("s0.0.4.4.2,s0.1.4.3.-3", "The cut that the puzzle begins with must stay"),
}


def told(page: Any) -> str:
    text: str = page.locator(".puzzle-told [role=status]").inner_text()
    return text


@pytest.mark.parametrize("name", sampled(SOLUTIONS, 1))
def test_a_puzzle_is_solved_by_our_solution_and_not_before(open_lab: Open, name: str) -> None:
    page = trained(open_lab(f"#room=bench&puzzle={name}"))
    assert told(page).startswith("So far"), told(page)
    start = page.url.partition("&edits=")[0]
    assert f"puzzle={name}" in page.url
    settings = re.sub("&puzzle=.*", "", start)
    follow(page, f"#{settings.partition('#')[2]}&puzzle={name}&edits={SOLUTIONS[name]}")
    page.locator(".puzzle-told.all").wait_for()
    settled(page)
    right = sum(dots(page).values())
    number = len(edits(page)) - (name == "mend")
    words = f"Solved, on every input: {right} right with {number} edit{'s'[: number != 1]}; ours: "
    ours = f"{right} right" if name == "weakest" else f"{number} edit{'s'[: number != 1]}"
    assert told(page) == f"{words}{ours}."
    assert page.locator(".puzzle-part button[aria-pressed=true]").inner_text().endswith("✓")
    if name in NEAR_MISSES:
        near, reason = NEAR_MISSES[name]
        press(page, "Reset")
        follow(page, f"#{settings.partition('#')[2]}&puzzle={name}&edits={near}")
        page.locator(".puzzle-told:not(.all)").wait_for()
        settled(page)
        assert told(page).startswith(reason)


def test_there_are_twenty_puzzles() -> None:
    folder = Path(static.__file__).parent
    texts = [(folder / name).read_text() for name in ("puzzles.js", "bench_puzzles.js")]
    names = [re.findall(r'name: "([\w-]+)"', text) for text in texts]
    assert set(names[1]) == set(SOLUTIONS)
    assert len({*names[0], *names[1]}) == 20


def test_a_head_knocked_out_is_said_in_words_that_sound_like_no_solution(open_lab: Open) -> None:
    page = trained(open_lab("#room=bench&puzzle=weakest"))
    page.get_by_label("The whole head").select_option("zero")
    settled(page)
    said = page.locator("#status").inner_text()
    assert re.match(r"Head 0\.0 is knocked out\. \d+ of 27 inputs right, \d+ fewer", said), said
    page.get_by_label("The whole head").select_option("")
    settled(page)
    assert page.locator("#status").inner_text().startswith("Taken back. 27 of 27")


def test_a_half_trained_model_is_trained_to_the_end_beside_its_puzzle(open_lab: Open) -> None:
    page = rested(open_lab("#room=bench&seed=5&puzzle=mend&edits=c0.0.4.3&at=60"))
    assert told(page).startswith("The model is half trained: step 60 of 800.")
    page.locator(".puzzle-told").get_by_role("button", name="Go on").click()
    trained(page)
    assert told(page).startswith("So far")
    assert edits(page) == ["Head 0.0: query 4 ‘a’ → key 3 ‘SEP’ is cut."]
    assert page.locator(".puzzle-told button").is_hidden()


def test_the_difference_of_a_head_knocked_out_says_that_its_weights_stay(open_lab: Open) -> None:
    page = rested(open_lab("#room=bench&edits=z0.0&at=60"))
    note = page.get_by_text("The output of head 0.0 is taken out; its weights stay.")
    assert note.is_hidden()
    press(page, "Difference")
    assert note.is_visible()
    page.get_by_label("The whole head").select_option("uniform")
    settled(page)
    assert note.is_hidden()
