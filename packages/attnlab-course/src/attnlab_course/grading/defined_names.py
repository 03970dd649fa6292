"""What a program defines itself: its names in every scope, its classes, and objects of those.

A function that a student writes may have the name of one of PyTorch's, and so may a parameter, a
method or a key of a table. This says which names and attributes are the program's own.
"""

import ast
import symtable
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

_NO_ATTRIBUTES = {"object", "Module", "ABC", "Protocol", "NamedTuple", "Enum"}
"""Base classes without attributes that an exercise could ban."""


@dataclass(frozen=True)
class GlobalNames:
    """The global names that a program uses.

    Args:
        foreign: those that it defines nowhere.
        assigned: those that it assigns or imports.
        defined: its functions and classes.
    """

    foreign: frozenset[str]
    assigned: frozenset[str]
    defined: frozenset[str]


def global_names(source: str) -> GlobalNames:
    """Return the global names that a program uses, in whatever scope; none if it cannot be run."""
    used, assigned, defined = set[str](), set[str](), set[str]()
    for symbol in _global_symbols(source):
        name = symbol.get_name()
        if symbol.is_referenced():
            used.add(name)
        if symbol.is_namespace():
            defined.add(name)
        elif symbol.is_assigned() or symbol.is_imported():
            assigned.add(name)
    foreign = used - assigned - defined
    return GlobalNames(
        frozenset(foreign), frozenset(used & assigned - defined), frozenset(used & defined)
    )


def _global_symbols(source: str) -> Iterator[symtable.Symbol]:
    """Yield the symbols of a program's global names, from every scope; none if it cannot be run."""
    try:
        module = symtable.symtable(source, "answer", "exec")
    except (SyntaxError, ValueError):
        return
    for table in all_tables(module):
        for symbol in table.get_symbols():
            if table is module or symbol.is_global():
                yield symbol


def all_tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """Yield a table of names and those of all scopes in it."""
    yield table
    for child in table.get_children():
        yield from all_tables(child)


