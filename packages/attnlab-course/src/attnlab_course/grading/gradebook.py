"""Points: of each student and exercise, with what the instructor decides and the late policy.

`course.toml` says what counts; all of it is optional:

    title = "Attention, autumn"
    exercises = ["softmax", "attention"]
    deadline = 2026-12-01T18:00:00+01:00
    late_percent_per_day = 10
    folder = "own_exercises"
    students = "students.csv"

    [points]
    attention = 10

Two sheets in the folder of grades wait for the instructor: `reviews.csv`, where answers that use a
banned name are accepted or rejected, and `texts.csv`, where each criterion of a text gets its
points. What is in them is kept when they are written again.
"""

import datetime
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean, is_number
from attnlab_course.catalog import exercise_names, find_exercise, holds_back, instructor_exercises
from attnlab_course.exercise import CourseExercise
from attnlab_course.grading.classroom import HASHED, GradedAnswer, file_name
from attnlab_course.grading.file_names import inert
from attnlab_course.grading.roster import likely_name, match_students, read_students, read_time
from attnlab_course.grading.sheets import Sheet
from attnlab_course.grading.submissions import Answer, Submission
from attnlab_course.submit import file_label

_LATE = re.compile(r"_LATE_\d+_")  # in the name of a file that Canvas wrote
_DAY = datetime.timedelta(days=1)
_KEYS = ("title", "exercises", "deadline", "late_percent_per_day", "folder", "students", "points")


@dataclass(frozen=True)
class Course:
    """What an instructor says of a course.

    Args:
        exercises: by name, all that may be handed in.
        counting: those that count, in order; empty for all that were handed in.
        points: of exercises that give other points than their checks together.
        deadline: None without one.
        late_percent: of the points, for each day begun after the deadline.
        students: what is known of the students, by the name of their submission.
        title: of the pages.
    """

    exercises: Mapping[str, CourseExercise]
    counting: tuple[str, ...] = ()
    points: Mapping[str, float] = field(default_factory=dict)
    deadline: datetime.datetime | None = None
    late_percent: float = 0.0
    students: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    title: str = "Grades"

    def of(self, exercise: str) -> float:
        """Return how many points an exercise gives."""
        return float(self.points.get(exercise, self.exercises[exercise].points))


