"""How much memory and disk a document takes, reckoned before anything is run.

What a block makes on its way is reckoned from its parameters: a matrix (out, in) makes no more than the larger of the
two for each token, and what stands between two of them as much again.
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

__all__ = ["check_open", "check_room_for", "mask_bytes", "summary_bytes", "working_bytes"]

_NUMBERS = 9  # that a summary has for each query, beside the top keys
_OPEN = 3  # matrices of all pairs that stand beside one another in an open attention: scores, softmax, weights


def summary_bytes(num_heads: int, length: int, tiles: int, top: int) -> int:
    """Return the bytes of one layer's summary."""
    cells = -(-length // cell_size(length, tiles))
    return 4 * num_heads * (length * (_NUMBERS + 2 * top) + 2 * cells * cells)


def working_bytes(model: nn.Module, length: int) -> int:
    """Return about how many bytes a model takes while one block of it reads so many tokens, beside its weights."""
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
    """Raise where what is needed is more than may be taken.

    Raises:
        CouldNotRun: with what takes how much.
    """
    total = sum(needed.values())
    if total > limit:
        told = ", ".join(f"{in_words(size)} for {what}" for what, size in needed.items())
        raise CouldNotRun(
            f"this document needs about {in_words(total)} beside the model's weights ({told}); the budget is "
            f"{in_words(limit)}. Shorten it, ask for fewer tiles or a smaller top, or raise budget=."
        )


def check_open(part: str, call: AttentionCall, limit: int) -> None:
    """Raise before an attention that must be computed openly makes matrices of all pairs that do not fit.

    Raises:
        CouldNotRun: with their size.
    """
    pairs = call.query.shape[:-1].numel() * call.key.shape[-2]
    size = _OPEN * pairs * call.query.element_size()
    if call.is_open and size > limit:
        raise CouldNotRun(
            f"{part} computes its weights from more than queries and keys, so that all pairs must be there at once: "
            f"{in_words(size)}; the budget is {in_words(limit)}. Shorten the document, or raise budget=."
        )


def mask_bytes(model: nn.Module, length: int) -> int:
    """Return the bytes of the mask for all pairs that a foreign model writes out, for a window or open attention."""
    if not isinstance(model, Pretrained):
        return 0
    config: Any = getattr(model.foreign, "config", None)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    window = getattr(config, "sliding_window", None) or getattr(config, "local_attention", None)
    is_window = isinstance(window, int) and window < length
    is_open = getattr(config, "_attn_implementation", "") == "eager"
    return length * length * (4 if is_open else 1 if is_window else 0)
