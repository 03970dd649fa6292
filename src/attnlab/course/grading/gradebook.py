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
points. What stands in them is kept when they are written again.
"""

import datetime
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from attnlab.course.catalog import exercise_names, find_exercise
from attnlab.course.exercise import CourseExercise
from attnlab.course.grading.classroom import GradedAnswer
from attnlab.course.grading.sheets import Sheet, read_table
from attnlab.course.grading.submissions import Submission
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean

_DAY = datetime.timedelta(days=1)
_KEYS = (
    "title",
    "exercises",
    "deadline",
    "late_percent_per_day",
    "folder",
    "students",
    "points",
)
ROSTER = (
    "student",
    "name",
    "id",
    "sis_user_id",
    "sis_login_id",
    "section",
    "identifier",
    "email",
    "submitted",
)
"""The columns of a list of students; only the first is needed."""


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
        graded: what came of it; None for texts, and where there is no answer.
    """

    exercise: str
    points: float
    of: float
    held: float = 0.0
    state: str = "graded"
    graded: GradedAnswer | None = None


@dataclass(frozen=True)
class Row:
    """A student's grades.

    Args:
        submission: what was handed in; empty for a student of the list who did not.
        grades: in the order of the exercises.
        days_late: days begun after the deadline.
        points: the sum, less what is lost by being late.
        facts: what the list of students says.
        problems: of the submission, for the instructor alone where `private` holds them.
        private: what only the instructor is told.
    """

    submission: Submission
    grades: tuple[Grade, ...]
    days_late: int
    points: float
    facts: Mapping[str, str]
    private: tuple[str, ...] = ()

    @property
    def student(self) -> str:
        """The name of the submission."""
        return self.submission.student


@dataclass(frozen=True)
class Gradebook:
    """The grades of a class: the exercises that count, and a row for each student."""

    course: Course
    exercises: tuple[str, ...]
    rows: tuple[Row, ...]

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
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CouldNotRun(f"could not read {path}: {error}.") from None
    for key in told:
        if key not in _KEYS:
            raise WrongUsage(f"{path}: there is no {key!r}; {did_you_mean(key, _KEYS)}")
    own = path.parent / told["folder"] if "folder" in told else None
    names = sorted(each.stem for each in own.glob("*.py")) if own is not None else []
    exercises = {name: find_exercise(name, own) for name in [*names, *exercise_names()]}
    counting, points = told.get("exercises", []), told.get("points", {})
    for name in [*counting, *points]:
        if name not in exercises:
            raise WrongUsage(f"{path}: no exercise {name!r}; {did_you_mean(name, exercises)}")
    deadline = told.get("deadline")
    is_time = isinstance(deadline, datetime.datetime) and deadline.tzinfo is not None
    if deadline is not None and not is_time:
        raise WrongUsage(
            f"{path}: deadline must be a time with its offset, as in "
            f"deadline = 2026-12-01T18:00:00+01:00; got {deadline}."
        )
    percent = _number(path, "late_percent_per_day", told.get("late_percent_per_day", 0), 100)
    return Course(
        exercises,
        tuple(counting),
        {name: _number(path, f"points.{name}", value, 1e6) for name, value in points.items()},
        deadline,
        percent,
        read_students(path.parent / told["students"]) if "students" in told else {},
        str(told.get("title", "Grades")),
    )


def read_students(path: Path) -> dict[str, Mapping[str, str]]:
    """Read a list of students, a table with the columns of `ROSTER` or some of them.

    Raises:
        WrongUsage: a column that is not known, or none for the student.
    """
    rows = read_table(path)
    for name in rows[0] if rows else ():
        if name not in ROSTER:
            raise WrongUsage(f"{path}: no column {name!r} is known; {did_you_mean(name, ROSTER)}")
    if rows and "student" not in rows[0]:
        raise WrongUsage(f"{path} needs a column 'student', as submissions are named.")
    return {row["student"]: row for row in rows if row["student"]}


