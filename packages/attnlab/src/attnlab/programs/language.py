"""The language: select keys for each position, and gather values from them.

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

import operator
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from attnlab.errors import did_you_mean, type_words
from attnlab.programs.lines import Line, ProgramError, current_line
from attnlab.programs.values import Value, cut_words, fault_of, plain_number

COMPARISONS: dict[str, Callable[[Value, Value], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_MAX_DEPTH = 100  # of expressions in expressions: each level takes some of Python's own calls
_NONE_GIVEN = object()


def _checked(line: Line, value: Value) -> Value:
    """Return a constant as the language has it, or refuse it."""
    fault = fault_of(plain_number(value))
    if fault is not None:
        raise ProgramError(line, fault)
    return plain_number(value)


Operator = Callable[["Sequence", Any], "Map"]


def _on_both_sides(
    name: str, function: Callable[[Value, Value], Value]
) -> tuple[Operator, Operator]:
    """Return an operator's methods: for a sequence on its left, and on its right."""

    def left(self: "Sequence", other: Any) -> "Map":
        return _operation(name, function, self, other)

    def right(self: "Sequence", other: Any) -> "Map":
        return _operation(name, function, other, self)

    return left, right


class Expression:
    """A node of the tree: the line of the program that made it, its depth, and its text."""

    def __init__(self, parts: Items["Sequence | Selector"]) -> None:
        self.line = current_line()
        self.depth: int = 1 + max((part.depth for part in parts), default=0)
        if self.depth > _MAX_DEPTH:
            reason = f"expressions may be nested at most {_MAX_DEPTH} deep; for a sum, use total()."
            raise ProgramError(self.line, reason)

    @cached_property
    def words(self) -> str:
        """The expression in the language, cut where it is long."""
        return cut_words(self._words())

    def __repr__(self) -> str:
        return self.words

    def _words(self) -> str:
        raise NotImplementedError


class Sequence(Expression):
    """One value for each position. Operators work position by position, on sequences and constants.

    Each means what Python means by it, on either side. `==` and its like give sequences of True and
    False; `&`, `|`, `~` join them. `map` applies any other function: `indices.map(math.sqrt)`.
    """

    __array_ufunc__ = None  # NumPy's numbers leave operators to the sequence

    def __init__(
        self, arguments: tuple["Sequence", ...] = (), selector: "Selector | None" = None
    ) -> None:
        selectors = () if selector is None else (selector,)
        super().__init__((*arguments, *selectors))
        self.arguments = arguments

    __hash__ = object.__hash__

    def map(self, function: Callable[[Value], Value]) -> "Map":
        """Apply a function of one value at every position."""
        return Map(function, (self,), getattr(function, "__name__", "map"))

    __eq__ = _on_both_sides("==", operator.eq)[0]  # type: ignore[assignment]
    __ne__ = _on_both_sides("!=", operator.ne)[0]  # type: ignore[assignment]
    __lt__ = _on_both_sides("<", operator.lt)[0]
    __le__ = _on_both_sides("<=", operator.le)[0]
    __gt__ = _on_both_sides(">", operator.gt)[0]
    __ge__ = _on_both_sides(">=", operator.ge)[0]
    __add__, __radd__ = _on_both_sides("+", operator.add)
    __sub__, __rsub__ = _on_both_sides("-", operator.sub)
    __mul__, __rmul__ = _on_both_sides("*", operator.mul)
    __floordiv__, __rfloordiv__ = _on_both_sides("//", operator.floordiv)
    __mod__, __rmod__ = _on_both_sides("%", operator.mod)
    __pow__, __rpow__ = _on_both_sides("**", operator.pow)
    __and__, __rand__ = _on_both_sides("&", operator.and_)
    __or__, __ror__ = _on_both_sides("|", operator.or_)

    def __truediv__(self, other: Any) -> "Map":
        raise ProgramError(
            current_line(),
            "there is no /, whose results may not be whole; write .map(lambda x: Fraction(x, 2)), "
            "or // for the whole part.",
        )

    __rtruediv__ = __truediv__

    def __neg__(self) -> "Map":
        return _operation("-", operator.neg, self)

    def __abs__(self) -> "Map":
        return _operation("abs", abs, self)

    def __invert__(self) -> "Map":
        return _operation("~", _invert, self)

    def __bool__(self) -> bool:
        raise ProgramError(
            current_line(),
            "a sequence has a value for each position and is neither true nor false; write `&`, "
            "`|`, `~` for and, or, not, and where(condition, this, that) for a choice.",
        )


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
        self.value = _checked(self.line, value)

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
        if _is_operation(self):
            return f" {self.name} ".join(map(_bracketed, self.arguments))
        return f"{self.name}({', '.join(map(repr, self.arguments))})"


