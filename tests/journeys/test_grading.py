"""An instructor grades a class: zips, folders, a log of another homework, and a student who cheats.

The class hands in `softmax`, `identity`, `copy_first` and `torch_transformer`. What the instructor
reads is read here, too: the tables, the pages, and what the command prints.
"""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import attnlab_course
from tests.course.homework import homework_log

from .conftest import Home

RIGHT = """\
import torch

def softmax(scores, dim=-1):
    if scores.shape[dim] == 0:
        return torch.zeros_like(scores)
    most = scores.amax(dim, keepdim=True)
    raised = torch.exp(scores - most.masked_fill(most == -torch.inf, 0))
    total = raised.sum(dim, keepdim=True)
    return raised / total.masked_fill(total == 0, 1)
"""
OVERFLOWS = RIGHT.replace("scores - most.masked_fill(most == -torch.inf, 0)", "scores")
CALLED = (
    "import torch\n\ndef softmax(scores, dim=-1):\n    return torch._safe_softmax(scores, dim)\n"
)
FORGED = (
    "import os\n\ndef softmax(scores, dim=-1):\n    print('4 of 4 checks pass')\n    os._exit(0)\n"
)


pytestmark = pytest.mark.usefixtures("sandbox")


def rows_of(path: Path) -> dict[str, dict[str, str]]:
    """Read a table of grades by the names in its first or second column; `x (of 4)` is `x`."""
    with path.open(encoding="utf-8", newline="") as file:
        head, *cells = csv.reader(file)
    names = [name.partition(" (of ")[0] for name in head]
    rows = [dict(zip(names, row, strict=True)) for row in cells]
    return {row.get("student") or row.get("Full name") or row["Student"]: row for row in rows}


def hand_in(folder: Path, name: str, content: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content)


NO_CLASS = dict.fromkeys(f"torch_transformer_{name}" for name in ("init", "forward"))


def second_place():
    query = np.zeros((7, 4))
    query[3:, 1] = 40.0
    return query


WRONG_DESIGNS = {  # of the homework: a matrix, the exercise that loses, and why
    "ben": ("position_Q", second_place(), "copy_first", "Every place looks at the second"),
    "cleo": ("content_Q", np.eye(3), "identity", "The gain is too low"),
    "dan": ("content_V", np.ones(8), "identity", "attention_by_content_V has 8 numbers"),
    "dora": ("content_Q", -10 * np.eye(3), "identity", "The sign of the scores is wrong"),
    "ed": (
        "content_V",
        np.fliplr(np.eye(3)),
        "identity",
        "the rows of Vm are not what should come out",
    ),
}


@pytest.fixture(scope="module")
def graded(home_folder, warm):
    """A class hands in by the course's own command, as folders, as logs, and as other things."""
    home = Home(home_folder, home_folder / "class", warm)
    home.here.mkdir()
    home.run("attnlab course start softmax")
    hand_in(home.here, "course/softmax.py", RIGHT)
    folder = home.here / "handed-in"  # which submitting makes
    home.run('attnlab course submit "Ada" --out handed-in/ada.zip')
    hand_in(folder, "bob/softmax.py", OVERFLOWS)
    hand_in(folder, "carla/submission_log.json", json.dumps(homework_log()))
    hand_in(folder, "eve/softmax.py", CALLED)
    hand_in(folder, "finn/softmax.py", FORGED)
    hand_in(folder, "gil.zip", "this was a zip once")
    hand_in(folder, "syllabus.pdf", "no submission")
    for student, (part, matrix, _, _) in WRONG_DESIGNS.items():
        log = homework_log(**NO_CLASS, **{f"attention_by_{part}": matrix.reshape(-1).tolist()})
        hand_in(folder, f"{student}.json", json.dumps(log))
    return home.here / "grades", home.run("attnlab grade handed-in -o grades").out


EXERCISES = ("softmax", "torch_transformer", "identity", "copy_first")


def test_a_class_is_graded_and_its_tables_add_up(graded):
    grades, printed = graded
    assert "11 handed in: 10 read, 1 refused" in printed
    assert "passed over, as they are no submissions: syllabus.pdf" in printed
    rows = rows_of(grades / "grades.csv")
    assert sorted(rows) == sorted(["ada", "bob", "carla", "eve", "finn", "gil", *WRONG_DESIGNS])
    for row in rows.values():
        points = [float(row[name]) for name in EXERCISES if row[name] != "?"]  # ? is held
        assert row["points"] == "?" or sum(points) == float(row["points"])
    points = {student: row["points"] for student, row in rows.items()}
    for table, column in (("moodle.csv", "Grade"), ("canvas.csv", "Grades")):
        exported = rows_of(grades / table)
        exported.pop("Points Possible", None)
        assert {student: row[column] for student, row in exported.items()} == {
            **points,
            "eve": "",  # waits for a review
            "gil": "",  # a broken zip
        }

    full = {name: rows["carla"][name] for name in EXERCISES[1:]}
    full["softmax"] = rows["ada"]["softmax"]
    assert sum(map(float, full.values())) == float(rows["ada"]["of"])
    assert 0 < float(rows["bob"]["softmax"]) < float(full["softmax"])
    assert (rows["eve"]["points"], rows["finn"]["points"], rows["gil"]["points"]) == ("0", "0", "?")
    assert float(rows["eve"]["held"]) > 0
    assert "_safe_softmax" in (grades / "reviews.csv").read_text()
    results = json.loads((grades / "grades.json").read_text())
    assert (results["refused"], results["passed_over"]) == (["gil"], ["syllabus.pdf"])


def test_a_log_of_the_homework_loses_the_points_of_its_wrong_design_alone_and_says_why(graded):
    grades, _ = graded
    rows = rows_of(grades / "grades.csv")
    full = {name: float(rows["carla"][name]) for name in ("identity", "copy_first")}
    for student, (_, _, exercise, reason) in WRONG_DESIGNS.items():
        points = {name: float(rows[student][name]) for name in full}
        assert {name for name in full if points[name] != full[name]} == {exercise}
        assert float(rows[student]["points"]) == sum(points.values())
        report = grades / "students" / student
        assert reason in (report / "report.html").read_text()
        tests = json.loads((report / "results.json").read_text())["tests"]
        scores = [test["score"] for test in tests if test["name"].startswith(exercise)]
        assert sum(scores) == points[exercise]
        assert (points[exercise] == 0) == (student == "dan")  # whose matrix is none


def test_nothing_stale_is_reused_once_shared_code_of_the_course_is_edited(home):
    hand_in(home.here, "handed-in/carla.json", json.dumps(homework_log(**NO_CLASS)))

    def points(command):
        home.run(f"{command} grade handed-in -o grades")
        return float(rows_of(home.here / "grades" / "grades.csv")["carla"]["identity"])

    def times():
        outcomes = (home.here / "grades" / "outcomes" / "carla").iterdir()
        return {file.name: file.stat().st_mtime_ns for file in outcomes}

    assert points("attnlab") > 0
    first = times()
    package = home.here / "attnlab_course"
    shutil.copytree(Path(attnlab_course.__file__).parent, package)
    home.environment["PYTHONPATH"] = str(home.here)
    helper = package / "material" / "weights.py"
    text = helper.read_text()
    helper.write_text(text.replace("LARGEST = 64\n", "LARGEST = 2\n"))
    assert helper.read_text() != text
    assert points("python -m attnlab") == 0
    assert all(times()[name] > first[name] for name in first)
