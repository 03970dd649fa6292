"""Grade a class: every answer is put to the same questions, and what comes of it is stored.

    GRADES/grading.json              the secret seed of the questions
    GRADES/outcomes/STUDENT/NAME.json  one file for each answer, whole or not there

An outcome names what it was made of, by hashes: the answer, and the exercise with all code that it
may share with others. Grading again makes those that are missing or of something else, so a run
that was killed goes on, and an answer that was handed in anew is graded anew. Each submission has a
worker of its own, some at the same time; this process puts the questions and judges the answers,
and no code of a student ever runs in it.
"""

import hashlib
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from threading import Event, Lock

import attnlab
from attnlab.core.store import (
    explained,
    locked,
    make_folder,
    read_json,
    refusing_damage,
    remove_remains,
    write_json,
)
from attnlab.errors import CouldNotRun
from attnlab_course.cases import Questions, make_questions
from attnlab_course.exercise import CourseExercise, Failure
from attnlab_course.grading.bans import banned_names
from attnlab_course.grading.file_names import inert
from attnlab_course.grading.submission import Submission, SubmittedAnswer
from attnlab_course.judge import FOLLOWS, PENDING, ExerciseOutcome, costs_points, judge
from attnlab_course.sandbox.replies import CaseAnswer, Reply
from attnlab_course.sandbox.worker import Worker

FORM = "attnlab grades 1"
HASHED = re.compile(r"-[0-9a-f]{8}$")
"""The end of a name that has a hash."""

_MOST_WORDS = 600
_PACKAGES = (Path(attnlab.__file__).parent, Path(__file__).parents[1])


OpenWorker = Callable[[], AbstractContextManager[Worker]]
"""Opens a worker for a submission."""


@dataclass(frozen=True)
class GradedAnswer:
    """The result of grading an answer.

    Args:
        student: who handed it in.
        exercise: its name.
        answer_digest: the hash of what was handed in.
        exercise_digest: the hash of the exercise, its questions and attnlab's code.
        points: of the checks that passed, whether or not they are held for a review.
        checks: for each check, why it failed, for the instructor; None where it passed. Empty for
            a text, or where no question could be put to the answer.
        mistake: the name of the mistake that gives the same answers; None without one.
        unexplained: the checks that fail in another way than that mistake makes them fail.
        broken: why no question could be put to the answer; None where all could.
        passed_over: which statement at its top failed and why; empty without one.
        is_blank: whether nothing is written in it.
        banned: the banned names that it uses.
        unjudged: an error of the course's own while it judged the answer; None without one.
    """

    student: str
    exercise: str
    answer_digest: str
    exercise_digest: str
    points: int = 0
    checks: Mapping[str, Failure | None] = field(default_factory=dict)
    mistake: str | None = None
    unexplained: tuple[str, ...] = ()
    broken: str | None = None
    passed_over: str = ""
    is_blank: bool = False
    banned: tuple[str, ...] = ()
    unjudged: str | None = None

    @property
    def passed(self) -> list[str]:
        """The checks that cost no points."""
        return [name for name, failure in self.checks.items() if not costs_points(failure)]

    @property
    def lost(self) -> list[str]:
        """The checks that cost points."""
        return [name for name, failure in self.checks.items() if costs_points(failure)]

    @property
    def failures(self) -> list[Failure]:
        """Those of the checks that say something against the answer."""
        failed = [failure for failure in self.checks.values() if failure is not None]
        return [failure for failure in failed if failure.kind not in (PENDING, FOLLOWS)]


@dataclass(frozen=True)
class GradeFolder:
    """The folder of a class's grades, for the instructor; `students/` alone is handed out."""

    path: Path

    def outcome_file(self, student: str, exercise: str) -> Path:
        """Return the file of an outcome."""
        return self.path / "outcomes" / file_name(student) / f"{exercise}.json"

    def outcome(self, student: str, exercise: str) -> GradedAnswer | None:
        """Read an outcome; None where it is missing or damaged."""
        file = self.outcome_file(student, exercise)
        try:
            with refusing_damage(str(file)):
                stored = dict(read_json(file))
                checks = {
                    name: failure and Failure(**failure)
                    for name, failure in stored["checks"].items()
                }
                lists = {name: tuple(stored[name]) for name in ("unexplained", "banned")}
                return GradedAnswer(**{**stored, **lists, "checks": checks})
        except CouldNotRun:
            return None

    def store(self, graded: GradedAnswer) -> None:
        """Write an outcome."""
        file = self.outcome_file(graded.student, graded.exercise)
        make_folder(file.parent)
        write_json(file, asdict(graded))

    def seed(self) -> str:
        """Return the secret seed of the questions, drawn at the first call."""
        file = self.path / "grading.json"
        if not file.exists():
            write_json(file, {"format": FORM, "seed": secrets.token_hex(16)})
        with refusing_damage(str(file)):
            return str(read_json(file)["seed"])


@dataclass(frozen=True)
class _Job:
    answer: SubmittedAnswer
    student: str
    questions: Questions
    exercise_digest: str

    def gave(self, outcome: GradedAnswer) -> bool:
        """Whether an outcome is of this very answer and exercise."""
        graded = (outcome.student, outcome.answer_digest, outcome.exercise_digest)
        return graded == (self.student, self.answer.digest, self.exercise_digest)


def file_name(student: str) -> str:
    """Return a safe name for a student's files: the student's own, or one with a hash.

    >>> file_name("alice"), file_name("../x")
    ('alice', '___x-d6b96a97')
    """
    is_plain = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}", student)
    if is_plain and not HASHED.search(student):  # so it looks like none with a hash
        return student
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", student)[:40]
    return f"{plain}-{hashlib.sha256(student.encode()).hexdigest()[:8]}"


