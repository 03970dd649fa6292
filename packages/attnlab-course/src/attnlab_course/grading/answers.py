"""The answers that are in the files of a submission.

What a manifest lists is an answer. Without one it is a program or notebook that is named after an
exercise, a notebook that answers several, a record or a homework's log in JSON.
"""

import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from attnlab.errors import WrongUsage
from attnlab_course.cases import entry_names
from attnlab_course.cells import defined_at_top, program_tree
from attnlab_course.exercise import CourseExercise
from attnlab_course.grading.file_names import (
    ENDINGS,
    MOST_NAME,
    ending_of,
    exercise_of,
    inert,
    number_in,
)
from attnlab_course.grading.homework_log import answers_of_log, is_homework_log
from attnlab_course.grading.nbgrader import code_cells, marked_in, named_in
from attnlab_course.grading.record import answers_of_record
from attnlab_course.grading.submission import Submission, SubmittedAnswer
from attnlab_course.notebook_cells import join_cells, without_magic
from attnlab_course.sandbox.replies import of_kind
from attnlab_course.sandbox.student_code import Json, encode
from attnlab_course.submit import text_answer
from attnlab_course.workspace import FORM, LOG, is_untouched, read_events

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)  # of odd JSON


@dataclass(frozen=True)
class AnswerReader:
    """Finds the answers in the files of a submission."""

    submission: Submission
    files: Mapping[str, bytes]
    exercises: Mapping[str, CourseExercise]
    unnamed: list[str] = field(default_factory=list)
    """Programs and texts whose names are not those of an exercise."""

    def read(self) -> None:
        """Take what the manifest lists; without one, what the files' names and contents say."""
        manifests = [name for name in self.files if PurePosixPath(name).name == "manifest.json"]
        if manifests:
            first = min(manifests, key=len)
            self._read_log(first.removesuffix("manifest.json"))
            if self._read_manifest(first):
                return
        known = [name for name in self.files if ending_of(name) in ENDINGS]
        for file in sorted({*known} - {*manifests}, key=self._rank):
            try:
                self._read_loose(file)
            except _DAMAGE as error:
                self._pass_over(file, f"could not be read: {error}")
        has_answers = bool(self.submission.answers)
        for file in self.unnamed:
            if has_answers or not self._read_by_names(file):
                self._pass_over(file, "was passed over: its name is not that of an exercise")

    def _pass_over(self, file: str, reason: str) -> None:
        """Note a file that may hold an answer and is not read, and why."""
        self.submission.tell(f"{file} {reason}")
        self.submission.passed_over.append(inert(file, MOST_NAME))

    def _rank(self, file: str) -> tuple[bool, int, int, str]:
        """Order files: those named after an exercise as it is, programs, and high numbers first."""
        is_named = exercise_of(PurePosixPath(file).stem, self.exercises) is not None
        return not is_named, ENDINGS.index(ending_of(file)), -number_in(file), file

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
        entry = of_kind(dict, entry)
        file = str(entry.get("file"))
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
        elif ending_of(file) == ".json":
            self._read_record(file)
        else:
            self.unnamed.append(file)

    def _read_notebook(self, file: str) -> None:
        """Take the exercises that a notebook names, or else those whose functions it defines."""
        text = self._text(file)
        tree = program_tree(self._program(file))
        named = [name for name in named_in(text) if name in self.exercises]
        if not named:
            marked = marked_in(text, self.exercises)
            named = answered_by(defined_at_top(tree), marked, self.exercises)
        for exercise in named:
            self._take(exercise, file)
        if not named:
            self._pass_over(file, "answers no exercise: it defines none of their names")

    def _read_by_names(self, file: str) -> bool:
        """Take the exercises whose functions a program of any name defines; say if there are."""
        try:
            tree = program_tree(self._program(file))
        except WrongUsage:  # it is no text
            return False
        answered = answered_by(defined_at_top(tree), set(), self.exercises)
        for exercise in answered:
            self.submission.tell(f"{file} was read as {exercise}, as it defines what is asked for")
            self._take(exercise, file)
        return bool(answered)

    def _program(self, file: str) -> str:
        """Return the program of a file: of a notebook, its cells in turn."""
        if ending_of(file) != ".ipynb":
            return without_magic(self._text(file))
        joined = join_cells(code_cells(self._text(file)))
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
            source = answer.get("source", "") if answer else self.exercises[exercise].starter
            data = encode(answer.get("weights"))
            self._add(SubmittedAnswer(exercise, file, source, data, answer.get("adapter", "")))

    def _take(self, exercise: str, file: str) -> None:
        """Add the answer that a file gives to an exercise, if something is written in it."""
        try:
            answer = self._answer(exercise, file)
        except _DAMAGE as error:
            self.submission.tell(f"{exercise}: {file} could not be read: {error}")
            self.submission.unreadable.add(exercise)
            return
        if answer is not None:
            self._add(answer)
        elif not self.files[file].strip():
            self.submission.tell(f"{file} is empty")
            self.submission.blank.add(exercise)

    def _answer(self, exercise: str, file: str) -> SubmittedAnswer | None:
        kind, source = self.exercises[exercise].parts.kind, self._text(file)
        if ending_of(file) == ".json":
            answer = SubmittedAnswer(exercise, file, data=json.loads(source)["weights"])
            is_written = answer.digest and kind == "weights"  # its numbers can be written again
            return answer if is_written else None
        if ending_of(file) != ".txt":
            source = self._program(file)
            if is_untouched(self.exercises[exercise], source):
                self.submission.blank.add(exercise)
                return None
            if kind == "text":
                source = text_answer(source) or ""
        return SubmittedAnswer(exercise, file, source) if source.strip() else None

    def _add(self, answer: SubmittedAnswer) -> None:
        before = self.submission.answers.get(answer.exercise)
        if before is None or self._is_starter(before):
            self.submission.answers[answer.exercise] = answer
        elif not self._is_starter(answer) and before.digest != answer.digest:
            self.submission.tell(
                f"{answer.exercise} is answered twice: {before.file} is graded, {answer.file} not"
            )

    def _is_starter(self, answer: SubmittedAnswer) -> bool:
        """Is an answer the template of its exercise?"""
        return answer.data is None and answer.source == self.exercises[answer.exercise].starter

    def _text(self, file: str) -> str:
        """Return the text of a file, also in the encodings of older systems."""
        content = self.files[file]
        try:
            return content.decode("utf-16" if content[:2] in _UTF_16 else "utf-8-sig")
        except UnicodeError:
            if b"\0" in content:
                raise WrongUsage("it is no text") from None
        self.submission.tell(f"{file} is not in UTF-8, and was read as Latin-1")
        return content.decode("latin-1")


def answered_by(
    defined: Set[str], marked: Set[str], exercises: Mapping[str, CourseExercise]
) -> list[str]:
    """Return the exercises that the names of a program answer, in the course's order.

    A name that several exercises ask for answers those that are marked, else the one that asks for
    most names, the first of them.
    """
    calls = {name: entry_names(exercise) for name, exercise in exercises.items()}
    fitting = [name for name in calls if calls[name] and calls[name] <= defined]
    answered: set[str] = set()
    used: set[str] = set()
    for name in sorted(fitting, key=lambda name: (name not in marked, -len(calls[name]))):
        if name in marked or not calls[name] <= used:
            answered.add(name)
            used |= calls[name]
    return [name for name in fitting if name in answered]
