"""Members in blocks: each block takes some steps while its numbers are in the cache, then the next.

A number of all members of a block lies in one row, (number, lane), with the members as lanes; so
clipping and the optimiser are a few operations for the whole block, however many parameters there
are. Blocks are independent, and are shared out among threads.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage
from attnlab.train.config import TrainConfig
from attnlab.train.layouts.layout import (
    Batch,
    Batches,
    NotExpressible,
    StepResults,
    stacked_parameters,
)
from attnlab.train.layouts.update import MOMENTS, UpdateSettings, UpdateState, update

_SECONDS = 0.2  # about so long between two questions whether to stop


class Blocks(ABC):
    """Members in blocks of one width; the last is filled up with copies of the last member."""

    name = "simd"
    is_compiled = False

    def __init__(
        self,
        models: Sequence[nn.Module],
        configs: Sequence[TrainConfig],
        width: int,
        *,
        different: Mapping[str, Tensor] | None = None,
        example: Batch | None = None,
        workers: int | None = None,
        lanes_first: bool = False,
    ) -> None:
        """Begin with the models' weights.

        Args:
            models: the members, untrained; `configs` likewise.
            width: members in a block.
            different: the buffers in which members differ, (member, …).
            example: the batch of one step of one member, if no other shapes are taken.
            workers: threads that blocks are shared out among; None for as many as torch has.
            lanes_first: a member's numbers lie side by side in memory, not a number's members.
        """
        weights = stacked_parameters(models)
        self._shapes = {name: tuple(weight.shape[1:]) for name, weight in weights.items()}
        self._num_members, self._width, self._example = len(models), width, example
        self._members = torch.arange(-(-len(models) // width) * width)
        self._members = self._members.clamp(max=len(models) - 1).view(-1, width)
        self._is_sgd = configs[0].optimiser == "sgd"
        self._parts = ("model", *MOMENTS[configs[0].optimiser])
        rows = self._in_lanes(list(weights.values()))
        blocks, size, _ = rows.shape
        order = (width, size) if lanes_first else (size, width)
        self._numbers = rows.new_zeros(blocks, len(self._parts), *order)
        if lanes_first:
            self._numbers = self._numbers.mT
        self._numbers[:, 0] = rows
        buffers = [*(different or {}).values(), rows.new_zeros(len(models), 0)]
        self._buffers = self._in_lanes([buffer.to(rows.dtype) for buffer in buffers])
        self._decay = self._numbers_of(configs, "weight_decay").to(rows.device)
        self._clip = self._numbers_of(configs, "clip").to(rows.device)
        self._updates = torch.zeros_like(self._decay)
        self._is_alive = torch.ones_like(self._decay, dtype=torch.bool)
        self._workers = min(workers or torch.get_num_threads(), blocks)
        self._at_once = 1  # steps until the next question; grows with how quick they are

    def _numbers_of(self, configs: Sequence[TrainConfig], name: str) -> Tensor:
        values = [getattr(config, name) for config in configs]
        return torch.tensor(values, dtype=torch.float64)[self._members]

    @abstractmethod
    def _run(self, block: int, batches: list[Tensor], rates: Tensor) -> tuple[Tensor, Tensor]:
        """Advance one block: losses and norms, (step, lane); batches are (lane, step, …)."""

    def _prepared(self, stacks: list[Tensor]) -> list[Tensor]:
        """Prepare the batches of some steps, (member, step, …), for `_run`."""
        return stacks

    @torch.no_grad()
    def advance(
        self, batches: Sequence[Batches], rates: Tensor, first: int, should_stop: Callable[[], bool]
    ) -> StepResults:
        """Take the steps, in rounds of a few."""
        try:
            stacks = stacked_batches(batches)
            wanted = _shapes_text(self._example or ())
            shapes = _shapes_text([part[0, 0] for part in stacks])
            if self._example is not None and shapes != wanted:
                raise NotExpressible(f"the first of the batches was {wanted}, now {shapes} came")
            stacks = self._prepared(stacks)
        except NotExpressible as reason:
            raise WrongUsage(
                f"the layout {self.name} cannot go on: {reason}. Train with layout=sequential."
            ) from None
        losses, norms = [], []
        done = 0
        while done < len(rates):
            end = min(done + self._at_once, len(rates))
            began = time.perf_counter()
            results = self._round([part[:, done:end] for part in stacks], rates[done:end])
            losses.append(results[0])
            norms.append(results[1])
            self._at_once = max(1, int((end - done) * _SECONDS / (time.perf_counter() - began)))
            done = end
            if should_stop():
                break
        return StepResults(torch.cat(losses), torch.cat(norms))

    def _round(self, batches: list[Tensor], rates: Tensor) -> tuple[Tensor, Tensor]:
        """Advance every block by these steps: losses and norms, (step, member)."""

        def run(block: int) -> tuple[Tensor, Tensor]:
            members = self._members[block]
            with torch.no_grad():
                return self._run(block, [part[members] for part in batches], rates[:, members])

        blocks = range(len(self._members))
        if self._workers == 1:
            results = list(map(run, blocks))
        else:
            before = torch.get_num_threads()
            torch.set_num_threads(1)  # each worker is one thread
            try:
                with ThreadPoolExecutor(self._workers) as pool:
                    results = list(pool.map(run, blocks))
            finally:
                torch.set_num_threads(before)
        losses, norms = zip(*results, strict=True)
        kept = slice(self._num_members)
        return torch.cat(losses, 1)[:, kept], torch.cat(norms, 1)[:, kept]

    def parameters(self) -> dict[str, Tensor]:
        """Return every parameter by name, (member, …)."""
        return views_by_name(self._of_members(self._numbers[:, 0]), self._shapes)

    def state(self) -> dict[str, Tensor]:
        """Return copies of the complete state."""
        kept = torch.contiguous_format
        state = {
            "steps": self._of_members(self._updates).long(),
            "is_alive": self._of_members(self._is_alive).clone(),
        }
        for index, part in enumerate(self._parts):
            rows = self._of_members(self._numbers[:, index])
            for name, tensor in views_by_name(rows, self._shapes).items():
                state[f"{part}.{name}"] = tensor.clone(memory_format=kept)
        return state

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore a state."""
        for index, part in enumerate(self._parts):
            tensors = [state[f"{part}.{name}"] for name in self._shapes]
            self._numbers[:, index] = self._in_lanes(tensors)
        self._updates.copy_(state["steps"][self._members])
        self._is_alive.copy_(state["is_alive"][self._members])

    def _in_lanes(self, tensors: Sequence[Tensor]) -> Tensor:
        """Put tensors (member, …) into lanes, one after the other: (block, number, lane)."""
        rows = torch.cat([tensor.unsqueeze(-1).flatten(1) for tensor in tensors], 1)
        return rows[self._members].mT.contiguous()

    def _of_members(self, lanes: Tensor) -> Tensor:
        """(block, …, lane) -> (member, …)."""
        return lanes.movedim(-1, 1).flatten(0, 1)[: self._num_members]


