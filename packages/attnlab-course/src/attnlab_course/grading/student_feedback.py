"""The sentences of a grade for the student: none tells hidden inputs, expected values or answers.

A failure's words hold values, and an exception's text and even its type's name may hold what the
student's code saw. So a student reads one of a few fixed sentences, with the name of an exception
only if it is one of Python's own.
"""

import re

from attnlab_course.exercise import Check, CourseExercise, Failure
from attnlab_course.feedback import unexplained_words
from attnlab_course.grading.classroom import GradedAnswer
from attnlab_course.grading.grades import Grade, Gradebook, StudentGrades
from attnlab_course.judge import OPEN, passed_words
from attnlab_course.sandbox.replies import PYTHON_ERRORS, TOO_LARGE

_BLANK = "nothing is written in it"
_DECIDED = "a person gave these points"
_SENTENCES = {
    "shape": "its shape is wrong",
    "finite": "it gives numbers that are not finite",
    "dtype": "its dtype is wrong",
    "type": "it has the wrong type",
    "count": "it gives another number of values",
    "form": "the answer is not in the requested format",
    "TookTooLong": "it took too long",
    "TooLarge": TOO_LARGE,
    "ProcessEnded": "its process ended before it had answered",
    "Missing": "a required name is not defined",
    "NotImplementedError": "it is not written yet",
    "SystemExit": "it ended Python, as exit() and raise SystemExit do, in place of an answer",
    **OPEN,
}
_STATES = {
    "missing": "nothing was handed in",
    "blank": _BLANK,
    "unreadable": "a file was handed in, and could not be read",
    "waits": "it is read by a person; points are missing still",
    "needs review": "the points are held until a person has looked at it",
    "rejected": "it uses what is to be written, so it gets no points",
}


def check_words(check: Check, failure: Failure | None) -> str:
    """Say what a check asks, and in general what was wrong."""
    if failure is None:
        return check.words
    words = failure_words(failure.kind)
    if failure.kind == "Missing":  # the statement names what is asked for
        missing = re.match(r"there is no \w+", failure.words)
        words = missing[0] if missing else words
    return f"{check.words}: {words}"


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


def reason_words(grade: Grade) -> str:
    """Say to the instructor why points are missing: the mistake's name, or else what went wrong."""
    graded = grade.graded
    if graded is None:
        return ""
    return graded.mistake or ", ".join(dict.fromkeys(map(_reason, graded.failures)))


def _reason(failure: Failure) -> str:
    if failure.kind == "Missing":  # the name that is asked for
        return failure.words
    return failure.kind if failure.kind in PYTHON_ERRORS else failure_words(failure.kind)


def mistake_words(exercise: CourseExercise, graded: GradedAnswer) -> str:
    """Return the sentences of the mistake behind an answer; an empty text without one."""
    if graded.mistake is None:
        return ""
    says = exercise.mistake(graded.mistake).says
    return f"{says} {unexplained_words(graded.unexplained)}" if graded.unexplained else says


def grade_words(grade: Grade) -> str:
    """Say in a sentence how an exercise went.

    An error while the program is loaded is shown in full: at that time it has seen no input.
    """
    graded = grade.graded
    if grade.is_decided:
        return _DECIDED
    if grade.state != "graded" or graded is None:
        return _STATES.get(grade.state, "")
    if graded.broken is not None:
        return graded.broken
    if graded.is_blank:
        return _BLANK
    words = passed_words(graded.checks.values())
    return f"{words}; {graded.passed_over}" if graded.passed_over else words


def _why_not_all(grade: Grade) -> str:
    """Say why an exercise got less than all points: which checks failed, or why none passed."""
    if grade.points == grade.of and not grade.is_open:
        return ""
    graded = grade.counted
    if graded is None or graded.is_blank or grade.state != "graded" or not graded.lost:
        return grade_words(grade)
    kinds = [failure.kind for failure in graded.failures]
    why = f" ({', '.join(dict.fromkeys(map(failure_words, kinds)))})" if any(kinds) else ""
    return f"failed: {', '.join(graded.lost)}{why}"


def points_words(grade: Grade) -> str:
    """Say the points of an exercise; those that wait for a person are a ?."""
    return f"{'?' if grade.is_open else format(grade.points, 'g')} of {grade.of:g}"


def total_words(book: Gradebook, row: StudentGrades) -> str:
    """Say the points of a submission, and whether some of them wait."""
    waiting = sum(grade.of for grade in row.grades if grade.is_open)
    if book.state(row) == "refused":
        return f"? of {book.of:g} points, as nothing in it could be read"
    words = f"{row.points:g} of {book.of:g} points"
    if row.may_lack_answers:
        return f"{words} so far, as not all that was handed in could be assigned"
    return f"{words} so far, {waiting:g} held until a person has looked" if waiting else words


def row_words(book: Gradebook, row: StudentGrades) -> str:
    """Say in a few sentences how a submission went."""
    words = []
    if book.points(row) is None:
        words.append(total_words(book, row))
    for grade in row.grades:
        why = _why_not_all(grade)
        words.append(f"{grade.exercise}: {points_words(grade)}{why and f', {why}'}")
        if grade.graded is not None and grade.graded.mistake is not None:
            words.append(mistake_words(book.course.exercises[grade.exercise], grade.graded))
    if row.late_percent:
        words.append(f"{row.late_percent:g} % less, {row.days_late} days late")
    ended = [sentence if sentence.endswith((".", "?")) else f"{sentence}." for sentence in words]
    return " ".join(ended)
