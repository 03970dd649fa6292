"""How many numbers and bytes tensors take."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def count_numbers(tensors: "Iterable[Tensor]") -> int:
    """Return how many numbers tensors hold together.

    >>> import torch
    >>> count_numbers([torch.zeros(2, 3), torch.zeros(4)])
    10
    """
    return sum(tensor.numel() for tensor in tensors)


def count_bytes(tensors: "Iterable[Tensor]") -> int:
    """Return how many bytes tensors take together.

    >>> import torch
    >>> count_bytes([torch.zeros(2, 3), torch.zeros(4)])
    40
    """
    return sum(tensor.nbytes for tensor in tensors)
