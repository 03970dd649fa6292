"""The memory and disk that a long text takes, estimated before the model runs.

A block's activations are estimated from its parameters: a matrix (out, in) makes at most the larger
of the two for each token, and operations between two matrices as much again.
"""

import re
from collections import Counter
from typing import Any

from torch import nn

from attnlab.errors import CouldNotRun
from attnlab.look.recording.budget import in_words
from attnlab.look.summaries.summary import cell_size
from attnlab.pretrained.model import Pretrained
from attnlab.sites import AttentionCall

_NUMBERS = 9  # numbers of a summary for each query, beside the top keys
_OPEN = 3  # matrices of all pairs that explicit attention holds at once: scores, softmax, weights


def summary_bytes(num_heads: int, length: int, tiles: int, top: int) -> int:
    """Return the bytes of one layer's summary."""
    cells = -(-length // cell_size(length, tiles))
    return 4 * num_heads * (length * (_NUMBERS + 2 * top) + 2 * cells * cells)


def working_bytes(model: nn.Module, length: int) -> int:
    """Estimate the bytes of one block's activations for so many tokens."""
    foreign = model.foreign if isinstance(model, Pretrained) else model
    widths: Counter[str] = Counter()
    size = 4
    for name, parameter in foreign.named_parameters():
        found = re.match(r"(.*?\.)??\d+(?=\.)", name)
        if found and parameter.dim() >= 2:
            widths[found[0]] += max(parameter.shape[-2:])
            size = max(size, parameter.element_size())
    return 2 * size * length * max(widths.values(), default=1024)


def check_room_for(needed: dict[str, int], limit: int) -> None:
    """Raise if more bytes are needed than the limit.

    Raises:
        CouldNotRun: with the bytes of each item.
    """
    total = sum(needed.values())
    if total > limit:
        told = ", ".join(f"{in_words(size)} for {what}" for what, size in needed.items())
        raise CouldNotRun(
            f"this document needs about {in_words(total)} beside the model's weights ({told}); "
            f"the budget is {in_words(limit)}. Shorten it, ask for fewer tiles or a smaller top, "
            "or raise budget=."
        )


def check_open(part: str, call: AttentionCall, limit: int) -> None:
    """Raise if an explicit attention would make matrices of all pairs beyond the limit.

    Raises:
        CouldNotRun: with their size.
    """
    pairs = call.query.shape[:-1].numel() * call.key.shape[-2]
    size = _OPEN * pairs * call.query.element_size()
    if call.is_open and size > limit:
        raise CouldNotRun(
            f"{part} computes its weights from more than queries and keys, so all pairs must "
            f"be in memory at once: {in_words(size)}; the budget is {in_words(limit)}. Shorten the "
            "document, or raise budget=."
        )


def mask_bytes(model: nn.Module, length: int) -> int:
    """Return the bytes of the mask of all pairs that a foreign model makes for a window or explicit
    attention."""
    if not isinstance(model, Pretrained):
        return 0
    config: Any = getattr(model.foreign, "config", None)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    window = getattr(config, "sliding_window", None) or getattr(config, "local_attention", None)
    is_window = isinstance(window, int) and window < length
    if getattr(config, "_attn_implementation", "") == "eager":
        return 4 * length * length
    return length * length if is_window else 0
