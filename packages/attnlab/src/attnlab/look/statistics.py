"""Statistics of attention weights: entropy, largest weight, norm of the softmax's Jacobian, rank.

Weights are (..., query, key), each row a distribution over the keys (or zeros, for a query without
a key); a statistic of each query is (..., query). Half-precision weights are converted to float32.
"""

from typing import Any

import torch
from torch import Tensor

from attnlab.display import short
from attnlab.errors import WrongUsage
from attnlab.shapes import shape_text


def entropy(weights: Tensor) -> Tensor:
    """Return the entropy of each row, `-Σ w ln w`: 0 for a single key, ln(keys) for equal weights.

    Shapes: (..., query, key) -> (..., query), in nats.

    >>> entropy(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    tensor([0.0000, 0.6931])
    """
    entropies: Tensor = torch.special.entr(checked_weights(weights)).sum(-1)
    return entropies


def largest_weight(weights: Tensor) -> Tensor:
    """Return the largest weight of each row.

    Shapes: (..., query, key) -> (..., query).
    """
    if checked_weights(weights).shape[-1] == 0:
        raise WrongUsage(
            f"the largest of no weights is undefined; got {shape_text(weights.shape)}."
        )
    return weights.amax(-1)


def softmax_jacobian_norm(weights: Tensor) -> Tensor:
    """Return the Frobenius norm of the Jacobian of each row's softmax, which scales gradients.

    The Jacobian of `w = softmax(s)` is `diag(w) - w wᵀ`, so the norm is `√(Σw² - 2Σw³ + (Σw²)²)`: 0
    where one weight is 1 (its gradient vanishes), and at most ½, for two equal weights.

    Shapes: (..., query, key) -> (..., query).
    """
    exact = checked_weights(weights).double()  # near a weight of 1 the terms cancel
    squares = exact.square().sum(-1)
    norm = (squares - 2.0 * exact.pow(3).sum(-1) + squares.square()).clamp(min=0.0).sqrt()
    return norm.to(weights.dtype)


def blocked_weight(weights: Tensor, mask: Tensor) -> Tensor:
    """Return the weight that each row has on blocked keys.

    Shapes: (..., query, key) and a boolean mask, True = may attend, that broadcasts to it -> (...,
    query).
    """
    if mask.dtype != torch.bool:
        raise WrongUsage(f"the mask must be boolean, True = may attend; got {mask.dtype}.")
    return checked_weights(weights).masked_fill(mask, 0.0).sum(-1)


def numerical_rank(matrix: Tensor, *, tolerance: float | None = None) -> Tensor:
    """Count the singular values above `tolerance` times the largest: (..., rows, columns) -> (...).

    Args:
        matrix: finite numbers.
        tolerance: relative; None for the larger side times the dtype's rounding step, as in NumPy.

    >>> numerical_rank(torch.outer(torch.ones(3), torch.ones(2)))
    tensor(1)
    """
    is_finite = bool(torch.isfinite(matrix).all())
    if matrix.dim() < 2 or not matrix.is_floating_point() or not is_finite:
        odd = "" if is_finite else " with NaN or infinity"
        raise WrongUsage(
            "a rank is computed of finite floating-point matrices (..., rows, columns); got "
            f"{shape_text(matrix.shape)} of {matrix.dtype}{odd}."
        )
    if 0 in matrix.shape[-2:]:
        return torch.zeros(matrix.shape[:-2], dtype=torch.int64)
    values = torch.linalg.svdvals(matrix)
    if tolerance is None:
        tolerance = max(matrix.shape[-2:]) * torch.finfo(matrix.dtype).eps
    rank: Tensor = (values > tolerance * values[..., :1]).sum(-1)
    return rank


def checked_weights(weights: Any, least_axes: int = 1) -> Tensor:
    """Return weights in at least single precision, or raise if they cannot be weights."""
    is_tensor = isinstance(weights, Tensor) and weights.is_floating_point()
    if not is_tensor or weights.dim() < least_axes:
        raise WrongUsage(f"weights are floating-point (..., query, key); got {short(weights)}.")
    checked: Tensor = weights.to(torch.promote_types(weights.dtype, torch.float32))
    return checked
