"""The room Sweeps in a browser: its numbers are those that Python computes from the folder."""

import itertools
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import attnlab
from attnlab.errors import CouldNotRun
from attnlab.experiments.sweeps import Sweep, open_sweep
from attnlab.experiments.sweeps.outcome import CellOutcome
from attnlab_lab.server import members
from tests.sampling import sampled

from .playing import cells, check_look, tamper
from .serving import PATIENCE

WAIT = PATIENCE * 1000
AXES = {"d_model": [4, 6], "num_heads": [2, 4], "steps": [20, 250]}
FIGURES = {
    "share": lambda cell: cell.share.value,
    "solvedAt": lambda cell: cell.solved_at,
    "loss": lambda cell: cell.loss,
    "accuracy": lambda cell: cell.figures["accuracy"],
}


@pytest.fixture(scope="module", autouse=True)
def runs(home: Path) -> Path:
    """A folder with a sweep over three axes, and one that is half trained."""
    runs = home / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnlab.draw.figures.to_files", lambda name, draw: {})
        fields = {"recipe": "fast", "evaluate_every": 50}
        attnlab.sweep("sorting", seeds=range(3, 7), **AXES, **fields, out=runs / "grid")
    shutil.copytree(runs / "grid", runs / "half")
    (runs / "half" / "claims.json").unlink()
    for unit in sorted((runs / "half" / "cells").iterdir())[1:]:
        unit.unlink()
    return runs


@pytest.fixture(scope="module")
def found(runs: Path) -> Sweep:
    sweep = open_sweep(runs / "grid")
    shares = {cell.share.value for cell in sweep.cells}
    assert len(shares) > 1  # else nothing could be confused
    return sweep


@pytest.fixture
def opened(open_room: Any) -> Any:
    """Open the room with what a link says."""
    return partial(open_room, "sweeps", ".cell-part:visible", sweep="grid")


def number(words: str) -> float | None:
    """Read what a cell says; None for a dash."""
    return None if words == "–" else float(words.replace("−", "-").replace(",", ""))


def check_maps(page: Any, found: Sweep) -> None:
    """Read every cell by the keys, for each figure and each value of the third axis."""
    trained = {each.name: each for each in found.cells}
    for (figure, pick), steps in itertools.product(FIGURES.items(), range(2)):
        page.locator("#choice-figure").select_option(figure)
        page.locator("#choice-steps").select_option(str(steps))
        told = cells(page.locator(".sweeps-room canvas.heatmap"), 2, 2)
        names = itertools.product(AXES["d_model"], AXES["num_heads"], [AXES["steps"][steps]])
        for sentence, (width, heads, last) in zip(told, names, strict=True):
            name, _, words = sentence.removesuffix(".").rpartition(": ")
            assert name == f"d_model={width} num_heads={heads} steps={last}"
            if name not in trained:
                assert words == "not possible"
                continue
            value = pick(trained[name])
            assert number(words) == (None if value is None else pytest.approx(value, abs=5e-3))


def check_cell(page: Any, cell: CellOutcome) -> None:
    """Check the sentences about the chosen cell, and its seeds."""
    assert page.locator("#cell-title").inner_text() == cell.name
    told = page.locator(".cell-part p").first.inner_text()
    share, low, high = (f"{int(100 * each + 0.5)} %" for each in cell.share)
    solved = f"{cell.solved} of 4 seeds solve the problem: {share}, 95 % interval {low} to {high}."
    assert told.startswith(solved)
    step = re.search(r"by step (\d+)\.", told)
    assert (step and float(step[1])) == cell.solved_at
    loss = re.search(r"median loss at the end is ([\d.]+)\.", told)
    assert loss is not None
    assert float(loss[1]) == pytest.approx(cell.loss, abs=5e-3)
    assert page.locator(".cell-seeds li").evaluate_all("all => all.map(each => each.title)") == [
        f"Seed {each.seed}: not solved"
        if each.solved_at is None
        else f"Seed {each.seed}: solved, first at step {each.solved_at}"
        for each in cell.members
    ]


def choose(page: Any, cell: CellOutcome) -> None:
    """Choose a cell by the keys."""
    values = [AXES[name].index(value) for name, value in cell.fields.items()]
    page.locator("#choice-steps").select_option(str(values[2]))
    page.locator(".sweeps-room canvas.heatmap").focus()
    for key in ("PageUp", "Home", *["ArrowDown"] * values[0], *["ArrowRight"] * values[1]):
        page.keyboard.press(key)
    page.keyboard.press("Enter")


def test_every_number_of_the_room_is_that_of_the_folder(opened: Any, found: Sweep) -> None:
    page = opened()
    trained, expected = len(found.outcome.members), len(found.outcome.expected)
    assert trained == expected == 24
    assert page.get_by_text(str(found.report.content.subtitle)).count() == 1
    closest = min(found.cells, key=lambda cell: abs(cell.share.value - 0.5))
    check_cell(page, closest)
    check_maps(page, found)
    for cell in found.cells:
        choose(page, cell)
        check_cell(page, cell)


def alter(told: dict[str, Any], fault: str) -> None:
    """Make one number of an answer wrong."""
    cell = told["cells"][1]
    if fault == "share":
        cell["share"][0] = 0.5 if cell["share"][0] != 0.5 else 0.75
    elif fault == "interval":
        cell["share"][2] -= 0.1
    elif fault == "loss":
        cell["loss"] += 0.1
    elif fault == "step":
        cell["solvedAt"] = 7
    elif fault == "member":
        cell["members"][0][1] = 7
    elif fault == "figure":
        cell["figures"]["accuracy"] -= 0.1
    elif fault == "impossible":
        told["cells"][6]["refusal"] = ""
    elif fault == "order":
        told["cells"][0], told["cells"][1] = told["cells"][1], told["cells"][0]


FAULTS = ["share", "order", "interval", "loss", "step", "member", "figure", "impossible"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", sampled(FAULTS, 1))
def test_a_wrong_number_is_caught(context: Any, opened: Any, found: Sweep, fault: str) -> None:
    page = context.new_page()
    tamper(page, "/api/sweeps/grid", lambda told: alter(told, fault))
    opened(page)

    def check() -> None:
        check_maps(page, found)
        choose(page, found.cells[1])
        check_cell(page, found.cells[1])

    with pytest.raises(AssertionError):
        check()


@pytest.mark.slow
def test_a_sweep_in_the_middle_shows_what_is_trained(opened: Any, runs: Path) -> None:
    page = opened(sweep="half")
    there = open_sweep(runs / "half")
    trained = len(there.outcome.members)
    assert 0 < trained < 24
    page.get_by_text(f"{trained} of 24 are trained so far.").wait_for()
    told = cells(page.locator(".sweeps-room canvas.heatmap"), 2, 2)
    assert sum("not trained yet" in each for each in told) > 0
    shutil.copytree(runs / "grid" / "cells", there.folder / "cells", dirs_exist_ok=True)
    page.get_by_text("are trained so far").wait_for(state="detached", timeout=WAIT)


def test_it_fits_any_width_and_an_impossible_cell_says_why(opened: Any) -> None:
    page = opened(cell="6")
    assert page.locator("#cell-title").inner_text() == "d_model=6 num_heads=4 steps=20"
    assert "cannot be combined" in page.locator(".cell-part p").first.inner_text()
    assert page.locator(".cell-again").is_hidden()
    check_look(opened())


def test_too_many_models_are_refused_in_a_sentence(runs: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(members, "_MOST_MODELS", 23)
    with pytest.raises(CouldNotRun, match="look at its report with attnlab open"):
        members.WORK["sweep"](str(runs / "grid"))