class DefinedNames:
    """The classes of a program, and which of its expressions are objects of them.

    Args:
        tree: the program.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.nodes = list(ast.walk(tree))
        self._inside: dict[ast.AST, ast.ClassDef] = {}
        self._bound: dict[str, list[ast.AST]] = defaultdict(list)
        for node in self.nodes:
            for target, value in _bindings(node):
                self._bound[target].append(value)
        for node in self.nodes:
            if isinstance(node, ast.ClassDef):
                self._note_selves(node)

    def has(self, value: ast.expr, attribute: str) -> bool:
        """Whether an expression is an object of the program's own, and an attribute its own, too.

        An object of a class that extends nothing has no attribute of PyTorch's in any case.
        """
        if self.is_of_program(value):
            return True
        classes = self._classes_of(value)
        is_super = isinstance(value, ast.Call) and ast.unparse(value.func) == "super"
        if not classes or is_super:
            return False
        return all(self._defines(kind, attribute) for kind in classes)

    def is_of_program(self, value: ast.expr) -> bool:
        """Whether an expression is an object of a class of the program's that extends nothing."""
        classes = self._classes_of(value)
        return bool(classes) and all(map(self._is_closed, classes))

    def is_data(self, value: ast.AST) -> bool:
        """Whether a table is the program's own data and not the names of a module."""
        match value:
            case ast.Dict() | ast.DictComp() | ast.List() | ast.ListComp() | ast.Tuple():
                return True
            case ast.Call(ast.Name("dict" | "defaultdict" | "OrderedDict")):
                return True
            case ast.Subscript(inner):
                return self.is_data(inner)
            case ast.Attribute(owner):
                return self.is_of_program(owner)
            case ast.Name(name):
                bound = [node for node in self._bound.get(name, ()) if node is not value]
                return bool(bound) and all(map(self._is_data_bound, bound))
        return False

    def _is_data_bound(self, value: ast.AST) -> bool:
        """The same of what is bound to a name; a parameter and a loop's variable are data."""
        if isinstance(value, ast.Name):  # no chain of names: it could be a circle
            return False
        return isinstance(value, ast.arg | ast.For | ast.comprehension) or self.is_data(value)

    def _classes_of(self, value: ast.AST) -> list[ast.ClassDef]:
        """Return the classes that an expression is, or may be an object of; none if not known."""
        if value in self._inside:
            return [self._inside[value]]
        match value:
            case ast.Call(ast.Name("type"), [inner]) | ast.Attribute(inner, "__class__"):
                return self._classes_of(inner)
            case ast.Call(ast.Name() as called):
                return self._classes_of(called)
            case ast.Name() | ast.Attribute():
                return self._classes_bound(ast.unparse(value))
        return []

    def _classes_bound(self, name: str) -> list[ast.ClassDef]:
        classes = []
        for value in self._bound.get(name, ()):
            match value:
                case ast.ClassDef():
                    classes.append(value)
                case ast.Call(ast.Name(called)) if called != name:
                    kinds = self._bound.get(called, ())
                    known = [kind for kind in kinds if isinstance(kind, ast.ClassDef)]
                    if not known or len(known) < len(kinds):
                        return []
                    classes += known
                case _:
                    return []
        return classes

    def _note_selves(self, kind: ast.ClassDef) -> None:
        """Note where `self` and `super()` stand for a class: in its methods."""
        for method in kind.body:
            name = _self_name(method)
            for node in ast.walk(method) if name else ():
                match node:
                    case ast.Name(variable) if variable == name:
                        self._inside[node] = kind
                    case ast.Call(ast.Name("super")):
                        self._inside[node] = kind

    def _bases(self, kind: ast.ClassDef) -> Iterator[ast.ClassDef | None]:
        """Yield the classes that a class extends: None for one from elsewhere."""
        for base in kind.bases:
            name = ast.unparse(base)
            classes = self._classes_bound(name) if name != kind.name else []
            if classes:
                yield from classes
            elif name.rpartition(".")[2] not in _NO_ATTRIBUTES:
                yield None

    def _is_closed(self, kind: ast.ClassDef) -> bool:
        """Whether all that an object of a class has is of the program's own."""
        return all(base is not None and self._is_closed(base) for base in self._bases(kind))

    def _defines(self, kind: ast.ClassDef, attribute: str) -> bool:
        """Whether a class, or one of the program's that it extends, defines an attribute."""
        for node in kind.body:
            names = {target for target, _ in _bindings(node)}
            if attribute in names or f"self.{attribute}" in _targets(node):
                return True
        return any(
            base is not None and self._defines(base, attribute) for base in self._bases(kind)
        )


def _self_name(method: ast.stmt) -> str:
    """Return what a method calls its object; empty for a static one and where it is bound anew."""
    if not isinstance(method, ast.FunctionDef) or not method.args.args:
        return ""
    first = method.args.args[0].arg
    decorators = {ast.unparse(decorator) for decorator in method.decorator_list}
    is_bound = any(target == first for node in method.body for target in _targets(node))
    if first not in ("self", "cls") or "staticmethod" in decorators or is_bound:
        return ""
    return first


def _targets(node: ast.AST) -> set[str]:
    """Return what a statement binds, on any line of it."""
    return {target for part in ast.walk(node) for target, _ in _bindings(part)}


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names and attributes that a node binds, each with what it is bound to."""
    match node:
        case ast.Assign(targets, value):
            for target in targets:
                yield from _bound(target, value)
        case ast.AnnAssign(target, _, value) | ast.NamedExpr(target, value):
            yield from _bound(target, value or node)
        case ast.AugAssign(target) | ast.For(target) | ast.comprehension(target):
            yield from _bound(target, node)
        case ast.withitem(_, ast.expr() as target):
            yield from _bound(target, node)
        case ast.alias(name, None):
            yield name.partition(".")[0], node
        case ast.alias(_, name) | ast.arg(name) | ast.ExceptHandler(_, str(name)):
            yield str(name), node
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            yield name, node
        case ast.MatchAs(_, str(name)) | ast.MatchStar(str(name)):
            yield name, node


def _bound(target: ast.expr, value: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _bound(element, target)  # not known, one by one
    elif isinstance(target, ast.Starred):
        yield from _bound(target.value, target)
    elif isinstance(target, ast.Name | ast.Attribute):
        yield ast.unparse(target), value
