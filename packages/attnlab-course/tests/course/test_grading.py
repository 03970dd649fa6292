"""Grading: what is stored, what is graded again, what waits for a person, what a kill costs."""

import csv
import hashlib
import math
import os
import re
import signal
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab_course.exercise import CourseExercise
from attnlab_course.grading import classroom
from attnlab_course.grading.classroom import GradeFolder, file_name, grade_class
from attnlab_course.grading.course_file import Course, read_course
from attnlab_course.grading.exports import write_grades
from attnlab_course.grading.gradebook import make_gradebook
from attnlab_course.grading.pages import render_class
from attnlab_course.grading.roster import match_students, read_students
from attnlab_course.grading.sheets import read_table
from attnlab_course.grading.student_feedback import reason_words, row_words
from attnlab_course.grading.submission import Submission
from attnlab_course.grading.submissions import read_class
from attnlab_course.sandbox.student_code import load_names
from tests.kills import start_copy
from tests.sampling import sampled

from .classroom import GOOD, RAISES, SQUARE, Here, exercises_in, handed_in, open_here

PAIR_RIGHT = '{"weights": {"kind": "dict", "items": [["a", 3], ["b", 7]]}}'


@pytest.fixture
def room(tmp_path):
    """The folder of a class: submissions, exercises and grades."""
    (tmp_path / "submissions").mkdir()
    exercises_in(tmp_path / "exercises")
    return tmp_path


@pytest.fixture
def hand_in(room):
    def write(who, works, **more):
        more.setdefault("student", f"the label of {who}")
        (room / "submissions" / f"{who}.zip").write_bytes(handed_in(works, **more))

    return write


@pytest.fixture
def grade(room):
    def run(course=None, **more):
        course = course or Course(exercises_in(room / "exercises"))
        submissions = read_class(room / "submissions", course.exercises)
        found = grade_class(
            submissions, course.exercises, room / "grades", more.pop("open", open_here), **more
        )
        return make_gradebook(course, submissions, found, room / "grades")

    return run


def grades_of(book):
    """Return points by student and exercise."""
    return {row.student: {g.exercise: g.points for g in row.grades} for row in book.rows}


def test_points_are_those_of_the_checks_that_pass(hand_in, grade):
    hand_in("alice", {"double.py": GOOD, "pair.json": PAIR_RIGHT})
    hand_in("bob", {"double.py": SQUARE})
    hand_in("carl", {"double.py": "def double(n):\n    return 2 * n if n < 1e9 else 0.0\n"})
    book = grade()
    assert grades_of(book) == {
        "alice": {"double": 4.0, "pair": 2.0},
        "bob": {"double": 1.0, "pair": 0.0},  # the large numbers fail by the same mistake
        "carl": {"double": 3.0, "pair": 0.0},
    }
    assert book.of == 6
    assert [grade.state for grade in book.rows[1].grades] == ["graded", "missing"]
    assert book.rows[1].grades[0].graded.mistake == "square"


def test_data_is_graded_without_a_program_being_run(hand_in, grade):
    """An answer that a judge stumbles over is a wrong one."""
    hand_in("alice", {"pair.json": '{"weights": [1, 2]}'})
    hand_in("bob", {"pair.json": PAIR_RIGHT})
    worker = Counted()
    book = grade(open=worker.open)
    assert worker.asked == []
    assert grades_of(book) == {"alice": {"pair": 0.0}, "bob": {"pair": 2.0}}
    (failure,) = book.rows[0].grades[0].graded.checks.values()
    assert "not in the requested format" in failure.words


def test_an_untouched_template_gets_no_points_and_no_decision(room, hand_in, grade):
    hand_in("alice", {"double.py": GOOD})
    exercise = exercises_in(room / "exercises")["double"]
    (room / "submissions" / "Bob_double.py").write_text(exercise.starter)
    (room / "submissions" / "Carl_else.py").write_text("def other():\n    return 1\n")
    book = grade()
    bob, carl, alice = sorted(book.rows, key=lambda row: "BCa".index(row.student[0]))
    assert (book.state(bob), bob.points, book.exercises) == ("graded", 0.0, ("double",))
    assert row_words(book, bob) == "double: 0 of 4, nothing is written in it."
    assert "double: nothing is written in it" in bob.submission.problems
    assert book.state(carl) == "refused"
    assert any("no answer to an exercise" in words for words in carl.submission.problems)
    assert alice.points == 4.0


