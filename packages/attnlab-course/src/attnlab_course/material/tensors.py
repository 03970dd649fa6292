"""Tensors and cases that several exercises share, and the judge of what a dropout left."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnlab.errors import present
from attnlab_course.exercise import Case, Failure

Floats = NDArray[np.float64]


def draw_state(
    random: np.random.Generator, module: nn.Module, scale: float = 1.0
) -> dict[str, Tensor]:
    """Draw the parameters of a module of the solution, normally distributed, in float64."""
    state = {}
    for name, parameter in module.named_parameters():
        state[name] = torch.from_numpy(random.normal(size=tuple(parameter.shape)) * scale)
    return state


def inputs_case(case: Case) -> Case:
    """Ask for the tensors of a case as they are after the call."""
    tensors = [x for x in case.args if isinstance(x, Tensor | np.ndarray)]
    words = f"{case.words} (its inputs, after the call)".strip()
    return replace(case, answer="inputs", expected=tensors, judge=None, words=words)


def gradients_case(case: Case, tolerance: float = 1e-4) -> Case:
    """Ask for the gradients of a case's floating-point tensors."""
    words = f"{case.words} (its gradients)".strip()
    return replace(case, answer="gradients", words=words, tolerance=tolerance)


def built(kind: type[nn.Module], case: Case) -> nn.Module:
    """Return a module of the solution with the parameters of a case, in evaluation mode."""
    args, settings = present(case.build)
    module = kind(*args, **settings).double().eval()
    module.load_state_dict(dict(case.state or {}))
    return module


def shape_failure(answer: Any, shape: tuple[int, ...]) -> Failure | None:
    """Say that an answer is no tensor of this shape; None where it is one."""
    if isinstance(answer, Tensor) and answer.shape == shape:
        return None
    return Failure(f"expected a tensor of shape {shape}")


def kept_failure(
    kept: Floats, whole: Floats, chance: float, what: str, near: tuple[float, float] = (1e-5, 1e-8)
) -> Failure | None:
    """Say what is wrong with the numbers that a dropout kept; None where they are right.

    Args:
        kept: the numbers in training; what was dropped is 0.
        whole: the same in evaluation; what is kept must be whole / (1 − chance).
        chance: of being dropped.
        what: names the numbers.
        near: how far they may be off, relatively and absolutely.
    """
    gone = kept == 0
    if np.allclose(kept, np.where(gone, 0, whole), *near):
        return Failure(f"the {what} that stay are not made larger", "not made larger")
    if not np.allclose(kept, np.where(gone, 0, whole / (1 - chance)), *near):
        return Failure(f"the {what} that stay are not those of evaluation / (1 − chance)")
    return None


def dropped_failure(
    answer: Any, whole: Floats, chance: float, what: str, near: tuple[float, float] = (1e-5, 1e-8)
) -> Failure | None:
    """Say what is wrong with numbers some of which a dropout should have dropped.

    Args:
        answer: the student's, in training.
        whole: see `kept_failure`, as chance, what and near.
    """
    failure = shape_failure(answer, whole.shape)
    if failure is not None:
        return failure
    numbers = answer.numpy()
    share = float((numbers == 0).mean())
    if np.allclose(numbers, whole, *near):
        return Failure(f"in training none of the {what} were dropped")
    if abs(share - chance) > 0.06:
        return Failure(f"expected about {chance:.0%} of the {what} dropped, got {share:.1%}")
    return kept_failure(numbers, whole, chance, what, near)
