"""Programs as text: one assignment a line, never run as Python.

The text may come with a link. Each line is parsed, and the few kinds of nodes that the language
needs are turned into its expressions; all else is refused, with the line and what is allowed.
"""

import ast
import inspect
import operator
import re
import warnings
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Any

from attnlab.errors import did_you_mean
from attnlab.programs.language import (
    Aggregate,
    Constant,
    Map,
    Program,
    Selector,
    Sequence,
    Tokens,
    aggregate,
    best,
    everything,
    indices,
    select,
    selector_width,
    tokens,
    total,
    where,
)
from attnlab.programs.lines import Line, ProgramError, at_line
from attnlab.programs.values import Value

Operand = Sequence | Selector | str | int | float
"""What a name or an expression may be."""

FILE = "program"
"""What the lines say in place of a file's name."""

_NAMES: dict[str, Operand] = {"tokens": tokens, "indices": indices, "everything": everything}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    call.__name__: call for call in (select, aggregate, selector_width, total, best, where)
}
_OPERATORS: dict[type[ast.AST], tuple[str, Callable[..., Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.USub: ("-", operator.neg),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.Invert: ("~", operator.invert),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
_JOINS = ("&", "|", "~")
_ARITHMETIC = ("+", "-", "*", "//", "%")

_MAX_LETTERS = 2_000  # of a text
_MAX_LINES = 40
_MAX_LINE = 200  # letters of a line
_MAX_PARTS = 1_000  # of an expression, written out without names
_MAX_NUMBER = 1_000_000
_MAX_CONSTANT = 8  # letters of a constant
_BEGINNING = re.compile(r"([A-Za-z]\w{0,39}) *=(?!=)", re.ASCII)

_FORM = "a line is one assignment, such as: place = selector_width(select(tokens, tokens, '<'))"
_SIGNS = " ".join(dict.fromkeys(sign for sign, _ in _OPERATORS.values()))
_KINDS = (
    f"an expression is made of names, numbers, texts in quotes, {_SIGNS}, and calls of "
    f"{', '.join(_FUNCTIONS)}"
)
_INSTEAD: dict[type[ast.AST], str] = {
    ast.BoolOp: "write & and | for and and or",
    ast.Not: "write ~ for not",
    ast.Compare: "write one comparison at a time, and join them by &",
    ast.IfExp: "write where(condition, this, that) for a choice",
    ast.Lambda: "write where(condition, this, that) for a function of values",
    ast.Attribute: "names have no attributes: write where(condition, this, that) for .map",
}


@dataclass(frozen=True)
class TextLine:
    """A line of a program: the value of its name, or the reason why it is refused."""

    line: Line
    name: str
    value: Operand | None
    error: ProgramError | None = None


def read_program(text: str, alphabet: Items[Value], name: str = FILE) -> Program:
    """Read a program from text; its last line is the output.

    >>> program = read_program("same = select(tokens, tokens, '==')\\n"
    ...                        "output = selector_width(same)", "abc")
    >>> program.output, str(program.output.line)
    (selector_width(select(tokens, tokens, ==)), 'program:2  output = selector_width(same)')

    Raises:
        ProgramError: the first line that is no program, and what is allowed instead.
    """
    lines = read_lines(text, alphabet)
    for line in lines:
        if line.error is not None:
            raise line.error
    if not lines:
        raise ProgramError(Line(FILE, 1, ""), f"there is no line yet: {_FORM}.")
    last = lines[-1]
    if not isinstance(last.value, Sequence):
        reason = "the last line is what the program computes: a sequence, such as aggregate(…)."
        raise ProgramError(last.line, reason)
    return Program(last.value, alphabet, name)


def read_lines(text: str, alphabet: Items[Value]) -> list[TextLine]:
    """Read each line of a text, also where others are refused; empty lines are left out.

    Raises:
        ProgramError: the text is too long.
    """
    sources = text.splitlines()
    if len(text) > _MAX_LETTERS or len(sources) > _MAX_LINES:
        reason = (
            f"a text has at most {_MAX_LETTERS:,} letters and {_MAX_LINES} lines; got "
            f"{len(text):,} and {len(sources)}. A Python file may be longer."
        )
        raise ProgramError(Line(FILE, _MAX_LINES + 1, ""), reason)
    reader = _Reader(alphabet)
    text_lines = []
    for number, source in enumerate(sources, 1):
        if source.split("#")[0].strip():
            text_lines.append(reader.read(Line(FILE, number, source)))
    return text_lines


class _Reader:
    """Turns lines into expressions, and remembers their names."""

    def __init__(self, alphabet: Items[Value]) -> None:
        self.has_text = any(isinstance(token, str) for token in alphabet)
        self.names: dict[str, Operand] = dict(_NAMES)
        self.sizes: dict[str, int] = {}  # parts of what a name stands for
        self.refused: dict[str, int] = {}  # lines of names that have no value
        self.line = Line(FILE, 1, "")

    def read(self, line: Line) -> TextLine:
        """Read the next line."""
        self.line = line
        match = _BEGINNING.match(line.source)
        name = match[1] if match else ""
        try:
            with at_line(line):
                tree = self._assigned(name)
                size = self._size(tree)
                value = self._value(tree)
        except ProgramError as error:
            self.names.pop(name, None)
            self.refused[name] = line.number
            return TextLine(line, name, None, error)
        self.names[name], self.sizes[name] = value, size
        return TextLine(line, name, value)

    def _refuse(self, reason: str) -> ProgramError:
        return ProgramError(self.line, reason)

    def _assigned(self, name: str) -> ast.expr:
        """Parse the line, and return the expression that it gives a name."""
        source = self.line.text or ""
        if len(source) > _MAX_LINE:
            raise self._refuse(f"a line has at most {_MAX_LINE} letters; got {len(source)}.")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                [statement] = ast.parse(source).body
        except SyntaxError as error:
            raise self._refuse(f"this is not Python: {error.msg}; {_FORM}.") from None
        except (ValueError, RecursionError, MemoryError):
            raise self._refuse(f"{_FORM[0].upper()}{_FORM[1:]}.") from None
        if not isinstance(statement, ast.Assign) or not _is_name(statement.targets, name):
            raise self._refuse(f"{_FORM[0].upper()}{_FORM[1:]}.")
        if name in _NAMES or name in _FUNCTIONS:
            raise self._refuse(f"{name} is a word of the language; choose another name.")
        return statement.value

    def _size(self, tree: ast.expr) -> int:
        """Count the parts of an expression, written out without names, or refuse it."""
        size = 0
        for node in ast.walk(tree):
            size += self.sizes.get(node.id, 1) if isinstance(node, ast.Name) else 1
        if size > _MAX_PARTS:
            reason = f"written out without names, this has {size:,} parts; at most {_MAX_PARTS:,}."
            raise self._refuse(reason)
        return size

    def _value(self, node: ast.expr) -> Operand:
        """Make the expression of a node. Nothing else than these kinds of nodes is looked into."""
        if isinstance(node, ast.Constant):
            return self._constant(node.value)
        if isinstance(node, ast.Name):
            return self._named(node.id)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.UnaryOp):
            return self._operation(node.op, [node.operand])
        if isinstance(node, ast.BinOp):
            return self._operation(node.op, [node.left, node.right])
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._operation(node.ops[0], [node.left, *node.comparators])
        raise self._refuse(self._unknown(node))

    def _unknown(self, node: ast.AST) -> str:
        instead = _INSTEAD.get(type(node), _KINDS)
        kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).lower()  # "list comp"
        return f"this ({kind}) is not part of the language; {instead}."

    def _constant(self, value: object) -> Operand:
        if isinstance(value, str) and len(value) <= _MAX_CONSTANT:
            return value
        if isinstance(value, bool | int | float) and abs(value) <= _MAX_NUMBER:
            return value
        raise self._refuse(
            f"a constant is a text of at most {_MAX_CONSTANT} letters, or a number from "
            f"{-_MAX_NUMBER:,} to {_MAX_NUMBER:,}; got {repr(value)[:20]}."
        )

    def _named(self, name: str) -> Operand:
        if name in self.names:
            return self.names[name]
        if name in self.refused:
            raise self._refuse(f"{name} has no value because line {self.refused[name]} is refused.")
        if name in _FUNCTIONS:
            raise self._refuse(f"{name} is a function: write {name}(…).")
        raise self._refuse(f"there is no {name[:40]} above; {did_you_mean(name, self.names)}.")

    def _call(self, node: ast.Call) -> Operand:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in _FUNCTIONS:
            if name:
                hint = did_you_mean(name, _FUNCTIONS)
                raise self._refuse(f"there is no function {name[:40]}; {hint}.")
            raise self._refuse(f"only these are called: {', '.join(_FUNCTIONS)}.")
        function = _FUNCTIONS[name]
        options = {}
        for keyword in node.keywords:
            options[keyword.arg or "**"] = self._value(keyword.value)
        try:
            bound = inspect.signature(function).bind(*map(self._value, node.args), **options)
        except TypeError as error:
            wanted = ", ".join(inspect.signature(function).parameters)
            raise self._refuse(f"{name}({wanted}): {error}.") from None
        if isinstance(bound.arguments.get("default"), Sequence | Selector):
            raise self._refuse("the default of aggregate(…) is a constant, such as '.' or 0.")
        value: Operand = function(*bound.args, **bound.kwargs)
        return value

    def _operation(self, kind: ast.AST, operands: list[ast.expr]) -> Operand:
        if type(kind) not in _OPERATORS:
            raise self._refuse(self._unknown(kind))
        sign, function = _OPERATORS[type(kind)]
        values = list(map(self._value, operands))
        if isinstance(kind, ast.USub) and isinstance(values[0], int | float):
            return -values[0]
        if not any(isinstance(value, Sequence | Selector) for value in values):
            raise self._refuse(f"{sign} of constants alone: write the value itself.")
        if sign not in _JOINS and any(isinstance(value, Selector) for value in values):
            raise self._refuse(f"{sign} takes sequences; selectors are joined by & | ~ alone.")
        if sign in _ARITHMETIC and any(map(self._may_be_text, values)):
            raise self._refuse(f"{sign} takes numbers, and this may be text.")
        try:
            operation: Operand = function(*values)
        except TypeError:
            raise self._refuse(f"{sign} does not take these: write the sequence first.") from None
        return operation

    def _may_be_text(self, value: Operand) -> bool:
        """May this hold text, whose products and remainders would grow?"""
        if isinstance(value, Constant):
            return isinstance(value.value, str)
        if isinstance(value, Aggregate):
            return self._may_be_text(value.values) or isinstance(value.default, str)
        if isinstance(value, Map):
            return value.name == "where" and any(map(self._may_be_text, value.arguments[1:]))
        return isinstance(value, str) or (isinstance(value, Tokens) and self.has_text)


def _is_name(targets: list[ast.expr], name: str) -> bool:
    return len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == name
