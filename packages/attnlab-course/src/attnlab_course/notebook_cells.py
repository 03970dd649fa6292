"""The cells of a notebook as one program that a stray cell does not end.

Lines for the notebook alone (magic, shell, help) are left out, and so are cells that are no Python.
A statement that fails when the program is run, such as a demonstration, is passed over there
(`sandbox/runner.py`).
"""

import ast
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

_MAGIC = re.compile(r"\s*([%!?]|[\w., ()\[\]]+=\s*[%!]|[\w.\[\]*]+\?\??\s*(#.*)?$)")
_PYTHON_CELLS = ("%%time", "%%capture")
"""Magic whose cell runs as any other."""
_MOST_STATEMENTS = 2000  # of a cell
_MOST_MAGIC = 100  # lines of a cell


@dataclass(frozen=True)
class JoinedCells:
    """A notebook's program, and which code cells are no Python or too long, counted from 1."""

    program: str
    left_out: tuple[int, ...]


def join_cells(cells: Sequence[str]) -> JoinedCells:
    """Join the code cells of a notebook."""
    futures: list[str] = []
    parts: list[str] = []
    left_out: list[int] = []
    for number, cell in enumerate(cells, 1):
        head, _, rest = cell.strip().partition("\n")
        if head.startswith("%%"):
            if head.split()[0] not in _PYTHON_CELLS:
                continue
            cell = rest
        try:
            part = _part(cell, futures)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            left_out.append(number)
        else:
            parts.append(part)
    return JoinedCells("\n\n".join([*dict.fromkeys(futures), *parts]) + "\n", tuple(left_out))


def without_magic(source: str) -> str:
    """Return a program without the lines for a notebook that Colab and Jupyter leave in a .py.

    One that is no Python for another reason stays as it is.
    """
    try:
        return _without_magic(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source


def _part(cell: str, futures: list[str]) -> str:
    """Return a cell's part of the program; its imports from `__future__` go to `futures`.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: the cell is no Python or too
            long.
    """
    text = _without_magic(cell)
    body = _parsed(text).body
    if len(body) > _MOST_STATEMENTS:
        raise ValueError("too many statements")
    imports = [ast.unparse(node) for node in body if _is_future(node)]
    kept = [node for node in body if not (_is_future(node) or _is_left_out(node))]
    part = text if len(kept) == len(body) else "\n".join(map(ast.unparse, kept))
    _compile("\n".join([*imports, part]))  # a stray `return` parses, too
    futures += imports
    return part


def _compile(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile(text, "cell", "exec", dont_inherit=True)


def _parsed(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _is_left_out(node: ast.stmt) -> bool:
    """Whether a statement checks the answer, or declares a name that the cells before may hold."""
    if isinstance(node, ast.Global):
        return True
    if isinstance(node, ast.Import):
        return all(alias.name.startswith("attnlab.course") for alias in node.names)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func).startswith("attnlab.course.")
    return False


def _without_magic(cell: str) -> str:
    """Return a cell with an empty statement for each line that only a notebook understands.

    Python's own parser says where such a line is, so one within a text or brackets stays.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: the cell is no Python.
    """
    lines = cell.split("\n")
    for _ in range(_MOST_MAGIC):
        try:
            _parsed("\n".join(lines))
        except SyntaxError as error:
            place = (error.lineno or 0) - 1
            if not 0 <= place < len(lines) or not _MAGIC.match(lines[place]):
                raise
        else:
            break
        is_continued = True
        while is_continued and place < len(lines):
            line = lines[place]
            indent = line[: len(line) - len(line.lstrip())]
            lines[place] = f"{indent}pass" if indent else ""
            is_continued = line.rstrip().endswith("\\")
            place += 1
    return "\n".join(lines)
