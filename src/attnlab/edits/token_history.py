"""Token history: what each stack has read since an edit began, and in which forward pass.

One forward pass through a stack is one step. With a key/value cache a pass reads new positions
only; without one, it reads the earlier ones again, and they keep the step in which they were read
first. So an edit that is told a step, or a position counted from the end, acts alike with a cache
and without.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.sites import Reading

__all__ = ["Passes", "Text"]


class Text(NamedTuple):
    """What one stack has read up to its present pass.

    tokens (batch, length) ids, (batch, length, parts), or vectors (batch, length, width); -1 where
    they came before the edit · real (batch, length) or None · steps and ends, for each position:
    the pass in which it was read first, and the length of all that had been read by then · offset:
    the first position of the present pass · number: that of the present pass.
    """

    tokens: Tensor
    real: Tensor | None
    steps: tuple[int, ...]
    ends: tuple[int, ...]
    offset: int
    number: int

    @property
    def length(self) -> int:
        """How many positions there are."""
        return len(self.steps)


class Passes:
    """The texts of all stacks, by their paths."""

    def __init__(self) -> None:
        self._texts: dict[str, Text] = {}
        self.is_reordered = False
        """Whether a pass went on from rows in another order, as a beam search does, or from unknown
        ones."""

    def read(self, stack: str, reading: Reading, *, compare: bool) -> None:
        """Take in what a stack begins to read; `compare` where it matters whether it was read
        before."""
        before = self._texts.pop(stack, None)  # the one that read last stands last
        number = 0 if before is None else before.number + 1
        tokens, offset, real, rows = reading
        self.is_reordered = self.is_reordered or rows is not None
        end = offset + tokens.shape[1]
        kept = min(offset, before.length) if before is not None else 0
        if before is not None and offset == 0 and compare and _continues(tokens, before.tokens):
            kept = before.length
        gap = max(offset - kept, 0)  # read before the edit began
        steps = (before.steps[:kept] if before is not None else ()) + (-1,) * gap
        ends = (before.ends[:kept] if before is not None else ()) + (offset,) * gap
        new = end - kept - gap
        if offset:
            tokens = torch.cat((_known(before, tokens, offset, rows), tokens), 1)
            real = None  # a cache goes with masks, which say it better
        self._texts[stack] = Text(
            tokens, real, steps + (number,) * new, ends + (end,) * new, offset, number
        )

    def of(self, part: str, *, is_memory: bool = False) -> Text | None:
        """Return the text behind a part's queries, or (`is_memory`) behind its cross-attention
        keys.

        What stands outside all stacks, as the logits of an encoder–decoder, comes after the one
        that read last.
        """
        around = [
            stack
            for stack in self._texts
            if not stack or part == stack or part.startswith(f"{stack}.")
        ]
        if is_memory:
            others = [text for stack, text in self._texts.items() if stack not in around]
            return others[0] if len(others) == 1 else None
        if around:
            return self._texts[max(around, key=len)]
        inside = [stack for stack in self._texts if not part or stack.startswith(f"{part}.")]
        return self._texts[inside[-1]] if inside else None

    def outside(self, path: str) -> "Passes":
        """Return the history of the stacks that are not inside a module."""
        found = Passes()
        found._texts = {
            stack: text
            for stack, text in self._texts.items()
            if path and stack != path and not stack.startswith(f"{path}.")
        }
        return found

    def __len__(self) -> int:
        return len(self._texts)


def _continues(tokens: Tensor, before: Tensor) -> bool:
    """Are all earlier tokens read again, followed by new ones? (Beam search reorders rows.)"""
    length = before.shape[1]
    if (
        tokens.shape[1] <= length
        or tokens.shape[0] != before.shape[0]
        or tokens.shape[2:] != before.shape[2:]
    ):
        return False
    again = tokens[:, :length]
    if torch.equal(again, before):
        return True
    is_one_of_them = (again[:, None] == before[None]).flatten(2).all(-1).any(1)
    return not tokens.is_floating_point() and bool(is_one_of_them.all())


def _known(before: Text | None, tokens: Tensor, offset: int, rows: Tensor | None) -> Tensor:
    is_there = (
        before is not None
        and before.length >= offset
        and before.tokens.shape[2:] == tokens.shape[2:]
    )
    if (
        rows is not None
        and before is not None
        and is_there
        and _are_within(rows, before.tokens.shape[0])
    ):
        return before.tokens[rows.to(before.tokens.device), :offset]
    if (
        rows is None
        and before is not None
        and is_there
        and before.tokens.shape[0] == tokens.shape[0]
    ):
        return before.tokens[:, :offset]
    return tokens.new_full((tokens.shape[0], offset, *tokens.shape[2:]), -1)


def _are_within(rows: Tensor, size: int) -> bool:
    return bool(((rows >= 0) & (rows < size)).all())
