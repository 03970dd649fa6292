"""The views of a program's sequences: as a number, or as one dimension for each value."""

from collections.abc import Callable
from collections.abc import Sequence as Items
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from attnlab.programs.blueprint import Blueprint, Matrix, View
from attnlab.programs.conjunctions import Conjunction, conjunctions
from attnlab.programs.domains import Domains, has_value
from attnlab.programs.interpreter import sequences_of
from attnlab.programs.language import Aggregate, Indices, Map, Selector, Sequence, Tokens, Width
from attnlab.programs.lines import ProgramError
from attnlab.programs.memoize import memoize
from attnlab.programs.values import Value, are_numbers, numbered, value_key

ViewForm = Literal["one-hot", "number"]


class TooCoarse(Exception):
    """A number is read that is not accurate enough: the gains before it must be larger."""


class Views:
    """The views of a program's sequences, made on demand.

    Args:
        domains: what the sequences may hold.
        allowed: how far the output of a head may be from what it stands for.
        spacing: of the model's numbers at 1.
        make: makes a view, and puts what it needs into the blueprint.
    """

    def __init__(
        self,
        domains: Domains,
        allowed: float,
        spacing: float,
        make: Callable[["Views", Sequence, ViewForm], View],
    ) -> None:
        self.domains, self.longest = domains, domains.longest
        self.allowed, self.spacing = allowed, spacing
        self.blueprint = Blueprint()
        self._make = make
        self._known: dict[tuple[Sequence, ViewForm], View] = {}
        self.weights: dict[Sequence, View] = {}  # of BOS, where widths are read off
        self.has_bos = False
        for node in sequences_of(domains.program.output):
            self.has_bos |= isinstance(node, Width) or (
                isinstance(node, Aggregate) and domains.may_be_empty(node.selector)
            )
        if self.has_bos:
            self.blueprint.input("bos", 1, 1.0)

    def output(self) -> View:
        """Return the view of the program's output."""
        output = self.domains.program.output
        if are_numbers(self.domains.values(output)):
            return self.number(output)
        return self.one_hot(output)

    def one_hot(self, node: Sequence) -> View:
        """Return the view with one dimension for each value."""
        return self.view(node, "one-hot")

    def number(self, node: Sequence) -> View:
        """Return the view that is the value itself."""
        if not are_numbers(self.domains.values(node)):
            raise ProgramError(node.line, f"{node!r} must hold numbers here.")
        return self.view(node, "number")

    def view(self, node: Sequence, form: ViewForm) -> View:
        """Return the view of a sequence in one of the two forms."""
        if (node, form) not in self._known:
            self._known[node, form] = self._make(self, node, form)
        return self._known[node, form]

    def rows(self, node: Sequence, table: Items[Value], form: ViewForm) -> Matrix:
        """Write values of a sequence as rows: numbers, or one-hot vectors."""
        known = next(value for value in table if has_value(value))
        known_values = [value if has_value(value) else known for value in table]
        if form == "number":
            return np.array(list(map(float, known_values)))[:, None]
        return one_hot_rows(self.places(node, known_values), len(self.domains.values(node)))

    def table(self, node: Sequence, form: ViewForm) -> Matrix:
        """Return a sequence's rows, one for each value of its base."""
        return self.rows(node, self.domains.table(node), form)

    def places(self, node: Sequence, values: Items[Value]) -> list[int]:
        """Return the places of values among the possible values of a sequence."""
        places = numbered(self.domains.values(node))
        return [places[value_key(value)] for value in values]

    def has_one_hot(self, base: Sequence) -> bool:
        """Is a base one-hot as it is made?"""
        if not isinstance(base, Aggregate):
            return isinstance(base, Tokens | Indices | Map)
        if not are_numbers(self.domains.values(base)):
            return True
        return self.domains.at_most_one(base.selector) and self.is_cheap(base.values)

    def is_cheap(self, node: Sequence) -> bool:
        """Is a one-hot vector of a sequence a linear function of its base?"""
        base = self.domains.base(node)
        return base is None or self.has_one_hot(base)

    def is_linear(self, node: Sequence) -> bool:
        """Is that so, and does the base take no hidden units either?"""
        return self.is_cheap(node) and not isinstance(self.domains.base(node), Map)

    @memoize
    def cases(self, selector: Selector) -> list[Conjunction]:
        """Return a selector as conjunctions that exclude each other."""
        return conjunctions(selector, self.domains)


def one_hot_rows(places: Any, size: int) -> Matrix:
    """Return a one-hot row for each place."""
    rows = np.zeros((len(places), size))
    rows[np.arange(len(places)), list(places)] = 1.0
    return rows


def min_gap(numbers: Items[float]) -> float:
    """Return the smallest distance between two different numbers; 1 if there are none."""
    return min((two - one for one, two in pairwise(sorted(numbers)) if two > one), default=1.0)
