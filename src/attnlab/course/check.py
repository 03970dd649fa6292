"""Check an answer: put every case to it, compare, and name the mistake it equals."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attnlab.course.cases import Questions
from attnlab.course.compare import difference, leave_out, read_answer, show
from attnlab.course.exercise import Case, Check, Mistake
from attnlab.course.mistakes import find_mistakes, judge_value
from attnlab.course.sandbox.replies import failed_answer
from attnlab.course.sandbox.runner import answer_all, describe_error, load_names

Answers = Mapping[str, Any]
"""What a worker replies: {"answers": [one for each case]}, or {"broken" or "refused": why}."""

Answerer = Callable[[Sequence[Mapping[str, Any]]], Answers]
"""Puts cases, as JSON, to a student's code."""

_UNWRITTEN = {"NotImplementedError", "Missing"}
_CANNOT_TELL = ("Missing", "CannotTell")
"""Errors of what a file of adapters does not have, and of what an adapter does not reach."""


@dataclass(frozen=True)
class CaseFailure:
    """A case that was answered wrongly: what is wrong, and the mistake if the judge names one.

    `got` is the answer; None where there was none. `printed` is what the student's code printed.
    """

    case: Case
    words: str
    mistake: str | None = None
    got: Any = None
    printed: str = ""


@dataclass(frozen=True)
class CheckResult:
    """A check, and the first case that failed; None where all are right."""

    check: Check
    failure: CaseFailure | None

    @property
    def passed(self) -> bool:
        """Whether every case was right."""
        return self.failure is None


@dataclass(frozen=True)
class Outcome:
    """What came of checking an answer.

    Args:
        exercise: which.
        checks: a result for each check that was run.
        mistakes: the named mistakes that give the very same answers: one, two made at once, or
            none.
        broken: why nothing could be asked at all; None where it could.
        waiting: how many further checks run only when it is graded.
        is_blank: whether the parts to be written are not written yet.
    """

    exercise: str
    checks: tuple[CheckResult, ...]
    mistakes: tuple[Mistake, ...]
    broken: str | None
    waiting: int
    is_blank: bool

    @property
    def passed(self) -> bool:
        """Whether every check that was run is passed."""
        if self.broken is not None or self.is_blank:
            return False
        return all(result.passed for result in self.checks)

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
    if "answers" not in reply or not _is_whole(reply["answers"], questions):
        words = broken_words(reply)
        return Outcome(exercise.name, (), (), words, waiting, is_blank=False)
    answers = reply["answers"]
    if skip_missing:
        questions, answers = _told_part(questions, answers)
        if not answers:
            words = "nothing that its checks ask can be told through this adapter"
            return Outcome(exercise.name, (), (), words, waiting, is_blank=False)
    errors = {each.get("error") for each in answers}
    is_blank = "NotImplementedError" in errors and errors <= _UNWRITTEN
    results = _judge_checks(questions, answers)
    failures = [each.failure for each in results if each.failure is not None]
    named = [each.mistake for each in failures if each.mistake is not None]
    mistakes: tuple[Mistake, ...] = ()
    if named:
        mistakes = (exercise.mistake(named[0]),)
    elif failures and not is_blank:
        wrong = [each.case for each in failures]
        mistakes = find_mistakes(questions, answers, wrong, skip_missing=skip_missing)
    return Outcome(exercise.name, tuple(results), mistakes, None, waiting, is_blank)


def _judge_checks(questions: Questions, answers: Sequence[Mapping[str, Any]]) -> list[CheckResult]:
    """Judge each check by its own answers; a side check counts only where the first passes."""
    results: list[CheckResult] = []
    rest = iter(answers)
    for check, cases in zip(questions.checks, questions.cases, strict=True):
        failure = _first_failure(cases, list(itertools.islice(rest, len(cases))))
        if failure is None and _is_side(check, cases) and not results[0].passed:
            failure = CaseFailure(cases[0], f"it counts once {results[0].check.name!r} passes")
        results.append(CheckResult(check, failure))
    return results


