"""Summaries of attention without its weights: what each query's weights are like, and the whole as a pooled map.

    summary = summarise(query, key, "causal")     # query (..., query, width), key (..., key, width)
    summary.entropy                               # (..., query), nats
    summary.map_mean                              # (..., 512, 512)

The (query, key) matrix never exists: memory grows with the length, not with its square. Nothing is estimated either;
each number is what the explicit weights would give, but for rounding.
"""

from typing import Literal

import torch
from torch import Tensor

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.summaries import blocks, native
from attnlab.look.summaries.question import Pattern, Question, ask
from attnlab.look.summaries.summary import Summary
from attnlab.shapes import require_integer

__all__ = ["Way", "answer", "summarise"]

Way = Literal["native", "torch"]


def summarise(
    query: Tensor,
    key: Tensor,
    mask: Pattern = None,
    *,
    scale: float | bool | None = None,
    tiles: int = 512,
    top: int = 8,
    offset: int | None = None,
    way: Way | None = None,
) -> Summary:
    """Say what the weights `softmax(QKᵀ/√d_k + mask)` are like, without making them.

    Args:
        query: (..., query, head_width); half precision is computed with as float32.
        key: (..., key, head_width); its leading axes and the query's broadcast together.
        mask: as `attend` takes it, and an integer for a causal window of so many keys. What a mask blocks costs
            nothing, where whole blocks of it are blocked.
        scale: as `attend` takes it.
        tiles: the pooled maps have at most so many cells along each axis.
        top: how many of the largest weights are named for each query.
        offset: the position of the first query among the keys, for all that speaks of distance; None when the queries
            are the last positions. In cross-attention nothing but a common numbering can tell it.
        way: "native" for compiled C++, "torch" for PyTorch; None for the quicker one that is possible.

    Raises:
        WrongUsage: shapes, dtypes or arguments that cannot be.
        CouldNotRun: `way="native"`, and it cannot be taken here.

    >>> import torch
    >>> summary = summarise(torch.zeros(3, 4), torch.zeros(3, 4), "causal")
    >>> summary.entropy
    tensor([0.0000, 0.6931, 1.0986])
    >>> summary.distance  # to itself; to the mean of itself and the one before; …
    tensor([0.0000, 0.5000, 1.0000])
    """
    return answer(ask(query, key, mask, scale=scale, offset=offset), tiles=tiles, top=top, way=way)


@torch.no_grad()
def answer(question: Question, *, tiles: int, top: int, way: Way | None = None) -> Summary:
    """Summarise what is asked, in one way or the other."""
    require_integer("tiles", tiles)
    require_integer("top", top)
    if way not in (None, "native", "torch"):
        raise WrongUsage(f'a way is "native", "torch" or None for the quicker; got {way!r}.')
    reason = None if way == "torch" else native.reason_against(question, top)
    if way == "native" and reason is not None:
        raise CouldNotRun(f'the compiled way cannot be taken: {reason}. Leave `way` out, or ask for "torch".')
    if way == "torch" or reason is not None:
        return blocks.summary_of(question, tiles=tiles, top=top)
    return native.summary_of(question, tiles=tiles, top=top)[0]
