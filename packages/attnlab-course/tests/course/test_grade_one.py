"""`attnlab grade-one`: the result that `attnlab grade` gives, or the reason why there is none."""

import io
import json
from pathlib import Path

import pytest

from attnlab_course.grade_command import grade
from attnlab_course.grade_one_command import grade_one
from attnlab_course.grading import one_submission

from .classroom import (
    GOOD,
    MULTIPLIES,
    RAISES,
    SQUARE,
    exercises_in,
    grade_here,
    handed_in,
    open_here,
    zip_of,
)
from .homework import homework_log

LOG = json.dumps(homework_log()).encode()
CLASS = {
    "alice.zip": handed_in({"double.py": GOOD, "why.txt": "Because."}, student="A"),
    "bob.zip": handed_in({"double.py": SQUARE}, student="B"),
    "carla/double.py": GOOD.encode(),
    "dora.zip": handed_in({"double.py": RAISES}, created="2026-12-03T00:00:00+00:00"),
    "eve_double.py": MULTIPLIES.encode(),
    "finn.zip": b"this was a zip once",
    "gil.zip": zip_of({"notes.txt": "nothing", "../double.py": GOOD}),
    "hugo_pair.json": json.dumps({"weights": {"a": 1.0, "b": 9.0}}).encode(),
    "ida.ipynb": b'{"cells": 7}',
}


@pytest.fixture
def room(tmp_path, monkeypatch, capsys):
    """A class that is graded, with a review and the points of a text filled in."""
    grade_here(monkeypatch)
    monkeypatch.setattr(one_submission, "probe", lambda: None)
    monkeypatch.setattr(one_submission, "_TimedWorker", lambda jail, deadline: open_here())
    monkeypatch.chdir(tmp_path)
    exercises_in(tmp_path / "own")
    for name, content in CLASS.items():
        (tmp_path / "class" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "class" / name).write_bytes(content)
    (tmp_path / "students.csv").write_text("student\nalice\nbob\nzoe\n")
    (tmp_path / "course.toml").write_text(
        'folder = "own"\nexercises = ["double", "pair", "why"]\nstudents = "students.csv"\n'
        "deadline = 2026-12-01T18:00:00+01:00\nlate_percent_per_day = 10\n"
    )
    (tmp_path / "grades").mkdir()
    (tmp_path / "grades" / "reviews.csv").write_text(
        "student,exercise,answer,decision\neve,double,,accept\n"
    )
    (tmp_path / "grades" / "texts.csv").write_text(
        "student,exercise,answer,criterion,points\nalice,why,,names the width,1\n"
    )
    grade_all(tmp_path)
    return tmp_path


def grade_all(room):
    grade(room / "class", out=room / "grades", course=room / "course.toml", as_json=True)


def result_of(room, capsys, submission, **options):
    """Grade one, and return the exit status and the result."""
    capsys.readouterr()
    options = {"grades": room / "grades", "course": room / "course.toml", **options}
    status = grade_one(str(submission), **options)
    return status, json.loads(capsys.readouterr().out)


def test_each_result_is_the_one_of_the_class_and_nothing_is_kept(room, capsys):
    students = json.loads(capsys.readouterr().out)["students"]
    of_class = {result["student"]: result for result in students}
    before = state_of(room)
    states = {}
    for path in sorted((room / "class").iterdir()):
        status, result = result_of(room, capsys, path)
        assert (result.pop("format"), result.pop("submission")) == ("attnlab result 1", str(path))
        assert result == of_class.pop(result["student"])
        states[result["student"]] = (status, result["state"])
    assert states == {
        "alice": (0, "waits"),
        "bob": (0, "graded"),
        "carla": (1, "unlisted"),
        "dora": (1, "unlisted"),
        "eve": (1, "unlisted"),
        "finn": (1, "unlisted"),
        "gil": (1, "unlisted"),
        "hugo": (1, "unlisted"),
        "ida": (1, "unlisted"),
    }
    assert [result["state"] for result in of_class.values()] == ["absent"]  # zoe
    assert state_of(room) == before


