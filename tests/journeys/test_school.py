"""A school grades by a queue: one submission a call, many at once, and scores go to its platform.

The page that tells how, docs/school.md, is typed here where there is a sandbox.
"""

import json
import shlex
from pathlib import Path

import pytest

from attnlab.errors import CouldNotRun
from attnlab_course.sandbox.jail import probe
from tests.test_readme_examples import ROOT, blocks

from .test_grading import CALLED, FORGED, OVERFLOWS, RIGHT, hand_in

RAISES = "def softmax(scores, dim=-1):\n    raise ValueError(scores)\n"
COURSE = 'exercises = ["softmax", "identity"]\n'
STATES = {
    "ada.zip": (0, "graded"),
    "bob": (0, "graded"),
    "eve": (0, "waits"),
    "finn": (0, "graded"),
    "gil.zip": (1, "refused"),
    "hal": (0, "graded"),
}


@pytest.fixture(scope="module", autouse=True)
def _sandbox():
    try:
        probe()
    except CouldNotRun as error:
        pytest.skip(f"no sandbox here: {error}")


def school_of(home) -> Path:
    """A class hands in, among them a program that raises and one that ends the process."""
    home.run("attnlab course start softmax")
    hand_in(home.here, "course/softmax.py", RIGHT)
    home.run('attnlab course submit "Ada" --out handed-in/ada.zip')
    for student, program in {
        "bob": OVERFLOWS,
        "eve": CALLED,
        "finn": FORGED,
        "hal": RAISES,
    }.items():
        hand_in(home.here, f"handed-in/{student}/softmax.py", program)
    hand_in(home.here, "handed-in/gil.zip", "this was a zip once")
    hand_in(home.here, "course.toml", COURSE)
    return home.here / "handed-in"


def state_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_many_workers_at_once_give_what_the_class_gets_and_its_scores_reach_the_platform(home):
    folder = school_of(home)
    home.run("attnlab grade handed-in -o grades --course course.toml")
    of_class = json.loads((home.here / "grades" / "grades.json").read_text())["students"]
    before = state_of(home.here / "grades")
    (home.here / "results").mkdir()
    options = "--grades grades --course course.toml"
    assert sorted(STATES) == sorted(path.name for path in folder.iterdir())
    command = f"attnlab grade-one handed-in/{{0}} {options} -o results/{{0}}.json"
    at_once = {name: home.start(command.format(name)) for name in ("ada.zip", "eve", "gil.zip")}
    results = {}
    for name, (status, state) in STATES.items():
        if name in at_once:
            printed = at_once[name].communicate(timeout=600)[0]
            assert at_once[name].returncode == status, printed
        else:
            printed = home.run(command.format(name), status=status).text
        assert printed == ""
        result = json.loads((home.here / "results" / f"{name}.json").read_text())
        assert result["state"] == state
        results[result["student"]] = result
    for result in of_class:
        mine = results[result["student"]]
        assert (mine.pop("format"), mine.pop("submission")[:10]) == (
            "attnlab result 1",
            "handed-in/",
        )
        assert mine == result
    assert state_of(home.here / "grades") == before
    assert results["bob"]["points"] > results["hal"]["points"] == 0
    send_results(home)


def send_results(home) -> None:
    """Send the results of the workers, then those of the class: the platform has these already."""
    platforms = pytest.importorskip("tests.course.mock_platform", reason="no attnlab-course[lti]")
    pem, public = platforms.make_key()
    (home.here / "tool.pem").write_bytes(pem)
    with platforms.MockPlatform(public) as platform:
        platform.add_members(*({"name": name} for name in ("Ada", "Bob", "Eve", "Finn", "Gil")))
        (home.here / "platform.toml").write_text(platform.settings())
        command = "--platform platform.toml"
        trial = home.run(f"attnlab grade-send results {command} --dry-run", status=1)
        assert "6 given: 5 would be sent, 0 sent before, 0 refused, 1 unknown" in trial.out
        assert platform.scores == {}
        platform.faults = {("POST", "/course/1/columns/1/scores"): [503, None, "lost"]}
        answer = home.run(f"attnlab grade-send results {command}", status=1)
        assert "6 given: 5 sent, 0 sent before, 0 refused, 1 unknown" in answer.out
        assert "hal" in answer.out
        again = home.run(f"attnlab grade-send results {command}", status=1)
        assert "6 given: 0 sent, 5 sent before, 0 refused, 1 unknown" in again.out
        points = {user: score.get("scoreGiven") for (_, user), score in platform.scores.items()}
        grades = json.loads((home.here / "grades" / "grades.json").read_text())["students"]
        graded = {f"u{number}": student for number, student in enumerate(grades[:5], 1)}
        assert set(points) == set(graded)
        for user, student in graded.items():  # what waits is sent without points
            waits = student["state"] != "graded"
            assert points[user] == (None if waits else student["points"])


def test_a_program_is_read_from_standard_input(home):
    school_of(home)
    home.run("attnlab grade handed-in/ada.zip -o grades --course course.toml")
    command = "attnlab grade-one - --name ann/softmax.py --grades grades --course course.toml"
    result = json.loads(home.run(command, typed=RIGHT).out)
    assert (result["student"], result["state"]) == ("ann", "graded")
    assert result["points"] == 9
    result = json.loads(home.run(command.replace(" --name ann/softmax.py", ""), status=2).out)
    assert result["state"] == "failed"


def test_the_commands_of_the_page_for_schools_can_be_typed(home):
    """Those that need the sandbox; the others are marked by what they need."""
    school_of(home)
    (home.here / "handed-in").rename(home.here / "inbox")
    hand_in(home.here, "trial/me/softmax.py", RIGHT)
    page = ROOT / "docs" / "school.md"
    commands = [
        shlex.join(words)
        for block in blocks(page)
        if block.note == "not run: needs the sandbox"
        for words in block.commands
    ]
    (home.here / "results").mkdir()
    for command in sorted(commands, key=lambda command: "grade-one" in command):
        home.run(command)
    result = json.loads((home.here / "results" / "ada.json").read_text())
    assert (result["state"], result["points"]) == ("graded", 9)
    assert len(commands) == 2
