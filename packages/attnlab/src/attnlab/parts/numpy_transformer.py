"""One head with weights that a person writes, in float64 and spelled out step by step.

    K = [x ; pos] Km,   Q = [x ; pos] Qm,   V = [x ; pos] Vm,   output = softmax(Q Kᵀ / √d_qk) V

One layer, one head, no residual stream, no norm, no mask; the position is concatenated to the
token, not added.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab.display import displayed
from attnlab.errors import WrongUsage

Floats = NDArray[np.float64]


@displayed
class Panels(NamedTuple):
    """Every number on the way from an input to its output, in reading order.

    Km and Qm (width, qk_dim) · Vm (width, v_dim) · K and Q (length, qk_dim) · V (length, v_dim) ·
    attention (query, key) · output (length, v_dim)
    """

    Km: Floats
    Qm: Floats
    Vm: Floats
    K: Floats
    Q: Floats
    V: Floats
    attention: Floats
    output: Floats


class NumpyTransformer:
    """One head made of three matrices, and a table of positions or none.

    Args:
        Km: (width, qk_dim), makes keys; width is that of a token, and of a position beside it where
            there are any.
        Qm: (width, qk_dim), makes queries.
        Vm: (width, v_dim), makes values.
        pos: (longest, pos_dim), one row for each position; None for no positions.

    >>> sharp = [[6.0, 0.0], [0.0, 6.0]]
    >>> copy = NumpyTransformer(Km=sharp, Qm=sharp, Vm=[[1.0], [-1.0]])
    >>> copy([[1.0, 0.0], [0.0, 1.0]]).round(6)  # each token looks at itself
    array([[ 1.],
           [-1.]])
    """

    def __init__(
        self,
        Km: ArrayLike,  # noqa: N803
        Qm: ArrayLike,  # noqa: N803
        Vm: ArrayLike,  # noqa: N803
        pos: ArrayLike | None = None,
    ) -> None:
        self.Km = _matrix_of("Km", Km, "(width, qk_dim)")
        self.Qm = _matrix_of("Qm", Qm, "(width, qk_dim)")
        self.Vm = _matrix_of("Vm", Vm, "(width, v_dim)")
        self.pos: Floats | None = None
        matrices = {"Km": self.Km, "Qm": self.Qm, "Vm": self.Vm}
        if pos is not None:
            matrices["pos"] = self.pos = _matrix_of("pos", pos, "(longest, pos_dim)")
        for name, matrix in matrices.items():
            if matrix.ndim != 2 or 0 in matrix.shape:
                raise WrongUsage(
                    f"{name} must be a matrix with rows and columns; got shape {matrix.shape}."
                )
        if self.Km.shape != self.Qm.shape or self.Km.shape[0] != self.Vm.shape[0]:
            raise WrongUsage(
                "Km and Qm must have one shape (width, qk_dim), and Vm (width, v_dim) as many "
                f"rows; got {self.Km.shape}, {self.Qm.shape} and {self.Vm.shape}."
            )
        if self.input_dim < 1:
            raise WrongUsage(
                "the matrices must have more rows than pos has columns, some for the token; got "
                f"{len(self.Km)} rows and positions {len(self.Km) - self.input_dim} wide."
            )

    @property
    def input_dim(self) -> int:
        """Width of a token's own vector."""
        if self.pos is None:
            return len(self.Km)
        return len(self.Km) - int(self.pos.shape[1])

    def __call__(self, x: ArrayLike) -> Floats:
        """(length, input_dim) -> (length, v_dim)."""
        return self.panels(x).output

    def panels(self, x: ArrayLike) -> Panels:
        """Compute the output of one sequence, (length, input_dim), and keep every step."""
        x = _matrix_of("x", x, "(length, input_dim)")
        if x.ndim != 2 or x.shape[1] != self.input_dim or len(x) == 0:
            hint = ""
            if x.ndim == 3:
                hint = "; this takes one sequence, without a batch axis, such as x[0]"
            raise WrongUsage(
                f"x must have shape (length, {self.input_dim}), length at least 1; got "
                f"{x.shape}{hint}."
            )
        if self.pos is not None:
            if len(x) > len(self.pos):
                raise WrongUsage(
                    f"there are {len(self.pos)} positions; got an input of length {len(x)}."
                )
            x = np.concatenate([x, self.pos[: len(x)]], axis=1)
        # Too large a number gives NaN, as it does in torch.
        with np.errstate(over="ignore", invalid="ignore"):
            K, Q, V = x @ self.Km, x @ self.Qm, x @ self.Vm
            attention = softmax(Q @ K.T / math.sqrt(self.Km.shape[1]))
            output = attention @ V
        return Panels(self.Km, self.Qm, self.Vm, K, Q, V, attention, output)


def softmax(scores: Floats) -> Floats:
    """Turn the last axis into a distribution: exp(s_j) / sum_k exp(s_k), in float64.

    Subtracting the row's maximum keeps exp from overflowing. A row of -inf alone becomes zeros.

    >>> softmax(np.array([0.0, 1.0]))  # [1, e] / (1 + e)
    array([0.26894142, 0.73105858])
    """
    highest = scores.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # a score of +inf gives NaN, as it does in torch
        exponentials = np.exp(scores - np.where(highest == -np.inf, 0.0, highest))
    total = exponentials.sum(axis=-1, keepdims=True)
    return np.asarray(exponentials / np.where(total == 0.0, 1.0, total))


def _matrix_of(name: str, x: ArrayLike, shape: str) -> Floats:
    """Read x, an array or a tensor of any precision, as a float64 matrix."""
    value: Any = x
    if hasattr(value, "detach"):
        value = value.detach().cpu().double()
    array = np.asarray(value, dtype=np.float64)
    if array.ndim < 2:
        raise WrongUsage(f"{name} has shape {shape}, got {array.shape}: add the missing axes")
    return array
