"""The layout for models beyond the tiny: the step of a block of members is recorded once, then
replayed or compiled.

A block holds as many members as keep each operation large enough to be worth its call: of mid-sized
models that is one, so that its numbers stay in the cache, of smaller ones several, side by side in
batched products.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import grad_and_value, vmap

from attnlab.train.config import TrainConfig
from attnlab.train.layouts.blocks import Blocks, cut, different_buffers, one_dtype
from attnlab.train.layouts.layout import Batch, Loss, NotCompiled
from attnlab.train.layouts.tape import Tape, recorded
from attnlab.train.layouts.vmap import Lent, frame_of, refuse_noise

__all__ = ["batched"]


def batched(
    models: Sequence[nn.Module],
    configs: Sequence[TrainConfig],
    loss: Loss,
    example: Batch,
    *,
    width: int,
    is_compiled: bool,
    workers: int | None = None,
) -> Blocks:
    """Make the layout.

    Args:
        models: the members, untrained; `configs` likewise.
        loss: of one model on one batch.
        example: the batch of one step of one member.
        width: members in a block.
        is_compiled: let PyTorch's compiler turn the step into C++ (seconds to minutes, once), which
            is quicker after.
        workers: threads that blocks are shared out among; None for as many as torch has.

    Raises:
        NotExpressible: something stands against it; the message says what.
    """
    refuse_noise(models[0])
    one_dtype(models)
    width = min(width, len(models))
    different = {name: each[:width] for name, each in different_buffers(models).items()}

    def memory() -> _Memory:
        return _Memory(models[0], different, example, width)

    graph = _recorded(models[0], loss, memory(), list(different))
    compiled = _compiled(graph, memory()) if is_compiled else None

    def make() -> _Replay:
        return _Replay(memory(), graph, compiled)

    return Blocks(
        "batched",
        models,
        configs,
        width,
        make,
        example=example,
        is_compiled=is_compiled,
        workers=workers,
    )


class _Memory:
    """The memory of a block's numbers. A block of one member has no member axis in the recorded
    step."""

    def __init__(
        self, model: nn.Module, different: Mapping[str, Tensor], example: Batch, width: int
    ) -> None:
        row = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        self.parameters = row.repeat(width, 1)
        self.gradients = torch.zeros_like(self.parameters)
        self.buffers = {name: value.clone() for name, value in different.items()}
        self.batch = [part.unsqueeze(0).repeat(width, *[1] * part.dim()) for part in example]
        self.is_one = width == 1
        shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
        parameters, gradients = cut(self.parameters, shapes), cut(self.gradients, shapes)
        self.inputs = self._seen([*parameters.values(), *self.buffers.values(), *self.batch])
        self.to = self._seen(list(gradients.values()))

    def _seen(self, tensors: list[Tensor]) -> list[Tensor]:
        return [each[0] for each in tensors] if self.is_one else tensors


class _Replay:
    """An engine (see `blocks.py`): the recorded step on its own memory."""

    def __init__(
        self, memory: _Memory, graph: fx.GraphModule, compiled: Callable[..., Any] | None
    ) -> None:
        self.parameters, self.gradients, self.buffers = (
            memory.parameters,
            memory.gradients,
            memory.buffers,
        )
        self._memory, self._compiled = memory, compiled
        self._tape = None if compiled is not None else Tape(graph, memory.inputs)

    def losses(self, batch: Batch) -> Tensor:
        """Replay the step."""
        for place, part in zip(self._memory.batch, batch, strict=True):
            place.copy_(part)
        if self._tape is not None:
            self._tape.play()
            *gradients, losses = self._tape.outputs
        else:
            assert self._compiled is not None
            *gradients, losses = self._compiled(*self._memory.inputs)
        for place, gradient in zip(self._memory.to, gradients, strict=True):
            place.copy_(gradient)
        return losses.view(1) if self._memory.is_one else losses


def _recorded(
    model: nn.Module, loss: Loss, memory: _Memory, different: Sequence[str]
) -> fx.GraphModule:
    """Record the gradients and losses of a block, as a function of parameters, buffers and
    batch."""
    lent = Lent(frame_of(model), loss)
    names = [name for name, _ in model.named_parameters()]

    def member(*inputs: Tensor) -> Any:
        own, rest = inputs[: len(names)], inputs[len(names) :]
        buffers, batch = dict(zip(different, rest, strict=False)), rest[len(different) :]

        def value(parameters: list[Tensor]) -> Tensor:
            found: Tensor = lent.to_member(
                dict(zip(names, parameters, strict=True)), buffers, *batch
            )
            return found

        gradients, found = grad_and_value(value)(list(own))
        return (*gradients, found)

    return recorded(member if memory.is_one else vmap(member), *memory.inputs)


def _compiled(graph: fx.GraphModule, memory: _Memory) -> Callable[..., Any]:
    for node in graph.graph.nodes:
        # what the recording noted of shapes confuses the compiler, which notes its own
        node.meta.clear()
    # With a wrapper in C++ too, a call does without Python and its lock from beginning to end.
    options = {"cpp_wrapper": True, "compile_threads": 1}
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it says of its own insides
            from torch._inductor import compile as compile_graph

            compiled: Callable[..., Any] = compile_graph(
                graph, list(memory.inputs), options=options
            )
            compiled(*memory.inputs)
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise NotCompiled(f"PyTorch's compiler failed ({reason or type(error).__name__})") from None
    return compiled
