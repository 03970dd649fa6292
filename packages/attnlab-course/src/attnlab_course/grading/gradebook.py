"""Points: of each student and exercise, with what the instructor decides and the late policy.

Two sheets in the folder of grades wait for the instructor: `reviews.csv`, where answers that use a
banned name are accepted or rejected and any answer may be given other points, and `texts.csv`,
where each criterion of a text gets its points. What is in them is kept when they are written again.
"""

import datetime
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from attnlab.errors import WrongUsage, did_you_mean
from attnlab_course.cases import entry_names, misnamed
from attnlab_course.catalog import holds_back
from attnlab_course.exercise import CourseExercise
from attnlab_course.grading.bans import line_of_use
from attnlab_course.grading.classroom import GradedAnswer
from attnlab_course.grading.course_file import Course, read_number
from attnlab_course.grading.file_names import MOST_NAME, inert
from attnlab_course.grading.grades import Grade, Gradebook, StudentGrades
from attnlab_course.grading.roster import likely_name, match_students
from attnlab_course.grading.sheets import Sheet
from attnlab_course.grading.submission import Submission, SubmittedAnswer
from attnlab_course.submit import file_label

_LATE = re.compile(r"_LATE_\d+_")  # in the name of a file that Canvas wrote
_DAY = datetime.timedelta(days=1)


def make_gradebook(
    course: Course,
    submissions: Sequence[Submission],
    graded: Iterable[GradedAnswer],
    folder: Path,
    passed_over: Iterable[str] = (),
    *,
    with_absent: bool = True,
) -> Gradebook:
    """Count the points, and write the two sheets that the instructor fills.

    Args:
        course: what the instructor says of it.
        submissions: those of the class.
        graded: the results of their answers.
        folder: of the grades.
        passed_over: names among the submissions that are none.
        with_absent: also give a row to each student of the list who handed in nothing.

    Raises:
        WrongUsage: a sheet says something that makes no sense.
    """
    results = {(answer.student, answer.exercise): answer for answer in graded}
    exercises = _counting(course, submissions)
    key = ("student", "exercise", "answer")
    reviews = Sheet.read(folder / "reviews.csv", key, "decision")
    texts = Sheet.read(folder / "texts.csv", (*key, "criterion"), "points")
    listing = match_students(submissions, course.students)
    likely = {name: likely_name(name, course.students) for name in listing.unlisted}
    labels = Counter(submission.label for submission in submissions if submission.label)
    absent = listing.absent if with_absent else ()
    rows = []
    for submission in [*submissions, *map(Submission, absent)]:
        student, grades = submission.student, []
        for name in exercises:
            result = results.get((student, name))
            grades.append(_grade(course, submission, name, result, (reviews, texts)))
        meant = [name for name, near in likely.items() if near == student]
        notes = (*listing.notes(student), *_name_notes(submission.label, labels, meant))
        unread = (*submission.passed_over, *meant)
        facts = _facts(submission, listing.facts(student))
        row = StudentGrades(submission, tuple(grades), facts, notes, unread)
        rows.append(_with_points(course, row))
    rows.sort(key=lambda row: row.student)
    if with_absent:
        _refuse_strangers(reviews, [row.student for row in rows], course.exercises)
    reviews.write()
    texts.write()
    more = (listing.unlisted, absent, tuple(passed_over))
    return Gradebook(course, exercises, tuple(rows), *more)


def _facts(submission: Submission, listed: Mapping[str, str]) -> dict[str, str]:
    """Return what is known of a student: by the list, and what it lacks by Moodle.

    Who is on the list has the name that the list has.
    """
    by_moodle = dict(submission.facts)
    if listed:
        by_moodle.pop("name", None)
    return {**by_moodle, **{name: fact for name, fact in listed.items() if fact}}