class Aggregate(Sequence):
    """At each query, the mean of the selected keys' values; of symbols, the one that all share."""

    def __init__(
        self, selector: "Selector", values: Sequence, default: Value, *, has_default: bool
    ) -> None:
        super().__init__((values,), selector)
        self.selector, self.has_default = selector, has_default
        self.default = _checked(self.line, default)

    @property
    def values(self) -> Sequence:
        """The gathered sequence."""
        return self.arguments[0]

    def __invert__(self) -> Map:
        raise ProgramError(
            current_line(),
            f"a mean of True and False is a number, so ~ does not negate it; write {self!r} == 0.",
        )

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


class Selector(Expression):
    """A choice of keys for each query. `&`, `|` and `~` join selectors."""

    def __and__(self, other: "Selector") -> "Selector":
        return JoinedSelector("&", (self, _selector(other)))

    def __or__(self, other: "Selector") -> "Selector":
        return JoinedSelector("|", (self, _selector(other)))

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> "Selector":
        return JoinedSelector("~", (self,))

    def __bool__(self) -> bool:
        raise ProgramError(
            current_line(), "join selectors by `&`, `|` and `~`, not by and, or, not."
        )


class Compared(Selector):
    """Where a comparison of key and query holds."""

    def __init__(self, keys: Sequence, queries: Sequence, name: str, holds: Any) -> None:
        super().__init__((keys, queries))
        self.keys, self.queries, self.name, self.holds = keys, queries, name, holds

    def _words(self) -> str:
        if self is everything:
            return "everything"
        return f"select({self.keys!r}, {self.queries!r}, {self.name})"


