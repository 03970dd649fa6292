"""The grades as files of other systems: a plain table, Canvas, Moodle, Gradescope, the checks.

Formats: Canvas' gradebook import (a second row with the points possible), Moodle's grading
worksheet of an assignment, Gradescope's results.json of an autograder.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from attnlab.core.store import make_folder, write_json
from attnlab_course.grading.classroom import GradedAnswer, file_name
from attnlab_course.grading.gradebook import Gradebook, Row
from attnlab_course.grading.sheets import write_table
from attnlab_course.grading.student_feedback import check_words, grade_words, row_words


def write_exports(book: Gradebook, folder: Path) -> None:
    """Write the tables, and results.json into each student's folder."""
    write_grades(book, folder / "grades.csv")
    write_canvas(book, folder / "canvas.csv")
    write_moodle(book, folder / "moodle.csv")
    write_table(
        folder / "checks.csv",
        ("exercise", "what", "name", "students", "of", "share"),
        check_shares(book),
    )
    for row in book.rows:
        place = folder / "students" / file_name(row.student)
        make_folder(place)
        write_json(place / "results.json", gradescope_results(book, row))


def write_grades(book: Gradebook, path: Path) -> None:
    """Write one row for each student."""
    columns = ("student", *book.exercises, "points", "of", "held", "days late", "problems")
    rows = []
    for row in book.rows:
        points = [grade.points for grade in row.grades]
        held = sum(grade.held for grade in row.grades)
        problems = len(row.submission.problems) + len(row.private)
        rows.append((row.student, *points, row.points, book.of, held, row.days_late, problems))
    write_table(path, columns, rows)


def write_canvas(book: Gradebook, path: Path) -> None:
    """Write what Canvas imports: one assignment with the sum of the points."""
    known = ("id", "sis_user_id", "sis_login_id", "section")
    columns = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section", book.course.title)
    rows: list[tuple[object, ...]] = [("    Points Possible", "", "", "", "", book.of)]
    for row in book.rows:
        facts = [row.facts.get(name, "") for name in known]
        rows.append((_name(row), *facts, row.points))
    write_table(path, columns, rows)


def write_moodle(book: Gradebook, path: Path) -> None:
    """Write what Moodle imports into an assignment."""
    columns = ("Identifier", "Full name", "Email address", "Grade", "Maximum Grade")
    rows = []
    for row in book.rows:
        facts = (row.facts.get("identifier", ""), _name(row), row.facts.get("email", ""))
        rows.append((*facts, row.points, book.of, row_words(book, row)))
    write_table(path, (*columns, "Feedback comments"), rows)


def _name(row: Row) -> str:
    """Return a student's name as the list of students has it."""
    return row.facts.get("name") or row.facts.get("student") or row.student


def gradescope_results(book: Gradebook, row: Row) -> Mapping[str, object]:
    """Return what Gradescope shows a student: a test for each check, without what is hidden."""
    tests: list[Mapping[str, object]] = []
    for grade in row.grades:
        exercise, graded = book.course.exercises[grade.exercise], grade.graded
        if graded is None or not graded.checks:
            test = {"name": grade.exercise, "output": grade_words(grade)}
            tests.append({**test, "score": grade.points, "max_score": grade.of})
            continue
        is_held = grade.state in ("needs review", "rejected")
        for check in exercise.parts.checks:
            share = grade.of * check.points / exercise.points
            failure = graded.checks[check.name]
            points = share if failure is None and not is_held else 0.0
            test = {
                "name": f"{grade.exercise}: {check.name}",
                "output": check_words(check, failure),
            }
            tests.append({**test, "score": round(points, 4), "max_score": round(share, 4)})
    return {"score": row.points, "output": row_words(book, row), "tests": tests}


def check_shares(book: Gradebook) -> Iterator[tuple[str, str, str, int, int, float]]:
    """Yield for each check the students who pass it, and for each mistake those who made it."""
    for name in book.exercises:
        outcomes = list(_outcomes(book, name))
        of = len(outcomes)
        if not of:
            continue
        passed: Counter[str] = Counter()
        made: Counter[str] = Counter()
        for graded in outcomes:
            passed.update(check for check, failure in graded.checks.items() if failure is None)
            made.update(filter(None, [graded.mistake]))
        for check in book.course.exercises[name].parts.checks:
            count = passed[check.name]
            yield name, "check passed", check.name, count, of, count / of
        for mistake, count in Counter(dict(sorted(made.items()))).most_common():
            yield name, "mistake named", mistake, count, of, count / of


def _outcomes(book: Gradebook, exercise: str) -> Iterator[GradedAnswer]:
    for row in book.rows:
        for grade in row.grades:
            if grade.exercise == exercise and grade.graded is not None:
                yield grade.graded
