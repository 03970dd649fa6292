"""Summarize every head of a model while it reads a long text, layer by layer and resumably.

    document = summarize_document(model, text, out="looks/book")
    document.table()  # every head: entropy, distance, weight on the first token …

Each layer's summaries are written when the layer is done. A stopped run resumes from there: the
model reads the text again, but finished layers are not summarized again.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from attnlab.core import store
from attnlab.core.store import JsonObject
from attnlab.errors import CouldNotRun, WrongUsage, not_none
from attnlab.look.collector import Collector, run_collector
from attnlab.look.heads import chosen_heads, number_of_heads
from attnlab.look.long_text.inputs import (
    check_explicit,
    check_room_for,
    document_inputs,
    mask_bytes,
    reading_attentions,
    summary_bytes,
    working_bytes,
)  # fmt: skip
from attnlab.look.long_text.long_text import Document, document_folder, fingerprint
from attnlab.look.readers import model_name
from attnlab.look.recording.budget import to_bytes
from attnlab.look.recording.kept_call import KeptMask
from attnlab.look.recording.tokens import names_of
from attnlab.look.summaries import Summarize, Summary
from attnlab.progress import notebook_bar
from attnlab.shapes import shape_text
from attnlab.sites import AttentionCall

_USUAL = Summarize()
# The settings that a resumed run shares with the stopped one.
_SAME = {
    "fingerprint": "the model", "length": "the length", "ids": "the text", "tiles": "tiles",
    "top": "top", "parts": "layers",
}  # fmt: skip
_MEASURES = Summary._fields[:8]  # entropy to previous


@dataclass(frozen=True)
class DocumentProgress:
    """The progress of a run.

    done: attentions that are summarized · total: of all · part: the last one · seconds: so far ·
    left: seconds that the rest will take.
    """

    done: int
    total: int
    part: str
    seconds: float
    left: float


def summarize_document(
    model: nn.Module,
    document: str | Tensor | Sequence[int],
    *,
    out: Path | str,
    layers: Sequence[str] | None = None,
    reduce: Summarize = _USUAL,
    budget: int | str | None = None,
    beyond: bool = False,
    progress: Callable[[DocumentProgress], None] | None = None,
) -> Document:
    """Read a long text once and write the summaries of every head into a folder, one layer after
    another.

    The same call resumes a stopped run, with the same bits. The model runs no further than the last
    chosen attention, so no logits are computed.

    Args:
        model: any model with sites; in an encoder–decoder, the encoder reads.
        document: text, or ids (length,) or (1, length).
        out: the folder to create, or to resume from.
        layers: which, such as ["0", "3"] or full names; None for all.
        reduce: the resolution, such as Summarize(tiles=512, top=16): the most cells along each axis
            of a map, and how many of the largest weights are named for each query.
        budget: bytes to use beside the model's weights, or "2 GiB"; None for half of the available
            memory.
        beyond: read more tokens than the model was trained for.
        progress: called after each attention; None for a bar in a notebook.

    Returns:
        the `Document`, opened from `out`: measures of every head, and maps to zoom into.

    Raises:
        WrongUsage: invalid arguments, or a folder with another text.
        CouldNotRun: it would not fit in memory or on the disk, or another process writes into the
            folder.
    """
    if not isinstance(reduce, Summarize):
        raise WrongUsage(f"reduce is the resolution, such as Summarize(tiles=512); got {reduce!r}.")
    limit, folder = to_bytes(budget), document_folder(Path(out))
    arguments, options = document_inputs(model, document, beyond=beyond)
    state = _new_state(model, arguments[0], layers, reduce)
    check_room_for(_memory_needed(model, state), limit)
    store.make_folder(folder.path / "layers")
    with store.locked(folder.path):
        _resume(folder, state)
        store.remove_remains(folder.path)
        if state.missing:
            heads = sum(state.heads[part] for part in state.missing)
            store.check_room(folder.path, state.summary_bytes(heads), "the document")
            store.write_tensors(folder.path / "tokens.safetensors", {"ids": arguments[0]})
            summarizer = Summarizer(folder, state, limit, progress or _notebook_progress())
            run_collector(model, summarizer, arguments, options)
        if not state.is_done:  # also after a run that was killed behind its last layer
            state.is_done = True
            folder.write(asdict(state))
    return Document(folder.path)


@dataclass
class DocumentState:
    """What `document.json` says of a run: model, text, settings, and the finished layers.

    ids: a digest of the text's ids · names: of the tokens by their ids · parts: the attentions to
    summarize · heads: how many each has · layers: the finished attentions, each with its file.
    """

    model: str
    fingerprint: str
    length: int
    ids: str
    names: dict[str, str]
    tiles: int
    top: int
    parts: list[str]
    heads: dict[str, int]
    is_done: bool = False
    layers: dict[str, JsonObject] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        """The attentions that are not summarized yet."""
        return [part for part in self.parts if part not in self.layers]

    def summary_bytes(self, heads: int) -> int:
        """Return the bytes of the summaries of so many heads."""
        return summary_bytes(heads, self.length, self.tiles, self.top)


def _new_state(
    model: nn.Module, ids: Tensor, layers: Sequence[str] | None, reduce: Summarize
) -> DocumentState:
    """Return the state of a run that has not begun."""
    chosen = list(chosen_heads(model, reading_attentions(model), layers))
    if not chosen:
        raise WrongUsage("layers= has no layer; leave it out for all.")
    return DocumentState(
        model=model_name(model),
        fingerprint=fingerprint(model),
        length=ids.shape[1],
        ids=hashlib.sha256(ids.cpu().long().numpy().tobytes()).hexdigest(),
        names=names_of(ids[0].tolist(), getattr(model, "vocabulary", None)),
        tiles=reduce.tiles,
        top=reduce.top,
        parts=chosen,
        heads={part: number_of_heads(model, part) for part in chosen},
    )


def _memory_needed(model: nn.Module, state: DocumentState) -> dict[str, int]:
    """Return the bytes that a run takes at once, by what they are for."""
    return {
        "a running block": working_bytes(model, state.length),
        "a layer's summary": 2 * state.summary_bytes(max(state.heads.values())),
        "a mask of all pairs": mask_bytes(model, state.length),
    }


def _notebook_progress() -> Callable[[DocumentProgress], None] | None:
    """Return the progress of a run as a bar, in a notebook."""
    bar = notebook_bar("attentions summarized")
    return None if bar is None else lambda far: bar.count(far.done, far.total)


def _resume(folder: store.StateFolder, state: DocumentState) -> None:
    """Write a state into an empty folder, or add the layers to it that are finished there.

    Raises:
        WrongUsage: the folder holds another text; the sentence says what differs.
    """
    if not folder.is_there:
        folder.write(asdict(state))
        return
    before = folder.read()
    for name, what in _SAME.items():
        if before.get(name) != getattr(state, name):
            raise WrongUsage(
                f"{folder.path} holds another document: {what} differs. Choose another folder."
            )
    layers = before.get("layers")
    if not isinstance(layers, dict):
        raise CouldNotRun(f"{folder.path / folder.file} is damaged: it has no list of layers.")
    for part, layer in layers.items():
        try:
            folder.get(layer["file"], layer["sha256"])
        except (CouldNotRun, KeyError, TypeError):  # it is summarized again
            continue
        state.layers[part] = layer
    state.is_done = not state.missing and before.get("is_done") is True


class Summarizer(Collector):
    """Summarizes the heads of a model in one pass over a long text.

    Args:
        folder: of the layers.
        state: of the run; finished layers are added to its `layers`.
        limit: bytes to use beside the model's weights.
        progress: called after each layer.
    """

    def __init__(
        self,
        folder: store.StateFolder,
        state: DocumentState,
        limit: int,
        progress: Callable[[DocumentProgress], None] | None,
    ) -> None:
        super().__init__(state.missing)
        self._folder, self._state = folder, state
        self._limit, self._progress = limit, progress
        self._summarize = Summarize(tiles=state.tiles, top=state.top)
        self._total, self._began = len(self.missing), time.monotonic()
        self._last = self._began

    def check(self, part: str, call: AttentionCall) -> None:
        """Raise unless an attention reads all tokens at once, in the memory there is."""
        if call.query.shape[0] != 1 or call.query.shape[2] != self._state.length:
            raise CouldNotRun(
                f"{part} should read {self._state.length:,} tokens at once; its queries are "
                f"{shape_text(call.query.shape)}. A model that cuts its input cannot be "
                "summarized as a whole."
            )
        check_explicit(part, call, self._limit)

    def collect(self, part: str, call: AttentionCall, weights: Tensor | None) -> None:
        """Summarize an attention, and write its file."""
        if weights is None:
            self._write(part, self._summarize(call), call)
        else:
            self._write(part, self._summarize.of_weights(weights), call)
        if self._progress is not None:
            spent, left = time.monotonic() - self._began, len(self.missing) - 1
            done = len(self._state.layers)
            a_layer = spent / (self._total - left)
            self._progress(DocumentProgress(done, done + left, part, spent, a_layer * left))

    def _write(self, part: str, summary: Summary, call: AttentionCall) -> None:
        """Write a layer's file, and then the state that names it."""
        name = f"layers/{self._state.parts.index(part):03}.safetensors"
        row = Summary._make([*(field[0] for field in summary[:-1]), summary.cells])
        tensors = row._asdict()
        del tensors["effective_keys"]
        tensors["top_keys"] = row.top_keys.int()
        hidden = hidden_cells(call, row.cells.tolist())
        if hidden is not None:
            tensors["hidden"] = hidden
        facts: JsonObject = {"heads": measures_of(row)}
        file = self._folder.path / name
        store.write_tensors(file, tensors)
        now = time.monotonic()
        facts |= {
            "file": name,
            "sha256": store.digest_of(file),
            "seconds": round(now - self._last, 3),
        }
        self._last = now
        self._state.layers[part] = facts
        self._folder.write(asdict(self._state))


