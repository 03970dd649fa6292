"""Check the exercises: the solution passes, the starter fails, every mistake is named."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from attnlab.course.cases import Questions, draw_questions
from attnlab.course.cells import leaked_lines, solution_text, with_line
from attnlab.course.check import Outcome, answer_here, check_answer
from attnlab.course.exercise import CourseExercise, Mistake
from attnlab.course.mistakes import answer_own, passes_snapshot, with_mistakes
from attnlab.course.sandbox.replies import Reply
from attnlab.course.sandbox.runner import EncodedCase
from attnlab.course.workspace import draw_picture
from attnlab.errors import present

_WORTHLESS = ("pass", "raise ValueError", "return None", "return False", "return True", "return 0")
"""Lines in place of the solution; none may give a point."""


@dataclass(frozen=True)
class Verification:
    """What came of checking an exercise itself.

    Args:
        exercise: which.
        mistakes: how many named mistakes it has.
        snapshots: how many of them pass a comparison of one input at 1e-2.
        problems: what is wrong with it; nothing where it is sound.
    """

    exercise: str
    mistakes: int
    snapshots: int
    problems: tuple[str, ...]


def verify_exercise(exercise: CourseExercise, seeds: Iterable[int]) -> Verification:
    """Check that the solution passes, the starter fails and each mistake is named, seed by seed."""
    leaked = leaked_lines(exercise.starter, exercise.source)
    problems = [f"the starter shows: {line}" for line in leaked]
    if len(exercise.parts.hints) < 2:
        problems.append("there are fewer than two hints")
    try:
        draw_picture(exercise)
    except Exception as error:
        problems.append(f"its picture cannot be drawn: {type(error).__name__}: {error}")
    snapshots = 0
    for number, seed in enumerate(seeds):
        questions = draw_questions(exercise, seed, graded=True)
        problems += [f"seed {seed}: {words}" for words in _problems(questions)]
        if number == 0:
            every = exercise.parts.mistakes
            snapshots = sum(passes_snapshot(questions, each) for each in every)
    return Verification(exercise.name, len(exercise.parts.mistakes), snapshots, tuple(problems))


def _problems(questions: Questions) -> list[str]:
    """Return what is wrong with the checks as they were drawn."""
    exercise, found = questions.exercise, list[str]()
    if exercise.parts.kind == "text":  # nothing is asked of it
        return found
    solved = _outcome(questions, solution_text(exercise.source))
    if not solved.passed:
        found.append(f"the solution fails: {_why(solved)}")
    begun = _outcome(questions, exercise.starter)
    if begun.points:
        found.append(f"the starter gets {begun.points} points")
    for line in _WORTHLESS:
        answerer = answer_here(with_line(exercise.source, line))
        points = check_answer(questions, answerer).points
        if points:
            found.append(f"an answer that is only {line!r} gets {points} points")
    for mistake in exercise.parts.mistakes:
        words = _unnamed(questions, mistake)
        if words is not None:
            found.append(f"the mistake {mistake.name!r} {words}")
    return found


def _unnamed(questions: Questions, mistake: Mistake) -> str | None:
    """Say what a mistake is taken for; None where it is named rightly."""
    source = present(with_mistakes(questions.exercise, [mistake]))
    outcome = _outcome(questions, source)
    if outcome.passed:
        return "passes"
    if outcome.mistakes == (mistake,):
        return None
    told = " and ".join(repr(each.name) for each in outcome.mistakes) or "nothing"
    return f"is told as {told} ({_why(outcome)})"


def _outcome(questions: Questions, source: str) -> Outcome:
    def answerer(cases: Sequence[EncodedCase]) -> Reply:
        return Reply([answer_own(questions, source, each) for each in range(len(cases))])

    return check_answer(questions, answerer)


def _why(outcome: Outcome) -> str:
    if outcome.broken is not None:
        return outcome.broken
    words = []
    for each in outcome.checks:
        if each.failure is not None:
            words.append(f"{each.check.name}: {each.failure.words}")
    return "; ".join(words)
