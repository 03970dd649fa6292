"""Tensors and cases that several exercises share, and the judge of what a dropout left."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor, nn

from attnlab.errors import not_none
from attnlab_course.exercise import Case, Check, Failure

Floats = NDArray[np.float64]


def sample_state(
    random: np.random.Generator, module: nn.Module, scale: float = 1.0
) -> dict[str, Tensor]:
    """Sample the parameters of a module of the solution, normally distributed, in float64."""
    state = {}
    for name, parameter in module.named_parameters():
        state[name] = torch.from_numpy(random.normal(size=tuple(parameter.shape)) * scale)
    return state


def inputs_case(case: Case) -> Case:
    """Ask for the tensors of a case as they are after the call."""
    tensors = [x for x in case.args if isinstance(x, Tensor | np.ndarray)]
    words = f"{case.words} (its inputs, after the call)".strip()
    return replace(case, answer="inputs", expected=tensors, judge=None, words=words)


def inputs_check(cases: Callable[[Generator], Iterable[Case]], name: str = "inputs") -> Check:
    """Return the check that what cases ask leaves their tensors as they were."""

    def generate(random: Generator) -> Iterator[Case]:
        return map(inputs_case, cases(random))

    return Check(name, "leaves its inputs as they are", generate)


def parameters_check(words: str, call: str, *builds: tuple[Any, ...], points: int = 1) -> Check:
    """Return the check of a class's parameters, by name and shape.

    Args:
        words: the requirement.
        call: the class.
        builds: arguments of its constructor, for each case.
        points: its share of the exercise's points.
    """
    cases = [Case(call, build=(args, {}), answer="parameters") for args in builds]
    return Check("parameters", words, lambda random: cases, points)


def gradients_case(case: Case, tolerance: float = 1e-4) -> Case:
    """Ask for the gradients of a case's floating-point tensors."""
    words = f"{case.words} (its gradients)".strip()
    return replace(case, answer="gradients", words=words, tolerance=tolerance)


def _related(
    companions: Callable[[Case], Iterable[Case]],
    relation: Callable[[Sequence[Case], Sequence[Any]], bool],
    name: str,
    words: str,
    cases: Callable[[Generator], Iterable[Case]],
    points: int = 1,
    **more: Any,
) -> Check:
    """Return a check that asks for the companions of each case, and relates the answers."""

    def generate(random: Generator) -> Iterator[Case]:
        for case in cases(random):
            yield from companions(case)

    return Check(name, words, generate, points, relation=relation, **more)


def _with_unmasked(case: Case) -> Iterator[Case]:
    yield case
    yield replace(case, args=case.args[:-1], beside=True)


def _masks_fit(cases: Sequence[Case], answers: Sequence[Any]) -> bool:
    fits = []
    for case, (_, weights), (_, whole) in zip(cases[::2], answers[::2], answers[1::2], strict=True):
        mask = case.args[-1].broadcast_to(whole.shape)
        kept = whole * mask
        grown = weights * kept.sum(dim=-1, keepdim=True)
        sums, wanted = weights.sum(dim=-1), mask.any(dim=-1).to(weights.dtype)
        fits.append(not weights[~mask].any() and torch.allclose(sums, wanted, 1e-3, 1e-3))
        fits.append(torch.allclose(grown, kept, 1e-3, 1e-6))
    return all(fits)


mask_check = partial(_related, _with_unmasked, _masks_fit)
"""A check of masks, the last arguments, in calls that answer (output, weights).

Each call is made without its mask, too. However an answer makes its weights, the mask takes some of
them away, exactly, and makes the others larger, so that they sum to 1.
"""

_STEP = 0.01


def _waves(tensor: Tensor) -> Tensor:
    """Return the numbers that weigh an answer, and along which its inputs move."""
    return torch.cos(torch.arange(tensor.numel(), dtype=tensor.dtype)).reshape(tensor.shape)


def _with_sides(case: Case) -> Iterator[Case]:
    yield gradients_case(case)
    yield replace(gradients_case(_moved(case, 1.0)), beside=True)
    for step in (_STEP, -_STEP):
        yield replace(_moved(case, step), beside=True)


def _moved(case: Case, step: float) -> Case:
    """Return a case whose numbers are moved along the waves."""
    args = list(case.args)
    for number, arg in enumerate(args):
        if isinstance(arg, Tensor) and arg.is_floating_point():
            args[number] = arg + step * _waves(arg)
    return replace(case, args=tuple(args))


def _slopes_fit(cases: Sequence[Case], answers: Sequence[Any]) -> bool:
    fits = []
    for gradients, others, *sides in zip(*(answers[n::4] for n in range(4)), strict=True):
        outputs = [side[0] if isinstance(side, list) else side for side in sides]
        above, below = (float((output * _waves(output)).sum()) for output in outputs)
        slope = sum(float((gradient * _waves(gradient)).sum()) for gradient in gradients)
        fits.append(bool(np.isclose(slope, (above - below) / (2 * _STEP), 0.03, 0.003)))
        fits.extend(bool(gradient.any()) for gradient in gradients)
        fits.append(not all(map(torch.allclose, gradients, others)))
    return all(fits)


gradients_check = partial(_related, _with_sides, _slopes_fit)
"""A check of the gradients of an answer, or of its first part: the right ones, or its own.

The answers a little to both sides of the inputs tell its own slope, which is another one elsewhere,
unless the answer is no more than a sum of its inputs.
"""


def dtypes_fit(cases: Sequence[Case], answers: Sequence[Any]) -> bool:
    """Whether the tensors of each answer have the right dtypes and shapes, and hold numbers."""
    right = [(part.dtype, part.shape) for case in cases for part in case.expected]
    parts = [part for answer in answers for part in answer]
    varied = all(bool(part.isfinite().all()) and len(part.unique()) > 1 for part in parts)
    return varied and right == [(part.dtype, part.shape) for part in parts]


def built_module(kind: type[nn.Module], case: Case) -> nn.Module:
    """Return a module of the solution with the parameters of a case, in evaluation mode."""
    args, settings = not_none(case.build)
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
