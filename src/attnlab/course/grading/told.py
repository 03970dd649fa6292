"""What a student is told of a grade: nothing of hidden inputs, expected values or answers.

A failure's words hold values, and an exception's text and even its type's name may hold what the
student's code saw. So a student is told one of a few fixed sentences, with the name of an exception
only if it is one of Python's own.
"""

from attnlab.course.check import PENDING
from attnlab.course.exercise import CourseExercise
from attnlab.course.grading.classroom import CheckLine, GradedAnswer
from attnlab.course.grading.gradebook import Grade, Gradebook, Row
from attnlab.course.sandbox.replies import PYTHON_ERRORS, TOO_LARGE

_SENTENCES = {
    "shape": "its shape is wrong",
    "finite": "it gives numbers that are not finite",
    "dtype": "its dtype is wrong",
    "type": "it has the wrong type",
    "count": "it gives another number of values",
    "form": "the answer has not the form that is asked",
    "time": "it took too long",
    "size": TOO_LARGE,
    "ended": "its process ended before it had answered",
    "Missing": "a name that is asked for is not defined",
    "NotImplementedError": "it is not written yet",
    PENDING: "it counts once the first check passes",
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
    words = failure_words(line.kind)
    return f"{asked}: {words}" if asked else words


def failure_words(kind: str) -> str:
    """Return the sentence for a kind of failure.

    >>> failure_words("ValueError"), failure_words("Secret42"), failure_words("shape")
    ('it raised ValueError', 'the answer is wrong', 'its shape is wrong')
    """
    if kind in _SENTENCES:
        return _SENTENCES[kind]
    if kind in PYTHON_ERRORS or kind == "Exception":
        return f"it raised {kind}"
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
    return " ".join(f"{word.rstrip('.')}." for word in words)
