"""The layout for tiny models: the population innermost, so that one vector instruction serves a
whole row of members.

A step of one member is recorded, turned into C++ in which every number is a vector of W members,
and compiled; blocks of W members run side by side on Python's threads (the compiled code runs
without Python's lock).
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage
from attnlab.native import vector_bytes, vectors
from attnlab.simd.build import compiled_library, source_of
from attnlab.simd.emit import emitted, erfc_series
from attnlab.simd.interpret import Interpreter
from attnlab.simd.rows import by_rows
from attnlab.simd.trace import TracedStep, traced
from attnlab.train.config import TrainConfig
from attnlab.train.layouts.blocks import Blocks, EngineBlocks, different_buffers, one_dtype
from attnlab.train.layouts.layout import Batch, Loss, NotExpressible
from attnlab.train.layouts.vmap import MemberModel, frame_of

WIDTH = 64  # members in a block without a compiler
_MOST_LINES = 60_000


class Simd(Blocks):
    """Members side by side in the lanes of vectors, a step of them compiled."""

    is_compiled = True

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
        self._real = _real(models)
        vector = vector_bytes()
        if vector == 64 and len(models) * self._real.itemsize <= 32:
            vector = 32  # half a vector holds all, and costs about half
        different = different_buffers(models)
        recorded = _traced(models, loss, example, different)
        super().__init__(
            models,
            configs,
            vector // self._real.itemsize,
            different=different,
            example=example,
            workers=workers,
        )
        self._steps, scratch = _compiled(recorded, self._real, vector)
        self._scratch = (scratch + recorded.parameters.size) * self._width
        self._blocks = list(map(self._block, range(len(self._members))))

    def _block(self, block: int) -> "_Block":
        numbers = (self._numbers, self._buffers, self._decay, self._clip, self._updates)
        pointers = [_pointer(tensor[block]) for tensor in (*numbers, self._is_alive)]
        return _Block(*pointers, int(self._is_sgd))

    def _prepared(self, stacks: list[Tensor]) -> list[Tensor]:
        """Make all numbers of the members' batches real, one after the other: (member, steps,
        elements)."""
        parts = []
        for part in stacks:
            if not part.is_floating_point() and part.dtype != torch.bool and part.numel():
                largest = max(abs(int(bound)) for bound in part.aminmax())
                if largest > 2 / torch.finfo(self._real).eps:
                    raise NotExpressible(f"a batch holds the whole number {largest}")
            parts.append(part.flatten(2).to(self._real))
        if not parts:
            return []
        return [torch.cat(parts, 2)]

    def _run(self, block: int, batches: list[Tensor], rates: Tensor) -> tuple[Tensor, Tensor]:
        packed = [part.movedim(0, -1).contiguous() for part in batches] or [torch.zeros(1)]
        rates = rates.double().contiguous()
        losses = torch.empty(rates.shape, dtype=self._real)
        norms = torch.empty_like(losses)
        scratch = torch.empty(self._scratch, dtype=self._real)
        arguments = map(_pointer, (packed[0], rates, losses, norms, scratch))
        count = ctypes.c_int64(len(rates))
        if self._steps(ctypes.byref(self._blocks[block]), *arguments, count):
            raise WrongUsage(
                "an id of a batch is not from 0 to below the size of what is looked up."
            )
        return losses, norms


def _pointer(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


class _Block(ctypes.Structure):
    """One block's memory, as `step.h` declares it."""

    _fields_ = [
        ("state", ctypes.c_void_p),
        ("members", ctypes.c_void_p),
        ("decay", ctypes.c_void_p),
        ("clip", ctypes.c_void_p),
        ("updates", ctypes.c_void_p),
        ("alive", ctypes.c_void_p),
        ("is_sgd", ctypes.c_int64),
    ]


def _compiled(recorded: TracedStep, real: torch.dtype, vector: int) -> tuple[Any, int]:
    """Compile the steps, for vectors of so many bytes; return them, and how many elements of
    scratch memory they need."""
    function, scratch = emitted(by_rows(recorded.program.stages))
    num_lines = function.count("\n")
    if num_lines > _MOST_LINES:
        raise NotExpressible(f"a step is {num_lines:,} lines of C++, too many to compile")
    is_double = real == torch.float64
    erfc = erfc_series(30 if is_double else 12)
    terms = ", ".join(f"R({coefficient!r})" for coefficient in erfc)
    head = [
        vectors(is_double=is_double, width=vector),
        f"#define SIZE {recorded.parameters.size}",
        f"#define BATCH {recorded.batch.size}",
        f"#define SCRATCH {scratch}",
        f"#define ERFC_TERMS {len(erfc)}",
        f"static const R ERFC[] = {{{terms}}};",
    ]
    steps = compiled_library(source_of("\n".join(head), function)).steps
    steps.restype = ctypes.c_int64
    return steps, scratch


def _real(models: Sequence[nn.Module]) -> torch.dtype:
    real, device = one_dtype(models), next(models[0].parameters()).device.type
    if real not in (torch.float32, torch.float64) or device != "cpu":
        raise NotExpressible(
            f"it holds parameters of float32 or float64 on the CPU; got {real} on {device}"
        )
    return real


def _traced(
    models: Sequence[nn.Module], loss: Loss, example: Batch, different: dict[str, Tensor]
) -> TracedStep:
    lent = MemberModel(frame_of(models[0]), loss)
    parameters = {name: value.detach() for name, value in models[0].named_parameters()}
    member_buffers = {name: values[0] for name, values in different.items()}
    return traced(lent.to_member, parameters, member_buffers, example)


def interpreted(
    models: Sequence[nn.Module],
    configs: Sequence[TrainConfig],
    loss: Loss,
    example: Batch,
    *,
    workers: int | None = None,
) -> EngineBlocks:
    """Make the layout `simd` without a compiler.

    Raises:
        NotExpressible: something stands against it; the message says what.
    """
    dtype, different = one_dtype(models), different_buffers(models)
    recorded = _traced(models, loss, example, different)
    width = min(len(models), WIDTH)
    return EngineBlocks(
        "simd",
        models,
        configs,
        width,
        lambda: Interpreter(recorded, example, width, dtype),
        different=different,
        example=example,
        workers=workers,
    )
