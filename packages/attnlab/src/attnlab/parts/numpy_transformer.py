"""One head with weights that a person writes, in float64 and spelled out step by step.

    K = [x ; pos] Km,   Q = [x ; pos] Qm,   V = [x ; pos] Vm,   output = softmax(Q Kᵀ / √d_qk) V

One layer, one head, no residual stream, no norm, no mask; the position is concatenated to the
token, not added.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab.display import displayed
from attnlab.errors import WrongUsage

Floats = NDArray[np.float64]

_AXES = {
    "Km": ("feature", "channel"),
    "Qm": ("feature", "channel"),
    "Vm": ("feature", "component"),
    "K": ("key", "channel"),
    "Q": ("query", "channel"),
    "V": ("key", "component"),
    "attention": ("query", "key"),
    "output": ("query", "component"),
}
"""What the rows and the columns of each panel are."""

_ORDINARY = 1e-9  # a panel whose numbers are nearer to each other than this is called constant


@displayed
class Panels(NamedTuple):
    """Every number on the way from an input to its output, in reading order.

    Km and Qm (width, qk_dim) · Vm (width, v_dim) · K and Q (length, qk_dim) · V (length, v_dim) ·
    attention (query, key) · output (length, v_dim)

    >>> sharp = [[6.0, 0.0], [0.0, 6.0]]
    >>> head = NumpyTransformer(Km=sharp, Qm=sharp, Vm=[[1.0], [-1.0]])
    >>> maps = head.panels([[1.0, 0.0], [0.0, 1.0]]).maps(tokens="AB")
    >>> [panel["title"] for panel in maps][:3]
    ['Km: 0 to 6', 'Qm: 0 to 6', 'Vm: -1 to 1']
    """

    Km: Floats
    Qm: Floats
    Vm: Floats
    K: Floats
    Q: Floats
    V: Floats
    attention: Floats
    output: Floats

    def maps(
        self,
        who: str = "",
        *,
        tokens: Sequence[str] | None = None,
        features: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
    ) -> list[dict[str, object]]:
        """Return each panel as one heatmap of a report's `maps` section: plain data, which
        `attnlab.draw` draws.

        The numbers are the true ones; the colours are rescaled to each panel's own range, but
        attention's to 0–1.

        Args:
            who: stands after each panel's name, to tell two heads apart.
            tokens: a name for each input.
            features: a name for each row of Km, Qm and Vm.
            outputs: a name for each component of a value.

        Names that are not given are numbers, counted from 1. A number that is not finite leaves its
        cell blank.
        """
        labels = {
            "query": _names("tokens", tokens, len(self.K)),
            "feature": _names("features", features, len(self.Km)),
            "component": _names("outputs", outputs, self.Vm.shape[1]),
            "channel": _names("channels", None, self.Km.shape[1]),
        }
        labels["key"] = labels["query"]
        drawn = []
        for name, panel in self._asdict().items():
            low, high, words = _range(name, panel)
            rows, columns = _AXES[name]
            cells = panel.astype(object)
            cells[~np.isfinite(panel)] = None
            drawn.append(
                {
                    "title": f"{name} {who}".rstrip() + f": {words}",
                    "rows": cells.tolist(),
                    "row_labels": labels[rows],
                    "column_labels": labels[columns],
                    "row_title": rows,
                    "column_title": columns,
                    "low": low,
                    "high": high,
                }
            )
        return drawn


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


def _names(what: str, given: Sequence[str] | None, number: int) -> list[str]:
    if given is None:
        given = list(map(str, range(1, number + 1)))
    names = list(given)
    if len(names) != number:
        raise WrongUsage(f"{what} must name each of {number}; got {len(names)} names.")
    return names


def _range(name: str, panel: Floats) -> tuple[float, float, str]:
    """Return the ends of a panel's colours, and its range in words; numbers below 0 are coloured
    around 0."""
    finite = panel[np.isfinite(panel)]
    if not len(finite):
        return 0.0, 1.0, "not finite"
    low, high = float(finite.min()), float(finite.max())
    words = f"{_short(low)} to {_short(high)}"
    if high - low < _ORDINARY:
        words = f"all {_short(low)}"
    if name == "attention":
        return 0.0, 1.0, words
    if low < 0.0:
        reach = max(-low, high, _ORDINARY)
        return -reach, reach, words
    return low, max(high, low + _ORDINARY, low * (1 + 1e-9)), words


def _short(value: float) -> str:
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