def grade_class(
    submissions: Sequence[Submission],
    exercises: Mapping[str, CourseExercise],
    folder: Path,
    open_worker: OpenWorker,
    *,
    workers: int = 2,
    again: Iterable[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> list[GradedAnswer]:
    """Grade the answers that are not graded yet; return the results of all.

    Args:
        submissions: those of the class.
        exercises: by name.
        folder: of the grades; a run that was killed goes on there.
        open_worker: opens a worker for a submission, jailed where it runs others' code.
        workers: how many submissions are graded at the same time.
        again: exercises whose answers are graded again.
        progress: called with how many are graded, of how many.

    Raises:
        CouldNotRun: the folder is being written or cannot be; a worker cannot be opened.
    """
    make_folder(folder)
    with explained(folder):
        folder.chmod(0o700)  # the seed and the outcomes are the instructor's
    grades = GradeFolder(folder)
    with locked(folder):
        remove_remains(folder)
        jobs = list(_jobs(submissions, exercises, grades.seed()))
        open_jobs = []
        for job in jobs:
            outcome = grades.outcome(job.student, job.answer.exercise)
            if job.answer.exercise in again or outcome is None or not job.gave(outcome):
                open_jobs.append(job)
        _Round(grades, open_worker, len(open_jobs), progress).work_off(open_jobs, workers)
    outcomes = [grades.outcome(job.student, job.answer.exercise) for job in jobs]
    return [outcome for outcome in outcomes if outcome is not None]


def _jobs(
    submissions: Sequence[Submission], exercises: Mapping[str, CourseExercise], seed: str
) -> Iterator[_Job]:
    """Yield the answers to grade; texts are left to a person."""
    questions: dict[str, tuple[Questions, str]] = {}
    code = _code_digest()
    for submission in submissions:
        for name, answer in sorted(submission.answers.items()):
            exercise = exercises[name]
            if exercise.parts.kind == "text":
                continue
            if name not in questions:
                words = f"{code}\n{seed}\n{exercise.source}"
                digest = hashlib.sha256(words.encode()).hexdigest()
                questions[name] = (make_questions(exercise, seed, graded=True), digest)
            yield _Job(answer, submission.student, *questions[name])


def _code_digest() -> str:
    """Return the hash of attnlab's code: exercises judge with helpers from all over it."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for file in sorted(package.rglob("*.py")):
            digest.update(f"{file.relative_to(package.parent)}\n".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


@dataclass
class _Round:
    """The grading of the open answers: submissions side by side, judged one at a time."""

    grades: GradeFolder
    open_worker: OpenWorker
    total: int
    progress: Callable[[int, int], None] | None
    done: int = 0
    stopped: Event = field(default_factory=Event)
    judging: Lock = field(default_factory=Lock)  # judges draw from torch's one generator

    def work_off(self, jobs: Sequence[_Job], workers: int) -> None:
        """Grade all jobs."""
        with ThreadPoolExecutor(workers) as pool:
            try:
                by_student = groupby(jobs, lambda job: job.student)
                running = [pool.submit(self._grade, list(group)) for _, group in by_student]
                for future in as_completed(running):
                    future.result()
            finally:  # on an error or Ctrl-C the others end after their answer
                self.stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)

    def _grade(self, jobs: Sequence[_Job]) -> None:
        """Grade a submission with a worker of its own; data needs none."""
        with self.open_worker() as worker:
            for job in jobs:
                if self.stopped.is_set():
                    return
                reply = _ask(job, worker)
                with self.judging:
                    self.grades.store(_judge(job, reply))
                    self.done += 1
                    if self.progress is not None:
                        self.progress(self.done, self.total)


def _ask(job: _Job, worker: Worker) -> Reply:
    """Put the questions to an answer: run its program, or look them up in its data."""
    cases = job.questions.encoded
    data = job.answer.data
    if data is None:
        program = job.questions.exercise.with_given(job.answer.source + job.answer.adapter)
        return worker.ask(program, f"{job.answer.exercise}.py", cases, is_graded=True)
    answers = []
    for case in cases:
        if case["call"] == "weights" and not case["methods"]:
            answers.append(CaseAnswer(data))
        else:
            answers.append(CaseAnswer(error="Missing", message=case["call"]))
    return Reply(answers)


def _judge(job: _Job, reply: Reply) -> GradedAnswer:
    """Judge a reply; an error of the judge itself is reported to the instructor."""
    exercise, unjudged = job.questions.exercise, None
    try:
        outcome = judge(job.questions, reply)
    except Exception as error:
        unjudged = inert(f"{type(error).__name__}: {error}", _MOST_WORDS)
        outcome = ExerciseOutcome(exercise.name, broken="it could not be judged")
    checks = {}
    for result in outcome.checks:
        failure = result.failure
        if failure is not None:
            failure = replace(failure, words=inert(failure.words, _MOST_WORDS))
        checks[result.check.name] = failure
    return GradedAnswer(
        job.student,
        exercise.name,
        job.answer.digest,
        job.exercise_digest,
        outcome.points,
        checks,
        outcome.mistake.name if outcome.mistake is not None else None,
        outcome.unexplained,
        outcome.broken and inert(outcome.broken, _MOST_WORDS),
        inert(outcome.passed_over, _MOST_WORDS),
        outcome.is_blank,
        tuple(banned_names(job.answer.source, exercise.parts.banned, job.questions.calls)),
        unjudged,
    )
