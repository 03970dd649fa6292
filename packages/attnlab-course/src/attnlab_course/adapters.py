"""Files that connect a transformer written elsewhere to the checks of the course.

Such a file defines names that exercises ask for, or the adapter functions of another course, from
which `SHIM` makes them. Nothing here runs it: its names are read off its syntax tree.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from attnlab.errors import WrongUsage
from attnlab_course import shim
from attnlab_course.catalog import exercise_names, find_exercise
from attnlab_course.cells import is_open, split_cells

SHIM = Path(shim.__file__).read_text(encoding="utf-8")
"""The text of a module whose `adapt` makes the names that are missing in a file of adapters."""

_SHAPE_ROW = re.compile(r"^# \| (?!---)(.+) \|$", re.MULTILINE)
_HEADER = '''"""Adapters: connect a transformer of your own to the checks of attnlab's course.

Fill in what you have and leave the rest as it is; arguments may have other names, in this order.
What is checked is in the statement: attnlab course start EXERCISE. In place of these names, a file
may have the adapter functions of Stanford CS336's assignment 1, run_softmax and so on.
"""

import math

import numpy as np
import torch
from torch import nn
'''

Definition = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Stub:
    """A function or class that an exercise asks for.

    Args:
        exercise: its name.
        name: of the function or class.
        node: its stub.
    """

    exercise: str
    name: str
    node: Definition


def adapted_exercises(source: str) -> list[str]:
    """Return the exercises that a file can be checked for, in the course's order.

    Args:
        source: the file's text. It is only read.

    Raises:
        WrongUsage: it is no Python.
    """
    try:
        defined = dict(_defined(ast.parse(source).body))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise WrongUsage(f"expected a file of Python; {str(error)[:100]}.") from None
    names: list[str] = []
    taken: set[str] = set()
    for stub in _all_stubs():
        is_there = stub.name in shim.MAKERS and shim.MAKERS[stub.name][0] in defined
        if stub.name in defined and not is_there:
            is_there = _fits(defined[stub.name], stub, taken)
            taken.add(stub.name)
        if is_there and stub.exercise not in names:
            names.append(stub.exercise)
    return names


def adapter_template() -> str:
    """Return a file with a stub for each function and class that an exercise asks for."""
    stubs: dict[str, list[Stub]] = {}
    for stub in _all_stubs():
        stubs.setdefault(stub.name, []).append(stub)
    parts = [_HEADER]
    for group in stubs.values():
        widest = max(group, key=lambda stub: _num_parameters(stub.node) or 0)
        titles = [
            f"# {stub.exercise}: {find_exercise(stub.exercise).parts.title}" for stub in group
        ]
        rows = _shape_rows(find_exercise(widest.exercise).source)
        parts.append("\n".join([*titles, *rows, ast.unparse(widest.node)]) + "\n")
    return "\n\n".join(parts)


@cache
def _all_stubs() -> tuple[Stub, ...]:
    """Return what the exercises with code ask for, in the course's order."""
    stubs = []
    for name in exercise_names():
        exercise = find_exercise(name)
        if exercise.parts.kind != "code":
            continue
        for node in ast.parse(exercise.starter).body:
            if isinstance(node, Definition) and is_open(node):
                stubs.append(Stub(name, node.name, node))
    return tuple(stubs)


def _defined(body: list[ast.stmt]) -> Iterator[tuple[str, Definition | None]]:
    """Yield the names that statements define, each with its definition where it can be seen."""
    for node in body:
        if isinstance(node, Definition):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], None
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for part in ast.walk(node):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    yield part.id, None
        else:
            for inner in ("body", "orelse", "handlers", "finalbody"):
                yield from _defined(getattr(node, inner, []))


def _fits(node: Definition | None, stub: Stub, taken: set[str]) -> bool:
    """Whether a definition takes as many arguments as the exercise asks for.

    Several exercises may ask for one name. An imported function, whose arguments cannot be seen,
    answers the first of them.
    """
    if node is None:
        return stub.name not in taken
    count, wanted = _num_parameters(node), _num_parameters(stub.node)
    return count is None or wanted is None or count >= wanted


def _num_parameters(node: Definition) -> int | None:
    """Return how many arguments a definition takes; None for any number or an unknown one."""
    if isinstance(node, ast.ClassDef):
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                return _num_parameters(method)
        return None
    arguments = node.args
    if arguments.vararg or arguments.kwarg:
        return None
    return len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)


def _shape_rows(source: str) -> list[str]:
    """Return the rows of the first table of an exercise's statement, as comments."""
    for cell in split_cells(source):
        if cell.kind == "markdown":
            rows = [match[1].replace("`", "") for match in _SHAPE_ROW.finditer(cell.text)]
            return ["#   " + row.replace(" | ", ": ") for row in rows if not row.startswith("|")]
    return []
