"""The mistake behind a wrong answer: the known one whose answers are the same in every case.

Where one is not enough, it may be two that were made in one program.
"""

import itertools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from torch import Tensor

from attnlab.errors import not_none
from attnlab_course.cases import Questions, load_source
from attnlab_course.cells import parse_program, solution_text
from attnlab_course.compare import is_same, read_answer
from attnlab_course.exercise import Case, CourseExercise, Failure, Mistake, join_mistakes
from attnlab_course.sandbox.replies import CaseAnswer, Reply, ask_names

_Program = tuple[str, tuple[str, ...]]
"""The name of the mistake in a program, or of two, and the programs with each of them alone."""


@dataclass(frozen=True)
class FoundMistake:
    """The mistake behind a wrong answer.

    Args:
        name: its name, or those of two.
        programs: the solution with each of its mistakes alone.
        explained: the numbers of the checks of which it gives every answer.
    """

    name: str
    programs: tuple[str, ...]
    explained: list[int]


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


def _programs(exercise: CourseExercise, known: Iterable[Mistake]) -> dict[str, _Program]:
    """Return the programs with one mistake in each of its spellings, by their text."""
    programs: dict[str, _Program] = {}
    for mistake in known:
        for spelling in mistake.spellings:
            text = with_mistake(exercise, spelling)
            programs.setdefault(text, (mistake.name, (text,)))
    return programs


@lru_cache
def _programs_of_two(exercise: CourseExercise) -> dict[str, _Program]:
    """Return the programs with two of the mistakes that the exercise names, where they go together.

    They do where the text that the second replaces is still there after the first.
    """
    spellings = [s for mistake in exercise.named_mistakes for s in mistake.spellings]
    known = _programs(exercise, exercise.named_mistakes)
    programs: dict[str, _Program] = {}
    for first, second in itertools.permutations(spellings, 2):
        if first.name == second.name:
            continue
        pair = join_mistakes(first, second)
        try:
            text = with_mistake(exercise, pair)
        except AssertionError:
            continue
        if text not in known and parse_program(text) is not None:
            alone = with_mistake(exercise, first), with_mistake(exercise, second)
            programs.setdefault(text, (pair.name, alone))
    return programs


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
    questions: Questions, answers: Sequence[CaseAnswer], failures: Sequence[Failure | None]
) -> FoundMistake | None:
    """Return the mistake behind a wrong answer; None where none is known.

    It is the mistake that gives the program's answer in every case, or else the two that do
    together. Where there are none, the program is wrong in another way too: then it is the one that
    gives the answers of the first check that failed and of all that passed.

    Args:
        questions: the cases.
        answers: the program's, one for each case.
        failures: for each case, what is wrong with its answer.
    """
    exercise, values = questions.exercise, list(map(_comparable, answers))
    explains = partial(_explains, questions, values)
    wrong = [value for value, failure in zip(values, failures, strict=True) if failure]
    telling = list(filter(_is_telling, wrong))
    singles = _programs(exercise, exercise.mistakes if telling else exercise.named_mistakes)
    are_errors = all(isinstance(value, CaseAnswer) for value in telling)
    pairs = {} if are_errors else _programs_of_two(exercise)
    # most mistakes differ from an answer already where it is wrong, so that is compared first
    every = sorted(range(len(values)), key=lambda number: failures[number] is None)
    some = _first_failed(questions, values, failures)
    attempts = [(every, singles), (every, pairs), (some, singles if some else {})]
    for numbers, programs in attempts:
        for source, (name, alone) in programs.items():
            if explains(source, numbers):
                groups = enumerate(questions.numbers)
                explained = [number for number, group in groups if explains(source, group)]
                return FoundMistake(name, alone, explained)
    return None


def _first_failed(
    questions: Questions, values: Sequence[Any], failures: Sequence[Failure | None]
) -> Sequence[int]:
    """Return the cases of the first failed check and of all that passed; none if they tell nothing.

    Those of another failed check are too few to tell: many a mistake shows in it in the same way.
    """
    failed = [group for group in questions.numbers if any(failures[n] for n in group)]
    passed = [n for group in questions.numbers if group not in failed for n in group]
    return [*failed[0], *passed] if any(_is_telling(values[n]) for n in failed[0]) else []


def _explains(
    questions: Questions, values: Sequence[Any], source: str, numbers: Iterable[int]
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

    It holds two numbers, a text or one number that is not whole, or is an error about shapes.
    """
    if isinstance(value, CaseAnswer):
        return value.about == "shapes"
    if isinstance(value, Tensor | np.ndarray) and not value.ndim:
        value = value.item()
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
