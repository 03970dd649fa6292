"""What a student is told of an answer: what passes, the smallest case that fails, the mistake."""

import ast

from attnlab.course.cells import solution_text
from attnlab.course.check import CaseFailure, Outcome
from attnlab.course.compare import show
from attnlab.course.exercise import Case, CourseExercise, Given
from attnlab.draw.numbers import plural

_INDENT = " " * 4
_MOST_PRINTED = 8  # lines


def feedback_lines(exercise: CourseExercise, outcome: Outcome) -> list[str]:
    """Return the lines that tell a student what came of a check."""
    name = exercise.name
    if outcome.broken is not None:
        return [f"{name}: {outcome.broken}"]
    if outcome.is_blank:
        visible = len(outcome.checks)
        words = f"{visible} visible {plural(visible, 'check')} will look at it"
        return [f"{name}: nothing is written yet; {words}", *_waiting(outcome)]
    passed = sum(result.passed for result in outcome.checks)
    total = len(outcome.checks)
    verb = "passes" if total == 1 else "pass"
    lines = [f"{name}: {passed} of {total} {plural(total, 'visible check')} {verb}"]
    width = max((len(result.check.name) for result in outcome.checks), default=0)
    shown = shown_failure(outcome)
    for result in outcome.checks:
        mark = "✓" if result.passed else "✗"
        lines.append(f"  {mark} {result.check.name:{width}}  {result.check.words}")
        if result.failure is not None and result.failure is shown:
            lines += [_INDENT + line for line in _failure_lines(exercise, shown)]
    lines += [f"  → {words}" for words in mistake_words(outcome)]
    return lines + _waiting(outcome)


def shown_failure(outcome: Outcome) -> CaseFailure | None:
    """Return the failure that is shown with its case: of wrong parameters, else the first."""
    failures = [each.failure for each in outcome.checks if each.failure is not None]
    of_parameters = [each for each in failures if each.case.answer == "parameters"]
    return next(iter([*of_parameters, *failures]), None)


def mistake_words(outcome: Outcome) -> list[str]:
    """Return what to say of the mistakes that an answer equals."""
    words = [mistake.says for mistake in outcome.mistakes]
    if len(words) > 1:
        return ["Two mistakes at once:", *words]
    return words


def call_lines(exercise: CourseExercise, case: Case) -> list[str]:
    """Show a call with its arguments by name, one a line."""
    names = _parameters(exercise, case)
    shown = []
    for number, value in enumerate(case.args):
        name = names[number] if number < len(names) else f"argument {number + 1}"
        shown.append(f"{name} = {_shown(value)}")
    shown += [f"{name} = {_shown(value)}" for name, value in case.settings.items()]
    return shown


def _failure_lines(exercise: CourseExercise, failure: CaseFailure) -> list[str]:
    case = failure.case
    what = case.call
    if case.build is not None:
        args, settings = case.build
        given = [*map(_shown, args), *(f"{key}={_shown(each)}" for key, each in settings.items())]
        what += f"({', '.join(given)})"
    calls = [f".{name}({', '.join(map(_shown, args))})" for name, args, _ in case.methods]
    lines = [
        f"{what} {case.words}".rstrip(),
        *(_INDENT + line for line in [*call_lines(exercise, case), *calls]),
    ]
    lines += failure.words.splitlines()
    if failure.printed:
        lines.append("it printed:")
        lines += [_INDENT + line for line in failure.printed.splitlines()[:_MOST_PRINTED]]
    return lines


def _shown(value: object) -> str:
    if isinstance(value, Given):
        return f"a {value.call}"
    return show(value)


def _waiting(outcome: Outcome) -> list[str]:
    if not outcome.waiting:
        return []
    verb = "is" if outcome.waiting == 1 else "are"
    noun = plural(outcome.waiting, "more check")
    return [f"  {outcome.waiting} {noun} {verb} run when it is graded"]


def _parameters(exercise: CourseExercise, case: Case) -> list[str]:
    """Return the names of the parameters of what a case calls, by the solution's text."""
    wanted = "forward" if case.build is not None else case.call
    place: ast.AST = ast.parse(solution_text(exercise.source))
    for node in ast.walk(place):
        if isinstance(node, ast.ClassDef) and node.name == case.call:
            place = node  # of several classes only the one that is called
    for node in ast.walk(place):
        if isinstance(node, ast.FunctionDef) and node.name == wanted:
            return [each.arg for each in node.args.args if each.arg != "self"]
    return []
