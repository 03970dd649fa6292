"""Checks of what a user picks: an index, or a slice, within a size."""

from typing import TypeGuard

import torch
from torch import Tensor

from attnlab.errors import WrongUsage, is_integer


def has_integers(tensor: Tensor) -> bool:
    """Does a tensor hold integers? Truth values are none."""
    return not tensor.is_floating_point() and tensor.dtype != torch.bool


def is_index(index: object, size: int) -> TypeGuard[int]:
    """Is this an integer from 0 to below `size`?"""
    return is_integer(index) and 0 <= index < size


def check_index(name: str, index: object, size: int) -> int:
    """Return an integer from 0 to below `size`, or raise `WrongUsage` naming it."""
    if not is_index(index, size):
        raise WrongUsage(f"{name} must be from 0 to {size - 1}; got {index!r}.")
    return index


def check_slice(name: str, part: object, size: int) -> slice:
    """Return a slice of step 1 within `size` that is not empty, or raise `WrongUsage` naming it."""
    if not isinstance(part, slice):
        raise WrongUsage(f"{name} must be a slice such as slice(0, {size}); got {part!r}.")
    start = part.start or 0
    stop = size if part.stop is None else part.stop
    is_within = is_index(start, size) and is_index(stop, size + 1) and start < stop
    if not is_within or part.step not in (None, 1):
        raise WrongUsage(
            f"{name} must be a slice within 0 to {size}, of step 1 and not empty; "
            f"got slice({part.start}, {part.stop}, {part.step})."
        )
    return slice(start, stop)
