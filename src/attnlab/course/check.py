"""Check an answer: put every case to it, compare, and name the mistake it equals."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from attnlab.course.cases import Questions
from attnlab.course.compare import difference, leave_out, read_answer, show
from attnlab.course.exercise import Case, Check, Failure, Mistake
from attnlab.course.mistakes import find_mistakes, judge_value
from attnlab.course.sandbox.replies import (
    FAILURES,
    CaseAnswer,
    Raised,
    Reply,
    answer_in_process,
    clean_error,
)
from attnlab.course.sandbox.runner import EncodedCase, Names, describe_error, load_names

Answerer = Callable[[Sequence[EncodedCase]], Reply]
"""Puts cases, as JSON, to a student's code."""

PENDING = "pending"
"""The kind of failure of a check that says nothing yet of the answer."""

_UNWRITTEN = {"NotImplementedError", "Missing"}
_CANNOT_TELL = ("Missing", "CannotTell")
"""Errors of what a file of adapters does not have, and of what an adapter does not reach."""


@dataclass(frozen=True)
class CaseFailure:
    """A case that was answered wrongly, and why.

    `got` is the answer; None where there was none. `printed` is what the student's code printed.
    """

    case: Case
    why: Failure
    got: Any = None
    printed: str = ""

    @property
    def words(self) -> str:
        """What is wrong."""
        return self.why.words


@dataclass(frozen=True)
class CheckResult:
    """A check, and the first case that failed; None where all are right."""

    check: Check
    failure: CaseFailure | None

    @property
    def passed(self) -> bool:
        """Whether every case was right."""
        return self.failure is None

    @property
    def is_pending(self) -> bool:
        """Whether it was not judged, since it counts only once the first check passes."""
        return self.failure is not None and self.failure.why.kind == PENDING


@dataclass(frozen=True)
class Outcome:
    """What came of checking an answer.

    Args:
        exercise: which.
        checks: a result for each check that was run.
        mistakes: the named mistakes that give the very same answers: one, two made at once, or
            none.
        broken: why nothing could be asked at all; None where it could.
        waiting: how many further checks were not run, since they are held back for the grading.
        is_blank: whether the parts to be written are not written yet.
    """

    exercise: str
    checks: tuple[CheckResult, ...] = ()
    mistakes: tuple[Mistake, ...] = ()
    broken: str | None = None
    waiting: int = 0
    is_blank: bool = False

    @property
    def passed(self) -> bool:
        """Whether every check that was run is passed."""
        if self.broken is not None or self.is_blank:
            return False
        return all(result.passed for result in self.checks)

    @property
    def solved(self) -> bool:
        """Whether every check there is was run and is passed."""
        return self.passed and not self.waiting

    @property
    def points(self) -> int:
        """The points of the checks that are passed."""
        if self.broken is not None:
            return 0
        return sum(result.check.points for result in self.checks if result.passed)


def check_answer(
    questions: Questions, answerer: Answerer, *, skip_missing: bool = False
) -> Outcome:
    """Put the questions to an answer and judge what it says.

    Args:
        questions: the cases of an exercise.
        answerer: puts them to the answer.
        skip_missing: leave out what an adapter cannot tell: names that are not there, parts of an
            answer that are None, and checks of which nothing is left.
    """
    exercise = questions.exercise
    waiting = len(exercise.parts.checks) - len(questions.checks)
    reply = answerer(questions.encoded)
    if not reply.is_whole(len(questions.encoded)):
        return Outcome(exercise.name, broken=reply.words, waiting=waiting)
    answers = reply.answers
    if skip_missing:
        questions, answers = _told_part(questions, answers)
        if not answers:
            words = "nothing that its checks ask can be told through this adapter"
            return Outcome(exercise.name, broken=words, waiting=waiting)
    errors = {each.raised and each.raised.name for each in answers}
    is_blank = "NotImplementedError" in errors and errors <= _UNWRITTEN
    failures = _judge_cases(questions, answers)
    results = _judge_checks(questions, failures)
    mistakes: tuple[Mistake, ...] = ()
    if not is_blank:
        mistakes = _find_mistakes(questions, answers, failures, skip_missing)
    return Outcome(exercise.name, tuple(results), mistakes, None, waiting, is_blank)


