"""Dropout: in training, zero each number with a probability and scale up the rest (Srivastava et
al. 2014).

A function, not a module: a probability of 0, the usual case here, then costs nothing.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.sites import require_model


def dropped(x: Tensor, probability: float, *, is_training: bool) -> Tensor:
    """Drop numbers of any shape in training; return x itself otherwise."""
    if is_training and probability:
        return F.dropout(x, probability)
    return x


def drops_out(model: nn.Module) -> bool:
    """Does some part of a model, PyTorch's own dropout too, drop anything now?"""
    require_model(model)
    return any(part.training and _probability(part) for part in model.modules())


def _probability(part: nn.Module) -> float:
    if isinstance(part, nn.modules.dropout._DropoutNd):
        return part.p
    probability = getattr(part, "dropout", 0.0)
    if isinstance(probability, int | float):
        return probability
    return 0.0  # a module of that name is asked for itself
