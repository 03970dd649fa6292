"""The grades as files of other systems: a plain table, Canvas, Moodle, Gradescope, the checks.

Formats: Canvas' gradebook import (a second row with the points possible), Moodle's grading
worksheet of an assignment, Gradescope's results.json of an autograder.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attnlab.core.store import make_folder, write_json
from attnlab_course.exercise import CourseExercise, single_mistakes
from attnlab_course.grading.classroom import GradedAnswer
from attnlab_course.grading.grades import Grade, Gradebook, StudentGrades
from attnlab_course.grading.sheets import write_table
from attnlab_course.grading.student_feedback import check_words, grade_words, row_words
from attnlab_course.judge import costs_points


def write_exports(book: Gradebook, folder: Path) -> None:
    """Write the tables, and results.json into each student's folder."""
    write_grades(book, book.listed, folder / "grades.csv")
    apart = [row for row in book.rows if row not in book.listed]
    if apart:
        write_grades(book, apart, folder / "unlisted.csv")
    else:
        (folder / "unlisted.csv").unlink(missing_ok=True)
    write_canvas(book, folder / "canvas.csv")
    write_moodle(book, folder / "moodle.csv")
    write_table(
        folder / "checks.csv",
        ("exercise", "what", "name", "students", "of", "share"),
        check_shares(book),
    )
    for row in book.rows:
        place = folder / "students" / book.folders[row.student]
        make_folder(place)
        write_json(place / "results.json", gradescope_results(book, row))


def write_grades(book: Gradebook, wanted: Sequence[StudentGrades], path: Path) -> None:
    """Write one row for each student; points that wait for a person are a ?, and all of a refused
    submission, of which nothing is known."""
    columns = (
        "student",
        "name",
        *book.headings,
        "points",
        "of",
        "held",
        "days late",
        "problems",
        "state",
    )
    rows = []
    for row in wanted:
        state = book.state(row)
        is_refused = state == "refused"
        points = ["?" if grade.is_open or is_refused else grade.points for grade in row.grades]
        total = "?" if is_refused else row.points
        held = sum(grade.held for grade in row.grades)
        problems = len(row.submission.problems) + len(row.private)
        known = (total, book.of, held, row.days_late, problems, state)
        rows.append((row.student, row.name, *points, *known))
    write_table(path, columns, rows)


def write_canvas(book: Gradebook, path: Path) -> None:
    """Write what Canvas imports: one assignment with the sum of the points."""
    known = ("id", "sis_user_id", "sis_login_id", "section")
    columns = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section", book.course.title)
    rows: list[tuple[object, ...]] = [("    Points Possible", "", "", "", "", book.of)]
    for row in book.listed:
        facts = [row.facts.get(name, "") for name in known]
        rows.append((row.name, *facts, _points(book, row)))
    write_table(path, columns, rows)


def write_moodle(book: Gradebook, path: Path) -> None:
    """Write what Moodle imports into an assignment."""
    columns = ("Identifier", "Full name", "Email address", "Grade", "Maximum Grade")
    rows = []
    for row in book.listed:
        facts = (row.facts.get("identifier", ""), row.name, row.facts.get("email", ""))
        rows.append((*facts, _points(book, row), book.of, row_words(book, row)))
    write_table(path, (*columns, "Feedback comments"), rows)


def _points(book: Gradebook, row: StudentGrades) -> float | str:
    """Return a student's points, or an empty cell while there is no grade yet."""
    points = book.points(row)
    return "" if points is None else points


def gradescope_results(book: Gradebook, row: StudentGrades) -> Mapping[str, object]:
    """Return what Gradescope shows a student: a test for each check, without what is hidden.

    A test whose points wait for a person has no score yet.
    """
    tests: list[Mapping[str, object]] = []
    for grade in row.grades:
        exercise, graded = book.course.exercises[grade.exercise], grade.counted
        if graded is None or not graded.checks:
            test = {"name": grade.exercise, "output": grade_words(grade)}
            tests.append({**test, **_score(grade, grade.points, grade.of)})
            continue
        for check in exercise.parts.checks:
            share = grade.of * check.points / exercise.points
            failure = graded.checks[check.name]
            words = check_words(check, failure)
            if grade.is_open:
                words += f"; {grade_words(grade)}"
            test = {"name": f"{grade.exercise}: {check.name}", "output": words}
            lost = grade.state == "rejected" or costs_points(failure)
            tests.append({**test, **_score(grade, 0.0 if lost else share, share)})
    return {"score": row.points, "output": row_words(book, row), "tests": tests}


def _score(grade: Grade, points: float, of: float) -> Mapping[str, float]:
    score = {} if grade.is_open else {"score": round(points, 4)}
    return {**score, "max_score": round(of, 4)}


def check_shares(book: Gradebook) -> Iterator[tuple[str, str, str, int, int, float]]:
    """Yield for each check the students who pass it, and for each mistake those who made it.

    Those who are not on the list of students do not count.
    """
    for name in book.exercises:
        grades = [row.grade(name) for row in book.listed]
        outcomes = [grade.graded for grade in grades if grade.graded is not None]
        of = len(outcomes)
        if outcomes:
            for what, label, count in _counts(book.course.exercises[name], outcomes):
                yield name, what, label, count, of, count / of


def _counts(
    exercise: CourseExercise, outcomes: Sequence[GradedAnswer]
) -> Iterator[tuple[str, str, int]]:
    """Yield how many pass each check, then how many made each mistake, the commonest first."""
    passed = Counter(check for graded in outcomes for check in graded.passed)
    for check in exercise.parts.checks:
        yield "check passed", check.name, passed[check.name]
    made = Counter[str]()
    for graded in outcomes:
        made.update(single_mistakes(graded.mistake) if graded.mistake else ())
    for mistake, count in sorted(made.items(), key=lambda pair: (-pair[1], pair[0])):
        yield "mistake named", mistake, count
