"""Attention in C++ for float32 on a processor: `softmax(QKᵀ · scale + mask) V`, a summary's
numbers, or both at once.

The scores are never in main memory as a whole, only those of one block of rows for each thread;
threads are as many as PyTorch's own. A row's output is the same to the bit for any number of
threads, and with a summary or without.
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlab.native.compiler import NotCompiled, compiled, vectors

FAR = 2**30
"""Further than any key."""
LOG2_E = 1.4426950408889634
LARGEST_SCORE = 1e30
"""A bound on scores, in units of log 2, below which no product overflows."""

_SOURCES = ("scores.h", "statistics.h", "attention.cpp")
_PLACED = ("query", "key", "value", "mask", "output")
_POINTERS = ("query", "key", "value", "mask", *(f"{name}_at" for name in _PLACED))
_NUMBERS = (
    "heads", "queries", "keys", "width", "value_width", "query_step", "key_step", "value_step",
    "output_step", "mask_query_step", "mask_key_step", "mask_kind", "left", "right", "mask_offset",
    "offset", "query_cell", "key_cell", "query_cells", "key_cells", "top", "threads",
)  # fmt: skip
_TOLD = (
    "entropy", "largest", "distance", "spread", "first", "own", "previous", "log_sum",
    "top_weights", "map_mean", "map_max", "top_keys",
)  # fmt: skip


class _Work(ctypes.Structure):
    """What `scores.h` calls Work; the same names, in the same order."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in _POINTERS),
        *((name, ctypes.c_int64) for name in _NUMBERS),
        ("factor", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("output", *_TOLD)),
    )