class LaneEngine(Protocol):
    """Computes losses and gradients of as many members as there are lanes.

    parameters and gradients: (lane, number); they may be turned views. buffers: those in which
    members differ, (number, lane). All three lie where they are for good.
    """

    parameters: Tensor
    gradients: Tensor
    buffers: Tensor

    def losses(self, batch: Batch) -> Tensor:
        """Compute the losses at the parameters, (lane,), and write the gradients; `batch` is
        (lane, …)."""


class EngineBlocks(Blocks):
    """Blocks whose steps an engine computes in PyTorch; each thread has an engine of its own."""

    def __init__(
        self,
        name: str,
        models: Sequence[nn.Module],
        configs: Sequence[TrainConfig],
        width: int,
        make: Callable[[], LaneEngine],
        **options: Any,
    ) -> None:
        """Begin with the models' weights: see `Blocks`; `make` makes an engine for one block."""
        super().__init__(models, configs, width, **options)
        self.name = name
        self._engines: SimpleQueue[LaneEngine] = SimpleQueue()
        for _ in range(self._workers):
            self._engines.put(make())

    def _run(self, block: int, batches: list[Tensor], rates: Tensor) -> tuple[Tensor, Tensor]:
        engine = self._engines.get()
        try:
            return self._stepped(engine, block, batches, rates)
        finally:
            self._engines.put(engine)

    def _stepped(
        self, engine: LaneEngine, block: int, batches: list[Tensor], rates: Tensor
    ) -> tuple[Tensor, Tensor]:
        parameters, *moments = (number.T for number in self._numbers[block])
        engine.parameters.copy_(parameters)
        engine.buffers.copy_(self._buffers[block])
        updates, is_alive = self._updates[block], self._is_alive[block]
        state = UpdateState(engine.parameters, moments, updates, is_alive)
        rule = UpdateSettings(self._decay[block], self._clip[block])
        good = [is_alive.cpu().clone()]
        losses, norms = [], []
        for index, row in enumerate(rates):
            losses.append(engine.losses(tuple(part[:, index] for part in batches)).clone())
            norms.append(update(state, engine.gradients, losses[-1], row, rule))
            good.append(is_alive.cpu().clone())
        parameters.copy_(engine.parameters)
        was_alive = torch.stack(good[:-1])  # who broke before takes no more steps
        return (
            torch.stack(losses).cpu().where(was_alive, math.nan),
            torch.stack(norms).cpu().where(was_alive, math.nan),
        )


