"""An exercise's file as cells, and what a student gets of it: a program and a notebook.

Both are made from the one file and never read back into it. Neither may hold a line of the
solution; `leaked_lines` finds those that do.
"""

import ast
import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from attnlab.errors import WrongUsage
from attnlab_course.notebook_cells import join_cells

_CELL = re.compile(r"^# %%[ ]*(?:\[(\w+)\])?[^\n]*\n", re.MULTILINE)
_REGION = re.compile(r"^([ ]*)# >>> solution\n(.*?)^[ ]*# <<< solution\n", re.DOTALL | re.MULTILINE)
_STARTER = re.compile(r"^[ ]*# --- starter\n", re.MULTILINE)
_STARTER_PART = re.compile(
    r"^[ ]*# --- starter\n.*?(?=^[ ]*# <<< solution\n)", re.DOTALL | re.MULTILINE
)
KINDS = ("code", "markdown", "hints", "mistakes", "course")
"""What a cell may be; the first two are the student's."""

_LONG = 20  # characters of a line that can give something away


@dataclass(frozen=True)
class NotebookCell:
    """A cell: its kind, one of `KINDS`, and its text."""

    kind: str
    text: str


def split_cells(source: str) -> list[NotebookCell]:
    """Split a file in percent format into its cells; the text before the first is left out.

    Raises:
        WrongUsage: there is no cell, or a kind that is not known.
    """
    marks = list(_CELL.finditer(source))
    if not marks:
        raise WrongUsage("expected cells that begin with '# %%'; got none.")
    cells = []
    ends = [mark.start() for mark in marks[1:]] + [len(source)]
    for mark, end in zip(marks, ends, strict=True):
        kind = mark[1] or "code"
        if kind not in KINDS:
            raise WrongUsage(f"a cell is one of {', '.join(KINDS)}; got {kind}.")
        cells.append(NotebookCell(kind, source[mark.end() : end].strip("\n") + "\n"))
    return cells


@lru_cache(maxsize=256)
def solution_text(source: str) -> str:
    """Return the student's code cells as the course solves them."""
    code = [cell.text for cell in split_cells(source) if cell.kind == "code"]
    return "\n\n".join(_STARTER_PART.sub("", text) for text in code)


def shown_solution(source: str) -> str:
    """Return the solution as a student may read it, without the marks of its regions."""
    return re.sub(r"^[ ]*# (>>>|<<<) solution\n", "", solution_text(source), flags=re.MULTILINE)


def starter_cells(source: str, name: str) -> list[NotebookCell]:
    """Return the student's cells, each solution's region left to be written."""

    def open_region(region: re.Match[str]) -> str:
        parts = _STARTER.split(region[2], maxsplit=1)
        if len(parts) == 2:
            return re.sub(r"^([ ]*)# ?", r"\1", parts[1], flags=re.MULTILINE)
        return f'{region[1]}raise NotImplementedError("{name}: write this part")\n'

    return [
        NotebookCell(cell.kind, _REGION.sub(open_region, cell.text))
        for cell in _student_cells(source)
    ]


def solved_cells(source: str) -> list[NotebookCell]:
    """Return the student's cells, each solution written in its place."""
    return [
        NotebookCell(cell.kind, _STARTER_PART.sub("", cell.text)) for cell in _student_cells(source)
    ]


def _student_cells(source: str) -> list[NotebookCell]:
    return [cell for cell in split_cells(source) if cell.kind in KINDS[:2]]


def cell_text(source: str, kind: str) -> str:
    """Return the text of an exercise's cells of a kind that are written as comments."""
    text = "\n".join(cell.text for cell in split_cells(source) if cell.kind == kind)
    return re.sub(r"^# ?", "", text, flags=re.MULTILINE)


def with_line(source: str, line: str) -> str:
    """Return the student's code with one line in place of each solution."""
    return _REGION.sub(lambda region: f"{region[1]}{line}\n", solution_text(source))


def is_open(node: ast.AST) -> bool:
    """Whether a statement of a starter has a part that the student has to write."""
    names = (part.id for part in ast.walk(node) if isinstance(part, ast.Name))
    return "NotImplementedError" in names


def starter_program(cells: Sequence[NotebookCell]) -> str:
    """Return the student's cells as a program in percent format."""
    marks = {"code": "# %%", "markdown": "# %% [markdown]"}
    return "\n".join(f"{marks[cell.kind]}\n{cell.text}" for cell in cells)


def starter_notebook(cells: Sequence[NotebookCell], name: str) -> str:
    """Return the student's cells as a notebook, with a cell at its end that checks the answer."""
    shown = []
    check = f'import attnlab.course\n\nattnlab.course.check("{name}")\n'
    for number, cell in enumerate([*cells, NotebookCell("code", check)]):
        entry: dict[str, object] = {"cell_type": cell.kind, "id": f"cell-{number}", "metadata": {}}
        text = cell.text
        if cell.kind == "markdown":
            text = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
        else:
            entry |= {"execution_count": None, "outputs": []}
        entry["source"] = text.rstrip("\n").splitlines(keepends=True)
        shown.append(entry)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "attnlab": {"exercise": name}}
    book = {"cells": shown, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def program_of_notebook(text: str) -> str:
    """Return the code cells of a notebook as one program, which a stray cell does not end.

    Raises:
        WrongUsage: the text is no notebook.
    """
    return join_cells(code_of_notebook(text)).program


def code_of_notebook(text: str) -> list[str]:
    """Return the code cells of a notebook.

    Raises:
        WrongUsage: the text is no notebook.
    """
    try:
        cells = json.loads(text)["cells"]
        return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WrongUsage(f"expected a notebook, JSON with cells; {str(error)[:100]}.") from None


def parse_program(source: str) -> ast.Module | None:
    """Return the syntax tree of a student's program; None where it is no Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def program_tree(source: str) -> ast.Module:
    """Return the syntax tree of a student's program; an empty one where it is no Python."""
    return parse_program(source) or ast.Module([], [])


def defined_at_top(tree: ast.Module) -> set[str]:
    """Return the names that a program defines at its top, also within a `try`."""
    names: set[str] = set()
    body = list(tree.body)
    for node in body:
        if isinstance(node, ast.Try):
            body += node.body
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def leaked_lines(starter: str, source: str) -> list[str]:
    """Return the lines of the solutions and of the course's cells that a starter still shows."""
    secret: list[str] = []
    for cell in split_cells(source):
        if cell.kind == "course":
            secret += cell.text.splitlines()
        else:
            for region in _REGION.finditer(cell.text):
                secret += _STARTER.split(region[2])[0].splitlines()
    shown = {line.strip() for line in starter.splitlines()}
    lines = {line.strip() for line in secret} & shown
    return sorted(
        line for line in lines if len(line) > _LONG and not line.startswith(("import ", "from "))
    )
