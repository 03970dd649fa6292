"""A school grades by a queue: one submission a call, many at once, and scores go to its platform.

The page that tells how, docs/school.md, is typed here where there is a sandbox.
"""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from tests.test_readme_examples import ROOT, blocks

from .test_grading import OVERFLOWS, RIGHT, hand_in

pytestmark = pytest.mark.usefixtures("sandbox")

COURSE = 'exercises = ["softmax", "reflect_model"]\n'
WORDS = "I would trust it with nothing."
STATES = {"bob": (0, "graded"), "eve": (0, "waits"), "gil.zip": (1, "refused")}


def school_of(home) -> None:
    """A class hands in: a zip, a folder, a text that waits for a person, and a broken zip."""
    hand_in(home.here, "course.toml", COURSE)
    home.run("attnlab course start softmax")
    hand_in(home.here, "course/softmax.py", RIGHT)
    home.run('attnlab course submit "Ada" --out inbox/ada.zip')
    hand_in(home.here, "inbox/bob/softmax.py", OVERFLOWS)
    hand_in(home.here, "inbox/eve/reflect_model.txt", WORDS)
    hand_in(home.here, "inbox/gil.zip", "this was a zip once")
    (home.here / "results").mkdir()


def commands_of_the_page() -> list[str]:
    """Return the commands of the page for schools that need the sandbox alone."""
    found = blocks(ROOT / "docs" / "school.md")
    those = [block for block in found if block.note == "not run: needs the sandbox"]
    return [shlex.join(words) for block in those for words in block.commands]


def state_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def result_in(home, name: str) -> dict:
    return json.loads((home.here / "results" / name).read_text())


def test_by_the_page_for_schools_workers_give_what_the_class_gets_and_the_platform_hears_it(home):
    school_of(home)
    shutil.copytree(home.here / "inbox", home.here / "trial")
    one, whole = commands_of_the_page()
    home.run(whole)
    of_class = json.loads((home.here / "grades" / "grades.json").read_text())["students"]
    before = state_of(home.here / "grades")
    options = "--grades grades --course course.toml"
    command = f"attnlab grade-one inbox/{{0}} {options} -o results/{{0}}.json"
    beside = home.start(command.format("bob"))  # many are graded at once
    home.run(one)
    by_student = {result["student"]: result for result in of_class}
    ada = result_in(home, "ada.json")
    assert (ada["state"], ada["points"]) == ("graded", 9)
    assert by_student["ada"]["exercises"] == ada["exercises"]
    for name, (status, state) in STATES.items():
        if name == "bob":
            printed = beside.communicate(timeout=600)[0]
            assert beside.returncode == status, printed
        else:
            printed = home.run(command.format(name), status=status).text
        assert printed == ""
        result = result_in(home, f"{name}.json")
        assert result["state"] == state
        assert (result.pop("format"), result.pop("submission")) == (
            "attnlab result 1",
            f"inbox/{name}",
        )
        assert result == by_student[result["student"]]
    assert by_student["bob"]["points"] > 0
    typed = f"attnlab grade-one - --name eve/reflect_model.txt {options}"
    result = json.loads(home.run(typed, typed=WORDS).out)
    assert (result["exercises"], result["state"]) == (by_student["eve"]["exercises"], "waits")
    assert state_of(home.here / "grades") == before
    send_results(home)


def send_results(home) -> None:
    """Send the results of the workers, then once more: the platform has them already."""
    platforms = pytest.importorskip("tests.course.mock_platform", reason="no attnlab-course[lti]")
    pem, public = platforms.make_key()
    (home.here / "tool.pem").write_bytes(pem)
    with platforms.MockPlatform(public) as platform:
        platform.add_members(*({"name": name} for name in ("Ada", "Bob", "Eve")))
        (home.here / "platform.toml").write_text(platform.settings())
        command = "attnlab grade-send results --platform platform.toml"
        trial = home.run(f"{command} --dry-run", status=1)
        assert "4 given: 3 would be sent, 0 sent before, 0 refused, 1 unknown" in trial.out
        assert platform.columns == platform.scores == {}
        platform.faults = {("POST", "/course/1/columns/1/scores"): [503, None, "lost"]}
        answer = home.run(command, status=1)
        assert "4 given: 3 sent, 0 sent before, 0 refused, 1 unknown" in answer.out
        assert "gil" in answer.out
        again = home.run(command, status=1)
        assert "4 given: 0 sent, 3 sent before, 0 refused, 1 unknown" in again.out
        points = {user: score.get("scoreGiven") for (_, user), score in platform.scores.items()}
        bob = result_in(home, "bob.json")["points"]
        assert points == {"u1": 9, "u2": bob, "u3": None}  # what waits is sent without points
