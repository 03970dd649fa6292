"""Statistics of attention weights and of what they make: how spread, how sure, how deaf to gradients, of what rank.

Weights are (..., query, key), each row a distribution over the keys (or zeros, for a query that may look at
nothing); what is said of each query comes back as (..., query). Half-precision weights are computed with as float32.
"""

import torch
from torch import Tensor

from attnlab.errors import WrongUsage
from attnlab.shapes import shape_text

__all__ = ["blocked_weight", "entropy", "largest_weight", "numerical_rank", "softmax_jacobian_norm"]


def entropy(weights: Tensor) -> Tensor:
    """Return the entropy of each row, `-Σ w ln w`: 0 for one key alone, ln(keys) for all alike.

    Shapes: (..., query, key) -> (..., query), in nats.

    >>> entropy(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    tensor([0.0000, 0.6931])
    """
    found: Tensor = torch.special.entr(_checked(weights)).sum(-1)
    return found


def largest_weight(weights: Tensor) -> Tensor:
    """Return each row's largest weight; `.amax(-1)` of it is the whole matrix's, which is a larger number.

    Shapes: (..., query, key) -> (..., query).
    """
    if _checked(weights).shape[-1] == 0:
        raise WrongUsage(f"the largest of no weights is not defined; got shape {shape_text(weights.shape)}.")
    return weights.amax(-1)


def softmax_jacobian_norm(weights: Tensor) -> Tensor:
    """Return how much of a gradient each row's softmax lets through: the Frobenius norm of its Jacobian.

    The Jacobian of `w = softmax(s)` is `diag(w) - w wᵀ`, so the norm is `√(Σw² - 2Σw³ + (Σw²)²)`: 0 where one weight is
    1 (nothing is learned there any more), and at most ½, for two equal weights.

    Shapes: (..., query, key) -> (..., query).
    """
    exact = _checked(weights).double()  # near a weight of 1 the terms cancel
    squares = exact.square().sum(-1)
    norm = (squares - 2.0 * exact.pow(3).sum(-1) + squares.square()).clamp(min=0.0).sqrt()
    return norm.to(weights.dtype)


def blocked_weight(weights: Tensor, mask: Tensor) -> Tensor:
    """Return the weight that each row puts on keys it may not look at.

    Shapes: (..., query, key) and a boolean mask, True = may attend, that broadcasts to it -> (..., query).
    """
    if mask.dtype != torch.bool:
        raise WrongUsage(f"the mask must be boolean, True = may attend; got {mask.dtype}.")
    return _checked(weights).masked_fill(mask, 0.0).sum(-1)


def numerical_rank(matrix: Tensor, *, tolerance: float | None = None) -> Tensor:
    """Count the singular values above `tolerance` times the largest: (..., rows, columns) -> (...), integers.

    Args:
        matrix: finite numbers.
        tolerance: relative; None for the larger side times the dtype's rounding step, as NumPy has it.

    >>> numerical_rank(torch.outer(torch.ones(3), torch.ones(2)))
    tensor(1)
    """
    if matrix.dim() < 2 or not matrix.is_floating_point() or not bool(torch.isfinite(matrix).all()):
        raise WrongUsage(
            f"a rank is asked of finite floating-point matrices (..., rows, columns); got {shape_text(matrix.shape)} "
            f"of {matrix.dtype}{'' if bool(torch.isfinite(matrix).all()) else ' with NaN or infinity'}."
        )
    if 0 in matrix.shape[-2:]:
        return torch.zeros(matrix.shape[:-2], dtype=torch.int64)
    values = torch.linalg.svdvals(matrix)
    share = max(matrix.shape[-2:]) * torch.finfo(matrix.dtype).eps if tolerance is None else tolerance
    found: Tensor = (values > share * values[..., :1]).sum(-1)
    return found


def _checked(weights: Tensor) -> Tensor:
    if weights.dim() < 1 or not weights.is_floating_point():
        raise WrongUsage(
            f"weights are floating-point numbers of shape (..., query, key); got {shape_text(weights.shape)} "
            f"of {weights.dtype}."
        )
    return weights.float() if weights.dtype in (torch.float16, torch.bfloat16) else weights
