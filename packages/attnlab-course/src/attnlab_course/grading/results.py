"""The grades as JSON, of a class and of each student; other programs read them.

    GRADES/grades.json     what `attnlab grade` writes, and prints with --json
    the student's part     what `attnlab grade-one` prints, with the form of one result

All but a student's `feedback` is the instructor's: notes name checks that are held back.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from attnlab.core.store import write_json
from attnlab_course.grading.exports import gradescope_results
from attnlab_course.grading.grades import Grade, Gradebook, StudentGrades
from attnlab_course.grading.similarity import Alike

CLASS_FILE = "grades.json"
CLASS_FORM = "attnlab class 1"
RESULT_FORM = "attnlab result 1"


def class_results(book: Gradebook, alike: Sequence[Alike]) -> dict[str, object]:
    """Return the grades of a class."""
    return {
        "format": CLASS_FORM,
        "of": book.of,
        "students": [student_result(book, row) for row in book.rows],
        "handed_in": book.handed_in,
        "refused": list(book.refused),
        "passed_over": list(book.passed_over),
        "alike": list(map(vars, alike)),
    }


def write_class_results(results: Mapping[str, object], folder: Path) -> None:
    """Write the grades of a class into its folder."""
    write_json(folder / CLASS_FILE, results)


def student_result(book: Gradebook, row: StudentGrades) -> dict[str, object]:
    """Return a student's grades, with what the list of students says and what the student may read.

    Their state is that of `Gradebook.state`.
    """
    return {
        "student": row.student,
        "state": book.state(row),
        "points": row.points,
        "of": book.of,
        "days_late": row.days_late,
        "problems": [*row.private, *row.submission.problems],
        "exercises": list(map(_exercise_result, row.grades)),
        "facts": dict(row.facts),
        "feedback": gradescope_results(book, row),
    }


def _exercise_result(grade: Grade) -> dict[str, object]:
    return {
        "exercise": grade.exercise,
        "points": grade.points,
        "of": grade.of,
        "held": grade.held,
        "state": grade.state,
        "mistake": grade.graded and grade.graded.mistake,
    }
