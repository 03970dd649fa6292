"""What a program uses that an exercise bans, read off its syntax tree.

Behavior cannot tell whether attention was written or called, so names are looked for: plain, as
attributes, imported under another name, or in the texts that `getattr` takes. Code can always hide
a name better than this finds it; a find is therefore reviewed by a person and never punished alone.
"""

import ast
from collections.abc import Iterator, Sequence

from attnlab.course.cells import parse_program

_DYNAMIC = {"exec", "eval", "compile", "vars", "__import__", "importlib", "methodcaller", "pickle"}
"""Names that can reach any other name."""
_LONG = 16  # letters that no other name has by chance
_GETTERS = {"getattr", "attrgetter", "__getattribute__", "getattr_static"}
_INNER = {"_C", "_VF", "ops", "__dict__", "CompilationUnit", "getmembers"}
"""Attributes that lead to the banned functions by other names."""


def banned_names(source: str, banned: Sequence[str]) -> list[str]:
    """Return what a program uses that is banned or could reach it, sorted; nothing if no Python."""
    tree = parse_program(source)
    if tree is None or not banned:
        return []
    unmarked = {*banned, *_DYNAMIC} - _own_names(tree)
    found: set[str] = set()
    try:
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in unmarked:
                found.add(node.id)
            found |= set(_reached(node, banned))
    except RecursionError:
        found.add("expressions nested too deep to read")
    return sorted(found)


def _own_names(tree: ast.Module) -> set[str]:
    """Return the functions and classes that the program defines at its top.

    After `from … import *` a name may be another's.
    """
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            return set()
    return {node.name for node in tree.body if isinstance(node, kinds)}


def _reached(node: ast.AST, banned: Sequence[str]) -> Iterator[str]:
    """Yield the banned names that a node reaches in another module."""
    if isinstance(node, ast.Attribute):
        is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
        if not is_own and (node.attr in _INNER or _is_like(node.attr, banned)):
            yield node.attr
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from _imported(node, banned)
    elif isinstance(node, ast.Subscript):
        yield from _named(node.slice, banned)
    elif isinstance(node, ast.Call):
        yield from _got(node, banned)


def _got(call: ast.Call, banned: Sequence[str]) -> Iterator[str]:
    """Yield the banned names that a call of `getattr` or the like looks up, and computed ones."""
    getter = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if getter in _GETTERS and call.args:
        *_, name = call.args[:2]
        yield from _named(name, banned)
        if _text(name) is None:
            yield f"{getter} of a computed name"


def _is_like(name: str, banned: Sequence[str]) -> bool:
    """Whether a name is a banned one, with underscores around it, or holds a long one."""
    if name.strip("_") in banned or name in banned:
        return True
    return any(len(each) >= _LONG and each in name for each in banned)


def _named(node: ast.AST, banned: Sequence[str]) -> set[str]:
    """Return the banned names in a text that looks a name up."""
    return {*banned} & {*(_text(node) or "").split(".")}


def _imported(node: ast.Import | ast.ImportFrom, banned: Sequence[str]) -> Iterator[str]:
    """Yield the banned names of an import, and ways to import by name."""
    modules = [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        modules.append(node.module or "")
    for module in modules:
        parts = module.split(".")
        yield from {*_INNER, *_DYNAMIC, *_GETTERS} & {*parts}
        yield from (part for part in parts if _is_like(part, banned))
    if any(alias.asname == "self" for alias in node.names):
        yield "an import as self"


def _text(node: ast.AST) -> str | None:
    """Return the text that an expression of constants makes; None for any other."""
    match node:
        case ast.Constant(str(text)):
            return text
        case ast.BinOp(left, ast.Add(), right):
            texts = [_text(left), _text(right)]
        case ast.JoinedStr(values):
            texts = list(map(_text, values))
        case ast.FormattedValue(value):
            return _text(value)
        case _:
            return None
    if not texts or None in texts:
        return None
    return "".join(filter(None, texts))