def _refuse_strangers(reviews: Sheet, students: Iterable[str], exercises: Iterable[str]) -> None:
    """Refuse a row that the instructor added for a student or an exercise that is not there.

    Raises:
        WrongUsage: there is one.
    """
    known = {file_label(student): student for student in students}
    for student, exercise, answer in reviews.filled:
        for name, names in ((student, known), (exercise, exercises)):
            if not answer and name not in names:
                raise WrongUsage(
                    f"{reviews.path}: there is no {name!r}; {did_you_mean(name, names)}"
                )


def _counting(course: Course, submissions: Sequence[Submission]) -> tuple[str, ...]:
    """Return the exercises that count: those of the course.toml, or all that are answered.

    Where nothing is answered, they are those of the untouched templates.
    """
    answered = {name for submission in submissions for name in submission.answers}
    if not answered:
        answered = {name for submission in submissions for name in submission.blank}
    return course.counting or tuple(filter(answered.__contains__, course.exercises))


def _name_notes(label: str, labels: Counter[str], meant: Iterable[str]) -> Iterator[str]:
    """Yield what the instructor should know of a student's name, label and namesakes."""
    yield from map("the submission {}, which is not on the list, may be theirs".format, meant)
    if labels[label] > 1:
        yield f"another submission has the label {label}, too"


def _grade(
    course: Course,
    submission: Submission,
    exercise: str,
    answer: GradedAnswer | None,
    sheets: tuple[Sheet, Sheet],
) -> Grade:
    """Grade an exercise with the sheets of reviews and texts."""
    reviews, texts = sheets
    decision = _decision(course, submission, exercise, reviews)
    if decision is not None:
        return Grade(exercise, decision, course.of(exercise), graded=answer, is_decided=True)
    if exercise not in submission.answers:
        return Grade(exercise, 0.0, course.of(exercise), state=_why_no_answer(submission, exercise))
    if course.exercises[exercise].parts.kind == "text":
        return _grade_text(course, submission, exercise, texts)
    return _grade_program(course, submission.answers[exercise], answer, reviews)


def _why_no_answer(submission: Submission, exercise: str) -> str:
    """Return the state of an exercise without an answer."""
    if exercise in submission.unreadable:
        return "unreadable"
    return "blank" if exercise in submission.blank else "missing"


def _decision(
    course: Course, submission: Submission, exercise: str, reviews: Sheet
) -> float | None:
    """Return the points that the instructor gives for an exercise; None if they are the checks'."""
    answer = submission.answers.get(exercise)
    digest = answer.digest[:12] if answer is not None else ""
    entry = reviews.find((submission.student, exercise, digest))
    if entry in ("", "accept", "reject"):
        return None
    what = f"{reviews.column} of {submission.student} {exercise}, unless accept or reject,"
    return read_number(reviews.path, what, entry, course.of(exercise))


def _with_points(course: Course, row: StudentGrades) -> StudentGrades:
    """Sum the points, less what is lost by being late, and add what the instructor should know."""
    submission, days = row.submission, _days_late(course, row.time)
    late = min(100.0, days * course.late_percent)
    points = round((1 - late / 100) * sum(grade.points for grade in row.grades), 2)
    private = list(row.private)
    for grade in row.grades:
        private += _private(course, submission, grade)
        private += _misnamed(course.exercises[grade.exercise], submission, grade)
    if course.deadline is not None and not row.facts.get("submitted"):
        if submission.created and row.time is None:
            private.append(
                f"its time {submission.created!r} cannot be read, so it counts as in time"
            )
        late_files = filter(_LATE.search, submission.entries.values())
        for entry in list(late_files)[: not days]:
            private.append(f"{entry}: LATE by Canvas, and no points are lost")
    private_notes = tuple(private)
    return replace(row, days_late=days, late_percent=late, points=points, private=private_notes)


