"""attnlab grade: grade the submissions of a class, in a sandbox."""

import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from attnlab.cli.failures import writing_to
from attnlab.cli.options import AsJson, OptionalWholeNumber, Quiet, Strings, Switch
from attnlab.cli.progress import counting
from attnlab.cli.terminal import note, print_json, say, show_table
from attnlab.display import plural
from attnlab.errors import WrongUsage, did_you_mean, typed

if TYPE_CHECKING:
    from attnlab_course.grading.grades import Gradebook, StudentGrades
    from attnlab_course.grading.similarity import Alike

_MOST_NOTES = 400  # characters of a student's notes in the table; class.html has all

Out = Annotated[Path, Parameter(name=["--out", "-o"])]


def grade(
    submissions: Path,
    /,
    *,
    out: Out,
    course: Path | None = None,
    exercise: Strings = None,
    again: Switch = False,
    workers: OptionalWholeNumber = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Grade the submissions of a class: points, named mistakes, a report for each student.

    Student code runs in a sandbox, without network or files; where none can be made, nothing is
    graded. The same command again goes on after an interruption, and grades only what is new.

    Parameters
    ----------
    submissions
        A folder with a zip, a folder, a program or a notebook for each student.
    out
        The folder of the grades, created if needed. Its folder students/ can be handed out; the
        rest is yours.
    course
        A course.toml: exercises that count, points, deadline, list of students.
    exercise
        With --again: the exercises to grade again; by default all.
    again
        Grade again what is graded already, with the same questions.
    workers
        How many submissions are graded at the same time; by default one for each processor.
    as_json
        Print the grades as JSON.
    quiet
        Hide the progress.
    """
    from attnlab_course.grading.classroom import grade_class
    from attnlab_course.grading.course_file import read_course
    from attnlab_course.grading.exports import write_exports
    from attnlab_course.grading.gradebook import make_gradebook
    from attnlab_course.grading.pages import write_pages
    from attnlab_course.grading.results import class_results, write_class_results
    from attnlab_course.grading.roster import name_students
    from attnlab_course.grading.similarity import find_alike
    from attnlab_course.grading.submissions import entries_passed_over, read_class
    from attnlab_course.sandbox.jail import probe
    from attnlab_course.sandbox.worker import Worker

    if workers is None:
        workers = os.cpu_count() or 1
    if workers < 1:
        raise WrongUsage(f"--workers must be at least 1; got {workers}.")
    settings = read_course(course)
    names = _names_to_repeat(exercise, list(settings.exercises), again=again)
    if out.resolve().is_relative_to(submissions.resolve()):
        raise WrongUsage(
            f"--out must lie outside the folder of submissions; got {out}, inside {submissions}."
        )
    jail = probe()
    handed_in = read_class(submissions, settings.exercises)
    name_students(handed_in, settings.students)
    command = f"attnlab grade {typed(submissions)} -o {typed(out)}"
    if course is not None:
        command += f" --course {typed(course)}"
    with (
        writing_to(out, "grading.json", command),
        counting("grading", is_quiet=as_json or quiet) as tell,
    ):
        graded = grade_class(
            handed_in,
            settings.exercises,
            out,
            partial(Worker, jail=jail),
            workers=workers,
            again=names,
            progress=tell,
        )
        passed_over = entries_passed_over(submissions, settings.exercises)
        book = make_gradebook(settings, handed_in, graded, out, passed_over)
        alike = find_alike(handed_in, settings.exercises)
        results = class_results(book, alike)
        write_exports(book, out)
        write_class_results(results, out)
        write_pages(book, alike, out)
    if as_json:
        print_json(results)
    else:
        _show(book, alike, out)
    return 0


def _names_to_repeat(exercise: list[str] | None, known: list[str], *, again: bool) -> list[str]:
    """Return the exercises that are graded again."""
    for name in exercise or ():
        if name not in known:
            raise WrongUsage(f"there is no exercise named {name!r}; {did_you_mean(name, known)}")
    if exercise and not again:
        raise WrongUsage("--exercise says what --again grades again; give both.")
    if not again:
        return []
    return exercise or known


def _show(book: "Gradebook", alike: "list[Alike]", out: Path) -> None:
    columns = ["student", f"points of {book.of:g}", "mistakes, and what to look at"]
    show_table(columns, [_cells(book, row) for row in book.rows])
    read = book.handed_in - len(book.refused)
    say(f"{book.handed_in} handed in: {read} read, {len(book.refused)} refused")
    states = {row.student: book.state(row) for row in book.rows}
    unread = [student for student, state in states.items() if state == "refused"]
    no_time = f"no time is known of {len(book.without_time)} of {len(book.present)} submissions"
    for words, students in (
        ("refused, as no answer in them could be read", unread),
        ("refused, as they are not on the list of students", book.unlisted_words),
        ("passed over, as they are no submissions", book.passed_over),
        ("on the list of students, nothing handed in", book.absent),
        (f"{no_time}, so they count as in time", book.without_time),
    ):
        if students:
            say(f"{words}: {', '.join(students)}")
    _show_notes(book, set(states.values()))
    _show_sheets(book, out)
    if alike:
        say(f"{len(alike)} {plural(len(alike), 'pair')} of programs alike: see class.html")
    say(f"class    {out / 'class.html'}: begin here")
    say(f"tables   {out / 'grades.csv'}, canvas.csv, moodle.csv, checks.csv", is_quiet=True)
    say(f"reports  {out / 'students'}: a folder for each student, to hand out", is_quiet=True)


def _show_notes(book: "Gradebook", states: set[str]) -> None:
    """Say what an instructor should know of late submissions and of grades that are missing."""
    if book.is_by_students_clock:
        note("days late are by each student's own clock.")
    if not {"refused", "unlisted", "waits"}.isdisjoint(states):
        note(
            "a ? means that there is no grade yet: its cell in canvas.csv and moodle.csv is empty."
        )


def _show_sheets(book: "Gradebook", out: Path) -> None:
    """Say which sheets wait for the instructor."""
    counts = Counter(grade.state for row in book.rows for grade in row.grades)
    reviews, texts = counts["needs review"], counts["waits"]
    if reviews:
        words = "answer uses" if reviews == 1 else "answers use"
        say(f"{reviews} {words} banned functions   {out / 'reviews.csv'}")
    if texts:
        words = "text waits" if texts == 1 else "texts wait"
        say(f"{texts} {words} for points   {out / 'texts.csv'}")
    if reviews or texts:
        note("fill the sheets, then give the same command again.")


def _cells(book: "Gradebook", row: "StudentGrades") -> list[str]:
    """Return a student's name, points and notes; a ? marks points that no gradebook gets yet."""
    from attnlab_course.grading.file_names import inert
    from attnlab_course.grading.student_feedback import reason_words

    why = {grade.exercise: reason_words(grade) for grade in row.grades}
    reasons = [f"{exercise}: {words}" for exercise, words in why.items() if words]
    mark = "?" if book.points(row) is None else ""
    notes = inert("; ".join([*reasons, *row.notes]), _MOST_NOTES)
    return [row.student, f"{row.points:g}{mark}", notes]
