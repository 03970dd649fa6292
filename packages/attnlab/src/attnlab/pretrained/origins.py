"""Origins: what the tensors of a traced pass were computed from, by which self-attention and
cross-attention are told apart.

Lengths do not tell them apart: an encoder and a decoder may read as many tokens, and a prefix, a
memory or a cache gives self-attention more keys than queries. So what a block is given is marked,
and every function passes the marks of its arguments on. Keys of self-attention bear the mark of the
stream that the queries are made from; keys of cross-attention do not.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from attnlab.pretrained.backends.products import PRODUCTS

Marks = frozenset[Any]
_NONE: Marks = frozenset()
_SCORES = (*PRODUCTS, torch.baddbmm, torch.Tensor.baddbmm)


class Origins:
    """The marks of every tensor, and of both factors of every product."""

    def __init__(self) -> None:
        self._marks: Any = WeakTensorKeyDictionary()
        self._factors: Any = WeakTensorKeyDictionary()

    def of(self, value: Tensor) -> Marks:
        """Return the marks of a tensor."""
        marks: Marks = self._marks.get(value, _NONE)
        return marks

    def factors(self, scores: Tensor) -> tuple[Marks, Marks]:
        """Return the marks of what was multiplied to make these scores; none where that is
        unknown."""
        marks: tuple[Marks, Marks] = self._factors.get(scores, (_NONE, _NONE))
        return marks

    def mark(self, value: Tensor | None, mark: Any) -> None:
        """Mark a tensor."""
        if value is not None:
            self._marks[value] = self.of(value) | {mark}

    def passed(
        self, func: Callable[..., Any] | None, operands: Sequence[Tensor], made: Sequence[Tensor]
    ) -> None:
        """Pass the marks of a function's arguments on to its results."""
        marks = _NONE.union(*map(self.of, operands))
        factors = None
        if func in _SCORES and len(operands) > 1:
            factors = self.of(operands[-2]), self.of(operands[-1])
        for result in made:
            if marks:
                self._marks[result] = self.of(result) | marks
            if factors is not None:
                self._factors[result] = factors
                continue
            for value in operands:
                if value.numel() == result.numel() and value in self._factors:
                    self._factors[result] = self._factors[value]
                    break


def are_one_sequence(
    query: Marks, key: Marks, block: int | None, *, may_be_pooled: bool
) -> bool | None:
    """Are queries and keys made from the same sequence; None where that is unknown?

    block: the mark of what the block around them is given; None where no block is known ·
    may_be_pooled: there are several times as many keys as queries. Inputs of
    the model are marked by their names: without a block, all those that the queries come from must
    be in the keys too.
    """
    if block is not None and (block in query or block in key):
        # Queries may be pooled from the keys before the block: then nothing else made them.
        is_pooled = may_be_pooled and query - {block} == key != _NONE
        return block in query and (block in key or is_pooled)
    inputs, others = ({mark for mark in marks if isinstance(mark, str)} for marks in (query, key))
    if not inputs:
        return False if others else None
    return inputs <= others
