"""The values that the parts of a program have on some input, by trial.

`Domains` takes the values of each part alone, so that it knows some that no input has: the index
of a position is less than the length, and each alone may be anything. Where that refuses a program,
all inputs are tried; where they are too many, one of each length, for the parts that read no token.
"""

from typing import Any

import numpy as np

from attnlab.programs.interpreter import ProgramValues, every_input, sequences_of
from attnlab.programs.language import Map, Program, Sequence, Tokens
from attnlab.programs.values import Value, value_key

MAX_TRIED = 20_000  # inputs
_MAX_PAIRS = 30_000_000  # of a query and a key, of one input of each length

ValueRow = tuple[Value, ...]


class ReachableValues:
    """The values of sequences, and the joint values of the arguments of maps."""

    def __init__(self, program: Program, longest: int) -> None:
        self._values: dict[Sequence, dict[Any, Value]] = {}
        self._rows: dict[Map, dict[Any, ValueRow]] = {}
        size, sequences = len(program.alphabet), sequences_of(program.output)
        is_exhaustive = sum(size**length for length in range(1, longest + 1)) <= MAX_TRIED
        if not is_exhaustive:
            sequences = [node for node in sequences if not _reads_tokens(node)]
            if longest**3 > _MAX_PAIRS:
                sequences = []
        for length in range(1, longest + 1):
            inputs = every_input(program, length)
            if not is_exhaustive:
                inputs = iter([np.zeros((1, length), np.int64)])
            for ids in inputs:
                meaning = ProgramValues(program, ids)
                for node in sequences:
                    self._add(meaning, node)

    def values(self, node: Sequence) -> set[Any] | None:
        """Return the identities of the values that a sequence has; None where that is unknown."""
        if node not in self._values:
            return None
        return set(self._values[node])

    def rows(self, node: Map) -> list[ValueRow] | None:
        """Return the joint values of a map's arguments, each once; None where they are unknown."""
        if node not in self._rows:
            return None
        return list(self._rows[node].values())

    def _add(self, meaning: ProgramValues, node: Sequence) -> None:
        coded = meaning.of(node)
        for code in np.unique(coded.codes):
            value = coded.values[code]
            self._values.setdefault(node, {})[value_key(value)] = value
        if not isinstance(node, Map):
            return
        arguments = [meaning.of(argument) for argument in dict.fromkeys(node.arguments)]
        codes = np.stack([argument.codes.ravel() for argument in arguments], 1)
        for row in np.unique(codes, axis=0):
            pairs = zip(arguments, row, strict=True)
            values = tuple(argument.values[code] for argument, code in pairs)
            self._rows.setdefault(node, {})[value_key(values)] = values


def _reads_tokens(node: Sequence) -> bool:
    return any(isinstance(part, Tokens) for part in sequences_of(node))
