"""Proofs by exhaustion: a head is run on every input of its task, and the worst answer decides.

Over a finite domain that is a proof, not a sample, for the arithmetic it was done in; `rounding`
bounds what another order of the same additions could change, so where `margin` is larger the
verdict is the same on every machine. The SHA-256 of all that was checked stands beside the verdict:
who computes the same one has checked the same matrices, in the same arithmetic.
"""

import hashlib
import json
import math
import sys
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from attnlab.design.designs import Design
from attnlab.display import displayed
from attnlab.errors import WrongUsage, is_number, not_none, one_line, type_words
from attnlab.models.single_head import Matrices, SingleHead
from attnlab.tasks.vectors import VectorTask, vector_task

_FINE = (torch.float32, torch.float64)
"""The arithmetic a proof may be done in: of anything coarser, rounding can exceed the margin."""

_CHUNK = 4_096  # inputs at once
# of inputs that differ in rounding alone the first is named, on every machine the same
_ALIKE = 1 - 1e-6
_UNSURE = "rounding may exceed the margin"
_SLACK = 1.01  # the bound on rounding is of first order; the second is far below a hundredth of it


@displayed
@dataclass(frozen=True)
class Counterexample:
    """The first input that fails, and where.

    input: as a person writes it · place: the position in it, from 1 · token: what stands there ·
    expected, got: the output's components.
    """

    input: str
    place: int
    token: str
    expected: tuple[float, ...]
    got: tuple[float, ...]

    def __str__(self) -> str:
        expected = " ".join(f"{value:.6g}" for value in self.expected)
        got = " ".join(f"{value:.6g}" for value in self.got)
        return (
            f"{self.input}, at {self.token} in place {self.place}: expected {expected}; got {got}"
        )


@displayed
@dataclass(frozen=True)
class Proof:
    """The result of checking a head on every input.

    Attributes:
        task: its name.
        criterion: the question in words.
        holds: whether every input is right; NaN never is.
        inputs: how many there are.
        failures: how many are wrong.
        counterexample: the first wrong one; None if there is none.
        tolerance: how far an output may be from its target; None where only the nearest target
            counts.
        margin: how far the worst output is within its bound (below 0: outside).
        worst_error: the largest distance of an output from its target.
        worst_input: where that is.
        min_right_weight: the smallest weight that falls on the keys where the answer stands.
        min_output_size: for unique, the smallest size of an output, where 0 is no answer; None
            for others.
        rounding: bound on what rounding can change in an output.
        dtype: of the arithmetic.
        digest: SHA-256 of the question, the arithmetic, the matrices, every input and its target.
    """

    task: str
    criterion: str
    holds: bool
    inputs: int
    failures: int
    counterexample: Counterexample | None
    tolerance: float | None
    margin: float
    worst_error: float
    worst_input: str
    min_right_weight: float
    min_output_size: float | None
    rounding: float
    dtype: str
    digest: str

    @property
    def is_sure(self) -> bool:
        """Whether rounding is known to be too small to change the verdict."""
        moved = self.rounding
        # Where only the nearest target counts, the margin lies between two components of an output,
        # and both may move.
        if self.tolerance is None and self.min_output_size is None:
            moved *= 2
        return abs(self.margin) > moved

    def to_mapping(self) -> dict[str, object]:
        """Return the proof as plain values for JSON, None for numbers that are not finite."""
        mapping = asdict(self)
        if self.counterexample is not None:
            mapping["counterexample"]["got"] = list(map(_finite, self.counterexample.got))
        return {name: _finite(value) for name, value in mapping.items()}

    def __str__(self) -> str:
        verdict = f"{self.failures:,} of {self.inputs:,} fail"
        if self.holds:
            verdict = f"proved on all {self.inputs:,} inputs"
            if not self.is_sure:
                verdict = f"holds on all {self.inputs:,} inputs, but {_UNSURE}"
        lines = [
            f"{self.task}, {self.criterion}: {verdict}",
            f"  worst error   {self.worst_error:.6g} (at {self.worst_input})",
            f"  margin        {self.margin:.3g}, rounding at most {self.rounding:.1g}",
            f"  right keys    weigh at least {self.min_right_weight:.6f}",
        ]
        if self.min_output_size is not None:
            lines.append(f"  least output  {self.min_output_size:.6g}")
        if self.counterexample is not None:
            lines.append(f"  first failure {self.counterexample}")
        return "\n".join([*lines, f"  sha256        {self.digest}"])


