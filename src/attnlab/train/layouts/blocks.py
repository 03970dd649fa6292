"""Members in blocks: an engine advances one block some steps while its numbers are in the cache,
then the next.

Each thread has an engine of its own. All numbers of a member lie in one row, so clipping and the
optimiser are a few operations for the whole block, however many parameters there are.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Protocol

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage
from attnlab.train.config import TrainConfig
from attnlab.train.layouts.layout import Batch, Batches, NotExpressible, Progress, stacked
from attnlab.train.layouts.update import Rule, State, update

_SECONDS = 0.5  # about so long between two questions whether to stop


class Engine(Protocol):
    """Computes losses and gradients of as many members as `parameters` has rows.

    parameters and gradients: (member, numbers), the parameters of a member one after the other;
    they may be turned views. buffers: those in which members differ, by name, (member, …). All
    three lie where they are for good.
    """

    parameters: Tensor
    gradients: Tensor
    buffers: dict[str, Tensor]

    def losses(self, batch: Batch) -> Tensor:
        """Compute the losses at the parameters, (member,), and write the gradients; `batch` is
        (member, …)."""
        ...


class Blocks:
    """Members in blocks of the engine's size; the last block is filled up with copies of the last
    member."""

    is_compiled = False

    def __init__(
        self,
        name: str,
        models: Sequence[nn.Module],
        configs: Sequence[TrainConfig],
        width: int,
        make: Callable[[], Engine],
        *,
        example: Batch | None = None,
        workers: int = 1,
    ) -> None:
        """Begin with the models' weights.

        Args:
            name: the layout's.
            models: the members, untrained; `configs` likewise.
            width: members in a block.
            make: makes an engine for so many.
            example: the batch of one step of one member, if an engine takes no other shapes.
            workers: threads that blocks are shared out among.
        """
        self.name = name
        own = stacked(models)
        self._shapes = {name: tuple(each.shape[1:]) for name, each in own.items()}
        rows = torch.cat([each.flatten(1) for each in own.values()], 1)
        self._rule = Rule.of(configs, rows.device)
        self._state = State.fresh(rows, is_sgd=self._rule.is_sgd)
        self._buffers = different_buffers(models)
        self._members = []
        for start in range(0, len(models), width):
            block = torch.arange(start, start + width)
            self._members.append(block.clamp(max=len(models) - 1))
        self._workers = min(workers, len(self._members))
        self._engines: SimpleQueue[Engine] = SimpleQueue()
        for _ in range(self._workers):
            self._engines.put(make())
        self._example = example
        self._at_once = 1  # steps until the next question; grows with how quick they are

    @torch.no_grad()
    def advance(
        self, batches: Sequence[Batches], rates: Tensor, first: int, should_stop: Callable[[], bool]
    ) -> Progress:
        """Take the steps, in rounds of a few."""
        stacks = self._stacked(batches)
        losses, norms = [], []
        done = 0
        while done < len(rates):
            end = min(done + self._at_once, len(rates))
            began = time.perf_counter()
            found = self._round([part[:, done:end] for part in stacks], rates[done:end])
            losses.append(found[0])
            norms.append(found[1])
            self._at_once = max(1, int((end - done) * _SECONDS / (time.perf_counter() - began)))
            done = end
            if should_stop():
                break
        return Progress(torch.cat(losses), torch.cat(norms))

    def _stacked(self, batches: Sequence[Batches]) -> list[Tensor]:
        try:
            stacks = stacked_batches(batches)
        except NotExpressible as reason:
            raise WrongUsage(
                f"the layout {self.name} cannot go on: {reason}. Train with layout=sequential."
            ) from None
        if self._example is not None:
            wanted = _shapes_text(self._example)
            found = _shapes_text([part[0, 0] for part in stacks])
            if found != wanted:
                raise WrongUsage(
                    f"the layout {self.name} takes batches of one shape: the first was {wanted}, "
                    f"now {found} came. Train with layout=sequential."
                )
        return stacks

    def _round(self, batches: list[Tensor], rates: Tensor) -> tuple[Tensor, Tensor]:
        """Advance every block by these steps: losses and norms, (steps, member)."""

        def run(members: Tensor) -> tuple[Tensor, Tensor]:
            own = [part[members] for part in batches]
            engine = self._engines.get()
            try:
                return self._run(engine, members, own, rates[:, members])
            finally:
                self._engines.put(engine)

        if self._workers == 1:
            found = list(map(run, self._members))
        else:
            before = torch.get_num_threads()
            torch.set_num_threads(1)  # each worker is one thread
            try:
                with ThreadPoolExecutor(self._workers) as pool:
                    found = list(pool.map(run, self._members))
            finally:
                torch.set_num_threads(before)
        losses, norms = (torch.cat(each, 1) for each in zip(*found, strict=True))
        count = rates.shape[1]
        return losses[:, :count], norms[:, :count]

    @torch.no_grad()
    def _run(
        self, engine: Engine, members: Tensor, batches: list[Tensor], rates: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Advance one block in an engine: losses and norms, (step, member)."""
        engine.parameters.copy_(self._state.parameters[members])
        for name, value in self._buffers.items():
            engine.buffers[name].copy_(value[members])
        state, rule = self._state.rows(members, engine.parameters), self._rule.rows(members)
        was_alive = state.is_alive.cpu().clone()
        losses, norms = [], []
        for index, row in enumerate(rates):
            losses.append(engine.losses(tuple(part[:, index] for part in batches)).clone())
            norms.append(update(state, engine.gradients, losses[-1], row, rule))
        first, last = int(members[0]), int(members[-1]) + 1
        for own, its in zip(self._state.tensors(), state.tensors(), strict=True):
            own[first:last] = its[: last - first]
        return _until_broken(was_alive, torch.stack(losses).cpu(), torch.stack(norms).cpu())

    def parameters(self) -> dict[str, Tensor]:
        """Return every parameter by name, (member, …)."""
        return cut(self._state.parameters, self._shapes)

    def _parts(self) -> dict[str, Tensor]:
        state = self._state
        found = {"steps": state.steps, "is_alive": state.is_alive}
        moments = {} if self._rule.is_sgd else {"first": state.first, "second": state.second}
        for part, rows in {"model": state.parameters, **moments}.items():
            for name, each in cut(rows, self._shapes).items():
                found[f"{part}.{name}"] = each
        return found

    def state(self) -> dict[str, Tensor]:
        """Return copies of the complete state."""
        kept = torch.contiguous_format
        return {name: each.clone(memory_format=kept) for name, each in self._parts().items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore a state."""
        for name, each in self._parts().items():
            each.copy_(state[name])


def _until_broken(was_alive: Tensor, losses: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
    """Put NaN after a member's first number that is not finite: it takes no more steps."""
    good = torch.isfinite(losses) & torch.isfinite(norms)
    before = torch.cat([was_alive.unsqueeze(0), good[:-1]])
    is_over = before.logical_not().cumsum(0) > 0
    return losses.masked_fill(is_over, math.nan), norms.masked_fill(is_over, math.nan)


def cut(rows: Tensor, shapes: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Cut rows (member, numbers) into tensors (member, …) by name, as views."""
    found, start = {}, 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        found[name] = rows[:, start : start + size].view(-1, *shape)
        start += size
    return found


def stacked_batches(batches: Sequence[Batches]) -> list[Tensor]:
    """Stack the members' batches of some steps: (member, step, …) each."""
    whole = [each for each in batches if not isinstance(each, list)]
    shapes = {_shapes_text([part[0] for part in each]) for each in whole}
    if len(whole) < len(batches) or len(shapes) > 1:
        found = "; ".join(sorted(shapes)[:2]) or "from step to step"
        raise NotExpressible(f"the batches differ in shape ({found})")
    return [torch.stack(parts) for parts in zip(*whole, strict=True)]


def _shapes_text(batch: Sequence[Tensor]) -> str:
    return " and ".join(str(tuple(part.shape)) for part in batch)


def different_buffers(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Return the buffers in which members differ, (member, …)."""
    found = {}
    for name, value in models[0].named_buffers():
        own = [model.get_buffer(name) for model in models]
        if not all(torch.equal(value, other) for other in own):
            found[name] = torch.stack(own)
    return found


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
        found = ", ".join(sorted(map(str, dtypes))) or "none"
        raise NotExpressible(f"its parameters have one dtype; got {found}")
    return dtypes.pop()
