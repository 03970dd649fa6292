"""The small input by which a model of transformers is traced, made from its config."""

import inspect
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import seeds
from attnlab.errors import WrongUsage
from attnlab.pretrained.text import device_of
from attnlab.pretrained.tracing import Inputs

_LENGTH, _TARGET_LENGTH = 11, 7  # two lengths, so that a cross-attention shows by its shape


def probe_inputs(model: nn.Module) -> Inputs:
    """Return inputs for `model(**inputs)`: token ids, and a picture, sound or a target if it takes
    them.

    Raises:
        WrongUsage: the config does not say what the model takes; give `example=`.
    """
    takes = inspect.signature(model.forward).parameters
    config = getattr(model, "config", None)
    source = seeds.generator(0, "pretrained", "probe")
    inputs = _first_inputs(model, takes, source)
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in takes:
        inputs["decoder_input_ids"] = _ids(config, _TARGET_LENGTH, source)
    weights: list[Tensor] = [*model.parameters(), torch.empty(0)]
    dtype = next(weight.dtype for weight in weights if weight.is_floating_point())
    for name, value in inputs.items():
        if value.is_floating_point():
            value = value.to(dtype)
        inputs[name] = value.to(device_of(model))
    return {**inputs, "use_cache": False} if "use_cache" in takes else inputs


def _first_inputs(model: Any, takes: Collection[str], source: torch.Generator) -> dict[str, Tensor]:
    """Return the input that a model takes first, and what belongs to it."""
    config = getattr(model, "config", None)
    main = getattr(model, "main_input_name", "input_ids")
    if main == "pixel_values" and config is not None:
        return {main: _picture(config, source)}
    if main == "input_features" and config is not None:
        bins = _setting(config, "num_mel_bins", 80)
        length = 2 * _setting(config, "max_source_positions", 16)
        return {main: torch.randn(1, bins, length, generator=source)}
    if main == "input_values":
        return {main: torch.randn(1, 4000, generator=source)}
    if main not in takes and "input_ids" not in takes:
        raise WrongUsage(
            f"{type(model).__name__} takes ({', '.join(takes)}), and its config does not say what "
            "these are; give an example of its inputs: attnlab.load(model, example={...})."
        )
    inputs = {"input_ids": _ids(config, _LENGTH, source)}
    if _reads_pictures_too(model) and "pixel_values" in takes:
        inputs["pixel_values"] = _picture(model.config.vision_config, source)
    return inputs


def _reads_pictures_too(model: Any) -> bool:
    """Have text and picture encoders of their own, as in CLIP; not a chat model's?"""
    config = getattr(model, "config", None)
    if getattr(config, "vision_config", None) is None or hasattr(config, "image_token_id"):
        return False
    return hasattr(model, "vision_model") and hasattr(model, "text_model")


def _picture(config: Any, source: torch.Generator) -> Tensor:
    size = _setting(config, "image_size", 32)
    if not isinstance(size, list | tuple):
        size = (size, size)
    height, width = size
    return torch.randn(1, _setting(config, "num_channels", 3), height, width, generator=source)


def _ids(config: Any, length: int, source: torch.Generator) -> Tensor:
    text = config
    if hasattr(config, "get_text_config"):
        text = config.get_text_config()
    special: set[Any] = {getattr(config, "image_token_id", None)}  # it needs an image
    for name in ("pad", "bos", "eos"):  # several tokens may end a text, as in instruct models
        token = getattr(text, f"{name}_token_id", None)
        if isinstance(token, list | tuple):
            special.update(token)
        else:
            special.add(token)
    known = range(min(_setting(text, "vocab_size", 2), 1000))
    usual = [token for token in known if token not in special] or list(known)
    return torch.tensor(usual)[torch.randint(len(usual), (1, length), generator=source)]


def _setting(config: Any, name: str, otherwise: Any) -> Any:
    value = getattr(config, name, None)
    return otherwise if value is None else value
