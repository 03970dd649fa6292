"""What a program uses that an exercise bans, read off its syntax tree.

Behavior cannot tell whether attention was written or called, so names are looked for: plain, as
attributes, imported under another name, or in the texts that `getattr` takes. A name that the
program defines itself is no match, see `defined_names.py`; code that the answer does not reach is
left out, see `reached_code.py`. Code can always hide a name better than
this finds it; a match is therefore reviewed by a person and never punished alone.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from attnlab_course.cases import make_questions
from attnlab_course.cells import parse_program
from attnlab_course.exercise import CourseExercise
from attnlab_course.grading.defined_names import DefinedNames, global_names
from attnlab_course.grading.reached_code import DYNAMIC, reached_code

_DYNAMIC_MODULES = {"importlib", "builtins", "pickle", "marshal", "dill", "cloudpickle", "runpy"}
_GETTERS = {"getattr", "attrgetter", "__getattribute__", "__getattr__", "getattr_static"}
_INNER = {
    *("_C", "_VF", "ops", "__dict__", "__globals__", "__builtins__", "__subclasses__"),
    *("CompilationUnit", "getmembers", "getmembers_static", "methodcaller", "resolve_name"),
    *("get_overridable_functions", "get_testing_overrides", "f_globals", "f_builtins"),
}
"""Attributes that lead to the banned functions by other names."""

_EQUALS = {
    "softmax": (
        *("logitstoprobs", "categorical", "logcumsumexp", "crossentropy"),
        *("dotproductattention", "multihead"),
    ),
    "scaleddotproductattention": ("flexattention", "transformerencoder", "transformerdecoder"),
    "crossentropy": ("categorical",),
    "layernorm": ("instancenorm", "batchnorm", "normalize"),
}
"""Pieces of the names of PyTorch's own functions that compute a banned one."""


def banned_names(source: str, banned: Sequence[str], answer: Iterable[str] = ()) -> list[str]:
    """Return what an answer uses that is banned or could reach it, sorted; nothing if no Python.

    Args:
        source: the program.
        banned: the names.
        answer: the names that the exercise asks for; all of the program counts where it has none.
    """
    tree = parse_program(source)
    if tree is None or not banned:
        return []
    names: set[str] = set()
    try:
        tree = reached_code(tree, answer)
        names |= _global_finds(ast.unparse(tree), tree, banned)
        reader = _Reader(DefinedNames(tree), banned)
        for node in ast.walk(tree):
            names |= set(reader.reached(node))
    except RecursionError:
        names.add("expressions nested too deep to read")
    return sorted(names)


def ban_words(exercise: CourseExercise, source: str) -> str:
    """Tell a student what an answer uses that its exercise bans; an empty text without any."""
    banned = exercise.parts.banned
    if not banned:
        return ""
    used = banned_names(source, banned, make_questions(exercise, 0, graded=True).calls)
    if not used:
        return ""
    names = ", ".join(used)
    return f"uses {names}, which this exercise does not allow; a teacher will look at it"


def line_of_use(
    source: str, banned: Sequence[str], names: Iterable[str], answer: Iterable[str] = ()
) -> int | None:
    """Return the line of a program that uses one of the names; None where it cannot be told.

    Args:
        source: the program.
        banned: the names that the exercise bans.
        names: those that `banned_names` found.
        answer: the names that the exercise asks for; what they reach comes first.
    """
    tree, names = parse_program(source), {*names}
    if tree is None:
        return None
    try:
        places = list(_uses(reached_code(tree, answer), banned, names))
        places = places or list(_uses(tree, banned, names))
    except RecursionError:
        return None
    return min(places)[1] if places else None