def test_an_error_of_ours_over_an_answer_is_told_and_the_class_goes_on(hand_in, grade, monkeypatch):
    judge = classroom.judge

    def stumble(questions, reply):
        if "x" in str(reply):
            raise TypeError("not seen before")
        return judge(questions, reply)

    monkeypatch.setattr(classroom, "judge", stumble)
    hand_in("alice", {"pair.json": '{"weights": "x"}'})
    hand_in("bob", {"pair.json": PAIR_RIGHT})
    book = grade()
    assert grades_of(book) == {"alice": {"pair": 0.0}, "bob": {"pair": 2.0}}
    assert "pair could not be judged: TypeError" in book.rows[0].private[0]
    assert book.rows[1].private == ()


class Counted(Here):
    """A worker that keeps what it is asked; it fails where a program is that of `fails`."""

    def __init__(self, fails=None):
        self.asked, self.fails = [], fails

    def ask(self, source, path, cases, **more):
        if source == self.fails:
            raise CouldNotRun("the process for answers did not start")
        self.asked.append(source)
        return super().ask(source, path, cases, **more)

    def open(self):
        return nullcontext(self)


def test_only_what_is_new_is_graded_and_again_grades_one_exercise(room, hand_in, grade):
    worker = Counted()
    hand_in("alice", {"double.py": GOOD})
    hand_in("bob", {"double.py": SQUARE})
    for _ in range(2):
        grade(open=worker.open)
        assert len(worker.asked) == 2
    hand_in("bob", {"double.py": GOOD})
    assert grades_of(grade(open=worker.open))["bob"] == {"double": 4.0}
    assert len(worker.asked) == 3
    grade(open=worker.open, again=["double"])
    assert len(worker.asked) == 5
    GradeFolder(room / "grades").outcome_file("alice", "double").write_text('{"half": ')
    grade(open=worker.open)
    assert worker.asked[5:] == [GOOD]


def test_a_changed_exercise_is_graded_again(room, hand_in, grade):
    hand_in("alice", {"double.py": GOOD})
    assert grades_of(grade()) == {"alice": {"double": 4.0}}
    file = room / "exercises" / "double.py"
    changed = file.read_text().replace("points=3", "points=5")
    parts = load_names(changed)["EXERCISE"]
    course = Course({"double": CourseExercise("double", changed, file, parts)})
    assert grades_of(grade(course)) == {"alice": {"double": 6.0}}


