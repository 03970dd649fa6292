"""The mistake behind a wrong answer: the known one whose answers are the same in every case."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from torch import Tensor

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
    wrong: Sequence[Sequence[int]],
    *,
    skip_missing: bool,
) -> tuple[Mistake, ...]:
    """Return the mistakes behind a wrong answer: one, two made at once, or none.

    They are those whose answers are the student's in every case. Where there are none, the answer
    is wrong in yet another way: then it is the one that accounts for the first check that failed
    and contradicts none that passed, and the one that with it accounts for the next check.

    Args:
        questions: what was asked.
        answers: what the student's code said, one for each case.
        wrong: for each check, the numbers of the cases that were answered wrongly.
        skip_missing: whether a part that is None is left out of the comparison.
    """
    evidence = _Evidence(questions, list(map(_readable, answers)), wrong, skip_missing)
    exercise = questions.exercise
    spellings = [each for mistake in exercise.parts.mistakes for each in mistake.spellings]
    for spelling in spellings:
        if evidence.agrees_throughout([spelling]):
            return (exercise.mistake(spelling.name),)
    for one, other in itertools.combinations(exercise.parts.mistakes, 2):
        if evidence.agrees_throughout([one, other]) or evidence.agrees_throughout([other, one]):
            return one, other
    first = next((each for each in spellings if evidence.accounts_for([each], [0])), None)
    if first is None:
        return ()
    found = [first, *_second_mistake(evidence, first, spellings)]
    return tuple(exercise.mistake(spelling.name) for spelling in found)


def _second_mistake(
    evidence: "_Evidence", first: Mistake, spellings: Iterable[Mistake]
) -> Iterator[Mistake]:
    """Yield the mistake that, made with the first, accounts for the next check too, if any."""
    failed = range(1, len(evidence.failed))
    rest = next((each for each in failed if not evidence.accounts_for([first], [0, each])), None)
    if rest is None:
        return
    for other in spellings:
        pairs = [first, other], [other, first]
        if other.name != first.name and any(evidence.accounts_for(p, [0, rest]) for p in pairs):
            yield other
            return


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


@dataclass(frozen=True)
class _FailedCheck:
    """The numbers of a check's cases, and whether an agreement in them is no chance."""

    numbers: Sequence[int]
    is_telling: bool


class _Evidence:
    """What a student's code answered, held against the course's mistakes."""

    def __init__(
        self,
        questions: Questions,
        read: Sequence[Any],
        wrong: Sequence[Sequence[int]],
        skip_missing: bool,
    ) -> None:
        self.questions = questions
        self.read = read
        self.skip_missing = skip_missing
        every_wrong = [number for numbers in wrong for number in numbers]
        # most mistakes differ from an answer already where it is wrong, so that is asked first
        self.numbers = sorted(range(len(read)), key=lambda number: number not in every_wrong)
        self.passed: list[int] = []  # the cases of the checks that passed
        self.failed: list[_FailedCheck] = []
        at = 0
        for cases, numbers in zip(questions.cases, wrong, strict=True):
            own = range(at, at + len(cases))
            at += len(cases)
            if numbers:
                self.failed.append(_FailedCheck(own, any(_is_telling(read[n]) for n in numbers)))
            else:
                self.passed += own

    def agrees_throughout(self, mistakes: Sequence[Mistake]) -> bool:
        """Whether the solution with these mistakes gives the answer of every case."""
        return self._agrees(mistakes, self.numbers)

    def accounts_for(self, mistakes: Sequence[Mistake], failed: Iterable[int]) -> bool:
        """Whether the mistakes give the answers of these failed checks and of all that passed."""
        checks = [self.failed[number] for number in failed]
        if not all(check.is_telling for check in checks):
            return False
        return self._agrees(
            mistakes, [*itertools.chain(*(c.numbers for c in checks)), *self.passed]
        )

    def _agrees(self, mistakes: Sequence[Mistake], numbers: Iterable[int]) -> bool:
        source = with_mistakes(self.questions.exercise, mistakes)
        if source is None:
            return False
        try:
            _own_names(source)
        except Exception:  # two mistakes whose texts do not go together
            return False
        for number in numbers:
            mistaken = _readable(answer_own(self.questions, source, number))
            if self.skip_missing:
                mistaken = leave_out(mistaken, self.read[number])
            if not _agree(self.questions.flat[number], mistaken, self.read[number]):
                return False
        return True


def _is_telling(read: Any) -> bool:
    """Whether two programs hardly give an answer by chance: it holds two numbers, or a text."""
    if isinstance(read, Tensor | np.ndarray):
        values = np.asarray(read)
        return len(np.unique(values[np.isfinite(values)])) > 1
    if isinstance(read, Mapping):
        return any(map(_is_telling, read.values()))
    if isinstance(read, list):
        return any(map(_is_telling, read))
    return isinstance(read, str) or (isinstance(read, float) and not read.is_integer())


def _agree(case: Case, one: Any, other: Any) -> bool:
    """Whether two answers are the same; answers that a judge accepts may differ by chance."""
    if is_same(one, other, case.tolerance):
        return True
    if case.judge is None:
        return False
    return judge_value(case, one) is None and judge_value(case, other) is None


@dataclass(frozen=True)
class _Error:
    """What was raised in place of an answer, and what it is about."""

    name: str
    about: str


def _readable(answer: CaseAnswer) -> Any:
    if answer.raised is not None:
        return _Error(answer.raised.name, answer.raised.about)
    return read_answer(answer.value)