def state_of(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_worker_without_the_list_finds_what_the_instructor_filled_in(room, capsys):
    """The sheet has the student's name, and the file the one that a file can have."""
    (room / "class" / "Ada-Lovelace_double.py").write_text(MULTIPLIES)
    (room / "students.csv").write_text("student\nAda Lovelace\n")
    grade_all(room)
    sheet = room / "grades" / "reviews.csv"
    row = next(line for line in sheet.read_text().splitlines() if "Ada Lovelace" in line)
    sheet.write_text(sheet.read_text().replace(row, row.replace('"",', '"accept",', 1)))
    text = (room / "course.toml").read_text()
    (room / "course.toml").write_text(text.replace('students = "students.csv"\n', ""))
    result = result_of(room, capsys, room / "class" / "Ada-Lovelace_double.py")[1]
    assert (result["state"], result["points"]) == ("graded", 4)


def test_the_questions_are_drawn_with_the_seed_of_the_class(room, capsys, monkeypatch):
    seeds = []
    grade_class = one_submission.grade_class

    def note_seed(submissions, exercises, folder, *more, **options):
        file = folder / "grading.json"
        seeds.append(file.read_text() if file.exists() else "another")
        return grade_class(submissions, exercises, folder, *more, **options)

    monkeypatch.setattr(one_submission, "grade_class", note_seed)
    result_of(room, capsys, room / "class" / "bob.zip")
    monkeypatch.setattr(one_submission, "_SHEETS", ("reviews.csv",))  # the planted fault
    result_of(room, capsys, room / "class" / "bob.zip")
    assert seeds == [(room / "grades" / "grading.json").read_text(), "another"]


def test_a_file_with_the_name_of_a_key_is_graded_under_the_name_of_its_student(room, capsys):
    (room / "8f3a").write_bytes(CLASS["bob.zip"])
    assert result_of(room, capsys, room / "8f3a", name="bob.zip")[1]["student"] == "bob"
    status, result = result_of(room, capsys, room / "8f3a")
    assert (status, result["state"]) == (1, "unlisted")


def test_the_time_of_the_one_who_received_it_counts(room, capsys):
    late = result_of(room, capsys, room / "class" / "dora.zip")[1]
    punctual = result_of(
        room, capsys, room / "class" / "dora.zip", submitted="2026-12-01T17:00:00+01:00"
    )[1]
    assert (late["days_late"], punctual["days_late"]) == (2, 0)


def test_the_logs_of_several_students_in_one_zip_are_refused(room, capsys):
    (room / "two.zip").write_bytes(zip_of({"ann.json": LOG, "ben.json": LOG}))
    status, result = result_of(room, capsys, room / "two.zip")
    assert (status, result["state"], result["student"]) == (1, "unlisted", "two")
    assert "it holds the submissions of several students: ann, ben" in result["problems"]


def test_more_than_may_be_handed_in_is_refused(room, capsys, monkeypatch):
    monkeypatch.setattr(one_submission, "MOST_BYTES", 99)
    monkeypatch.setattr("attnlab_course.grading.submission_files.MOST_BYTES", 99)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(CLASS["alice.zip"])))
    status, result = result_of(room, capsys, "-", name="alice.zip")
    assert (status, result["state"]) == (1, "refused")
    assert "alice.zip was left out: it has over 99 bytes" in result["problems"]


WRONG_CALLS = [
    ({"name": "../../alice.zip"}, 2, "--name must be FILE or FOLDER/FILE"),
    ({"name": "/alice.zip"}, 2, "--name must be FILE or FOLDER/FILE"),
    ({"name": "a" * 300 + ".zip"}, 3, "could not write"),
    ({"submission": "-"}, 2, "--name says what the file is"),
    ({"submission": "nothing.zip"}, 3, "there is no nothing.zip"),
    ({"submitted": "yesterday"}, 2, "--submitted must be a time"),
    ({"seconds": 0}, 2, "--seconds must be at least 1; got 0"),
    ({"course": Path("own.toml")}, 3, "could not read own.toml"),
    ({"grades": Path("class")}, 3, "there is no grading.json in class"),
    ({"course": Path("all.toml")}, 2, "must list the exercises that count"),
]


def test_a_call_that_cannot_be_met_gives_a_result_with_the_reason(room, capsys):
    (room / "all.toml").write_text('folder = "own"\n')
    for options, status, words in WRONG_CALLS:
        options = {"submission": room / "class" / "alice.zip", **options}
        given, result = result_of(room, capsys, **options)
        assert (given, result["state"]) == (status, "failed"), options
        assert words in result["error"]


def test_an_error_of_our_own_and_too_little_memory_give_results(room, capsys, monkeypatch):
    for error, words in (
        (KeyError("bug"), "KeyError: 'bug'"),
        (MemoryError(), "there is not enough memory for this"),
    ):

        def fail(*_, error=error, **__):
            raise error

        monkeypatch.setattr(one_submission, "make_gradebook", fail)
        status, result = result_of(room, capsys, room / "class" / "alice.zip")
        assert (status, result["state"]) == (3, "failed")
        assert words in result["error"]


def test_the_result_goes_into_a_file_whole(room, capsys):
    capsys.readouterr()
    options = {"grades": room / "grades", "course": room / "course.toml", "out": room / "bob.json"}
    assert grade_one(str(room / "class" / "bob.zip"), **options) == 0
    assert capsys.readouterr().out == ""
    assert json.loads((room / "bob.json").read_text())["student"] == "bob"


def test_after_the_deadline_no_exercise_is_begun(room, capsys, monkeypatch):
    monkeypatch.undo()  # real workers, which are not even started
    monkeypatch.chdir(room)
    monkeypatch.setattr("attnlab_course.grading.course_file.exercise_names", lambda: ["attention"])
    monkeypatch.setattr(one_submission, "probe", lambda: None)
    clock = iter([0.0, 1e6])
    monkeypatch.setattr(one_submission.time, "monotonic", lambda: next(clock, 1e6))
    status, result = result_of(room, capsys, room / "class" / "bob.zip")
    assert (status, result["state"]) == (3, "failed")
    assert "the time of --seconds is over" in result["error"]
