"""The interface of all layouts: N members of one shape, and a function that advances all of them.

A layout decides where the numbers lie and what computes them; it never decides what is learned. All
of them do the same arithmetic for each member, but for rounding: draw, predict, differentiate, clip
by the member's own norm, step. Rounding grows in a long training, so two layouts end with other
weights; what a population shows is the same (`benchmarks/engines.py`). A step whose loss or
gradient is not finite leaves that member as it was, for good, and does not affect the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from attnlab.simd.terms import CompilationFailed as CompilationFailed
from attnlab.simd.terms import NotExpressible as NotExpressible

Batch = tuple[Tensor, ...]
"""What one step of one member learns from; the loss is called as loss(model, *batch)."""

Batches = tuple[Tensor, ...] | list[Batch]
"""The batches of several steps: a tuple of tensors (steps, …), or, where shapes differ, a list with
one for each."""

Loss = Callable[..., Tensor]
"""loss(model, *batch): the mean loss, a scalar, in nats."""


@dataclass(frozen=True)
class StepResults:
    """The result of some steps: each step's loss and gradient norm (before clipping), (steps,
    member) on the CPU.

    Fewer steps than asked for when the layout was told to stop.
    """

    losses: Tensor
    norms: Tensor


class Layout(Protocol):
    """Members side by side.

    `state` is the same for all layouts: `model.NAME`, and for AdamW `first.NAME` and `second.NAME`,
    each (member, …) in the shape of the parameter; `steps`, (member,), how many updates each has
    had; and `is_alive`, (member,), who has met nothing but finite numbers.
    """

    name: str
    is_compiled: bool

    def advance(
        self, batches: Sequence[Batches], rates: Tensor, first: int, should_stop: Callable[[], bool]
    ) -> StepResults:
        """Take as many steps as `rates` has rows.

        Args:
            batches: for each member the batches of these steps.
            rates: the learning rates, (steps, member), float64.
            first: the number of the first of these steps, counted from 0 (noise is drawn from it).
            should_stop: asked now and then, between steps; when it says so, what is done is
                returned.
        """

    def parameters(self) -> dict[str, Tensor]:
        """Return every parameter by name, (member, …); they may be views, which the caller copies
        to keep them."""

    def state(self) -> dict[str, Tensor]:
        """Return copies of the complete state."""

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore a state."""


def stacked_parameters(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Stack the members' parameters: name -> (member, …)."""
    parameters = [dict(model.named_parameters()) for model in models]
    return {
        name: torch.stack([member[name].detach() for member in parameters])
        for name in parameters[0]
    }


def first_line(error: Exception) -> str:
    """Return the first line of an error's message without a full stop, or else its class."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")
