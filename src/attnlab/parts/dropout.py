"""Dropout: in training, zero each number with a probability and scale up the rest (Srivastava et al. 2014).

A function, not a module: a probability of 0, the usual case here, then costs nothing.
"""

import torch.nn.functional as F
from torch import Tensor

__all__ = ["dropped"]


def dropped(x: Tensor, probability: float, *, is_training: bool) -> Tensor:
    """Drop numbers of any shape in training; return x itself otherwise."""
    return F.dropout(x, probability) if is_training and probability else x
