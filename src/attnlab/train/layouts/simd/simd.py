"""The layout for tiny models: the population innermost, so that one vector instruction serves a
whole row of members.

A step of one member is recorded, turned into C++ in which every number is a vector of W members,
and compiled; blocks of W members are independent, and run side by side on Python's threads (the
compiled code runs without Python's lock).
"""

import ctypes
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage
from attnlab.native import vector_bytes, vectors
from attnlab.train.config import TrainConfig
from attnlab.train.layouts.blocks import one_dtype
from attnlab.train.layouts.layout import Batch, Batches, Loss, NotExpressible, Progress, stacked
from attnlab.train.layouts.simd.build import built, source_of
from attnlab.train.layouts.simd.emit import emitted, erfc_series
from attnlab.train.layouts.simd.rows import by_rows
from attnlab.train.layouts.simd.trace import traced

__all__ = ["Simd"]

_MOST_LINES = 60_000
_SECONDS = 0.1  # about so long between two questions whether to stop


class Simd:
    """Members side by side in the lanes of vectors."""

    name, is_compiled = "simd", True

    def __init__(
        self,
        models: Sequence[nn.Module],
        configs: Sequence[TrainConfig],
        loss: Loss,
        example: Batch,
        *,
        workers: int | None = None,
    ) -> None:
        """Record, compile, and begin with the models' weights; `workers` threads, or as many as
        torch has.

        Raises:
            NotExpressible: something stands against it; the message says what.
        """
        self._real, self._workers = _real(models), workers
        self._bytes = vector_bytes()
        if self._bytes == 64 and len(models) * self._real.itemsize <= 32:
            self._bytes = 32  # half a vector holds all, and costs about half
        self._width = self._bytes // self._real.itemsize
        self._num_members, self._num_blocks = len(models), -(-len(models) // self._width)
        self._shapes = {name: tuple(p.shape) for name, p in models[0].named_parameters()}
        self._is_sgd = configs[0].optimiser == "sgd"
        different = _different_buffers(models)
        self._traced = traced(
            models[0], loss, example, {name: each[0] for name, each in different.items()}
        )
        self._example = example
        self._compile()
        self._make_state(models, configs, different)

    def _compile(self) -> None:
        function, scratch = emitted(by_rows(self._traced.program.stages))
        if function.count("\n") > _MOST_LINES:
            raise NotExpressible(
                f"a step is {function.count(chr(10)):,} lines of C++, too many to compile"
            )
        size, batch = self._traced.parameters.size, self._traced.batch.size
        is_double = self._real == torch.float64
        erfc = erfc_series(30 if is_double else 14)
        numbers = {"SIZE": size, "BATCH": batch, "SCRATCH": scratch, "ERFC_TERMS": len(erfc)}
        defined = [f"#define {name} {value}" for name, value in numbers.items()]
        table = (
            f"static const {'double' if is_double else 'float'} ERFC[] = "
            f"{{{', '.join(map(repr, erfc))}}};"
        )
        head = vectors(is_double=is_double, width=self._bytes)
        library = built(source_of("\n".join([head, *defined, table]), function))
        self._steps = library.steps
        self._steps.restype = ctypes.c_int64
        self._scratch = (scratch + size) * self._width
        self._at_once = 1  # steps in a call; grows with how quick they are

    def _make_state(
        self,
        models: Sequence[nn.Module],
        configs: Sequence[TrainConfig],
        different: dict[str, Tensor],
    ) -> None:
        blocks, width, size = self._num_blocks, self._width, self._traced.parameters.size
        self._state = torch.zeros(blocks, 3, size, width, dtype=self._real)
        flat = [each.reshape(self._num_members, -1) for each in stacked(models).values()]
        self._part(0).copy_(self._in_simd(torch.cat(flat, 1).to(self._real)))
        members = [
            each.reshape(self._num_members, -1).to(self._real) for each in different.values()
        ]
        nothing = torch.zeros(self._num_members, 1, dtype=self._real)
        self._buffers = self._in_simd(torch.cat([*members, nothing], 1)).contiguous()
        numbers = torch.tensor(
            [[config.weight_decay, config.clip] for config in configs], dtype=torch.float64
        )
        self._decay, self._clip = (each.contiguous() for each in self._in_simd(numbers).unbind(1))
        self._updates = torch.zeros(blocks, width, dtype=torch.float64)
        self._alive = torch.full(
            (blocks, width), -1, dtype=torch.int32 if self._real.itemsize == 4 else torch.int64
        )
        memory = (self._state, self._buffers, self._decay, self._clip, self._updates, self._alive)
        self._blocks = [
            _Block(*(t[b].data_ptr() for t in memory), int(self._is_sgd)) for b in range(blocks)
        ]

    def _part(self, index: int) -> Tensor:
        return self._state[:, index]

    def _in_simd(self, x: Tensor) -> Tensor:
        """(member, n) -> (block, n, lane); lanes that are left over repeat the last member."""
        missing = self._num_blocks * self._width - len(x)
        x = torch.cat([x, x[-1:].expand(missing, *x.shape[1:])]) if missing else x
        return x.reshape(self._num_blocks, self._width, *x.shape[1:]).movedim(1, -1)

    def _from_simd(self, x: Tensor) -> Tensor:
        """(block, …, lane) -> (member, …)."""
        return x.movedim(-1, 1).flatten(0, 1)[: self._num_members]

    def advance(
        self, batches: Sequence[Batches], rates: Tensor, first: int, should_stop: Callable[[], bool]
    ) -> Progress:
        """Take the steps, some of them in each call of the compiled code."""
        packed = self._packed(batches)
        given = self._in_simd(rates.double().T).contiguous()
        count = len(rates)
        losses = torch.empty(self._num_blocks, count, self._width, dtype=self._real)
        norms = torch.empty_like(losses)
        done = 0
        while done < count:
            now = min(self._at_once, count - done)
            start = time.perf_counter()
            self._run([t[:, done : done + now] for t in (packed, given, losses, norms)], now)
            self._at_once = max(1, int(now * _SECONDS / (time.perf_counter() - start)))
            done += now
            if should_stop():
                break
        return Progress(*(self._from_simd(t[:, :done]).T.contiguous() for t in (losses, norms)))

    def _run(self, tensors: Sequence[Tensor], count: int) -> None:
        def block(index: int) -> int:
            packed, rates, losses, norms = (t[index].data_ptr() for t in tensors)
            scratch = torch.empty(self._scratch, dtype=self._real)
            pointers = (packed, rates, losses, norms, scratch.data_ptr())
            arguments = map(ctypes.c_void_p, pointers)
            return int(
                self._steps(ctypes.byref(self._blocks[index]), *arguments, ctypes.c_int64(count))
            )

        workers = min(self._workers or torch.get_num_threads(), self._num_blocks)
        if workers == 1:
            wrong = sum(map(block, range(self._num_blocks)))
        else:
            with ThreadPoolExecutor(workers) as pool:
                wrong = sum(pool.map(block, range(self._num_blocks)))
        if wrong:
            raise WrongUsage(
                "an id of a batch is not from 0 to below the size of what is looked up."
            )

    def _packed(self, batches: Sequence[Batches]) -> Tensor:
        """Put the members' batches into lanes: (block, steps, elements, lane)."""
        parts = []
        for place, like in enumerate(self._example):
            own = []
            for each in batches:
                if isinstance(each, list) or each[place].shape[1:] != like.shape:
                    raise NotExpressible("the batches differ in shape")
                own.append(each[place])
            part = torch.stack(own).flatten(2)
            if not part.is_floating_point() and part.dtype != torch.bool and part.numel():
                largest = max(abs(int(bound)) for bound in part.aminmax())
                if largest > (2**24 if self._real == torch.float32 else 2**53):
                    raise NotExpressible(f"a batch holds the whole number {largest}")
            parts.append(part.to(self._real))
        if not parts or not self._traced.batch.size:
            return torch.zeros(self._num_blocks, 1, 0, self._width, dtype=self._real)
        return self._in_simd(torch.cat(parts, 2)).contiguous()

    def parameters(self) -> dict[str, Tensor]:
        """Return every parameter by name, (member, …)."""
        return self._named(0)

    def _named(self, index: int) -> dict[str, Tensor]:
        flat = self._from_simd(self._part(index))
        found = {}
        for name, shape in self._shapes.items():
            start = self._traced.starts[name]
            found[name] = flat[:, start : start + math.prod(shape)].reshape(
                self._num_members, *shape
            )
        return found

    def state(self) -> dict[str, Tensor]:
        """Return copies of all that the next step depends on."""
        parts = ("model",) if self._is_sgd else ("model", "first", "second")
        found = {
            f"{part}.{name}": t.clone()
            for i, part in enumerate(parts)
            for name, t in self._named(i).items()
        }
        steps, alive = (
            each.flatten()[: self._num_members] for each in (self._updates, self._alive)
        )
        return {**found, "steps": steps.long(), "is_alive": alive != 0}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from a state."""
        for index, part in enumerate(("model",) if self._is_sgd else ("model", "first", "second")):
            flat = [
                state[f"{part}.{name}"].reshape(self._num_members, -1).to(self._real)
                for name in self._shapes
            ]
            self._part(index).copy_(self._in_simd(torch.cat(flat, 1)))
        self._alive.copy_(
            -self._in_simd(state["is_alive"].to(self._alive.dtype).unsqueeze(1))[:, 0]
        )
        self._updates.copy_(self._in_simd(state["steps"].double().unsqueeze(1))[:, 0])


class _Block(ctypes.Structure):
    """One block's memory, as `step.h` declares it."""

    _fields_ = [
        *(
            (name, ctypes.c_void_p)
            for name in ("state", "members", "decay", "clip", "updates", "alive")
        ),
        ("is_sgd", ctypes.c_int64),
    ]


def _real(models: Sequence[nn.Module]) -> torch.dtype:
    found = {(p.dtype, p.device.type) for model in models for p in model.parameters()}
    if len(found) != 1 or next(iter(found)) not in ((torch.float32, "cpu"), (torch.float64, "cpu")):
        kinds = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in found)) or "none"
        raise NotExpressible(f"it holds parameters of float32 or float64 on the CPU; got {kinds}")
    return one_dtype(models)


def _different_buffers(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Return the buffers in which members differ, stacked."""
    each = [dict(model.named_buffers()) for model in models]
    found: dict[str, Any] = {}
    for name, value in each[0].items():
        if any(not torch.equal(other[name], value) for other in each[1:]):
            found[name] = torch.stack([other[name] for other in each])
    return found