def _grade_program(
    course: Course, program: SubmittedAnswer, answer: GradedAnswer | None, reviews: Sheet
) -> Grade:
    """Scale the points of the checks; hold them while a banned name waits for a review."""
    exercise = program.exercise
    of, most = course.of(exercise), course.exercises[exercise].points
    if answer is None:
        return Grade(exercise, 0.0, of, state="missing")
    points = round(of * answer.points / most, 2) if most else 0.0
    if not answer.banned:
        return Grade(exercise, points, of, graded=answer)
    key = (answer.student, exercise, answer.answer_digest[:12])
    place = _place(course.exercises[exercise], program.source, answer.banned)
    why = f"uses {', '.join(answer.banned)}{place}; would get {points:g} of {of:g}"
    decision = reviews.ask(key, why, ("", "accept", "reject"))
    if decision == "accept":
        return Grade(exercise, points, of, graded=answer)
    if decision == "reject":
        return Grade(exercise, 0.0, of, state="rejected", graded=answer)
    return Grade(exercise, 0.0, of, points, "needs review", answer)


def _place(exercise: CourseExercise, source: str, names: Iterable[str]) -> str:
    """Return the line of a program that uses one of the names, as words; empty if not known."""
    number = line_of_use(source, exercise.parts.banned, names, entry_names(exercise))
    if number is None:
        return ""
    line = re.split("\r\n|\r|\n", source)[number - 1].strip()
    return " in " + inert(f"line {number}, {line}")


def _grade_text(course: Course, submission: Submission, exercise: str, texts: Sheet) -> Grade:
    """Sum what the sheet gives a text's criteria, each from 0 to 1."""
    of, rubric = course.of(exercise), course.exercises[exercise].parts.rubric
    digest = submission.answers[exercise].digest[:12]
    points, total, state = 0.0, 0.0, "graded"
    criteria = []
    for criterion in rubric:
        entry = texts.ask((submission.student, exercise, digest, criterion), "from 0 to 1")
        if not entry:
            state = "waits"
        criteria.append((criterion, entry))
        total += read_number(texts.path, f"{submission.student}, {exercise}", entry or "0", 1)
    if rubric:
        points = round(of * total / len(rubric), 2)
    return Grade(exercise, points, of, state=state, criteria=tuple(criteria))


def _days_late(course: Course, time: datetime.datetime | None) -> int:
    """Count the days begun after the deadline; a time that is not known is in time."""
    if course.deadline is None or time is None:
        return 0
    if time.tzinfo is None:
        time = time.replace(tzinfo=course.deadline.tzinfo)
    return max(0, math.ceil((time - course.deadline) / _DAY))


def _private(course: Course, submission: Submission, grade: Grade) -> Iterator[str]:
    """Yield what only the instructor should know of a grade."""
    answer = grade.graded
    if answer is None:
        return
    if grade.exercise in submission.given_up:
        yield f"{grade.exercise}: its solution was shown before an answer passed, by the log"
    if answer.unjudged:
        yield f"{grade.exercise} could not be judged: {answer.unjudged}"
    elif answer.broken:
        yield f"{grade.exercise}: {answer.broken}"
    if answer.answer_digest in submission.claims.get(grade.exercise, ()):
        yield from _denied_claim(course.exercises[grade.exercise], answer)


def _misnamed(exercise: CourseExercise, submission: Submission, grade: Grade) -> Iterator[str]:
    """Yield the names that a program defines in place of the one that is asked for."""
    failures = grade.counted.failures if grade.counted is not None else ()
    if {failure.kind for failure in failures} != {"Missing"}:
        return
    source = submission.answers[grade.exercise].source
    names = inert(", ".join(misnamed(exercise, source)), MOST_NAME)
    if names:
        yield f"{grade.exercise}: it defines {names}; a number in reviews.csv gives it points"


def _denied_claim(exercise: CourseExercise, answer: GradedAnswer) -> Iterator[str]:
    """Yield the first check that a student could see, and that fails against the student's log."""
    is_whole = not holds_back(exercise)
    visible = {check.name for check in exercise.parts.checks if is_whole or not check.graded}
    failed = [name for name in answer.checks if answer.checks[name] is not None and name in visible]
    yield from map(
        f"{exercise.name} passed by the student's log, and fails here: {{}}".format, failed[:1]
    )
