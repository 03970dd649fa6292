"""One file to hand in: the answers, what they were made with, and the log."""

import ast
import datetime
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab import __version__
from attnlab.core.store import write_bytes
from attnlab.course.check import Answerer, Outcome, error_words
from attnlab.course.exercise import Case, CourseExercise
from attnlab.course.questions import encode_case
from attnlab.course.workspace import FORM, LOG, Workspace, is_untouched
from attnlab.errors import WrongUsage

_ENDINGS = {"weights": "json", "text": "txt"}
_EPOCH = (1980, 1, 1, 0, 0, 0)  # so that equal answers are equal bytes


@dataclass(frozen=True)
class HandedIn:
    """What a file to hand in holds, and what was left out of it, with the reason."""

    path: Path
    exercises: tuple[str, ...]
    left_out: Mapping[str, str]


def text_answer(source: str) -> str | None:
    """Return the text that a program gives its variable `answer`; it is read, never run."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return None
    for node in reversed(body):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "answer":
            is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            return str(node.value.value).strip() if is_text else None  # type: ignore[attr-defined]
    return None


def check_text(exercise: CourseExercise, source: str) -> Outcome:
    """Check that a text is there; a person reads it."""
    text = text_answer(source)
    words = None if text else "its variable `answer` must be a plain text between quotes"
    is_blank = is_untouched(exercise, source) or text == ""
    return Outcome(exercise.name, (), (), None if is_blank else words, 0, is_blank=is_blank)


def hand_in(
    workspace: Workspace,
    exercises: Mapping[str, CourseExercise],
    student: str,
    path: Path,
    answerer: Callable[[str, str], Answerer],
) -> HandedIn:
    """Write the file to hand in.

    Args:
        workspace: the student's folder.
        exercises: those to look for in it.
        student: a label, such as a name or number.
        path: the file to write.
        answerer: makes an answerer of a program and its path; it runs the files that hold
            matrices, which are handed in as data.

    Raises:
        WrongUsage: there is no answer to hand in.
    """
    if not student.strip():
        raise WrongUsage('name yourself, as your course wants it: attnlab course submit "Ada"')
    files: dict[str, bytes] = {}
    entries: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for name, exercise in exercises.items():
        try:
            source = workspace.answer(exercise).source
        except WrongUsage:
            continue
        if is_untouched(exercise, source):
            left_out[name] = "nothing is written in it"
            continue
        content, problem = _content(exercise, source, answerer)
        if content is None:
            left_out[name] = problem
            continue
        file = f"work/{name}.{_ENDINGS.get(exercise.parts.kind, 'py')}"
        digest = hashlib.sha256(content).hexdigest()
        entries[name] = {"file": file, "kind": exercise.parts.kind, "sha256": digest}
        files[file] = content
    if not files:
        raise WrongUsage(
            f"there is no answer in {workspace.folder} to hand in; begin an exercise with: "
            "attnlab course start NAME"
        )
    workspace.record("submit", student=student, exercises=sorted(entries))
    files[LOG] = workspace.log.read_bytes()
    manifest = {
        "format": FORM,
        "version": __version__,
        "student": student,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "exercises": entries,
    }
    files["manifest.json"] = json.dumps(manifest, indent=2, ensure_ascii=False).encode()
    write_bytes(path, _zip(files))
    return HandedIn(path, tuple(entries), left_out)


def _content(
    exercise: CourseExercise, source: str, answerer: Callable[[str, str], Answerer]
) -> tuple[bytes | None, str]:
    """Return what is handed in for an exercise, or None and why there is nothing."""
    if exercise.parts.kind == "text":
        text = text_answer(source)
        return (text.encode(), "") if text else (None, "its answer is empty or no plain text")
    if exercise.parts.kind != "weights":
        return source.encode(), ""
    reply = answerer(source, f"{exercise.name}.py")([encode_case(Case("weights"))])
    if "broken" in reply:
        return None, f"it cannot be run: {error_words(reply['broken'])}"
    (answer,) = reply.get("answers", [{"error": "it did not end", "message": "", "line": None}])
    if "error" in answer:
        return None, error_words(answer)
    return json.dumps({"weights": answer["value"]}).encode(), ""


def _zip(files: Mapping[str, bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    return written.getvalue()
