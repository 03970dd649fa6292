"""attnlab course check and watch: what passes, the smallest case that fails, the mistake."""

import time
from typing import TYPE_CHECKING

from attnlab.cli.options import AsJson, WholeNumber
from attnlab.cli.terminal import note, print_json, say
from attnlab_course.course_options import HERE, CourseOptions, open_worker

if TYPE_CHECKING:
    from attnlab_course.exercise import CourseExercise
    from attnlab_course.judge import ExerciseOutcome
    from attnlab_course.sandbox.replies import AskProgram
    from attnlab_course.workspace import Workspace

_TICK = 0.3  # seconds between two looks at the files


def check(
    *names: str, where: CourseOptions = HERE, seed: WholeNumber = 0, as_json: AsJson = False
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
    with open_worker() as ask:
        for name in wanted:
            exercise = where.exercise(name)
            outcomes.append(_check_one(workspace, exercise, ask, seed))
            if not as_json:
                _tell(exercise, outcomes[-1], workspace)
    if as_json:
        print_json(list(map(_mapping, outcomes)))
    return int(not all(outcome.passed for outcome in outcomes))


def watch(name: str = "", /, *, where: CourseOptions = HERE) -> int:
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
    with open_worker() as ask:
        while True:
            for exercise in exercises:
                stamps = [path.stat().st_mtime_ns for path in workspace.files(exercise.name)]
                if stamps and seen.get(exercise.name) != stamps:
                    seen[exercise.name] = stamps
                    _tell(exercise, _check_one(workspace, exercise, ask, 0), workspace)
            time.sleep(_TICK)


def _check_one(
    workspace: "Workspace", exercise: "CourseExercise", ask: "AskProgram", seed: int
) -> "ExerciseOutcome":
    from attnlab_course.submit import check_program

    answer = workspace.answer(exercise)
    if answer.older is not None:
        note(f"{answer.path.name} is checked, which is newer than {answer.older.name}")
    outcome = check_program(exercise, answer.source, str(answer.path), ask, seed)
    workspace.record_check(exercise, answer.source, outcome)
    return outcome


def _tell(exercise: "CourseExercise", outcome: "ExerciseOutcome", workspace: "Workspace") -> None:
    """Print the outcome of a check, what it uses that is banned, and the next step."""
    from attnlab_course.feedback import feedback_lines
    from attnlab_course.grading.bans import ban_words

    for line in feedback_lines(exercise, outcome):
        say(line)
    words = ban_words(exercise, workspace.answer(exercise).source)
    if words:
        say(f"  {words}")
    name = exercise.name
    if outcome.solved:
        say(f"  compare: attnlab course solution {name}", is_quiet=True)
    elif not outcome.passed and not outcome.is_blank:
        seen = workspace.states()[name].hints
        if outcome.mistake or seen < len(exercise.hints):
            say(f"  a hint: attnlab course hint {name}", is_quiet=True)


def _mapping(outcome: "ExerciseOutcome") -> dict[str, object]:
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
        "passed_over": outcome.passed_over,
        "checks": checks,
        "failures": failures,
        "mistakes": {mistake.name: mistake.says for mistake in filter(None, [outcome.mistake])},
        "graded_checks": outcome.waiting,
    }
