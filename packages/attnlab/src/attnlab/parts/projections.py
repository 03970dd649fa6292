"""Projections: the matrices that make queries, keys and values.

`dense` is a plain matrix. A factorized one is made, for each head, from A (d_model × rank) and B
(rank × head_width): `softmax_row(A B / temperature)`, a row-stochastic matrix; by itself it is
`strict`, times a free base matrix, element by element, it is `gated`.
"""

from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage
from attnlab.parts.linear import Linear, linear
from attnlab.shapes import require_choice, require_integer

ProjectionKind = Literal["dense", "gated", "strict"]


def factorised_weight(
    a: Tensor, b: Tensor, *, temperature: float | Tensor = 1.0, base: Tensor | None = None
) -> Tensor:
    """Compute `softmax_row(A B / temperature)`, times `base` where there is one.

    Shapes: a (..., d_model, rank), b (..., rank, head_width), base (..., d_model, head_width) -> as
    base.
    """
    mixture = (a @ b / temperature).softmax(-1)
    if base is None:
        return mixture
    return mixture * base


class FactorizedProjection(nn.Module):
    """A projection of all heads, each made from its own A and B.

    Parameters: `a` (head, d_model, rank), `b` (head, rank, head_width), and, when gated, `base`
    (head, d_model, head_width). A and B start Kaiming-uniform (a = √5), base Xavier-uniform, each
    head by itself.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        head_width: int,
        *,
        rank: int,
        temperature: float = 1.0,
        gated: bool = True,
    ) -> None:
        super().__init__()
        require_integer("rank", rank)
        if not temperature > 0:
            raise WrongUsage(f"temperature must be above 0; got {temperature!r}.")
        # A buffer, so that the members of a population may differ in it; of 64 bits, so that no
        # dtype loses any of it.
        self.register_buffer(
            "temperature", torch.tensor(temperature, dtype=torch.float64), persistent=False
        )
        self.a = nn.Parameter(torch.empty(num_heads, d_model, rank))
        self.b = nn.Parameter(torch.empty(num_heads, rank, head_width))
        self.base = nn.Parameter(torch.empty(num_heads, d_model, head_width)) if gated else None
        for head in range(num_heads):
            nn.init.kaiming_uniform_(self.a[head], a=5**0.5)
            nn.init.kaiming_uniform_(self.b[head], a=5**0.5)
            if self.base is not None:
                nn.init.xavier_uniform_(self.base[head])

    temperature: Tensor

    @property
    def weight(self) -> Tensor:
        """The matrix that is applied, (head · head_width, d_model)."""
        weight = factorised_weight(self.a, self.b, temperature=self.temperature, base=self.base)
        return weight.transpose(-2, -1).flatten(0, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> (..., head · head_width)."""
        return linear(x, self.weight)

    def extra_repr(self) -> str:
        """What printing the module shows of it."""
        heads, d_model, rank = self.a.shape
        kind = "strict" if self.base is None else "gated"
        return (
            f"{d_model} -> {heads}x{self.b.shape[-1]}, {kind}, rank={rank}, "
            f"temperature={float(self.temperature):g}"
        )


Projection: TypeAlias = Linear | FactorizedProjection


def make_projection(
    kind: ProjectionKind,
    d_model: int,
    num_heads: int,
    head_width: int,
    *,
    rank: int | None = None,
    temperature: float = 1.0,
    bias: bool = True,
) -> Projection:
    """Make a projection by its kind; factorized ones have no bias and need a rank, dense ones start
    Xavier-uniform."""
    if kind == "dense":
        dense = Linear(d_model, num_heads * head_width, bias=bias)
        nn.init.xavier_uniform_(dense.weight)
        if dense.bias is not None:
            nn.init.zeros_(dense.bias)
        return dense
    require_choice("projections", kind, ProjectionKind)
    if rank is None:
        raise WrongUsage(f"{kind} projections need a rank; got none.")
    return FactorizedProjection(
        d_model, num_heads, head_width, rank=rank, temperature=temperature, gated=kind == "gated"
    )
