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
from attnlab.errors import CouldNotRun
from attnlab_course.sandbox.jail import probe
from tests.course.homework import homework_log

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


@pytest.fixture(scope="module", autouse=True)
def _sandbox():
    try:
        probe()
    except CouldNotRun as error:
        pytest.skip(f"no sandbox here: {error}")


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


def class_of(home) -> Path:
    """A class hands in: by the course's own command, as folders, as a log, and as other things."""
    home.run("attnlab course start softmax")
    hand_in(home.here, "course/softmax.py", RIGHT)
    folder = home.here / "handed-in"  # which submitting makes
    home.run('attnlab course submit "Ada" --out handed-in/ada.zip')
    hand_in(folder, "bob/softmax.py", OVERFLOWS)
    hand_in(folder, "carla/submission_log.json", json.dumps(homework_log()))
    hand_in(folder, "dan.json", json.dumps(homework_log(attention_by_content_V=[1.0] * 8)))
    hand_in(folder, "eve/softmax.py", CALLED)
    hand_in(folder, "finn/softmax.py", FORGED)
    hand_in(folder, "gil.zip", "this was a zip once")
    hand_in(folder, "syllabus.pdf", "no submission")
    return folder


def test_a_class_is_graded_and_its_tables_add_up(home):
    folder = class_of(home)
    answer = home.run("attnlab grade handed-in -o grades")
    assert "7 handed in: 6 read, 1 refused" in answer.out
    assert "passed over, as they are no submissions: syllabus.pdf" in answer.out
    grades = home.here / "grades"
    rows = rows_of(grades / "grades.csv")
    assert len(rows) + len(["syllabus.pdf"]) == len(list(folder.iterdir()))
    assert sorted(rows) == ["ada", "bob", "carla", "dan", "eve", "finn", "gil"]
    exercises = ("softmax", "torch_transformer", "identity", "copy_first")
    for row in rows.values():
        points = [float(row[name]) for name in exercises if row[name] != "?"]  # ? is held
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

    full = {name: rows["carla"][name] for name in exercises[1:]}
    full["softmax"] = rows["ada"]["softmax"]
    assert sum(map(float, full.values())) == float(rows["ada"]["of"])
    assert 0 < float(rows["bob"]["softmax"]) < float(full["softmax"])
    assert rows["dan"]["identity"] == "0"
    assert rows["dan"]["copy_first"] == full["copy_first"]
    assert (rows["eve"]["points"], rows["finn"]["points"], rows["gil"]["points"]) == ("0", "0", "?")
    assert float(rows["eve"]["held"]) > 0
    assert "_safe_softmax" in (grades / "reviews.csv").read_text()

    results = json.loads(home.run("attnlab grade handed-in -o grades --json").out)
    assert results["handed_in"] == 7
    assert (results["refused"], results["passed_over"]) == (["gil"], ["syllabus.pdf"])
    page = (grades / "students" / "dan" / "report.html").read_text()
    assert "attention_by_content_V has 8 numbers" in page


def second_place():
    query = np.zeros((7, 4))
    query[3:, 1] = 40.0
    return query


NO_CLASS = dict.fromkeys(f"torch_transformer_{name}" for name in ("init", "forward"))
WRONG_DESIGNS = {  # of the homework: a matrix, the exercise that loses, and why
    "ben": ("position_Q", second_place(), "copy_first", "Every place looks at the second"),
    "cleo": ("content_Q", np.eye(3), "identity", "The gain is too low"),
    "dora": ("content_Q", -10 * np.eye(3), "identity", "The sign of the scores is wrong"),
    "ed": (
        "content_V",
        np.fliplr(np.eye(3)),
        "identity",
        "the rows of Vm are not what should come out",
    ),
}


def test_a_log_of_the_homework_loses_the_points_of_its_wrong_design_alone_and_says_why(home):
    hand_in(home.here, "class/ann.json", json.dumps(homework_log(**NO_CLASS)))
    for student, (part, matrix, _, _) in WRONG_DESIGNS.items():
        log = homework_log(**NO_CLASS, **{f"attention_by_{part}": matrix.reshape(-1).tolist()})
        hand_in(home.here, f"class/{student}.json", json.dumps(log))
    home.run("attnlab grade class -o grades")
    rows = rows_of(home.here / "grades" / "grades.csv")
    full = rows.pop("ann")
    assert float(full["points"]) == float(full["identity"]) + float(full["copy_first"])
    for student, (_, _, exercise, reason) in WRONG_DESIGNS.items():
        lost = {name for name in full if rows[student][name] != full[name]}
        assert lost == {"student", "name", exercise, "points"}
        report = home.here / "grades" / "students" / student
        assert reason in (report / "report.html").read_text()
        tests = json.loads((report / "results.json").read_text())["tests"]
        points = sum(test["score"] for test in tests if test["name"].startswith(exercise))
        assert 0 < points < float(full[exercise])
        assert points == float(rows[student][exercise])


def test_nothing_stale_is_reused_once_shared_code_of_the_course_is_edited(home):
    hand_in(home.here, "handed-in/carla.json", json.dumps(homework_log(**NO_CLASS)))
    package = home.here / "attnlab_course"
    shutil.copytree(Path(attnlab_course.__file__).parent, package)
    home.environment["PYTHONPATH"] = str(home.here)
    command = "python -m attnlab grade handed-in -o grades"

    def points():
        home.run(command)
        return float(rows_of(home.here / "grades" / "grades.csv")["carla"]["identity"])

    def times():
        outcomes = (home.here / "grades" / "outcomes" / "carla").iterdir()
        return {file.name: file.stat().st_mtime_ns for file in outcomes}

    assert points() > 0
    first = times()
    helper = package / "material" / "weights.py"
    text = helper.read_text()
    helper.write_text(text.replace("LARGEST = 64\n", "LARGEST = 2\n"))
    assert helper.read_text() != text
    assert points() == 0
    assert all(times()[name] > first[name] for name in first)