def make_gradebook(
    course: Course,
    submissions: Sequence[Submission],
    graded: Iterable[GradedAnswer],
    folder: Path,
) -> Gradebook:
    """Count the points, and write the two sheets that the instructor fills.

    Raises:
        WrongUsage: a sheet says something that makes no sense.
    """
    results = {(each.student, each.exercise): each for each in graded}
    present = {name for submission in submissions for name in submission.answers}
    exercises = course.counting or tuple(name for name in course.exercises if name in present)
    sheets = _Sheets(
        Sheet.read(folder / "reviews.csv", ("student", "exercise", "answer"), "decision"),
        Sheet.read(folder / "texts.csv", ("student", "exercise", "answer", "criterion"), "points"),
    )
    known = {submission.student for submission in submissions}
    absent = [Submission(name) for name in course.students if name not in known]
    labels = [submission.label for submission in submissions if submission.label]
    rows = []
    for submission in sorted([*submissions, *absent], key=lambda each: each.student):
        grades = []
        for exercise in exercises:
            found = results.get((submission.student, exercise))
            grades.append(_grade(course, submission, exercise, found, sheets))
        facts = course.students.get(submission.student, {})
        days = _days_late(course, submission, facts)
        share = max(0.0, 1 - days * course.late_percent / 100)
        points = round(share * sum(grade.points for grade in grades), 2)
        private = tuple(_private(course, submission, grades, labels))
        rows.append(Row(submission, tuple(grades), days, points, facts, private))
    sheets.reviews.write()
    sheets.texts.write()
    return Gradebook(course, exercises, tuple(rows))


@dataclass(frozen=True)
class _Sheets:
    reviews: Sheet
    texts: Sheet


def _grade(
    course: Course,
    submission: Submission,
    exercise: str,
    found: GradedAnswer | None,
    sheets: _Sheets,
) -> Grade:
    of, parts = course.of(exercise), course.exercises[exercise]
    if exercise not in submission.answers:
        return Grade(exercise, 0.0, of, state="missing")
    if parts.parts.kind == "text":
        return _grade_text(course, submission, exercise, sheets.texts)
    if found is None:
        return Grade(exercise, 0.0, of, state="missing")
    points = round(of * found.points / parts.points, 2) if parts.points else 0.0
    if not found.banned:
        return Grade(exercise, points, of, graded=found)
    key = (found.student, exercise, found.answer[:12])
    why = f"uses {', '.join(found.banned)}; would get {points:g} of {of:g}"
    decision = sheets.reviews.ask(key, why, ("", "accept", "reject"))
    if decision == "accept":
        return Grade(exercise, points, of, graded=found)
    state = "rejected" if decision == "reject" else "needs review"
    held = 0.0 if decision else points
    return Grade(exercise, 0.0, of, held, state, found)


def _grade_text(course: Course, submission: Submission, exercise: str, texts: Sheet) -> Grade:
    """Sum what the sheet gives a text's criteria, each from 0 to 1."""
    of, rubric = course.of(exercise), course.exercises[exercise].parts.rubric
    digest = submission.answers[exercise].digest[:12]
    total, is_open = 0.0, False
    for criterion in rubric:
        told = texts.ask((submission.student, exercise, digest, criterion), "from 0 to 1")
        is_open = is_open or not told
        total += _number(texts.path, f"{submission.student}, {exercise}", told or "0", 1)
    points = round(of * total / len(rubric), 2) if rubric else 0.0
    return Grade(exercise, points, of, state="waits" if is_open else "graded")


def _days_late(course: Course, submission: Submission, facts: Mapping[str, str]) -> int:
    """Count the days begun after the deadline; a time that is not known is in time."""
    told = facts.get("submitted") or submission.created
    if course.deadline is None or not told:
        return 0
    try:
        time = datetime.datetime.fromisoformat(told)
    except ValueError:
        return 0
    if time.tzinfo is None:
        time = time.replace(tzinfo=course.deadline.tzinfo)
    return max(0, math.ceil((time - course.deadline) / _DAY))


def _private(
    course: Course, submission: Submission, grades: Sequence[Grade], labels: Sequence[str]
) -> Iterable[str]:
    """Yield what only the instructor should know of a submission."""
    if labels.count(submission.label) > 1:
        yield f"another submission has the label {submission.label}, too"
    for grade in grades:
        found = grade.graded
        if found is None:
            continue
        if found.unjudged:
            yield f"{grade.exercise} could not be judged: {found.unjudged}"
        checks = course.exercises[grade.exercise].parts.checks
        visible = {check.name for check in checks if not check.graded}
        failed = [line.name for line in found.checks if line.name in visible and not line.passed]
        if failed and found.answer in submission.claims.get(grade.exercise, ()):
            yield f"{grade.exercise} passed by the student's log, and fails here: {failed[0]}"


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
