"""The cells of a notebook as one program that a stray cell does not end.

Lines for the notebook alone (magic, shell, help) are left out, and so are cells that are no Python.
A statement that may fail, such as a demonstration, is wrapped in a `try`; definitions are
not, so that the student reads of an error in one.
"""

import ast
import re
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_MAGIC = re.compile(r"\s*([%!?]|[\w., ()\[\]]+=\s*[%!]|[\w.\[\]*]+\?\??\s*(#.*)?$)")
_PYTHON_CELLS = ("%%time", "%%capture")
"""Magic whose cell runs as any other."""
_PRESENT = {*sys.stdlib_module_names, "numpy", "torch"}
"""Modules whose import does not fail."""
_AROUND = "try:\n    pass\nexcept (Exception, SystemExit):\n    pass\n"
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


def _part(cell: str, futures: list[str]) -> str:
    """Return a cell's part of the program; its imports from `__future__` go to `futures`.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: the cell is no Python or too
            long.
    """
    text = _without_magic(cell)
    tree = _parsed(text)
    if len(tree.body) > _MOST_STATEMENTS:
        raise ValueError("too many statements")
    lines = text.split("\n")
    users = Counter(line for node in tree.body for line in {*_extent(node)})
    imports: list[str] = []
    kept: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            imports.append(ast.unparse(node))
        elif not _is_check(node) and not isinstance(node, ast.Global):
            kept.append(_statement(node, lines, users))
    part = "\n".join(kept)
    if len(kept) == len(tree.body) and all(map(_is_safe, tree.body)):
        part = text
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


def _statement(node: ast.stmt, lines: Sequence[str], users: Counter[int]) -> str:
    """Return a statement as it is written, or in a `try` if it may fail."""
    if not _is_safe(node):
        (around,) = _parsed(_AROUND).body
        assert isinstance(around, ast.Try)
        around.body = [node]
        return ast.unparse(around)
    first, last = _extent(node)
    if users[first] > 1 or users[last] > 1:
        return ast.unparse(node)
    return "\n".join(lines[first - 1 : last])


def _extent(node: ast.stmt) -> tuple[int, int]:
    """Return the first and last line of a statement, with its decorators."""
    decorators = [decorator.lineno for decorator in getattr(node, "decorator_list", ())]
    return min([node.lineno, *decorators]), node.end_lineno or node.lineno


def _is_safe(node: ast.stmt) -> bool:
    """Whether a statement defines, imports what is there, or names a value that is written out."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Pass():
            return True
        case ast.Import(names):
            return all(_is_present(alias.name) for alias in names)
        case ast.ImportFrom(module):
            return _is_present(module or "")
        case ast.Expr(value):
            return isinstance(value, ast.Constant)
        case ast.Assign(targets, value):
            if not isinstance(value, ast.Lambda) and not _is_literal(value):
                return False
            return all(_fits(target, value) for target in targets)
    return False


def _is_present(module: str) -> bool:
    return module.split(".")[0] in _PRESENT


def _fits(target: ast.expr, value: ast.expr) -> bool:
    """Whether a target is a name, or so many names as there are values."""
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return isinstance(target, ast.Name)
    are_names = all(isinstance(element, ast.Name) for element in target.elts)
    return are_names and len(target.elts) == len(value.elts)


def _is_literal(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _is_check(node: ast.stmt) -> bool:
    """Whether a statement is of the cell that checks the answer."""
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