def _uses(tree: ast.Module, banned: Sequence[str], names: set[str]) -> Iterator[tuple[int, int]]:
    """Yield the lines that use a name, with a rank: what reaches it, a plain name, an import."""
    reader = _Reader(DefinedNames(tree), banned)
    for node in ast.walk(tree):
        line = getattr(node, "lineno", None)  # none in a statement that was taken apart
        if line is None:
            continue
        if isinstance(node, ast.Attribute):
            line = node.end_lineno or line  # of the attribute, in a chain of several lines
        if not names.isdisjoint(reader.reached(node)):
            yield 2 if isinstance(node, ast.Import | ast.ImportFrom) else 0, line
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
            yield 1, line


def _global_finds(source: str, tree: ast.Module, banned: Sequence[str]) -> set[str]:
    """Return the banned and dynamic names that no scope of the program defines.

    After `from … import *` a name of the program may be another's.
    """
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = global_names(source)
    used = {*names.foreign, *names.assigned} & (DYNAMIC | _DYNAMIC_MODULES)
    used |= names.foreign & {*banned}
    if any(node.names[0].name == "*" for node in imports):
        everything = names.foreign | names.assigned | names.defined
        used |= {name for name in everything if is_like(name, banned)}
        used |= everything & DYNAMIC
    return used


def is_like(name: str, banned: Sequence[str]) -> bool:
    """Whether a name holds a banned one, or that of a function that computes it.

    >>> is_like("_safe_softmax", ["softmax"]), is_like("Softmax2d", ["softmax"])
    (True, True)
    """
    plain = _squashed(name)
    pieces = chain.from_iterable((word, *_EQUALS.get(word, ())) for word in map(_squashed, banned))
    return any(map(plain.__contains__, pieces))


def _squashed(name: str) -> str:
    return name.replace("_", "").lower()


@dataclass(frozen=True)
class _Reader:
    """Finds what the nodes of a program reach in other modules."""

    defined: DefinedNames
    banned: Sequence[str]

    def reached(self, node: ast.AST) -> Iterator[str]:
        """Yield the banned names that a node reaches in another module."""
        match node:
            case ast.Attribute(_, _, ast.Load()):
                yield from self._attribute(node)
            case ast.Import() | ast.ImportFrom():
                yield from self._imported(node)
            case ast.Subscript(value, key, ast.Load()) if not self.defined.is_data(value):
                yield from self._named(key)
            case ast.Call():
                yield from self._got(node)
            case ast.Name(name) if node not in self._callees:
                yield from {name} & _GETTERS
            case ast.MatchClass():
                yield from (name for name in node.kwd_attrs if is_like(name, self.banned))

    @cached_property
    def _callees(self) -> set[ast.AST]:
        """The nodes that are called."""
        return {node.func for node in self.defined.nodes if isinstance(node, ast.Call)}

    def _attribute(self, node: ast.Attribute) -> Iterator[str]:
        is_getter = node.attr in _GETTERS and node not in self._callees
        is_banned = is_like(node.attr, self.banned) and not self.defined.has(node.value, node.attr)
        if node.attr in _INNER or is_getter or is_banned:
            yield node.attr

    def _got(self, call: ast.Call) -> Iterator[str]:
        """Yield the banned names that a call such as `getattr` looks up, and computed ones."""
        getter = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if getter not in _GETTERS or not call.args:
            return
        *_, name = call.args[:2]
        if _text(name) is not None:
            yield from self._named(name)
        elif not self.defined.is_of_program(call.args[0]):
            yield f"{getter} of a computed name"

    def _named(self, node: ast.AST) -> Iterator[str]:
        """Yield the banned names in a text that looks a name up."""
        for part in (_text(node) or "").split("."):
            if part in _INNER or is_like(part, self.banned):
                yield part

    def _imported(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        """Yield the banned names of an import, and ways to import by name."""
        modules = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            modules.append(node.module or "")
        for module in modules:
            parts = module.split(".")
            yield from {*_INNER, *DYNAMIC, *_DYNAMIC_MODULES, *_GETTERS} & {*parts}
            yield from (part for part in parts if is_like(part, self.banned))


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
