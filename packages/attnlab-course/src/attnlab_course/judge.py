"""Judge a program's answers: compare every case, sum up each check, name the mistake."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attnlab.display import plural
from attnlab_course.cases import Questions
from attnlab_course.compare import difference, read_answer, show_answer
from attnlab_course.exercise import Case, Check, Failure, Mistake, single_mistakes
from attnlab_course.mistakes import FoundMistake, ask_judge, ask_reference, find_mistake
from attnlab_course.sandbox.replies import CaseAnswer, Reply, ask_here

PENDING = "pending"
"""The kind of failure of a check that was not judged yet."""

FOLLOWS = "follows"
"""The kind of failure of a check that fails just as a mistake does that another check counts."""

OPEN = {
    PENDING: "it counts once a check of results before it passes",
    FOLLOWS: "the same mistake, which costs nothing more",
}

_UNWRITTEN = {"NotImplementedError", "Missing"}


def costs_points(failure: Failure | None) -> bool:
    """Whether a check is failed, and not by a mistake that another check counts."""
    return failure is not None and failure.kind != FOLLOWS


def passed_words(failures: Iterable[Failure | None]) -> str:
    """Say how many checks pass, and how many fail by a mistake that another check counts."""
    failures = list(failures)
    total, passed = len(failures), failures.count(None)
    wrong = sum(map(costs_points, failures))
    more = total - passed - wrong
    verb = "passes" if total == 1 else "pass"
    words = f"{passed} of {total} {plural(total, 'check')} {verb}"
    if not more:
        return words
    fails, follow = ("fails" if number == 1 else "fail" for number in (wrong, more))
    return f"{words}, {wrong} {fails}; {more} more, marked –, {follow} by {OPEN[FOLLOWS]}"


@dataclass(frozen=True)
class CheckResult:
    """A check, and the first of its cases that failed.

    Args:
        check: the criterion.
        failure: why that case is wrong; None where every case is right.
        case: the case that failed.
        value: the program's answer to it; None where it gave none.
        printed: what the program printed meanwhile.
    """

    check: Check
    failure: Failure | None = None
    case: Case | None = None
    value: Any = None
    printed: str = ""

    @property
    def passed(self) -> bool:
        """Whether every case was right."""
        return self.failure is None

    @property
    def is_open(self) -> bool:
        """Whether it says nothing against the answer: it is not judged yet, or it follows."""
        return self.failure is not None and self.failure.kind in OPEN

    @property
    def is_wrong(self) -> bool:
        """Whether it fails and says something against the answer."""
        return not self.passed and not self.is_open

    @property
    def points(self) -> int:
        """Its points, where it passes or follows from a mistake that another check counts."""
        return 0 if costs_points(self.failure) else self.check.points


@dataclass(frozen=True)
class ExerciseOutcome:
    """The results of an exercise's checks.

    Args:
        exercise: its name.
        checks: a result for each check that was run.
        mistake: the named mistake that gives the same answers; None where none does.
        broken: why no case could be put to the program; None where all could.
        passed_over: which statement at the program's top failed and why; empty without one.
        unexplained: the checks that fail in another way than the mistake makes them fail.
        waiting: how many further checks were not run, since they are held back for the grading.
        is_blank: whether the parts to be written are not written yet.
    """

    exercise: str
    checks: tuple[CheckResult, ...] = ()
    mistake: Mistake | None = None
    broken: str | None = None
    passed_over: str = ""
    unexplained: tuple[str, ...] = ()
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
        """The points of all checks together."""
        return sum(result.points for result in self.checks)


def judge(questions: Questions, reply: Reply) -> ExerciseOutcome:
    """Compare a program's answers with the expected ones.

    Args:
        questions: the cases that were put to the program.
        reply: its answers.
    """
    exercise = questions.exercise
    waiting = len(exercise.parts.checks) - len(questions.checks)
    answers = reply.answers
    if reply.problem:
        return ExerciseOutcome(exercise.name, broken=reply.problem, waiting=waiting)
    failures = _judge_cases(questions, answers)
    results = _judge_checks(questions, answers, failures)
    errors = {answer.error for answer in answers}
    is_blank = "NotImplementedError" in errors and errors <= _UNWRITTEN
    name, unexplained = None, list[str]()
    if any(failures) and not is_blank:
        name, unexplained = _name_mistake(questions, answers, failures, results)
    return ExerciseOutcome(
        exercise.name,
        tuple(results),
        None if name is None else exercise.mistake(name),
        passed_over=reply.passed_over,
        unexplained=tuple(unexplained),
        waiting=waiting,
        is_blank=is_blank,
    )


def _name_mistake(
    questions: Questions,
    answers: Sequence[CaseAnswer],
    failures: Sequence[Failure | None],
    results: list[CheckResult],
) -> tuple[str | None, list[str]]:
    """Return the mistake behind a wrong answer, and the checks that fail in another way.

    It costs one check, and two of them two, where the exercise is not one idea as a whole. Where
    the program computes nothing that shows it, as it ends in an error in every case, each is lost.
    """
    mistake = find_mistake(questions, answers, failures)
    by_judge = _mistake_by_judge(results)
    if mistake is None or (by_judge and by_judge not in single_mistakes(mistake.name)):
        return by_judge, []
    if questions.exercise.parts.whole:
        return by_judge or mistake.name, []
    unexplained = [number for number in _wrong(results) if number not in mistake.explained]
    passed = [number for number, result in enumerate(results) if result.passed]
    if any(_is_computed(questions, answers, n) for n in (*mistake.explained, *passed)):
        _count_once(questions, results, mistake)
    return mistake.name, [results[number].check.name for number in unexplained]


def _wrong(results: Sequence[CheckResult]) -> list[int]:
    """Return the numbers of the checks that say something against the answer."""
    return [number for number, result in enumerate(results) if result.is_wrong]


def _is_computed(questions: Questions, answers: Sequence[CaseAnswer], number: int) -> bool:
    """Does a check compare a value that the program computed, rather than an error?"""
    if not _has_results(questions.cases[number]):
        return False
    return any(not answers[case].error for case in questions.numbers[number])


def _mistake_by_judge(results: Iterable[CheckResult]) -> str | None:
    """Return the mistake that a case's judge names first; None where none names one."""
    names = (result.failure.mistake for result in results if result.failure is not None)
    return next(filter(None, names), None)


