"""attnlab course: exercises on attention, from the first start to the file to hand in."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from rich.text import Text

from attnlab.cli.options import AsJson, Switch, WholeNumber
from attnlab.cli.terminal import note, print_json, print_rows, say, show_table
from attnlab.errors import WrongUsage
from attnlab_course.author_commands import Own, verify

if TYPE_CHECKING:
    from attnlab_course.exercise import CourseExercise
    from attnlab_course.judge import Outcome
    from attnlab_course.sandbox.replies import AskProgram
    from attnlab_course.workspace import State, Workspace

course = App(name="course", help="Exercises on attention, with checks that name the mistake.")

_SECONDS = 10.0  # for all answers of an exercise
_TICK = 0.3  # seconds between two looks at the files


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Options of the commands for students: where their answers are, and the exercises."""

    folder: Path | None = None
    """Your folder; by default course, or this one if it is one."""

    exercises: Path | None = None
    """A folder with exercises of your own."""

    def workspace(self) -> "Workspace":
        """Return the folder of the answers."""
        from attnlab_course.workspace import find_workspace

        return find_workspace(self.folder)

    def exercise(self, name: str) -> "CourseExercise":
        """Return an exercise by its name, or by a file of its answer."""
        from attnlab_course.catalog import exercise_of_file

        return exercise_of_file(name, self.exercises)

    def known(self) -> "dict[str, tuple[str, CourseExercise]]":
        """Return all exercises by their names, each with its chapter."""
        from attnlab_course.catalog import all_exercises

        exercises = {}
        for chapter, exercise in all_exercises(self.exercises):
            exercises[exercise.name] = chapter, exercise
        return exercises

    def begun(self) -> list[str]:
        """Return the exercises that have a file in the folder."""
        workspace = self.workspace()
        names = list(filter(workspace.files, self.known()))
        if not names:
            raise WrongUsage(
                f"there is no answer in {workspace.folder}; begin with: attnlab course start "
                "attention"
            )
        return names


HERE = Where()
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
def start(name: str, /, *, where: Where = HERE, again: Switch = False) -> int:
    """Begin an exercise: write its program and its notebook, with the statement in both.

    Parameters
    ----------
    name
        The exercise; attnlab course list has them.
    again
        Replace the answer that is there.
    """
    workspace, exercise = where.workspace(), where.exercise(name)
    written = workspace.start(exercise, again=again)
    say(f"{exercise.parts.title}, about {exercise.parts.minutes} minutes")
    for path in written:
        say(f"  {path}")
    say(f"write your answer in one of the first two, then: attnlab course check {name}")
    return 0


@course.command
def check(
    *names: str,
    where: Where = HERE,
    seed: WholeNumber = 0,
    as_json: AsJson = False,
) -> int:
    """Check your answers: passed checks, the smallest case that fails, and the mistake by name.

    Parameters
    ----------
    names
        Exercises; by default all that you began.
    seed
        Draw other cases.
    as_json
        Print the results as JSON.
    """
    workspace = where.workspace()
    wanted = list(names) or where.begun()
    outcomes = []
    with _open_worker() as ask:
        for name in wanted:
            exercise = where.exercise(name)
            outcomes.append(_check_one(workspace, exercise, ask, seed))
            if not as_json:
                _tell(exercise, outcomes[-1], workspace)
    return _status(outcomes, as_json=as_json)


@course.command
def watch(name: str = "", /, *, where: Where = HERE) -> int:
    """Check an answer each time its file is saved, until Ctrl-C.

    Parameters
    ----------
    name
        The exercise; by default all that you began.
    """
    workspace = where.workspace()
    wanted = [name] if name else where.begun()
    exercises = list(map(where.exercise, wanted))
    for exercise in exercises:
        workspace.answer(exercise)
    say(f"watching {', '.join(wanted)} in {workspace.folder}; Ctrl-C ends it", is_quiet=True)
    seen: dict[str, list[int]] = {}
    with _open_worker() as ask:
        while True:
            for exercise in exercises:
                stamps = [path.stat().st_mtime_ns for path in workspace.files(exercise.name)]
                if stamps and seen.get(exercise.name) != stamps:
                    seen[exercise.name] = stamps
                    _tell(exercise, _check_one(workspace, exercise, ask, 0), workspace)
            time.sleep(_TICK)


@course.command
def hint(name: str, /, *, where: Where = HERE) -> int:
    """Show the next hint of an exercise, and those before it; first of the mistake that was found.

    Parameters
    ----------
    name
        The exercise.
    """
    from attnlab_course.feedback import mistake_hint

    workspace, exercise = where.workspace(), where.exercise(name)
    hints, state = exercise.hints, _state(workspace, name)
    if state.mistake:
        workspace.record("hint", exercise=name, mistake=state.mistake)
        source = workspace.answer(exercise).source
        lines = mistake_hint(exercise, state.mistake, source, state.hints)
        for line in lines:
            say(line)
        if lines:
            return 0
    seen = state.hints
    number = min(seen + 1, len(hints))
    for place, words in enumerate(hints[:number], 1):
        say(f"{place} of {len(hints)}  {words}", is_quiet=place < number)
    if number > seen:
        workspace.record("hint", exercise=name, number=number)
    if number == len(hints):
        say(f"that was the last; the solution: attnlab course solution {name}", is_quiet=True)
    return 0


