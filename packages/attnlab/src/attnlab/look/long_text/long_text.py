"""A summarized long text, opened from its folder: tables, summaries, measures.

Each file is written atomically, document.json last:

document.json        the text, the model, the settings; each layer with its checksum
tokens.safetensors   the ids
layers/000.safetensors …   the summaries
"""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attnlab.core import store
from attnlab.core.store import JsonObject
from attnlab.display import Card, displayed
from attnlab.errors import require_known
from attnlab.look.heads import layer_name, parts_by_name
from attnlab.look.summaries import Summary


@displayed
class Document:
    """The summaries of every head over one long text. Layers are read from disk on demand.

    folder: its folder. length: how many tokens. model: its name. parts: the attentions.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = Folder(folder)
        state = self._files.read()
        with store.refusing_damage(f"the document in {folder}"):
            self._layers: dict[str, JsonObject] = state["layers"]
            self._names: dict[str, str] = state["names"]
            self.length, self.model = int(state["length"]), str(state["model"])
            self.parts = tuple(self._layers)

    def _card(self) -> Card:
        facts = [("layers", len(self.parts)), ("folder", self.folder)]
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
    """Open the folder of a long text.

    Raises:
        CouldNotRun: it is missing or damaged.
    """
    return Document(Path(folder))


class Folder(store.StateFolder):
    """Reads and writes the files of one long text."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "document.json", "attnlab document 1", "document")
