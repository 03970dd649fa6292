"""Token history: what each stack has read since an edit began, and in which forward pass.

One forward pass through a stack is one step. With a key/value cache a pass reads new positions
only; without one, it reads the earlier ones again, and they keep the step in which they were read
first. So an edit that is told a step, or a position counted from the end, acts alike with a cache
and without.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab.edits.where import own_name
from attnlab.look.recording.tokens import first_key
from attnlab.sites import Reading


@dataclass(frozen=True, eq=False)
class Text:
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

    def ends_at(self, positions: Tensor) -> Tensor:
        """Return where the text ended when each position was read first."""
        return torch.tensor(self.ends, device=positions.device).index_select(0, positions)


class TokenHistory:
    """The texts of all stacks, by their paths."""

    def __init__(self) -> None:
        self._texts: dict[str, Text] = {}
        self.is_reordered = False
        """Whether a pass went on from rows in another order, as a beam search does, or from unknown
        ones."""

    def read(self, stack: str, reading: Reading, *, compare: bool) -> None:
        """Take in what a stack begins to read; `compare` where it matters whether it was read
        before."""
        tokens, offset, real, rows = reading
        nothing = Text(tokens[:, :0], None, (), (), 0, -1)
        before = self._texts.pop(stack, nothing)  # the one that read last becomes the last
        self.is_reordered = self.is_reordered or rows is not None
        kept = min(offset, before.length)
        if offset == 0 and compare and _continues(tokens, before.tokens):
            kept = before.length
        gap = max(offset - kept, 0)  # read before the edit began
        end = offset + tokens.shape[1]
        new, number = end - kept - gap, before.number + 1
        steps = before.steps[:kept] + (-1,) * gap + (number,) * new
        ends = before.ends[:kept] + (offset,) * gap + (end,) * new
        if offset:
            tokens = torch.cat((_known(before, tokens, offset, rows), tokens), 1)
            real = None  # a cache goes with masks, which say it better
        self._texts[stack] = Text(tokens, real, steps, ends, offset, number)

    def of(self, part: str, *, is_memory: bool = False) -> Text | None:
        """Return the text behind a part's queries, or (`is_memory`) behind its cross-attention
        keys.

        What lies outside all stacks, as the logits of an encoder–decoder, comes after the one that
        read last.
        """
        around = [stack for stack in self._texts if _is_inside(part, stack)]
        if is_memory:
            others = [text for stack, text in self._texts.items() if stack not in around]
            return others[0] if len(others) == 1 else None
        if around:
            return self._texts[max(around, key=len)]
        inside = [text for stack, text in self._texts.items() if _is_inside(stack, part)]
        return inside[-1] if inside else None

    def of_queries(self, part: str, num_queries: int) -> Text | None:
        """Return what the queries' stack has read; None where its positions are others."""
        text = self.of(part)
        if text is None or text.length - text.offset != num_queries:
            return None
        return text

    def of_keys(self, part: str, num_keys: int) -> Text | None:
        """Return the keys' text: the queries' own, or another stack's; None if neither fits."""
        own = self.of(part)
        if own is not None and not is_cross(part) and first_key(own.length, num_keys, own.offset):
            return own
        is_elsewhere = is_cross(part) or (own is not None and own.length != num_keys)
        text = self.of(part, is_memory=True) if is_elsewhere else own
        if text is None or text.length != num_keys:
            return None
        return text

    def first_key(self, part: str, num_keys: int) -> int:
        """Return the position of the first key: a cache may have let go of those before."""
        text = self.of(part)
        if text is None or is_cross(part):
            return 0
        return first_key(text.length, num_keys, text.offset)

    def outside(self, path: str) -> "TokenHistory":
        """Return the history of the stacks that are not inside a module."""
        found = TokenHistory()
        for stack, text in self._texts.items():
            if not _is_inside(stack, path):
                found._texts[stack] = text
        return found


def is_cross(part: str) -> bool:
    """Is this part called a cross-attention?"""
    return own_name(part).startswith("cross")


def _is_inside(path: str, module: str) -> bool:
    return not module or path == module or path.startswith(f"{module}.")


def _continues(tokens: Tensor, before: Tensor) -> bool:
    """Are all earlier tokens read again, followed by new ones? (Beam search reorders rows.)"""
    length = before.shape[1]
    is_alike = tokens.shape[0] == before.shape[0] and tokens.shape[2:] == before.shape[2:]
    if tokens.shape[1] <= length or not is_alike:
        return False
    again = tokens[:, :length]
    if torch.equal(again, before):
        return True
    is_one_of_them = (again[:, None] == before[None]).flatten(2).all(-1).any(1)
    return not tokens.is_floating_point() and bool(is_one_of_them.all())


def _known(before: Text, tokens: Tensor, offset: int, rows: Tensor | None) -> Tensor:
    """Return the tokens before a pass; -1 where they are unknown."""
    batch = before.tokens.shape[0]
    if before.length >= offset and before.tokens.shape[2:] == tokens.shape[2:]:
        if rows is None and batch == tokens.shape[0]:
            return before.tokens[:, :offset]
        if rows is not None and bool(((rows >= 0) & (rows < batch)).all()):
            return before.tokens[rows.to(before.tokens.device), :offset]
    return tokens.new_full((tokens.shape[0], offset, *tokens.shape[2:]), -1)
