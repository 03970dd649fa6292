"""The meaning of a program: its values on every position of many inputs at once.

Values are exact: a mean is a `Fraction`. Each distinct combination of values is computed once, so a
map's Python function runs as often as there are different arguments, however many the inputs.
"""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass
from fractions import Fraction
from math import lcm, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.display import Card, displayed
from attnlab.errors import WrongUsage
from attnlab.programs.check import inputs_of
from attnlab.programs.language import (
    Aggregate,
    Best,
    Compared,
    Constant,
    Indices,
    JoinedSelector,
    Map,
    Program,
    Selector,
    Sequence,
    Tokens,
    Width,
)
from attnlab.programs.lines import Line, ProgramError
from attnlab.programs.memoize import memoize
from attnlab.programs.values import (
    Value,
    are_numbers,
    fault_of,
    mean_of_one,
    numbered,
    plain_number,
    value_key,
)

Codes = NDArray[np.int64]
Selected = NDArray[np.bool_]

JOINS = {"&": np.logical_and, "|": np.logical_or, "~": np.logical_not}
_EXACT = 2**53  # whole numbers up to here are exact in float64


@dataclass(frozen=True)
class CodedValues:
    """Values of a sequence: `values[codes[input, position]]`."""

    codes: Codes
    values: tuple[Value, ...]

    def row(self, number: int) -> list[Value]:
        """Return the values of one input."""
        return [self.values[code] for code in self.codes[number]]


def interpret(program: Program, tokens: Items[Value]) -> list[Value]:
    """Evaluate a program on one input.

    Args:
        program: what to evaluate.
        tokens: the input, symbols of the program's alphabet.

    Returns:
        the value at each position, as many as there are tokens.

    Raises:
        WrongUsage: a token that is not of the alphabet, or an empty input.
        ProgramError: the program has no value on this input; the line and the reason.

    >>> from attnlab.programs.language import *
    >>> interpret(Program(selector_width(select(tokens, tokens, "==")), "abc"), "abac")
    [2, 1, 2, 1]
    """
    return ProgramValues(program, ids_of(program, tokens)).of(program.output).row(0)


@displayed
@dataclass(frozen=True)
class Steps:
    """Every step of a program on one input: the expression, and its values at each position."""

    tokens: tuple[Value, ...]
    steps: tuple[tuple[Sequence, list[Value]], ...]

    def __iter__(self) -> Iterator[tuple[Sequence, list[Value]]]:
        return iter(self.steps)

    def lines(self) -> dict[Line, list[Value]]:
        """Return the values of each line of the program: the values of its last step.

        What a selector compares on its own line is not that line's value.
        """
        compared = set()
        for node, _ in self.steps:
            for selector in selectors_in(node):
                for part in operands_of(selector):
                    if part.line == selector.line:
                        compared.add(part)
        return {node.line: values for node, values in self.steps if node not in compared}

    def _card(self) -> Card:
        rows = []
        for line, values in self.lines().items():
            rows.append([str(line.number), line.source, *map(str, values)])
        return Card("steps", columns=("line", "", *map(str, self.tokens)), rows=rows)


def steps_of(program: Program, tokens: Items[Value]) -> Steps:
    """Compute every step of a program on one input, arguments first.

    >>> from attnlab.programs import library
    >>> for each, values in steps_of(library.hist("abc"), "aba"):
    ...     print(each, values)
    selector_width(select(tokens, tokens, ==)) [2, 1, 2]
    """
    meaning = ProgramValues(program, ids_of(program, tokens))
    steps = []
    for node in sequences_of(program.output):
        if not isinstance(node, Constant | Tokens | Indices):
            steps.append((node, meaning.of(node).row(0)))
    return Steps(tuple(tokens), tuple(steps))


def ids_of(program: Program, tokens: Items[Value]) -> Codes:
    """Return an input as ids (1, position), or refuse it."""
    return np.array([token_codes(program.alphabet, tokens)])


def token_codes(alphabet: Items[Value], tokens: Items[Value]) -> list[int]:
    """Return each token's place in the alphabet, or refuse the input."""
    places, codes = numbered(alphabet), []
    for token in map(plain_number, tokens):
        codes.append(-1 if fault_of(token) else places.get(value_key(token), -1))
    if -1 in codes or not codes:
        known = ", ".join(map(str, alphabet))
        strange = repr(tokens[codes.index(-1)]) if codes else "'nothing'"
        raise WrongUsage(f"an input is one or more of the tokens {known}; got {strange}.")
    return codes


def every_input(program: Program, length: int) -> Iterator[Codes]:
    """Yield all inputs of a length, in alphabetical order, in parts of limited size."""
    yield from inputs_of(len(program.alphabet), length)


