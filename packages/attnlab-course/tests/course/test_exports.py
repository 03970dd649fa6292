"""The grades as tables and pages: right, without secrets, and inert whatever is in them."""

import csv
import html
import json
import re
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from attnlab_course.cells import solution_text
from attnlab_course.compare import Other, difference
from attnlab_course.exercise import Case, Failure
from attnlab_course.grading.classroom import grade_class
from attnlab_course.grading.course_file import Course
from attnlab_course.grading.exports import check_shares, gradescope_results, write_exports
from attnlab_course.grading.gradebook import make_gradebook
from attnlab_course.grading.pages import render_class, render_student, write_pages
from attnlab_course.grading.sheets import inert_cell, read_table, write_table
from attnlab_course.grading.similarity import Alike
from attnlab_course.grading.student_feedback import check_words, failure_words
from attnlab_course.grading.submission import Submission, SubmittedAnswer
from attnlab_course.grading.submissions import read_class
from attnlab_course.judge import judge
from attnlab_course.mistakes import ask_judge
from attnlab_course.sandbox.replies import CaseAnswer, Reply

from .classroom import (
    DOUBLE,
    GOOD,
    RAISES,
    SQUARE,
    exercises_in,
    handed_in,
    open_here,
    questions_of,
)

SHAPE = "import numpy\ndef double(number):\n    return numpy.zeros((2, 3))\n"
LEAK = "def double(number):\n    raise type('Secret' + str(int(number)), (Exception,), {})\n"


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    folder = tmp_path_factory.mktemp("class")
    place = folder / "submissions"
    place.mkdir()
    works = {"alice": GOOD, "bob": SQUARE, "carl": RAISES, "dora": SHAPE, "emil": LEAK, "fay": "("}
    for student, source in works.items():
        (place / f"{student}.zip").write_bytes(handed_in({"double.py": source}, student=student))
    (place / "gus.zip").write_bytes(handed_in({"why.txt": "so"}, student="gus"))
    students = {
        "alice": {"name": "Alice A.", "id": "7", "email": "a@b.c", "identifier": "Participant 1"},
        "hal": {},
    }
    course = Course(exercises_in(folder / "exercises"), students=students)
    submissions = read_class(place, course.exercises)
    graded = grade_class(submissions, course.exercises, folder / "grades", open_here)
    return make_gradebook(course, submissions, graded, folder / "grades")


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_the_tables_have_a_row_for_each_student_and_the_forms_of_their_systems(book, tmp_path):
    write_exports(book, tmp_path)
    grades = rows_of(tmp_path / "grades.csv")
    assert grades[0][:5] == ["student", "name", "double (of 4)", "why (of 2)", "points"]
    assert [(row[0], row[-1]) for row in grades[1:]] == [("alice", "graded"), ("hal", "absent")]
    assert grades[1][:6] == ["alice", "Alice A.", "4", "0", "4", "6"]
    canvas = rows_of(tmp_path / "canvas.csv")
    assert canvas[0] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Grades"]
    assert canvas[1] == ["Points Possible", "", "", "", "", "6"]
    assert canvas[2] == ["Alice A.", "7", "", "", "", "4"]
    moodle = rows_of(tmp_path / "moodle.csv")
    assert moodle[1][:5] == ["Participant 1", "Alice A.", "a@b.c", "4", "6"]
    assert len(grades) == len(moodle) == len(canvas) - 1 == 3


def test_who_is_not_on_the_list_is_in_a_table_apart_and_in_no_gradebook(book, tmp_path):
    write_exports(book, tmp_path)
    apart = rows_of(tmp_path / "unlisted.csv")
    assert apart[0] == rows_of(tmp_path / "grades.csv")[0]
    assert [row[0] for row in apart[1:]] == ["bob", "carl", "dora", "emil", "fay", "gus"]
    assert {row[-1] for row in apart[1:]} == {"unlisted"}
    assert len(book.refused) == 6
    assert book.handed_in == 7
    everyone = replace(book, unlisted=())
    write_exports(everyone, tmp_path)
    assert not (tmp_path / "unlisted.csv").exists()
    moodle = rows_of(tmp_path / "moodle.csv")
    assert len(moodle) == len(rows_of(tmp_path / "canvas.csv")) - 1 == 9
    assert "The number is squared, not doubled" in moodle[2][5]


def test_the_comments_for_moodle_say_why_points_are_missing(book, tmp_path):
    write_exports(replace(book, unlisted=()), tmp_path)
    words = {row[1]: row[5] for row in rows_of(tmp_path / "moodle.csv")[1:]}
    assert words["Alice A."] == "double: 4 of 4. why: 0 of 2, nothing was handed in."
    assert "double: 0 of 4, failed: numbers, large (it raised ValueError). why" in words["carl"]
    assert "double: 0 of 4, it cannot be run: SyntaxError" in words["fay"]
    assert "double: 0 of 4, nothing was handed in." in words["hal"]


