"""Submissions: their files, read within limits, and the answers that are in them.

A submission is a zip that `attnlab course submit` wrote, a student's folder, a program or notebook
named after an exercise, a notebook with several exercises, or a record or a homework's log in JSON.
Nothing of it is run or written to the disk here. What is wrong with one is reported,
and the others are read.
"""

import ast
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path, PurePosixPath

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab_course.cases import draw_questions
from attnlab_course.cells import parse_program
from attnlab_course.exercise import CourseExercise
from attnlab_course.grading.file_names import (
    ENDINGS,
    MOST_NAME,
    before_exercise,
    ending_of,
    exercise_of,
    inert,
    number_in,
    student_of,
)
from attnlab_course.grading.homework_log import answers_of_log, is_homework_log
from attnlab_course.grading.nbgrader import code_cells, marked_in, named_in
from attnlab_course.grading.record import answers_of_record
from attnlab_course.grading.submission_files import read_files
from attnlab_course.notebook_cells import join_cells
from attnlab_course.sandbox.runner import Json, encode
from attnlab_course.submit import text_answer
from attnlab_course.workspace import FORM, LOG, is_untouched, read_events

_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)  # of odd JSON
_MOST_TOLD = 20


@dataclass(frozen=True)
class Answer:
    """What was handed in for an exercise.

    Args:
        exercise: its name.
        file: the file's name in the submission.
        source: the program or the text; empty for data.
        data: the JSON of what was handed in as data, graded without running anything.
        adapter: what connects the program's names to those of the exercise; the course's own.
    """

    exercise: str
    file: str
    source: str = ""
    data: Json = None
    adapter: str = ""

    @property
    def digest(self) -> str:
        """The SHA-256 of what was handed in."""
        text = self.source
        if self.data is not None:
            text = json.dumps(self.data, sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass
class Submission:
    """What a student handed in.

    Args:
        student: the name that the file or folder has among the submissions.
        answers: by exercise.
        problems: what is wrong with it, in sentences; none of them costs points.
        label: how the student signed it.
        created: when, by the student's clock; empty where it is not said.
        claims: for each exercise, the digests of the answers that passed by the student's log.
        entries: for each exercise, the file or folder among the submissions that answers it.
        given_up: the exercises whose solution was shown by the log before an answer passed.
        passed_over: files in it whose names are not those of an exercise: they may be answers.
    """

    student: str
    answers: dict[str, Answer] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    label: str = ""
    created: str = ""
    claims: dict[str, set[str]] = field(default_factory=dict)
    entries: dict[str, str] = field(default_factory=dict)
    given_up: set[str] = field(default_factory=set)
    passed_over: list[str] = field(default_factory=list)

    def tell(self, words: str) -> None:
        """Add a problem once, unless there are too many."""
        line = inert(words, 300)
        if len(self.problems) < _MOST_TOLD and line not in self.problems:
            self.problems.append(line)


def read_class(folder: Path, exercises: Mapping[str, CourseExercise]) -> list[Submission]:
    """Read all submissions of a folder, or the one that is named, in the order of their names.

    Raises:
        CouldNotRun: there is none.
    """
    if not folder.exists():
        raise CouldNotRun(f"there is no {folder}; expected a folder of submissions.")
    folder = folder.resolve()  # so that it has a name
    submissions: dict[str, Submission] = {}
    inside = _inside(folder)
    paths = [folder] if inside is None else _submissions_of(inside, exercises)
    for path in paths:
        read_into(submissions, path, exercises, is_of_class=inside is not None)
    if not submissions:
        raise CouldNotRun(
            f"{folder} holds no submission; expected zips, folders, programs or notebooks, one "
            "for each student."
        )
    return [submissions[name] for name in sorted(submissions)]


def entries_passed_over(folder: Path, exercises: Mapping[str, CourseExercise]) -> list[str]:
    """Return the names in a folder of submissions that are none, such as a PDF or a read-me."""
    inside = _inside(folder) or []
    submissions = set(_submissions_of(inside, exercises))
    return [inert(path.name, MOST_NAME) for path in inside if path not in submissions]


def _submissions_of(inside: Iterable[Path], exercises: Mapping[str, CourseExercise]) -> list[Path]:
    """Keep what may be a submission; a text is one if its name has that of an exercise."""
    return [
        path
        for path in inside
        if _may_be_submission(path)
        and (
            path.suffix.lower() != ".txt"
            or path.is_dir()
            or exercise_of(path.stem, exercises, loosely=True)
        )
    ]


def _inside(folder: Path) -> list[Path] | None:
    """Return what lies in a folder of submissions; None where it is a submission itself."""
    if not folder.is_dir():
        return None
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith((".", "__")))
    if {"manifest.json", LOG}.isdisjoint(path.name for path in inside):
        return inside
    return None


