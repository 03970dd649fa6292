"""The lines of a check for the student: what passes, the smallest failing case, the mistake."""

import ast
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from attnlab.display import plural
from attnlab.errors import not_none
from attnlab_course.cells import program_tree, solution_text
from attnlab_course.compare import show_answer
from attnlab_course.error_advice import error_advice
from attnlab_course.exercise import Case, CourseExercise, GivenObject, Mistake, single_mistakes
from attnlab_course.judge import PENDING, CheckResult, ExerciseOutcome, passed_words
from attnlab_course.mistakes import with_mistake
from attnlab_course.workspace import NEW, ExerciseState, Workspace

_INDENT = " " * 4
_MOST_PRINTED = 8  # lines
_LEAST_LIKE = 0.7  # of two lines that may be the same, from 0 to 1
_MARGIN = 0.05  # by which a line with a mistake may be more like the right one
_SHORTEST = 12  # characters of a line that can be told from others


def feedback_lines(exercise: CourseExercise, outcome: ExerciseOutcome) -> list[str]:
    """Return the lines that a student reads after a check."""
    name = exercise.name
    if outcome.broken is not None:
        return [f"{name}: {outcome.broken}"]
    if outcome.is_blank:
        lines = [f"{name}: nothing is written yet; {_reader_words(len(outcome.checks))}"]
    else:
        lines = [f"{name}: {passed_words(result.failure for result in outcome.checks)}"]
        lines += _check_lines(exercise, outcome)
        lines += [f"  → {words}" for words in mistake_sentences(outcome)]
        if outcome.passed_over:
            lines.append(f"  {outcome.passed_over}")
    if outcome.waiting:
        lines.append(f"  {waiting_words(outcome.waiting)}")
    return lines


def _reader_words(num_checks: int) -> str:
    """Say who will read an answer: some checks, or a person."""
    if num_checks:
        return f"{num_checks} {plural(num_checks, 'check')} will look at it"
    return "a person reads it"


def _check_lines(exercise: CourseExercise, outcome: ExerciseOutcome) -> Iterator[str]:
    """Yield a line for each check, and below it why it failed if that is shown."""
    width = max((len(result.check.name) for result in outcome.checks), default=0)
    shown = list(map(id, shown_failures(outcome)))
    for result in outcome.checks:
        yield f"  {_mark(result)} {result.check.name:{width}}  {check_words(result)}"
        if id(result) in shown:
            yield from _indented(failure_lines(exercise, result))
        elif exercise.parts.kind == "predict" and result.failure and result.failure.kind == "form":
            yield from _indented([result.failure.words])


def mistake_sentences(outcome: ExerciseOutcome) -> list[str]:
    """Say which known mistake is behind a wrong answer, and whether there is more."""
    sentences = []
    if outcome.mistake is not None:
        sentences.append(outcome.mistake.says)
    if outcome.unexplained:
        sentences.append(unexplained_words(outcome.unexplained))
    return sentences


def unexplained_words(checks: Sequence[str]) -> str:
    """Say that there is more than the named mistake.

    >>> unexplained_words(["mask", "dtype"])
    'Something else is wrong, too: see mask, dtype.'
    """
    return f"Something else is wrong, too: see {', '.join(checks)}."


def _mark(result: CheckResult) -> str:
    if result.passed:
        return "✓"
    return "–" if result.is_open else "✗"


def check_words(result: CheckResult) -> str:
    """Return what a check asks; of one that is not judged yet, also why."""
    if result.failure is not None and result.failure.kind == PENDING:
        return f"{result.check.words} ({result.failure.words})"
    return result.check.words


def _indented(lines: Iterable[str]) -> list[str]:
    return [_INDENT + line for line in lines]


def shown_failures(outcome: ExerciseOutcome) -> list[CheckResult]:
    """Return the checks whose failed case is shown: of wrong parameters, else the first; and one
    that fails by something else, as far as is known.
    """
    failed = [result for result in outcome.checks if result.is_wrong]
    failed.sort(key=lambda result: not_none(result.case).answer not in ("parameters", "state"))
    if not failed:
        return []
    first, *others = failed
    if outcome.mistake is not None and len(single_mistakes(outcome.mistake.name)) == 1:
        others = [result for result in others if result.check.name in outcome.unexplained]
    words = not_none(first.failure).words
    return [first, *[other for other in others if not_none(other.failure).words != words][:1]]


def take_hint(workspace: Workspace, exercise: CourseExercise) -> tuple[list[str], int]:
    """Return the lines of a hint on the last check and note that they are shown; without any, none.

    The number is that of the general hints that are shown now, one more where there are no lines; a
    hint that was told for the last check is passed over.
    """
    name, number = exercise.name, len(exercise.hints)
    state = workspace.states().get(name, NEW)
    lines = last_check_hint(workspace, exercise, state)
    if state.mistake or state.failed:
        text = "\n".join(lines)
        shown = [n for n, hint in enumerate(exercise.hints, 1) if hint in text]
        workspace.record("hint", exercise=name, mistake=state.mistake, told=shown)
    if lines:
        return lines, state.hints
    left = (n for n in range(state.hints + 1, number) if n not in state.shown_hints)
    number = next(left, number)
    if number > state.hints:
        workspace.record("hint", exercise=name, number=number)
    return [], number


def last_check_hint(
    workspace: Workspace, exercise: CourseExercise, state: ExerciseState
) -> list[str]:
    """Return the hint of what the last check found, if there is one."""
    if not (state.mistake or state.failed) or not workspace.files(exercise.name):
        return []
    return answer_hint(exercise, state, workspace.answer(exercise).source)