@dataclass(frozen=True)
class SummaryRequest:
    """The tensors that a summary wants filled in.

    cells: queries and keys of a cell of the map · top: how many keys are named · offset: the first
    query's position
    """

    cells: tuple[int, int]
    top: int
    offset: int
    outputs: dict[str, Tensor]

    @classmethod
    def room(
        cls,
        shape: tuple[int, ...],
        lengths: tuple[int, int],
        cells: tuple[int, int],
        top: int,
        offset: int,
    ) -> "SummaryRequest":
        """Make room for a summary of heads of any shape, of so many queries and keys."""
        sizes = [-(-length // cell) for length, cell in zip(lengths, cells, strict=True)]
        outputs = {name: torch.empty(*shape, lengths[0], dtype=torch.float32) for name in _TOLD[:8]}
        outputs["top_weights"] = torch.empty(*shape, lengths[0], top, dtype=torch.float32)
        for name in ("map_mean", "map_max"):
            outputs[name] = torch.empty(*shape, *sizes, dtype=torch.float32)
        outputs["top_keys"] = torch.empty(*shape, lengths[0], top, dtype=torch.int64)
        return cls(cells, top, offset, outputs)

    def fill_in(self, work: _Work) -> None:
        """Tell the kernel what is wanted, and where it goes."""
        work.top, work.offset = self.top, self.offset
        work.query_cell, work.key_cell = self.cells
        work.query_cells, work.key_cells = self.outputs["map_mean"].shape[-2:]
        for name, tensor in self.outputs.items():
            setattr(work, name, tensor.data_ptr())


def attend_rows(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    *,
    scale: float,
    band: tuple[int, int] = (FAR, FAR),
    value: Tensor | None = None,
    request: SummaryRequest | None = None,
) -> Tensor | None:
    """Compute attention over values, if given, and fill in the numbers that a summary wants.

    Args:
        query: (..., query, width), float32; leading axes broadcast.
        key: (..., key, width)
        mask: (..., query, key), boolean (True = may attend) or float32, added to the scores.
        scale: of the products.
        band: how far back and ahead a query may look; the queries are the last positions.
        value: (..., key, value_width)
        request: what a summary wants.

    Raises:
        MemoryError: the scores of a block of rows do not fit.
    """
    kernel = library()
    assert not isinstance(kernel, str), kernel  # the caller has asked
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    values = key[..., :0] if value is None else value
    leads = [tensor.shape[:-2] for tensor in (query, key, values)]
    shape = torch.broadcast_shapes(*leads)  # type: ignore[no-untyped-call]
    if query.stride(-1) != 1:
        query = query.contiguous()
    query, key = _spread(query, shape), _spread(_dense(key), shape)
    values = _spread(_dense(values), shape)
    seen = _spread_mask(mask, (*shape, num_queries, num_keys))
    output = _room_for_output(shape, num_queries, values.shape[-1])
    placed = {"query": query, "key": key, "value": values, "mask": seen, "output": output}
    starts = {f"{name}_at": _places(tensor) for name, tensor in placed.items()}
    work = _Work(
        **_addresses(placed | starts),
        **_row_steps(placed),
        heads=output.shape[:-2].numel(),
        queries=num_queries,
        keys=num_keys,
        width=query.shape[-1],
        value_width=values.shape[-1],
        mask_query_step=seen.stride(-2),
        mask_key_step=seen.stride(-1),
        mask_kind=_mask_kind(mask),
        left=band[0],
        right=band[1],
        mask_offset=num_keys - num_queries,
        threads=torch.get_num_threads(),
        query_cell=1,
        key_cell=1,
        factor=scale * LOG2_E,
    )
    if value is None:
        work.output = None
    if request is not None:
        request.fill_in(work)
    if kernel.attend_rows(ctypes.byref(work)):
        raise MemoryError("memory ran out; give fewer keys at a time, or let fewer threads work.")
    return None if value is None else output


def _addresses(tensors: dict[str, Tensor]) -> dict[str, int]:
    return {name: tensor.data_ptr() for name, tensor in tensors.items()}


def _row_steps(tensors: dict[str, Tensor]) -> dict[str, int]:
    """Return how many elements lie between two rows, for all but the mask, which has two steps."""
    return {f"{name}_step": tensor.stride(-2) for name, tensor in tensors.items() if name != "mask"}


def _spread_mask(mask: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    if mask is None:
        mask = torch.zeros((), dtype=torch.bool)
    return mask.expand(shape)


def _mask_kind(mask: Tensor | None) -> int:
    """Return what the kernel calls a mask: 0 for none, 1 for a boolean one, 2 for added scores."""
    if mask is None:
        return 0
    return 1 if mask.dtype == torch.bool else 2


def _dense(tensor: Tensor) -> Tensor:
    """Return rows that follow one another: read again and again, they had better lie close
    together."""
    return tensor if tensor.stride()[-2:] == (tensor.shape[-1], 1) else tensor.contiguous()


def _spread(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    return tensor.expand(*shape, *tensor.shape[-2:])


def _room_for_output(shape: tuple[int, ...], num_queries: int, width: int) -> Tensor:
    """Allocate the output with the heads side by side, so that joining them moves nothing."""
    output = torch.empty(*shape[:1], num_queries, *shape[1:], width, dtype=torch.float32)
    return output.movedim(len(shape[:1]), -2)


def _places(tensor: Tensor) -> Tensor:
    """Return where each head begins, in elements from the first, whatever the leading axes'
    strides."""
    places = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(tensor.shape[:-2], tensor.stride()[:-2], strict=True):
        places = places.unsqueeze(-1) + torch.arange(size) * stride
    return places.reshape(-1).contiguous()


@cache
def library() -> Any:
    """Return the compiled functions, or the reason why there are none."""
    source = vectors() + "".join(Path(__file__).with_name(name).read_text() for name in _SOURCES)
    try:
        kernel = compiled(source, name="attention", has="attend_rows", flags=("-O3", "-pthread"))
    except NotCompiled as error:
        return str(error)
    kernel.attend_rows.argtypes = (ctypes.c_void_p,)
    kernel.attend_rows.restype = ctypes.c_int
    return kernel
