"""The hook that summarizes a long text while a model reads it, and writes each layer when it is
done."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from attnlab.core.store import digest_of, write_tensors
from attnlab.errors import CouldNotRun
from attnlab.look.collector import Collector
from attnlab.look.long_text.budget import check_open, check_room_for
from attnlab.look.long_text.files import Folder
from attnlab.look.summaries import Summarize, Summary
from attnlab.look.summaries.question import FAR, ask_about
from attnlab.shapes import shape_text
from attnlab.sites import AttentionCall

_MEASURES = (
    "entropy", "effective_keys", "largest", "distance", "spread", "first", "own", "previous",
)  # fmt: skip


class Summarizer(Collector):
    """Summarizes the heads of a model in one pass over a long text.

    Args:
        folder: of the layers.
        state: of the run; finished layers are added under "layers".
        wanted: the attentions that are not summarized yet.
        keep: the heads whose queries and keys are kept, by their attention.
        limit: bytes to use beside the model's weights.
        streams: the sites of the residual stream after each block, in order.
        known: the site after which the stream is known, and its value.
        told: called after each layer with its part and the seconds it took.
    """

    def __init__(
        self,
        folder: Folder,
        state: dict[str, Any],
        wanted: Sequence[str],
        keep: Mapping[str, Sequence[int]],
        limit: int,
        streams: Sequence[str],
        known: tuple[str, Tensor] | None,
        told: Callable[[str, float], None],
    ) -> None:
        super().__init__(wanted)
        self._folder, self._state, self._keep = folder, state, keep
        self._summarize = Summarize(tiles=state["tiles"], top=state["top"])
        self._limit, self._told, self._streams = limit, told, streams
        self.sites = {*self.sites, *streams}
        self._stream: Tensor | None = None
        self._supplied: Sequence[str] = ()
        if known is not None:
            after, self._stream = known
            self._supplied = streams[: streams.index(after) + 1]
        self._began = time.monotonic()

    def wants(self, site: str) -> bool:
        """Want the weights of unfinished attentions, and the stream."""
        return super().wants(site) or (site in self._streams and site not in self._supplied)

    def supply(self, site: str) -> Tensor | None:
        """Supply the stream where it is known, so that no block before is computed."""
        return self._stream if site in self._supplied else None

    def check(self, part: str, call: AttentionCall) -> None:
        """Raise unless an attention reads all tokens at once, in the memory there is."""
        if call.query.shape[0] != 1 or call.query.shape[2] != self._state["length"]:
            raise CouldNotRun(
                f"{part} should read {self._state['length']:,} tokens at once; its queries are "
                f"{shape_text(call.query.shape)}. A model that cuts its input cannot be "
                "summarized as a whole."
            )
        check_open(part, call, self._limit)

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Write the stream after a block; summarize weights that the model computes explicitly."""
        if site in self._streams:
            self._folder.keep_stream(site, value)
            return value
        return super().visit(site, value)

    def collect(self, part: str, call: AttentionCall, weights: Tensor | None) -> None:
        """Summarize an attention, and write its file."""
        if weights is None:
            summary = self._summarize(call)
        else:
            summary = self._summarize.of_weights(weights)
        self._write(part, summary, call)

    def _write(self, part: str, summary: Summary, call: AttentionCall) -> None:
        """Write a layer's file, and then the state that names it."""
        index = self._state["parts"].index(part)
        name = f"layers/{index:03}.safetensors"
        own = Summary._make([*(each[0] for each in summary[:-1]), summary.cells])
        tensors = own._asdict()
        del tensors["effective_keys"]
        tensors["top_keys"] = own.top_keys.int()
        hidden = hidden_cells(call, own.cells.tolist())
        if hidden is not None:
            tensors["hidden"] = hidden
        facts: dict[str, Any] = {"heads": measures_of(own)}
        tensors |= self._kept(part, call, facts)
        file = self._folder.path / name
        write_tensors(file, tensors)
        self._state["layers"][part] = {"file": name, "sha256": digest_of(file), **facts}
        self._folder.write(self._state)
        self._told(part, time.monotonic() - self._began)
        self._began = time.monotonic()

    def _kept(self, part: str, call: AttentionCall, facts: dict[str, Any]) -> dict[str, Tensor]:
        """Return queries, keys and mask of the kept heads, from which any tile can be computed."""
        heads = self._keep.get(part, ())
        if not heads:
            return {}
        if not call.is_whole:
            raise CouldNotRun(
                f"{part} computes its weights from more than queries and keys, so no head of it "
                "can be kept for zooming; leave it out of keep=."
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
    """Return the mean of each measure of each head, (head, query), over the queries that have a
    key."""
    looks = (summary.largest > 0).double()
    count = looks.sum(-1).clamp(min=1)
    found: list[dict[str, float]] = [{} for _ in count]
    for name in _MEASURES:
        means = (getattr(summary, name).double() * looks).sum(-1) / count
        for head, mean in enumerate(means.tolist()):
            found[head][name] = mean
    return found


def hidden_cells(call: AttentionCall, cells: Sequence[int]) -> Tensor | None:
    """Return which cells of the map are masked for every head, (query cell, key cell); None for
    none."""
    if not isinstance(call.mask, Tensor) and not call.query.shape[-1]:
        return None  # only its scores are known
    lengths = call.query.shape[-2], call.key.shape[-2]
    tops, lefts = torch.arange(0, lengths[0], cells[0]), torch.arange(0, lengths[1], cells[1])
    if isinstance(call.mask, Tensor):
        mask = call.mask[(None,) * (4 - call.mask.dim())].expand(-1, -1, -1, lengths[1])
        rows = []
        for top in tops.tolist():
            some = mask if mask.shape[2] == 1 else mask[:, :, top : top + cells[0]]
            some = some if some.dtype == torch.bool else some > float("-inf")
            seen = some.flatten(0, 2).any(0).cpu()
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