def _may_be_submission(path: Path) -> bool:
    return ending_of(path.name) in (".zip", *ENDINGS) or path.is_dir() or path.is_symlink()


def read_into(
    submissions: dict[str, Submission],
    path: Path,
    exercises: Mapping[str, CourseExercise],
    *,
    is_of_class: bool = False,
) -> None:
    """Add the answers of a file or folder to its student's submission, or to those of several.

    Args:
        submissions: those so far, by student.
        path: the file or folder.
        exercises: by name.
        is_of_class: it lies among the submissions of a class, whose folder bears no student's name.
    """
    student = student_of(path, exercises)
    loosely = path.suffix.lower() in ENDINGS
    before = before_exercise(path.stem, exercises, loosely=loosely)
    is_nameless = is_of_class and path.is_file() and not before
    if is_nameless:
        student = inert(path.stem, MOST_NAME)
    try:
        files, problems = read_files(path)
        parts = _by_student(student, files, exercises)
    except Exception as error:  # whatever a student thought of: the others are still read
        parts, problems = {student: {}}, [_unreadable(error)]
    if problems:
        parts.setdefault(student, {})
    for name, part in parts.items():
        submission = Submission(name)
        if is_nameless:
            submission.tell(
                f"{path.name} does not say whose it is: name it STUDENT_{path.name}, or put it "
                "into a folder that is named after the student"
            )
        for words in problems if name == student else ():
            submission.tell(words)
        try:
            _Reader(submission, part, exercises).read()
        except Exception as error:  # as above
            submission.tell(_unreadable(error))
        submission.entries = dict.fromkeys(submission.answers, inert(path.name, MOST_NAME))
        if not submission.answers:
            submission.tell("it holds no answer to an exercise of the course")
        submissions[name] = _joined(submissions.get(name), submission)


def _joined(first: Submission | None, second: Submission) -> Submission:
    """Join what one student handed in at two times: where both answer an exercise, the later one.

    That is the one with the later time in it; without a time in both, the one with the higher
    number in its name, as browsers and course systems count; else the first by name.
    """
    if first is None:
        return second
    has_times = bool(first.created and second.created) and first.created != second.created
    later, earlier = first, second
    if has_times and first.created < second.created:
        later, earlier = second, first
    for name, answer in earlier.answers.items():
        entry = earlier.entries[name]
        kept, kept_entry = later.answers.get(name, answer), later.entries.get(name, entry)
        rule = "the time in it is later"
        if not has_times:
            numbers = number_in(kept_entry), number_in(entry)
            is_higher = numbers[1] > numbers[0]
            if is_higher:
                kept, kept_entry, answer, entry = answer, entry, kept, kept_entry
            rule = "its name has the higher number"
            if numbers[0] == numbers[1]:
                rule = "no time and no number says which is later, and its name comes first"
        later.answers[name], later.entries[name] = kept, kept_entry
        if kept.digest != answer.digest:
            later.tell(f"{name} is answered twice: {kept_entry} counts, {entry} not, as {rule}")
        later.claims.setdefault(name, set()).update(earlier.claims.get(name, ()))
    later.given_up |= earlier.given_up
    later.passed_over += earlier.passed_over
    for words in earlier.problems:
        later.tell(words)
    return replace(
        later, label=later.label or earlier.label, created=later.created or earlier.created
    )


def _unreadable(error: Exception) -> str:
    return f"it could not be read further: {type(error).__name__}: {error}"


def _by_student(
    student: str, files: Mapping[str, bytes], exercises: Mapping[str, CourseExercise]
) -> dict[str, dict[str, bytes]]:
    """Return the files of a zip or folder by student: it may hold the logs of several.

    A log is of the student whose name it or its folder bears, with the other files of that folder.
    """
    owners = {}
    for name, content in files.items():
        if ending_of(name) == ".json" and _is_homework_log(content):
            owners[name] = student_of(Path(student, name), exercises)
    if len({*owners.values()}) < 2 or "manifest.json" in (
        PurePosixPath(name).name for name in files
    ):
        return {student: dict(files)}
    folders = {PurePosixPath(name).parent: owner for name, owner in owners.items()}
    folders.pop(PurePosixPath("."), None)
    parts: dict[str, dict[str, bytes]] = {}
    for name, content in files.items():
        owner = owners.get(name) or folders.get(PurePosixPath(name).parent, student)
        parts.setdefault(owner, {})[name] = content
    return parts


