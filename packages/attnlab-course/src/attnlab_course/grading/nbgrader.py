"""The cells of a notebook that answer an exercise, with what nbgrader notes of them."""

import json
import re
from collections.abc import Iterable, Mapping

from attnlab.errors import WrongUsage
from attnlab_course.cells import code_of_notebook
from attnlab_course.exercise import CourseExercise
from attnlab_course.sandbox.replies import of_kind
from attnlab_course.sandbox.student_code import Json

_HEADING = re.compile(r"^[ ]{0,3}#+[ ]+(.*?)[ #]*$", re.MULTILINE)
_CHECK = re.compile(r"""\bcheck\(\s*["'](\w+)["']""")


def _cells(text: str) -> list[Mapping[str, Json]]:
    try:
        cells = json.loads(text)["cells"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WrongUsage(f"expected a notebook, JSON with cells; {error}") from None
    if not isinstance(cells, list):
        return []
    return [cell for cell in cells if isinstance(cell, dict)]


def _part(whole: Json, name: str) -> Mapping[str, Json]:
    """Return a part that is a mapping itself; an empty one where it is none."""
    part: Mapping[str, Json] = of_kind(dict, whole.get(name))
    return part


def _nbgrader(cell: Json) -> Mapping[str, Json]:
    """Return the metadata of nbgrader for a cell."""
    return _part(_part(cell, "metadata"), "nbgrader")


def code_cells(text: str) -> list[str]:
    """Return a notebook's code cells without those of nbgrader that test."""
    kept = []
    for cell in _cells(text):
        marks = _nbgrader(cell)
        if not marks.get("grade") or marks.get("solution"):
            kept.append(cell)
    return code_of_notebook(json.dumps({"cells": kept}))


def named_in(text: str) -> Iterable[str]:
    """Return the exercises that a notebook's metadata names, its own or nbgrader's of a cell."""
    ours = _part(_part(json.loads(text), "metadata"), "attnlab")
    names = [ours.get("exercise")]
    for cell in _cells(text):
        names.append(_nbgrader(cell).get("grade_id"))
    return [name for name in names if isinstance(name, str)]


def marked_in(text: str, exercises: Mapping[str, CourseExercise]) -> set[str]:
    """Return the exercises that a notebook has a heading of, or a cell that checks its answer."""
    words: set[str] = set()
    names: set[str] = set()
    for cell in _cells(text):
        lines = "".join(cell.get("source", ""))
        if cell.get("cell_type") == "markdown":
            words |= {heading.casefold() for heading in _HEADING.findall(lines)}
        else:
            names |= {*_CHECK.findall(lines)}
    for name, exercise in exercises.items():
        statement = _HEADING.findall(exercise.statement)[:1]
        titles = {name, exercise.parts.title, *statement}
        if not words.isdisjoint(map(str.casefold, titles)):
            names.add(name)
    return names & {*exercises}