def views_by_name(rows: Tensor, shapes: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Cut rows (member, numbers) into tensors (member, …) by name, as views."""
    sizes = list(map(math.prod, shapes.values()))
    parts = zip(shapes.items(), torch.split(rows, sizes, 1), strict=True)
    return {name: part.view(-1, *shape) for (name, shape), part in parts}


def stacked_batches(batches: Sequence[Batches]) -> list[Tensor]:
    """Stack the members' batches of some steps: (member, step, …) each."""
    whole = [batch for batch in batches if not isinstance(batch, list)]
    shapes = {_shapes_text([part[0] for part in batch]) for batch in whole}
    if len(whole) < len(batches) or len(shapes) > 1:
        shapes_text = "; ".join(sorted(shapes)[:2]) or "from step to step"
        raise NotExpressible(f"the batches differ in shape ({shapes_text})")
    return list(map(torch.stack, zip(*whole, strict=True)))


def _shapes_text(batch: Sequence[Tensor]) -> str:
    return " and ".join(str(tuple(part.shape)) for part in batch)


def different_buffers(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Return the buffers in which members differ, (member, …)."""
    differing = {}
    for name, value in models[0].named_buffers():
        values = [model.get_buffer(name) for model in models]
        if not all(map(value.equal, values)):
            differing[name] = torch.stack(values)
    return differing


def one_dtype(models: Sequence[nn.Module]) -> torch.dtype:
    """Return the dtype of all parameters, which must all be trained by the optimizer alone.

    Raises:
        NotExpressible: they differ in it, some are not trained, or a hook of the user's hangs on
            one.
    """
    dtypes = set()
    for model in models:
        for name, parameter in model.named_parameters():
            dtypes.add(parameter.dtype)
            if not parameter.requires_grad:
                raise NotExpressible(f"the parameter {name} is not trained")
            if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
                raise NotExpressible(f"a hook changes the gradient of the parameter {name}")
    if len(dtypes) != 1:
        dtypes_text = ", ".join(sorted(map(str, dtypes))) or "none"
        raise NotExpressible(f"its parameters have one dtype; got {dtypes_text}")
    return dtypes.pop()
