"""A summarized long text, opened from its folder: tables, summaries, measures.

Each file is written atomically when its layer is done:

document.json        the text, the model, the settings; each finished layer with its checksum
tokens.safetensors   the ids
layers/000.safetensors …   the summaries
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from attnlab.core import store
from attnlab.core.store import JsonObject
from attnlab.display import Card, displayed
from attnlab.errors import require_known
from attnlab.look.heads import layer_name, parts_by_name
from attnlab.look.inputs import foreign_of
from attnlab.look.summaries import Summary

_PIECE = 2**24  # numbers of a model that are hashed together
_IRRELEVANT = ("_", "transformers_version", "name_or_path")


@displayed
class Document:
    """The summaries of every head over one long text. Layers are read from disk on demand.

    folder: its folder. length: how many tokens. model: its name. parts: the finished attentions.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = document_folder(folder)
        state = self._files.read()
        with store.refusing_damage(f"the document in {folder}"):
            self._layers: dict[str, JsonObject] = state["layers"]
            self._names: dict[str, str] = state["names"]
            self.length, self.model = int(state["length"]), str(state["model"])
            self.is_done = bool(state["is_done"])
            parts = list(map(str, state["parts"]))
            self.parts = tuple(part for part in parts if part in self._layers)
            self.unfinished = tuple(part for part in parts if part not in self._layers)

    def _card(self) -> Card:
        undone = ("not done yet", len(self.unfinished))
        facts = [("layers", len(self.parts)), undone, ("folder", self.folder)]
        title = f"Document of {self.length:,} tokens, read by {self.model}"
        rows = self.table()
        columns = list(rows[0]) if rows else []
        return Card(title, facts, columns, [list(row.values()) for row in rows])

    @property
    def tokens(self) -> list[str]:
        """The names of the tokens."""
        file = self.folder / "tokens.safetensors"
        with store.refusing_damage(str(file)):
            ids = store.read_tensors(file)["ids"][0].tolist()
            return [self._names[str(token)] for token in ids]

    def table(self) -> list[JsonObject]:
        """Return a row for each head with each measure's mean over the queries; distances in
        tokens, entropy in nats."""
        rows = []
        for part in self.parts:
            for head, means in enumerate(self._layers[part]["heads"]):
                rows.append({"layer": layer_name(part), "head": head, **means})
        return rows

    def measure(self, name: str) -> Tensor:
        """Return one measure, (layer, head), such as "entropy"; NaN for heads that a layer does not
        have."""
        layers = [self._layers[part]["heads"] for part in self.parts]
        require_known("measure", name, layers[0][0] if layers else ())
        values = []
        for heads in layers:
            values.append(torch.tensor([means[name] for means in heads]))
        return pad_sequence(values, batch_first=True, padding_value=float("nan"))

    def summary(self, layer: str | int) -> Summary:
        """Read a layer's summary: (head, query) and (head, query cell, key cell)."""
        tensors = self._tensors(self.part(layer))
        largest = tensors["largest"]
        effective = torch.where(largest == 0, 0.0 * largest, tensors["entropy"].exp())
        tensors["top_keys"] = tensors["top_keys"].long()
        return Summary(**{name: tensors.get(name, effective) for name in Summary._fields})

    def hidden(self, layer: str | int) -> Tensor | None:
        """Return which cells of a layer's maps are wholly masked, (query cell, key cell); None for
        none."""
        return self._tensors(self.part(layer)).get("hidden")

    def part(self, layer: str | int) -> str:
        """Return the full name of a layer."""
        by_name = parts_by_name(self.parts)
        if str(layer) not in by_name:
            require_known("layer", layer, by_name)
        return by_name[str(layer)]

    def _tensors(self, part: str) -> dict[str, Tensor]:
        return self._files.get(self._layers[part]["file"], self._layers[part]["sha256"])


def open_document(folder: Path | str) -> Document:
    """Open the folder of a long text; of an unfinished one, the finished layers.

    Raises:
        CouldNotRun: it is missing or damaged.
    """
    return Document(Path(folder))


def document_folder(path: Path) -> store.StateFolder:
    """Return the folder of one long text."""
    return store.StateFolder(path, "document.json", "attnlab document 1", "document")


@torch.no_grad()
def fingerprint(model: nn.Module) -> str:
    """Return a digest of a model's weights and config, without its place and implementation."""
    config: Any = getattr(foreign_of(model), "config", None)
    settings = _lasting(config.to_dict()) if hasattr(config, "to_dict") else repr(config)
    digest = hashlib.sha256(
        json.dumps(settings, default=lambda value: type(value).__name__).encode()
    )
    seen: set[int] = set()  # tied weights are hashed once
    for name, value in model.state_dict(keep_vars=True).items():
        if isinstance(value, Tensor) and id(value) not in seen:
            seen.add(id(value))
            digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
            for piece in torch.split(value.detach().reshape(-1), _PIECE):
                digest.update(piece.cpu().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _lasting(settings: Any) -> Any:
    """Return a config in a fixed order, without the entries that do not affect results."""
    if isinstance(settings, Mapping):
        named = sorted((str(name), value) for name, value in settings.items())
        return {name: _lasting(value) for name, value in named if not name.startswith(_IRRELEVANT)}
    return list(map(_lasting, settings)) if isinstance(settings, list | tuple) else settings
