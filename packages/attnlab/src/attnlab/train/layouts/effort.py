"""The work of one step of one member, counted: calls, numbers written, multiplications; equal on
every machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnlab.train.layouts.layout import Batch, Loss
from attnlab.train.layouts.vmap import frame_of

aten = torch.ops.aten
_PRODUCTS = (aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default)


@dataclass(frozen=True)
class Effort:
    """The work of a step of one member, forward and backward.

    numbers: how many are written by all operations, in thousands. products: floating-point
    operations of the matrix products, in millions.
    """

    numbers: float
    products: float


def effort_of(model: nn.Module, loss: Loss, example: Batch) -> Effort:
    """Count the work of one step; the model is left as it was."""
    frame = frame_of(model)
    parameters = [parameter for parameter in frame.parameters() if parameter.requires_grad]
    with _Counting() as counted, torch.enable_grad():
        torch.autograd.grad(loss(frame, *example), parameters, allow_unused=True)
    return Effort(counted.numbers / 1e3, counted.products / 1e6)


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = self.products = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if all(
            argument.alias_info is None for argument in func._schema.returns
        ):  # views write nothing
            for leaf in tree_leaves(result):
                if isinstance(leaf, Tensor):
                    self.numbers += leaf.numel()
        if func in _PRODUCTS:
            self.products += 2 * result.numel() * args[-2].shape[-1]
        return result
