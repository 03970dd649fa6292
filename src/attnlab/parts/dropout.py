"""Dropout: in training, zero each number with a probability and scale up the rest (Srivastava et
al. 2014).

A function, not a module: a probability of 0, the usual case here, then costs nothing.
"""

import torch.nn.functional as F
from torch import Tensor, nn


def dropped(x: Tensor, probability: float, *, is_training: bool) -> Tensor:
    """Drop numbers of any shape in training; return x itself otherwise."""
    return F.dropout(x, probability) if is_training and probability else x


def drops_out(model: nn.Module) -> bool:
    """Does some part of a model, PyTorch's own dropout too, drop anything now?"""
    return any(
        part.training
        and bool(part.p if isinstance(part, nn.modules.dropout._DropoutNd) else _probability(part))
        for part in model.modules()
    )


def _probability(part: nn.Module) -> float:
    found = getattr(part, "dropout", 0.0)
    # a module of that name is asked for itself
    return found if isinstance(found, int | float) else 0.0