def prove(
    subject: Design | SingleHead,
    task: VectorTask | str | None = None,
    *,
    tolerance: float | None = None,
    dtype: torch.dtype | None = None,
) -> Proof:
    """Check a head on every input of a task.

    Args:
        subject: a design, or a `SingleHead`, whose matrices say all of what it computes.
        task: by its value or its name; a design knows its own.
        tolerance: how far each output component may be from its target. None asks a design for its
            own tolerance, and of all others only that the target be the nearest one: the right
            letter strictly the largest, or the right sign, 0 being wrong.
        dtype: of the arithmetic, float32 or float64, for a design (float64 unless said otherwise)
            or a `SingleHead` (as it is).

    Raises:
        WrongUsage: no task, a tolerance below 0, arithmetic coarser than float32, or a head of
            other widths.

    >>> from attnlab.design.designs import copy_first
    >>> proof = prove(copy_first(1e-3))
    >>> proof.holds, proof.inputs
    (True, 120)
    """
    if dtype not in (None, *_FINE):
        raise WrongUsage(f"dtype must be torch.float32 or torch.float64; got {dtype!r}.")
    if isinstance(subject, Design):
        task = task or subject.task
        tolerance = subject.tolerance if tolerance is None else tolerance
        subject = subject.model(dtype or torch.float64)
    head = _head_of(subject, dtype)
    task, tolerance = _check_question(task, tolerance)
    matrices = Matrices(*map(_double, head.matrices()))  # type: ignore[arg-type]
    _check_widths(matrices, task)
    tally, dtype = _Tally(task, tolerance, matrices), head.query.weight.dtype
    hashed = hashlib.sha256(_header(task, tolerance, dtype, matrices))
    for ids in task.inputs_by_length():
        hashed.update(_bytes(task.vectors(ids, torch.float64)))
        hashed.update(_bytes(task.target(ids, torch.float64)))
        for part in ids.split(_CHUNK):  # type: ignore[no-untyped-call]
            tally.add(part, head)
    return tally.proof(dtype, hashed.hexdigest())


def _head_of(subject: Any, dtype: torch.dtype | None) -> SingleHead:
    """Return a head of the same matrices that computes in this dtype (None: as it does), or
    raise."""
    if type(subject) is not SingleHead:  # a child of it may compute otherwise
        got = f"the class {subject.__name__}" if isinstance(subject, type) else type_words(subject)
        raise WrongUsage(
            "expected a design, such as attnlab.design.identity(), or a SingleHead, which "
            f"SingleHead.from_matrices makes of matrices; got {got}."
        )
    weight = subject.query.weight
    if weight.is_meta:
        raise WrongUsage("this model is on the device meta, without values: fill it first.")
    if dtype is None and weight.dtype not in _FINE:
        raise WrongUsage(
            "a proof needs float32 or float64, or rounding may exceed the margin; this model "
            f"computes in {str(weight.dtype).removeprefix('torch.')}. Cast it with .double() to "
            "prove its matrices."
        )
    return SingleHead.from_matrices(*map(_double, subject.matrices()), dtype=dtype or weight.dtype)


def _double(matrix: Tensor | None) -> Tensor | None:
    return None if matrix is None else matrix.cpu().double()


