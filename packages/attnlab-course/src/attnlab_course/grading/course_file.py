"""What an instructor says of a course: `course.toml`, all of which is optional.

title = "Attention, autumn"
exercises = ["softmax", "attention"]
deadline = 2026-12-01T18:00:00+01:00
late_percent_per_day = 10
folder = "own_exercises"
students = "students.csv"

[points]
attention = 10
"""

import datetime
import math
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean, is_number
from attnlab_course.catalog import exercise_names, find_exercise, instructor_exercises
from attnlab_course.exercise import CourseExercise
from attnlab_course.grading.roster import read_students

Expected = tuple[Callable[[Any], bool], str]
"""Whether a value of a settings file is of the right kind, and what it must be."""


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


TEXT: Expected = (lambda value: isinstance(value, str) and value != "", "a text between quotes")
_EXPECTED: Mapping[str, Expected] = {
    "title": TEXT,
    "exercises": (_is_names, 'a list of names, as in ["softmax", "attention"]'),
    "deadline": (
        lambda value: isinstance(value, datetime.datetime) and value.tzinfo is not None,
        "a time with its offset, as in deadline = 2026-12-01T18:00:00+01:00",
    ),
    "late_percent_per_day": (is_number, "a number"),
    "folder": TEXT,
    "students": TEXT,
    "points": (
        lambda value: isinstance(value, dict),
        "a table with a line for each exercise, as in [points] and then attention = 10",
    ),
}


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


def read_settings(path: Path, expected: Mapping[str, Expected]) -> dict[str, Any]:
    """Read a TOML file.

    Args:
        path: the file.
        expected: the kinds of the values, by the keys that there may be.

    Raises:
        WrongUsage: a key that is not known, or a value of another kind.
        CouldNotRun: the file cannot be read.
    """
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CouldNotRun(f"could not read {path}: {error}.") from None
    for key, value in settings.items():
        if key not in expected:
            raise WrongUsage(f"{path}: there is no {key!r}; {did_you_mean(key, expected)}")
        fits, words = expected[key]
        if not fits(value):
            raise WrongUsage(f"{path}: {key} must be {words}; got {value!r}.")
    return settings


def read_course(path: Path | None) -> Course:
    """Read a course.toml; None for the course as it comes.

    Raises:
        WrongUsage: a key, an exercise or a value that makes no sense.
        CouldNotRun: the file cannot be read.
    """
    if path is None:
        return Course({name: find_exercise(name) for name in exercise_names()})
    settings = read_settings(path, _EXPECTED)
    folder, students, points = None, {}, settings.get("points", {})
    if "folder" in settings:
        folder = path.parent / settings["folder"]
    known = [*instructor_exercises(folder), *exercise_names()]
    counting = tuple(settings.get("exercises", ()))
    _check_exercises(path, counting, points, known)
    if "students" in settings:
        students = read_students(path.parent / settings["students"])
    percent = settings.get("late_percent_per_day", 0)
    return Course(
        # those that count come first: a function that several ask for answers the first
        {name: find_exercise(name, folder) for name in dict.fromkeys([*counting, *known])},
        counting,
        points,
        settings.get("deadline"),
        read_number(path, "late_percent_per_day", percent, 100),
        students,
        settings.get("title", Course.title),
    )


def _check_exercises(
    path: Path, counting: Sequence[str], points: Mapping[str, object], known: Sequence[str]
) -> None:
    """Check the exercises that count and the points that they give.

    Raises:
        WrongUsage: one is not known or there twice, or its points are none.
    """
    for name in (*counting, *points):
        if name not in known:
            raise WrongUsage(f"{path}: no exercise {name!r}; {did_you_mean(name, known)}")
    for name, count in Counter(counting).items():
        if count > 1:
            raise WrongUsage(f"{path}: exercises lists {name!r} twice; keep it once.")
    for name, value in points.items():
        if not is_number(value):
            raise WrongUsage(f"{path}: points.{name} must be a number; got {value!r}.")
        read_number(path, f"points.{name}", value, 1e6)


def read_number(path: Path, what: str, value: object, most: float) -> float:
    """Read a number from 0 to `most`; a text may have a comma in it.

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
