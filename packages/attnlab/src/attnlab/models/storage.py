"""Saving and loading: `model.safetensors` for the numbers, `config.json` for the shape. Never
pickle.

What a file claims is held against what its config implies, names, shapes and dtypes, before memory
is taken or a single number is read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.configs import Config
from attnlab.core.sizes import count_bytes
from attnlab.core.store import (
    StoredTensor,
    make_folder,
    read_header,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
)
from attnlab.errors import AttnlabError, CouldNotRun
from attnlab.models.decoder import Decoder, DecoderConfig
from attnlab.models.encoder import Encoder, EncoderConfig
from attnlab.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from attnlab.models.single_head import SingleHead, SingleHeadConfig
from attnlab.sites import require_model

MODELS: dict[str, tuple[type[nn.Module], type[Config]]] = {
    "decoder": (Decoder, DecoderConfig),
    "encoder": (Encoder, EncoderConfig),
    "encoder_decoder": (EncoderDecoder, EncoderDecoderConfig),
    "single_head": (SingleHead, SingleHeadConfig),
}

_DTYPES = ("float64", "float32", "float16", "bfloat16")


def describe_model(model: nn.Module) -> dict[str, Any]:
    """Return what `config.json` says of a model: its kind, its config and its dtype."""
    kinds: dict[Any, str] = {model_class: kind for kind, (model_class, _) in MODELS.items()}
    if type(model) not in kinds:
        known = ", ".join(kind.__name__ for kind in kinds)
        raise CouldNotRun(
            f"only these models can be saved: {known}; got {type(model).__name__}. Keep the "
            'weights of another by torch.save(model.state_dict(), "model.pt").'
        )
    config: Any = model.config
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    return {"kind": kinds[type(model)], "dtype": dtype, "config": config.to_mapping()}


def build_model(description: Any) -> nn.Module:
    """Build the model that a description names, with fresh weights."""
    fields = description if isinstance(description, dict) else {}
    kind, config, dtype = fields.get("kind"), fields.get("config"), fields.get("dtype", "float32")
    try:
        if kind not in list(MODELS) or not isinstance(config, dict) or dtype not in _DTYPES:
            raise CouldNotRun(
                f"expected kind to be one of {', '.join(MODELS)}, config an object and a "
                f"floating-point dtype; got {kind!r} and {dtype!r}."
            )
        model_class, config_class = MODELS[kind]
        return model_class(config_class.from_mapping(config)).to(getattr(torch, dtype))
    except AttnlabError as error:
        raise CouldNotRun(f"the model's description is not usable: {error}") from None


def save_model(model: nn.Module, folder: Path | str) -> Path:
    """Write `config.json` and `model.safetensors` into a folder.

    Args:
        model: one of attnlab's, such as a `Decoder`.
        folder: made if it is not there.

    Returns:
        the folder.

    Raises:
        WrongUsage: a model of another kind.
        CouldNotRun: the folder cannot be written.

    >>> import attnlab, torch
    >>> model = attnlab.Decoder(attnlab.DecoderConfig()).eval()
    >>> tokens = torch.tensor([[3, 1, 2, 0]])
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = attnlab.load(save_model(model, folder))
    >>> bool((again(tokens) == model(tokens)).all())
    True
    """
    require_model(model)
    folder, description = Path(folder), describe_model(model)
    make_folder(folder)
    save_weights(model, folder / "model.safetensors")
    write_json(folder / "config.json", {"model": description})
    return folder


def load_model(folder: Path | str) -> nn.Module:
    """Read a model back from a folder, a saved model's or a run's; it comes in evaluation mode.

    Raises:
        CouldNotRun: a file is missing, damaged, or not what the config implies (every difference is
            named).
    """
    folder = Path(folder)
    settings = read_json(folder / "config.json")
    if not isinstance(settings, dict) or "model" not in settings:
        raise CouldNotRun(f"{folder / 'config.json'} describes no model.")
    with torch.device("meta"):
        # shapes alone: no config, however large, takes memory here
        sketch = build_model(settings["model"])
    path = folder / "model.safetensors"
    _compare(sketch, path)
    try:
        model, values = build_model(settings["model"]), read_tensors(path)
        _check_finite(values, path)
        model.load_state_dict(values)
    except (MemoryError, RuntimeError) as error:
        # The sketch of the same description was built and fits the file, so only the memory can be
        # at fault.
        if isinstance(error, AttnlabError):
            raise
        size = count_bytes(sketch.state_dict().values())
        raise CouldNotRun(
            f"there is not enough memory for the model in {folder}: it takes {size:,} bytes."
        ) from None
    return model.eval()


def save_weights(model: nn.Module, path: Path) -> None:
    """Write a model's parameters and buffers in one step; the same numbers always give the same
    bytes."""
    write_tensors(path, model.state_dict())


def _check_finite(values: Mapping[str, Tensor], path: Path) -> None:
    for name, value in values.items():
        if not bool(torch.isfinite(value).all()):
            raise CouldNotRun(
                f"{path}: {name} holds NaN or infinity; the file is damaged or its training broke."
            )


def _compare(model: nn.Module, path: Path) -> None:
    """Compare the header of a file with a model, name by name; no number is read."""
    header, _ = read_header(path)
    expected = {
        name: StoredTensor(str(value.dtype).removeprefix("torch."), tuple(value.shape))
        for name, value in model.state_dict().items()
    }
    differences = [f"{name} is missing" for name in expected if name not in header]
    for name, stored in header.items():
        if name not in expected:
            differences.append(f"{name} is not of this model")
        elif stored != (wanted := expected[name]):
            stored_form = f"{name} is {stored.shape} of {stored.dtype}"
            differences.append(f"{stored_form}, expected {wanted.shape} of {wanted.dtype}")
    if differences:
        raise CouldNotRun(f"{path} does not fit its config: {'; '.join(differences)}.")