def _is_homework_log(content: bytes) -> bool:
    try:
        return is_homework_log(json.loads(content))
    except (ValueError, RecursionError):
        return False


@dataclass(frozen=True)
class _Reader:
    """Finds the answers in the files of a submission."""

    submission: Submission
    files: Mapping[str, bytes]
    exercises: Mapping[str, CourseExercise]

    def read(self) -> None:
        """Take what the manifest lists; without one, what the files' names and contents say."""
        manifests = [name for name in self.files if PurePosixPath(name).name == "manifest.json"]
        if manifests:
            first = min(manifests, key=len)
            self._read_log(first.removesuffix("manifest.json"))
            if self._read_manifest(first):
                return
        known = [name for name in self.files if ending_of(name) in ENDINGS]
        for file in sorted(known, key=self._rank):
            try:
                self._read_loose(file)
            except _DAMAGE as error:
                self.submission.tell(f"{file} could not be read: {error}")

    def _rank(self, file: str) -> tuple[bool, int, str]:
        """Order files: those first that are named after an exercise as it is, programs first."""
        is_named = exercise_of(PurePosixPath(file).stem, self.exercises) is not None
        return not is_named, ENDINGS.index(ending_of(file)), file

    def _read_manifest(self, name: str) -> bool:
        """Read what a manifest lists; say whether it is one."""
        try:
            manifest = json.loads(self.files[name])
            is_ours = manifest["format"] == FORM and isinstance(manifest["exercises"], dict)
        except (ValueError, KeyError, TypeError, RecursionError):
            is_ours = False
        if not is_ours:
            self.submission.tell(f"manifest.json is not of the form {FORM!r}; its files were read")
            return False
        self.submission.label = inert(str(manifest.get("student", "")), MOST_NAME)
        self.submission.created = inert(str(manifest.get("created", "")), 40)
        for exercise, entry in manifest["exercises"].items():
            self._read_entry(name.removesuffix("manifest.json"), exercise, entry)
        return True

    def _read_entry(self, root: str, exercise: str, entry: Json) -> None:
        if exercise not in self.exercises:
            self.submission.tell(f"the manifest lists {exercise}, which is no exercise here")
            return
        file = str(entry.get("file")) if isinstance(entry, dict) else ""
        content = self.files.get(root + file)
        if content is None:
            self.submission.tell(f"{exercise}: the manifest's file {file} is missing")
            return
        if hashlib.sha256(content).hexdigest() != entry.get("sha256"):
            self.submission.tell(f"{exercise}: {file} is not the file that was handed in (hash)")
        self._take(exercise, root + file)

    def _read_log(self, root: str) -> None:
        """Note which answers passed by the log, and which solutions were shown before."""
        text = self.files.get(root + LOG, b"").decode(errors="replace")
        for event in read_events(text.splitlines()):
            exercise, claims = str(event.get("exercise")), self.submission.claims
            if event.get("done") is True:
                claims.setdefault(exercise, set()).add(str(event.get("sha256")))
            elif event.get("event") == "solution" and exercise not in claims:
                self.submission.given_up.add(exercise)

    def _read_loose(self, file: str) -> None:
        """Read a file that no manifest lists."""
        path = PurePosixPath(file)
        exercise = exercise_of(path.stem, self.exercises, loosely=True)
        if exercise is not None:
            if exercise_of(path.stem, self.exercises) is None:
                self.submission.tell(f"{file} was read as {exercise}{path.suffix.lower()}")
            self._take(exercise, file)
        elif ending_of(file) == ".ipynb":
            self._read_notebook(file)
        elif ending_of(file) == ".json" and path.name != "manifest.json":
            self._read_record(file)
        elif path.name != "manifest.json":
            self.submission.tell(f"{file} was passed over: its name is not that of an exercise")
            self.submission.passed_over.append(inert(file, MOST_NAME))

    def _read_notebook(self, file: str) -> None:
        """Take the exercises that a notebook names, or else those whose functions it defines."""
        text = self._text(file)
        source = self._program_of_notebook(file, text)
        named = [name for name in named_in(text) if name in self.exercises]
        if not named:
            tree = parse_program(source)
            if tree is None:
                self.submission.tell(f"{file} is no Python, so its exercises are not known")
                return
            marked = marked_in(text, self.exercises)
            named = answered_by(_defined(tree), marked, self.exercises)
        for exercise in named:
            self._take(exercise, file)
        if not named:
            self.submission.tell(f"{file} answers no exercise: it defines none of their names")
            self.submission.passed_over.append(inert(file, MOST_NAME))

    def _program_of_notebook(self, file: str, text: str) -> str:
        joined = join_cells(code_cells(text))
        for number in joined.left_out:
            self.submission.tell(
                f"{file}: code cell {number} is no Python or too long, so it was left out"
            )
        return joined.program

    def _read_record(self, file: str) -> None:
        """Take the answers of a record or a homework's log; what a log lacks is left blank."""
        record = json.loads(self._text(file))
        if is_homework_log(record):
            answers, problems = answers_of_log(record)
            for words in problems:
                self.submission.tell(f"{file}: {words}")
        else:
            answers = answers_of_record(record)
        for exercise, answer in answers.items():
            if exercise not in self.exercises:
                continue
            data = encode(answer["weights"]) if "weights" in answer else None
            source = answer.get("source", "")
            if not answer:
                source = self.exercises[exercise].starter
            self._add(Answer(exercise, file, source, data, answer.get("adapter", "")))

    def _take(self, exercise: str, file: str) -> None:
        """Add the answer that a file gives to an exercise, if something is written in it."""
        try:
            answer = self._answer(exercise, file)
        except _DAMAGE as error:
            self.submission.tell(f"{exercise}: {file} could not be read: {error}")
            return
        if answer is not None:
            self._add(answer)

    def _answer(self, exercise: str, file: str) -> Answer | None:
        kind = self.exercises[exercise].parts.kind
        ending = ending_of(file)
        source = self._text(file)
        if ending == ".json":
            answer = Answer(exercise, file, data=json.loads(source)["weights"])
            is_written = answer.digest and kind == "weights"  # its numbers can be written again
            return answer if is_written else None
        if ending == ".ipynb":
            source = self._program_of_notebook(file, source)
        if ending != ".txt":
            if is_untouched(self.exercises[exercise], source):
                return None
            if kind == "text":
                source = text_answer(source) or ""
        if not source.strip():
            return None
        return Answer(exercise, file, source)

    def _add(self, answer: Answer) -> None:
        before = self.submission.answers.get(answer.exercise)
        starter = self.exercises[answer.exercise].starter
        if before is None or (before.data is None and before.source == starter):
            self.submission.answers[answer.exercise] = answer
        elif (
            answer.data is not None or answer.source != starter
        ) and before.digest != answer.digest:
            self.submission.tell(
                f"{answer.exercise} is answered twice: {before.file} is graded, {answer.file} not"
            )

    def _text(self, file: str) -> str:
        try:
            return self.files[file].decode("utf-8-sig")
        except UnicodeError:
            raise WrongUsage("it is no text in UTF-8") from None