def files_of(folder: Path):
    """Return all files with their bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_questions_are_secret_and_grading_again_gives_the_same_bytes(room, hand_in, grade):
    hand_in("alice", {"double.py": GOOD, "pair.json": PAIR_RIGHT, "why.txt": "so"})
    hand_in("bob", {"double.py": RAISES})
    grade()
    folder = room / "grades"
    assert folder.stat().st_mode & 0o77 == 0
    assert len(GradeFolder(folder).seed()) == 32
    before = files_of(folder)
    grade(again=["double", "pair"], workers=1)
    assert files_of(folder) == before
    (room / "elsewhere").mkdir()
    assert GradeFolder(room / "elsewhere").seed() != GradeFolder(folder).seed()


def test_a_banned_name_holds_the_points_until_a_review(room, hand_in, grade):
    hand_in("alice", {"double.py": "import numpy as n\ndouble = lambda x: float(n.multiply(x, 2))"})
    hand_in("bob", {"double.py": GOOD})
    book = grade()
    (row, other) = book.rows
    (found,) = row.grades
    assert (found.points, found.held, found.state) == (0.0, 4.0, "needs review")
    assert '<td class="figure">?</td>' in render_class(book, [])
    write_grades(book, book.rows, room / "grades.csv")
    assert [row["double (of 4)"] for row in read_table(room / "grades.csv")] == ["?", "4"]
    assert other.points == 4.0
    sheet = room / "grades" / "reviews.csv"
    where = "in line 2, double = lambda x: float(n.multiply(x, 2)); would get 4 of 4"
    assert f"uses multiply {where}" in sheet.read_text()
    sheet.write_text(sheet.read_text().replace('"",', '"accept",'))
    assert grade().rows[0].points == 4.0
    hand_in("alice", {"double.py": "from numpy import multiply as m\ndouble = lambda x: m(x, 2)"})
    assert grade().rows[0].grades[0].state == "needs review"  # of another answer
    assert sheet.read_text().count("alice") == 2
    sheet.write_text(sheet.read_text().replace('"",', '"reject",'))
    (found,) = grade().rows[0].grades
    assert (found.points, found.held, found.state) == (0.0, 0.0, "rejected")
    sheet.write_text("student;exercise;decision\nalice;double;Accept\n")
    assert grade().rows[0].points == 4.0
    sheet.write_text("student,exercise,decision\nalice,double,maybe\n")
    with pytest.raises(WrongUsage, match=r"decision of alice double, .* 0 to 4; got 'maybe'"):
        grade()


def test_an_instructor_gives_an_answer_other_points_and_a_program_that_names_it_otherwise(
    room, hand_in, grade
):
    hand_in("alice", {"double.py": GOOD.replace("def double", "def Double")})
    hand_in("bob", {"double.py": " "})
    alice, bob = grade().rows
    assert alice.points == 0.0
    assert reason_words(alice.grades[0]).startswith("there is no double")
    assert "double: it defines Double; a number in reviews.csv gives it points" in alice.notes
    assert (bob.grades[0].state, bob.notes[0]) == ("blank", "work/double.py is empty")
    sheet = room / "grades" / "reviews.csv"
    sheet.write_text("student,exercise,decision\nalice,double,3\nbob,double,0.5\n")
    book = grade()
    alice, bob = book.rows
    assert (alice.points, bob.points, book.state(bob)) == (3.0, 0.5, "graded")
    assert "double: 3 of 4, a person gave these points" in row_words(book, alice)
    assert grade().rows[0].points == 3.0  # the row stays
    for row, said in (
        ("alicia,double,3", "there is no 'alicia'; did you mean 'alice'?"),
        ("alice,doubel,3", "there is no 'doubel'; did you mean 'double'?"),
        ("alice,double,5", "must be a number from 0 to 4; got '5'"),
    ):
        sheet.write_text(f"student,exercise,decision\n{row}\n")
        with pytest.raises(WrongUsage, match=re.escape(said)):
            grade()


def test_what_went_wrong_stands_on_the_class_page_and_in_the_table(room, hand_in, grade):
    works = {
        "abe": "def double(number):\n    return 11\n",
        "bea": "def double(number):\n    return float('nan')\n",
        "cem": "def double(number):\n    number.a if number < 1e8 else 1 / 0\n",
        "dan": GOOD,
    }
    for student, source in works.items():
        hand_in(student, {"double.py": source})
    book = grade()
    page = render_class(book, [])
    for row, words, reason in zip(
        book.rows,
        (
            "failed: numbers, large.",
            "failed: numbers, large (it gives numbers that are not finite).",
            "failed: numbers, large (it raised AttributeError, it raised ZeroDivisionError).",
            "double: 4 of 4.",
        ),
        (
            "the answer is wrong",
            "it gives numbers that are not finite",
            "AttributeError, ZeroDivisionError",
            "",
        ),
        strict=True,
    ):
        assert row_words(book, row).endswith(words)
        assert reason_words(row.grades[0]) == reason
        assert (f'<p class="note">{reason}</p>' in page) == bool(reason)


def test_texts_wait_for_points_and_keep_them(room, hand_in, grade):
    hand_in("alice", {"why.txt": "because"})
    book = grade()
    assert book.rows[0].grades[0].state == "waits"
    sheet = room / "grades" / "texts.csv"
    lines = sheet.read_text().splitlines()
    assert len(lines) == 3
    sheet.write_text("\n".join(line.replace('"","from', '"0,5","from') for line in lines))
    (found,) = grade().rows[0].grades
    assert (found.points, found.state) == (1.0, "graded")
    hand_in("bob", {"why.txt": "so"})
    book = grade()
    assert [row.points for row in book.rows] == [1.0, 0.0]
    sheet.write_text(sheet.read_text().replace("0,5", "7"))
    with pytest.raises(WrongUsage, match="must be a number from 0 to 1; got '7'"):
        grade()


def test_late_days_cost_their_percent_and_a_list_of_students_corrects_them(hand_in, grade, room):
    hand_in("alice", {"double.py": GOOD}, created="2026-12-01T18:00:00+00:00")
    hand_in("bob", {"double.py": GOOD}, created="2026-12-01T18:00:01+00:00")
    hand_in("carl", {"double.py": GOOD}, created="2026-12-03T19:00:00+01:00")
    hand_in("dora", {"double.py": GOOD}, created="no time")
    students = {"carl": {"submitted": "2026-11-01T00:00:00+00:00"}, "emil": {"name": "Emil E."}}
    course = Course(
        exercises_in(room / "exercises"),
        deadline=datetime(2026, 12, 1, 18, tzinfo=UTC),
        late_percent=25,
        students={"emil": students["emil"]},
    )
    book = grade(course)
    assert [row.student for row in book.rows] == ["alice", "bob", "carl", "dora", "emil"]
    assert [row.points for row in book.rows] == [4.0, 3.0, 2.0, 4.0, 0.0]
    course = Course(course.exercises, (), {"double": 10}, course.deadline, 25, students)
    assert {row.student: row.points for row in grade(course).rows}["carl"] == 10.0


def test_a_log_that_says_more_than_the_grader_finds_is_told_to_the_instructor_alone(hand_in, grade):
    digest = hashlib.sha256(SQUARE.encode()).hexdigest()
    check = {"event": "check", "exercise": "double", "sha256": digest, "done": True}
    hand_in("alice", {"double.py": SQUARE}, log=[check])
    hand_in("bob", {"double.py": SQUARE})
    alice, bob = grade().rows
    assert alice.private == ("double passed by the student's log, and fails here: numbers",)
    assert bob.private == ()
    assert alice.submission.problems == []


def test_two_submissions_of_one_label_are_told(hand_in, grade):
    hand_in("alice", {"double.py": GOOD}, student="alice")
    hand_in("bob", {"double.py": GOOD}, student="alice")
    told = [row.private for row in grade().rows]
    assert told == [("another submission has the label alice, too",)] * 2


@pytest.fixture(autouse=True)
def one_exercise_of_the_course(monkeypatch):
    """Keep to one exercise beside an instructor's own."""
    monkeypatch.setattr("attnlab_course.grading.course_file.exercise_names", lambda: ["attention"])