def test_the_class_page_names_whose_program_is_the_published_solution(book):
    assert "The same as the published" not in render_class(book, [])
    answer = SubmittedAnswer(
        "double", "double.py", solution_text(DOUBLE) + "\n# mine\nprint(double(2))\n"
    )
    submission = replace(book.rows[0].submission, answers={"double": answer})
    copied = replace(book.rows[0], submission=submission)
    page = render_class(replace(book, rows=(copied, *book.rows[1:])), [])
    assert "The same as the published solution of double: 1 (alice)." in page


def test_what_waits_or_cannot_be_read_has_no_points_in_any_gradebook(book, tmp_path):
    """A text waits for its points; of a broken zip nothing is known. Who is absent gets 0."""
    broken = replace(book.rows[1], submission=Submission("bob", problems=["it is no zip"]))
    rows = (book.rows[0], broken, *book.rows[2:])
    write_exports(replace(book, unlisted=(), rows=rows), tmp_path)
    points = {"Alice A.": "4", "bob": "", "carl": "0", "gus": "", "hal": "0"}
    for file, name, column in (("canvas.csv", 0, -1), ("moodle.csv", 1, 3)):
        found = {row[name]: row[column] for row in rows_of(tmp_path / file)}
        assert points.items() <= found.items()


def test_the_checks_table_counts_who_passes_and_which_mistake_is_named(book):
    listed = [shares[3:5] for shares in check_shares(book)]
    assert listed == [(1, 1), (1, 1)]  # who is not on the list of students is not counted
    assert list(check_shares(replace(book, unlisted=()))) == [
        ("double", "check passed", "numbers", 1, 6, 1 / 6),
        ("double", "check passed", "large", 2, 6, 2 / 6),
        ("double", "mistake named", "square", 1, 6, 1 / 6),
    ]


def test_gradescope_gets_a_test_for_each_check_and_the_sum(book):
    found = gradescope_results(book, book.rows[0])
    assert found["score"] == 4
    assert [test["score"] for test in found["tests"]] == [3, 1, 0]
    assert [test["max_score"] for test in found["tests"]] == [3, 1, 2]
    held = replace(book.rows[0].grades[0], points=0.0, held=4.0, state="needs review")
    found = gradescope_results(book, replace(book.rows[0], grades=(held,)))
    assert [test.get("score") for test in found["tests"]] == [None, None]
    rejected = replace(held, held=0.0, state="rejected")
    found = gradescope_results(book, replace(book.rows[0], grades=(rejected,)))
    assert [test.get("score") for test in found["tests"]] == [0, 0]


def test_points_that_wait_are_shown_as_no_grade_in_everything_that_a_student_reads(book):
    """Neither a held program nor an unread text looks like a final 0."""
    held = replace(book.rows[0].grades[0], points=0.0, held=4.0, state="needs review")
    right = replace(book.rows[0], grades=(held, book.rows[0].grades[1]), points=0.0)
    for row, of, first in ((right, 4, "double: ? of 4"), (book.rows[6], 2, "why: ? of 2")):
        page = render_student(replace(book, unlisted=()), row)
        assert f"0 of 6 points so far, {of} held until a person has looked" in page
        assert f'<span class="points">? of {of}</span>' in page
        assert f'<span class="points">0 of {of}</span>' not in page
        words = gradescope_results(replace(book, unlisted=()), row)["output"]
        assert f"so far, {of} held" in words
        assert first in words
    assert "so far" not in render_student(book, book.rows[1])
    refused = replace(book.rows[1], submission=Submission("bob"))
    assert "? of 6 points, as nothing" in render_student(replace(book, unlisted=()), refused)


def test_the_instructor_sees_why_an_answer_cannot_be_run_beside_the_points(book):
    page = render_class(book, [])
    assert "double: it cannot be run: SyntaxError: &#39;(&#39; was never closed (line 1)" in page
    head = page.partition("<thead>")[2].partition("</thead>")[0]
    assert re.findall(r">([^<]+)</th>", head) == [
        "student",
        "points",
        "double (of 4)",
        "why (of 2)",
    ]
    assert page.count('<tr class="below"><td colspan="4">') == sum(
        bool(row.notes) for row in book.rows
    )