def _count_once(questions: Questions, results: list[CheckResult], mistake: FoundMistake) -> None:
    """Let each mistake cost one check: of those that fail by it alone, the one with most points."""
    for number in mistake.explained:
        if results[number].is_open:  # all is right in it but for the mistake
            results[number] = CheckResult(results[number].check)
    follows = [number for number in mistake.explained if not results[number].passed]
    follows.sort(key=lambda number: -results[number].check.points)
    first = follows[:1]
    for program in mistake.programs:
        answers = ask_reference(questions, program).answers
        alone = _judge_checks(questions, answers, _judge_cases(questions, answers))
        counted = next(filter(_wrong(alone).__contains__, follows), None)
        if counted is not None:
            follows.remove(counted)
            first = []
    for number in follows:
        if number not in first:
            results[number] = replace(results[number], failure=_open_failure(FOLLOWS))


def _open_failure(kind: str) -> Failure:
    return Failure(OPEN[kind], kind=kind)


def check_here(questions: Questions, source: str) -> ExerciseOutcome:
    """Check a program by running it in this process; it must be the course's own."""
    return judge(questions, ask_here(source, "answer.py", questions.encoded))


def _judge_cases(questions: Questions, answers: Sequence[CaseAnswer]) -> list[Failure | None]:
    names = map(questions.exercise.result_names, questions.flat)
    return list(map(_judge_case, questions.flat, answers, names))


def _judge_case(case: Case, answer: CaseAnswer, names: Sequence[str]) -> Failure | None:
    """Say what is wrong with an answer; None where it is right."""
    if case.beside:
        return None
    if answer.error:
        if answer.error in case.raises:
            return None
        words = f"{_raised_words(case)}{answer.words}" if case.raises else answer.words
        return Failure(words, kind=answer.error)
    value = read_answer(answer.value)
    if case.raises:
        return Failure(f"{_raised_words(case)}{show_answer(value)}")
    if case.judge is not None:
        return ask_judge(case, value)
    return difference(case.expected, value, case.tolerance, names=names)


def _raised_words(case: Case) -> str:
    return f"expected {' or '.join(case.raises)} to be raised, got "


def _judge_checks(
    questions: Questions, answers: Sequence[CaseAnswer], failures: Sequence[Failure | None]
) -> list[CheckResult]:
    """Return each check's result.

    Where the first check fails, a relation is enough for those that have one. A side check, which
    an answer that computes nothing could pass, counts only where one of results before passes.
    """
    results: list[CheckResult] = []
    computes = False  # whether a check of results has passed
    groups = zip(questions.checks, questions.cases, questions.numbers, strict=True)
    for check, cases, numbers in groups:
        wrong = [number for number in numbers if failures[number] is not None]
        is_lenient = bool(results) and not results[0].passed
        if is_lenient and _is_related(check, cases, answers, numbers):
            wrong = []
        if wrong:
            case, answer = questions.flat[wrong[0]], answers[wrong[0]]
            value = read_answer(answer.value)
            results.append(CheckResult(check, failures[wrong[0]], case, value, answer.printed))
        elif _is_side(check, cases) and not computes:
            results.append(CheckResult(check, _open_failure(PENDING), cases[0]))
        else:
            results.append(CheckResult(check))
            computes = computes or _has_results(cases)
    return results


def _is_side(check: Check, cases: Sequence[Case]) -> bool:
    """Could an answer that computes nothing pass a check?"""
    return check.side or all(case.answer == "inputs" or case.raises for case in cases)


def _has_results(cases: Sequence[Case]) -> bool:
    return any(case.answer in ("result", "value") and not case.beside for case in cases)


def _is_related(
    check: Check, cases: Sequence[Case], answers: Sequence[CaseAnswer], numbers: range
) -> bool:
    """Are the answers to a check's cases related as right ones are?"""
    try:
        values = [read_answer(answers[number].value) for number in numbers]
        return check.relation is not None and check.relation(cases, values)
    except Exception:  # they are not in the requested format
        return False