def test_a_course_file_says_what_counts(tmp_path):
    exercises_in(tmp_path / "own")
    (tmp_path / "students.csv").write_text("Student,Email\nalice,a@b.c\n")
    file = tmp_path / "course.toml"
    file.write_text(
        'title = "Autumn"\nexercises = ["double"]\nfolder = "own"\nstudents = "students.csv"\n'
        "deadline = 2026-12-01T18:00:00+01:00\nlate_percent_per_day = 10\n[points]\ndouble = 12\n"
    )
    course = read_course(file)
    assert course.counting == ("double",)
    assert course.of("double") == 12
    assert course.of("pair") == 2
    assert course.late_percent == 10
    assert course.students["alice"]["email"] == "a@b.c"
    assert course.title == "Autumn"


WRONG_COURSES = {
    "dedline = 3": "there is no 'dedline'; did you mean 'deadline'",
    'exercises = ["dubble"]': "no exercise 'dubble'; did you mean 'double'",
    "deadline = 2026-12-01T18:00:00": "must be a time with its offset",
    'deadline = "soon"': "must be a time with its offset",
    "exercises = [1]": "exercises must be a list of names",
    'exercises = "double"': "exercises must be a list of names",
    'exercises = ["double", "double"]': "exercises lists 'double' twice",
    "points = 3": "points must be a table with a line for each exercise",
    '[points]\ndouble = "3"': "points.double must be a number; got '3'",
    "late_percent_per_day = true": "late_percent_per_day must be a number; got True",
    "title = 3": "title must be a text between quotes; got 3",
    "late_percent_per_day = 200": "must be a number from 0 to 100",
    "[points]\ndouble = -1": "points.double must be a number from 0",
    'students = "students.csv"': "no column 'shoe size' is known",
}


