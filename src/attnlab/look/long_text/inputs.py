"""The inputs of a model for a long text: its ids, checked against the model's limits."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.heads import attentions
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.text import most_tokens
from attnlab.shapes import shape_text


@dataclass(frozen=True)
class Given:
    """The inputs of a model for a long text: ids (1, length), and its arguments in order and by
    name."""

    ids: Tensor
    arguments: tuple[Tensor, ...]
    options: dict[str, Any]

    @property
    def length(self) -> int:
        """The number of tokens."""
        return int(self.ids.shape[1])


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
        raise CouldNotRun(
            f"{file} is not UTF-8 (byte {error.start:,}); save it as UTF-8."
        ) from None
    if not text.strip():
        raise WrongUsage(f"{file} is empty; a document needs at least one word.")
    return text


def given(model: nn.Module, document: str | Tensor | Sequence[int], *, beyond: bool) -> Given:
    """Return a model's inputs for a long text.

    Args:
        model: ours or a foreign one with hook points.
        document: text, or ids (length,) or (1, length).
        beyond: allow more tokens than it was trained for.

    Raises:
        WrongUsage: no ids, several texts at once, or more tokens than the model was trained for.
    """
    found = _with_text(model, document) if isinstance(document, str) else _with_ids(model, document)
    check_ids(model, found.ids)
    foreign = _inner(model)
    most, made_for = most_tokens(foreign), _made_for(foreign)
    if most is not None and found.length > most:
        raise WrongUsage(
            f"the document has {found.length:,} tokens, and the model has {most:,} positions; "
            "it cannot read more."
        )
    if made_for is not None and found.length > made_for and not beyond:
        raise WrongUsage(
            f"the document has {found.length:,} tokens, and the model was made for {made_for:,}: "
            "it was not trained beyond them. Shorten it, or say beyond=True "
            "(--beyond) to read it all the same."
        )
    return found


def arguments_for(
    model: nn.Module, ids: Tensor, real: Tensor | None = None
) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """Return the arguments, in order and by name, with which a model reads ids (text, length).

    The decoder of a foreign encoder–decoder, which is not looked at, gets one token. `real` (text,
    length) is False at padding; a causal model of ours needs no mask, since padding comes last.
    """
    takes = inspect.signature(_inner(model).forward).parameters
    options: dict[str, Any] = _without_cache(model)
    if real is not None and (isinstance(model, Pretrained) or "real" in takes):
        options["real"] = real
    if isinstance(model, Pretrained) and "encoder" in model.structure.names:
        return (ids, ids[:, :1]), options
    return (ids,), options


def _without_cache(model: nn.Module) -> dict[str, Any]:
    takes = inspect.signature(_inner(model).forward).parameters
    return {"use_cache": False} if "use_cache" in takes else {}


def _inner(model: nn.Module) -> Any:
    return model.foreign if isinstance(model, Pretrained) else model


def check_ids(model: nn.Module, ids: Tensor) -> None:
    """Raise if a model has no embedding for an id.

    Raises:
        WrongUsage: with the id.
    """
    foreign = _inner(model)
    try:
        size = foreign.get_input_embeddings().num_embeddings
    except (AttributeError, NotImplementedError):
        size = getattr(getattr(foreign, "config", None), "vocab_size", None)
    if not isinstance(size, int) or not ids.numel():
        return
    for each in (int(ids.min()), int(ids.max())):
        if not 0 <= each < size:
            raise WrongUsage(
                f"ids are from 0 to {size - 1:,}, one for each token that the model knows; "
                f"got {each:,}."
            )


def parts_of(model: nn.Module) -> list[str]:
    """List the self-attentions that read a text: the encoder's if there is one, else all.

    Raises:
        WrongUsage: the model has no attention weights.
    """
    parts = attentions(model)
    if not parts:
        raise WrongUsage(
            f"{type(model).__name__} shows no attention weights: it has no sites of that name."
        )
    of_encoder = [part for part in parts if part.startswith("encoder.")]
    return of_encoder or [part for part in parts if "cross_attention" not in part]


def _with_text(model: nn.Module, text: str) -> Given:
    if not isinstance(model, Pretrained):
        raise WrongUsage(
            "a model of attnlab reads ids here, not text; give a tensor of them, (length,)."
        )
    inputs = model.inputs(text)
    real = inputs.get("attention_mask")
    if real is not None and bool(real.all()):
        inputs.pop("attention_mask")  # without padding the model need not make a mask of all pairs
    return Given(inputs["input_ids"], (), {**inputs, **_without_cache(model)})


def _with_ids(model: nn.Module, document: Tensor | Sequence[int]) -> Given:
    try:
        ids = document if isinstance(document, Tensor) else torch.tensor(list(document))
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise WrongUsage(
            f"a document is text or ids, (length,) or (1, length); got {document!r:.80}."
        ) from None
    ids = ids.unsqueeze(0) if ids.dim() == 1 else ids
    is_whole = not ids.is_floating_point() and ids.dtype != torch.bool
    if not is_whole or ids.dim() != 2 or ids.shape[0] != 1 or not ids.numel():
        raise WrongUsage(
            f"a document is text or ids, (length,) or (1, length); got {shape_text(ids.shape)}."
        )
    return Given(ids, *arguments_for(model, ids))


def _made_for(model: nn.Module) -> int | None:
    config: Any = getattr(model, "config", None)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    most = getattr(config, "max_position_embeddings", None)
    return most if isinstance(most, int) and most > 0 else None
