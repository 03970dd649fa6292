"""A small input for a foreign model, made from its config, for tracing without an example."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import seeds
from attnlab.errors import WrongUsage

__all__ = ["probe_inputs"]

_LENGTH, _TARGET_LENGTH = 11, 7  # two lengths, so that a cross-attention shows by its shape


def probe_inputs(model: nn.Module) -> dict[str, Any]:
    """Return inputs for `model(**inputs)`: token ids, and a picture, sound or a target if it takes
    them.

    Raises:
        WrongUsage: the config does not say what the model takes; give `example=`.
    """
    takes = inspect.signature(model.forward).parameters
    config = getattr(model, "config", None)
    source = seeds.generator(0, "pretrained", "probe")
    main = getattr(model, "main_input_name", "input_ids")
    inputs: dict[str, Any] = {}
    if main == "pixel_values" and config is not None:
        inputs[main] = _picture(config, source)
    elif main == "input_features" and config is not None:
        length = 2 * _setting(config, "max_source_positions", 16)
        inputs[main] = torch.randn(
            1, _setting(config, "num_mel_bins", 80), length, generator=source
        )
    elif main == "input_values":
        inputs[main] = torch.randn(1, 4000, generator=source)
    elif main in takes or "input_ids" in takes:
        inputs["input_ids"] = _ids(config, _LENGTH, source)
        vision = getattr(config, "vision_config", None)
        if "pixel_values" in takes and vision is not None and _is_dual(model):
            inputs["pixel_values"] = _picture(vision, source)
    else:
        raise WrongUsage(
            f"{type(model).__name__} takes ({', '.join(takes)}), and its config does not say what "
            "these are; give an example of its inputs: attnlab.load(model, example={...})."
        )
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in takes:
        inputs["decoder_input_ids"] = _ids(config, _TARGET_LENGTH, source)
    if "use_cache" in takes:
        inputs["use_cache"] = False
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    dtype = next(
        (each.dtype for each in model.parameters() if each.is_floating_point()), torch.float32
    )
    return {name: _moved(each, device, dtype) for name, each in inputs.items()}


def _is_dual(model: nn.Module) -> bool:
    """Do text and picture have encoders of their own, as in CLIP?"""
    return hasattr(model, "vision_model") and hasattr(model, "text_model")


def _picture(config: Any, source: torch.Generator) -> Tensor:
    size = _setting(config, "image_size", 32)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return torch.randn(1, _setting(config, "num_channels", 3), height, width, generator=source)


def _ids(config: Any, length: int, source: torch.Generator) -> Tensor:
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    size = _setting(text, "vocab_size", 2)
    special: set[Any] = set()
    for name in ("pad", "bos", "eos"):  # several tokens may end a text, as in instruct models
        token = getattr(text, f"{name}_token_id", None)
        special.update(token if isinstance(token, list | tuple) else [token])
    size = min(size, 1000)
    usual = [token for token in range(size) if token not in special] or list(range(size))
    return torch.tensor(usual)[torch.randint(len(usual), (1, length), generator=source)]


def _setting(config: Any, name: str, otherwise: Any) -> Any:
    found = getattr(config, name, None)
    return otherwise if found is None else found


def _moved(value: Any, device: torch.device, dtype: torch.dtype) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.to(device, dtype) if value.is_floating_point() else value.to(device)