def _check_widths(matrices: Matrices, task: VectorTask) -> None:
    """Refuse a head that cannot take the inputs of a task."""
    places, width = task.row_length, 0
    if matrices.pos is not None:
        places, width = matrices.pos.shape
    takes, gives = len(matrices.Km) - width, matrices.Vm.shape[1]
    if (takes, gives) != (task.input_dim, task.output_dim):
        raise WrongUsage(
            f"{task.rule} takes vectors {task.input_dim} wide and gives {task.output_dim}; these "
            f"matrices take {takes} and give {gives}."
        )
    if places < task.row_length:
        raise WrongUsage(
            f"{task.rule} has inputs of {task.row_length} tokens; this head has {places} positions."
        )


def _check_question(task: Any, tolerance: Any) -> tuple[VectorTask, float | None]:
    if not isinstance(task, str | VectorTask):
        raise WrongUsage(
            "choose the task to prove: identity, copy_first or unique; got "
            f"{one_line(repr(task), 200)}."
        )
    if tolerance is None:
        return vector_task(task), None
    if not is_number(tolerance) or not 0 <= tolerance <= sys.float_info.max:
        raise WrongUsage(
            f"a tolerance must be a number of at least 0; got {one_line(repr(tolerance), 200)}."
        )
    return vector_task(task), float(tolerance)


class _Tally:
    """The worst so far, and the first that fails."""

    def __init__(self, task: VectorTask, tolerance: float | None, matrices: Matrices) -> None:
        self.task, self.tolerance, self.matrices = task, tolerance, matrices
        self.failures = 0
        self.first: Counterexample | None = None
        self.worst_input = ""
        self.error = self.rank = self.spread = 0.0
        self.clearance = self.size = self.right_weight = math.inf

    def add(self, ids: Tensor, head: SingleHead) -> None:
        """Check the answers of the head to some inputs."""
        task = self.task
        with torch.no_grad():
            answer = head(task.vectors(ids, head.query.weight.dtype))
        output, weights = answer.output.double(), not_none(answer.weights).double().squeeze(1)
        error, clearance = task.error(output, ids), task.clearance(output, ids)
        right = clearance > 0  # NaN, which compares as False with everything, is wrong
        if self.tolerance is not None:
            right &= error <= self.tolerance
        self.failures += int((~right.all(-1)).sum())
        if self.first is None and self.failures:
            row, place = (~right).nonzero()[0].tolist()
            self.first = self._counterexample(ids[row], output[row], place)
        worst = error.amax(-1)
        ranks = worst.nan_to_num(math.inf, math.inf)  # NaN counts as the largest
        row = int((ranks >= ranks.amax() * _ALIKE).nonzero()[0])
        if not self.worst_input or float(ranks[row]) * _ALIKE > self.rank:
            self.error, self.rank = float(worst[row]), float(ranks[row])
            self.worst_input = task.text(ids[row])
        self.clearance = _least(self.clearance, clearance)
        counted = task.counted(ids)
        self.size = _least(self.size, output.abs().amax(-1)[counted])
        right_weights = (weights * task.right_keys(ids)).sum(-1)
        self.right_weight = _least(self.right_weight, right_weights[counted])
        values = _values(task, ids, self.matrices)
        distance = (values.unsqueeze(-3) - output.unsqueeze(-2)).abs()  # query, key, width
        spread = (weights.unsqueeze(-1) * distance).sum(-2)
        self.spread = max(self.spread, float(spread[counted].amax()))

    def proof(self, dtype: torch.dtype, digest: str) -> Proof:
        """Return the proof, after all inputs."""
        task, margin = self.task, self.clearance
        if self.tolerance is not None:
            margin = self.tolerance - self.error
        return Proof(
            task=task.rule,
            criterion=_criterion(task, self.tolerance),
            holds=self.failures == 0,
            inputs=task.num_inputs,
            failures=self.failures,
            counterexample=self.first,
            tolerance=self.tolerance,
            margin=margin,
            worst_error=self.error,
            worst_input=self.worst_input,
            min_right_weight=self.right_weight,
            min_output_size=self.size if task.rule == "unique" else None,
            rounding=_rounding(task, self.matrices, self.spread, dtype),
            dtype=str(dtype).removeprefix("torch."),
            digest=digest,
        )

    def _counterexample(self, ids: Tensor, output: Tensor, position: int) -> Counterexample:
        target = self.task.target(ids.unsqueeze(0), torch.float64)[0, position].tolist()
        token = self.task.names[int(ids[position])]
        place, got = position + (not self.task.has_cls), output[position].tolist()
        return Counterexample(self.task.text(ids), place, token, tuple(target), tuple(got))


