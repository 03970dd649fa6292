"""Summarize every head of a model while it reads a long text, layer by layer and resumably.

    document = summarize_document(model, text, out="looks/book", keep=["3.5"])
    document.table()  # every head: entropy, distance, weight on the first token …
    document.zoom("3.5").tile(0, 63, 60)    # any exact tile of a kept head

Each layer's summaries are written when the layer is done, and so is the residual stream after its
block. A stopped run resumes from there: finished layers are not summarized again, nor computed if
the stream can be supplied to the model in place of a block's result.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from attnlab.core.store import check_room, locked, make_folder, remove_remains, write_tensors
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.collector import run_collector
from attnlab.look.heads import chosen_heads, number_of_heads
from attnlab.look.long_text.budget import check_room_for, mask_bytes, summary_bytes, working_bytes
from attnlab.look.long_text.files import Folder, fingerprint
from attnlab.look.long_text.inputs import Given, given, parts_of
from attnlab.look.long_text.long_text import Document, open_document
from attnlab.look.long_text.summarizer import Summarizer
from attnlab.look.recording.budget import to_bytes
from attnlab.look.recording.tokens import name_of
from attnlab.look.summaries import Summarize
from attnlab.progress import notebook_bar
from attnlab.sites import site_names

_USUAL = Summarize()
# What a resumed run has in common with the one that was stopped.
_SAME = {
    "fingerprint": "the model", "length": "the length", "ids": "the text", "tiles": "tiles",
    "top": "top", "parts": "layers", "keep": "keep",
}  # fmt: skip


@dataclass(frozen=True)
class Progress:
    """The progress of a run: attentions done of all, the last one, seconds so far and estimated
    ones left."""

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
    keep: Sequence[str] = (),
    reduce: Summarize = _USUAL,
    budget: int | str | None = None,
    beyond: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Document:
    """Read a long text once and write the summaries of every head into a folder, one layer after
    another.

    The same call resumes a stopped run from the last finished block, with the same bits. The model
    runs no further than the last chosen attention, so no logits are computed.

    Args:
        model: any model with sites; in an encoder–decoder, the encoder reads.
        document: text, or ids (length,) or (1, length).
        out: the folder to create, or to resume from.
        layers: which, such as ["0", "3"] or full names; None for all.
        keep: heads ("3.5", or "3" for all of a layer) whose queries and keys are kept too, for
            exact tiles later.
        reduce: the resolution, such as Summarize(tiles=512, top=16): the most cells along each axis
            of a map, and how many of the largest weights are named for each query.
        budget: bytes to use beside the model's weights, or "2 GiB"; None for half of the available
            memory.
        beyond: read more tokens than the model was trained for.
        progress: called after each attention; None for a bar in a notebook.

    Raises:
        WrongUsage: invalid arguments, or a folder with another text.
        CouldNotRun: it would not fit in memory or on the disk, or another process writes into the
            folder.
    """
    if not isinstance(reduce, Summarize):
        raise WrongUsage(f"reduce is the resolution, such as Summarize(tiles=512); got {reduce!r}.")
    limit, folder = to_bytes(budget), Folder(Path(out))
    read, parts = given(model, document, beyond=beyond), parts_of(model)
    chosen = list(chosen_heads(model, parts, layers))
    if not chosen:
        raise WrongUsage("layers names no layer; leave it out for all.")
    kept = chosen_heads(model, chosen, list(keep)) if keep else {}
    state = _state(model, read, chosen, kept, reduce)
    heads = max(state["heads"][part] for part in chosen)
    largest = summary_bytes(heads, read.length, reduce.tiles, reduce.top)
    needed = {
        "a running block": working_bytes(model, read.length),
        "a layer's summary": 2 * largest,
        "a mask of all pairs": mask_bytes(model, read.length),
    }
    check_room_for({what: size for what, size in needed.items() if size}, limit)
    make_folder(folder.path / "layers")
    with locked(folder.path):
        state = _begun(folder, state)
        wanted = [part for part in chosen if part not in state["layers"]]
        remove_remains(folder.path)
        if wanted:
            _check_disk(folder, state, wanted, model, read)
            write_tensors(folder.path / "tokens.safetensors", {"ids": read.ids})
            if progress is None and (bar := notebook_bar("attentions summarized")) is not None:
                progress = lambda far: bar.count(far.done, far.total)  # noqa: E731
            _run(model, read, folder, state, wanted, kept, limit, progress)
        if not state["is_done"]:  # also after a run that was killed behind its last layer
            state["is_done"] = True
            folder.write(state)
        folder.forget_stream()
    return open_document(folder.path)


def _run(
    model: nn.Module,
    read: Given,
    folder: Folder,
    state: dict[str, Any],
    wanted: Sequence[str],
    kept: dict[str, list[int]],
    limit: int,
    progress: Callable[[Progress], None] | None,
) -> None:
    streams = _streams(model, wanted)
    known = folder.stream()
    # Blocks before a layer that was lost since must be computed again.
    if known is not None and known[0] not in _up_to(streams, _after(wanted[0])):
        known = None
    total, began = len(state["parts"]), time.monotonic()

    def tell(part: str, seconds: float) -> None:
        done = len(state["layers"])
        state["layers"][part]["seconds"] = round(seconds, 3)
        if progress is not None:
            spent = time.monotonic() - began
            now = done - (total - len(wanted))
            progress(Progress(done, total, part, spent, spent / max(now, 1) * (total - done)))

    summarizer = Summarizer(folder, state, wanted, kept, limit, streams, known, tell)
    run_collector(model, summarizer, read.arguments, read.options)


def _streams(model: nn.Module, wanted: Sequence[str]) -> list[str]:
    """List the sites of the stream after each block before the last wanted attention's."""
    layers = f"{wanted[-1].rpartition('layers.')[0]}layers."
    sites = [site for site in site_names(model) if site.startswith(layers)]
    own = [site for site in sites if site.endswith("residual_after")]
    last = _after(wanted[-1])
    return _up_to(own, last) if last in own else []