def sequences_of(output: Sequence) -> list[Sequence]:
    """List a sequence and all that it is made of, arguments first, each once."""
    nodes: dict[Sequence, None] = {}
    waiting = [(output, False)]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            nodes[node] = None
        elif node not in nodes:
            parts = list[Sequence]()
            for selector in selectors_in(node):
                parts += operands_of(selector)
            parts += node.arguments
            waiting.append((node, True))
            waiting += [(part, False) for part in reversed(parts)]
    return list(nodes)


def selectors_in(node: Sequence) -> list[Selector]:
    """List the selector of an aggregate or a width, with its parts."""
    if not isinstance(node, Aggregate | Width):
        return []
    selectors: list[Selector] = [node.selector]
    for selector in selectors:
        if isinstance(selector, JoinedSelector):
            selectors += selector.parts
        elif isinstance(selector, Best):
            selectors.append(selector.selector)
    return selectors


def operands_of(selector: Selector) -> list[Sequence]:
    """List the sequences that a selector compares, or ranks by."""
    if isinstance(selector, Compared):
        return [selector.keys, selector.queries]
    return [selector.scores] if isinstance(selector, Best) else []


class ProgramValues:
    """The values of a program's parts on some inputs of one length, computed on demand."""

    def __init__(self, program: Program, ids: Codes) -> None:
        self.program, self.ids = program, ids

    @memoize
    def of(self, node: Sequence) -> CodedValues:
        """Return the values of a sequence: codes (input, position)."""
        number, length = self.ids.shape
        if isinstance(node, Tokens):
            return CodedValues(self.ids, tuple(self.program.alphabet))
        if isinstance(node, Indices):
            return CodedValues(np.tile(np.arange(length), (number, 1)), tuple(range(length)))
        if isinstance(node, Constant):
            return CodedValues(np.zeros((number, length), np.int64), (node.value,))
        if isinstance(node, Map):
            return self._map(node)
        if isinstance(node, Width):
            return self._width(node)
        assert isinstance(node, Aggregate)
        return self._aggregate(node)

    def _map(self, node: Map) -> CodedValues:
        arguments = list(map(self.of, node.arguments))
        sizes = [len(argument.values) for argument in arguments]
        if prod(sizes) > 2**62:
            raise ProgramError(node.line, "this joins too many values at once; join in steps.")
        joined = np.zeros_like(self.ids)
        for argument, size in zip(arguments, sizes, strict=True):
            joined = joined * size + argument.codes

        def value(code: int) -> Value:
            values = []
            for argument, size in zip(reversed(arguments), reversed(sizes), strict=True):
                code, place = divmod(code, size)
                values.append(argument.values[place])
            return apply_map(node, values[::-1])

        return _coded(joined, value)

    def _width(self, node: Width) -> CodedValues:
        selected = self.selected(node.selector)
        if node.values is None:
            return CodedValues(selected.sum(-1), tuple(range(self.ids.shape[1] + 1)))
        values = self.of(node.values)
        numbers, scale = _whole(node, values.values)
        sums = _sums(selected, numbers[values.codes])
        return _coded(sums, lambda code: plain_number(Fraction(code, scale)))

    def _aggregate(self, node: Aggregate) -> CodedValues:
        selected, values = self.selected(node.selector), self.of(node.values)
        counts = selected.sum(-1)
        if not node.has_default and not counts.all():
            where = self._where(counts == 0)
            raise ProgramError(
                node.line, f"nothing is selected {where}; give a value for this with default=."
            )
        if are_numbers(values.values):
            numbers, scale = _whole(node, values.values)
            sums = _sums(selected, numbers[values.codes])
            size, least = counts.shape[1] + 1, int(sums.min(initial=0))
            default = mean_of_one(node.default)

            def mean(code: int) -> Value:
                above, count = divmod(code, size)
                if not count:
                    return default
                return plain_number(Fraction(above + least, count * scale))

            return _coded((sums - least) * size + counts, mean)
        return self._symbols(node, selected, values, counts)

    def _symbols(
        self, node: Aggregate, selected: Selected, values: CodedValues, counts: Any
    ) -> CodedValues:
        codes = np.broadcast_to(values.codes[:, None, :], selected.shape)
        highest = np.where(selected, codes, -1).max(-1)
        lowest = np.where(selected, codes, len(values.values)).min(-1)
        if np.any((lowest < highest) & (counts > 0)):
            where = self._where((lowest < highest) & (counts > 0))
            number, place = np.argwhere((lowest < highest) & (counts > 0))[0]
            one, two = (values.values[codes[number, place]] for codes in (lowest, highest))
            reason = f"{one!r} and {two!r} are both selected {where}: symbols have no mean."
            raise ProgramError(node.line, reason)
        codes = np.where(counts > 0, highest, len(values.values))
        gathered = list(map(mean_of_one, [*values.values, node.default]))
        return _coded(codes, gathered.__getitem__)

    @memoize
    def selected(self, selector: Selector) -> Selected:
        """Return the selected keys: (input, query, key)."""
        if isinstance(selector, JoinedSelector):
            joined: Selected = JOINS[selector.name](*map(self.selected, selector.parts))
            return joined
        if isinstance(selector, Best):
            inner, scores = self.selected(selector.selector), self.of(selector.scores)
            ranks = ranks_of(selector, scores.values)[scores.codes][:, None, :]
            shown = np.where(inner, ranks, -1)
            best: Selected = inner & (shown == shown.max(-1, keepdims=True))
            return best
        assert isinstance(selector, Compared)
        keys, queries = self.of(selector.keys), self.of(selector.queries)
        size = len(keys.values)
        pairs = queries.codes[:, :, None] * size + keys.codes[:, None, :]

        def holds(code: int) -> bool:
            query, key = divmod(code, size)
            return compare(selector, keys.values[key], queries.values[query])

        coded = _coded(pairs, holds)
        return np.array(coded.values, dtype=np.bool_)[coded.codes]

    def _where(self, wrong: NDArray[np.bool_]) -> str:
        number, place = np.argwhere(wrong)[0]
        words = " ".join(str(self.program.alphabet[code]) for code in self.ids[number])
        return f"at position {place} of the input {words}"