@dataclass(frozen=True)
class Grade:
    """A student's points for an exercise.

    Args:
        exercise: which.
        points: that count.
        of: that there are.
        held: that wait for a review.
        state: graded, missing, needs review, rejected or waits (a text without points).
        graded: the result; None for texts, and where there is no answer.
        criteria: of a text, each with the points that it got from 0 to 1, empty while it waits.
    """

    exercise: str
    points: float
    of: float
    held: float = 0.0
    state: str = "graded"
    graded: GradedAnswer | None = None
    criteria: tuple[tuple[str, str], ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether a person has to look at it."""
        is_unjudged = self.graded is not None and self.graded.unjudged is not None
        return is_unjudged or self.state in ("needs review", "waits")


@dataclass(frozen=True)
class Row:
    """A student's grades.

    Args:
        submission: what was handed in; empty for a student of the list who did not.
        grades: in the order of the exercises.
        days_late: days begun after the deadline.
        late_percent: of the points, lost by being late.
        points: the sum, less what is lost by being late.
        facts: what the list of students says.
        private: notes for the instructor alone.
        unread: files and submissions that may hold more answers of this student.
    """

    submission: Submission
    grades: tuple[Grade, ...]
    days_late: int
    late_percent: float
    points: float
    facts: Mapping[str, str]
    private: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def may_lack_answers(self) -> bool:
        """Whether an exercise is missing that may be answered in what could not be assigned."""
        return bool(self.unread) and any(grade.state == "missing" for grade in self.grades)

    @property
    def student(self) -> str:
        """The name of the submission."""
        return self.submission.student


@dataclass(frozen=True)
class Gradebook:
    """The grades of a class.

    Args:
        course: what the instructor says of it.
        exercises: those that count.
        rows: one for each student.
        unlisted: who handed in and is not on the list of students.
        absent: who is on the list and handed in nothing.
        passed_over: names among the submissions that are none.
    """

    course: Course
    exercises: tuple[str, ...]
    rows: tuple[Row, ...]
    unlisted: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()

    @property
    def listed(self) -> tuple[Row, ...]:
        """The rows that gradebooks take: without those who are not on the list of students."""
        return tuple(row for row in self.rows if row.student not in self.unlisted)

    @property
    def unlisted_words(self) -> tuple[str, ...]:
        """Who is not on the list of students, each with the name that may be meant."""
        likely = {name: likely_name(name, self.course.students) for name in self.unlisted}
        return tuple(
            f"{name} (did you mean {near}?)" if near else name for name, near in likely.items()
        )

    def state(self, row: Row) -> str:
        """Return `graded`; `waits`, where a person has to look; `refused`, `unlisted` or `absent`.

        A refused submission holds no answer that could be read. What waits or is refused has no
        grade yet: gradebooks get none. Who may have answered in a file or submission that could
        not be assigned waits, too.
        """
        if row.student in self.unlisted:
            return "unlisted"
        if not row.submission.answers and row.student not in self.absent:
            return "refused"
        if row.may_lack_answers:
            return "waits"
        if row.student in self.absent:
            return "absent"
        return "waits" if any(grade.is_open for grade in row.grades) else "graded"

    def points(self, row: Row) -> float | None:
        """Return a student's points; None while there is no grade yet."""
        return row.points if self.state(row) in ("graded", "absent") else None

    @cached_property
    def folders(self) -> dict[str, str]:
        """The name of each student's folder: the student's, with a hash where two are alike."""
        labels = {row.student: file_label(row.student)[:60] for row in self.rows}
        counts = Counter(label.casefold() for label in labels.values())
        for student, label in labels.items():
            is_alone = counts[label.casefold()] == 1 and not HASHED.search(label)
            if not label or not is_alone:
                labels[student] = file_name(student)
        return labels

    @property
    def refused(self) -> tuple[str, ...]:
        """What was handed in and is in no gradebook or without a grade, as nothing can be read."""
        rows = [row.student for row in self.rows if self.state(row) in ("refused", "unlisted")]
        return (*rows, *self.passed_over)

    @property
    def handed_in(self) -> int:
        """How many entries were handed in: those read and those refused."""
        return len(self.rows) - len(self.absent) + len(self.passed_over)

    @property
    def without_time(self) -> tuple[str, ...]:
        """Whose time is not known, and counts as before the deadline; none without a deadline."""
        rows = self.rows if self.course.deadline else ()
        unknown = [row.student for row in rows if not _time_of(row.submission, row.facts)]
        return tuple(student for student in unknown if student not in self.absent)

    @property
    def is_by_students_clock(self) -> bool:
        """Whether a student's own clock says that a submission is late."""
        return any(row.days_late and not row.facts.get("submitted") for row in self.rows)

    @property
    def of(self) -> float:
        """How many points there are in all."""
        return sum(map(self.course.of, self.exercises))


def read_course(path: Path | None) -> Course:
    """Read a course.toml; None for the course as it comes.

    Raises:
        WrongUsage: a key, an exercise or a value that makes no sense.
        CouldNotRun: the file cannot be read.
    """
    if path is None:
        return Course({name: find_exercise(name) for name in exercise_names()})
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CouldNotRun(f"could not read {path}: {error}.") from None
    _check_kinds(path, settings)
    folder, students = None, {}
    if "folder" in settings:
        folder = path.parent / settings["folder"]
    known = [*instructor_exercises(folder), *exercise_names()]
    counting = tuple(settings.get("exercises", ()))
    for name in [*counting, *settings.get("points", ())]:
        if name not in known:
            raise WrongUsage(f"{path}: no exercise {name!r}; {did_you_mean(name, known)}")
    # those that count come first: a function that several ask for answers the first
    exercises = {name: find_exercise(name, folder) for name in dict.fromkeys([*counting, *known])}
    percent = _number(path, "late_percent_per_day", settings.get("late_percent_per_day", 0), 100)
    points = {}
    for name, value in settings.get("points", {}).items():
        points[name] = _number(path, f"points.{name}", value, 1e6)
    deadline = _deadline(path, settings.get("deadline"))
    if "students" in settings:
        students = read_students(path.parent / settings["students"])
    title = settings.get("title", Course.title)
    return Course(exercises, counting, points, deadline, percent, students, title)


def _check_kinds(path: Path, settings: Mapping[str, object]) -> None:
    """Check the keys of a course.toml and the kinds of their values.

    Raises:
        WrongUsage: one of them is wrong.
    """
    for key in settings:
        if key not in _KEYS:
            raise WrongUsage(f"{path}: there is no {key!r}; {did_you_mean(key, _KEYS)}")
    for key in ("title", "folder", "students"):
        value = settings.get(key, "")
        if not isinstance(value, str):
            raise WrongUsage(f"{path}: {key} must be a text between quotes; got {value!r}.")
    _check_names(path, settings.get("exercises", []))
    points = settings.get("points", {})
    if not isinstance(points, dict):
        raise WrongUsage(
            f"{path}: points must be a table with a line for each exercise, as in [points] and "
            f"then attention = 10; got points = {points!r}."
        )
    numbers = {f"points.{name}": value for name, value in points.items()}
    numbers["late_percent_per_day"] = settings.get("late_percent_per_day", 0)
    for name, value in numbers.items():
        if not is_number(value):
            raise WrongUsage(f"{path}: {name} must be a number; got {value!r}.")


def _check_names(path: Path, names: object) -> None:
    """Check the names of the exercises that count, as `_check_kinds` does."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise WrongUsage(
            f'{path}: exercises must be a list of names, as in ["softmax", "attention"]; '
            f"got {names!r}."
        )
    for name, count in Counter(names).items():
        if count > 1:
            raise WrongUsage(f"{path}: exercises lists {name!r} twice; keep it once.")


def _deadline(path: Path, value: object) -> datetime.datetime | None:
    """Return the deadline that a course.toml sets; None without one.

    Raises:
        WrongUsage: it is no time with its offset.
    """
    if value is None or (isinstance(value, datetime.datetime) and value.tzinfo is not None):
        return value
    raise WrongUsage(
        f"{path}: deadline must be a time with its offset, as in "
        f"deadline = 2026-12-01T18:00:00+01:00; got {value}."
    )


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
    answered = {name for submission in submissions for name in submission.answers}
    exercises = course.counting or tuple(filter(answered.__contains__, course.exercises))
    key = ("student", "exercise", "answer")
    reviews = Sheet.read(folder / "reviews.csv", key, "decision")
    texts = Sheet.read(folder / "texts.csv", (*key, "criterion"), "points")
    listing = match_students(submissions, course.students)
    labels = Counter(submission.label for submission in submissions)
    absent = listing.absent if with_absent else ()
    everyone = [*submissions, *map(Submission, absent)]
    rows = []
    for submission in sorted(everyone, key=lambda submission: submission.student):
        student, grades = submission.student, []
        for name in exercises:
            result = results.get((student, name))
            grades.append(_grade(course, submission, name, result, (reviews, texts)))
        private = listing.notes(student)
        meant = [name for name in listing.unlisted if likely_name(name, course.students) == student]
        private += [
            f"the submission {name}, which is not on the list, may be theirs" for name in meant
        ]
        if submission.label and labels[submission.label] > 1:
            private.append(f"another submission has the label {submission.label}, too")
        row = _row(course, submission, grades, listing.facts(student), private)
        rows.append(replace(row, unread=(*submission.passed_over, *meant)))
    reviews.write()
    texts.write()
    more = (listing.unlisted, absent, tuple(passed_over))
    return Gradebook(course, exercises, tuple(rows), *more)


def _grade(
    course: Course,
    submission: Submission,
    exercise: str,
    answer: GradedAnswer | None,
    sheets: tuple[Sheet, Sheet],
) -> Grade:
    """Grade an exercise with the sheets of reviews and texts."""
    reviews, texts = sheets
    if exercise not in submission.answers:
        return Grade(exercise, 0.0, course.of(exercise), state="missing")
    if course.exercises[exercise].parts.kind == "text":
        return _grade_text(course, submission, exercise, texts)
    return _grade_program(course, submission.answers[exercise], answer, reviews)


def _row(
    course: Course,
    submission: Submission,
    grades: Sequence[Grade],
    facts: Mapping[str, str],
    private: list[str],
) -> Row:
    """Sum the points, less what is lost by being late."""
    days = _days_late(course, submission, facts)
    late = min(100.0, days * course.late_percent)
    points = round((1 - late / 100) * sum(grade.points for grade in grades), 2)
    for grade in grades:
        private += _private(course, submission, grade)
    created = submission.created
    is_open = course.deadline is not None and not facts.get("submitted")
    if is_open and created and read_time(created) is None:
        private.append(f"its time {created!r} cannot be read, so it counts as in time")
    if is_open and not days:
        late_files = [entry for entry in submission.entries.values() if _LATE.search(entry)]
        private += [f"{entry}: LATE by Canvas, and no points are lost" for entry in late_files[:1]]
    return Row(submission, tuple(grades), days, late, points, facts, tuple(private))


def _grade_program(
    course: Course, program: Answer, answer: GradedAnswer | None, reviews: Sheet
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
    why = f"uses {', '.join(answer.banned)}{_place(program.source, answer.banned)}; would get "
    why += f"{points:g} of {of:g}"
    decision = reviews.ask(key, why, ("", "accept", "reject"))
    if decision == "accept":
        return Grade(exercise, points, of, graded=answer)
    if decision == "reject":
        return Grade(exercise, 0.0, of, state="rejected", graded=answer)
    return Grade(exercise, 0.0, of, points, "needs review", answer)


def _place(source: str, names: Iterable[str]) -> str:
    """Return the first line of a program in which one of the names stands, with its number."""
    for number, line in enumerate(source.splitlines(), 1):
        if any(name in line for name in names):
            return " in " + inert(f"line {number}, {line}")
    return ""


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
        total += _number(texts.path, f"{submission.student}, {exercise}", entry or "0", 1)
    if rubric:
        points = round(of * total / len(rubric), 2)
    return Grade(exercise, points, of, state=state, criteria=tuple(criteria))


def _days_late(course: Course, submission: Submission, facts: Mapping[str, str]) -> int:
    """Count the days begun after the deadline; a time that is not known is in time."""
    time = _time_of(submission, facts)
    if course.deadline is None or time is None:
        return 0
    if time.tzinfo is None:
        time = time.replace(tzinfo=course.deadline.tzinfo)
    return max(0, math.ceil((time - course.deadline) / _DAY))


def _time_of(submission: Submission, facts: Mapping[str, str]) -> datetime.datetime | None:
    """Return when a submission was handed in, by the list or else by itself; None if unknown."""
    return read_time(facts.get("submitted") or submission.created)


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
    if answer.answer_digest not in submission.claims.get(grade.exercise, ()):
        return
    exercise = course.exercises[grade.exercise]
    is_whole = not holds_back(exercise)
    visible = {check.name for check in exercise.parts.checks if is_whole or not check.graded}
    for name, failure in answer.checks.items():
        if name in visible and failure is not None:
            yield f"{grade.exercise} passed by the student's log, and fails here: {name}"
            return


def _number(path: Path, what: str, value: object, most: float) -> float:
    """Read a number from 0 to `most`.

    Raises:
        WrongUsage: it is none.
    """
    try:
        number = float(str(value).replace(",", "."))
    except ValueError:
        number = math.nan
    if not 0 <= number <= most:
        raise WrongUsage(f"{path}: {what} must be a number from 0 to {most:g}; got {value!r}.")
    return number