def _find_mistakes(
    questions: Questions,
    answers: Sequence[CaseAnswer],
    failures: Sequence[CaseFailure | None],
    skip_missing: bool,
) -> tuple[Mistake, ...]:
    """Return the mistake that a judge names; without one, those whose answers are the same."""
    wrong: list[list[int]] = []
    numbers = iter(range(len(failures)))
    for cases in questions.cases:
        own = list(itertools.islice(numbers, len(cases)))
        wrong.append([number for number in own if failures[number] is not None])
        named = failures[wrong[-1][0]] if wrong[-1] else None
        if named is not None and named.why.mistake is not None:
            return (questions.exercise.mistake(named.why.mistake),)
    if not any(wrong):
        return ()
    return find_mistakes(questions, answers, wrong, skip_missing=skip_missing)


def _judge_cases(questions: Questions, answers: Sequence[CaseAnswer]) -> list[CaseFailure | None]:
    """Say of each case what is wrong with its answer; None where it is right."""
    return list(map(_failure, questions.flat, answers))


def _judge_checks(
    questions: Questions, failures: Iterable[CaseFailure | None]
) -> list[CheckResult]:
    """Judge each check by its own cases; a side check counts only where the first passes."""
    results: list[CheckResult] = []
    rest = iter(failures)
    for check, cases in zip(questions.checks, questions.cases, strict=True):
        failure = next(filter(None, list(itertools.islice(rest, len(cases)))), None)
        if failure is None and _is_side(check, cases) and not results[0].passed:
            first = results[0].check.name
            words = f"it counts once {first!r} passes"
            failure = CaseFailure(cases[0], Failure(words, kind=PENDING))
        results.append(CheckResult(check, failure))
    return results


def answer_here(source: str) -> Answerer:
    """Return an answerer that runs a source in this process; it must be the course's own."""

    def answerer(cases: Sequence[EncodedCase]) -> Reply:
        try:
            names = load_names(source)
        except Exception as error:
            return Reply(broken=clean_error(describe_error(error)))
        return answer_in_process(names, cases)

    return answerer


def answer_from(names: Names) -> Answerer:
    """Return an answerer of names that are there already, such as a notebook's."""
    return partial(answer_in_process, names)


def _is_side(check: Check, cases: Sequence[Case]) -> bool:
    """Whether a check could be passed by an answer that computes nothing."""
    return check.side or all(case.answer == "inputs" or case.raises for case in cases)


def _told_part(
    questions: Questions, answers: Sequence[CaseAnswer]
) -> tuple[Questions, list[CaseAnswer]]:
    """Return the cases that an adapter could answer, without the parts it cannot tell."""
    checks, cases, encoded, told = [], [], [], []
    rest = zip(questions.encoded, answers, strict=True)
    for check, drawn in zip(questions.checks, questions.cases, strict=True):
        kept = []
        for case, (asked, answer) in zip(drawn, rest, strict=False):
            told_case = _told_case(case, answer)
            if told_case is not None:
                kept.append(told_case)
                encoded.append(asked)
                told.append(answer)
        if kept:
            checks.append(check)
            cases.append(tuple(kept))
    part = Questions(questions.exercise, tuple(checks), tuple(cases), tuple(encoded))
    return part, told


def _told_case(case: Case, answer: CaseAnswer) -> Case | None:
    """Return a case without the parts that an adapter cannot tell; None where it tells nothing."""
    if answer.raised is not None and answer.raised.name in _CANNOT_TELL:
        return None
    value = read_answer(answer.value)
    if value is None:
        return case
    if case.judge is not None and _has_none(value):
        return None
    return replace(case, expected=leave_out(case.expected, value))


def _has_none(value: Any) -> bool:
    """Whether a part of an answer is None."""
    if isinstance(value, Mapping):
        return any(map(_has_none, value.values()))
    return value is None or (isinstance(value, list) and any(map(_has_none, value)))


def _failure(case: Case, answer: CaseAnswer) -> CaseFailure | None:
    """Say what is wrong with an answer; None where it is right."""
    if answer.raised is not None:
        if answer.raised.name in case.raises:
            return None
        why = Failure(answer.raised.words, kind=_kind(answer.raised))
        return CaseFailure(case, why, printed=answer.printed)
    value = read_answer(answer.value)
    wrong: Failure | None
    if case.raises:
        words = f"expected {' or '.join(case.raises)} to be raised, got {show(value)}"
        wrong = Failure(words)
    elif case.judge is not None:
        wrong = judge_value(case, value)
    else:
        wrong = difference(case.expected, value, case.tolerance)
    if wrong is None:
        return None
    return CaseFailure(case, wrong, value, answer.printed)


def _kind(raised: Raised) -> str:
    """Return the kind of a failure: why there is no answer, or the exception."""
    for kind, failed in FAILURES.items():
        if raised == failed:
            return kind
    return raised.name