@course.command
def solution(name: str, /, *, where: Where = HERE, give_up: Switch = False) -> int:
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
def show_progress(*, where: Where = HERE, every: Every = False, as_json: AsJson = False) -> int:
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
def submit(student: str, /, *, where: Where = HERE, out: Path | None = None) -> int:
    """Write one file to hand in: all answers that you began, and the log.

    Parameters
    ----------
    student
        Your name or number, as your course wants it.
    out
        The file to write; by default STUDENT.zip in this folder.
    """
    from attnlab_course.grading.bans import ban_words
    from attnlab_course.submit import file_label, hand_in
    from attnlab_course.workspace import NEW

    workspace = where.workspace()
    path = out or Path(f"{file_label(student) or 'answers'}.zip")
    known = {name: exercise for name, (_, exercise) in where.known().items()}
    with _open_worker() as ask:
        handed = hand_in(workspace, known, student, path, ask)
    say(f"{path}: {', '.join(handed.exercises)}")
    states = workspace.states()
    unsolved = [name for name in handed.exercises if not states.get(name, NEW).passed]
    if unsolved:
        say(f"handed in, though the last check did not pass: {', '.join(unsolved)}")
    for name in handed.exercises:
        words = ban_words(known[name], workspace.answer(known[name]).source)
        if words:
            say(f"{name} {words}")
    for name, reason in handed.left_out.items():
        say(f"left out: {name}, {reason}")
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


def _status(outcomes: "Sequence[Outcome]", *, as_json: bool) -> int:
    """Return 0 where every outcome passes, else 1; print them all as JSON first, if wanted."""
    if as_json:
        print_json(list(map(_mapping, outcomes)))
    return int(not all(outcome.passed for outcome in outcomes))


def _check_one(
    workspace: "Workspace",
    exercise: "CourseExercise",
    ask: "AskProgram",
    seed: int,
) -> "Outcome":
    from attnlab_course.submit import check_program

    answer = workspace.answer(exercise)
    if answer.older is not None:
        note(f"{answer.path.name} is checked, which is newer than {answer.older.name}")
    outcome = check_program(exercise, answer.source, str(answer.path), ask, seed)
    workspace.record_check(exercise, answer.source, outcome)
    return outcome


def _tell(exercise: "CourseExercise", outcome: "Outcome", workspace: "Workspace") -> None:
    """Print the outcome of a check, what it uses that is banned, and the next step."""
    from attnlab_course.grading.bans import ban_words

    _show_lines(exercise, outcome)
    words = ban_words(exercise, workspace.answer(exercise).source)
    if words:
        say(f"  {words}")
    name = exercise.name
    if outcome.solved:
        say(f"  compare: attnlab course solution {name}", is_quiet=True)
    elif (
        not outcome.passed
        and not outcome.is_blank
        and (outcome.mistake or _state(workspace, name).hints < len(exercise.hints))
    ):
        say(f"  a hint: attnlab course hint {name}", is_quiet=True)


def _show_lines(exercise: "CourseExercise", outcome: "Outcome") -> None:
    from attnlab_course.feedback import feedback_lines

    for line in feedback_lines(exercise, outcome):
        say(line)


def _mapping(outcome: "Outcome") -> dict[str, object]:
    checks, failures = {}, {}
    for check in outcome.checks:
        checks[check.check.name] = check.passed
        if check.failure is not None:
            failures[check.check.name] = check.failure.words
    return {
        "exercise": outcome.exercise,
        "passed": outcome.passed,
        "solved": outcome.solved,
        "broken": outcome.broken,
        "checks": checks,
        "failures": failures,
        "mistakes": {mistake.name: mistake.says for mistake in filter(None, [outcome.mistake])},
        "graded_checks": outcome.waiting,
    }


@contextmanager
def _open_worker() -> "Iterator[AskProgram]":
    """Yield a function that puts cases to a program in a process of its own."""
    from attnlab_course.sandbox.worker import Limits, Worker

    with Worker() as worker:
        yield partial(worker.ask, limits=Limits(seconds=_SECONDS))


def _state(workspace: "Workspace", name: str) -> "State":
    from attnlab_course.workspace import NEW

    return workspace.states().get(name, NEW)


def _state_words(state: "State | None") -> str:
    if state is None:
        return "not begun"
    if state.solved:
        return "solved"
    if state.passed:
        return f"passes so far; {state.waiting} not run yet"
    return "begun" if state.tries or state.hints else "started"
