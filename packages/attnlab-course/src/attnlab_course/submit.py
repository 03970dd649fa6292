"""The file to hand in: a zip of the answers, the log and a manifest."""

import ast
import hashlib
import io
import json
import unicodedata
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from attnlab import __version__
from attnlab.core.store import make_folder, write_bytes
from attnlab.errors import WrongUsage, not_none
from attnlab_course.cases import encode_case, make_questions, misnamed
from attnlab_course.catalog import holds_back
from attnlab_course.cells import program_tree
from attnlab_course.exercise import Case, CourseExercise
from attnlab_course.grading.bans import ban_words
from attnlab_course.judge import ExerciseOutcome, judge
from attnlab_course.sandbox.replies import AskProgram
from attnlab_course.workspace import FORM, LOG, NEW, Workspace, is_untouched, time_now

_ENDINGS = {"weights": "json", "text": "txt"}
_EPOCH = (1980, 1, 1, 0, 0, 0)  # so that equal answers are equal bytes


@dataclass(frozen=True)
class HandedIn:
    """What a file to hand in holds, and what was left out of it, with the reason."""

    path: Path
    exercises: tuple[str, ...]
    left_out: Mapping[str, str]


def file_label(student: str) -> str:
    """Return a student's name as the file to hand in bears it.

    >>> file_label("Ada Lovelace")
    'Ada-Lovelace'
    """
    plain = unicodedata.normalize("NFC", student)
    return "".join(letter if letter.isalnum() else "-" for letter in plain).strip("-")


def text_answer(source: str) -> str | None:
    """Return the text that a program gives its variable `answer`; it is read, never run."""
    tree = program_tree(source)
    for node in reversed(tree.body):
        match node:
            case ast.Assign(targets=[ast.Name("answer"), *_], value=ast.Constant(str(text))):
                return text.strip()
            case ast.Assign(targets=[ast.Name("answer"), *_]):
                return None
    return None


def check_program(
    exercise: CourseExercise, source: str, path: str, ask: AskProgram, seed: int = 0
) -> ExerciseOutcome:
    """Check a student's program by every check that is not held back for the grading.

    Args:
        exercise: which it answers.
        source: the program.
        path: its name, for messages.
        ask: puts the cases to the program.
        seed: draws the cases.
    """
    if exercise.parts.kind == "text":
        return check_text(exercise, source)
    questions = make_questions(exercise, seed, graded=not holds_back(exercise))
    outcome = judge(questions, ask(exercise.with_given(source), path, questions.encoded))
    if outcome.is_blank or is_untouched(exercise, source):
        return replace(outcome, is_blank=True)
    return replace(outcome, broken=outcome.broken or _misnamed(exercise, source, outcome))


def _misnamed(exercise: CourseExercise, source: str, outcome: ExerciseOutcome) -> str | None:
    """Say what a program defines where nothing that is asked for is there; None otherwise."""
    if {result.failure and result.failure.kind for result in outcome.checks} != {"Missing"}:
        return None
    names = misnamed(exercise, source)
    if not names:
        return None
    cases = [not_none(result.case) for result in outcome.checks]
    kinds = {case.call: "class" if case.build else "function" for case in cases}
    wanted = " and ".join(f"a {kind} {name}" for name, kind in kinds.items())
    return f"you defined {', '.join(names)}; the exercise asks for {wanted}"


def check_text(exercise: CourseExercise, source: str) -> ExerciseOutcome:
    """Check that a text is there; a person reads it."""
    text = text_answer(source)
    if text == "" or is_untouched(exercise, source):
        return ExerciseOutcome(exercise.name, is_blank=True)
    words = None
    if text is None:
        words = "its variable `answer` must be a plain text between quotes"
    return ExerciseOutcome(exercise.name, broken=words)


def hand_in(
    workspace: Workspace,
    exercises: Mapping[str, CourseExercise],
    student: str,
    path: Path,
    ask: AskProgram,
) -> HandedIn:
    """Write the file to hand in.

    Args:
        workspace: the student's folder.
        exercises: those to look for in it.
        student: a label, such as a name or number.
        path: the file to write; its folder is made if it is missing.
        ask: runs the programs that hold matrices, which are handed in as data.

    Raises:
        WrongUsage: there is no answer to hand in.
    """
    if not student.strip():
        raise WrongUsage('name yourself, as your course wants it: attnlab course submit "Ada"')
    files: dict[str, bytes] = {}
    entries: dict[str, dict[str, str]] = {}
    left_out: dict[str, str] = {}
    for name, exercise in exercises.items():
        try:
            source = workspace.answer(exercise).source
        except WrongUsage:
            continue
        if is_untouched(exercise, source):
            left_out[name] = "nothing is written in it"
            continue
        try:
            content = _content(exercise, source, ask)
        except WrongUsage as error:
            left_out[name] = str(error)
            continue
        file = f"work/{name}.{_ENDINGS.get(exercise.parts.kind, 'py')}"
        digest = hashlib.sha256(content).hexdigest()
        entries[name] = {"file": file, "kind": exercise.parts.kind, "sha256": digest}
        files[file] = content
    if not files:
        hint = "begin an exercise with: attnlab course start NAME"
        if left_out:
            hint = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise WrongUsage(f"there is no answer in {workspace.folder} to hand in; {hint}")
    make_folder(path.parent)
    workspace.record("submit", student=student, exercises=sorted(entries))
    files[LOG] = workspace.log.read_bytes()
    manifest = {
        "format": FORM,
        "version": __version__,
        "student": student,
        "created": time_now(),
        "exercises": entries,
    }
    files["manifest.json"] = json.dumps(manifest, indent=2, ensure_ascii=False).encode()
    write_bytes(path, _zip(files))
    return HandedIn(path, tuple(entries), left_out)


def handed_notes(
    handed: HandedIn, workspace: Workspace, exercises: Mapping[str, CourseExercise]
) -> list[str]:
    """Say what a student should know of the file to hand in: answers that did not pass or were not
    checked, those that use what is banned, and what was left out.
    """
    states, notes = workspace.states(), list[str]()
    unsolved: dict[str, list[str]] = {"the last check did not pass": [], "never checked": []}
    for name in handed.exercises:
        state = states.get(name, NEW)
        if not state.passed:
            words = "the last check did not pass" if state.tries else "never checked"
            unsolved[words].append(name)
        words = ban_words(exercises[name], workspace.answer(exercises[name]).source)
        if words:
            notes.append(f"{name} {words}")
    for words, names in unsolved.items():
        if names:
            notes.append(f"handed in, though {words}: {', '.join(names)}")
    notes += [f"left out: {name}, {reason}" for name, reason in handed.left_out.items()]
    return notes


def _content(exercise: CourseExercise, source: str, ask: AskProgram) -> bytes:
    """Return what is handed in for an exercise.

    Raises:
        WrongUsage: there is nothing; its words say why.
    """
    if exercise.parts.kind == "text":
        text = text_answer(source)
        if not text:
            raise WrongUsage("its answer is empty or no plain text")
        return text.encode()
    if exercise.parts.kind != "weights":
        return source.encode()
    program = exercise.with_given(source)
    reply = ask(program, f"{exercise.name}.py", [encode_case(Case("weights"))])
    if reply.problem:
        raise WrongUsage(reply.problem)
    (answer,) = reply.answers
    if answer.error:
        raise WrongUsage(answer.words)
    return json.dumps({"weights": answer.value}).encode()


def _zip(files: Mapping[str, bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    return written.getvalue()
