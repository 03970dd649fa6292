"""Recomputation: blocks that `backward()` computes again under activation checkpointing.

What is computed again must be edited again, and nothing else may be; else the gradients would be
another model's. So gradient hooks on the outputs of edited passes note which `backward()` calls are
theirs. A `backward()` after the edits have ended raises, and so does one of an earlier pass.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun
from attnlab.sites import entrances


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


def tensors_in(output: Any) -> list[Tensor]:
    """List the tensors of what a module gives: one, or several in tuples, lists or mappings."""
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, Mapping):
        output = list(output.values())
    if not isinstance(output, tuple | list):
        return []
    return [tensor for each in output for tensor in tensors_in(each)]


class Recomputation:
    """Which passes may be computed again under one edit.

    is_due: something that was edited will be computed again · is_over: the edit has ended.
    """

    def __init__(self) -> None:
        self.is_due = self.is_over = False
        # torch's numbers of the `backward()` calls of edited passes
        self._backwards: set[int] = set()

    def edited(self, value: Tensor) -> None:
        """Note a value that was edited."""
        self.is_due = self.is_due or checkpointed_by() is not None
        self._guard(value)

    def computes_again(self) -> None:
        """Raise where `backward()` computes again a pass that was made before the edits."""
        if torch._C._current_graph_task_id() not in self._backwards:
            raise CouldNotRun(
                "backward() inside the edits' `with` computes blocks of an earlier pass again, now "
                "with the edits: gradients would be wrong. Call backward() before the `with`, or "
                "make the pass inside it."
            )

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
            # it is told once, and not again by what runs while the error is on its way
            self.is_due = False
            raise CouldNotRun(
                f"the whole of this {type(module).__name__} is checkpointed with "
                "use_reentrant=True, so that it is unknown whether it is computed again "
                "without its edits; give use_reentrant=False."
            )
        self._guard(output)

    def _guard(self, output: Any) -> None:
        for tensor in tensors_in(output):
            if tensor.requires_grad:
                tensor.register_hook(self._begun)  # type: ignore[no-untyped-call]

    def _begun(self, _: Tensor) -> None:
        self._backwards.add(torch._C._current_graph_task_id())
        if self.is_over and self.is_due:
            raise CouldNotRun(
                "backward() was called after the edits' `with` had ended, and activation "
                "checkpointing computes blocks again, now without the edits: gradients would be "
                "wrong. Call backward() inside the `with`."
            )
