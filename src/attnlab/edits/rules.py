"""Checks that several edits share: a finite number, one of some words, a fitting tensor."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab.errors import WrongUsage

__all__ = ["as_tensor", "require_choice", "require_finite"]


def require_finite(name: str, number: object) -> None:
    """Raise unless this is a finite number."""
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not (
        abs(number) < 2**63 if isinstance(number, int) else math.isfinite(number)  # type: ignore[arg-type]
    ):
        raise WrongUsage(f"{name}= must be a finite number; got {number!r:.40}.")


def require_choice(name: str, word: object, choices: tuple[str, ...]) -> None:
    """Raise unless this is one of the words."""
    if word not in choices:
        raise WrongUsage(f"{name}= must be one of {', '.join(choices)}; got {word!r}.")


def as_tensor(name: str, given: Any, *, may_block: bool = False) -> Tensor:
    """Return a tensor of finite numbers from a tensor, an array, or nested lists.

    may_block: -inf is allowed too.
    """
    try:
        tensor = given if isinstance(given, Tensor) else torch.as_tensor(np.asarray(given))
    except (TypeError, ValueError, RuntimeError):
        raise WrongUsage(
            f"{name}= is a tensor, or nested lists of numbers; got {given!r:.80}."
        ) from None
    if tensor.is_complex():
        raise WrongUsage(f"{name}= must hold real numbers; got {tensor.dtype}.")
    allowed = tensor.isfinite() | (tensor == float("-inf")) if may_block else tensor.isfinite()
    if tensor.numel() == 0 or not bool(allowed.all()):
        raise WrongUsage(
            f"{name}= must hold finite numbers{' or -inf' if may_block else ''}; got "
            f"{tensor!r:.120}."
        )
    return tensor