def measures_of(summary: Summary) -> list[dict[str, float]]:
    """Return the mean of each measure of each head, (head, query), over the queries that have a
    key."""
    looks = (summary.largest > 0).double()
    count = looks.sum(-1).clamp(min=1)
    means = []
    for name in _MEASURES:
        means.append((getattr(summary, name).double() * looks).sum(-1) / count)
    return [dict(zip(_MEASURES, row, strict=True)) for row in torch.stack(means, 1).tolist()]


def hidden_cells(call: AttentionCall, cells: Sequence[int]) -> Tensor | None:
    """Return which cells of the map are masked for every head, (query cell, key cell); None for
    none."""
    is_causal = isinstance(call.mask, str)
    if call.mask is None or (is_causal and not call.query.shape[-1]):
        return None  # nothing is masked, or only the scores are known
    num_queries, num_keys = call.query.shape[-2], call.key.shape[-2]
    tops = torch.arange(0, num_queries, cells[0])
    if is_causal:
        last_seen = (tops + cells[0]).clamp(max=num_queries) - 1 + num_keys - num_queries
        hidden = last_seen.unsqueeze(1) < torch.arange(0, num_keys, cells[1])
    else:
        mask = KeptMask(call.mask, num_queries, num_keys, call.query.device)
        rows = []
        for top in tops.tolist():
            rows_seen = slice(top, min(top + cells[0], num_queries))
            seen = not_none(mask.part(queries=rows_seen))
            if seen.dtype != torch.bool:
                seen = seen > float("-inf")
            padded = nn.functional.pad(seen.flatten(0, 2).any(0), (0, -num_keys % cells[1]))
            rows.append(padded.view(-1, cells[1]).any(1).cpu())
        hidden = ~torch.stack(rows)
    return hidden if bool(hidden.any()) else None