def test_a_course_file_that_makes_no_sense_is_refused(tmp_path):
    exercises_in(tmp_path / "own")
    (tmp_path / "students.csv").write_text("student,shoe size\nalice,38\n")
    file = tmp_path / "course.toml"
    for text, words in WRONG_COURSES.items():
        file.write_text(f'folder = "own"\n{text}\n')
        with pytest.raises(WrongUsage, match=words):
            read_course(file)


def test_a_list_of_students_with_a_time_that_is_none_or_a_student_twice_is_refused(tmp_path):
    file = tmp_path / "students.csv"
    file.write_text("student,submitted\nalice,2026-12-01T18:00:00\n\nbob,last tuesday\n")
    with pytest.raises(WrongUsage, match="row of 'bob', submitted must be a time"):
        read_students(file)
    file.write_text("student\nalice\nalice\n")
    with pytest.raises(WrongUsage, match="'alice' is there twice"):
        read_students(file)
    file.write_text("Name;id\nalice;1\n")
    with pytest.raises(WrongUsage, match="as submissions are named; found: name, id"):
        read_students(file)


def test_a_submission_finds_its_student_by_its_file_before_its_label():
    students = {name: {} for name in ("alice", "Ada Lovelace", "mia", "s9")}
    labels = {"alice": "mia", "Ada-Lovelace": "alice", "handin": "s9", "one": "mia", "two": "mia"}
    handed = [Submission(name, label=label) for name, label in labels.items()]
    found = {"alice": "alice", "Ada-Lovelace": "Ada Lovelace", "handin": "s9"}
    assert match_students(handed, students).names == found


LISTED = {
    "Jane Doe": {"id": "12345", "identifier": "Participant 4711"},
    "Anne-Marie O'Brien": {"id": "777"},
    "Zoë Ångström": {"id": "888"},
    "s-9": {"name": "Emil Berg", "id": "2"},
    "Max Doe": {},
    "John Lee": {"id": "31"},
    "Lee John": {"id": "4242"},
}


@pytest.mark.parametrize(
    ("name", "student"),
    {
        "jane DOE": "Jane Doe",
        "JaneDoe": "Jane Doe",
        "Doe, Jane": "Jane Doe",
        "Zoe-Angstrom": "Zoë Ångström",
        "Jane_Doe": "Jane Doe",
        "anne marie o_brien": "Anne-Marie O'Brien",
        "zoe\u0308 a\u030angstro\u0308m": "Zoë Ångström",
        "emil-berg": "s-9",
        "Jane Doe_4711": "Jane Doe",
        "Doe J._4711": "Jane Doe",
        "Berg Emil_1": "s-9",
        "Zoe Angstrom_5": "Zoë Ångström",
        "doejane_555": "Jane Doe",
        "doejane_LATE_12345": "Jane Doe",
        "ngstrmzo_888": "Zoë Ångström",
        "bergemil_999": "s-9",
        "leejohn_4242": "Lee John",
        "leejohn_9999": None,
        "alice_2": None,
        "Doe": None,
        "Emil Bergg": None,
    }.items(),
)
def test_a_name_is_found_as_it_is_typed_and_as_course_systems_write_it(name, student):
    found = match_students([Submission(name)], LISTED)
    assert found.names.get(name) == student
    assert match_students([Submission("x", label="JANE doe")], LISTED).names == {"x": "Jane Doe"}


