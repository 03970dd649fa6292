"""Summaries of attention without its weights: statistics of each query, and a pooled map.

    summary = summarize(query, key, "causal")     # query (..., query, width), key (..., key, width)
    summary.entropy                               # (..., query), nats
    summary.map_mean                              # (..., 512, 512)

The (query, key) matrix never exists: memory grows with the length, not with its square. The numbers
are exact: those of the explicit weights, but for rounding.
"""

from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor

from attnlab.errors import CouldNotRun, WrongUsage, not_none
from attnlab.look.summaries import native, row_blocks
from attnlab.look.summaries.summary import Summary
from attnlab.look.summaries.summary_inputs import (
    MaskOrWindow,
    SummaryInputs,
    call_inputs,
    summary_inputs,
)
from attnlab.parts.attend import uses_native_kernel
from attnlab.parts.masks import Mask
from attnlab.shapes import require_integer
from attnlab.sites import AttentionCall

SummaryBackend = Literal["native", "torch"]


def summarize(
    query: Tensor,
    key: Tensor,
    mask: MaskOrWindow = None,
    *,
    scale: float | bool | None = None,
    tiles: int = 512,
    top: int = 8,
    offset: int | None = None,
    way: SummaryBackend | None = None,
) -> Summary:
    """Summarize the weights `softmax(QKᵀ/√d_k + mask)` without computing their matrix.

    Args:
        query: (..., query, head_width); half precision is converted to float32.
        key: (..., key, head_width); its leading axes and the query's broadcast together.
        mask: as `attend` takes it, or an integer for a causal window of so many keys. Wholly masked
            blocks cost nothing.
        scale: as `attend` takes it.
        tiles: the most cells of the pooled maps along each axis.
        top: how many of the largest weights are named for each query.
        offset: the position of the first query among the keys, for distances; None if the queries
            are the last positions. Cross-attention needs a common numbering for it.
        way: "native" for compiled C++, "torch" for PyTorch; None for the quicker one that applies.

    Returns:
        the `Summary` of each query's weights: entropy, distance, largest weights, pooled maps.

    Raises:
        WrongUsage: invalid shapes, dtypes or arguments.
        CouldNotRun: `way="native"`, and it does not apply here.

    >>> import torch
    >>> summary = summarize(torch.zeros(3, 4), torch.zeros(3, 4), "causal")
    >>> summary.entropy
    tensor([0.0000, 0.6931, 1.0986])
    >>> summary.distance  # to itself; to the mean of itself and the one before; …
    tensor([0.0000, 0.5000, 1.0000])
    """
    return compute_summary(
        summary_inputs(query, key, mask, scale=scale, offset=offset), tiles=tiles, top=top, way=way
    )


@torch.no_grad()
def compute_summary(
    inputs: SummaryInputs, *, tiles: int, top: int, way: SummaryBackend | None = None
) -> Summary:
    """Summarize an attention by one of the two implementations."""
    require_integer("tiles", tiles)
    require_integer("top", top)
    if way not in (None, "native", "torch"):
        raise WrongUsage(f'a way is "native", "torch" or None for the quicker; got {way!r}.')
    reason = None if way == "torch" else native.reason_against(inputs, top)
    if way == "native" and reason is not None:
        raise CouldNotRun(f'the compiled implementation does not apply: {reason}; use way="torch".')
    if way == "torch" or reason is not None:
        return row_blocks.summary_of(inputs, tiles=tiles, top=top)
    return native.summary_of(inputs, tiles=tiles, top=top)[0]


@dataclass(frozen=True)
class Summarize:
    """Record a `Summary` of an attention, (batch, head, …), instead of its queries, keys and
    weights: `record(model, patterns, reduce=Summarize())`.

    Args:
        tiles: the most cells of the pooled maps along each axis.
        top: how many of the largest weights are named for each query.
    """

    tiles: int = 256
    top: int = 8

    def __post_init__(self) -> None:
        require_integer("tiles", self.tiles)
        require_integer("top", self.top)

    def __call__(self, call: AttentionCall) -> Summary:
        """Summarize an attention call."""
        inputs = call_inputs(call)
        summary = self._with_output(call, inputs)
        if summary is None:
            summary = compute_summary(inputs, tiles=self.tiles, top=self.top)
        axes, heads = len(summary.entropy.shape) - 1, call.query.shape[:-2]
        shaped = [part.reshape(*heads, *part.shape[axes:]) for part in summary[:-1]]
        return Summary._make([*shaped, summary.cells])

    reduce = __call__

    def _with_output(self, call: AttentionCall, inputs: SummaryInputs) -> Summary | None:
        """Summarize in the pass that computes the output as `attend` would; None without such a
        pass."""
        place, mask = call.place, cast(Mask, call.mask)
        if place is None or place.output is not None:
            return None
        if not uses_native_kernel(call.query, call.key, call.value, mask, scale=call.scale):
            return None
        if native.reason_against(inputs, self.top, is_finite=True) is not None:
            return None
        is_shared = len(inputs.shape) > call.query.dim() - 2
        value = call.value.unsqueeze(-3) if is_shared else call.value
        summary, output = native.summary_of(inputs, tiles=self.tiles, top=self.top, value=value)
        place.output = not_none(output).reshape(*call.query.shape[:-1], value.shape[-1])
        return summary

    def of_weights(self, weights: Tensor) -> Summary:
        """Summarize given weights, (batch, head, query, key), such as edited ones."""
        return row_blocks.summary_of_weights(weights, tiles=self.tiles, top=self.top)
