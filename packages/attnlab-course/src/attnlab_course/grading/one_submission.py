"""Grade one submission for a queue: read, ask, judge as for a class, and keep nothing.

The folder of grades of a class gives the seed of the questions and the sheets that the instructor
has filled; it is read and never written, so any number of workers may share it.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path, PurePosixPath
from typing import Any

from attnlab.core.store import explained
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab_course.grading.classroom import grade_class
from attnlab_course.grading.course_file import Course, read_course
from attnlab_course.grading.gradebook import make_gradebook
from attnlab_course.grading.results import student_result
from attnlab_course.grading.roster import name_students, read_time
from attnlab_course.grading.submission import Submission
from attnlab_course.grading.submission_files import MOST_BYTES
from attnlab_course.grading.submissions import read_into
from attnlab_course.sandbox.jail import Jail, probe
from attnlab_course.sandbox.replies import Reply
from attnlab_course.sandbox.worker import Worker

_SHEETS = ("grading.json", "reviews.csv", "texts.csv")
STDIN = "-"


def grade_submission(
    source: str, grades: Path, course_file: Path, *, name: str, submitted: str, seconds: int
) -> dict[str, object]:
    """Grade the submission at a path, or on standard input, and return its result.

    Args:
        source: the path of a file or folder, or "-".
        grades: the folder of grades of a class, which is read only.
        course_file: a course.toml that lists the exercises that count.
        name: under which it was handed in: FILE, or FOLDER/FILE; empty for that of the path.
        submitted: when, by the clock of who received it; empty for what the submission says.
        seconds: after which no further exercise is begun.

    Raises:
        WrongUsage: a setting makes no sense.
        CouldNotRun: a file cannot be read, there is no sandbox, or the time is over.
    """
    deadline = time.monotonic() + seconds
    if submitted and read_time(submitted) is None:
        raise WrongUsage(
            f"--submitted must be a time, as in 2027-02-01T20:15:00+01:00; got {submitted!r}."
        )
    if seconds < 1:
        raise WrongUsage(f"--seconds must be at least 1; got {seconds}.")
    course = read_course(course_file)
    if not course.counting:
        raise WrongUsage(
            f"{course_file} must list the exercises that count, as in exercises = "
            '["attention"]: one submission does not say what the others answer.'
        )
    if not (grades / "grading.json").is_file():
        raise CouldNotRun(
            f"there is no grading.json in {grades}; attnlab grade makes it, and grading a "
            "solution of your own is enough."
        )
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        submission = _read(source, name, room / "handed-in", course)
        if submitted:
            submission.created = submitted
        return _grade(submission, course, grades, room / "grades", deadline)


def _read(source: str, name: str, folder: Path, course: Course) -> Submission:
    """Read the one submission; one that holds those of several students has no answers."""
    path = Path(source)
    if name or source == STDIN:
        path = _copy(source, name, folder)
    elif not path.exists():
        raise CouldNotRun(f"there is no {source}; expected a zip, folder, program or notebook.")
    submissions: dict[str, Submission] = {}
    read_into(submissions, path.absolute(), course.exercises)
    if len(submissions) == 1:
        name_students(submissions.values(), course.students)
        return next(iter(submissions.values()))
    refused = Submission(path.stem)
    refused.tell(f"it holds the submissions of several students: {', '.join(submissions)}")
    return refused


def _copy(source: str, name: str, folder: Path) -> Path:
    """Put what was handed in where its name is the one that it was handed in by."""
    if not name:
        raise WrongUsage("from standard input, --name says what the file is: --name ada.zip")
    parts = PurePosixPath(name).parts
    if len(parts) > 2 or ".." in parts or name.startswith("/"):
        raise WrongUsage(f"--name must be FILE or FOLDER/FILE, as in ada.zip; got {name!r}.")
    file = folder.joinpath(*parts)
    if source != STDIN and Path(source).is_dir():
        raise WrongUsage(f"--name is for a file; {source} is a folder, which has its own.")
    with explained(file):
        file.parent.mkdir(parents=True)
        if source == STDIN:
            file.write_bytes(sys.stdin.buffer.read(MOST_BYTES + 1))  # too large is told on reading
        else:
            shutil.copyfile(source, file)
    return folder / parts[0]


def _grade(
    submission: Submission, course: Course, grades: Path, room: Path, deadline: float
) -> dict[str, object]:
    """Grade as a class of one, in a folder that holds copies of the seed and the sheets."""
    room.mkdir()
    for sheet in _SHEETS:
        if (grades / sheet).exists():
            with explained(room):
                shutil.copyfile(grades / sheet, room / sheet)

    def open_worker() -> Worker:  # where there is nothing to run, no sandbox is needed
        return _TimedWorker(probe(), deadline)

    graded = grade_class([submission], course.exercises, room, open_worker, workers=1)
    book = make_gradebook(course, [submission], graded, room, with_absent=False)
    return student_result(book, book.rows[0])


class _TimedWorker(Worker):
    """A worker that begins no exercise after a deadline."""

    def __init__(self, jail: Jail, deadline: float) -> None:
        super().__init__(jail)
        self._deadline = deadline

    def ask(self, *arguments: Any, **options: Any) -> Reply:
        """Put cases to a program, as `Worker.ask` does.

        Raises:
            CouldNotRun: the deadline is over.
        """
        if time.monotonic() > self._deadline:
            raise CouldNotRun(
                "the time of --seconds is over before every exercise was graded; programs that "
                "hang take 40 seconds each."
            )
        return super().ask(*arguments, **options)
