"""Recomputation: blocks that `backward()` computes again, because activation checkpointing kept nothing of them.

What is computed again must be edited again; once the edits are gone it would be another model's gradients. So whoever
calls `backward()` too late is told, by a hook at what came out of the edited pass.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun
from attnlab.sites import entrances

__all__ = ["Recomputation", "checkpointed_by"]


def checkpointed_by() -> str | None:
    """Name the function of torch's checkpointing that this is called in; None for none.

    It is "forward" in the first pass of the reentrant kind, which computes without gradients.
    """
    if torch.compiler.is_compiling():
        return None
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            return frame.f_code.co_name
    return None


class Recomputation:
    """What must not be computed again after one edit has ended.

    is_due: something that was edited will be computed again · is_over: the edit has ended.
    """

    def __init__(self) -> None:
        self.is_due = self.is_over = False

    def edited(self, value: Tensor) -> None:
        """Learn of a value that was edited."""
        self.is_due = self.is_due or checkpointed_by() is not None
        if self.is_due:
            self._guard(value)

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        """Guard what comes out of a model while it is edited; afterwards refuse its gradients."""
        with ExitStack() as stack:
            for _, module in entrances(model):
                stack.callback(module.register_forward_hook(self._came_out).remove)
            try:
                yield
            finally:
                self.is_over = True

    def _came_out(self, module: nn.Module, args: Any, output: Any) -> None:
        if self.is_due and checkpointed_by() == "forward":
            self.is_due = False  # it is told once, and not again by what runs while the error is on its way
            raise CouldNotRun(
                f"the whole of this {type(module).__name__} is checkpointed with use_reentrant=True, so that nobody "
                "can tell whether it is computed again without its edits; give use_reentrant=False."
            )
        if self.is_due:
            self._guard(output)

    def _guard(self, output: Any) -> None:
        if isinstance(output, Tensor):
            if output.requires_grad:
                output.register_hook(self._refuse)  # type: ignore[no-untyped-call]
        elif isinstance(output, Mapping | Sequence) and not isinstance(output, str):
            for each in output.values() if isinstance(output, Mapping) else output:
                self._guard(each)

    def _refuse(self, _: Tensor) -> None:
        if self.is_over:
            raise CouldNotRun(
                "backward() was called after the edits' `with` had ended, and activation checkpointing computes "
                "blocks again, now without the edits: gradients would be wrong. Call backward() inside the `with`."
            )