def _least(before: float, values: Tensor) -> float:
    """Return the minimum, or NaN if there is one (Python's own `min` may lose it)."""
    known = torch.tensor([before], dtype=torch.float64)
    return float(torch.cat((values.double().flatten(), known)).amin())


def _criterion(task: VectorTask, tolerance: float | None) -> str:
    if tolerance is not None:
        return f"every output within {tolerance:g} of its target"
    if task.rule == "unique":
        return "the sign of every output right"
    return "the right letter the largest everywhere"


def _header(
    task: VectorTask, tolerance: float | None, dtype: torch.dtype, matrices: Matrices
) -> bytes:
    """Encode the question, the arithmetic, and the matrices as little-endian float64."""
    arithmetic = str(dtype).removeprefix("torch.")
    question = {"task": asdict(task), "tolerance": tolerance, "arithmetic": arithmetic}
    content = json.dumps(question, sort_keys=True).encode()
    for name, matrix in matrices._asdict().items():
        if matrix is not None:
            content += json.dumps(name).encode() + _bytes(matrix)
    return content


def _bytes(tensor: Tensor) -> bytes:
    """Write a tensor as its shape and its numbers, little-endian float64, row by row."""
    return json.dumps(list(tensor.shape)).encode() + tensor.numpy().astype("<f8").tobytes()


def _values(task: VectorTask, ids: Tensor, matrices: Matrices) -> Tensor:
    """Return the value of each token where it stands: (inputs, length, output_dim)."""
    vectors = task.vectors(ids, torch.float64)
    if matrices.pos is not None:
        vectors = torch.cat((vectors, matrices.pos[: ids.shape[1]].expand(len(ids), -1, -1)), -1)
    return vectors @ matrices.Vm


def _rounding(task: VectorTask, matrices: Matrices, spread: float, dtype: torch.dtype) -> float:
    """Bound, to first order, the rounding of an output.

    With u the spacing of numbers at 1, a sum of m products is off by at most m u times the sum of
    their sizes. So a scaled score is off by δ ≤ (2 width + d_qk + 2) u S, S being the largest
    |[x;pos]| |Qm| |Kmᵀ| |[x;pos]|ᵀ / √d_qk, and a weight by a factor of at most e^(±2δ). Since
    weights are shares, that moves an output by 2δ times `spread` = Σ weight · |value - output|, not
    by 2δ times the value. Exponential, division and the two last sums add (2 length + width + 4) u
    times the largest value.
    """
    spacing = torch.finfo(dtype).eps
    width, size = matrices.Km.shape
    pos = matrices.Km.new_zeros(1, 0) if matrices.pos is None else matrices.pos
    tokens = torch.eye(task.input_dim, dtype=torch.float64)
    pairs = torch.cat((tokens.repeat_interleave(len(pos), 0), pos.abs().repeat(len(tokens), 1)), 1)
    scores = (pairs @ matrices.Qm.abs()) @ (pairs @ matrices.Km.abs()).T / math.sqrt(size)
    largest_value = float((pairs @ matrices.Vm.abs()).amax())
    delta = (2 * width + size + 2) * spacing * float(scores.amax())
    sums = (2 * task.row_length + width + 4) * spacing * largest_value
    return _SLACK * (2 * delta * spread + sums)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
