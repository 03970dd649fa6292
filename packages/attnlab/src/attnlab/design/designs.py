"""Designs: the matrices of a single head, computed from a tolerance.

Each of the three writes down which keys a query shall prefer, as a pattern of ones, and multiplies
the queries by one number, the *gain*. After the division by √d_qk a right key's score stands
`gain/√d_qk`, the *gap*, above a wrong key's, and a right key weighs e^gap times as much. So what
the gain must be follows from the tolerance and from the longest input alone: see `needed_gap`.
"""

import math
import sys
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from attnlab.errors import WrongUsage, is_number
from attnlab.models.single_head import SingleHead
from attnlab.parts.numpy_transformer import NumpyTransformer
from attnlab.tasks.vectors import VectorTask, vector_task

Rows = tuple[tuple[float, ...], ...]

_HEADROOM = 1.001
"""The gain is a thousandth above the smallest one, so that no rounding, float32's included, tips
the scale."""

_MIN_TOLERANCE, _MAX_TOLERANCE = 1e-12, 0.4


@dataclass(frozen=True)
class Design:
    """One head written by hand.

    Attributes:
        task: what it solves.
        tolerance: no output component is further than this from its target, on any input.
        gain: what the queries are multiplied by.
        Km, Qm, Vm, pos: the matrices as rows, shaped as `attnlab.models.single_head.Matrices` says.
    """

    task: VectorTask
    tolerance: float
    gain: float
    Km: Rows
    Qm: Rows
    Vm: Rows
    pos: Rows | None

    @property
    def name(self) -> str:
        """The name of its task."""
        return self.task.rule

    @property
    def gap(self) -> float:
        """How far a right key's score stands above a wrong key's, after the division by √d_qk."""
        return self.gain / math.sqrt(len(self.Km[0]))

    def model(self, dtype: torch.dtype = torch.float64) -> SingleHead:
        """Build the PyTorch model that has these matrices."""
        return SingleHead.from_matrices(self.Km, self.Qm, self.Vm, self.pos, dtype=dtype)

    def reference(self) -> NumpyTransformer:
        """Build the NumPy reference that has these matrices."""
        return NumpyTransformer(self.Km, self.Qm, self.Vm, self.pos)

    def with_gain(self, gain: float) -> "Design":
        """Return the same design with another gain: too small a one can be refuted."""
        return _written(self.task, self.tolerance, gain)

    def with_gap(self, gap: float) -> "Design":
        """Return the same design with the gain that makes this gap."""
        return self.with_gain(gap * math.sqrt(len(self.Km[0])))

    def to_mapping(self) -> dict[str, object]:
        """Return the design as plain values for JSON."""
        return asdict(self)


def identity(tolerance: float = 1e-3, *, letters: int = 3, longest: int = 6) -> Design:
    """Give each token back: every query prefers the keys of its own letter.

    Km = I, Qm = gain · I, Vm = I (letters × letters), no positions: the scaled score is `gap` where
    the letters agree and 0 elsewhere. The gap needed is that of one right key against `longest - 1`
    wrong ones (`needed_gap`).

    Args:
        tolerance: how far an output's component may be from its target, above 0.
        letters: how many letters there are.
        longest: tokens of the longest input.

    Returns:
        the `Design`: its matrices as nested tuples, `model()` as a `SingleHead`.

    Raises:
        WrongUsage: a tolerance, or a number of letters or tokens, that is out of range.

    >>> round(identity(1e-3).gap, 2)
    8.52
    """
    return design_for(VectorTask("identity", letters=letters, longest=longest), tolerance)


def copy_first(tolerance: float = 1e-3, *, letters: int = 3, longest: int = 4) -> Design:
    """Give the first token everywhere: every query prefers the key of the first position.

    Positions are one-hot. Km passes the position on, Qm makes `gain · (1, 0, 0, …)` of any
    position, Vm passes the letter on: the scaled score is `gap` at the first key and 0 elsewhere.
    The gap needed is again that of one right key against `longest - 1` wrong ones (`needed_gap`).

    Args:
        tolerance: how far an output's component may be from its target, above 0.
        letters: how many letters there are.
        longest: tokens of the longest input.

    Returns:
        the `Design`: its matrices as nested tuples, `model()` as a `SingleHead`.

    Raises:
        WrongUsage: a tolerance, or a number of letters or tokens, that is out of range.

    >>> round(copy_first(1e-3).gap, 2)
    8.01
    """
    return design_for(VectorTask("copy_first", letters=letters, longest=longest), tolerance)


def unique(tolerance: float = 1e-3, *, letters: int = 3, longest: int = 4) -> Design:
    """Mark each letter that occurs once: a head attends to equal letters, or to CLS if there are
    none.

    Scaled scores, with S the gap: `S · same letter - 2S · same position + S/2 · CLS`; values: -1
    for a letter, +1 for CLS. A repeated letter finds its likes at S (itself it sees at -S, out of
    the way), and they say -1. A letter that stands alone finds nothing above CLS at S/2, which says
    +1. Queries and keys are `letters + longest + 1` wide: one channel for each letter, each
    position, and CLS. For the gap needed see `needed_gap`.

    Args:
        tolerance: how far an output's component may be from its target, above 0.
        letters: how many letters there are.
        longest: tokens of the longest input.

    Returns:
        the `Design`: its matrices as nested tuples, `model()` as a `SingleHead`.

    Raises:
        WrongUsage: a tolerance, or a number of letters or tokens, that is out of range.

    >>> round(unique(1e-3).gap, 2)
    17.42
    """
    return design_for(VectorTask("unique", letters=letters, longest=longest), tolerance)


