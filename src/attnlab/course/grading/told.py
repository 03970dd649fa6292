"""What a student is told of a grade: nothing of hidden inputs, expected values or answers.

A failure's words hold values, and an exception's text and even its type's name may hold what the
student's code saw. So a student is told one of a few fixed sentences, with the name of an exception
only if it is one of Python's own.
"""

import ast
import builtins
import re
import warnings

from attnlab.course.exercise import CourseExercise
from attnlab.course.grading.classroom import CheckLine, GradedAnswer
from attnlab.course.grading.gradebook import Grade, Gradebook, Row

_EXCEPTIONS = {
    name
    for name, each in vars(builtins).items()
    if isinstance(each, type) and issubclass(each, BaseException)
}
_KIND = re.compile(r"^([A-Za-z]+)(?::| \(line|$)")
_FORMS = (
    (re.compile(r"^[^,]*: expected shape "), "its shape is wrong"),
    (re.compile(r"^[^,]*: expected finite numbers"), "it gives numbers that are not finite"),
    (re.compile(r"^[^,]*: expected (bool|u?int\d+|float\d+), got"), "its dtype is wrong"),
    (re.compile(r"^[^,]*: expected (a|an) [a-zA-Z ]+, got"), "it has the wrong type"),
    (re.compile(r"^[^,]*: expected \d+ values, got"), "it gives another number of values"),
)
_OWN = ("it is not written yet", "it could not be judged")
_BEGINNINGS = {
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
    if failure in _OWN:
        return failure
    for begin, words in _BEGINNINGS.items():
        if failure.startswith(begin):
            return words
    kind = _KIND.match(failure)
    if kind is not None and kind[1] in _EXCEPTIONS:
        return f"it raised {kind[1]}"
    for pattern, words in _FORMS:
        if pattern.match(failure):
            return words
    return "the answer is wrong"


def broken_words(broken: str, source: str) -> str:
    """Say why nothing could be asked; where a program is no Python, in which line."""
    head, _, rest = broken.partition("it cannot be run: ")
    if head or not rest:
        return broken  # a sentence of ours
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(source)
        except SyntaxError as error:
            return f"it is no Python: line {error.lineno}"
        except (ValueError, RecursionError, MemoryError):
            return "it is no Python"
    return f"it cannot be run: {failure_words(rest)}"


def mistake_words(exercise: CourseExercise, graded: GradedAnswer) -> list[str]:
    """Return the sentences of the mistakes that an answer equals."""
    says = {mistake.name: mistake.says for mistake in exercise.parts.mistakes}
    return [says[name] for name in graded.mistakes if name in says]


def grade_words(exercise: CourseExercise, grade: Grade, source: str = "") -> str:
    """Say in a sentence how an exercise went."""
    graded = grade.graded
    if grade.state != "graded" or graded is None:
        return _STATES.get(grade.state, "")
    if graded.broken is not None:
        return broken_words(graded.broken, source)
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
    if row.days_late and book.course.late_percent:
        percent = min(100.0, row.days_late * book.course.late_percent)
        words.append(f"{percent:g} % less, {row.days_late} days late")
    return ". ".join(word.rstrip(".") for word in words) + "." if words else ""
