"""Text as input of a foreign model: ids, the attention mask, and what else its tokenizer makes."""

import inspect
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.pretrained.tokenization import tokenized

__all__ = [
    "TextModel",
    "most_tokens",
    "start_of",
    "stops_of",
    "target_ids",
    "text_config",
    "text_inputs",
]

_FILLS = {"attention_mask": 0, "token_type_ids": 0}  # values at padding


class TextModel(Protocol):
    """The part of a pretrained model that this file needs."""

    foreign: nn.Module
    tokenizer: Any
    name: str


def text_inputs(
    model: TextModel,
    text: str | Sequence[str],
    pair: str | Sequence[str] | None = None,
    *,
    target: str | Sequence[str] | None = None,
) -> dict[str, Tensor]:
    """Return what a model takes by name: each (batch, length), shorter texts padded on the right.

    Args:
        text: one text or several.
        pair: the second text of each, for models that read two.
        target: what the decoder of an encoder–decoder reads after the start token; None for the
            start token alone.

    Raises:
        CouldNotRun: the model has no tokenizer.
        WrongUsage: an empty text, one too long for the model, or a model that reads no text.
    """
    foreign, tokenizer = model.foreign, _tokenizer_of(model)
    texts = _listed(text, "text")
    pairs = [None] * len(texts) if pair is None else _listed(pair, "pair")
    if len(pairs) != len(texts):
        raise WrongUsage(f"{len(texts)} texts need as many second ones; got {len(pairs)}.")
    takes = inspect.signature(foreign.forward).parameters
    rows = [
        tokenized(tokenizer, one, other, verbose=False)
        for one, other in zip(texts, pairs, strict=True)
    ]
    named = {name for name in rows[0] if name in takes or name == "input_ids"}
    lengths = [len(row["input_ids"]) for row in rows]
    _check_lengths(model, lengths, texts)
    device = next((each.device for each in foreign.parameters()), torch.device("cpu"))
    found = {
        name: _padded([row[name] for row in rows], _FILLS.get(name, _pad_id(tokenizer)), device)
        for name in sorted(named)
    }
    if getattr(getattr(foreign, "config", None), "is_encoder_decoder", False):
        start = start_of(model)
        ids = [[start] for _ in texts]
        if target is not None:
            ids = [[start, *target_ids(model, each)] for each in _listed(target, "target")]
        found["decoder_input_ids"] = _padded(ids, _pad_id(tokenizer), device)
    elif target is not None:
        raise WrongUsage(
            f"{model.name} has no decoder beside its encoder; put everything it should read into "
            "the text."
        )
    return found


def target_ids(model: TextModel, text: str) -> list[int]:
    """Return the ids of an answer, without the token that ends it."""
    ids = [int(each) for each in tokenized(_tokenizer_of(model), text_target=text)["input_ids"]]
    return ids[:-1] if ids and ids[-1] in stops_of(model) else ids


def most_tokens(model: nn.Module) -> int | None:
    """Return how many tokens a foreign model can read, the number of its positions; None without a
    limit."""
    config = text_config(model)
    most = getattr(config, "max_position_embeddings", None)
    is_rotary = getattr(config, "rope_parameters", None) is not None
    if not isinstance(most, int) or most < 1 or is_rotary:
        return None
    for name, module in model.named_modules():
        if "position" not in name or not isinstance(module, nn.Embedding):
            continue
        if module.padding_idx is not None:  # positions are counted from the one after padding
            return min(most, module.num_embeddings - module.padding_idx - 1)
    return most


def text_config(model: nn.Module) -> Any:
    """Return the config of the part of a foreign model that reads text, or None."""
    config: Any = getattr(model, "config", None)
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def start_of(model: TextModel) -> int:
    """Return the id that a decoder starts from.

    Raises:
        CouldNotRun: the model does not say.
    """
    for settings in _settings(model):
        for name in ("decoder_start_token_id", "bos_token_id"):
            if isinstance(token := getattr(settings, name, None), int):
                return token
    raise CouldNotRun(
        f"{model.name} does not say which token its decoder starts from; give decoder_input_ids."
    )


def stops_of(model: TextModel) -> frozenset[int]:
    """Return the ids that end an answer."""
    for settings in _settings(model):
        token = getattr(settings, "eos_token_id", None)
        if token is not None:
            return frozenset(token) if isinstance(token, list | tuple) else frozenset((int(token),))
    return frozenset()


def _settings(model: TextModel) -> list[Any]:
    found = [getattr(model.foreign, name, None) for name in ("generation_config", "config")]
    return [each for each in found if each is not None]


def _tokenizer_of(model: TextModel) -> Any:
    main = getattr(model.foreign, "main_input_name", "input_ids")
    if main != "input_ids":
        raise WrongUsage(
            f"{model.name} reads {main}, not text; give it as a tensor: model({main}=...)."
        )
    if model.tokenizer is None:
        raise CouldNotRun(
            f"{model.name} came without a tokenizer, so text cannot be read: give ids of shape "
            "(batch, length), or a tokenizer of transformers with attnlab.load(model, "
            "tokenizer=...)."
        )
    return model.tokenizer


def _listed(text: str | Sequence[str], what: str) -> list[str]:
    texts = [text] if isinstance(text, str) else text
    if not isinstance(texts, Sequence) or not texts or any(not isinstance(t, str) for t in texts):
        raise WrongUsage(f"the {what} is one text or several; got {text!r:.80}.")
    if any(not each.strip() for each in texts):
        raise WrongUsage(f"the {what} is empty; give at least one word.")
    return list(texts)


def _check_lengths(model: TextModel, lengths: Sequence[int], texts: Sequence[str]) -> None:
    if not min(lengths):
        raise WrongUsage(
            f"the tokenizer of {model.name} finds no token in {texts[lengths.index(0)]!r:.80}."
        )
    most = most_tokens(model.foreign)
    if most is not None and max(lengths) > most:
        raise WrongUsage(
            f"the text has {max(lengths):,} tokens, and {model.name} reads at most {most:,}, "
            "special ones included; shorten it."
        )


def _pad_id(tokenizer: Any) -> int:
    found = [each for each in (tokenizer.pad_token_id, tokenizer.eos_token_id) if each is not None]
    return int(found[0]) if found else 0  # without a padding token any will do: it is masked


def _padded(rows: Sequence[Sequence[int]], fill: int, device: torch.device) -> Tensor:
    length = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (length - len(row))] for row in rows], device=device)
