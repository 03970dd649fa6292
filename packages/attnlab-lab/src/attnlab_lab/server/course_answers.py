"""What the room Course asks: statements, checks of what was typed, hints.

A part of the process with torch; a student's program runs in a process of its own, on the student's
own machine.
"""

import base64
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from numpy.typing import NDArray
from torch import Tensor

from attnlab.errors import WrongUsage, not_none
from attnlab_course.catalog import CHAPTERS, exercise_names, find_exercise
from attnlab_course.cells import (
    NotebookCell,
    shown_solution,
    split_cells,
    starter_cells,
    starter_program,
)
from attnlab_course.compare import item_places
from attnlab_course.exercise import Case, CourseExercise
from attnlab_course.feedback import (
    check_words,
    failure_lines,
    last_check_hint,
    mistake_sentences,
    shown_failures,
    take_hint,
)
from attnlab_course.grading.bans import ban_words
from attnlab_course.judge import CheckResult, ExerciseOutcome, passed_words
from attnlab_course.sandbox.worker import Worker
from attnlab_course.submit import check_program, file_label, hand_in, handed_notes
from attnlab_course.workspace import ExerciseState, Workspace, draw_picture

_MOST_CELLS = 16  # rows and columns of a table
_MOST_TABLES = 64
_TAGS = {"h1": "h2", "h2": "h3", "h3": "h4"}  # the page has its own heading
_ARRAYS = (Tensor, np.ndarray)
_Array = Tensor | NDArray[Any]
_Node = str | list[Any]


def _course(folder: str) -> dict[str, object]:
    """List the chapters, and how far each exercise is."""
    states = Workspace(Path(folder)).states()
    chapters = []
    for title, names in CHAPTERS.items():
        exercises = [_summary(find_exercise(name), states.get(name)) for name in names]
        chapters.append({"title": title, "exercises": exercises})
    return {"folder": folder, "chapters": chapters}


def _open(folder: str, name: str) -> dict[str, object]:
    """Return the statement of an exercise and the answer so far."""
    exercise, workspace = find_exercise(name), Workspace(Path(folder))
    cells = starter_cells(exercise.source, name)
    source = starter_program(cells)
    if workspace.files(name):
        source = workspace.answer(exercise).source
    state = workspace.states().get(name, ExerciseState())
    return {
        **_summary(exercise, state),
        "statement": [node for cell in _texts(cells) for node in _nodes(cell)],
        "picture": _picture(name),
        "code": _code(source),
        "hint": list(exercise.hints[: state.hints]),
        "has_mistake": bool(last_check_hint(workspace, exercise, state)),
        "all_hints": len(exercise.hints),
        "rubric": list(exercise.parts.rubric),
        "file": str(workspace.folder / f"{name}.py"),
    }


def _check(folder: str, name: str, code: str) -> dict[str, object]:
    """Save an answer and check it."""
    exercise, workspace = find_exercise(name), Workspace(Path(folder))
    texts = _texts(starter_cells(exercise.source, name))
    source = starter_program([*texts, NotebookCell("code", code)])
    if not workspace.files(name):
        workspace.start(exercise)
    workspace.save(exercise, source)
    started, handler = time.monotonic(), signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, _stop_once)
        # Without the texts, so that a line that an error names is a line of what was typed.
        outcome = check_program(exercise, code, f"{name}.py", _worker().ask)
    except KeyboardInterrupt:
        _worker().close()  # with the process of the answer, or the one that just begins
        state = workspace.states().get(name, ExerciseState())
        return {"stopped": time.monotonic() - started, "state": _state(state)}
    finally:
        signal.signal(signal.SIGINT, handler)
    workspace.record_check(exercise, source, outcome)
    state = workspace.states().get(name, ExerciseState())
    return {
        **_told(exercise, outcome),
        "banned": ban_words(exercise, code),
        "has_hint": bool(last_check_hint(workspace, exercise, state)),
        "state": _state(state),
    }