def design_for(task: VectorTask | str, tolerance: float = 1e-3) -> Design:
    """Design for a task, by its value or by its usual name.

    Args:
        task: a `VectorTask`, or "identity", "copy_first" or "unique".
        tolerance: how far an output's component may be from its target, above 0.

    Returns:
        the `Design` whose gain follows from the tolerance.

    Raises:
        WrongUsage: no such task, or a tolerance that is out of range.

    >>> design_for("copy_first", 1e-3).name
    'copy_first'
    """
    task = vector_task(task)
    widths = {"identity": task.letters, "copy_first": task.longest}
    width = widths.get(task.rule, task.letters + task.longest + 1)
    gain = needed_gap(task, tolerance) * _HEADROOM * math.sqrt(width)
    # rounded up: the same bytes on every machine
    return _written(task, tolerance, math.ceil(gain * 1e6) / 1e6)


def needed_gap(task: VectorTask, tolerance: float) -> float:
    """Return the smallest gap g that keeps every output component within `tolerance` of its target.

    identity, copy_first. The output is an average of one-hot vectors, so its largest error is the
    weight ε that falls on wrong keys. With m right keys at g and w wrong ones at 0, m + w = n:

        ε = w / (w + m e^g) ≤ tolerance    ⇔    g ≥ ln(w (1 - tolerance) / (m · tolerance))

    and the worst input has m = 1 and w = longest - 1 (such as ABBBBB), which exists: the bound is
    tight.

    unique. The output is an average of +1 and -1, so its error is 2ε, and ε ≤ tolerance/2 is asked.
    With u = e^(g/2) and w = longest - 1, the worst input is again ABBB, seen from A: CLS weighs u,
    each other letter 1, A itself u^-2:

        ε = (w + u^-2) / (u + w + u^-2) ≤ tolerance/2  ⇔  u ≥ (w + u^-2) c,
        c = (2 - tolerance) / tolerance,

    solved for u by bisection, since the left side grows and the right side falls. A repeated letter
    is served better: its likes weigh u² each against CLS at u, ε ≤ u / (u² + u) = 1 / (u + 1).

    Raises:
        WrongUsage: the tolerance is not from 1e-12 (below it float64 itself is too coarse) to 0.4.
    """
    if not is_number(tolerance) or not _MIN_TOLERANCE <= tolerance <= _MAX_TOLERANCE:
        raise WrongUsage(
            f"a tolerance is a number from {_MIN_TOLERANCE:g} to {_MAX_TOLERANCE:g}, the "
            f"distance from the target that an output may have; got {tolerance!r}."
        )
    wrong = task.longest - 1
    if task.rule != "unique":
        return math.log(wrong * (1 - tolerance) / tolerance)
    odds = (2 - tolerance) / tolerance
    low, high = 1.0, (wrong + 1) * odds
    for _ in range(200):
        middle = (low + high) / 2
        if middle < (wrong + middle**-2) * odds:
            low = middle
        else:
            high = middle
    return 2 * math.log(high)


def _written(task: VectorTask, tolerance: float, gain: float) -> Design:
    if not (is_number(gain) and abs(gain) <= sys.float_info.max):  # which NaN is not
        raise WrongUsage(f"a gain is a finite number; got {gain!r}.")
    letters, longest = task.letters, task.longest
    pos = None
    if task.rule == "identity":
        Km = Vm = np.eye(letters)
        Qm = gain * np.eye(letters)
    elif task.rule == "copy_first":
        pos = np.eye(longest)
        Km = np.vstack([np.zeros((letters, longest)), np.eye(longest)])
        Qm = np.vstack([np.zeros((letters, longest)), gain * np.eye(longest)[[0] * longest]])
        Vm = np.vstack([np.eye(letters), np.zeros((longest, letters))])
    else:
        # CLS stands before the positions.
        pos = np.vstack([np.zeros((1, longest)), np.eye(longest)])
        width = letters + longest + 1
        Km, Qm, Vm = np.zeros((width, width)), np.zeros((width, width)), np.zeros((width, 1))
        # Rows: what a token is made of. Columns: channels.
        letter, cls, place = slice(0, letters), letters, slice(letters + 1, width)
        by_letter, by_place, by_cls = slice(0, letters), slice(letters, width - 1), width - 1
        Km[letter, by_letter] = np.eye(letters)
        Km[place, by_place] = np.eye(longest)
        Km[cls, by_cls] = 1
        Qm[letter, by_letter] = gain * np.eye(letters)
        Qm[place, by_place] = -2 * gain * np.eye(longest)
        Qm[letter, by_cls] = gain / 2
        Vm[letter], Vm[cls] = -1, 1
    positions = None if pos is None else _rows(pos)
    return Design(task, tolerance, float(gain), _rows(Km), _rows(Qm), _rows(Vm), positions)


def _rows(matrix: Any) -> Rows:
    return tuple(map(tuple, matrix.tolist()))