def answer_here(source: str) -> Answerer:
    """Return an answerer that runs a source in this process; it must be the course's own."""

    def answerer(cases: Sequence[Mapping[str, Any]]) -> Answers:
        try:
            names = load_names(source)
        except Exception as error:
            return {"broken": describe_error(error)}
        return {"answers": answer_all(names, cases)}

    return answerer


def answer_from(names: Mapping[str, Any]) -> Answerer:
    """Return an answerer of names that are there already, such as a notebook's."""
    return lambda cases: {"answers": answer_all(names, cases)}


def _is_side(check: Check, cases: Sequence[Case]) -> bool:
    """Whether a check could be passed by an answer that computes nothing."""
    return check.side or all(case.answer == "inputs" or case.raises for case in cases)


def _is_whole(answers: Any, questions: Questions) -> bool:
    """Whether there is an answer of the right form to each case."""
    if not isinstance(answers, list) or len(answers) != len(questions.encoded):
        return False
    return all(isinstance(each, dict) and ("value" in each or "error" in each) for each in answers)


def broken_words(reply: Answers) -> str:
    """Say why no case could be put to an answer."""
    if "broken" in reply:
        return f"it cannot be run: {error_words(reply['broken'])}"
    return str(failed_answer(reply.get("refused", "ended"))["message"])


def error_words(error: Mapping[str, Any]) -> str:
    """Say what was raised, and in which line of the student's file."""
    kind, message, line = (error.get(name) for name in ("error", "message", "line"))
    if kind == "Missing":
        return f"there is no {message}"
    if kind == "NotImplementedError":
        return "it is not written yet"
    where = f" (line {line})" if isinstance(line, int) else ""
    return f"{kind}: {message}{where}" if message else f"{kind}{where}"


def _told_part(
    questions: Questions, answers: Sequence[Mapping[str, Any]]
) -> tuple[Questions, list[Mapping[str, Any]]]:
    """Return the cases that an adapter could answer, without the parts it cannot tell."""
    checks, cases, encoded, told = [], [], [], []
    rest = zip(questions.encoded, answers, strict=True)
    for check, drawn in zip(questions.checks, questions.cases, strict=True):
        kept = []
        for case, (asked, answer) in zip(drawn, itertools.islice(rest, len(drawn)), strict=True):
            expected = case.expected
            if "value" in answer and answer["value"] is not None:
                value = read_answer(answer["value"])
                expected = leave_out(expected, value)
                if case.judge is not None and _has_none(value):
                    continue
            elif answer.get("error") in _CANNOT_TELL:
                continue
            kept.append(replace(case, expected=expected))
            encoded.append(asked)
            told.append(answer)
        if kept:
            checks.append(check)
            cases.append(tuple(kept))
    part = Questions(questions.exercise, tuple(checks), tuple(cases), tuple(encoded))
    return part, told


def _has_none(value: Any) -> bool:
    """Whether a part of an answer is None."""
    if isinstance(value, Mapping):
        return any(map(_has_none, value.values()))
    return value is None or (isinstance(value, list) and any(map(_has_none, value)))


def _first_failure(
    cases: Sequence[Case], answers: Sequence[Mapping[str, Any]]
) -> CaseFailure | None:
    for case, answer in zip(cases, answers, strict=True):
        failure = _failure(case, answer)
        if failure is not None:
            return replace(failure, printed=str(answer.get("printed", "")))
    return None


def _failure(case: Case, answer: Mapping[str, Any]) -> CaseFailure | None:
    """Say what is wrong with an answer; None where it is right."""
    if "error" in answer:
        if str(answer["error"]) in case.raises:
            return None
        return CaseFailure(case, error_words(answer))
    value = read_answer(answer["value"])
    if case.raises:
        words = f"expected {' or '.join(case.raises)} to be raised, got {show(value)}"
        return CaseFailure(case, words)
    if case.judge is not None:
        failure = judge_value(case, value)
        if failure is None:
            return None
        return CaseFailure(case, failure.words, failure.mistake, value)
    wrong = difference(case.expected, value, case.tolerance)
    return None if wrong is None else CaseFailure(case, wrong, got=value)
