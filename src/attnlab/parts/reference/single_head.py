"""One head with weights that a person writes, in float64 and spelled out step by step.

    K = [x ; pos] Km,   Q = [x ; pos] Qm,   V = [x ; pos] Vm,   output = softmax(Q Kᵀ / √d_qk) V

One layer, one head, no residual stream, no norm, no mask; the position is concatenated to the token, not added.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnlab.errors import WrongUsage
from attnlab.parts.reference.attention import Floats, as_floats, softmax

__all__ = ["NumpyTransformer", "Panels"]


class Panels(NamedTuple):
    """Every number on the way from an input to its output, in reading order.

    Km and Qm (width, qk_dim) · Vm (width, v_dim) · K and Q (length, qk_dim) · V (length, v_dim) ·
    attention (query, key) · output (length, v_dim)

    >>> Panels(*range(8))._fields
    ('Km', 'Qm', 'Vm', 'K', 'Q', 'V', 'attention', 'output')
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
        Km: (width, qk_dim), makes keys; width is that of a token, and of a position beside it where there are any.
        Qm: (width, qk_dim), makes queries.
        Vm: (width, v_dim), makes values.
        pos: (longest, pos_dim), one row for each position; None for no positions.

    >>> copy = NumpyTransformer(Km=[[6.0, 0.0], [0.0, 6.0]], Qm=[[6.0, 0.0], [0.0, 6.0]], Vm=[[1.0], [-1.0]])
    >>> copy([[1.0, 0.0], [0.0, 1.0]]).round(6)  # each token looks at itself
    array([[ 1.],
           [-1.]])
    """

    def __init__(self, Km: ArrayLike, Qm: ArrayLike, Vm: ArrayLike, pos: ArrayLike | None = None) -> None:  # noqa: N803
        self.Km = as_floats("Km", Km, "(width, qk_dim)")
        self.Qm = as_floats("Qm", Qm, "(width, qk_dim)")
        self.Vm = as_floats("Vm", Vm, "(width, v_dim)")
        self.pos = None if pos is None else as_floats("pos", pos, "(longest, pos_dim)")
        for name, matrix in (("Km", self.Km), ("Qm", self.Qm), ("Vm", self.Vm), ("pos", self.pos)):
            if matrix is not None and (matrix.ndim != 2 or 0 in matrix.shape):
                raise WrongUsage(f"{name} must be a matrix with rows and columns; got shape {matrix.shape}.")
        if self.Km.shape != self.Qm.shape or self.Km.shape[0] != self.Vm.shape[0]:
            raise WrongUsage(
                "Km and Qm must have one shape (width, qk_dim), and Vm (width, v_dim) as many rows; "
                f"got {self.Km.shape}, {self.Qm.shape} and {self.Vm.shape}."
            )
        if self.input_dim < 1:
            raise WrongUsage(
                f"the matrices must have more rows than pos has columns, some for the token; got {len(self.Km)} rows "
                f"and positions {len(self.Km) - self.input_dim} wide."
            )

    @property
    def input_dim(self) -> int:
        """Width of a token's own vector."""
        return len(self.Km) - (0 if self.pos is None else self.pos.shape[1])

    def __call__(self, x: ArrayLike) -> Floats:
        """(length, input_dim) -> (length, v_dim)."""
        return self.panels(x).output

    def panels(self, x: ArrayLike) -> Panels:
        """Compute the output of one sequence, (length, input_dim), and keep every step."""
        x = as_floats("x", x, "(length, input_dim)")
        if x.ndim != 2 or x.shape[1] != self.input_dim or len(x) == 0:
            raise WrongUsage(f"x must have shape (length, {self.input_dim}), length at least 1; got {x.shape}.")
        if self.pos is not None:
            if len(x) > len(self.pos):
                raise WrongUsage(f"there are {len(self.pos)} positions; got an input of length {len(x)}.")
            x = np.concatenate([x, self.pos[: len(x)]], axis=1)
        with np.errstate(over="ignore", invalid="ignore"):  # too large a number gives NaN, as it does in torch
            K, Q, V = x @ self.Km, x @ self.Qm, x @ self.Vm
            attention = softmax(Q @ K.T / math.sqrt(self.Km.shape[1]))
            output = attention @ V
        return Panels(self.Km, self.Qm, self.Vm, K, Q, V, attention, output)

    def explain(self, x: ArrayLike, tokens: Sequence[str] | None = None) -> str:
        """Word each step for one sequence: what is computed, its shape, and its numbers.

        >>> text = NumpyTransformer([[1.0]], [[0.0]], [[2.0]]).explain([[1.0], [3.0]], tokens="AB")
        >>> print(text[text.index("attention") :])
        attention = softmax(Q Kᵀ / √1), (2, 2): where each token looks
            A       0.500    0.500
            B       0.500    0.500
        output = attention V, (2, 1)
            A       4.000
            B       4.000
        """
        found = self.panels(x)
        names = list(tokens) if tokens is not None else [str(place) for place in range(len(found.K))]
        if len(names) != len(found.K):
            raise WrongUsage(f"tokens must name each of the {len(found.K)} inputs; got {len(names)} names.")
        rows = "[x ; pos]" if self.pos is not None else "x"
        width = found.Km.shape[1]
        features = [str(feature) for feature in range(len(found.Km))]
        lines = [
            *_block("Km makes keys", found.Km, features),
            *_block("Qm makes queries", found.Qm, features),
            *_block("Vm makes values", found.Vm, features),
            *_block(f"K = {rows} Km", found.K, names),
            *_block(f"Q = {rows} Qm", found.Q, names),
            *_block(f"V = {rows} Vm", found.V, names),
            *_block(f"attention = softmax(Q Kᵀ / √{width})", found.attention, names, ": where each token looks"),
            *_block("output = attention V", found.output, names),
        ]
        return "\n".join(lines)


def _block(title: str, matrix: Floats, names: Sequence[str], meaning: str = "") -> list[str]:
    shape = "(" + ", ".join(str(size) for size in matrix.shape) + ")"
    rows = [
        f"    {name:<4}" + "".join(f"{value:9.3f}" for value in row) for name, row in zip(names, matrix, strict=True)
    ]
    return [f"{title}, {shape}{meaning}", *rows]
