"""A summarised document, opened from its folder: tables, summaries, measures, exact tiles of heads that were kept."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlab.display import Card, displayed
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.look.documents.storing import Folder
from attnlab.look.heads import head_name, layer_name
from attnlab.look.summaries import Summary, Zoom
from attnlab.look.summaries.question import FAR, Pattern

__all__ = ["Document", "open_document"]


@displayed
class Document:
    """What was found of every head over one document. Layers are read from disk when they are asked for.

    folder: where it is. length: how many tokens. model: what read it. parts: its attentions, those that are done.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = Folder(folder)
        state = self._files.read()
        try:
            self._layers: dict[str, dict[str, Any]] = state["layers"]
            self._names: dict[str, str] = state["names"]
            self.length, self.model, self.is_done = int(state["length"]), str(state["model"]), bool(state["is_done"])
            self.parts: tuple[str, ...] = tuple(part for part in state["parts"] if part in self._layers)
            self.unfinished = tuple(part for part in state["parts"] if part not in self._layers)
            self._sizes = {part: int(state["heads"][part]) for part in self.parts}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CouldNotRun(f"the document in {folder} is damaged: {error} is missing or odd.") from None

    def _card(self) -> Card:
        facts = [("layers", len(self.parts)), ("not done yet", len(self.unfinished)), ("folder", self.folder)]
        rows = self.table()
        columns = list(rows[0]) if rows else []
        return Card(
            f"Document of {self.length:,} tokens, read by {self.model}",
            facts,
            columns,
            [list(row.values()) for row in rows],
        )

    @property
    def tokens(self) -> list[str]:
        """What the positions are called."""
        import safetensors.torch

        try:
            ids = safetensors.torch.load_file(self.folder / "tokens.safetensors")["ids"][0].tolist()
            return [self._names[str(token)] for token in ids]
        except (OSError, KeyError, safetensors.SafetensorError) as error:
            raise CouldNotRun(f"could not read {self.folder / 'tokens.safetensors'}: {error}.") from None

    @property
    def kept(self) -> tuple[str, ...]:
        """The heads of which tiles can be made."""
        return tuple(
            head_name(part, head) for part in self.parts for head in self._layers[part].get("kept", {}).get("heads", ())
        )

    def table(self) -> list[dict[str, Any]]:
        """Return a row for each head, each measure its mean over the queries; distances in tokens, entropy in nats."""
        return [
            {"layer": layer_name(part), "head": head, **means}
            for part in self.parts
            for head, means in enumerate(self._layers[part]["heads"])
        ]

    def measure(self, name: str) -> Tensor:
        """Return one measure, (layer, head), such as "entropy"; NaN for heads that a layer does not have."""
        rows = [self._layers[part]["heads"] for part in self.parts]
        known = list(rows[0][0]) if rows else []
        if name not in known:
            raise WrongUsage(f"there is no measure {name!r}; {did_you_mean(name, known)}")
        most = max(map(len, rows))
        return torch.tensor([[*(each[name] for each in row), *[float("nan")] * (most - len(row))] for row in rows])

    def summary(self, layer: str | int) -> Summary:
        """Read a layer's summary: (head, query) and (head, query cell, key cell)."""
        found = self._tensors(self.part(layer))
        largest = found["largest"]
        effective = torch.where(largest == 0, 0.0 * largest, found["entropy"].exp())
        found["top_keys"] = found["top_keys"].long()
        return Summary(**{name: found.get(name, effective) for name in Summary._fields})

    def hidden(self, layer: str | int) -> Tensor | None:
        """Say of which cells of a layer's maps nothing could be looked at, (query cell, key cell); None for none."""
        return self._tensors(self.part(layer)).get("hidden")

    def zoom(self, head: str, *, side: int = 256) -> Zoom:
        """Open the pyramid over one head that was kept, such as "3.5": `zoom.tile(level, row, column)`.

        Raises:
            WrongUsage: it was not kept.
        """
        if head not in self.kept:
            known = ", ".join(self.kept) or "none"
            raise WrongUsage(f"the head {head} was not kept, so that no tiles can be made of it; kept: {known}.")
        part, number = next(
            (part, each) for part in self.parts for each in range(self._sizes[part]) if head_name(part, each) == head
        )
        told, found = self._layers[part]["kept"], self._tensors(part)
        mask: Pattern = found.get(f"mask.{number}", found.get("mask.0"))
        if mask is None and told["right"] == 0:
            mask = "causal" if told["left"] >= FAR else int(told["left"]) + 1
        return Zoom(
            found[f"query.{number}"], found[f"key.{number // told['share']}"], mask, scale=told["scale"], side=side
        )

    def part(self, layer: str | int) -> str:
        """Return the full name of a layer."""
        by_name: dict[str, str] = {layer_name(part): part for part in self.parts} | {part: part for part in self.parts}
        if str(layer) not in by_name:
            raise WrongUsage(f"there is no layer {layer!r} in this document; {did_you_mean(str(layer), by_name)}")
        return by_name[str(layer)]

    def heads(self, names: Sequence[str]) -> dict[str, list[int]]:
        """Find heads by their names: their parts, and their numbers there."""
        found: dict[str, list[int]] = {}
        known = {head_name(part, each): (part, each) for part in self.parts for each in range(self._sizes[part])}
        for name in names:
            if name not in known:
                raise WrongUsage(f"there is no head {name!r}; {did_you_mean(name, known)}")
            found.setdefault(known[name][0], []).append(known[name][1])
        return found

    def _tensors(self, part: str) -> dict[str, Tensor]:
        layer = self._layers[part]
        return self._files.get(layer["file"], layer["sha256"])


def open_document(folder: Path | str) -> Document:
    """Open what `summarise_document` wrote, also where it was stopped: then with the layers that are done.

    Raises:
        CouldNotRun: it is missing or damaged.
    """
    return Document(Path(folder))
