"""What the name of a file or folder says: a student, an exercise, a number.

Course systems and browsers write names of their own: Moodle a folder for each student, Canvas a
file, a browser a number behind an equal name.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from attnlab.display import harmless
from attnlab.errors import not_none
from attnlab_course.exercise import CourseExercise
from attnlab_course.grading.homework_log import HOMEWORK_LOG

ENDINGS = (".py", ".ipynb", ".json", ".txt")
"""The first that answers an exercise is taken."""
MOST_NAME = 80
"""How many characters of a name are kept."""
_NUMBERED = r"(?:[ _-]*\(?\d+\)?)?"  # as browsers and course systems number equal names
_OF_COURSE_SYSTEMS = (
    re.compile(r"(?P<student>.+)_assignsubmission_\w+?_?$"),  # Moodle
    re.compile(r"(?P<student>[^_]+(?:_LATE)?_\d+)_\d+_.*"),  # Canvas
)

_OF_MOODLE = re.compile(r"(?P<name>.+)_(?P<number>\d+)_assignsubmission_.*")
_OF_DOWNLOADS = (
    _OF_COURSE_SYSTEMS[0],
    re.compile(r"(?P<student>[^_]+(?:_LATE)?_\d{3,})_\d{3,}_.*"),  # Canvas
    re.compile(r"(?P<student>submission_\d+)"),  # Gradescope
)
"""The same, in the names inside a download of a whole class."""


def students_in(names: Iterable[str]) -> list[str]:
    """Return the students whom a course system wrote into the names of a download's files.

    >>> students_in(["Ada_11_assignsubmission_file_/a.py", "HW/turing_LATE_345_678_a.py"])
    ['Ada_11', 'turing_LATE_345']
    """
    students: dict[str, None] = {}
    for name in names:
        for part in PurePosixPath(name).parts[:2]:
            matches = (pattern.fullmatch(part) for pattern in _OF_DOWNLOADS)
            students |= {match["student"]: None for match in matches if match}
    return list(students)


def student_of(path: Path, exercises: Mapping[str, CourseExercise]) -> str:
    """Return a student's name as the course system wrote it into the name of a submission."""
    whole = unicodedata.normalize("NFC", path.name)  # some systems take accents apart
    path = path.with_name(whole)
    name = path.name
    if path.suffix.lower() in (".zip", *ENDINGS):
        name = re.sub(r" ?\(\d+\)$", "", path.stem)  # as browsers number a second download
    for pattern in _OF_COURSE_SYSTEMS:
        match = pattern.fullmatch(name)
        if match:
            return inert(match["student"], MOST_NAME)
    is_file = path.suffix.lower() in ENDINGS
    before = before_exercise(name, exercises, loosely=is_file)
    return inert(before or path.parent.name, MOST_NAME)


def facts_of(name: str) -> dict[str, str]:
    """Return what Moodle wrote into the name of a submission, as a list of students has it.

    >>> facts_of("Ada Lovelace_1001_assignsubmission_file_")
    {'name': 'Ada Lovelace', 'identifier': 'Participant 1001'}
    >>> facts_of("adalovelace_1001_20_attention.py")
    {}
    """
    match = _OF_MOODLE.fullmatch(unicodedata.normalize("NFC", name))
    if match is None:
        return {}
    number = inert(match["number"], MOST_NAME)
    return {"name": inert(match["name"], MOST_NAME), "identifier": f"Participant {number}"}


def before_exercise(
    name: str, exercises: Mapping[str, CourseExercise], *, loosely: bool = False
) -> str:
    """Return what stands before an exercise's name; all of it where it has none."""
    ending = exercise_of(name, exercises, loosely=loosely) or exercise_of(name, (HOMEWORK_LOG,))
    if ending is None:
        return name
    match = not_none(_with_exercise(ending, name, loosely=True))
    return str(match["before"]).rstrip(" _.-")


def exercise_of(stem: str, exercises: Iterable[str], *, loosely: bool = False) -> str | None:
    """Return the exercise whose name a file's name ends with, the longest.

    Args:
        stem: the file's name without its ending.
        exercises: their names.
        loosely: where none fits as it is, also in another case and before " (anything)".
    """
    known = list(exercises)
    for is_loose in (False, True)[: 1 + loosely]:
        fitting = [name for name in known if _with_exercise(name, stem, loosely=is_loose)]
        if fitting:
            return max(fitting, key=len)
    return None


def _with_exercise(exercise: str, stem: str, *, loosely: bool) -> re.Match[str] | None:
    """Match a file's name with what stands before an exercise's name, that, and a number."""
    pattern, flags = rf"(?P<before>(?:.*[ _.-])?){re.escape(exercise)}{_NUMBERED}", re.DOTALL
    if loosely:
        pattern, flags = rf"{pattern}(?:[ _-]*\([^()]*\))?", re.DOTALL | re.IGNORECASE
    return re.fullmatch(pattern, stem, flags)


def number_in(entry: str) -> int:
    """Return the number that a browser or course system appended to a file's name; 0 without."""
    match = re.search(r"[ _-]\(?(\d{1,4})\)?$", PurePosixPath(entry).stem)
    return int(match[1]) if match else 0


def ending_of(name: str) -> str:
    """Return a file's ending in lower case, with its point."""
    return PurePosixPath(name).suffix.lower()


def inert(text: str, most: int = 200) -> str:
    """Return a student's text as one short line without control characters.

    >>> inert("a\\x1b[31m\\nb")
    'a␛[31m b'
    """
    line = harmless(" ".join(text.split())).replace("\n", " ").replace("\t", " ")
    if len(line) > most:
        return line[: most - 1] + "…"
    return line
