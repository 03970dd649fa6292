"""What a student is told of a grade: nothing of hidden inputs, expected values or answers.

A failure's words hold values, and an exception's text and even its type's name may hold what the
student's code saw. So a student is told one of a few fixed sentences, with the name of an exception
only if it is one of Python's own.
"""

import re

from attnlab.course.exercise import CourseExercise
from attnlab.course.grading.classroom import CheckLine, GradedAnswer
from attnlab.course.grading.gradebook import Grade, Gradebook, Row
from attnlab.course.sandbox.replies import PYTHON_ERRORS

_KIND = re.compile(r"^([A-Za-z]+)(?::| \(line|$)")
_FORMS = (
    (re.compile(r"^[^,]*: expected shape "), "its shape is wrong"),
    (re.compile(r"^[^,]*: expected finite numbers"), "it gives numbers that are not finite"),
    (re.compile(r"^[^,]*: expected (bool|u?int\d+|float\d+), got"), "its dtype is wrong"),
    (re.compile(r"^[^,]*: expected (a|an) [a-zA-Z ]+, got"), "it has the wrong type"),
    (re.compile(r"^[^,]*: expected \d+ values, got"), "it gives another number of values"),
)
_BEGINNINGS = {
    "it is not written yet": "it is not written yet",
    "it could not be judged": "it could not be judged",
    "there is no ": "a name that is asked for is not defined",
    "the answer has not the form that is asked": "the answer has not the form that is asked",
    "TimeoutError: ": "it took too long",
    "ProcessEnded: ": "its process ended before it had answered",
}
_STATES = {
    "missing": "nothing was handed in",
    "waits": "it is read by a person; points are missing still",
    "needs review": "the points are held until a person has looked at it",
    "rejected": "it uses what is to be written, so it gets no points",
}


def check_words(exercise: CourseExercise, line: CheckLine) -> str:
    """Say what a check asks, and what was wrong in general."""
    asked = next((each.words for each in exercise.parts.checks if each.name == line.name), "")
    if line.passed or line.failure is None:
        return asked
    return f"{asked}: {failure_words(line.failure)}" if asked else failure_words(line.failure)


def failure_words(failure: str) -> str:
    """Turn a failure into one of a few sentences.

    >>> failure_words("ValueError: [[0.1, 0.2]] (line 3)"), failure_words("Secret42: x")
    ('it raised ValueError', 'the answer is wrong')
    """
    for begin, words in _BEGINNINGS.items():
        if failure.startswith(begin):
            return words
    kind = _KIND.match(failure)
    if kind is not None and kind[1] in {*PYTHON_ERRORS, "Exception"}:
        return f"it raised {kind[1]}"
    for pattern, words in _FORMS:
        if pattern.match(failure):
            return words
    return "the answer is wrong"


def mistake_words(exercise: CourseExercise, graded: GradedAnswer) -> list[str]:
    """Return the sentences of the mistakes that an answer equals."""
    says = {mistake.name: mistake.says for mistake in exercise.parts.mistakes}
    return [says[name] for name in graded.mistakes if name in says]


def grade_words(grade: Grade) -> str:
    """Say in a sentence how an exercise went.

    An error while the program is loaded is told in full: at that time it has seen no input.
    """
    graded = grade.graded
    if grade.state != "graded" or graded is None:
        return _STATES.get(grade.state, "")
    if graded.broken is not None:
        return graded.broken
    if graded.is_blank:
        return "nothing is written in it"
    passed = sum(line.passed for line in graded.checks)
    return f"{passed} of {len(graded.checks)} checks pass"


def row_words(book: Gradebook, row: Row) -> str:
    """Say in a few sentences how a submission went."""
    words = []
    for grade in row.grades:
        words.append(f"{grade.exercise}: {grade.points:g} of {grade.of:g}")
        if grade.graded is not None:
            words += mistake_words(book.course.exercises[grade.exercise], grade.graded)
    if row.late_percent:
        words.append(f"{row.late_percent:g} % less, {row.days_late} days late")
    return ". ".join(word.rstrip(".") for word in words) + "." if words else ""
