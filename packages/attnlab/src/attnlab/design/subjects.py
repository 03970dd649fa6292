"""Subjects of a proof: anything that maps vectors to vectors.

A head says by its matrices all of what it computes. Of a function, a foreign module, or a child of
a head that computes otherwise, only the answers are known.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnlab.errors import AttnlabError, WrongUsage, one_line
from attnlab.models.single_head import Matrices, SingleHead
from attnlab.parts.numpy_transformer import NumpyTransformer
from attnlab.tasks.vectors import VectorTask

FINE = (torch.float32, torch.float64)
"""The arithmetic a proof may be done in: of anything coarser, rounding can exceed the margin."""


@dataclass(frozen=True)
class Answers:
    """Outputs (inputs, length, output_dim) and weights (inputs, query, key), or None, in
    float64."""

    output: Tensor
    weights: Tensor | None


def check_parts(model: nn.Module, *, is_cast: bool) -> None:
    """Refuse parameters without values, or too coarse for a proof (unless they are cast first)."""
    for part in (*model.parameters(), *model.buffers()):
        if part.is_meta:
            raise WrongUsage("this model is on the device meta, without values: fill it first.")
        is_coarse = part.is_floating_point() and part.dtype not in FINE
        if part.is_complex() or (is_coarse and not is_cast):
            hint = " Cast it with .double() to prove its matrices." * is_coarse
            raise WrongUsage(
                "a proof needs real numbers in float32 or float64, or rounding may exceed the "
                f"margin; this model computes in {str(part.dtype).removeprefix('torch.')}.{hint}"
            )


def check_widths(matrices: Matrices, task: VectorTask) -> None:
    """Refuse a head that cannot take the inputs of a task."""
    places, width = task.row_length, 0
    if matrices.pos is not None:
        places, width = matrices.pos.shape
    takes, gives = len(matrices.Km) - width, matrices.Vm.shape[1]
    if (takes, gives) != (task.input_dim, task.output_dim):
        raise WrongUsage(
            f"{task.rule} takes vectors {task.input_dim} wide and gives {task.output_dim}; these "
            f"matrices take {takes} and give {gives}."
        )
    if places < task.row_length:
        raise WrongUsage(
            f"{task.rule} has inputs of {task.row_length} tokens; this head has {places} positions."
        )


def answers_of(subject: Any, task: VectorTask, ids: Tensor) -> Answers:
    """Run a subject on inputs (inputs, length).

    Raises:
        WrongUsage: it raises, or its answer is no matrix of real numbers of the right shape.
    """
    dtype, device = arithmetic_of(subject), torch.device("cpu")
    if isinstance(subject, nn.Module):
        device = next((parameter.device for parameter in subject.parameters()), device)
    if is_head(subject):
        with torch.no_grad():
            answer = subject(task.vectors(ids, dtype).to(device))
        return Answers(answer.output.cpu().double(), answer.weights.cpu().double().squeeze(1))
    outputs, weights = [], []
    for row in ids:
        where, expected = f"on the input {task.text(row)}", (len(row), task.output_dim)
        output, shares = _answer_to(subject, task.vectors(row, dtype).to(device), where, expected)
        outputs.append(output)
        weights.append(shares)
    if not _is_reference(subject):
        return Answers(torch.stack(outputs), None)
    return Answers(torch.stack(outputs), torch.stack(weights))


def _answer_to(
    subject: Any, vectors: Tensor, where: str, expected: tuple[int, int]
) -> tuple[Tensor, Any]:
    """Return the output for one input, of the expected shape, and its weights as `_answer` does."""
    try:
        answer, shares = _answer(subject, vectors)
        numbers = _as_numbers(answer)
    except AttnlabError:
        raise
    except Exception as error:
        raise WrongUsage(
            f"{where} the function raised {type(error).__name__}: {one_line(error, 200)}"
        ) from error
    if numbers is None:
        raise WrongUsage(f"{where} expected real numbers; got {one_line(repr(answer), 200)}.")
    if numbers.shape != expected:
        shape = tuple(numbers.shape)
        raise WrongUsage(f"{where} expected (length, output_dim) = {expected}; got {shape}.")
    return numbers, shares


def _answer(subject: Any, vectors: Tensor) -> tuple[Any, Any]:
    """Return a subject's output for one input, and the weights of a `NumpyTransformer`."""
    if _is_reference(subject):
        panels = subject.panels(vectors.numpy())
        return panels.output, torch.from_numpy(panels.attention)
    if not isinstance(subject, nn.Module):
        return subject(vectors.numpy()), None
    with torch.no_grad():
        if isinstance(subject, SingleHead):  # a child of it, which takes a batch
            return subject(vectors[None]).output[0], None
        return subject(vectors), None


def _as_numbers(answer: Any) -> Tensor | None:
    """Read an answer as float64; None where it holds anything but real numbers."""
    if isinstance(answer, Tensor):
        return None if answer.is_complex() else answer.detach().cpu().double().clone()
    array = np.array(answer)
    is_real = array.dtype.kind in "biuf"
    return torch.from_numpy(array.astype(np.float64)) if is_real else None


def is_head(subject: Any) -> bool:
    """Is the subject a SingleHead, fully described by its matrices, and no child of it?"""
    return type(subject) is SingleHead and "forward" not in vars(subject)


def _is_reference(subject: Any) -> bool:
    """Is the subject a NumpyTransformer, fully described by its matrices?"""
    return type(subject) is NumpyTransformer and "panels" not in vars(subject)


def matrices_of(subject: Any) -> Matrices | None:
    """Return the matrices in float64; None for a function."""
    if is_head(subject):
        return Matrices(*map(_double, subject.matrices()))
    if _is_reference(subject):
        return Matrices(*map(_double, (subject.Km, subject.Qm, subject.Vm, subject.pos)))
    return None


def _double(matrix: Any) -> Any:
    return None if matrix is None else torch.as_tensor(matrix).cpu().double()


def arithmetic_of(subject: Any) -> torch.dtype:
    """Return the dtype in which a subject computes; float64 for a function."""
    if not isinstance(subject, nn.Module):
        return torch.float64
    floats = filter(Tensor.is_floating_point, subject.parameters())
    return next((weight.dtype for weight in floats), torch.float32)
