"""The mistake behind a wrong answer: the known one whose answers are the same in every case."""

import itertools
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from attnlab.course.cases import Questions
from attnlab.course.cells import solution_text
from attnlab.course.compare import difference, is_same, leave_out, read_answer
from attnlab.course.exercise import Case, CourseExercise, Failure, Mistake
from attnlab.course.sandbox.replies import CaseAnswer, answer_in_process
from attnlab.course.sandbox.runner import load_names
from attnlab.errors import present

_LOOSE = 1e-2  # the tolerance of a common weak check
_own_names = lru_cache(maxsize=1024)(load_names)


def with_mistakes(exercise: CourseExercise, mistakes: Sequence[Mistake]) -> str | None:
    """Return the solution with these mistakes in it; None where one removes the text of another.

    Raises:
        AssertionError: a single mistake's text is not in the solution exactly once.
    """
    text = solution_text(exercise.source)
    for mistake in mistakes:
        if text.count(mistake.old) != 1:
            assert len(mistakes) > 1, (
                f"{exercise.name}: {mistake.name}: {mistake.old!r} must stand once"
            )
            return None
        text = text.replace(mistake.old, mistake.new)
    return text


def answer_own(questions: Questions, source: str, number: int) -> CaseAnswer:
    """Return how a solution of the course, with or without mistakes, answers a case.

    It runs in this process, once for each questions.
    """
    key = (source, number)
    if key not in questions.known:
        names = _own_names(source)
        with np.errstate(all="ignore"):  # a mistake may divide by 0
            reply = answer_in_process(names, [questions.encoded[number]])
        questions.known[key] = reply.answers[0]
    return questions.known[key]


def find_mistakes(
    questions: Questions,
    answers: Sequence[CaseAnswer],
    wrong: Sequence[Case],
    *,
    skip_missing: bool,
) -> tuple[Mistake, ...]:
    """Return the mistakes whose answers are the student's own: one, two made at once, or none.

    Args:
        questions: what was asked.
        answers: what the student's code said, one for each case.
        wrong: cases that were answered wrongly.
        skip_missing: whether a part that is None is left out of the comparison.
    """
    numbers = list(range(len(answers)))
    cases = questions.flat
    # most mistakes differ from a wrong answer already where it is wrong, so that is asked first
    numbers.sort(key=lambda number: all(cases[number] is not case for case in wrong))
    read = list(map(_readable, answers))
    matches = partial(_gives, questions, read, numbers, skip_missing)
    every = questions.exercise.parts.mistakes
    singles = [(mistake,) for mistake in every]
    pairs = itertools.combinations(every, 2)
    return next((found for found in itertools.chain(singles, pairs) if matches(found)), ())


def judge_value(case: Case, value: Any) -> Failure | None:
    """Ask a case's judge of an answer; one that the judge cannot read is wrong."""
    try:
        return present(case.judge)(value)
    except Exception as error:
        words = f"the answer has not the form that is asked ({type(error).__name__})"
        return Failure(words, kind="form")


def passes_snapshot(questions: Questions, mistake: Mistake) -> bool:
    """Whether a mistake passes a common weak check: one input, compared at 1e-2."""
    source = present(with_mistakes(questions.exercise, [mistake]))
    number = len(questions.cases[0]) - 1
    case = questions.cases[0][number]
    if case.judge is not None:
        return False
    answer = answer_own(questions, source, number)
    if answer.raised is not None:
        return False
    return difference(case.expected, read_answer(answer.value), _LOOSE) is None


def _gives(
    questions: Questions,
    read: Sequence[Any],
    numbers: Sequence[int],
    skip_missing: bool,
    mistakes: Sequence[Mistake],
) -> bool:
    """Whether the solution with these mistakes gives the answers that were read."""
    source = with_mistakes(questions.exercise, mistakes)
    if source is None:
        return False
    try:
        _own_names(source)
    except Exception:  # two mistakes whose texts do not go together
        return False
    for number in numbers:
        mistaken = _readable(answer_own(questions, source, number))
        if skip_missing:
            mistaken = leave_out(mistaken, read[number])
        if not _agree(questions.flat[number], mistaken, read[number]):
            return False
    return True


def _agree(case: Case, one: Any, other: Any) -> bool:
    """Whether two answers are the same; answers that a judge accepts may differ by chance."""
    if is_same(one, other, case.tolerance):
        return True
    if case.judge is None:
        return False
    return judge_value(case, one) is None and judge_value(case, other) is None


def _readable(answer: CaseAnswer) -> Any:
    if answer.raised is not None:
        return ["error", answer.raised.name]
    return read_answer(answer.value)
