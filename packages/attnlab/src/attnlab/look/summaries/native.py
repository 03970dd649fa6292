"""Summaries by compiled C++ (`attnlab.native.attention`), for float32 on a CPU: as exact, in less
time.

If the same kernel also computes the attention's output, both come from one pass over the scores.
"""

import torch
from torch import Tensor

from attnlab.errors import CouldNotRun
from attnlab.look.summaries.summary import Summary, cell_size
from attnlab.look.summaries.summary_inputs import SummaryInputs
from attnlab.native import attention

_MOST_TOP = 64


def reason_against(inputs: SummaryInputs, top: int, *, is_finite: bool = False) -> str | None:
    """Return why the compiled implementation cannot be used, or None.

    Args:
        inputs: the attention to summarize.
        top: how many keys are named for each query.
        is_finite: the numbers are known to be neither too large nor NaN.
    """
    query, key, mask = inputs.query, inputs.key, inputs.mask
    if query.device.type != "cpu" or query.dtype != torch.float32:
        return f"it is for float32 on a CPU, and these are {query.dtype} on {query.device.type}"
    if mask is not None and mask.device.type != "cpu":
        return "the mask is on another device"
    if not (query.numel() and key.numel()):
        return "there is nothing to compute"
    if top > _MOST_TOP:
        return f"it has at most {_MOST_TOP} top keys"
    if not is_finite and not _is_small(inputs):
        return "some numbers are too large, or NaN"
    kernels = attention.library()
    return kernels if isinstance(kernels, str) else None


def _is_small(inputs: SummaryInputs) -> bool:
    """Is no score too large for the kernel, and no number NaN?"""
    norms = torch.linalg.vector_norm(inputs.query), torch.linalg.vector_norm(inputs.key)
    size = float(norms[0]) * float(norms[1])
    return size * abs(inputs.scale) * attention.LOG2_E < attention.LARGEST_SCORE


def summary_of(
    inputs: SummaryInputs, *, tiles: int, top: int, value: Tensor | None = None
) -> tuple[Summary, Tensor | None]:
    """Summarize an attention and, given values, (..., key, value_width), compute its output too.

    Raises:
        CouldNotRun: out of memory.
    """
    lengths, mask = (inputs.num_queries, inputs.num_keys), inputs.mask
    cells = cell_size(lengths[0], tiles), cell_size(lengths[1], tiles)
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.float()
    request = attention.SummaryRequest.room(inputs.shape, lengths, cells, top, inputs.offset)
    try:
        output = attention.attend_rows(
            inputs.query,
            inputs.key,
            mask,
            scale=inputs.scale,
            band=(inputs.left, inputs.right),
            value=value,
            request=request,
        )
    except MemoryError as error:
        raise CouldNotRun(str(error)) from None
    parts = request.outputs
    effective = torch.where(parts["largest"] == 0, 0.0, parts["entropy"].exp())
    return Summary(**parts, effective_keys=effective, cells=torch.tensor(cells)), output
