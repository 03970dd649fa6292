"""What the parts of a program may hold, over all inputs up to a length: found without running it.

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
    Meaning,
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
    Joined,
    Map,
    Program,
    Selector,
    Sequence,
    Tokens,
    Width,
    indices,
)
from attnlab.programs.lines import ProgramError
from attnlab.programs.reached import MOST_TRIED, Reached
from attnlab.programs.values import (
    Value,
    are_numbers,
    identity,
    is_number,
    mean_of_one,
    plain,
)

MOST_VALUES = 5_000  # of one sequence
MOST_PAIRS = 1_000_000  # of a key's and a query's value
MOST_COMBINATIONS = 20_000  # of values of several, a hidden unit or two for each
Table = NDArray[np.bool_]


class Domains:
    """The values, the bases and the selections of a program's parts, for inputs up to a length.

    reached: what was found by trying; None to do without.
    """

    def __init__(self, program: Program, longest: int, reached: Reached | None = None) -> None:
        self.program, self.longest, self.reached = program, longest, reached
        self._values: dict[Sequence, tuple[Value, ...]] = {}
        self._bases: dict[Sequence, Sequence | None] = {}
        self._tables: dict[Sequence, list[Value]] = {}
        self._empties: dict[Selector, bool] = {}
        self._relations: dict[Compared, Table] = {}

    def base(self, each: Sequence) -> Sequence | None:
        """Return the one sequence that this one is a table of, or itself; None for a constant."""
        if each not in self._bases:
            self._bases[each] = self._find_base(each)
        return self._bases[each]

    def _find_base(self, each: Sequence) -> Sequence | None:
        if isinstance(each, Constant):
            return None
        if not isinstance(each, Map):
            return each
        bases = dict.fromkeys(map(self.base, each.arguments))
        bases.pop(None, None)
        if len(bases) > 1:
            return each
        return next(iter(bases), None)

    def values(self, each: Sequence) -> tuple[Value, ...]:
        """List all values that a sequence may have; some may never occur."""
        if each not in self._values:
            found = tuple({identity(value): value for value in self._possible(each)}.values())
            _check_one_kind(each, found)
            if len(found) > MOST_VALUES:
                raise ProgramError(
                    each.line,
                    f"{each!r} may have {len(found):,} different values; "
                    f"a model is made for at most {MOST_VALUES:,}.",
                )
            self._values[each] = found
        return self._values[each]

    def table(self, each: Sequence) -> list[Value]:
        """Return a sequence's value for each value of its base; of a constant, its one value."""
        if each not in self._tables:
            self._tables[each] = self._tabulate(each)
        return self._tables[each]

    def _tabulate(self, each: Sequence) -> list[Value]:
        base = self.base(each)
        if isinstance(each, Constant):
            return [each.value]
        if base is each:
            return list(self.values(each))
        assert isinstance(each, Map)
        if base is None:
            return [apply_map(each, [self.table(argument)[0] for argument in each.arguments])]
        columns, number = [], len(self.values(base))
        for argument in each.arguments:
            own = self.table(argument)
            if self.base(argument) is None:
                own = own * number
            columns.append(own)
        found = list(map(partial(_applied, each), zip(*columns, strict=True)))
        known = self.reached and self.reached.values(base)
        if known:
            for place, value in enumerate(self.values(base)):
                if identity(value) not in known:
                    found[place] = _UNREACHED
        return found

    def combinations(
        self, each: Map
    ) -> tuple[list[Sequence], list[tuple[Value, ...]], list[Value]]:
        """Return a map's arguments, each once, without constants; what they may be; and its values.

        Combinations on which the function fails are left out: the program has no meaning there.
        """
        arguments = list(dict.fromkeys(each.arguments))
        given = [argument for argument in arguments if self.base(argument) is not None]
        rows: Iterable[tuple[Value, ...]] | None = None
        if self.reached is not None:
            rows = self.reached.rows(each)
        if rows is None:
            size = prod(map(len, map(self.values, given)))
            rows = product(*map(self.values, given))
        else:
            kept = [self.base(argument) is not None for argument in arguments]
            rows = [tuple(compress(row, kept)) for row in rows]
            size = len(rows)
        if size > MOST_COMBINATIONS:
            raise ProgramError(
                each.line,
                f"{each!r} joins {size:,} combinations of values; a model "
                f"is made for at most {MOST_COMBINATIONS:,}. Take fewer values first.",
            )
        known, results = [], []
        for values in rows:
            told = dict(zip(given, values, strict=True))
            row = []
            for argument in each.arguments:
                row.append(told[argument] if argument in told else self.table(argument)[0])
            try:
                results.append(apply_map(each, row))
            except ProgramError as error:
                failed = error
                continue
            known.append(values)
        if not known:
            raise failed
        return given, known, results

    def _possible(self, each: Sequence) -> Items[Value]:
        if isinstance(each, Tokens):
            return self.program.alphabet
        if isinstance(each, Indices):
            return range(self.longest)
        if isinstance(each, Width):
            return self._sums(each)
        if isinstance(each, Aggregate):
            return self._gathered(each)
        if self.base(each) is each:
            assert isinstance(each, Map)
            return self.combinations(each)[2]
        return list(filter(is_reached, self.table(each)))

    def _sums(self, each: Width) -> Items[Value]:
        least = 0 if self.may_be_empty(each.selector) else 1
        if each.values is None:
            return range(least, self.longest + 1)
        sums, _ = self._sums_and_means(each, self._numbers(each, each.values))
        return self._occurring(each, map(plain, sorted(sums)))

    def _gathered(self, each: Aggregate) -> Items[Value]:
        values = list(map(mean_of_one, self.values(each.values)))
        default = self.default(each)
        if not are_numbers(values) or self.at_most_one(each.selector):
            return [*values, *default]
        if not are_numbers(default):
            reason = f"the mean of numbers has a number as its default; got {each.default!r}."
            raise ProgramError(each.line, reason)
        _, means = self._sums_and_means(each, values)
        return [*self._occurring(each, sorted(map(plain, means))), *default]

    def default(self, each: Aggregate) -> list[Value]:
        """Return what an aggregate is where nothing is selected, if that may be."""
        is_used = each.has_default
        if self.reached is not None:  # otherwise models have room for it
            is_used = is_used and self.may_be_empty(each.selector)
        return [mean_of_one(each.default)] if is_used else []

    def _occurring(self, each: Sequence, values: Iterable[Value]) -> list[Value]:
        """Leave out what no input has, as far as that is known."""
        known = self.reached and self.reached.values(each)
        if not known:
            return list(values)
        return [value for value in values if identity(value) in known]

    def _sums_and_means(
        self, each: Sequence, values: Items[Value]
    ) -> tuple[set[Fraction], set[Fraction]]:
        """Return all sums and all means of one to `longest` of these values."""
        multiples, scale = whole_multiples(values)
        whole, sums, every, means = set(multiples), {0}, {0}, set[Fraction]()
        for count in range(1, self.longest + 1):
            sums = {above + value for above in sums for value in whole}
            every |= sums
            means |= {Fraction(above, count * scale) for above in sums}
            if len(means) > 4 * MOST_VALUES:
                raise ProgramError(
                    each.line,
                    f"{each!r} may have more than {4 * MOST_VALUES:,} "
                    "different values; take fewer or coarser numbers.",
                )
        return {Fraction(above, scale) for above in every}, means

    def _numbers(self, each: Sequence, values: Sequence) -> tuple[Value, ...]:
        found = self.values(values)
        if not are_numbers(found):
            raise ProgramError(
                each.line,
                f"only numbers can be added up; {values!r} may be "
                f"{next(value for value in found if not is_number(value))!r}.",
            )
        return found

    def relation(self, selector: Compared) -> Table:
        """Say which values compare: [query value, key value]; False where they cannot."""
        if selector not in self._relations:
            self._relations[selector] = self._relate(selector)
        return self._relations[selector]

    def _relate(self, selector: Compared) -> Table:
        keys, queries = self.values(selector.keys), self.values(selector.queries)
        if len(keys) * len(queries) > MOST_PAIRS:
            raise ProgramError(
                selector.line,
                f"{selector!r} compares {len(queries):,} values with {len(keys):,}; a model is "
                f"made for at most {MOST_PAIRS:,} pairs. Take fewer values first.",
            )
        found = np.zeros((len(queries), len(keys)), np.bool_)
        for row, query in enumerate(queries):
            for column, key in enumerate(keys):
                try:
                    found[row, column] = compare(selector, key, query)
                except ProgramError:
                    continue
        return found

    def at_most_one(self, selector: Selector) -> bool:
        """Can no query select two keys? Sure where each query's value fits one place alone."""
        if isinstance(selector, Joined) and selector.name == "&":
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
        if isinstance(selector, Joined) and selector.name in ("&", "|"):
            found = map(self.looks_back, selector.parts)
            if selector.name == "&":
                return any(found)
            return all(found)
        if not isinstance(selector, Compared):
            return False
        if selector.keys is not indices or selector.queries is not indices:
            return False
        return not (self.relation(selector) & ~np.tri(self.longest, dtype=np.bool_)).any()

    def may_be_empty(self, selector: Selector) -> bool:
        """May a query select nothing? Where that is not sure, it may."""
        if selector not in self._empties:
            self._empties[selector] = not self._sees_itself(selector) and self._tried(selector)
        return self._empties[selector]

    def _sees_itself(self, selector: Selector) -> bool:
        if isinstance(selector, Best):
            return self._sees_itself(selector.selector)
        if isinstance(selector, Joined):
            found = map(self._sees_itself, selector.parts)
            return selector.name != "~" and bool(JOINS[selector.name](*found))
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
        if not is_free and sum(base**length for length in lengths) > MOST_TRIED:
            return True
        for length in lengths:
            inputs: Iterable[Codes] = [np.zeros((1, length), np.int64)]
            if not is_free:
                inputs = every_input(self.program, length)
            for ids in inputs:
                if not Meaning(self.program, ids).selected(selector).any(-1).all():
                    return True
        return False

    def _reads_tokens(self, selector: Selector) -> bool:
        if isinstance(selector, Joined):
            return any(map(self._reads_tokens, selector.parts))
        if isinstance(selector, Best):
            return self._reads_tokens(selector.selector) or self._has_tokens(selector.scores)
        assert isinstance(selector, Compared)
        relation = self.relation(selector)
        if relation.all() or not relation.any():
            return False
        return self._has_tokens(selector.keys) or self._has_tokens(selector.queries)

    def _has_tokens(self, each: Sequence) -> bool:
        if isinstance(each, Aggregate | Width) and self._reads_tokens(each.selector):
            return True
        return isinstance(each, Tokens) or any(map(self._has_tokens, each.arguments))


def _check_one_kind(each: Sequence, values: Items[Value]) -> None:
    """Refuse values that are equal and not the same."""
    known: dict[Value, Value] = {}
    for value in values:
        other = known.setdefault(value, value)
        if other is not value:
            raise ProgramError(
                each.line,
                f"{each!r} mixes values that are equal and not the same, {other!r} and {value!r}; "
                "take one kind.",
            )


def _applied(each: Map, row: Items[Value]) -> Value:
    if not all(map(is_reached, row)):
        return _UNREACHED
    try:
        value, again = apply_map(each, row), apply_map(each, row)
    except ProgramError:
        return _UNREACHED
    if identity(value) != identity(again):
        raise ProgramError(
            each.line,
            f"{each.name} of {', '.join(map(repr, row))} is {value!r} and then {again!r}; a map "
            "must depend on its values alone.",
        )
    return value


class _Unreached:
    """The value in a table where a map fails."""


_UNREACHED = _Unreached()


def is_reached(value: Value) -> bool:
    """Is this a value, or does the map that should give it fail?"""
    return value is not _UNREACHED
