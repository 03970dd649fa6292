"""The lines of a check for the student: what passes, the smallest failing case, the mistake."""

import ast
import keyword
import re
import textwrap
from collections.abc import Iterable
from typing import Any

from attnlab.display import plural
from attnlab.errors import present
from attnlab_course.cells import parse_program, solution_text
from attnlab_course.compare import show
from attnlab_course.exercise import Case, CourseExercise, Given
from attnlab_course.judge import CheckResult, Outcome, passed_words
from attnlab_course.mistakes import with_mistake

_INDENT = " " * 4
_MOST_PRINTED = 8  # lines


def feedback_lines(exercise: CourseExercise, outcome: Outcome) -> list[str]:
    """Return the lines that a student reads after a check."""
    name = exercise.name
    if outcome.broken is not None:
        return [f"{name}: {outcome.broken}"]
    total = len(outcome.checks)
    waiting = [f"  {waiting_words(outcome.waiting)}"] if outcome.waiting else []
    if outcome.is_blank:
        words = (
            f"{total} {plural(total, 'check')} will look at it" if total else "a person reads it"
        )
        return [f"{name}: nothing is written yet; {words}", *waiting]
    lines = [f"{name}: {passed_words(result.failure for result in outcome.checks)}"]
    width = max((len(result.check.name) for result in outcome.checks), default=0)
    shown = shown_failure(outcome)
    for result in outcome.checks:
        lines.append(f"  {_mark(result)} {result.check.name:{width}}  {check_words(result)}")
        if result is shown:
            lines += _indented(_failure_lines(exercise, shown))
    if outcome.mistake is not None:
        lines.append(f"  → {outcome.mistake.says}")
    return lines + waiting


def _mark(result: CheckResult) -> str:
    if result.passed:
        return "✓"
    return "–" if result.is_open else "✗"


def check_words(result: CheckResult) -> str:
    """Return what a check asks; of one that says nothing against the answer, also why."""
    if result.failure is not None and result.is_open:
        return f"{result.check.words} ({result.failure.words})"
    return result.check.words


def _indented(lines: Iterable[str]) -> list[str]:
    return [_INDENT + line for line in lines]


def shown_failure(outcome: Outcome) -> CheckResult | None:
    """Return the check whose failed case is shown: of wrong parameters, else the first."""
    failed = [result for result in outcome.checks if not result.passed and not result.is_open]
    failed.sort(key=lambda result: present(result.case).answer != "parameters")
    return next(iter(failed), None)


def mistake_hint(exercise: CourseExercise, name: str, source: str, seen: int) -> list[str]:
    """Return the hint of a known mistake; nothing where there is none.

    It is the lines of a program that makes it, if an answer has their names; else the first
    general hint that was not seen and speaks of what the mistake is named after.
    """
    mistake = exercise.mistake(name)
    right = ast.unparse(ast.parse(solution_text(exercise.source))).splitlines()
    mistaken = ast.unparse(ast.parse(with_mistake(exercise, mistake))).splitlines()
    wrong = "\n".join(line.rstrip() for line in mistaken if line not in right)
    names = set(re.findall(r"\b[A-Za-z_]\w*", re.sub(r"'[^']*'", "", wrong)))
    theirs = set(re.findall(r"'(\w+)'", ast.dump(parse_program(source) or ast.Module([], []))))
    is_theirs = names <= {*theirs, *keyword.kwlist}
    if wrong and is_theirs and not mistake.also:  # else the lines may be of another spelling
        words = f"{mistake.says} Your answers are those of a program that reads:"
        return [words, *_indented(textwrap.dedent(wrong).splitlines())]
    shared = {hint: len(_stems(name) & _stems(hint)) for hint in exercise.parts.hints[seen:]}
    hint = max(shared, key=shared.__getitem__, default="")
    return [hint] if shared.get(hint) else []


def _stems(words: str) -> set[str]:
    return {word[:4] for word in re.findall("[a-z]{4,}", words.lower())}


def call_lines(exercise: CourseExercise, case: Case) -> list[str]:
    """Show a call with its arguments by name, one a line."""
    names = _parameters(exercise, case)
    names += [f"argument {number + 1}" for number in range(len(names), len(case.args))]
    arguments = [*zip(names, case.args, strict=False), *case.settings.items()]
    return [f"{name} = {_shown(value)}" for name, value in arguments]


def _failure_lines(exercise: CourseExercise, result: CheckResult) -> list[str]:
    case = present(result.case)
    what = case.call
    if case.build is not None:
        args, settings = case.build
        arguments = [
            *map(_shown, args),
            *(f"{key}={_shown(value)}" for key, value in settings.items()),
        ]
        what += f"({', '.join(arguments)})"
    lines = [f"{what} {case.words}".rstrip(), *_indented(call_lines(exercise, case))]
    for name, args, _ in case.methods:
        lines.append(f"{_INDENT}.{name}({', '.join(map(_shown, args))})")
    lines += present(result.failure).words.splitlines()
    if result.printed:
        lines += ["it printed:", *_indented(result.printed.splitlines()[:_MOST_PRINTED])]
    return lines


def _shown(value: object) -> str:
    if isinstance(value, Given):
        return f"a {value.call}"
    return show(value)


def waiting_words(waiting: int) -> str:
    """Say how many checks are held back for the grading.

    >>> waiting_words(5)
    '5 checks not run yet: they are held back for the grading'
    """
    pronoun = "it is" if waiting == 1 else "they are"
    return f"{waiting} {plural(waiting, 'check')} not run yet: {pronoun} held back for the grading"


def _parameters(exercise: CourseExercise, case: Case) -> list[str]:
    """Return the names of the parameters of what a case calls, by the solution's text."""
    place, wanted = ast.parse(solution_text(exercise.source)), case.call
    if case.build is not None:
        place, wanted = _definition(place, ast.ClassDef, case.call) or place, "forward"
    function = _definition(place, ast.FunctionDef, wanted)
    if function is None:
        return []
    return [argument.arg for argument in function.args.args if argument.arg != "self"]


def _definition(place: ast.AST, kind: type[ast.stmt], name: str) -> Any:
    for node in ast.walk(place):
        if isinstance(node, kind) and getattr(node, "name", None) == name:
            return node
    return None