def _stop_once(number: int, frame: FrameType | None) -> None:
    """Raise an interrupt, and ignore those that come after it until the answer is there."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _hint(folder: str, name: str) -> dict[str, object]:
    """Return the next hint, and those before it; first that of what the answer lacks."""
    exercise, workspace = find_exercise(name), Workspace(Path(folder))
    hints = exercise.hints
    lines, number = take_hint(workspace, exercise)
    more = {"mistake": lines} if lines else {}
    return {"hint": list(hints[:number]), "all_hints": len(hints), **more}


def _solution(folder: str, name: str) -> dict[str, object]:
    """Return the solution of an exercise, and note that it was shown."""
    exercise = find_exercise(name)
    Workspace(Path(folder)).record("solution", exercise=name)
    return {"solution": shown_solution(exercise.source).strip()}


def _submit(folder: str, student: str) -> dict[str, object]:
    """Return the file to hand in."""
    known = {name: find_exercise(name) for name in exercise_names()}
    workspace = Workspace(Path(folder))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"{file_label(student) or 'answers'}.zip"
        handed = hand_in(workspace, known, student, path, _worker().ask)
        content = path.read_bytes()
    return {
        "file": path.name,
        "zip": base64.b64encode(content).decode(),
        "exercises": list(handed.exercises),
        "notes": handed_notes(handed, workspace, known),
    }


def _summary(exercise: CourseExercise, state: ExerciseState | None) -> dict[str, object]:
    parts = exercise.parts
    return {
        "name": exercise.name,
        "title": parts.title,
        "kind": parts.kind,
        "level": parts.level,
        "minutes": parts.minutes,
        "points": exercise.points,
        "state": _state(state),
    }


def _state(state: ExerciseState | None) -> str:
    if state is None or not (state.tries or state.hints):
        return "new"
    return "solved" if state.solved else "begun"


def _told(exercise: CourseExercise, outcome: ExerciseOutcome) -> dict[str, object]:
    """Say what came of a check: each criterion, the cases that are shown, the mistake."""
    failures = [_failed(exercise, result) for result in shown_failures(outcome)]
    return {
        "passed": outcome.passed,
        "verdict": passed_words(result.failure for result in outcome.checks),
        "is_blank": outcome.is_blank,
        "broken": outcome.broken,
        "checks": list(map(_criterion, outcome.checks)),
        "failures": failures,
        "mistake": " ".join(mistake_sentences(outcome)) or None,
        "waiting": outcome.waiting,
    }


def _criterion(result: CheckResult) -> dict[str, object]:
    state = {"passed": result.passed, "open": result.is_open}
    return {"name": result.check.name, "words": check_words(result), **state}


def _failed(exercise: CourseExercise, result: CheckResult) -> dict[str, object]:
    case = not_none(result.case)
    return {
        "check": result.check.name,
        "lines": failure_lines(exercise, result),
        "words": not_none(result.failure).words,
        "tables": _compared(case, result.value, exercise.result_names(case)),
    }


def _compared(case: Case, got: object, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the arrays of two answers as tables of numbers: those expected, the student's, and
    their difference, 0 where it is within the tolerance. Nothing where no two are far apart.

    `leading` are the axes before rows and columns, along which the tables are numbered.
    """
    arrays = list[dict[str, Any]]()
    for where, one, other in _arrays("answer", case.expected, got, names):
        tables = _three_tables(one, other, case.tolerance)
        if tables is not None:
            arrays.append({"name": where, "leading": list(np.shape(one)[:-2]), **tables})
    return arrays if any(np.any(array["difference"]) for array in arrays) else []


def _three_tables(expected: _Array, got: _Array, tolerance: float) -> dict[str, object] | None:
    """Return two arrays and their difference as tables; None where they cannot be subtracted."""
    right, yours = _tables(expected), _tables(got)
    if right is None or yours is None or np.shape(expected) != np.shape(got):
        return None
    if not np.isfinite([right, yours]).all():
        return None
    difference = np.where(np.isclose(right, yours, tolerance, tolerance), 0.0, yours - right)
    tables = {"expected": right, "yours": yours, "difference": difference}
    return {name: table.tolist() for name, table in tables.items()}


def _arrays(
    where: str, expected: object, got: object, names: Sequence[str] = ()
) -> Iterator[tuple[str, _Array, _Array]]:
    """Yield the arrays in the same places of two answers, with the name of the place."""
    if isinstance(expected, _ARRAYS) and isinstance(got, _ARRAYS):
        yield where, expected, got
    elif isinstance(expected, Mapping) and isinstance(got, Mapping):
        for name, value in expected.items():
            yield from _arrays(f"{where}[{name!r}]", value, got.get(name))
    elif isinstance(expected, list | tuple) and isinstance(got, list):
        places = names or item_places(where, len(expected))
        for place, one, other in zip(places, expected, got, strict=False):
            yield from _arrays(place, one, other)


def _tables(value: _Array) -> NDArray[np.float64] | None:
    """Return numbers as (table, row, column); None where there are too many, or none."""
    array = np.asarray(value)
    if array.ndim == 0 or array.dtype.kind not in "biuf" or array.size == 0:
        return None
    rows = np.atleast_2d(array).astype(float)
    tables = rows.reshape(-1, *rows.shape[-2:])
    return tables if max(rows.shape[-2:]) <= _MOST_CELLS and len(tables) <= _MOST_TABLES else None


def _code(source: str) -> str:
    """Return the code of a program in percent format, without its texts."""
    try:
        cells = [cell.text for cell in split_cells(source) if cell.kind == "code"]
    except WrongUsage:
        return source
    return "\n\n".join(cells) if cells else source


def _texts(cells: Iterable[NotebookCell]) -> list[NotebookCell]:
    return [cell for cell in cells if cell.kind == "markdown"]


@cache
def _picture(name: str) -> str | None:
    picture = draw_picture(find_exercise(name))
    return None if picture is None else picture.decode()


@cache
def _worker() -> Worker:
    """Return the process that runs programs; it ends when this one does."""
    return Worker().__enter__()


def _nodes(cell: NotebookCell) -> list[_Node]:
    """Return a text in Markdown as nested lists: a tag, then what it holds."""
    lines = [line.removeprefix("#").removeprefix(" ") for line in cell.text.splitlines()]
    tree = SyntaxTreeNode(MarkdownIt("commonmark").enable("table").parse("\n".join(lines)))
    return [node for child in tree.children for node in _node(child)]


def _node(node: SyntaxTreeNode) -> list[_Node]:
    code: _Node = ["code", node.content]
    leaves: dict[str, list[_Node]] = {
        "text": [node.content],
        "code_inline": [code],
        "code_block": [["pre", code]],
        "fence": [["pre", code]],
        "softbreak": [" "],
        "hardbreak": [" "],
        "image": [],  # the page shows the picture itself
    }
    if node.type in leaves:
        return leaves[node.type]
    inner = [leaf for child in node.children for leaf in _node(child)]
    return [[_TAGS.get(node.tag, node.tag), *inner]] if node.tag else inner


WORK: Mapping[str, Callable[..., object]] = {
    "course": _course,
    "open_exercise": _open,
    "check_exercise": _check,
    "hint_exercise": _hint,
    "solution_exercise": _solution,
    "submit": _submit,
}
