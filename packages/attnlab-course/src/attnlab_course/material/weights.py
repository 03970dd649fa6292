"""Heads that a student designs: read as matrices, and run on every input.

A design can be right in many ways, so its behavior is judged and never its numbers: all inputs of
a task pass through the head, in NumPy float64 with a softmax that does not overflow.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from attnlab.display import plural
from attnlab.tasks.vectors import VectorTask
from attnlab_course.compare import show_answer
from attnlab_course.exercise import Case, Failure

Floats = NDArray[np.float64]

LARGEST = 64
"""How many rows and columns a matrix may have."""

TOLERANCE = 1e-3
"""How far the outputs of a design may be from their targets."""

FLOAT32 = 1e-3
"""How far the outputs of a design may differ between float32 and float64."""


@dataclass(frozen=True)
class DesignedHead:
    """The matrices of a head: Km and Qm (width, qk_dim), Vm (width, v_dim), pos (longest, pos_dim)
    or None."""

    Km: Floats
    Qm: Floats
    Vm: Floats
    pos: Floats | None = None

    def louder(self, factor: float) -> "DesignedHead":
        """Return the head with its queries multiplied."""
        return replace(self, Qm=self.Qm * factor)

    @property
    def matrices(self) -> list[Floats]:
        """Its matrices, in this order."""
        return [matrix for matrix in (self.Km, self.Qm, self.Vm, self.pos) if matrix is not None]

    @property
    def key(self) -> object:
        """What heads of the same numbers have in common: a key of a dictionary."""
        return tuple((matrix.shape, matrix.tobytes()) for matrix in self.matrices)

    @property
    def is_finite(self) -> bool:
        """Whether all of its numbers are finite."""
        return all(bool(np.isfinite(matrix).all()) for matrix in self.matrices)

    @property
    def root(self) -> float:
        """What scores are divided by."""
        return math.sqrt(self.Km.shape[1])


@dataclass(frozen=True)
class HeadRun:
    """What a head does with all inputs of one length.

    Args:
        ids: the inputs (inputs, length).
        scores: (inputs, query, key), divided by the root.
        weights: the same after the softmax.
        output: (inputs, length, v_dim).
    """

    ids: NDArray[np.int64]
    scores: Floats
    weights: Floats
    output: Floats


@dataclass(frozen=True)
class HeadTrial:
    """A head, put to every input of a task.

    Args:
        head: the matrices.
        task: which inputs there are, and what should come out.
        dtype: of the arithmetic.
    """

    head: DesignedHead
    task: VectorTask
    dtype: DTypeLike = np.float64

    @cached_property
    def runs(self) -> list[HeadRun]:
        """What the head does, length by length."""
        return [run_head(self.head, self.task, ids, self.dtype) for ids in _inputs(self.task)]

    def worst(self, lengths: Sequence[int] | None = None) -> "WorstOutput":
        """Return the output that is furthest from its target, among inputs of these letters."""
        outputs = []
        for letters, run in enumerate(self.runs, start=1):
            if lengths is None or letters in lengths:
                outputs.append(self._worst_of(run))
        return max(outputs, key=lambda output: output.error)

    def _worst_of(self, run: HeadRun) -> "WorstOutput":
        target = targets(self.task, run.ids)
        error = np.abs(run.output - target).max(axis=-1)
        error = np.where(np.isnan(error), np.inf, error)
        error[~counts_output(self.task, run.ids)] = -1.0
        row, place = np.unravel_index(np.argmax(error), error.shape)
        text = self.task.text(run.ids[row].tolist())
        return WorstOutput(
            float(error[row, place]),
            text,
            int(place) + (not self.task.has_cls),
            target[row, place],
            run.output[row, place],
        )


@cache
def _inputs(task: VectorTask) -> list[NDArray[np.int64]]:
    """Return every input of a task, made once: a design is tried on them many times."""
    return [ids.numpy() for ids in task.inputs_by_length()]


@dataclass(frozen=True)
class WorstOutput:
    """The output furthest from its target: how far, on which input, at which place."""

    error: float
    text: str
    place: int
    expected: Floats
    got: Floats

    def words(self, tolerance: float) -> str:
        """Say what is wrong with it."""
        expected, got = show_answer(self.expected.tolist()), show_answer(self.got.tolist())
        return (
            f"on {self.text}, at place {self.place}: expected {expected}, got {got}: "
            f"{self.error:.3g} off, where {tolerance:g} is allowed"
        )


def read_designed_head(answer: Any, task: VectorTask, positions: int = 0) -> DesignedHead | Failure:
    """Read the list that `weights()` returned, or say what is wrong with its form.

    Args:
        answer: plain values, as `attnlab_course.compare.read_answer` makes them.
        task: says how wide tokens and outputs are.
        positions: how many rows pos must have at least; 0 for a head without positions.
    """
    names = ["Km", "Qm", "Vm", "pos"][: 3 + bool(positions)]
    request = f"weights() must return the list [{', '.join(names)}]"
    if not isinstance(answer, list):
        return Failure(f"{request}; got {show_answer(answer)}")
    count = len(answer)
    if count == 4 and answer[3] is None:
        count = max(3, len(names))
    if count != len(names):
        return Failure(f"{request}; got {count} values")
    matrices = {}
    for name, value in zip(names, answer, strict=False):
        read = _read_matrix(name, value)
        if isinstance(read, Failure):
            return read
        matrices[name] = read
    head = DesignedHead(**matrices)
    return _misfit(head, task, positions) or head


def judge_weights(
    task: VectorTask,
    criterion: Callable[[DesignedHead], str | None],
    diagnose: Callable[[DesignedHead], str | None],
    positions: int = 0,
) -> Callable[[Any], list[Case]]:
    """Return the cases of a check: one alone, the matrices, judged by a criterion.

    Args:
        task: see `read_designed_head`, as positions.
        criterion: says what is wrong with a head; None where nothing is.
        diagnose: names the mistake of a head that is not right; None where it is not known.
    """
    known: dict[object, str | None] = {}  # a naming of mistakes asks about the same heads again

    def judge(answer: Any) -> Failure | None:
        head = read_designed_head(answer, task, positions)
        if isinstance(head, Failure):
            return head
        if head.key not in known:
            known[head.key] = criterion(head)
        words = known[head.key]
        return None if words is None else Failure(words, diagnose(head))

    case = Case("weights", judge=judge)
    return lambda random: [case]


def _read_matrix(name: str, value: Any) -> Floats | Failure:
    if value is None:
        return Failure(f"{name} is not written yet")
    try:
        matrix = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return Failure(f"{name} must be a matrix of real numbers; got {show_answer(value)}")
    shape = matrix.shape
    if len(shape) != 2 or not all(1 <= size <= LARGEST for size in shape):
        sizes = f"1 to {LARGEST} rows and columns"
        return Failure(f"{name} must be a matrix with {sizes}; got shape {shape}")
    return matrix


def _misfit(head: DesignedHead, task: VectorTask, positions: int) -> Failure | None:
    """Say which shape does not fit the others or the task."""
    places, pos_dim = (0, 0) if head.pos is None else head.pos.shape
    width = task.input_dim + pos_dim
    widths = f"{task.input_dim} for the token"
    if pos_dim:
        widths += f" and {pos_dim} for its position"
    for name in ("Km", "Qm", "Vm"):
        rows = len(getattr(head, name))
        if rows != width:
            return Failure(f"{name} must have {width} rows, {widths}; it has {rows}")
    if head.Km.shape != head.Qm.shape:
        return Failure(f"Km and Qm must have one shape; got {head.Km.shape} and {head.Qm.shape}")
    if head.Vm.shape[1] != task.output_dim:
        columns = f"{task.output_dim} {plural(task.output_dim, 'column')}"
        return Failure(f"Vm must have {columns}; it has {head.Vm.shape[1]}")
    if places < positions:
        return Failure(f"pos must have a row for each of the {positions} places; it has {places}")
    return None


def run_head(
    head: DesignedHead, task: VectorTask, ids: NDArray[np.int64], dtype: DTypeLike
) -> HeadRun:
    """Put a head to inputs of one length (inputs, length), in this arithmetic."""
    x = np.eye(task.input_dim)[ids]
    if head.pos is not None:
        places = np.broadcast_to(head.pos[: ids.shape[1]], (*ids.shape, head.pos.shape[1]))
        x = np.concatenate([x, places], axis=-1)
    with np.errstate(all="ignore"):  # what overflows becomes NaN, which is never right
        x = x.astype(dtype)
        keys, queries, values = (x @ matrix.astype(dtype) for matrix in (head.Km, head.Qm, head.Vm))
        scores = queries @ keys.transpose(0, 2, 1) / np.asarray(head.root, dtype)
        grown = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = grown / grown.sum(axis=-1, keepdims=True)
        output = weights @ values
    return HeadRun(ids, scores, weights, output)


def targets(task: VectorTask, ids: NDArray[np.int64]) -> Floats:
    """Return what should come out: (inputs, length, v_dim), by counting letters."""
    if task.rule == "identity":
        return np.eye(task.letters)[ids]
    if task.rule == "copy_first":
        return np.eye(task.letters)[np.broadcast_to(ids[:, :1], ids.shape)]
    times = (ids[:, :, None] == ids[:, None, :]).sum(axis=-1, keepdims=True)
    return np.where(times == 1, 1.0, -1.0)


def counts_output(task: VectorTask, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say at which places the output counts: everywhere but at CLS."""
    return ids < task.letters


def float32_words(head: DesignedHead, task: VectorTask) -> str | None:
    """Say where a head gives something else in float32 than in float64; None where it does not."""
    coarse = HeadTrial(head, task, np.float32)
    for run, other in zip(HeadTrial(head, task).runs, coarse.runs, strict=True):
        with np.errstate(invalid="ignore"):
            distance = np.abs(run.output - other.output).max(axis=-1)
        wrong = ~(distance <= FLOAT32) & counts_output(task, run.ids)
        if wrong.any():
            row, place = np.argwhere(wrong)[0]
            text, at = task.text(run.ids[row].tolist()), int(place) + (not task.has_cls)
            got, right = (show_answer(trial.output[row, place].tolist()) for trial in (other, run))
            return f"on {text}, at place {at}: {got} in float32, {right} in float64"
    return None
