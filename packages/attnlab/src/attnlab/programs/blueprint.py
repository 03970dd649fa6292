"""The blueprint of a compiled model: blocks, views, heads and hidden units, before any matrix.

A *block* is a named part of the residual stream, written once: by the embedding, by a head, or by a
feed-forward part. A *view* is a linear function of blocks; reading one costs nothing. Work is put
into the first *slot* in which all that it reads is there: slot 2l is the attention of layer l, slot
2l + 1 its feed-forward part, and the embedding is slot -1.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


@dataclass(eq=False)
class StreamBlock:
    """A part of the stream: its name, its width, the slot that writes it, its value at BOS."""

    name: str
    slot: int
    at_bos: Matrix
    offset: int = -1

    @property
    def width(self) -> int:
        """How many dimensions it takes."""
        return len(self.at_bos)


@dataclass(frozen=True)
class View:
    """A linear function of the stream: the sum of matrix @ block over parts, plus a constant.

    error: how far it may be from what it stands for, in any component.
    """

    parts: tuple[tuple[StreamBlock, Matrix], ...]
    constant: Matrix
    error: float = 0.0

    @property
    def slot(self) -> int:
        """The last slot that writes a block of this view."""
        return max((block.slot for block, _ in self.parts), default=-1)

    @property
    def at_bos(self) -> Matrix:
        """Its value at BOS."""
        value = self.constant.copy()
        for block, matrix in self.parts:
            value += matrix @ block.at_bos
        return value

    def through(self, matrix: Matrix, constant: Any = 0.0) -> "View":
        """Return matrix @ this view + constant."""
        scale = float(np.abs(matrix).sum(1).max(initial=0.0))
        return View(
            tuple((block, matrix @ block_matrix) for block, block_matrix in self.parts),
            matrix @ self.constant + constant,
            self.error * scale,
        )

    def plus(self, other: "View", times: float = 1.0) -> "View":
        """Return this view + times · the other."""
        parts = (*self.parts, *((block, times * matrix) for block, matrix in other.parts))
        error = self.error + abs(times) * other.error
        return View(parts, self.constant + times * other.constant, error)

    def written(self, width: int) -> Matrix:
        """Return its matrix over the whole stream, whose blocks have their places."""
        whole_matrix = np.zeros((len(self.constant), width))
        for block, matrix in self.parts:
            whole_matrix[:, block.offset : block.offset + block.width] += matrix
        return whole_matrix


def whole(block: StreamBlock, error: float = 0.0) -> View:
    """Return the view that is a block itself."""
    return View(((block, np.eye(block.width)),), np.zeros(block.width), error)


def constant_view(values: Any) -> View:
    """Return the view that is the same at every token."""
    return View((), np.array(values, dtype=np.float64))


def stacked_views(views: Items[View]) -> View:
    """Put views below each other."""
    total = sum(len(view.constant) for view in views)
    parts, first = [], 0
    for view in views:
        size = len(view.constant)
        for block, matrix in view.parts:
            tall = np.zeros((total, block.width))
            tall[first : first + size] = matrix
            parts.append((block, tall))
        first += size
    constant = np.concatenate([view.constant for view in views]) if views else np.zeros(0)
    return View(tuple(parts), constant, max((view.error for view in views), default=0.0))


@dataclass(eq=False)
class ProgramHead:
    """One head: scores are queries · keys, and it writes the gathered values into `block`.

    bos_score: of BOS as a key, for every query; None for a program without BOS. What BOS gives as a
    value is what the block holds at BOS. label: the program's line. way: how it does that.
    """

    queries: View
    keys: View
    values: View
    block: StreamBlock
    bos_score: float | None
    label: str
    way: str

    @property
    def width(self) -> int:
        """The number of channels that it needs."""
        return max(len(self.queries.constant), len(self.values.constant))


@dataclass(eq=False)
class HiddenUnits:
    """Hidden units of one feed-forward part: block = outer @ relu(inner) + the block's value at
    BOS."""

    inner: View
    outer: Matrix
    block: StreamBlock


@dataclass(eq=False)
class Blueprint:
    """All that a model is made of; inputs: the blocks that the embedding writes, by name."""

    blocks: list[StreamBlock] = field(default_factory=list)
    heads: list[ProgramHead] = field(default_factory=list)
    units: list[HiddenUnits] = field(default_factory=list)
    inputs: dict[str, StreamBlock] = field(default_factory=dict)

    def block(self, name: str, slot: int, at_bos: Matrix) -> StreamBlock:
        """Add a block to the stream, as wide as its value at BOS."""
        block = StreamBlock(name, slot, at_bos)
        self.blocks.append(block)
        return block

    def input(self, name: str, width: int, at_bos: float = 0.0) -> StreamBlock:
        """Return the block of the embedding that has this name."""
        if name not in self.inputs:
            self.inputs[name] = self.block(name, -1, np.full(width, at_bos))
        return self.inputs[name]

    @property
    def num_layers(self) -> int:
        """The number of layers, at least one."""
        return max([0, *(block.slot for block in self.blocks)]) // 2 + 1

    def place(self) -> int:
        """Give every block its place in the stream, and return the width of all."""
        width = 0
        for block in self.blocks:
            block.offset = width
            width += block.width
        return width


def attention_slot(*views: View) -> int:
    """Return the first attention that can read these views."""
    last = max(view.slot for view in views)
    return last + 1 if last % 2 else last + 2


def feed_forward_slot(view: View) -> int:
    """Return the first feed-forward part that can read a view."""
    return view.slot + 1 if view.slot % 2 == 0 else view.slot + 2
