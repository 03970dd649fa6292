"""A summarized long text, opened from its folder: tables, summaries, measures, exact tiles of kept
heads."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlab.core.store import read_tensors, refusing_damage
from attnlab.display import Card, displayed
from attnlab.errors import WrongUsage, did_you_mean
from attnlab.look.heads import head_name, heads_named, layer_name, parts_by_name
from attnlab.look.long_text.files import Folder
from attnlab.look.summaries import Summary, Zoom
from attnlab.look.summaries.question import FAR, Pattern


@displayed
class Document:
    """The summaries of every head over one long text. Layers are read from disk on demand.

    folder: its folder. length: how many tokens. model: its name. parts: the finished attentions.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = Folder(folder)
        state = self._files.read()
        with refusing_damage(f"the document in {folder}"):
            self._layers: dict[str, dict[str, Any]] = state["layers"]
            self._names: dict[str, str] = state["names"]
            self.length, self.model = int(state["length"]), str(state["model"])
            self.is_done = bool(state["is_done"])
            parts = list(state["parts"])
            self.parts: tuple[str, ...] = tuple(part for part in parts if part in self._layers)
            self.unfinished = tuple(part for part in parts if part not in self._layers)
            self._sizes = {part: int(state["heads"][part]) for part in self.parts}

    def _card(self) -> Card:
        facts = [
            ("layers", len(self.parts)),
            ("not done yet", len(self.unfinished)),
            ("folder", self.folder),
        ]
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
        """The names of the tokens."""
        file = self.folder / "tokens.safetensors"
        with refusing_damage(str(file)):
            ids = read_tensors(file)["ids"][0].tolist()
            return [self._names[str(token)] for token in ids]

    @property
    def kept(self) -> tuple[str, ...]:
        """The heads whose tiles can be computed."""
        return tuple(
            head_name(part, head)
            for part in self.parts
            for head in self._layers[part].get("kept", {}).get("heads", ())
        )

    def table(self) -> list[dict[str, Any]]:
        """Return a row for each head with each measure's mean over the queries; distances in
        tokens, entropy in nats."""
        return [
            {"layer": layer_name(part), "head": head, **means}
            for part in self.parts
            for head, means in enumerate(self._layers[part]["heads"])
        ]

    def measure(self, name: str) -> Tensor:
        """Return one measure, (layer, head), such as "entropy"; NaN for heads that a layer does not
        have."""
        rows = [self._layers[part]["heads"] for part in self.parts]
        known = list(rows[0][0]) if rows else []
        if name not in known:
            raise WrongUsage(f"there is no measure {name!r}; {did_you_mean(name, known)}")
        found = torch.full((len(rows), max(map(len, rows))), float("nan"))
        for index, row in enumerate(rows):
            found[index, : len(row)] = torch.tensor([each[name] for each in row])
        return found

    def summary(self, layer: str | int) -> Summary:
        """Read a layer's summary: (head, query) and (head, query cell, key cell)."""
        found = self._tensors(self.part(layer))
        largest = found["largest"]
        effective = torch.where(largest == 0, 0.0 * largest, found["entropy"].exp())
        found["top_keys"] = found["top_keys"].long()
        return Summary(**{name: found.get(name, effective) for name in Summary._fields})

    def hidden(self, layer: str | int) -> Tensor | None:
        """Return which cells of a layer's maps are wholly masked, (query cell, key cell); None for
        none."""
        return self._tensors(self.part(layer)).get("hidden")

    def zoom(self, head: str, *, side: int = 256) -> Zoom:
        """Open the pyramid of tiles of a kept head, such as "3.5": `zoom.tile(level, row, column)`.

        Raises:
            WrongUsage: it was not kept.
        """
        if head not in self.kept:
            known = ", ".join(self.kept) or "none"
            raise WrongUsage(
                f"the head {head} was not kept, so its tiles cannot be computed; kept: {known}."
            )
        ((part, (number,)),) = self.heads([head]).items()
        told, found = self._layers[part]["kept"], self._tensors(part)
        mask: Pattern = found.get(f"mask.{number}", found.get("mask.0"))
        if mask is None and told["right"] == 0:
            mask = "causal" if told["left"] >= FAR else int(told["left"]) + 1
        return Zoom(
            found[f"query.{number}"],
            found[f"key.{number // told['share']}"],
            mask,
            scale=told["scale"],
            side=side,
        )

    def part(self, layer: str | int) -> str:
        """Return the full name of a layer."""
        by_name = parts_by_name(self.parts)
        if str(layer) not in by_name:
            raise WrongUsage(
                f"there is no layer {layer!r} in this document; {did_you_mean(str(layer), by_name)}"
            )
        return by_name[str(layer)]

    def heads(self, names: Sequence[str]) -> dict[str, list[int]]:
        """Find heads by their names: their parts, and their numbers there."""
        return heads_named(names, self._sizes)

    def _tensors(self, part: str) -> dict[str, Tensor]:
        layer = self._layers[part]
        return self._files.get(layer["file"], layer["sha256"])


def open_document(folder: Path | str) -> Document:
    """Open the folder of a long text; of an unfinished one, the finished layers.

    Raises:
        CouldNotRun: it is missing or damaged.
    """
    return Document(Path(folder))
