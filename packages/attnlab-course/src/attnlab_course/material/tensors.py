"""Tensors and cases that several exercises share, and the judge of what a dropout left."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlab_course.exercise import Case, Failure
from attnlab_course.material.numpy_parts import numeric_gradients

Floats = NDArray[np.float64]


def as_tensors(state: Mapping[str, Floats]) -> dict[str, Tensor]:
    """Return the arrays of a state as tensors, under the same names."""
    return {name: torch.from_numpy(array) for name, array in state.items()}


def parameter_shapes(
    layers: Mapping[str, tuple[int, ...]], attention: Mapping[str, int] | None = None
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of weights and biases by their names.

    Args:
        layers: the shape of each layer's weight, by the layer's name.
        attention: the width of each of PyTorch's multi-head attentions, by its name.
    """
    shapes, parts = dict[str, tuple[int, ...]](), dict(layers)
    for name, width in (attention or {}).items():
        shapes[f"{name}.in_proj_weight"] = (3 * width, width)
        shapes[f"{name}.in_proj_bias"] = (3 * width,)
        parts[f"{name}.out_proj"] = (width, width)
    for name, shape in parts.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes


def draw_arrays(
    random: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Floats]:
    """Draw each parameter from the standard normal distribution, in the order of the names."""
    return {name: random.normal(size=shape) for name, shape in shapes.items()}


def inputs_case(case: Case) -> Case:
    """Ask for the tensors of a case as they are after the call."""
    tensors = [x for x in case.args if isinstance(x, Tensor | np.ndarray)]
    words = f"{case.words} (its inputs, after the call)".strip()
    return replace(case, answer="inputs", expected=tensors, judge=None, words=words)


def gradients_case(case: Case, function: Callable[..., Floats], tolerance: float = 1e-4) -> Case:
    """Ask for the gradients of a case's floating-point tensors.

    Args:
        case: the call.
        function: computes the first part of the answer in NumPy, from the arrays of these tensors.
        tolerance: how far a gradient may be off.
    """
    tensors = [x for x in case.args if isinstance(x, Tensor) and x.is_floating_point()]
    slopes = numeric_gradients(function, [tensor.double().numpy() for tensor in tensors])
    expected = [torch.from_numpy(array).to(tensors[0].dtype) for array in slopes]
    words = f"{case.words} (its gradients)".strip()
    return replace(
        case, answer="gradients", expected=expected, judge=None, words=words, tolerance=tolerance
    )


def first_failure(judge: Callable[[Any], Failure | None], parts: Iterable[Any]) -> Failure | None:
    """Judge one part after the other; return the first failure."""
    return next(filter(None, map(judge, parts)), None)


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
