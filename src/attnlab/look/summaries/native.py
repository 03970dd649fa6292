"""Summaries by compiled C++ (`attnlab.native.attention`), for float32 on a processor: as exact, in less time.

Where the attention's output is computed by the same kernel anyway, both come from one pass over the scores.
"""

import torch
from torch import Tensor

from attnlab.errors import CouldNotRun
from attnlab.look.summaries.question import Question
from attnlab.look.summaries.summary import Summary, cell_size
from attnlab.native import attention

__all__ = ["reason_against", "summary_of"]

_MOST_TOP = 64


def reason_against(question: Question, top: int, *, is_tame: bool = False) -> str | None:
    """Say what stands against the compiled way; None when it can be taken.

    Args:
        question: what is asked.
        top: how many keys are to be named.
        is_tame: the numbers are known to be neither too large nor NaN.
    """
    query, key, mask = question.query, question.key, question.mask
    if query.device.type != "cpu" or query.dtype != torch.float32:
        return f"it is for float32 on a processor, and these are {query.dtype} on {query.device.type}"
    if mask is not None and mask.device.type != "cpu":
        return "the mask is on another device"
    if not (query.numel() and key.numel()):
        return "there is nothing to compute"
    if top > _MOST_TOP:
        return f"it finds at most {_MOST_TOP} top keys"
    if not (is_tame or _largest_score(question) < attention.LARGEST_SCORE):  # NaN: the other way tells what it reaches
        return "numbers are too large, or not numbers"
    found = attention.library()
    return found if isinstance(found, str) else None


def _largest_score(question: Question) -> float:
    query, key = torch.linalg.vector_norm(question.query), torch.linalg.vector_norm(question.key)
    return float(query) * float(key) * abs(question.scale) * attention.LOG2_E


def summary_of(
    question: Question, *, tiles: int, top: int, value: Tensor | None = None
) -> tuple[Summary, Tensor | None]:
    """Summarise what is asked, and gather the values, (..., key, value_width), where they are given.

    Raises:
        CouldNotRun: memory ran out.
    """
    lengths = question.num_queries, question.num_keys
    cells = cell_size(lengths[0], tiles), cell_size(lengths[1], tiles)
    mask = question.mask if question.mask is None or question.mask.dtype == torch.bool else question.mask.float()
    telling = attention.Telling.room(question.shape, lengths, cells, top, question.offset)
    try:
        output = attention.attend_rows(
            question.query, question.key, mask, scale=question.scale, band=(question.left, question.right),
            value=value, telling=telling,
        )  # fmt: skip
    except MemoryError as error:
        raise CouldNotRun(str(error)) from None
    told = telling.told
    effective = torch.where(told["largest"] == 0, 0.0, told["entropy"].exp())
    return Summary(**told, effective_keys=effective, cells=torch.tensor(cells)), output
