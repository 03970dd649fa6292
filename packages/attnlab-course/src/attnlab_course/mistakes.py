"""The mistake behind a wrong answer: the known one whose answers are the same in every case."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from attnlab.errors import not_none
from attnlab_course.cases import Questions, load_source
from attnlab_course.cells import solution_text
from attnlab_course.compare import is_same, read_answer
from attnlab_course.exercise import Case, CourseExercise, Failure, Mistake
from attnlab_course.sandbox.replies import CaseAnswer, Reply, ask_names


def with_mistake(exercise: CourseExercise, mistake: Mistake) -> str:
    """Return the solution with a mistake in it.

    Raises:
        AssertionError: a piece of the mistake's text is not in the solution exactly once.
    """
    text = solution_text(exercise.source)
    for old, new in mistake.pieces:
        assert text.count(old) == 1, f"{exercise.name}: {mistake.name}: {old!r} must stand once"
        text = text.replace(old, new)
    return text


def ask_reference(questions: Questions, source: str) -> Reply:
    """Put the questions to a program of the course: its solution, or one with a mistake."""
    return Reply([_reference_answer(questions, source, n) for n in range(len(questions.encoded))])


def _reference_answer(questions: Questions, source: str, number: int) -> CaseAnswer:
    """Put one case to a program of the course, in this process and only once."""
    key = (source, number)
    if key not in questions.known:
        with np.errstate(all="ignore"), warnings.catch_warnings():  # a mistake may divide by 0
            warnings.simplefilter("ignore")
            reply = ask_names(load_source(source), [questions.encoded[number]])
        questions.known[key] = reply.answers[0]
    return questions.known[key]


def find_mistake(
    questions: Questions,
    answers: Sequence[CaseAnswer],
    failures: Sequence[Failure | None],
) -> tuple[str | None, list[int]]:
    """Return the mistake behind a wrong answer, None where none is known, and what it explains.

    These are the numbers of the checks of which it gives every answer.

    It is the mistake that gives the program's answer in every case. Where there is none, the
    program is wrong in another way too: then it is the one that gives the answers of the first
    check that failed and of all that passed.

    Args:
        questions: the cases.
        answers: the program's, one for each case.
        failures: for each case, what is wrong with its answer.
    """
    values = list(map(_comparable, answers))
    explains = partial(_explains, questions, values)
    wrong = [value for value, failure in zip(values, failures, strict=True) if failure]
    known = questions.exercise.named_mistakes
    if any(map(_is_telling, wrong)):
        known = questions.exercise.mistakes
    for numbers in _attempts(questions, values, failures):
        for mistake in known:
            for spelling in mistake.spellings:
                source = with_mistake(questions.exercise, spelling)
                if explains(source, numbers):
                    groups = enumerate(questions.numbers)
                    return mistake.name, [n for n, group in groups if explains(source, group)]
    return None, []


def _attempts(
    questions: Questions, values: Sequence[Any], failures: Sequence[Failure | None]
) -> Iterator[Sequence[int]]:
    """Yield the cases to explain: all; else those of the first failed check and of all that passed.

    Most mistakes differ from an answer already where it is wrong, so that is compared first.
    """
    yield sorted(range(len(values)), key=lambda number: failures[number] is None)
    failed = [group for group in questions.numbers if any(failures[n] for n in group)]
    passed = [n for group in questions.numbers if group not in failed for n in group]
    if any(_is_telling(values[n]) for n in failed[0]):
        yield [*failed[0], *passed]


def _explains(
    questions: Questions,
    values: Sequence[Any],
    source: str,
    numbers: Iterable[int],
) -> bool:
    """Whether a program of the course gives the same answers to these cases."""
    for number in numbers:
        mistaken = _comparable(_reference_answer(questions, source, number))
        if not _agree(questions.flat[number], mistaken, values[number]):
            return False
    return True


def ask_judge(case: Case, value: Any) -> Failure | None:
    """Ask a case's judge about an answer; one that the judge cannot read is wrong."""
    try:
        return not_none(case.judge)(value)
    except Exception as error:
        words = f"the answer is not in the requested format ({type(error).__name__})"
        return Failure(words, kind="form")


def _is_telling(value: Any) -> bool:
    """Is an answer unlikely to be equal by chance?

    It holds two numbers or a text, or is an error about shapes.
    """
    if isinstance(value, CaseAnswer):
        return value.about == "shapes"
    if isinstance(value, Tensor | np.ndarray):
        numbers = np.asarray(value)
        return len(np.unique(numbers[np.isfinite(numbers)])) > 1
    if isinstance(value, Mapping):
        return any(map(_is_telling, value.values()))
    if isinstance(value, list):
        return any(map(_is_telling, value))
    return isinstance(value, str) or (isinstance(value, float) and not value.is_integer())


def _agree(case: Case, one: Any, other: Any) -> bool:
    """Whether two answers are the same, or a judge says the same of them: they may be drawn."""
    if is_same(one, other, case.tolerance):
        return True
    if case.judge is None:
        return False
    mine, theirs = ask_judge(case, one), ask_judge(case, other)
    if mine is None or theirs is None:
        return mine is theirs
    return mine.mistake is not None and mine.mistake == theirs.mistake


def _comparable(answer: CaseAnswer) -> Any:
    """Return an answer's value, or its error without the words, which differ between programs."""
    if answer.error:
        return replace(answer, message="", line=None, printed="")
    return read_answer(answer.value)
