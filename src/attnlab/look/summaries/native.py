"""Summaries by compiled C++ (`rows.cpp`), for float32 on a processor: as exact, in a fraction of the time.

The scores are never in main memory as a whole, only those of one block of rows for each thread; threads are as many as
PyTorch's own.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlab.errors import CouldNotRun
from attnlab.look.summaries.question import Question
from attnlab.look.summaries.summary import Summary, cell_size
from attnlab.native import NotCompiled, compiled, vectors

__all__ = ["reason_against", "summary_of"]

_LOG2_E = 1.4426950408889634
_TAME = 1e30  # products above this could overflow
_MOST_TOP = 64
_POINTERS = ("query", "key", "mask", "query_at", "key_at", "mask_at")
_NUMBERS = (
    "heads", "queries", "keys", "width", "query_step", "key_step", "mask_query_step", "mask_key_step", "mask_kind",
    "left", "right", "mask_offset", "offset", "query_cell", "key_cell", "query_cells", "key_cells", "top", "threads",
)  # fmt: skip
_OUTPUTS = (
    "entropy", "largest", "distance", "spread", "first", "own", "previous", "log_sum", "top_weights", "map_mean",
    "map_max", "top_keys",
)  # fmt: skip


class _Work(ctypes.Structure):
    """What `rows.cpp` is handed; the same names, in the same order."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in _POINTERS),
        *((name, ctypes.c_int64) for name in _NUMBERS),
        ("factor", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in _OUTPUTS),
    )


def reason_against(question: Question, top: int) -> str | None:
    """Say what stands against the compiled way; None when it can be taken."""
    query, key, mask = question.query, question.key, question.mask
    if query.device.type != "cpu" or query.dtype != torch.float32:
        return f"it is for float32 on a processor, and these are {query.dtype} on {query.device.type}"
    if mask is not None and mask.device.type != "cpu":
        return "the mask is on another device"
    if not (query.numel() and key.numel()):
        return "there is nothing to compute"
    if top > _MOST_TOP:
        return f"it finds at most {_MOST_TOP} top keys"
    # NaN is not tame either: what it reaches is told by the other way, as `attend` tells it.
    norms = torch.linalg.vector_norm(query), torch.linalg.vector_norm(key), abs(question.scale) * _LOG2_E
    if not float(norms[0]) * float(norms[1]) * norms[2] < _TAME:
        return "numbers are too large, or not numbers"
    found = _library()
    return found if isinstance(found, str) else None


def summary_of(question: Question, *, tiles: int, top: int) -> Summary:
    """Summarise what is asked.

    Raises:
        CouldNotRun: memory ran out.
    """
    query, key, mask, mask_kind = _operands(question)
    shape, num_queries, num_keys = question.shape, question.num_queries, question.num_keys
    cells = cell_size(num_queries, tiles), cell_size(num_keys, tiles)
    sizes = -(-num_queries // cells[0]), -(-num_keys // cells[1])
    outputs = {name: torch.empty(*shape, num_queries) for name in _OUTPUTS}
    outputs |= {"top_weights": torch.empty(*shape, num_queries, top)}
    outputs |= {"top_keys": torch.empty(*shape, num_queries, top, dtype=torch.int64)}
    outputs |= {name: torch.empty(*shape, *sizes) for name in ("map_mean", "map_max")}
    places = [_places(tensor) for tensor in (query, key, mask)]
    work = _Work(
        query=query.data_ptr(), key=key.data_ptr(), mask=mask.data_ptr(),
        query_at=places[0].data_ptr(), key_at=places[1].data_ptr(), mask_at=places[2].data_ptr(),
        heads=question.num_heads, queries=num_queries, keys=num_keys, width=query.shape[-1],
        query_step=query.stride(-2), key_step=key.stride(-2),
        mask_query_step=mask.stride(-2), mask_key_step=mask.stride(-1), mask_kind=mask_kind,
        left=question.left, right=question.right, mask_offset=question.mask_offset, offset=question.offset,
        query_cell=cells[0], key_cell=cells[1], query_cells=sizes[0], key_cells=sizes[1],
        top=top, threads=torch.get_num_threads(), factor=question.scale * _LOG2_E,
        **{name: tensor.data_ptr() for name, tensor in outputs.items()},
    )  # fmt: skip
    if _library().summarise_rows(ctypes.byref(work)):
        raise CouldNotRun("memory ran out; give fewer keys at a time, or let fewer threads work.")
    effective = torch.where(outputs["largest"] == 0, 0.0, outputs["entropy"].exp())
    return Summary(**outputs, effective_keys=effective, cells=torch.tensor(cells))


def _operands(question: Question) -> tuple[Tensor, Tensor, Tensor, int]:
    """Return query, key and mask as the compiled code reads them, and of which kind the mask is."""
    query, key = (x if x.stride(-1) == 1 else x.contiguous() for x in (question.query, question.key))
    if question.mask is None:
        return query, key, torch.zeros(1, 1, dtype=torch.bool).expand(*question.shape, 1, 1), 0
    mask = question.mask
    return query, key, mask if mask.dtype == torch.bool else mask.float(), 1 if mask.dtype == torch.bool else 2


def _places(tensor: Tensor) -> Tensor:
    """Return where each head begins, in elements from the first, whatever the leading axes' strides."""
    places = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(tensor.shape[:-2], tensor.stride()[:-2], strict=True):
        places = places.unsqueeze(-1) + torch.arange(size) * stride
    return places.reshape(-1).contiguous()


@cache
def _library() -> Any:
    """Return the compiled functions, or the reason why there are none."""
    source = vectors() + Path(__file__).with_name("rows.cpp").read_text()
    try:
        library = compiled(source, name="summaries", has="summarise_rows", flags=("-O3", "-pthread"))
    except NotCompiled as error:
        return str(error)
    library.summarise_rows.argtypes = (ctypes.c_void_p,)
    library.summarise_rows.restype = ctypes.c_int
    return library