def _after(part: str) -> str:
    """Return the site of the stream after an attention's block."""
    return f"{part.rpartition('.')[0]}.residual_after"


def _up_to(sites: list[str], site: str) -> list[str]:
    return sites[: sites.index(site)] if site in sites else sites


def _state(
    model: nn.Module, read: Given, parts: list[str], kept: dict[str, list[int]], reduce: Summarize
) -> dict[str, Any]:
    """Return the initial state, with all that identifies this run."""
    vocabulary = getattr(model, "vocabulary", None)
    names = {str(token): name_of(token, vocabulary) for token in sorted(set(read.ids[0].tolist()))}
    return {
        "model": str(getattr(model, "name", "") or type(model).__name__),
        "fingerprint": fingerprint(model),
        "length": read.length,
        "ids": hashlib.sha256(read.ids.cpu().long().numpy().tobytes()).hexdigest(),
        "tiles": reduce.tiles,
        "top": reduce.top,
        "parts": parts,
        "heads": {part: number_of_heads(model, part) for part in parts},
        "keep": {part: list(heads) for part, heads in kept.items()},
        "names": names,
        "is_done": False,
        "layers": {},
    }


def _begun(folder: Folder, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of the run in a folder, if it is this one.

    Raises:
        WrongUsage: it is another one; the sentence says what differs.
    """
    if not folder.is_there:
        folder.write(state)
        return state
    before = folder.read()
    for name, what in _SAME.items():
        if before.get(name) != state[name]:
            raise WrongUsage(
                f"{folder.path} holds another document: {what} is not the same. Choose another "
                "folder."
            )
    layers = before.get("layers")
    if not isinstance(layers, dict):
        raise CouldNotRun(
            f"{folder.path / 'document.json'} is damaged: it does not say which layers are there."
        )
    for part, layer in list(layers.items()):
        try:
            folder.get(layer["file"], layer["sha256"])
        except (CouldNotRun, KeyError, TypeError):  # it is summarized again
            del layers[part]
    is_done = before.get("is_done") is True and set(state["parts"]) <= set(layers)
    return {**state, "layers": layers, "is_done": is_done}


def _check_disk(
    folder: Folder, state: dict[str, Any], wanted: Sequence[str], model: nn.Module, read: Given
) -> None:
    heads = sum(state["heads"][part] for part in wanted)
    size = summary_bytes(heads, read.length, state["tiles"], state["top"])
    # The width of most norms and biases: the largest may be that of a vocabulary.
    widths = Counter(each.shape[-1] for each in model.parameters() if each.dim() == 1)
    width = widths.most_common(1)[0][0] if widths else 1024
    check_room(folder.path, size + 8 * read.length * width, "the document")
