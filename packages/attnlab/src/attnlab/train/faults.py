"""The first tensor that is not finite in a training that diverged."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun
from attnlab.sites import SitedModule
from attnlab.train.layouts.layout import Loss


class NotFinite(CouldNotRun):
    """The loss of every member of a training is no longer finite."""


def first_not_finite(model: nn.Module, loss: Loss, batch: Sequence[Tensor]) -> str:
    """Return the name of the first tensor that is not finite when a batch goes through.

    In order of time: a parameter, the batch, what a part of the model puts out, the loss, a
    gradient (the last of the model's, for they are made from its end to its beginning).
    """
    for name, parameter in model.named_parameters():
        if not is_finite(parameter):
            return f"the parameter {name}"
    for number, tensor in enumerate(batch, 1):
        if not is_finite(tensor):
            return f"tensor {number} of the batch"
    model.zero_grad()
    try:
        with _watched(model) as culprits:
            value = loss(model, *batch)
        if culprits:
            return f"the output of {culprits[0] or type(model).__name__}"
        if not is_finite(value):
            return "the loss"
        value.backward()  # type: ignore[no-untyped-call]
        for name, parameter in reversed(list(model.named_parameters())):
            if parameter.grad is not None and not is_finite(parameter.grad):
                return f"the gradient of {name}"
    finally:
        model.zero_grad()
    return "the norm of the whole gradient"


@contextmanager
def _watched(model: nn.Module) -> Iterator[list[str]]:
    """Collect the names of the parts whose output is not finite, in the order of their
    computation, without the guards of attention, which would hide some."""
    culprits: list[str] = []

    def look(name: str, part: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and not is_finite(output):
            culprits.append(name)

    with ExitStack() as stack:
        for name, part in model.named_modules():
            stack.callback(part.register_forward_hook(partial(look, name)).remove)
            if isinstance(part, SitedModule):
                stack.callback(setattr, part, "guard", part.guard)
                part.guard = False
        yield culprits


def is_finite(tensor: Tensor) -> bool:
    """Are all numbers of a tensor finite?"""
    return bool(torch.isfinite(tensor).all())
