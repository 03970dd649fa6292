"""The instrument that summarises a document while a model reads it, and writes each layer down when it is done."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from attnlab.errors import CouldNotRun
from attnlab.look.documents.budget import check_open, check_room_for
from attnlab.look.documents.storing import Folder
from attnlab.look.summaries import Summarise, Summary
from attnlab.look.summaries.question import FAR, ask_about
from attnlab.shapes import shape_text
from attnlab.sites import AttentionCall, Instrument

__all__ = ["Enough", "Watcher", "measures_of"]

_MEASURES = ("entropy", "effective_keys", "largest", "distance", "spread", "first", "own", "previous")


class Enough(BaseException):
    """All that was asked for is known: the rest of the model need not run. No error, so nobody takes it for one."""


class Watcher(Instrument):
    """Stands in a model for one pass over one document.

    Args:
        folder: where layers are written.
        state: what is known of the document; layers are entered under "layers".
        wanted: the attentions to be summarised that are not yet.
        keep: the heads whose queries and keys are kept, by their attention.
        limit: how many bytes may be taken beside the model's weights.
        streams: the sites of the residual stream after each block, in order.
        known: the site up to which the stream is known, and its value.
        told: called after each layer with its part and the seconds it took.
    """

    changes = False
    one_thread = True

    def __init__(
        self,
        folder: Folder,
        state: dict[str, Any],
        *,
        wanted: Sequence[str],
        keep: Mapping[str, Sequence[int]],
        limit: int,
        streams: Sequence[str] = (),
        known: tuple[str, Tensor] | None = None,
        told: Callable[[str, float], None] = lambda part, seconds: None,
    ) -> None:
        self._folder, self._state, self._wanted, self._keep = folder, state, list(wanted), keep
        self._summarise = Summarise(tiles=state["tiles"], top=state["top"])
        self._limit, self._told = limit, told
        self._streams = list(streams)
        place = self._streams.index(known[0]) if known is not None else -1
        self._supplied, self._stream = frozenset(self._streams[: place + 1]), None if known is None else known[1]
        self._open: AttentionCall | None = None
        self._began = time.monotonic()

    def wants(self, site: str) -> bool:
        """Ask for weights that are not done, and for the stream."""
        part, _, own = site.rpartition(".")
        return (own == "weights" and part in self._wanted) or (site in self._streams and site not in self._supplied)

    def supply(self, site: str) -> Tensor | None:
        """Hand over the stream where it is known, so that no block before is computed."""
        return self._stream if site in self._supplied else None

    def watch(self, part: str, call: AttentionCall) -> None:
        """Summarise an attention whose weights can be made from queries and keys."""
        if part not in self._wanted:
            return
        if call.query.shape[0] != 1 or call.query.shape[2] != self._state["length"]:
            raise CouldNotRun(
                f"{part} was to read {self._state['length']:,} tokens at once; its queries are "
                f"{shape_text(call.query.shape)}. A model that cuts its input cannot be summarised as a whole."
            )
        self._open = call
        if call.is_open:
            check_open(part, call, self._limit)
            return
        self._finish(part, self._summarise(call), call)

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Summarise weights that are computed openly; keep the stream after a block."""
        part, _, own = site.rpartition(".")
        if own == "weights":
            assert self._open is not None
            self._finish(part, self._summarise.of_weights(value), self._open)
        else:
            self._folder.keep_stream(site, value)
        return value

    def _finish(self, part: str, summary: Summary, call: AttentionCall) -> None:
        """Write a layer down, and then that it is there."""
        index = self._state["parts"].index(part)
        name = f"layers/{index:03}.safetensors"
        tensors = {
            field: each[0] for field, each in summary._asdict().items() if field not in ("cells", "effective_keys")
        }
        tensors["top_keys"] = tensors["top_keys"].int()
        tensors["cells"] = summary.cells
        hidden = hidden_cells(call, [int(each) for each in summary.cells])
        if hidden is not None:
            tensors["hidden"] = hidden
        facts: dict[str, Any] = {
            "heads": measures_of(Summary._make([*(each[0] for each in summary[:-1]), summary.cells]))
        }
        tensors |= self._kept(part, call, facts)
        digest = self._folder.put(name, tensors)
        self._state["layers"][part] = {"file": name, "sha256": digest, **facts}
        self._folder.write(self._state)
        self._wanted.remove(part)
        self._told(part, time.monotonic() - self._began)
        self._began, self._open = time.monotonic(), None
        if not self._wanted:
            raise Enough

    def _kept(self, part: str, call: AttentionCall, facts: dict[str, Any]) -> dict[str, Tensor]:
        """Queries, keys and mask of the heads that are kept: of them any tile can be made later."""
        heads = self._keep.get(part, ())
        if not heads:
            return {}
        if not call.is_whole:
            raise CouldNotRun(
                f"{part} makes its weights from more than queries and keys, so that no head of it can be kept for "
                "zooming; leave it out of keep=."
            )
        question = ask_about(call)
        share = call.query.shape[1] // call.key.shape[1]
        facts["kept"] = {
            "heads": list(heads), "share": share, "scale": question.scale, "left": question.left,
            "right": question.right,
        }  # fmt: skip
        found: dict[str, Tensor] = {}
        mask = call.mask[(None,) * (4 - call.mask.dim())] if isinstance(call.mask, Tensor) else None
        for head in heads:
            found[f"query.{head}"] = call.query[0, head].clone()
            found[f"key.{head // share}"] = call.key[0, head // share].clone()
            if mask is not None:
                place = head if mask.shape[1] > 1 else 0
                found[f"mask.{place}"] = mask[0, place].clone()
        check_room_for({"the kept heads": sum(each.nbytes for each in found.values())}, self._limit)
        return found


def measures_of(summary: Summary) -> list[dict[str, float]]:
    """Return the mean of each measure of each head over the queries that look at something: of (head, query)."""
    looks = (summary.largest > 0).double()
    count = looks.sum(-1).clamp(min=1)
    means = {name: (getattr(summary, name).double() * looks).sum(-1) / count for name in _MEASURES}
    return [{name: float(each[head]) for name, each in means.items()} for head in range(len(summary.largest))]


def hidden_cells(call: AttentionCall, cells: Sequence[int]) -> Tensor | None:
    """Say of which cells of the map nothing may be looked at, by any head: (query cell, key cell); None for none."""
    if not isinstance(call.mask, Tensor) and not call.query.shape[-1]:
        return None  # nothing is known of it but its scores
    lengths = call.query.shape[-2], call.key.shape[-2]
    tops, lefts = (torch.arange(0, length, cell) for length, cell in zip(lengths, cells, strict=True))
    if isinstance(call.mask, Tensor):
        mask = call.mask[(None,) * (4 - call.mask.dim())].expand(-1, -1, -1, lengths[1])
        rows = []
        for top in tops.tolist():
            some = mask if mask.shape[2] == 1 else mask[:, :, top : top + cells[0]]
            seen = (some if some.dtype == torch.bool else some > float("-inf")).flatten(0, 2).any(0).cpu()
            rows.append(torch.stack([part.any() for part in torch.split(seen, cells[1])]))
        hidden = ~torch.stack(rows)
    else:
        question = ask_about(call)
        if question.left >= FAR and question.right >= FAR:
            return None
        last = (tops + cells[0]).clamp(max=lengths[0]) - 1 + question.mask_offset
        hidden = lefts > (last + question.right).unsqueeze(-1)
        ends = (lefts + cells[1]).clamp(max=lengths[1]) - 1
        hidden |= ends < (tops + question.mask_offset - question.left).unsqueeze(-1)
    return hidden if bool(hidden.any()) else None
