"""The part of a program that its answer reaches: the functions asked for and all that they use.

A demonstration, a test or another exercise's answer beside it is left out. A statement is kept if
it defines a name that is reached, or may change what such a name holds: by an attribute, a key, a
method, a `global` of a function that is called. What cannot be told apart is kept.
"""

import ast
import symtable
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from attnlab_course.grading.defined_names import all_tables

DYNAMIC = {"exec", "eval", "compile", "vars", "globals", "locals", "__import__", "__builtins__"}
"""Names of Python that can reach any other name."""

_ANYTHING = "*"
"""Stands for what cannot be told: a statement that may change it is always kept."""
_SETTERS = {"setattr", "delattr", "__setattr__", "__setitem__"}
_MAIN = {"__name__ == '__main__'", "'__main__' == __name__"}


@dataclass
class _Statement:
    """A statement at the top of a program.

    Args:
        node: its syntax tree.
        used: global names that it or a function inside it uses.
        bound: names that it binds when it is run.
        written: names of which it, or a function inside it, sets a part; globals that one binds.
        held: names whose object it may change: by a method, or under another name for it.
    """

    node: ast.stmt
    used: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)

    @property
    def is_definition(self) -> bool:
        """Whether it runs nothing but what it defines when that is called."""
        return isinstance(self.node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def reached_code(tree: ast.Module, names: Iterable[str]) -> ast.Module:
    """Return the statements of a program that some of its names reach.

    All of it where it binds none of the names, or cannot be run.
    """
    try:
        statements = list(map(_read, _statements(tree.body)))
        bound = {name for statement in statements for name in statement.bound}
        if "__name__" not in bound:
            statements = list(map(_read, _statements(tree.body, skips_main=True)))
    except (SyntaxError, ValueError):
        return tree
    reached = {*names} & bound
    if not reached:
        return tree
    imports = [one for one in statements if isinstance(one.node, ast.Import | ast.ImportFrom)]
    modules = set[str]().union(*(statement.bound for statement in imports))
    for statement in statements:
        if not statement.written.isdisjoint(modules):  # whoever imports it sees the change
            statement.written.add(_ANYTHING)
        statement.held -= modules
    return _kept(statements, reached | {_ANYTHING})


def _kept(statements: list[_Statement], reached: set[str]) -> ast.Module:
    """Keep what is reached until nothing more is."""
    kept: set[int] = set()
    changers: set[str] = set()  # names of functions that may change what is reached
    before = -1
    while len(kept) > before:
        before = len(kept)
        for number, statement in enumerate(statements):
            changes = reached & (statement.written | statement.held) or changers & statement.used
            if number not in kept and (changes or reached & statement.bound):
                kept.add(number)
                reached |= statement.used
                if changes:
                    (changers if statement.is_definition else reached).update(statement.bound)
    return ast.Module([statements[number].node for number in sorted(kept)], [])


def _statements(body: Iterable[ast.stmt], *, skips_main: bool = False) -> Iterator[ast.stmt]:
    """Yield the statements at the top, those inside `if` and `try` one by one."""
    for node in body:
        if isinstance(node, ast.If):
            yield ast.Expr(node.test)
            if not skips_main or ast.unparse(node.test) not in _MAIN:
                yield from _statements(node.body, skips_main=skips_main)
            yield from _statements(node.orelse, skips_main=skips_main)
        elif isinstance(node, ast.Try):
            parts = [*node.body, *node.orelse, *node.finalbody]
            for handler in node.handlers:
                parts += handler.body
            yield from _statements(parts, skips_main=skips_main)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imports(node)
        else:
            yield node


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[ast.stmt]:
    """Yield an import as one statement for each name; none of `__future__`."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            yield ast.Import([alias])
        elif node.module != "__future__":
            yield ast.ImportFrom(node.module, [alias], node.level)


def _read(node: ast.stmt) -> _Statement:
    """Note what a statement uses, binds and may change."""
    statement = _Statement(node)
    top = symtable.symtable(ast.unparse(node), "answer", "exec")
    for table in all_tables(top):
        for symbol in table.get_symbols():
            _note_symbol(symbol, table, top, statement)
    is_star = isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    if is_star or not statement.used.isdisjoint(DYNAMIC):
        statement.written.add(_ANYTHING)
    for part in ast.walk(node):
        _note_changes(part, statement)
    return statement


def _note_symbol(
    symbol: symtable.Symbol,
    table: symtable.SymbolTable,
    top: symtable.SymbolTable,
    statement: _Statement,
) -> None:
    """Note whether a name is used, bound at the top of a statement, or set from within."""
    name = symbol.get_name()
    is_seen = table is top or symbol.is_global() or isinstance(table, symtable.Class)
    if symbol.is_referenced() and is_seen:
        statement.used.add(name)
    if table is top and symbol.is_local():
        statement.bound.add(name)
    elif symbol.is_assigned() and symbol.is_declared_global():
        statement.written.add(name)


def _note_changes(node: ast.AST, statement: _Statement) -> None:
    """Note whose attributes or parts a node sets, whose methods it calls, what it names anew."""
    match node:
        case ast.Attribute(_, "__dict__" | "__globals__" | "f_globals"):  # whatever is in it
            statement.written.add(_ANYTHING)
        case ast.Attribute(value, _, ast.Store()) | ast.Subscript(value, _, ast.Store()):
            statement.written.add(_root(value))
        case ast.Call(ast.Name(setter) | ast.Attribute(_, setter), [first, *_]) if (
            setter in _SETTERS
        ):
            statement.written.add(_root(first))
        case ast.Call(ast.Attribute(value)) | ast.Assign(
            _, ast.Name() | ast.Attribute() | ast.Subscript() as value
        ):
            statement.held.add(_root(value))
            statement.held.discard(_ANYTHING)  # a method of what a call returns


def _root(node: ast.expr) -> str:
    """Return the name that an expression begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else _ANYTHING
