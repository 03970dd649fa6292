"""A matrix as a product of two thin ones, `left @ right`, which is never multiplied out.

The matrices of a head map the stream to itself through the few numbers of its width. Norm,
singular values and eigenvalues need the thin factors alone.

A singular vector can be known where its singular value stands apart: in a matrix that is off by ε
it is off by an angle of up to ε / gap (Wedin 1972). Where the gap is too small, only the subspace
of all these vectors is known, and `directions` gives that.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.display import Card, displayed, short
from attnlab.errors import WrongUsage
from attnlab.shapes import shape_text

_ANGLE = 0.01  # by which a direction may be off, in radians
_MOST_LINES = 8


class SVD(NamedTuple):
    """The singular values and vectors of a matrix.

    left (…, rows, rank) · values (…, rank): largest first · right (…, columns, rank).
    """

    left: Tensor
    values: Tensor
    right: Tensor


@dataclass(frozen=True)
class Directions:
    """Singular values that cannot be told apart, and the subspaces of their vectors.

    values (size,) · left (rows, size), right (columns, size): orthonormal; a pair of columns means
    something by itself only if `size` is 1, and then up to a common sign.
    """

    values: Tensor
    left: Tensor
    right: Tensor

    @property
    def size(self) -> int:
        """The number of singular values; 1 for a direction that stands apart."""
        return len(self.values)


@displayed
@dataclass(frozen=True)
class FactoredMatrix:
    """The matrix left (…, rows, rank) @ right (…, rank, columns), in double precision.

    precision: how far it may be off, relative to its largest singular value.
    """

    left: Tensor
    right: Tensor
    precision: float

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix, (…, rows, columns)."""
        return (*self.left.shape[:-1], self.right.shape[-1])

    @property
    def T(self) -> "FactoredMatrix":  # noqa: N802 (as of tensors)
        """The transposed matrix."""
        return FactoredMatrix(self.right.mT, self.left.mT, self.precision)

    def __matmul__(self, other: "FactoredMatrix") -> "FactoredMatrix":
        """Multiply by another matrix that is factored, into one of the smaller rank.

        Raises:
            WrongUsage: the columns of the first are not the rows of the second.
        """
        if self.shape[-1] != other.shape[-2]:
            raise WrongUsage(
                f"a matrix {shape_text(self.shape)} cannot be multiplied by one "
                f"{shape_text(other.shape)}: columns of the first are rows of the second."
            )
        middle, precision = self.right @ other.left, max(self.precision, other.precision)
        if middle.shape[-2] <= middle.shape[-1]:
            return FactoredMatrix(self.left, middle @ other.right, precision)
        return FactoredMatrix(self.left @ middle, other.right, precision)

    def dense(self) -> Tensor:
        """Multiply it out, (…, rows, columns)."""
        return self.left @ self.right

    @property
    def norm(self) -> Tensor:
        """The root of the sum of all squares, a scalar for each matrix, (…)."""
        norm: Tensor = torch.linalg.vector_norm(self.svd().values, dim=-1)
        return norm

    def svd(self) -> SVD:
        """Return the singular values and vectors, by those of a matrix as wide as the rank."""
        left, upper = torch.linalg.qr(self.left)
        right, other = torch.linalg.qr(self.right.mT)
        rows, values, columns = torch.linalg.svd(upper @ other.mT, full_matrices=False)
        return SVD(left @ rows, values, right @ columns.mT)

    def directions(self) -> list[Directions]:
        """Return the singular values of one matrix, largest first: each that stands apart with its
        vectors, others together with their subspace, and no group that is zero within the
        precision."""
        left, values, right = self.svd()
        gap = self.precision / _ANGLE * float(values[0])
        apart = (values[:-1] - values[1:] > gap).nonzero().flatten() + 1
        groups = torch.arange(len(values)).tensor_split(apart.cpu())
        least = self.precision * float(values[0])
        return [
            Directions(values[group], left[:, group], right[:, group])
            for group in groups
            if float(values[group[0]]) > least
        ]

    def eigenvalues(self) -> Tensor:
        """Return the eigenvalues of a square matrix that are not zero, complex (number,), largest
        first."""
        if self.shape[-2] != self.shape[-1]:
            raise WrongUsage(f"a square matrix has eigenvalues; got {shape_text(self.shape)}.")
        values: Tensor = torch.linalg.eigvals(self.right @ self.left)
        return values[values.abs().argsort(descending=True, stable=True)]

    def copying(self) -> float:
        """Return how much of its eigenvalues is positive, Σ Re λ / Σ abs λ, from -1 to 1 (Elhage et
        al. 2021): near 1 it writes what it reads, near -1 the opposite; NaN of a zero matrix."""
        values = self.eigenvalues()
        return float(values.real.sum() / values.abs().sum())

    def _card(self) -> Card:
        rows = []
        groups = self.directions() if len(self.shape) == 2 else []
        for group in groups[:_MOST_LINES]:
            low, high = float(group.values[-1]), float(group.values[0])
            kind = "a direction" if group.size == 1 else f"a subspace of {group.size}"
            rows.append((short(high) if group.size == 1 else f"{high:.4g} to {low:.4g}", kind))
        more = [f"  {len(groups) - len(rows)} more"] if len(groups) > len(rows) else []
        title = f"A matrix {shape_text(self.shape)} of rank {self.left.shape[-1]} or less"
        return Card(title, columns=("singular value", ""), rows=rows, lines=more)