def answer_hint(exercise: CourseExercise, state: ExerciseState, source: str) -> list[str]:
    """Return the hint of an answer's known mistake, or else of the first check that it failed."""
    lines = []
    if state.mistake:
        lines = mistake_hint(exercise, state.mistake, source, state.hints)
    return lines or check_hint(exercise, state.failed, state.hints)


def check_hint(exercise: CourseExercise, name: str, seen: int) -> list[str]:
    """Return the first hint that was not seen and speaks of a failed check; nothing without any.

    The last one, which goes through the whole answer, is never taken; and of the first check, which
    asks for the whole, the hints are in their order.
    """
    named = _stems(name) if name != exercise.parts.checks[0].name else set()
    about = [hint for hint in exercise.hints[seen:-1] if named and named <= _stems(hint)]
    return [f"On the check {name}: {about[0]}"] if about else []


def mistake_hint(exercise: CourseExercise, name: str, source: str, seen: int) -> list[str]:
    """Return the hint of a known mistake, or of two: what it is, and where to look.

    That is the line of the answer most like one with the mistake in it. Where none is, it is the
    general hint that was not seen and has most words in common with the mistake; nothing without.
    """
    hints = (_single_hint(exercise, single, source, seen) for single in single_mistakes(name))
    return list(dict.fromkeys(chain.from_iterable(hints)))


def _single_hint(exercise: CourseExercise, name: str, source: str, seen: int) -> list[str]:
    mistake = exercise.mistake(name)
    right = _lines(solution_text(exercise.source))
    line = _line_like(source, _mistaken_lines(exercise, mistake), right)
    if line:
        return [f"{mistake.says} Look at this line of your answer:", _INDENT + line]
    stems = _stems(name), _stems(mistake.says)
    shared = {}
    for hint in exercise.hints[seen:]:
        in_name, in_words = (len(_stems(hint) & words) for words in stems)
        shared[hint] = 2 * in_name + in_words
    hint = max(shared, key=shared.__getitem__, default="")
    return [hint] if shared.get(hint, 0) > 1 else []


def _mistaken_lines(exercise: CourseExercise, mistake: Mistake) -> set[str]:
    """Return the lines of the programs with a mistake that no other mistake has."""
    others = [other for other in exercise.named_mistakes if other.name != mistake.name]
    return _spelled(exercise, [mistake]) - _spelled(exercise, others)


def _spelled(exercise: CourseExercise, mistakes: Iterable[Mistake]) -> set[str]:
    """Return the lines of the programs with some mistakes."""
    spellings = chain.from_iterable(mistake.spellings for mistake in mistakes)
    programs = (_lines(with_mistake(exercise, spelling)) for spelling in spellings)
    return set(chain.from_iterable(program.values() for program in programs))


def _line_like(source: str, mistaken: Iterable[str], right: Mapping[str, str]) -> str:
    """Return the line of a program that is most like a mistaken one; an empty text if there is
    none, or if it is more like a right one."""
    best, most = "", _LEAST_LIKE
    for line, plain in _lines(source).items():
        if line in right or len(plain) < _SHORTEST:
            continue
        likeness = _likeness(plain, mistaken)
        if likeness > most and likeness > _likeness(plain, right.values()) - _MARGIN:
            best, most = line, likeness
    return best


def _likeness(line: str, lines: Iterable[str]) -> float:
    ratios = (difflib.SequenceMatcher(None, line, other).ratio() for other in lines)
    return max(ratios, default=0.0)


def _stems(words: str) -> set[str]:
    return {word[:4] for word in re.findall("[a-z]{4,}", words.lower())}


def _lines(source: str) -> dict[str, str]:
    """Return the lines of a program in one style, and each with _ for the names that it assigns.

    There are no comments, and no lines if it is no Python.
    """
    tree = program_tree(source)
    lines = ast.unparse(tree).splitlines()
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    assigned = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    for node in names:
        if node.id in assigned:
            node.id = "_"
    plain = ast.unparse(tree).splitlines()
    return {line.strip(): other.strip() for line, other in zip(lines, plain, strict=True)}


def _call_lines(exercise: CourseExercise, case: Case) -> list[str]:
    """Show a call with its arguments by name, one a line."""
    names = _parameters(exercise, case)
    names += [f"argument {number + 1}" for number in range(len(names), len(case.args))]
    arguments = [*zip(names, case.args, strict=False), *case.settings.items()]
    return [f"{name} = {_shown(value)}" for name, value in arguments]


def failure_lines(exercise: CourseExercise, result: CheckResult) -> list[str]:
    """Show the case that failed: the call, its arguments, what is wrong, what was printed."""
    case = not_none(result.case)
    what = case.call
    if case.build is not None:
        args, settings = case.build
        arguments = list(map(_shown, args))
        arguments += [f"{key}={_shown(value)}" for key, value in settings.items()]
        what += f"({', '.join(arguments)})"
    lines = [f"{what} {case.words}".rstrip(), *_indented(_call_lines(exercise, case))]
    for name, args, _ in case.methods:
        lines.append(f"{_INDENT}.{name}({', '.join(map(_shown, args))})")
    words = not_none(result.failure).words
    lines += [*words.splitlines(), *error_advice(words)]
    if result.printed:
        lines += ["it printed:", *_indented(result.printed.splitlines()[:_MOST_PRINTED])]
    return lines


def _shown(value: object) -> str:
    if isinstance(value, GivenObject):
        return f"a {value.call}"
    return show_answer(value)


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
