"""`attnlab grade`: a class in the sandbox from the command to the reports, and when it refuses."""

import json

import pytest

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab_course.grade_command import grade
from attnlab_course.sandbox.jail import probe

from .classroom import GOOD, RAISES, SQUARE, exercises_in, handed_in

LEAKS = """
import sys
def double(number):
    step = sys._getframe()
    while step is not None:
        step = step.f_back
    raise ValueError(f"secret {number}")
"""
ENDS = "import os\nos._exit(0)\n"


@pytest.fixture(autouse=True)
def one_exercise_of_the_course(monkeypatch):
    monkeypatch.setattr("attnlab_course.grading.gradebook.exercise_names", lambda: ["attention"])


@pytest.fixture
def room(tmp_path):
    exercises_in(tmp_path / "own")
    (tmp_path / "course.toml").write_text('folder = "own"\ntitle = "Autumn"\n')
    (tmp_path / "submissions").mkdir()
    return tmp_path


@pytest.fixture
def sandboxed():
    try:
        probe()
    except CouldNotRun as error:
        pytest.skip(str(error))


def test_a_class_is_graded_in_the_sandbox(room, sandboxed, capsys):
    for student, source in {"alice": GOOD, "bob": SQUARE, "carl": LEAKS, "dora": ENDS}.items():
        (room / "submissions" / f"{student}.zip").write_bytes(handed_in({"double.py": source}))
    out = room / "grades"
    assert grade(room / "submissions", out=out, course=room / "course.toml", quiet=True) == 0
    told = capsys.readouterr().out
    assert "class.html" in told
    assert "points of 4" in told
    assert (out / "class.html").exists()
    table = (out / "grades.csv").read_text()
    assert '"alice","4","4","4"' in table
    assert '"bob","0","0","4"' in table
    assert '"dora","0","0","4"' in table
    everything = (out / "students" / "carl" / "report.html").read_text()
    everything += (out / "outcomes" / "carl" / "double.json").read_text()
    assert "it raised ValueError" in everything
    assert "secret" not in everything
    again = grade(room / "submissions", out=out, course=room / "course.toml", as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert again == 0
    assert [each["points"] for each in told["students"]] == [4, 0, 0, 0]
    assert told["students"][1]["exercises"][0]["mistake"] == "square"


def test_without_bubblewrap_nothing_is_graded_and_the_line_that_installs_it_is_told(
    room, monkeypatch
):
    (room / "submissions" / "alice.zip").write_bytes(handed_in({"double.py": RAISES}))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.prefix", "/nowhere")
    with pytest.raises(CouldNotRun, match="apt-get install bubblewrap"):
        grade(room / "submissions", out=room / "grades", course=room / "course.toml")
    assert not (room / "grades").exists()


def test_wrong_options_are_refused(room):
    course = room / "course.toml"
    for options, words in (
        ({"workers": 0}, "--workers must be at least 1; got 0"),
        ({"exercise": ["dubble"], "again": True}, "did you mean 'double'"),
        ({"exercise": ["double"]}, "give both"),
    ):
        with pytest.raises(WrongUsage, match=words):
            grade(room / "submissions", out=room / "grades", course=course, **options)


def test_grades_inside_the_submissions_are_refused(room):
    for out in (room / "submissions", room / "submissions" / "grades"):
        with pytest.raises(WrongUsage, match="must lie outside the folder of submissions"):
            grade(room / "submissions", out=out, course=room / "course.toml")


def test_the_terminal_tells_who_is_not_on_the_list_and_what_was_passed_over(
    room, sandboxed, capsys
):
    (room / "submissions" / "alice.zip").write_bytes(handed_in({"double.py": GOOD}))
    (room / "submissions" / "notes.pdf").write_text("x")
    (room / "students.csv").write_text("student\nbob\n")
    with (room / "course.toml").open("a") as file:
        file.write('students = "students.csv"\n')
    grade(room / "submissions", out=room / "grades", course=room / "course.toml", quiet=True)
    told = capsys.readouterr().out
    assert "handed in, not on the list of students: alice" in told
    assert "on the list of students, nothing handed in: bob" in told
    assert "no submissions: notes.pdf" in told
    assert "2 handed in: 1 read, 1 refused" in told