def test_who_is_not_on_the_list_and_who_handed_in_nothing_is_told(book):
    assert book.unlisted == ("bob", "carl", "dora", "emil", "fay", "gus")
    assert book.absent == ("hal",)
    page = render_class(replace(book, passed_over=("notes.pdf",)), [])
    assert "Not on the list of students, so in no gradebook: bob, carl, dora" in page
    assert "On the list of students, nothing handed in: hal." in page
    assert "Passed over, as they are no submissions: notes.pdf." in page
    assert "clock" not in page
    assert "1 student and" not in page
    assert "2 students and 6 not on the list, 6 points" in page


def test_whose_clock_says_who_is_late_is_told_where_somebody_is_late_by_their_own(book):
    course = replace(book.course, deadline=datetime(2026, 12, 1, tzinfo=UTC))
    late = replace(book.rows[0], days_late=1)
    known = replace(late, facts={**late.facts, "submitted": "2026-12-02T10:00:00+01:00"})
    for row, is_told in ((book.rows[0], False), (late, True), (known, False)):
        changed = replace(book, course=course, rows=(row, *book.rows[1:]))
        page = html.unescape(render_class(changed, []))
        assert ("by each student's own clock" in page) is is_told


def test_a_student_reads_which_name_is_missing(book):
    check = book.course.exercises["double"].parts.checks[0]
    failure = Failure("there is no double; secret", kind="Missing")
    assert check_words(check, failure) == "doubles numbers: there is no double"
    assert check_words(check, Failure("secret", kind="Missing")).endswith("is not defined")


def test_a_student_sees_the_points_of_each_criterion_of_a_text(book):
    gus = book.rows[6]
    grade = replace(gus.grades[1], state="graded", criteria=(("names the width", "0.5"), ("b", "")))
    page = render_student(book, replace(gus, grades=(grade,)))
    assert '<th scope="row">names the width</th><td class="figure">0.5</td>' in page
    assert '<th scope="row">b</th><td class="figure">–</td>' in page


def test_a_student_is_told_the_kind_of_a_failure_and_no_value(book):
    pages = {row.student: render_student(book, row) for row in book.rows}
    assert "it raised ValueError" in pages["carl"]
    assert "the answer is wrong" in pages["emil"]
    assert "its shape is wrong" not in pages["emil"]
    assert "The number is squared, not doubled." in pages["bob"]
    assert "it cannot be run: SyntaxError: &#39;(&#39; was never closed (line 1)" in pages["fay"]
    assert "nothing was handed in" in pages["hal"]
    for row in book.rows:
        everything = pages[row.student] + json.dumps(gradescope_results(book, row))
        body = everything.partition("<main")[2]
        assert "Secret" not in body
        assert "secret" not in body
        assert "expected" not in body
        for grade in row.grades:
            failures = grade.graded.checks.values() if grade.graded else ()
            for failure in filter(None, failures):
                for number in re.findall(r"\d{3,}|\d\.\d+e", failure.words):
                    assert number not in body, (row.student, number)


RIGHT = np.zeros((2, 3))
FAILURES = {
    "a shape": (difference(RIGHT, RIGHT.T, 0), "its shape is wrong"),
    "a dtype": (difference([RIGHT], [RIGHT.astype("float32")], 0), "its dtype is wrong"),
    "a type": (difference(RIGHT, Other("Secret"), 0), "it has the wrong type"),
    "no mapping": (difference({"a": 1}, 1, 0), "it has the wrong type"),
    "not finite": (difference(RIGHT, RIGHT * np.nan, 0), "it gives numbers that are not finite"),
    "a count": (difference([1, 2, 3], None, 0), "it gives another number of values"),
    "values": (difference(RIGHT, RIGHT + 1, 0), "the answer is wrong"),
    "a judge": (Failure("they sum to 12"), "the answer is wrong"),
    "no form": (ask_judge(Case("a", judge=len), 3), "the answer is not in the requested format"),
}
ERRORS = {
    "Missing": "a required name is not defined",
    "NotImplementedError": "it is not written yet",
    "ValueError": "it raised ValueError",
    "TimeoutError": "it raised TimeoutError",
    "Exception": "it raised Exception",
    "Secret42": "the answer is wrong",
    "ProcessEnded": "its process ended before it had answered",
    "TookTooLong": "it took too long",
    "TooLarge": "the answer is too large: an array may have 1,000,000",
}


@pytest.mark.parametrize("what", FAILURES)
def test_every_failure_becomes_one_of_a_few_sentences(what):
    failure, words = FAILURES[what]
    assert failure_words(failure.kind) == words


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_becomes_one_of_a_few_sentences(error):
    questions = questions_of("softmax")
    reply = Reply([CaseAnswer(error=error, message="secret")] * len(questions.encoded))
    failure = judge(questions, reply).checks[0].failure
    assert failure_words(failure.kind).startswith(ERRORS[error])