@cache
def entry_names(exercise: CourseExercise) -> frozenset[str]:
    """Return the names that an exercise asks a student to define."""
    if exercise.parts.kind != "code":
        return frozenset()
    return frozenset(str(case["call"]) for case in draw_questions(exercise, 0).encoded)


def answered_by(
    defined: Set[str], marked: Set[str], exercises: Mapping[str, CourseExercise]
) -> list[str]:
    """Return the exercises that the names of a program answer, in the course's order.

    A name that several exercises ask for answers those that are marked, else the first one.
    """
    calls = {name: entry_names(exercise) for name, exercise in exercises.items()}
    asked = Counter(call for names in calls.values() for call in names)
    fitting = [name for name in calls if calls[name] and calls[name] <= defined]

    def rank(name: str) -> tuple[bool, bool]:
        return name not in marked, all(asked[call] > 1 for call in calls[name])

    answered: set[str] = set()
    used: set[str] = set()
    for name in sorted(fitting, key=rank):
        if name in marked or not calls[name] <= used:
            answered.add(name)
            used |= calls[name]
    return [name for name in fitting if name in answered]


def _defined(tree: ast.Module) -> set[str]:
    """Return the names that a program defines at its top."""
    names: set[str] = set()
    body = list(tree.body)
    for node in body:
        if isinstance(node, ast.Try):
            body += node.body  # as a notebook's statements stand
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names
