"""The inputs of a model for a long text: its ids, checked against the model's limits; and the
memory that they take, estimated before the model runs.

A block's activations are estimated from its parameters: a matrix (out, in) makes at most the larger
of the two for each token, and operations between two matrices as much again.
"""

import inspect
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.display import short
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.heads import attentions
from attnlab.look.indices import has_integers
from attnlab.look.inputs import foreign_of
from attnlab.look.recording.budget import in_words
from attnlab.look.summaries.summary import cell_size
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.text import length_made_for, max_tokens, text_config
from attnlab.sites import AttentionCall

_NUMBERS = 9  # numbers of a summary for each query, beside the top keys
_OPEN = 3  # matrices of all pairs that explicit attention holds at once: scores, softmax, weights


def read_text(file: Path | str) -> str:
    """Read a text file, which must be UTF-8 and not empty.

    Raises:
        CouldNotRun: it is missing, cannot be read, or is not UTF-8.
        WrongUsage: it is empty.
    """
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise CouldNotRun(f"could not read {file}: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        raise CouldNotRun(f"{file} is not UTF-8, at byte {error.start:,}.") from None
    if not text.strip():
        raise WrongUsage(f"{file} is empty; a document needs at least one word.")
    return text


def document_inputs(
    model: nn.Module, document: str | Tensor | Sequence[int], *, beyond: bool
) -> tuple[tuple[Tensor, ...], dict[str, object]]:
    """Return a model's arguments for a long text, in order and by name; the first are its ids (1,
    length).

    Args:
        model: ours or a foreign one with hook points.
        document: text, or ids (length,) or (1, length).
        beyond: allow more tokens than it was trained for.

    Raises:
        WrongUsage: no ids, several texts at once, or more tokens than the model was trained for.
    """
    more: dict[str, Tensor] = {}
    if not isinstance(document, str):
        ids = _checked(document)
    elif isinstance(model, Pretrained):
        more = model.inputs(document, beyond=True)
        ids = more.pop("input_ids")
        more.pop("decoder_input_ids", None)
        if bool(more.get("attention_mask", ids == ids).all()):
            # Without padding the model need not make a mask of all pairs.
            more.pop("attention_mask", None)
    else:
        raise WrongUsage("a model of attnlab takes ids here, (length,), not a text.")
    check_ids(model, ids)
    foreign, length = foreign_of(model), ids.shape[1]
    most = max_tokens(foreign)
    made_for = length_made_for(foreign)
    if most is not None and length > most:
        raise WrongUsage(f"{length:,} tokens are more than the model's {most:,} positions.")
    if made_for is not None and made_for < length and not beyond:
        raise WrongUsage(
            f"{length:,} tokens, and the model was made for {made_for:,}; shorten the text, or "
            "pass beyond=True (--beyond) to read it anyway."
        )
    arguments, options = arguments_for(model, ids)
    return arguments, options | more


def arguments_for(
    model: nn.Module, ids: Tensor, real: Tensor | None = None
) -> tuple[tuple[Tensor, ...], dict[str, object]]:
    """Return the arguments, in order and by name, with which a model reads ids (text, length).

    The decoder of a foreign encoder–decoder, which is not looked at, gets one token. `real` (text,
    length) is False at padding; a causal model of ours needs no mask, since padding comes last.
    """
    takes = inspect.signature(foreign_of(model).forward).parameters
    options: dict[str, object] = {}
    if "use_cache" in takes:
        options["use_cache"] = False
    if real is not None and (isinstance(model, Pretrained) or "real" in takes):
        options["real"] = real
    if isinstance(model, Pretrained) and "encoder" in model.structure.names:
        return (ids, ids[:, :1]), options
    return (ids,), options


def takes_padding(model: nn.Module) -> bool:
    """Can a model read texts of several lengths together? A foreign one takes a mask then."""
    return not isinstance(model, Pretrained) or model.takes_padding


def check_ids(model: nn.Module, ids: Tensor) -> None:
    """Raise if a model has no embedding for an id.

    Raises:
        WrongUsage: with the id.
    """
    foreign: Any = foreign_of(model)
    try:
        size = foreign.get_input_embeddings().num_embeddings
    except (AttributeError, NotImplementedError):
        size = getattr(getattr(foreign, "config", None), "vocab_size", None)
    if not isinstance(size, int):
        return
    unknown = ids[(ids < 0) | (ids >= size)].tolist()
    if unknown:
        raise WrongUsage(f"this model's ids are from 0 to {size - 1:,}; got {unknown[0]:,}.")


def reading_attentions(model: nn.Module) -> list[str]:
    """List the self-attentions that read a text: the encoder's if there is one, else all.

    Raises:
        WrongUsage: the model has no attention weights.
    """
    parts = attentions(model)
    if not parts:
        raise WrongUsage(f"{type(model).__name__} has no sites of attention weights.")
    of_encoder = [part for part in parts if part.startswith("encoder.")]
    return of_encoder or [part for part in parts if "cross_attention" not in part]


def _checked(document: Any) -> Tensor:
    try:
        ids = document if isinstance(document, Tensor) else torch.tensor(list(document))
    except (TypeError, ValueError, RuntimeError, OverflowError):
        ids = torch.empty(0)
    if ids.dim() == 1:
        ids = ids.unsqueeze(0)
    if not has_integers(ids) or ids.shape[:-1] != (1,) or not ids.numel():
        raise WrongUsage(f"a document is a text or ids, (length,); got {short(document)}.")
    return ids


def summary_bytes(num_heads: int, length: int, tiles: int, top: int) -> int:
    """Return the bytes of one layer's summary."""
    cells = -(-length // cell_size(length, tiles))
    return 4 * num_heads * (length * (_NUMBERS + 2 * top) + 2 * cells * cells)


def working_bytes(model: nn.Module, length: int) -> int:
    """Estimate the bytes of one block's activations for so many tokens."""
    widths: Counter[str] = Counter()
    size = 4
    for name, parameter in foreign_of(model).named_parameters():
        block = re.match(r"(.*?\.)??\d+(?=\.)", name)
        if block and parameter.dim() >= 2:
            widths[block[0]] += max(parameter.shape[-2:])
            size = max(size, parameter.element_size())
    return 2 * size * length * max(widths.values(), default=1024)


def mask_bytes(model: nn.Module, length: int) -> int:
    """Return the bytes of the mask of all pairs that a foreign model makes for a window or explicit
    attention."""
    if not isinstance(model, Pretrained):
        return 0
    config = text_config(model.foreign)
    if getattr(config, "_attn_implementation", "") == "eager":
        return 4 * length * length
    window = getattr(config, "sliding_window", None) or getattr(config, "local_attention", None)
    if isinstance(window, int) and window < length:
        return length * length
    return 0


def check_room_for(needed: dict[str, int], limit: int) -> None:
    """Raise if more bytes are needed than the limit.

    Raises:
        CouldNotRun: with the bytes of each item.
    """
    total = sum(needed.values())
    if total > limit:
        sizes = ", ".join(f"{in_words(size)} for {what}" for what, size in needed.items() if size)
        raise CouldNotRun(
            f"this document needs about {in_words(total)} beside the model's weights ({sizes}); "
            f"the budget is {in_words(limit)}. Shorten it, ask for fewer tiles or a smaller top, "
            "or raise budget=."
        )


def check_explicit(part: str, call: AttentionCall, limit: int) -> None:
    """Raise if an explicit attention would make matrices of all pairs beyond the limit."""
    if call.is_explicit:
        pairs = call.query.shape[:-1].numel() * call.key.shape[-2]
        what = f"all pairs of {part}, whose weights depend on more than queries and keys"
        check_room_for({what: _OPEN * pairs * call.query.element_size()}, limit)
