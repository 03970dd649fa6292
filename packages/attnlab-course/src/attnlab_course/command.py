"""attnlab course: exercises on attention, from the first start to the file to hand in."""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from rich.text import Text

from attnlab.cli.options import AsJson, Switch
from attnlab.cli.terminal import print_rows, say, show_table
from attnlab.errors import WrongUsage
from attnlab_course.author_commands import verify
from attnlab_course.check_commands import check, watch
from attnlab_course.course_options import HERE, CourseOptions, Own, open_worker

if TYPE_CHECKING:
    from attnlab_course.workspace import ExerciseState, Workspace

course = App(name="course", help="Exercises on attention, with checks that name the mistake.")

Every = Annotated[Switch, Parameter(name="--all")]


@course.command(name="list")
def list_(*, exercises: Own = None, as_json: AsJson = False) -> int:
    """List the exercises by chapter: what each is about, its level and its time.

    Parameters
    ----------
    exercises
        A folder with exercises of your own, listed too.
    as_json
        Print the list as JSON.
    """
    from attnlab_course.catalog import all_exercises

    listed = []
    for chapter, exercise in all_exercises(exercises):
        parts = exercise.parts
        facts = (parts.title, parts.level, parts.minutes, exercise.points)
        listed.append((chapter, exercise.name, *facts))
    columns = ("chapter", "exercise", "title", "level", "minutes", "points")
    if as_json:
        print_rows(columns, listed)
        return 0
    _show_by_chapter(columns[1:], listed)
    say("begin one: attnlab course start attention", is_quiet=True)
    return 0


@course.command
def start(name: str, /, *more: str, where: CourseOptions = HERE, again: Switch = False) -> int:
    """Begin exercises: write the program and the notebook of each, with the statement in both.

    Parameters
    ----------
    name
        The exercise; attnlab course list has them.
    more
        Further exercises.
    again
        Replace the answer that is there.
    """
    workspace = where.workspace()
    for exercise in [where.exercise(wanted) for wanted in (name, *more)]:
        written = workspace.start(exercise, again=again)
        say(f"{exercise.parts.title}, about {exercise.parts.minutes} minutes")
        for path in written:
            say(f"  {path}")
        check_it = f"attnlab course check {exercise.name}"
        say(f"write your answer in one of the first two, then: {check_it}")
    return 0


course.command(check)
course.command(watch)


@course.command
def hint(name: str, /, *, where: CourseOptions = HERE) -> int:
    """Show the next hint of an exercise, and those before it; first of what the answer lacks.

    Parameters
    ----------
    name
        The exercise.
    """
    from attnlab_course.feedback import take_hint

    exercise = where.exercise(name)
    hints = exercise.hints
    lines, number = take_hint(where.workspace(), exercise)
    for line in lines:
        say(line)
    if lines:
        return 0
    for place, words in enumerate(hints[:number], 1):
        say(f"{place} of {len(hints)}  {words}", is_quiet=place < number)
    if number == len(hints):
        say(f"that was the last; the solution: attnlab course solution {name}", is_quiet=True)
    return 0


@course.command
def solution(name: str, /, *, where: CourseOptions = HERE, give_up: Switch = False) -> int:
    """Show the solution of an exercise that you solved, or give up.

    Parameters
    ----------
    name
        The exercise.
    give_up
        Show it although your answer does not pass yet.
    """
    from attnlab_course.cells import shown_solution
    from attnlab_course.feedback import waiting_words

    workspace, exercise = where.workspace(), where.exercise(name)
    state = _state(workspace, name)
    if not state.solved and not give_up:
        reason = "does not pass yet"
        if state.passed:
            reason = f"has {waiting_words(state.waiting)}"
        raise WrongUsage(
            f"your answer of {name} {reason}; a hint is less (attnlab course hint "
            f"{name}); to see the solution all the same, add --give-up."
        )
    workspace.record("solution", exercise=name)
    for line in shown_solution(exercise.source).splitlines():
        say(line)
    return 0


@course.command(name="progress")
def show_progress(
    *, where: CourseOptions = HERE, every: Every = False, as_json: AsJson = False
) -> int:
    """Show how far you are: the exercises that you began, tries, hints, what to do next.

    Parameters
    ----------
    every
        Show those that you did not begin, too.
    as_json
        Print it as JSON.
    """
    from attnlab_course.workspace import NEW

    states = where.workspace().states()
    rows = []
    names: dict[str, list[str]] = {"solved": [], "begun": [], "started": [], "not begun": []}
    for name, (chapter, _) in where.known().items():
        state, words = states.get(name, NEW), _state_words(states.get(name))
        names.setdefault(words, []).append(name)
        rows.append((chapter, name, words, state.tries, state.hints))
    columns = ("chapter", "exercise", "state", "tries", "hints")
    if as_json:
        print_rows(columns, rows)
        return 0
    coming = names["not begun"][:1]
    shown = [row for row in rows if every or row[2] != "not begun" or row[1] in coming]
    _show_by_chapter(columns[1:], shown)
    say(f"{len(names['solved'])} of {len(rows)} solved")
    open_names = names["begun"] + names["started"]
    if open_names:
        say(f"next: attnlab course check {open_names[0]}", is_quiet=True)
    elif coming:
        say(f"next: attnlab course start {coming[0]}", is_quiet=True)
    if len(shown) < len(rows):
        say("all exercises: attnlab course progress --all", is_quiet=True)
    return 0


@course.command
def submit(student: str, /, *, where: CourseOptions = HERE, out: Path | None = None) -> int:
    """Write one file to hand in: all answers that you began, and the log.

    Parameters
    ----------
    student
        Your name or number, as your course wants it.
    out
        The file to write; by default STUDENT.zip in this folder.
    """
    from attnlab_course.submit import file_label, hand_in, handed_notes

    workspace = where.workspace()
    path = out or Path(f"{file_label(student) or 'answers'}.zip")
    known = {name: exercise for name, (_, exercise) in where.known().items()}
    with open_worker() as ask:
        handed = hand_in(workspace, known, student, path, ask)
    say(f"{path}: {', '.join(handed.exercises)}")
    for line in handed_notes(handed, workspace, known):
        say(line)
    return 0


course.command(verify)


def _show_by_chapter(columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> None:
    """Print rows of a chapter, an exercise and more as a table with a line for each chapter."""
    shown: list[list[str | Text]] = []
    for chapter, of_chapter in groupby(rows, itemgetter(0)):
        shown.append([Text(str(chapter), "bold"), *[""] * (len(columns) - 1)])
        for _, name, *others in of_chapter:
            shown.append([f"  {name}", *(str(other or "") for other in others)])
    show_table(columns, shown, unbroken=(0,))


def _state(workspace: "Workspace", name: str) -> "ExerciseState":
    from attnlab_course.workspace import NEW

    return workspace.states().get(name, NEW)


def _state_words(state: "ExerciseState | None") -> str:
    if state is None:
        return "not begun"
    if state.solved:
        return "solved"
    if state.passed:
        return f"passes so far; {state.waiting} not run yet"
    return "begun" if state.tries or state.hints else "started"
