"""The folder of a long text: one file for each layer, written atomically when the layer is done.

document.json        the text, the model, the settings; each finished layer with its checksum
tokens.safetensors   the ids
layers/000.safetensors …   the summaries; also queries and keys of kept heads
stream.safetensors   while unfinished: the residual stream after the last finished block
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.core.store import StateFolder, read_header, read_tensors, write_tensors
from attnlab.errors import CouldNotRun
from attnlab.pretrained.model import Pretrained

FORMAT = "attnlab document 1"
_STREAM = "stream.safetensors"
_PIECE = 2**24  # numbers of a model that are hashed together
_IRRELEVANT = ("_", "transformers_version", "name_or_path")


class Folder(StateFolder):
    """Reads and writes the files of one long text."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "document.json", FORMAT, "document")

    def keep_stream(self, block: str, stream: Tensor) -> None:
        """Write the residual stream after a block, in place of the one before."""
        write_tensors(self.path / _STREAM, {"stream": stream}, {"after": block})

    def stream(self) -> tuple[str, Tensor] | None:
        """Return the block after which the stream was written, and the stream; None without a whole
        one."""
        try:
            _, metadata = read_header(self.path / _STREAM)
            return metadata["after"], read_tensors(self.path / _STREAM)["stream"]
        except (CouldNotRun, KeyError):
            return None

    def forget_stream(self) -> None:
        """Remove the stream, which is no longer needed."""
        (self.path / _STREAM).unlink(missing_ok=True)


@torch.no_grad()
def fingerprint(model: nn.Module) -> str:
    """Return a digest of a model's weights and config, without its place and implementation."""
    config: Any = getattr(model.foreign if isinstance(model, Pretrained) else model, "config", None)
    settings = _lasting(config.to_dict()) if hasattr(config, "to_dict") else repr(config)
    found = hashlib.sha256(json.dumps(settings, default=lambda each: type(each).__name__).encode())
    seen: set[int] = set()  # tied weights are hashed once
    for name, value in model.state_dict(keep_vars=True).items():
        if isinstance(value, Tensor) and id(value) not in seen:
            seen.add(id(value))
            found.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
            for piece in torch.split(value.detach().reshape(-1), _PIECE):
                found.update(piece.cpu().view(torch.uint8).numpy().data)
    return found.hexdigest()


def _lasting(settings: Any) -> Any:
    """Return a config in a fixed order, without the entries that do not affect results."""
    if isinstance(settings, Mapping):
        named = sorted((str(name), value) for name, value in settings.items())
        return {name: _lasting(value) for name, value in named if not name.startswith(_IRRELEVANT)}
    return [_lasting(each) for each in settings] if isinstance(settings, list | tuple) else settings
