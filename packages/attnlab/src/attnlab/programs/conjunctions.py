"""Selectors as heads can have them: a head adds its scores up, so it says *and*, but not *or*.

What `&`, `|`, `~` join becomes a list of conjunctions of which at most one holds for any query and
key. One head does each conjunction: a key that meets all parts scores higher than every other.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, permutations
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.programs.domains import Domains, Table
from attnlab.programs.interpreter import JOINS
from attnlab.programs.language import Best, Compared, JoinedSelector, Selector, Sequence, apply
from attnlab.programs.lines import ProgramError
from attnlab.programs.values import Value

_MAX_CASES = 4_096  # of the truth values that the comparisons may have together
_MAX_ORDERED = 4  # comparisons of which every order is tried


@dataclass(frozen=True)
class ConjunctionPart:
    """One condition of a conjunction: `table[query value, key value]`."""

    keys: Sequence
    queries: Sequence
    table: Table


Conjunction = list[ConjunctionPart]


def conjunctions(selector: Selector, domains: Domains) -> list[Conjunction]:
    """Write a selector as conjunctions that exclude each other; none if it never selects.

    >>> from attnlab.programs.language import Program, indices, select, tokens
    >>> earlier = select(tokens, tokens, "==") & select(indices, indices, "<")
    >>> either = select(tokens, tokens, "<") | earlier
    >>> domains = Domains(Program(tokens, "ab"), 3)
    >>> len(conjunctions(earlier, domains)), len(conjunctions(either, domains))
    (1, 2)
    """
    groups = _groups(selector, domains)
    truth = _truth(selector, groups)
    orders = [tuple(range(len(groups)))]
    if len(groups) <= _MAX_ORDERED:
        orders = list(permutations(orders[0]))
    splits = []
    for order in orders:
        splits.append(list(_split(truth.transpose(order), [groups[place] for place in order])))
    return min(splits, key=len)


def as_one(selector: Selector, domains: Domains) -> Selector:
    """Return a selector that one head can do: of tuples of values where there are several cases."""
    if len(conjunctions(selector, domains)) <= 1:
        return selector
    atoms = _atoms(selector)
    keys = list(dict.fromkeys(atom.keys for atom in atoms))
    queries = list(dict.fromkeys(atom.queries for atom in atoms))

    def holds(key: tuple[Value, ...], query: tuple[Value, ...]) -> bool:
        of_key, of_query = dict(zip(keys, key, strict=True)), dict(zip(queries, query, strict=True))
        truth: dict[Selector, bool] = {}
        for atom in atoms:
            truth[atom] = bool(atom.holds(of_key[atom.keys], of_query[atom.queries]))
        return bool(_evaluate(selector, truth))

    joined = Compared(apply(_tuple, *keys), apply(_tuple, *queries), "joined", holds)
    for part in (joined, joined.keys, joined.queries):
        part.line = selector.line
    return joined


@dataclass(frozen=True)
class _Group:
    """Comparisons of the same keys and queries. `cases` numbers their truth values together, by
    [query value, key value]; `feasible` are the numbers that occur."""

    atoms: list[Compared]
    cases: NDArray[np.int64]
    feasible: NDArray[np.int64]


def _groups(selector: Selector, domains: Domains) -> list[_Group]:
    grouped: dict[tuple[Sequence, Sequence], list[Compared]] = {}
    for atom in _atoms(selector):
        grouped.setdefault((atom.keys, atom.queries), []).append(atom)
    groups = []
    for atoms in grouped.values():
        relations = list(map(domains.relation, atoms))
        powers = 2 ** np.arange(len(atoms), dtype=np.int64)
        cases = np.tensordot(powers, np.array(relations, dtype=np.int64), 1)
        groups.append(_Group(atoms, cases, np.unique(cases)))
    if prod(len(group.feasible) for group in groups) > _MAX_CASES:
        raise ProgramError(
            selector.line, "this selector joins too many comparisons; select in steps."
        )
    return groups


def _truth(selector: Selector, groups: list[_Group]) -> Table:
    """Return where the selector selects: one axis for each group, its feasible cases along it."""
    truth: dict[Selector, Any] = {}
    for axis, group in enumerate(groups):
        shape = [1] * len(groups)
        shape[axis] = len(group.feasible)
        for place, atom in enumerate(group.atoms):
            truth[atom] = (group.feasible >> place & 1).astype(np.bool_).reshape(shape)
    sizes = [len(group.feasible) for group in groups]
    return np.broadcast_to(_evaluate(selector, truth), sizes)


def _split(truth: Table, groups: list[_Group]) -> Iterator[Conjunction]:
    """Yield the conjunctions of a truth table: cases of the first group that leave the same of the
    others are one part."""
    if not groups:
        if truth:
            yield []
        return
    group, *others = groups
    rows, row_of = np.unique(truth.reshape(len(truth), -1), axis=0, return_inverse=True)
    for number, row in enumerate(rows):
        if not row.any():
            continue
        parts = []
        if len(rows) > 1:  # otherwise this group decides nothing
            cases = np.isin(group.cases, group.feasible[row_of.ravel() == number])
            parts = [ConjunctionPart(group.atoms[0].keys, group.atoms[0].queries, cases)]
        for rest in _split(row.reshape(truth.shape[1:]), others):
            yield [*parts, *rest]


def _evaluate(selector: Selector, truth: Mapping[Selector, Any]) -> Any:
    if not isinstance(selector, JoinedSelector):
        return truth[selector]
    return JOINS[selector.name](*(_evaluate(part, truth) for part in selector.parts))


def _atoms(selector: Selector) -> list[Compared]:
    if isinstance(selector, Compared):
        return [selector]
    if isinstance(selector, Best):
        raise ProgramError(
            selector.line,
            "best(…) cannot be joined with other selectors, nor counted; "
            "join first: best(one & other, scores).",
        )
    assert isinstance(selector, JoinedSelector)
    return list(dict.fromkeys(chain.from_iterable(map(_atoms, selector.parts))))


def _tuple(*values: Value) -> tuple[Value, ...]:
    return values