def test_two_submissions_that_may_be_of_one_student_are_not_guessed_between():
    handed = [Submission("Jane Doe_1000"), Submission("jane-doe_2000")]
    assert match_students(handed, LISTED).names == {}
    handed = [Submission("jane doe"), Submission("Jane Doe")]
    assert match_students(handed, LISTED).names == {"Jane Doe": "Jane Doe"}


def test_a_name_that_is_nearly_on_the_list_is_suggested(hand_in, grade, room):
    hand_in("Max Do", {"double.py": GOOD})
    hand_in("max doe homework two", {"double.py": GOOD})
    hand_in("zed", {"double.py": GOOD})
    book = grade(Course(exercises_in(room / "exercises"), students=LISTED))
    near = "(did you mean Max Doe?)"
    assert book.unlisted_words == (f"Max Do {near}", f"max doe homework two {near}", "zed")


def test_who_may_have_answered_in_what_is_not_assigned_waits_for_a_grade(hand_in, grade, room):
    """In a file of another name, or in a submission of nearly their name."""
    hand_in("Max Do", {"double.py": GOOD})
    place = room / "submissions"
    (place / "Jane Doe").mkdir()
    (place / "Jane Doe" / "my answer.py").write_text(GOOD)
    (place / "Jane Doe" / "pair.json").write_text(PAIR_RIGHT)
    (place / "John Lee").mkdir()
    (place / "John Lee" / "pair.json").write_text(PAIR_RIGHT)
    (place / "John Lee" / "double.py").write_text(GOOD)
    (place / "John Lee" / "helper.py").write_text("x = 1")
    book = grade(Course(exercises_in(room / "exercises"), students=LISTED))
    rows = {row.student: row for row in book.rows}
    states = {name: book.state(row) for name, row in rows.items()}
    assert states["Max Doe"] == states["Jane Doe"] == "waits"
    assert (states["John Lee"], states["Lee John"]) == ("graded", "absent")
    assert book.points(rows["Max Doe"]) is book.points(rows["Jane Doe"]) is None
    assert "Max Do, which is not on the list, may be theirs" in " ".join(rows["Max Doe"].private)
    assert row_words(book, rows["Jane Doe"]).startswith("2 of 6 points so far, as not all")


def test_whose_time_is_not_known_is_told_where_there_is_a_deadline(hand_in, grade, room):
    hand_in("alice", {"double.py": GOOD}, created="2026-12-01T18:00:00+00:00")
    (room / "submissions" / "lovelacejane_LATE_12345_67890_double.py").write_text(GOOD)
    (room / "submissions" / "doemax_12345_67890_double.py").write_text(GOOD)
    course = Course(
        exercises_in(room / "exercises"), deadline=datetime(2026, 12, 1, 18, tzinfo=UTC)
    )
    book = grade(course)
    assert book.without_time == ("doemax_12345", "lovelacejane_LATE_12345")
    assert [len(row.private) for row in book.rows] == [0, 0, 1]
    assert book.rows[2].private[0].endswith("double.py: LATE by Canvas, and no points are lost")
    assert "No time is known of 2 of 3 submissions" in render_class(book, [])
    assert grade(Course(course.exercises)).without_time == ()


def test_no_two_students_share_a_file_and_an_outcome_is_of_its_own_student(room, hand_in, grade):
    assert file_name(file_name("../x")) != file_name("../x")
    assert file_name("ada-0123abcd") != "ada-0123abcd"
    hand_in("alice", {"double.py": GOOD})
    hand_in("bob", {"double.py": SQUARE})
    grade()
    grades = GradeFolder(room / "grades")
    other = grades.outcome_file("alice", "double").read_text()
    hand_in("bob", {"double.py": GOOD})
    grades.outcome_file("bob", "double").write_text(other)
    assert grades_of(grade()) == {"alice": {"double": 4.0}, "bob": {"double": 4.0}}
    assert grades.outcome("bob", "double").student == "bob"


