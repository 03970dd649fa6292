"""Check the exercises: the solution passes, the starter fails, every mistake is named.

The solution and the mistakes are judged by themselves on many draws of the cases, and once in the
student's own way: written into the files of `attnlab course start`, read from there and from the
zip of `attnlab course submit`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from attnlab.errors import AttnlabError
from attnlab_course.cases import Questions, make_questions
from attnlab_course.cells import (
    NotebookCell,
    leaked_lines,
    solution_text,
    solved_cells,
    starter_notebook,
    starter_program,
    with_line,
)
from attnlab_course.exercise import CourseExercise, Mistake
from attnlab_course.grading.bans import banned_names
from attnlab_course.grading.submissions import read_class
from attnlab_course.judge import ExerciseOutcome, check_here, judge
from attnlab_course.mistakes import ask_reference, with_mistake
from attnlab_course.sandbox.replies import CaseAnswer, Reply, ask_here
from attnlab_course.submit import check_program, hand_in
from attnlab_course.workspace import Workspace

_WORTHLESS = ("pass", "raise ValueError", "return None", "return False", "return True", "return 0")
"""Lines in place of the solution; none may give a point."""


@dataclass(frozen=True)
class Verification:
    """The result of checking an exercise itself.

    Args:
        exercise: which.
        mistakes: how many named mistakes it has.
        problems: what is wrong with it; nothing where it is sound.
    """

    exercise: str
    mistakes: int
    problems: tuple[str, ...]


def verify_exercise(exercise: CourseExercise, seeds: Iterable[int]) -> Verification:
    """Check that the solution passes, the starter fails and each mistake is named, seed by seed."""
    leaked = leaked_lines(exercise.starter, exercise.source)
    problems = [f"the starter shows: {line}" for line in leaked]
    if len(exercise.hints) < 2:
        problems.append("there are fewer than two hints")
    for number, seed in enumerate(seeds):
        questions = make_questions(exercise, seed, graded=True)
        problems += [f"seed {seed}: {words}" for words in _problems(questions)]
        if number == 0:
            problems += [f"as a student: {words}" for words in _problems_of_files(questions)]
    return Verification(exercise.name, len(exercise.named_mistakes), tuple(problems))


def _problems(questions: Questions) -> list[str]:
    """Return what is wrong with the checks as they were drawn."""
    exercise, problems = questions.exercise, list[str]()
    if exercise.parts.kind == "text":  # a person reads it
        return problems
    solved = judge(questions, ask_reference(questions, solution_text(exercise.source)))
    if not solved.passed:
        problems.append(f"the solution fails: {_why(solved)}")
    begun = judge(questions, ask_reference(questions, exercise.starter))
    if begun.points:
        problems.append(f"the starter gets {begun.points} points")
    for line in _WORTHLESS:
        points = check_here(questions, with_line(exercise.source, line)).points
        if points:
            problems.append(f"an answer that is only {line!r} gets {points} points")
    for mistake in exercise.named_mistakes:
        for spelling in mistake.spellings:
            reply = ask_reference(questions, with_mistake(exercise, spelling))
            problems += _misnamed(spelling, judge(questions, reply))
    return problems


def _problems_of_files(questions: Questions) -> Iterator[str]:
    """Say what is wrong when the solution and the mistakes are written where a student writes."""
    exercise = questions.exercise
    with TemporaryDirectory() as place:
        folder = Path(place)
        workspace = Workspace(folder / "course")
        try:
            program, notebook, *_ = workspace.start(exercise)
        except Exception as error:
            yield f"it cannot be begun: {type(error).__name__}: {error}"
            return
        if exercise.parts.kind == "text":
            return
        cells = solved_cells(exercise.source)
        notebook.write_text(starter_notebook(cells, exercise.name))
        yield from _problems_of_solution(exercise, workspace, "the notebook")
        notebook.unlink()
        program.write_text(starter_program(cells))
        yield from _problems_of_solution(exercise, workspace, "the program")
        yield from _problems_of_zip(questions, workspace, folder / "zip")
        texts = [cell for cell in cells if cell.kind == "markdown"]
        for mistake in exercise.named_mistakes:
            code = NotebookCell("code", with_mistake(exercise, mistake))
            program.write_text(starter_program([*texts, code]))
            source = exercise.with_given(workspace.answer(exercise).source)
            yield from _misnamed(mistake, check_here(questions, source))


def _problems_of_solution(
    exercise: CourseExercise, workspace: Workspace, file: str
) -> Iterator[str]:
    """Say what `attnlab course check` says against the solution in a file."""
    answer = workspace.answer(exercise)
    outcome = check_program(exercise, answer.source, answer.path.name, ask_here)
    if not outcome.passed:
        yield f"the solution in {file} fails: {_why(outcome)}"


def _problems_of_zip(questions: Questions, workspace: Workspace, folder: Path) -> Iterator[str]:
    """Say what the grader says against the solution, handed in as a zip."""
    exercise = questions.exercise
    known = {exercise.name: exercise}
    folder.mkdir()
    try:
        hand_in(workspace, known, "verify", folder / "verify.zip", ask_here)
        (submission,) = read_class(folder, known)
        answer = submission.answers[exercise.name]
    except (AttnlabError, KeyError) as error:
        yield f"the solution cannot be handed in: {error}"
        return
    if answer.data is not None:
        reply = Reply([CaseAnswer(answer.data)] * len(questions.encoded))
        outcome = judge(questions, reply)
    else:
        outcome = check_here(questions, exercise.with_given(answer.source))
    if not outcome.passed:
        yield f"the solution in the zip fails: {_why(outcome)}"
    used = banned_names(answer.source, exercise.parts.banned)
    if used:
        yield f"the solution uses what is banned: {', '.join(used)}"


def _misnamed(mistake: Mistake, outcome: ExerciseOutcome) -> Iterator[str]:
    """Say what a mistake is taken for; nothing where it is named rightly."""
    if outcome.passed:
        yield f"the mistake {mistake.name!r} passes: {mistake.new!r}"
    elif outcome.mistake is None or outcome.mistake.name != mistake.name:
        name = repr(outcome.mistake.name) if outcome.mistake else "nothing"
        yield f"the mistake {mistake.name!r} is taken for {name}: {mistake.new!r} ({_why(outcome)})"


def _why(outcome: ExerciseOutcome) -> str:
    if outcome.broken is not None:
        return outcome.broken
    words = []
    for result in outcome.checks:
        if result.failure is not None and not result.is_open:
            words.append(f"{result.check.name}: {result.failure.words}")
    return "; ".join(words)