CELLS = {
    "=1+1": "'=1+1",
    "+1": "'+1",
    "-1": "'-1",
    "@sum(a)": "'@sum(a)",
    "\t=1": "'=1",
    "\r\n=1": "'=1",
    "  =1": "'=1",
    "＝1": "'＝1",
    "a;=1": "a;'=1",
    "key.transpose(-2, -1)": "key.transpose(-2, -1)",
    "a,=1": "a,=1",
    "a | -1": "a | -1",
    "a-b=c": "a-b=c",
    "a\x00b": "a␀b",
    "'=1": "'=1",
}


@pytest.mark.parametrize("text", CELLS)
def test_no_cell_is_a_formula(text):
    assert inert_cell(text) == CELLS[text]
    assert inert_cell(inert_cell(text)) == CELLS[text]


def test_a_cell_is_one_cell_whatever_is_in_it(tmp_path):
    hostile = ['a","b', "a\nb", '"', "a,b;c\td", "=cmd|' /C calc'!A0", "\ud800"]
    write_table(tmp_path / "t.csv", ["one", "two"], [[each, 1.5] for each in hostile])
    rows = rows_of(tmp_path / "t.csv")
    assert [len(row) for row in rows] == [2] * (len(hostile) + 1)
    assert [row[1] for row in rows[1:]] == ["1.5"] * len(hostile)
    assert not any(row[0].startswith(("=", "+", "-", "@")) for row in rows)


def test_a_table_that_a_spreadsheet_wrote_again_is_read(tmp_path):
    (tmp_path / "t.csv").write_text("\ufeffStudent;Decision\r\nalice;accept\r\n;\r\n")
    assert read_table(tmp_path / "t.csv") == [{"student": "alice", "decision": "accept"}]


HOSTILE = "<script>document.title='ran'</script><img src=x onerror=\"document.title='ran'\">\u202e"


@pytest.fixture
def hostile_book(book):
    """The class with a student whose every word is hostile."""
    row = book.rows[1]
    answers = {"why": replace(book.rows[-2].submission.answers["why"], source=HOSTILE)}
    submission = Submission(HOSTILE, answers, [HOSTILE], HOSTILE)
    graded = replace(row.grades[0].graded, broken=HOSTILE, unjudged=HOSTILE, banned=(HOSTILE,))
    grades = (
        replace(row.grades[0], graded=graded, state="needs review"),
        replace(row.grades[1], state="waits"),
    )
    hostile = replace(row, submission=submission, grades=grades, private=(HOSTILE,))
    return replace(book, rows=(hostile,))


def test_hostile_words_run_nothing_in_a_browser_nor_does_a_script(hostile_book, tmp_path, browser):
    alike = [Alike("double", HOSTILE, HOSTILE, 9, 10)]
    write_pages(hostile_book, alike, tmp_path)
    report = next((tmp_path / "students").glob("*/report.html"))
    complaints, requests = [], []
    page = browser.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("request", lambda request: requests.append(request.url))
    for path in (report, tmp_path / "class.html"):
        page.goto(path.as_uri())
        assert page.locator("script, img, iframe, form").count() == 0
        assert "ran" not in page.title().split("·")[-1]
        assert "<script>" in page.locator("body").inner_text()
        assert "\u202e" not in page.content()
        assert page.evaluate("() => document.title").startswith(("<script>", "Grades"))
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file://", "data:,"))] == []
    text = render_class(hostile_book, [])  # the policy would stop a script that got in
    (tmp_path / "tampered.html").write_text(
        text.replace("<main", "<script>document.title='ran'</script><main")
    )
    page.goto((tmp_path / "tampered.html").as_uri())
    assert page.title() != "ran"
    assert any("Content Security Policy" in words for words in complaints)
    page.close()


@pytest.mark.parametrize(("color_scheme", "width"), [("light", 1200), ("dark", 380)])
def test_the_pages_fit_any_width_and_are_accessible(book, tmp_path, browser, width, color_scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    write_pages(book, [Alike("double", "bob", "carl", 9, 10)], tmp_path)
    page = browser.new_page(color_scheme=color_scheme)
    page.set_viewport_size({"width": width, "height": 900})
    for path in (tmp_path / "class.html", tmp_path / "students" / "bob" / "report.html"):
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        color = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        is_dark = int(re.findall(r"\d+", color)[0]) < 128
        assert is_dark == (color_scheme == "dark")
        found = axe.run(page)
        assert found.violations_count == 0, found.generate_report()
    page.close()
