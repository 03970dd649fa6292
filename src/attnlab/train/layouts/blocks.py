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

__all__ = ["Blocks", "Engine", "cut", "different_buffers", "one_dtype", "stacked_batches"]

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

    def __init__(
        self,
        name: str,
        models: Sequence[nn.Module],
        configs: Sequence[TrainConfig],
        width: int,
        make: Callable[[], Engine],
        *,
        example: Batch | None = None,
        is_compiled: bool = False,
        workers: int | None = None,
    ) -> None:
        """Begin with the models' weights.

        Args:
            name: the layout's.
            models: the members, untrained; `configs` likewise.
            width: members in a block.
            make: makes an engine for so many.
            example: the batch of one step of one member, if an engine takes no other shapes.
            is_compiled: whether the engine's steps are compiled code.
            workers: threads that blocks are shared out among; None for as many as torch has.
        """
        self.name, self.is_compiled = name, is_compiled
        own = stacked(models)
        self._shapes = {name: tuple(each.shape[1:]) for name, each in own.items()}
        rows = torch.cat([each.reshape(len(models), -1) for each in own.values()], 1)
        self._rule = Rule.of(configs, rows.device)
        self._state = State.fresh(rows, is_sgd=self._rule.is_sgd)
        self._buffers = different_buffers(models)
        starts = range(0, len(models), width)
        self._members = [
            torch.arange(start, start + width).clamp(max=len(models) - 1) for start in starts
        ]
        self._workers = (
            min(workers or torch.get_num_threads(), len(starts)) if rows.device.type == "cpu" else 1
        )
        self._engines: SimpleQueue[Engine] = SimpleQueue()
        for _ in range(self._workers):
            self._engines.put(make())
        self._shapes_of_batch = None if example is None else [part.shape for part in example]
        self._at_once = 1  # steps until the next question; grows with how quick they are

    @torch.no_grad()
    def advance(
        self, batches: Sequence[Batches], rates: Tensor, first: int, should_stop: Callable[[], bool]
    ) -> Progress:
        """Take the steps, in rounds of a few."""
        found, done, stacks = [], 0, self._stacked(batches)
        while done < len(rates):
            now = min(self._at_once, len(rates) - done)
            began = time.perf_counter()
            found.append(
                self._round(
                    [part[:, done : done + now] for part in stacks], rates[done : done + now]
                )
            )
            self._at_once = max(1, int(now * _SECONDS / (time.perf_counter() - began)))
            done += now
            if should_stop():
                break
        return Progress(*(torch.cat(each) for each in zip(*found, strict=True)))

    def _stacked(self, batches: Sequence[Batches]) -> list[Tensor]:
        try:
            stacks = stacked_batches(batches)
        except NotExpressible as reason:
            raise WrongUsage(
                f"the layout {self.name} cannot go on: {reason}. Train with layout=sequential."
            ) from None
        shapes, wanted = [part.shape[2:] for part in stacks], self._shapes_of_batch
        if wanted is not None and shapes != wanted:
            texts = [" and ".join(str(tuple(shape)) for shape in each) for each in (wanted, shapes)]
            raise WrongUsage(
                f"the layout {self.name} takes batches of one shape: the first was {texts[0]}, "
                f"now {texts[1]} came. Train with layout=sequential."
            )
        return stacks

    def _round(self, batches: list[Tensor], rates: Tensor) -> tuple[Tensor, Tensor]:
        """Advance every block by these steps: losses and norms, (steps, member)."""

        def run(members: Tensor) -> tuple[Tensor, Tensor]:
            engine = self._engines.get()
            try:
                return self._run(
                    engine, members, [part[members] for part in batches], rates[:, members]
                )
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
        losses, norms = (
            torch.cat(each, 1)[:, : rates.shape[1]] for each in zip(*found, strict=True)
        )
        return losses, norms

    @torch.no_grad()
    def _run(
        self, engine: Engine, members: Tensor, batches: list[Tensor], rates: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Advance one block in an engine: losses and norms, (step, member)."""
        first, last = int(members[0]), int(members[-1]) + 1
        is_turned = (
            engine.parameters.stride(0) == 1
        )  # members innermost: the moments shall lie likewise
        if is_turned or last - first < len(members):
            state = self._state.rows(members)
        else:  # a view will do
            state = self._state.rows(slice(first, last))
        engine.parameters.copy_(state.parameters)
        for name, value in self._buffers.items():
            engine.buffers[name].copy_(value[members])
        if is_turned:
            state = state._replace(
                first=state.first.T.contiguous().T, second=state.second.T.contiguous().T
            )
        state, rule = state._replace(parameters=engine.parameters), self._rule.rows(members)
        was_alive = state.is_alive.cpu().clone()
        losses, norms = [], []
        for index, row in enumerate(rates):
            losses.append(engine.losses(tuple(part[:, index] for part in batches)).clone())
            norms.append(update(state, engine.gradients, losses[-1], row, rule))
        for own, its in zip(self._state, state, strict=True):
            if own[first:last].data_ptr() != its.data_ptr():
                own[first:last] = its[: last - first]
        return _until_broken(was_alive, torch.stack(losses).cpu(), torch.stack(norms).cpu())

    def _named(self, rows: Tensor) -> dict[str, Tensor]:
        return cut(rows, self._shapes) if rows.shape[1] else {}

    def parameters(self) -> dict[str, Tensor]:
        """Return every parameter by name, (member, …)."""
        return self._named(self._state.parameters)

    def _parts(self) -> dict[str, Tensor]:
        state = self._state
        rows = (("model", state.parameters), ("first", state.first), ("second", state.second))
        named = {
            f"{part}.{name}": each for part, own in rows for name, each in self._named(own).items()
        }
        return {**named, "steps": state.steps, "is_alive": state.is_alive}

    def state(self) -> dict[str, Tensor]:
        """Return copies of the complete state."""
        return {
            name: each.clone(memory_format=torch.contiguous_format)
            for name, each in self._parts().items()
        }

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
    parts = torch.split(rows, [math.prod(shape) for shape in shapes.values()], 1)
    return {
        name: part.view(-1, *shape)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }


def stacked_batches(batches: Sequence[Batches]) -> list[Tensor]:
    """Stack the members' batches of some steps: (member, step, …) each."""
    shapes: set[str] = set()
    whole = [each for each in batches if not isinstance(each, list)]
    for each in whole:
        shapes.add(" and ".join(str(tuple(part.shape[1:])) for part in each))
    if len(whole) < len(batches) or len(shapes) > 1:
        raise NotExpressible(
            f"the batches differ in shape ({'; '.join(sorted(shapes)[:2]) or 'from step to step'})"
        )
    return [torch.stack(parts) for parts in zip(*whole, strict=True)]


def different_buffers(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Return the buffers in which members differ, (member, …)."""
    each = [dict(model.named_buffers()) for model in models]
    differ = [
        name
        for name, value in each[0].items()
        if any(not torch.equal(other[name], value) for other in each[1:])
    ]
    return {name: torch.stack([other[name] for other in each]) for name in differ}


def one_dtype(models: Sequence[nn.Module]) -> torch.dtype:
    """Return the dtype of all parameters, which must all be trained by the optimizer alone.

    Raises:
        NotExpressible: they differ in it, some are not trained, or a hook of the user's hangs on
            one.
    """
    named = [each for model in models for each in model.named_parameters()]
    dtypes = {parameter.dtype for _, parameter in named}
    if len(dtypes) != 1:
        raise NotExpressible(
            f"its parameters have one dtype; got {', '.join(sorted(map(str, dtypes))) or 'none'}"
        )
    frozen = next((name for name, parameter in named if not parameter.requires_grad), None)
    if frozen is not None:
        raise NotExpressible(f"the parameter {frozen} is not trained")
    hooks = ("_backward_hooks", "_post_accumulate_grad_hooks")
    hooked = next(
        (name for name, each in named if any(getattr(each, hook) for hook in hooks)), None
    )
    if hooked is not None:
        raise NotExpressible(f"a hook changes the gradient of the parameter {hooked}")
    return dtypes.pop()
