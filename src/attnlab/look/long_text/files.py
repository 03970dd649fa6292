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

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun
from attnlab.files import explained, read_json, write_bytes, write_json
from attnlab.pretrained.model import Pretrained

__all__ = ["FORMAT", "Folder", "fingerprint"]

FORMAT = "attnlab document 1"
_STREAM = "stream.safetensors"
_PIECE = 2**24  # numbers of a model that are hashed together
_IRRELEVANT = ("_", "transformers_version", "name_or_path")


class Folder:
    """Reads and writes the files of one long text."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def is_there(self) -> bool:
        """Whether the folder holds a long text, finished or not."""
        return (self.path / "document.json").is_file()

    def make(self) -> None:
        """Create the folder."""
        with explained(self.path):
            (self.path / "layers").mkdir(parents=True, exist_ok=True)

    def read(self) -> dict[str, Any]:
        """Read the state.

        Raises:
            CouldNotRun: it is missing, damaged or something else.
        """
        if not self.is_there:
            raise CouldNotRun(f"there is no document in {self.path}: document.json is missing.")
        found = read_json(self.path / "document.json")
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise CouldNotRun(
                f"{self.path / 'document.json'} is no document: it does not say {FORMAT!r}."
            )
        return found

    def write(self, state: Mapping[str, Any]) -> None:
        """Replace the state."""
        write_json(self.path / "document.json", {"format": FORMAT, **state})

    def put(
        self, name: str, tensors: Mapping[str, Tensor], told: Mapping[str, str] | None = None
    ) -> str:
        """Write tensors into a file, and return its checksum."""
        content = safetensors.torch.save(
            {key: each.detach().cpu().contiguous() for key, each in tensors.items()},
            dict(told) if told else None,
        )
        write_bytes(self.path / name, content)
        return hashlib.sha256(content).hexdigest()

    def get(self, name: str, digest: str) -> dict[str, Tensor]:
        """Read the tensors of a file.

        Raises:
            CouldNotRun: it is missing or damaged.
        """
        try:
            content = (self.path / name).read_bytes()
        except OSError as error:
            raise CouldNotRun(
                f"could not read {self.path / name}: {error.strerror or error}."
            ) from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise CouldNotRun(
                f"{self.path / name} is damaged: its checksum is not the one in document.json."
            )
        try:
            found: dict[str, Tensor] = safetensors.torch.load(content)
        except safetensors.SafetensorError as error:
            raise CouldNotRun(f"could not read {self.path / name}: {error}.") from None
        return found

    def keep_stream(self, block: str, stream: Tensor) -> None:
        """Write the residual stream after a block, in place of the one before."""
        self.put(_STREAM, {"stream": stream}, {"after": block})

    def stream(self) -> tuple[str, Tensor] | None:
        """Return the block after which the stream was written, and the stream; None without a whole
        one."""
        try:
            with safetensors.safe_open(str(self.path / _STREAM), framework="pt") as opened:
                return (opened.metadata() or {})["after"], opened.get_tensor("stream")
        except (OSError, KeyError, safetensors.SafetensorError):
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
