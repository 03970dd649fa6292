"""What a model reads of a document: ids, how many it is made for, and how it is called with them."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.heads import attentions
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.texts import most_tokens
from attnlab.shapes import shape_text

__all__ = ["Given", "check_ids", "given", "parts_of", "read_text"]


class Given(NamedTuple):
    """A document as a model takes it: ids (1, length), and what goes with them by name."""

    ids: Tensor
    inputs: tuple[Tensor, ...]
    options: dict[str, Any]

    @property
    def length(self) -> int:
        """How many tokens."""
        return int(self.ids.shape[1])


def read_text(file: Path | str) -> str:
    """Read a document: UTF-8, not empty.

    Raises:
        CouldNotRun: it is missing, cannot be read, or is not UTF-8.
        WrongUsage: there is nothing in it.
    """
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise CouldNotRun(f"could not read {file}: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        raise CouldNotRun(f"{file} is not UTF-8 (byte {error.start:,}); save it as UTF-8.") from None
    if not text.strip():
        raise WrongUsage(f"{file} is empty; a document needs at least one word.")
    return text


def given(model: nn.Module, document: str | Tensor | Sequence[int], *, beyond: bool) -> Given:
    """Say how a model is called with a document.

    Args:
        model: ours or a foreign one with doors.
        document: text, or ids (length,) or (1, length).
        beyond: let it read more than it was made for.

    Raises:
        WrongUsage: no ids, several documents at once, or more tokens than the model is made for.
    """
    found = _with_text(model, document) if isinstance(document, str) else _with_ids(model, document)
    check_ids(model, found.ids)
    foreign = model.foreign if isinstance(model, Pretrained) else model
    most, made_for = most_tokens(foreign), _made_for(foreign)
    if most is not None and found.length > most:
        raise WrongUsage(
            f"the document has {found.length:,} tokens, and the model has {most:,} positions; it cannot read more."
        )
    if made_for is not None and found.length > made_for and not beyond:
        raise WrongUsage(
            f"the document has {found.length:,} tokens, and the model was made for {made_for:,}: what it does beyond "
            "them nobody has trained. Shorten it, or say beyond=True (--beyond) to look all the same."
        )
    takes = inspect.signature(foreign.forward).parameters
    if "use_cache" in takes:
        found.options["use_cache"] = False
    return found


def check_ids(model: nn.Module, ids: Tensor) -> None:
    """Raise before a model is given an id that it has no embedding for.

    Raises:
        WrongUsage: with the id.
    """
    foreign: Any = model.foreign if isinstance(model, Pretrained) else model
    try:
        size = foreign.get_input_embeddings().num_embeddings
    except (AttributeError, NotImplementedError):
        size = getattr(getattr(foreign, "config", None), "vocab_size", None)
    if isinstance(size, int) and ids.numel():
        odd = next((each for each in (int(ids.min()), int(ids.max())) if not 0 <= each < size), None)
        if odd is not None:
            raise WrongUsage(f"ids are from 0 to {size - 1:,}, one for each token that the model knows; got {odd:,}.")


def parts_of(model: nn.Module) -> list[str]:
    """List the attentions that read a document: the encoder's, where there is one, else all.

    Raises:
        WrongUsage: the model shows no weights.
    """
    parts = attentions(model)
    if not parts:
        raise WrongUsage(f"{type(model).__name__} shows no attention weights: it has no sites of that name.")
    of_encoder = [part for part in parts if part.startswith("encoder.")]
    return of_encoder or [part for part in parts if "cross_attention" not in part]


def _with_text(model: nn.Module, text: str) -> Given:
    if not isinstance(model, Pretrained):
        raise WrongUsage("a model of attnlab reads ids here, not text; give a tensor of them, (length,).")
    inputs = model.inputs(text)
    real = inputs.get("attention_mask")
    if real is not None and bool(real.all()):
        inputs.pop("attention_mask")  # nothing is padding: so no mask of all pairs is made
    return Given(inputs["input_ids"], (), dict(inputs))


def _with_ids(model: nn.Module, document: Tensor | Sequence[int]) -> Given:
    try:
        ids = document if isinstance(document, Tensor) else torch.tensor(list(document))
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise WrongUsage(f"a document is text or ids, (length,) or (1, length); got {document!r:.80}.") from None
    ids = ids.unsqueeze(0) if ids.dim() == 1 else ids
    if ids.dim() != 2 or ids.shape[0] != 1 or not ids.numel() or ids.is_floating_point() or ids.dtype == torch.bool:
        raise WrongUsage(f"a document is text or ids, (length,) or (1, length); got {shape_text(ids.shape)}.")
    target: tuple[Tensor, ...] = ()
    if isinstance(model, Pretrained) and "encoder" in model.plan.names:
        target = (ids[:, :1],)  # what the decoder reads, which is not looked at
    return Given(ids, (ids, *target), {})


def _made_for(model: nn.Module) -> int | None:
    config: Any = getattr(model, "config", None)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    most = getattr(config, "max_position_embeddings", None)
    return most if isinstance(most, int) and most > 0 else None
