"""The possible values of a program's parts, over all inputs up to a length, derived without running
it.

A sequence's *base* is what has to be computed before it: the tokens, the indices, an aggregate, a
width, or a map of several bases. A map of one base is a table, and so costs a model nothing.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Items
from fractions import Fraction
from functools import partial
from itertools import compress, product
from math import prod

import numpy as np
from numpy.typing import NDArray

from attnlab.programs.interpreter import (
    JOINS,
    Codes,
    ProgramValues,
    apply_map,
    compare,
    every_input,
    whole_multiples,
)
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
    indices,
)
from attnlab.programs.lines import ProgramError
from attnlab.programs.memoize import memoize
from attnlab.programs.reachable_values import MAX_TRIED, ReachableValues
from attnlab.programs.values import (
    Value,
    are_numbers,
    is_program_number,
    mean_of_one,
    plain_number,
    value_key,
)

MAX_VALUES = 5_000  # of one sequence
MAX_PAIRS = 1_000_000  # of a key's and a query's value
MAX_COMBINATIONS = 20_000  # of values of several, a hidden unit or two for each
Table = NDArray[np.bool_]


class Domains:
    """The values, the bases and the selections of a program's parts, for inputs up to a length.

    reachable: the values found by trying; None to do without.
    """

    def __init__(
        self, program: Program, longest: int, reachable: ReachableValues | None = None
    ) -> None:
        self.program, self.longest, self.reachable = program, longest, reachable

    @memoize
    def base(self, node: Sequence) -> Sequence | None:
        """Return the one sequence that this one is a table of, or itself; None for a constant."""
        if isinstance(node, Constant):
            return None
        if not isinstance(node, Map):
            return node
        bases = dict.fromkeys(map(self.base, node.arguments))
        bases.pop(None, None)
        if len(bases) > 1:
            return node
        return next(iter(bases), None)

    @memoize
    def values(self, node: Sequence) -> tuple[Value, ...]:
        """List all values that a sequence may have; some may never occur."""
        values = tuple({value_key(value): value for value in self._possible(node)}.values())
        _check_one_kind(node, values)
        if len(values) > MAX_VALUES:
            raise ProgramError(
                node.line,
                f"{node!r} may have {len(values):,} different values; "
                f"a model is made for at most {MAX_VALUES:,}.",
            )
        return values

    @memoize
    def table(self, node: Sequence) -> list[Value]:
        """Return a sequence's value for each value of its base; of a constant, its one value."""
        base = self.base(node)
        if isinstance(node, Constant):
            return [node.value]
        if base is node:
            return list(self.values(node))
        assert isinstance(node, Map)
        if base is None:
            return [apply_map(node, [self.table(argument)[0] for argument in node.arguments])]
        values = self.values(base)
        columns = []
        for argument in node.arguments:
            is_constant = self.base(argument) is None
            columns.append(self.table(argument) * (len(values) if is_constant else 1))
        table = map(partial(_applied, node), zip(*columns, strict=True))
        known = self.reachable and self.reachable.values(base)
        if not known:
            return list(table)
        pairs = zip(values, table, strict=True)
        return [entry if value_key(value) in known else _NO_VALUE for value, entry in pairs]

    def combinations(
        self, node: Map
    ) -> tuple[list[Sequence], list[tuple[Value, ...]], list[Value]]:
        """Return a map's arguments, each once and without constants, their possible values, and the
        map's values.

        Combinations on which the function fails are left out: the program has no meaning there.
        """
        arguments = list(dict.fromkeys(node.arguments))
        is_variable = [self.base(argument) is not None for argument in arguments]
        variables = list(compress(arguments, is_variable))
        known_rows = self.reachable and self.reachable.rows(node)
        rows: Iterable[tuple[Value, ...]] = product(*map(self.values, variables))
        size = prod(map(len, map(self.values, variables)))
        if known_rows:
            rows = [tuple(compress(row, is_variable)) for row in known_rows]
            size = len(known_rows)
        if size > MAX_COMBINATIONS:
            raise ProgramError(
                node.line,
                f"{node!r} joins {size:,} combinations of values; a model "
                f"is made for at most {MAX_COMBINATIONS:,}. Take fewer values first.",
            )
        constants = set(arguments) - set(variables)
        row = {argument: self.table(argument)[0] for argument in constants}
        known, results = [], []
        for values in rows:
            row |= zip(variables, values, strict=True)
            try:
                results.append(apply_map(node, [row[argument] for argument in node.arguments]))
                known.append(values)
            except ProgramError as error:
                failed = error
        if not known:
            raise failed
        return variables, known, results

    def _possible(self, node: Sequence) -> Items[Value]:
        if isinstance(node, Tokens):
            return self.program.alphabet
        if isinstance(node, Indices):
            return range(self.longest)
        if isinstance(node, Width):
            return self._sums(node)
        if isinstance(node, Aggregate):
            return self._gathered(node)
        if self.base(node) is node:
            assert isinstance(node, Map)
            return self.combinations(node)[2]
        return list(filter(has_value, self.table(node)))

    def _sums(self, node: Width) -> Items[Value]:
        least = 0 if self.may_be_empty(node.selector) else 1
        if node.values is None:
            return range(least, self.longest + 1)
        sums, _ = self._sums_and_means(node, self._numbers(node, node.values))
        return self._occurring(node, map(plain_number, sorted(sums)))

    def _gathered(self, node: Aggregate) -> Items[Value]:
        values = list(map(mean_of_one, self.values(node.values)))
        default = self.default(node)
        if not are_numbers(values) or self.at_most_one(node.selector):
            return [*values, *default]
        if not are_numbers(default):
            reason = f"the mean of numbers has a number as its default; got {node.default!r}."
            raise ProgramError(node.line, reason)
        _, means = self._sums_and_means(node, values)
        return [*self._occurring(node, sorted(map(plain_number, means))), *default]

    def default(self, node: Aggregate) -> list[Value]:
        """Return an aggregate's default, if it may select nothing."""
        is_used = node.has_default
        if self.reachable is not None:  # otherwise models have room for it
            is_used = is_used and self.may_be_empty(node.selector)
        return [mean_of_one(node.default)] if is_used else []

    def _occurring(self, node: Sequence, values: Iterable[Value]) -> list[Value]:
        """Leave out values that no input has, as far as these are known."""
        known = self.reachable and self.reachable.values(node)
        if not known:
            return list(values)
        return [value for value in values if value_key(value) in known]

    def _sums_and_means(
        self, node: Sequence, values: Items[Value]
    ) -> tuple[set[Fraction], set[Fraction]]:
        """Return all sums and all means of one to `longest` of these values."""
        multiples, scale = whole_multiples(values)
        whole, sums, every, means = set(multiples), {0}, {0}, set[Fraction]()
        for count in range(1, self.longest + 1):
            sums = {above + value for above in sums for value in whole}
            every |= sums
            means |= {Fraction(above, count * scale) for above in sums}
            if len(means) > 4 * MAX_VALUES:
                raise ProgramError(
                    node.line,
                    f"{node!r} may have more than {4 * MAX_VALUES:,} "
                    "different values; take fewer or coarser numbers.",
                )
        return {Fraction(above, scale) for above in every}, means

    def _numbers(self, node: Sequence, values: Sequence) -> tuple[Value, ...]:
        numbers = self.values(values)
        if not are_numbers(numbers):
            raise ProgramError(
                node.line,
                f"only numbers can be added up; {values!r} may be "
                f"{next(value for value in numbers if not is_program_number(value))!r}.",
            )
        return numbers

    @memoize
    def relation(self, selector: Compared) -> Table:
        """Compare all values: [query value, key value]; False where they cannot be compared."""
        keys, queries = self.values(selector.keys), self.values(selector.queries)
        if len(keys) * len(queries) > MAX_PAIRS:
            raise ProgramError(
                selector.line,
                f"{selector!r} compares {len(queries):,} values with {len(keys):,}; a model is "
                f"made for at most {MAX_PAIRS:,} pairs. Take fewer values first.",
            )
        relation = np.zeros((len(queries), len(keys)), np.bool_)
        for row, query in enumerate(queries):
            for column, key in enumerate(keys):
                try:
                    relation[row, column] = compare(selector, key, query)
                except ProgramError:
                    continue
        return relation

    def at_most_one(self, selector: Selector) -> bool:
        """Can no query select two keys? Sure where each query's value fits one place alone."""
        if isinstance(selector, JoinedSelector) and selector.name == "&":
            return any(map(self.at_most_one, selector.parts))
        if isinstance(selector, Best):
            scores = self.table(selector.scores)
            is_ranked = self.base(selector.scores) is indices and len(set(scores)) == len(scores)
            return is_ranked or self.at_most_one(selector.selector)
        if not isinstance(selector, Compared) or not isinstance(selector.keys, Indices):
            return False
        return bool((self.relation(selector).sum(1) <= 1).all())

    def looks_back(self, selector: Selector) -> bool:
        """Does no query select a later position? Where that is not sure, it may."""
        if isinstance(selector, Best):
            return self.looks_back(selector.selector)
        if isinstance(selector, JoinedSelector) and selector.name in ("&", "|"):
            look_back = map(self.looks_back, selector.parts)
            if selector.name == "&":
                return any(look_back)
            return all(look_back)
        if not isinstance(selector, Compared):
            return False
        if selector.keys is not indices or selector.queries is not indices:
            return False
        return not (self.relation(selector) & ~np.tri(self.longest, dtype=np.bool_)).any()

    @memoize
    def may_be_empty(self, selector: Selector) -> bool:
        """May a query select nothing? Where that is not sure, it may."""
        return not self._sees_itself(selector) and self._tried(selector)

    def _sees_itself(self, selector: Selector) -> bool:
        if isinstance(selector, Best):
            return self._sees_itself(selector.selector)
        if isinstance(selector, JoinedSelector):
            see_themselves = map(self._sees_itself, selector.parts)
            return selector.name != "~" and bool(JOINS[selector.name](*see_themselves))
        assert isinstance(selector, Compared)
        relation = self.relation(selector)
        if relation.all():
            return True
        return selector.keys is selector.queries and bool(relation.diagonal().all())

    def _tried(self, selector: Selector) -> bool:
        """Evaluate the selector on every input, or on one of each length if no token matters."""
        base = len(self.program.alphabet)
        is_free = not self._reads_tokens(selector)
        lengths = range(1, self.longest + 1)
        if not is_free and sum(base**length for length in lengths) > MAX_TRIED:
            return True
        for length in lengths:
            inputs: Iterable[Codes] = [np.zeros((1, length), np.int64)]
            if not is_free:
                inputs = every_input(self.program, length)
            for ids in inputs:
                if not ProgramValues(self.program, ids).selected(selector).any(-1).all():
                    return True
        return False

    def _reads_tokens(self, selector: Selector) -> bool:
        if isinstance(selector, JoinedSelector):
            return any(map(self._reads_tokens, selector.parts))
        if isinstance(selector, Best):
            return self._reads_tokens(selector.selector) or self._has_tokens(selector.scores)
        assert isinstance(selector, Compared)
        relation = self.relation(selector)
        if relation.all() or not relation.any():
            return False
        return self._has_tokens(selector.keys) or self._has_tokens(selector.queries)

    def _has_tokens(self, node: Sequence) -> bool:
        if isinstance(node, Aggregate | Width) and self._reads_tokens(node.selector):
            return True
        return isinstance(node, Tokens) or any(map(self._has_tokens, node.arguments))


def _check_one_kind(node: Sequence, values: Items[Value]) -> None:
    """Refuse values that are equal and not the same."""
    known: dict[Value, Value] = {}
    for value in values:
        other = known.setdefault(value, value)
        if other is not value:
            raise ProgramError(
                node.line,
                f"{node!r} mixes values that are equal and not the same, {other!r} and {value!r}; "
                "take one kind.",
            )


def _applied(node: Map, row: Items[Value]) -> Value:
    if not all(map(has_value, row)):
        return _NO_VALUE
    try:
        value, again = apply_map(node, row), apply_map(node, row)
    except ProgramError:
        return _NO_VALUE
    if value_key(value) != value_key(again):
        raise ProgramError(
            node.line,
            f"{node.name} of {', '.join(map(repr, row))} is {value!r} and then {again!r}; a map "
            "must depend on its values alone.",
        )
    return value


class _NoValue:
    """The value in a table where a map fails."""


_NO_VALUE = _NoValue()


def has_value(value: Value) -> bool:
    """Is this a value, or does the map that should give it fail?"""
    return value is not _NO_VALUE
