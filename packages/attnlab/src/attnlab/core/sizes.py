"""How many numbers and bytes tensors take, and which tensors hold those of quantized weights."""

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


def stored_tensors(tensor: "Tensor") -> "list[Tensor]":
    """Return the tensors that hold the numbers of one: itself, or those that a quantized weight is
    made of.

    >>> import torch
    >>> weight = torch.zeros(2, 3)
    >>> stored_tensors(weight)[0] is weight
    True
    """
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    if not is_traceable_wrapper_subclass(tensor):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    parts = [getattr(tensor, name) for name in names]
    return [part for inner in parts for part in stored_tensors(inner)]
