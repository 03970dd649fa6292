"""The language: say in Python which keys each position selects, and what it gathers from them.

It is RASP (Weiss et al. 2021, "Thinking Like Transformers"). `tokens` and `indices` are sequences,
one value for each position; `select` compares every key with every query; `aggregate` takes the
mean of what was selected, `selector_width` counts it. Nothing is computed here: an expression is a
small tree, which the interpreter evaluates and the compiler turns into a model.

>>> length = selector_width(everything)
>>> opposite = select(indices, length - 1 - indices, "==")
>>> reverse = aggregate(opposite, tokens)
>>> reverse
aggregate(select(indices, (selector_width(everything) - 1) - indices, ==), tokens)
"""

import linecache
import math
import operator
import sys
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from attnlab.errors import WrongUsage, did_you_mean, type_words

Value = Any
"""What a position holds: a number (int, Fraction, float, bool) or any hashable symbol."""

COMPARISONS: dict[str, Callable[[Value, Value], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


_MOST_LETTERS = 90  # of a line, where it is told
_MOST_WORDS = 160  # letters of an expression
_MOST_DEPTH = 100  # of expressions in expressions: each level takes some of Python's own calls


@dataclass(frozen=True)
class Line:
    """Where a program says something; `text` is the line itself where it is in no file."""

    file: str
    number: int
    text: str | None = None

    @property
    def source(self) -> str:
        """The line's text."""
        if self.text is not None:
            return self.text.strip()
        return linecache.getline(self.file, self.number).strip()

    def __str__(self) -> str:
        words = f"{Path(self.file).name}:{self.number}  {self.source}".rstrip()
        if len(words) <= _MOST_LETTERS:
            return words
        return f"{words[: _MOST_LETTERS - 1]}…"


class ProgramError(WrongUsage):
    """A program without a meaning, or one that cannot be compiled: the reason, and the line."""

    def __init__(self, line: Line, reason: str) -> None:
        super().__init__(f"{reason}\n  {line}")
        self.line, self.reason = line, reason


def _cut(words: str) -> str:
    if len(words) <= _MOST_WORDS:
        return words
    return f"{words[: _MOST_WORDS - 1]}…"


_told_line: ContextVar[Line | None] = ContextVar("_told_line", default=None)


@contextmanager
def at_line(line: Line) -> Iterator[None]:
    """Take this line as that of all expressions that are made while the `with` lasts."""
    before = _told_line.set(line)
    try:
        yield
    finally:
        _told_line.reset(before)


def _line() -> Line:
    """Return the line that is told, or that is being run, of the first file but this one."""
    told = _told_line.get()
    if told is not None:
        return told
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return Line(frame.f_code.co_filename, frame.f_lineno)


def fault_of(value: Value) -> str | None:
    """Say why this cannot be a value: it has no hash, is not finite, or is beyond a float."""
    try:
        hash(value)
    except TypeError:
        return f"a value must be hashable, such as a number, a text or a tuple; got {value!r}."
    if not isinstance(value, int | float | Fraction):
        return None
    try:
        is_finite = math.isfinite(value)
    except OverflowError:
        is_finite = False
    if is_finite:
        return None
    return f"a number must be finite, and fit a float; got {_cut(repr(value))}."


def _check_value(line: Line, value: Value) -> None:
    fault = fault_of(value)
    if fault is not None:
        raise ProgramError(line, fault)


def _depth(line: Line, parts: Items["Sequence | Selector"]) -> int:
    """Return how deep an expression of these parts is, or refuse it."""
    depth = 1 + max((part.depth for part in parts), default=0)
    if depth > _MOST_DEPTH:
        reason = f"expressions may be nested {_MOST_DEPTH} deep at most; add up with total(), say."
        raise ProgramError(line, reason)
    return depth


class Sequence:
    """One value for each position. Operators work position by position, on sequences and constants.

    `==` and its like give sequences of True and False; `&`, `|`, `~` join them.
    """

    def __init__(
        self, arguments: tuple["Sequence", ...] = (), selector: "Selector | None" = None
    ) -> None:
        self.line, self.arguments = _line(), arguments
        selectors = () if selector is None else (selector,)
        self.depth = _depth(self.line, (*arguments, *selectors))

    __hash__ = object.__hash__

    @cached_property
    def words(self) -> str:
        """What it says, in the language, cut where it is long."""
        return _cut(self._words())

    def __repr__(self) -> str:
        return self.words

    def _words(self) -> str:
        raise NotImplementedError

    def map(self, function: Callable[[Value], Value]) -> "Map":
        """Apply a function of one value at every position."""
        return Map(function, (self,), getattr(function, "__name__", "map"))

    def __eq__(self, other: Any) -> "Map":  # type: ignore[override]
        return _operation("==", operator.eq, self, other)

    def __ne__(self, other: Any) -> "Map":  # type: ignore[override]
        return _operation("!=", operator.ne, self, other)

    def __lt__(self, other: Any) -> "Map":
        return _operation("<", operator.lt, self, other)

    def __le__(self, other: Any) -> "Map":
        return _operation("<=", operator.le, self, other)

    def __gt__(self, other: Any) -> "Map":
        return _operation(">", operator.gt, self, other)

    def __ge__(self, other: Any) -> "Map":
        return _operation(">=", operator.ge, self, other)

    def __add__(self, other: Any) -> "Map":
        return _operation("+", operator.add, self, other)

    def __radd__(self, other: Any) -> "Map":
        return _operation("+", operator.add, other, self)

    def __sub__(self, other: Any) -> "Map":
        return _operation("-", operator.sub, self, other)

    def __rsub__(self, other: Any) -> "Map":
        return _operation("-", operator.sub, other, self)

    def __mul__(self, other: Any) -> "Map":
        return _operation("*", operator.mul, self, other)

    def __rmul__(self, other: Any) -> "Map":
        return _operation("*", operator.mul, other, self)

    def __floordiv__(self, other: Any) -> "Map":
        return _operation("//", operator.floordiv, self, other)

    def __truediv__(self, other: Any) -> "Map":
        raise ProgramError(
            _line(),
            "there is no /, which may leave whole numbers; write .map(lambda x: Fraction(x, 2)), "
            "or // for the whole part.",
        )

    __rtruediv__ = __pow__ = __truediv__

    def __mod__(self, other: Any) -> "Map":
        return _operation("%", operator.mod, self, other)

    def __neg__(self) -> "Map":
        return 0 - self

    def __and__(self, other: Any) -> "Map":
        return _operation("&", lambda one, two: bool(one) and bool(two), self, other)

    def __or__(self, other: Any) -> "Map":
        return _operation("|", lambda one, two: bool(one) or bool(two), self, other)

    def __invert__(self) -> "Map":
        return Map(operator.not_, (self,), "~")

    def __bool__(self) -> bool:
        raise ProgramError(
            _line(),
            "a sequence has a value for each position and is neither true nor false; write `&`, "
            "`|`, `~` for and, or, not, and where(condition, this, that) for a choice.",
        )

    def __iter__(self) -> Any:
        raise ProgramError(_line(), "a sequence cannot be iterated over; it has no values yet.")


class Tokens(Sequence):
    """The input itself."""

    def _words(self) -> str:
        return "tokens"


class Indices(Sequence):
    """The number of each position; the first is 0."""

    def _words(self) -> str:
        return "indices"


class Constant(Sequence):
    """The same value at every position."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        _check_value(self.line, value)
        self.value = value

    def _words(self) -> str:
        return repr(self.value)


class Map(Sequence):
    """A function of one or several sequences, position by position."""

    def __init__(
        self, function: Callable[..., Value], arguments: tuple[Sequence, ...], name: str
    ) -> None:
        super().__init__(arguments)
        if not callable(function):
            reason = f"a map needs a function; got {type_words(function)}."
            raise ProgramError(self.line, reason)
        self.function, self.name = function, name

    def _words(self) -> str:
        if self.name in _OPERATORS and len(self.arguments) == 2:
            one, two = (
                f"({each!r})" if _is_operation(each) else repr(each) for each in self.arguments
            )
            return f"{one} {self.name} {two}"
        return f"{self.name}({', '.join(map(repr, self.arguments))})"


class Aggregate(Sequence):
    """At each query, the mean of the selected keys' values; of symbols, the one that all share."""

    def __init__(
        self, selector: "Selector", values: Sequence, default: Value, *, has_default: bool
    ) -> None:
        super().__init__((values,), selector)
        _check_value(self.line, default)
        self.selector, self.default, self.has_default = selector, default, has_default

    @property
    def values(self) -> Sequence:
        """What is gathered."""
        return self.arguments[0]

    def _words(self) -> str:
        end = f", default={self.default!r}" if self.has_default else ""
        return f"aggregate({self.selector!r}, {self.values!r}{end})"


class Width(Sequence):
    """At each query, how many keys are selected; with values, the sum of theirs."""

    def __init__(self, selector: "Selector", values: Sequence | None = None) -> None:
        super().__init__(() if values is None else (values,), selector)
        self.selector, self.values = selector, values

    def _words(self) -> str:
        if self.values is None:
            return f"selector_width({self.selector!r})"
        return f"total({self.selector!r}, {self.values!r})"


class Selector:
    """Which keys each query selects. `&`, `|` and `~` join selectors."""

    def __init__(self, parts: "tuple[Sequence | Selector, ...]") -> None:
        self.line = _line()
        self.depth = _depth(self.line, parts)

    @cached_property
    def words(self) -> str:
        """What it says, in the language, cut where it is long."""
        return _cut(self._words())

    def __repr__(self) -> str:
        return self.words

    def _words(self) -> str:
        raise NotImplementedError

    def __and__(self, other: "Selector") -> "Selector":
        return Joined("&", (self, _selector(other)))

    def __or__(self, other: "Selector") -> "Selector":
        return Joined("|", (self, _selector(other)))

    def __invert__(self) -> "Selector":
        return Joined("~", (self,))

    def __bool__(self) -> bool:
        raise ProgramError(_line(), "join selectors by `&`, `|` and `~`, not by and, or, not.")


class Compared(Selector):
    """Where a comparison of key and query holds."""

    def __init__(self, keys: Sequence, queries: Sequence, name: str, holds: Any) -> None:
        super().__init__((keys, queries))
        self.keys, self.queries, self.name, self.holds = keys, queries, name, holds

    def _words(self) -> str:
        if self is everything:
            return "everything"
        return f"select({self.keys!r}, {self.queries!r}, {self.name})"


class Joined(Selector):
    """And, or, not of selectors."""

    def __init__(self, name: str, parts: tuple[Selector, ...]) -> None:
        super().__init__(parts)
        self.name, self.parts = name, parts

    def _words(self) -> str:
        if self.name == "~":
            return f"~({self.parts[0]!r})"
        return "(" + f" {self.name} ".join(map(repr, self.parts)) + ")"


class Best(Selector):
    """The selected keys with the highest score."""

    def __init__(self, selector: Selector, scores: Sequence) -> None:
        super().__init__((selector, scores))
        self.selector, self.scores = selector, scores

    def _words(self) -> str:
        return f"best({self.selector!r}, {self.scores!r})"


def select(keys: Any, queries: Any, comparison: str | Callable[[Value, Value], bool]) -> Selector:
    """Select the keys whose value compares with the query's: `key comparison query`.

    Args:
        keys, queries: sequences, or constants.
        comparison: "==", "!=", "<", "<=", ">", ">=", or a function of key and query.

    >>> select(indices, indices, "<")  # all earlier positions
    select(indices, indices, <)
    """
    holds = COMPARISONS.get(comparison) if isinstance(comparison, str) else comparison
    if not callable(holds):
        hint = did_you_mean(str(comparison), COMPARISONS)
        raise ProgramError(_line(), f"there is no comparison {comparison!r}; {hint}")
    name = comparison if isinstance(comparison, str) else getattr(holds, "__name__", "function")
    return Compared(sequence(keys), sequence(queries), name, holds)


def best(selector: Selector, scores: Any) -> Selector:
    """Select of the selected keys the one with the highest score, or all that share it."""
    return Best(_selector(selector), sequence(scores))


_NONE_GIVEN = object()


def aggregate(selector: Selector, values: Any, default: Value = _NONE_GIVEN) -> Sequence:
    """Gather at each query the mean of the selected keys' values.

    Symbols have no mean: all that one query selects must be the same. Where a query may select
    nothing, say with `default` what it gets; without one such a program is refused.

    >>> aggregate(select(indices, indices, "<="), tokens == "a")  # the share of a's so far
    aggregate(select(indices, indices, <=), tokens == 'a')
    """
    has_default = default is not _NONE_GIVEN
    default = default if has_default else None
    return Aggregate(_selector(selector), sequence(values), default, has_default=has_default)


def selector_width(selector: Selector) -> Sequence:
    """Count at each query the selected keys."""
    return Width(_selector(selector))


def total(selector: Selector, values: Any) -> Sequence:
    """Add up at each query the selected keys' values; nothing selected gives 0."""
    return Width(_selector(selector), sequence(values))


def apply(function: Callable[..., Value], *arguments: Any) -> Sequence:
    """Apply a function of several values at every position."""
    return Map(function, tuple(map(sequence, arguments)), getattr(function, "__name__", "map"))


def where(condition: Any, this: Any, that: Any) -> Sequence:
    """Choose at every position: `this` where the condition is true, otherwise `that`."""
    return Map(_choose, (sequence(condition), sequence(this), sequence(that)), "where")


def sequence(given: Any) -> Sequence:
    """Return a sequence as it is, and a constant as a sequence."""
    if isinstance(given, Sequence):
        return given
    if isinstance(given, Selector):
        raise ProgramError(_line(), f"a sequence is wanted here; got the selector {given!r}.")
    return Constant(given)


def _selector(given: Any) -> Selector:
    if isinstance(given, Selector):
        return given
    raise ProgramError(
        _line(), f"a selector is wanted here, such as select(keys, queries, '=='); got {given!r}."
    )


def _choose(condition: Value, this: Value, that: Value) -> Value:
    return this if condition else that


_OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "//", "%", "&", "|")


def _operation(name: str, function: Any, *arguments: Any) -> Map:
    return Map(function, tuple(map(sequence, arguments)), name)


def _is_operation(given: Sequence) -> bool:
    return isinstance(given, Map) and given.name in _OPERATORS


tokens = Tokens()
indices = Indices()
everything = Compared(Constant(0), Constant(0), "==", operator.eq)


@dataclass(frozen=True)
class Program:
    """A sequence to compute, and the tokens it may meet.

    >>> hist = Program(selector_width(select(tokens, tokens, "==")), "abc")
    >>> hist.name, hist.alphabet
    ('selector_width', ('a', 'b', 'c'))
    """

    output: Sequence
    alphabet: Items[Value]
    name: str = ""

    def __post_init__(self) -> None:
        """Check the alphabet, and name what has no name."""
        if isinstance(self.output, Selector):
            raise WrongUsage(
                f"a program computes a sequence; {self.output!r} is a selector: aggregate values "
                "with it, or take its selector_width."
            )
        if not isinstance(self.output, Sequence):
            raise WrongUsage(f"a program computes a sequence; got {type_words(self.output)}.")
        alphabet = tuple(self.alphabet)
        faults = list(filter(None, map(fault_of, alphabet)))
        if faults:
            raise WrongUsage(f"an alphabet of other values is needed: {faults[0]}")
        if not alphabet or len(set(alphabet)) < len(alphabet):
            raise WrongUsage(f"an alphabet has one or more distinct tokens; got {alphabet!r}.")
        object.__setattr__(self, "alphabet", alphabet)
        object.__setattr__(self, "name", self.name or repr(self.output).partition("(")[0])