def test_who_saw_the_solution_before_an_answer_passed_is_told_to_the_instructor(hand_in, grade):
    """A solution that is compared with afterwards is no matter."""
    seen = {"event": "solution", "exercise": "double"}
    passed = {"event": "check", "exercise": "double", "done": True, "sha256": "0"}
    hand_in("alice", {"double.py": GOOD}, log=[seen, passed])
    hand_in("bob", {"double.py": GOOD}, log=[passed, seen])
    rows = grade().rows
    words = "double: its solution was shown before an answer passed, by the log"
    assert [row.private for row in rows] == [(words,), ()]


def test_a_sheet_keeps_the_instructor_s_own_columns(room, hand_in, grade):
    hand_in("alice", {"why.txt": "because"})
    grade()
    sheet = room / "grades" / "texts.csv"
    rows = list(csv.reader(sheet.read_text().splitlines()))
    rows[0].append("Comment")
    rows[1][-2:] = ["0.5", rows[1][-1]]
    rows[1].append("=well, said\nand -more")
    with sheet.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    hand_in("bob", {"why.txt": "so"})
    book = grade()
    kept = sheet.read_bytes()
    (found, *_) = [row for row in read_table(sheet) if row["points"]]
    assert found["comment"] == "=well, said\nand -more"
    assert [points for _, points in book.rows[0].grades[0].criteria] == ["", "0.5"]
    grade()
    assert sheet.read_bytes() == kept


def test_an_error_of_a_worker_ends_the_grading_and_keeps_what_is_done(hand_in, grade):
    for number in range(6):
        hand_in(f"student{number}", {"double.py": SQUARE if number == 4 else GOOD})
    with pytest.raises(CouldNotRun, match="did not start"):
        grade(open=Counted(fails=SQUARE).open, workers=1)
    worker = Counted()
    assert len(grade(open=worker.open).rows) == 6
    assert worker.asked[0] == SQUARE
    assert len(worker.asked) <= 2


STUDENTS = 24


def grade_slowly(room):
    """Grade the class, and note each question."""

    class Slow(Here):
        def ask(self, source, path, cases, **more):
            time.sleep(0.01)
            with (room / "asked").open("a") as file:
                file.write("x")
            return super().ask(source, path, cases, **more)

    exercises = exercises_in(room / "exercises")
    submissions = read_class(room / "submissions", exercises)
    grade_class(submissions, exercises, room / "grades", lambda: nullcontext(Slow()))


def kill_again_and_again(start, room, kills):
    """Kill a grading so many times at other moments, then let it end; return how often it asked."""
    outcomes = room / "grades" / "outcomes"
    for number in range(kills):
        process = start()
        wanted = len(list(outcomes.rglob("*.json"))) + (number % 3)
        deadline = time.monotonic() + 60
        while os.waitpid(process, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
            if len(list(outcomes.rglob("*.json"))) >= wanted and (room / "grades").exists():
                time.sleep(0.003 * (number % 5))
                os.kill(process, signal.SIGKILL)
                wanted = math.inf
            time.sleep(0.001)
    _, status = os.waitpid(start(), 0)
    assert status == 0
    return os.path.getsize(room / "asked")


@pytest.mark.parametrize("kills", sampled([2, 50], 1))
def test_a_killed_grading_goes_on_and_loses_and_doubles_nothing(room, hand_in, grade, kills):
    for number in range(STUDENTS):
        hand_in(f"student{number}", {"double.py": [GOOD, SQUARE, RAISES][number % 3]})
    times = kill_again_and_again(lambda: start_copy(partial(grade_slowly, room)), room, kills)
    killed = files_of(room / "grades" / "outcomes")
    assert len(killed) == STUDENTS
    assert STUDENTS <= times <= STUDENTS + 4 * kills  # only what was under way is asked twice
    grade(again=["double"])
    assert files_of(room / "grades" / "outcomes") == killed
    left = [path.name for path in (room / "grades").rglob(".*") if path.name != ".lock"]
    assert left == []
