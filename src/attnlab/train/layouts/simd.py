"""The layout for tiny models: the population innermost, so that one vector instruction serves a
whole row of members.

A step of one member is recorded, turned into C++ in which every number is a vector of W members,
and compiled; blocks of W members are independent, and run side by side on Python's threads (the
compiled code runs without Python's lock).
"""

import ctypes
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage
from attnlab.native import vector_bytes, vectors
from attnlab.parts.attend import trusted_numbers
from attnlab.simd.build import built, source_of
from attnlab.simd.emit import emitted, erfc_series
from attnlab.simd.interpret import Interpreter
from attnlab.simd.rows import by_rows
from attnlab.simd.trace import Traced, traced
from attnlab.train.config import TrainConfig
from attnlab.train.layouts.blocks import Blocks, cut, different_buffers, one_dtype
from attnlab.train.layouts.layout import Batch, Batches, Loss, NotExpressible, Progress, stacked
from attnlab.train.layouts.update import Rule
from attnlab.train.layouts.vmap import Lent, frame_of

WIDTH = 64  # members in a block without a compiler
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
        self._parts = ("model",) if self._is_sgd else ("model", "first", "second")
        different = different_buffers(models)
        self._traced = _traced(models, loss, example, different)
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
        self._state[:, 0] = self._rows_in_simd(list(stacked(models).values()))
        nothing = torch.zeros(self._num_members, 1)  # lest there be no memory to point to
        self._buffers = self._rows_in_simd([*different.values(), nothing]).contiguous()
        rule = Rule.of(configs, torch.device("cpu"))
        self._decay, self._clip = (
            self._in_simd(each).contiguous() for each in (rule.decay, rule.clip)
        )
        self._updates = torch.zeros(blocks, width, dtype=torch.float64)
        # All bits of a lane that is alive are set.
        alive_as = torch.int32 if self._real.itemsize == 4 else torch.int64
        self._alive = torch.full((blocks, width), -1, dtype=alive_as)
        memory = (self._state, self._buffers, self._decay, self._clip, self._updates, self._alive)
        self._blocks = []
        for block in range(blocks):
            pointers = [each[block].data_ptr() for each in memory]
            self._blocks.append(_Block(*pointers, int(self._is_sgd)))

    def _rows_in_simd(self, tensors: Sequence[Tensor]) -> Tensor:
        """Put tensors (member, …) into lanes, one after the other: (block, n, lane)."""
        rows = [each.reshape(self._num_members, -1).to(self._real) for each in tensors]
        return self._in_simd(torch.cat(rows, 1))

    def _in_simd(self, x: Tensor) -> Tensor:
        """(member, n) -> (block, n, lane); lanes that are left over repeat the last member."""
        missing = self._num_blocks * self._width - len(x)
        x = torch.cat([x, x[-1:].expand(missing, *x.shape[1:])])
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
        losses, norms = (self._from_simd(each[:, :done]).T for each in (losses, norms))
        return Progress(losses.contiguous(), norms.contiguous())

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
        if not self._traced.batch.size:
            return torch.zeros(self._num_blocks, 1, 0, self._width, dtype=self._real)
        parts = []
        for place, like in enumerate(self._example):
            own = []
            for each in batches:
                if isinstance(each, list) or each[place].shape[1:] != like.shape:
                    raise NotExpressible("the batches differ in shape")
                own.append(each[place])
            parts.append(self._as_real(torch.stack(own).flatten(2)))
        return self._in_simd(torch.cat(parts, 2)).contiguous()

    def _as_real(self, part: Tensor) -> Tensor:
        if not part.is_floating_point() and part.dtype != torch.bool and part.numel():
            largest = max(abs(int(bound)) for bound in part.aminmax())
            if largest > 2 / torch.finfo(self._real).eps:
                raise NotExpressible(f"a batch holds the whole number {largest}")
        return part.to(self._real)

    def parameters(self) -> dict[str, Tensor]:
        """Return every parameter by name, (member, …)."""
        return cut(self._from_simd(self._state[:, 0]), self._shapes)

    def state(self) -> dict[str, Tensor]:
        """Return copies of all that the next step depends on."""
        found = {}
        for index, part in enumerate(self._parts):
            for name, each in cut(self._from_simd(self._state[:, index]), self._shapes).items():
                found[f"{part}.{name}"] = each.clone()
        found["steps"] = self._from_simd(self._updates).long()
        found["is_alive"] = self._from_simd(self._alive) != 0
        return found

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from a state."""
        for index, part in enumerate(self._parts):
            own = [state[f"{part}.{name}"] for name in self._shapes]
            self._state[:, index] = self._rows_in_simd(own)
        self._alive.copy_(-self._in_simd(state["is_alive"].to(self._alive.dtype)))
        self._updates.copy_(self._in_simd(state["steps"].double()))


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


def _traced(
    models: Sequence[nn.Module], loss: Loss, example: Batch, different: dict[str, Tensor]
) -> Traced:
    lent = Lent(frame_of(models[0]), loss)
    parameters = {name: value.detach() for name, value in models[0].named_parameters()}
    own = {name: each[0] for name, each in different.items()}
    with trusted_numbers():
        return traced(lent.to_member, parameters, own, example)


def interpreted(
    models: Sequence[nn.Module],
    configs: Sequence[TrainConfig],
    loss: Loss,
    example: Batch,
    *,
    workers: int = 1,
) -> Blocks:
    """Make the layout `simd` without a compiler.

    Raises:
        NotExpressible: something stands against it; the message says what.
    """
    dtype, different = one_dtype(models), different_buffers(models)
    recorded = _traced(models, loss, example, different)
    width = min(len(models), WIDTH)

    def make() -> Interpreter:
        return Interpreter(recorded, different, example, width, dtype)

    return Blocks("simd", models, configs, width, make, example=example, workers=workers)