def apply_map(node: Map, arguments: Items[Value]) -> Value:
    """Apply a map's function; an error names the values on which it failed."""
    shown = ", ".join(map(repr, arguments))
    try:
        value = node.function(*arguments)
    except Exception as error:
        reason = f"{node.name} fails on {shown}: {type(error).__name__}: {error}."
        raise ProgramError(node.line, reason) from None
    value = plain_number(value)
    fault = fault_of(value)
    if fault is not None:
        raise ProgramError(node.line, f"{node.name} of {shown}: {fault}")
    return value


def compare(selector: Compared, key: Value, query: Value) -> bool:
    """Does a comparison hold? An error names values that cannot be compared."""
    try:
        answer = selector.holds(key, query)
        holds = bool(answer)
    except Exception as error:
        reason = f"key {key!r} and query {query!r} cannot be compared: {error}."
        raise ProgramError(selector.line, reason) from None
    if answer is None:
        reason = f"{selector.name} of key {key!r} and query {query!r} must be True or False; got "
        raise ProgramError(selector.line, f"{reason}None: does the function lack a return?")
    return holds


def ranks_of(selector: Best, scores: Items[Value]) -> Codes:
    """Number the scores from the lowest, 0, to the highest."""
    try:
        order = sorted(set(scores))
    except TypeError as error:
        raise ProgramError(selector.line, f"the scores cannot be ordered: {error}.") from None
    return np.array(list(map(order.index, scores)))


def _coded(joined: Codes, value: Callable[[int], Value]) -> CodedValues:
    """Compute the value of each code that occurs, and number the distinct ones."""
    present, places = np.unique(joined, return_inverse=True)
    numbers: dict[Any, int] = {}
    values, numbered_as = list[Value](), list[int]()
    for code in present:
        result = value(int(code))
        number = numbers.setdefault(value_key(result), len(numbers))
        if number == len(values):
            values.append(result)
        numbered_as.append(number)
    codes = np.array(numbered_as, dtype=np.int64)[places.reshape(joined.shape)]
    return CodedValues(codes, tuple(values))


def _whole(node: Sequence, values: Items[Value]) -> tuple[Codes, int]:
    """Return the values as whole multiples of 1/scale, and the scale."""
    if not are_numbers(values):
        raise ProgramError(node.line, f"only numbers can be added up; got {values[0]!r}.")
    whole, scale = whole_multiples(values)
    if max(map(abs, whole), default=0) > _EXACT // 1024:
        reason = (
            "these numbers are too fine to be averaged exactly; use whole numbers or Fractions."
        )
        raise ProgramError(node.line, reason)
    return np.array(whole), scale


def whole_multiples(values: Items[Value]) -> tuple[list[int], int]:
    """Write numbers as whole multiples of 1/scale; return these, and the scale."""
    fractions = list(map(Fraction, values))
    scale = lcm(*(value.denominator for value in fractions))
    return [int(value * scale) for value in fractions], scale


def _sums(selected: Selected, numbers: Codes) -> Codes:
    sums = selected.astype(np.float64) @ numbers[..., None].astype(np.float64)
    return np.rint(sums[..., 0]).astype(np.int64)