class JoinedSelector(Selector):
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

    Returns:
        a `Selector`, (query, key) of an input, to gather or count by.

    Raises:
        ProgramError: there is no such comparison, or a selector stands where a sequence is due.

    >>> select(indices, indices, "<")  # all earlier positions
    select(indices, indices, <)
    """
    holds = COMPARISONS.get(comparison) if isinstance(comparison, str) else comparison
    if not callable(holds):
        hint = did_you_mean(str(comparison), COMPARISONS)
        raise ProgramError(current_line(), f"there is no comparison {comparison!r}; {hint}")
    name = comparison if isinstance(comparison, str) else getattr(holds, "__name__", "function")
    return Compared(sequence(keys), sequence(queries), name, holds)


def best(selector: Selector, scores: Any) -> Selector:
    """Select of the selected keys the one with the highest score, or all that share it.

    Args:
        selector: which keys may be chosen.
        scores: a sequence of numbers, one at each key.

    Returns:
        a `Selector` of one key for each query, or of those that tie.

    Raises:
        ProgramError: no selector, or a selector as the scores.
    """
    return Best(_selector(selector), sequence(scores))


def aggregate(selector: Selector, values: Any, default: Value = _NONE_GIVEN) -> Sequence:
    """Gather at each query the mean of the selected keys' values.

    Symbols have no mean: all that one query selects must be the same. Where a query may select
    nothing, say with `default` what it gets; without one such a program is refused.

    Args:
        selector: which keys each query gathers from, as `select` gives it.
        values: a sequence, or a constant: what is gathered.
        default: the value where nothing is selected; without one a program that may select nothing
            is refused when it is compiled.

    Returns:
        a `Sequence`: the mean at each position, a number, or the one symbol.

    Raises:
        ProgramError: no selector, or a selector as the values.

    >>> aggregate(select(indices, indices, "<="), tokens == "a")  # the share of a's so far
    aggregate(select(indices, indices, <=), tokens == 'a')
    """
    has_default = default is not _NONE_GIVEN
    default = default if has_default else None
    return Aggregate(_selector(selector), sequence(values), default, has_default=has_default)


def selector_width(selector: Selector) -> Sequence:
    """Count at each query the selected keys.

    Args:
        selector: as `select` gives it.

    Returns:
        a `Sequence` of counts, whole numbers from 0.

    Raises:
        ProgramError: it is no selector.

    >>> selector_width(select(tokens, tokens, "=="))  # how often each token occurs
    selector_width(select(tokens, tokens, ==))
    """
    return Width(_selector(selector))


def total(selector: Selector, values: Any) -> Sequence:
    """Add up at each query the selected keys' values; nothing selected gives 0.

    Args:
        selector: which keys each query adds up.
        values: a sequence of numbers, or a constant.

    Returns:
        a `Sequence` of sums.

    Raises:
        ProgramError: no selector, or a selector as the values.
    """
    return Width(_selector(selector), sequence(values))


def apply(function: Callable[..., Value], *arguments: Any) -> Sequence:
    """Apply a function of several values at every position.

    Args:
        function: of as many values as there are arguments; it is tabulated when the program is
            compiled.
        arguments: sequences, or constants.

    Returns:
        a `Sequence` of what the function returns.

    Raises:
        ProgramError: a selector stands where a sequence is due.
    """
    return Map(function, tuple(map(sequence, arguments)), getattr(function, "__name__", "map"))


def where(condition: Any, this: Any, that: Any) -> Sequence:
    """Choose at every position: `this` where the condition is true, otherwise `that`.

    Args:
        condition: a sequence of truth values.
        this, that: sequences, or constants.

    Returns:
        a `Sequence` of the chosen values.

    Raises:
        ProgramError: a selector stands where a sequence is due.
    """
    return Map(_choose, (sequence(condition), sequence(this), sequence(that)), "where")


def sequence(value: Any) -> Sequence:
    """Return a sequence as it is, and a constant as a sequence."""
    if isinstance(value, Sequence):
        return value
    if isinstance(value, Selector):
        raise ProgramError(current_line(), f"expected a sequence; got the selector {value!r}.")
    return Constant(value)


def _selector(value: Any) -> Selector:
    if isinstance(value, Selector):
        return value
    raise ProgramError(
        current_line(), f"expected a selector, such as select(keys, queries, '=='); got {value!r}."
    )


def _invert(value: Value) -> Value:
    """Return `not` of a truth value; Python's own ~ would take it for a number."""
    return not value if isinstance(value, bool) else ~value


def _choose(condition: Value, this: Value, that: Value) -> Value:
    return this if condition else that


_OPERATORS = (*COMPARISONS, "+", "-", "*", "//", "%", "**", "&", "|")


def _operation(name: str, function: Any, *arguments: Any) -> Map:
    return Map(function, tuple(map(sequence, arguments)), name)


def _is_operation(node: Sequence) -> bool:
    return isinstance(node, Map) and node.name in _OPERATORS and len(node.arguments) == 2


def _bracketed(node: Sequence) -> str:
    return f"({node!r})" if _is_operation(node) else repr(node)


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
        """Check the alphabet, and name a program without a name."""
        line = current_line()
        if isinstance(self.output, Selector):
            raise ProgramError(
                line,
                f"a program computes a sequence; {self.output!r} is a selector: aggregate values "
                "with it, or take its selector_width.",
            )
        if not isinstance(self.output, Sequence):
            reason = f"a program computes a sequence; got {type_words(self.output)}."
            raise ProgramError(line, reason)
        alphabet = tuple(map(plain_number, self.alphabet))
        faults = list(filter(None, map(fault_of, alphabet)))
        if faults:
            raise ProgramError(line, f"this alphabet cannot be used: {faults[0]}")
        if not alphabet or len(set(alphabet)) < len(alphabet):
            reason = f"an alphabet has one or more distinct tokens; got {alphabet!r}."
            raise ProgramError(line, reason)
        object.__setattr__(self, "alphabet", alphabet)
        object.__setattr__(self, "name", self.name or repr(self.output).partition("(")[0])
