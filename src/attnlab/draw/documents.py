"""A summarised document as pages and figures: all heads in one report, their maps, and exact tiles of kept heads.

write_document(document, "looks/book")
# report.html   every head in numbers: maps of each measure over layers and heads, and a table
# view.html     the maps of all heads, to be zoomed into
# tiles.html    of heads that were kept: weight by weight, at the places where most happens
# figures/      each measure, and the map of each kept head
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.draw.attention.saving import save_figure
from attnlab.draw.attention.summaries import draw_long_map, draw_measure
from attnlab.draw.attention.summarised import Summarised
from attnlab.draw.markup import plural
from attnlab.draw.page import render_page
from attnlab.draw.view import write_view
from attnlab.errors import WrongUsage
from attnlab.files import explained, write_text
from attnlab.look.documents import Document
from attnlab.look.heads import layer_name

__all__ = ["document_maps", "document_report", "exact_tiles", "write_document"]

_MEASURES = {
    "entropy": "entropy of the weights, in nats",
    "largest": "largest weight",
    "distance": "how far back, in tokens",
    "first": "weight on the first token",
    "own": "weight on the token itself",
    "previous": "weight on the token before",
}
_SIDE = 128  # weights on the side of an exact tile
_TILES = 3  # of each kept head


def write_document(document: Document, folder: Path | str | None = None, *, tiles: int = _TILES) -> Path:
    """Write report, view, exact tiles and figures into a folder, the document's own unless told otherwise.

    Args:
        document: what `summarise_document` or `open_document` gave.
        folder: where to.
        tiles: how many exact tiles of each kept head are shown.
    """
    folder = document.folder if folder is None else Path(folder)
    with explained(folder):
        (folder / "figures").mkdir(parents=True, exist_ok=True)
    title = f"{document.model}, {document.length:,} {plural(document.length, 'token')}"
    write_text(folder / "report.html", render_page(document_report(document)))
    write_view(folder / "view.html", document_maps(document), title=title)
    for head in document.kept:
        part, number = next((part, each[0]) for part, each in document.heads([head]).items())
        largest, hidden = document.summary(part).map_max[number], document.hidden(part)
        figure = draw_long_map(
            largest, num_queries=document.length, num_keys=document.length, label="largest weight",
            title=f"Head {head}", blocked=None if hidden is None else hidden,
        )  # fmt: skip
        save_figure(figure, folder / "figures" / f"head-{head}.png")
    for name, words in _MEASURES.items():
        layers = [layer_name(part) for part in document.parts]
        save_figure(
            draw_measure(document.measure(name), label=words, layers=layers), folder / "figures" / f"{name}.png"
        )
    if document.kept:
        found = [each for head in document.kept for each in exact_tiles(document, head, count=tiles)]
        write_view(folder / "tiles.html", found, title=f"{title}: exact tiles")
    return folder


def document_report(document: Document) -> dict[str, Any]:
    """Say in numbers what every head does: a document for `render_page`."""
    rows = document.table()
    if not rows:
        raise WrongUsage(f"nothing is done yet of the document in {document.folder}.")
    facts: list[list[Any]] = [
        ["Model", document.model],
        ["Tokens", f"{document.length:,}"],
        ["Heads", len(rows)],
        ["Kept for zooming", ", ".join(document.kept) or "none"],
    ]
    if document.unfinished:
        facts.append(["Not done yet", ", ".join(map(layer_name, document.unfinished))])
    return {
        "title": "A long document, read by every head",
        "subtitle": "What each head's weights are like on average over all tokens, from exact summaries.",
        "facts": facts,
        "sections": [
            {
                "kind": "maps",
                "title": "Heads at a glance",
                "caption": "Layers down, heads across; the mean over all queries.",
                "choices": [_choice(document, name, words) for name, words in _MEASURES.items()],
            },
            {
                "kind": "table",
                "title": "Every head",
                "caption": "Means over the queries. Distances count tokens, positive is back; entropy is in nats.",
                "columns": ["head", *_MEASURES],
                "rows": [
                    [f"{row['layer']}.{row['head']}", *(float(f"{row[name]:.4g}") for name in _MEASURES)]
                    for row in rows
                ],
            },
        ],
    }


def document_maps(document: Document) -> list[Summarised]:
    """Return the pooled maps of every head, as `view_page` and `write_view` take them."""
    tokens = tuple(document.tokens)
    found = []
    for part in document.parts:
        summary, hidden = document.summary(part), document.hidden(part)
        rows = [row for row in document.table() if row["layer"] == layer_name(part)]
        queries, keys = (int(cell) for cell in summary.cells)
        found.append(
            Summarised(
                site=f"{part}.weights",
                mean=summary.map_mean.float().numpy(),
                largest=summary.map_max.float().numpy(),
                query_tokens=tokens,
                key_tokens=tokens,
                cells=(queries, keys),
                hidden=None if hidden is None else hidden.numpy(),
                facts=tuple({name: row[name] for name in _FACTS} for row in rows),
            )
        )
    return found


_FACTS = ("entropy", "effective_keys", "largest", "first", "own", "previous")


def exact_tiles(
    document: Document, head: str, *, places: Sequence[tuple[int, int]] | None = None, count: int = _TILES
) -> list[Summarised]:
    """Make exact tiles of a kept head: every weight, with the tokens on both sides; numbers are of the whole head.

    Args:
        document: where the head was kept.
        head: such as "3.5".
        places: (query, key) that shall lie within, one for each tile; None for the places of the largest weights
            beside the diagonal and the first token.
        count: how many, where no places are given.
    """
    part, number = next((part, each[0]) for part, each in document.heads([head]).items())
    tokens, zoom = document.tokens, document.zoom(head, side=_SIDE)
    if places is None:
        summary = document.summary(part)
        places = list(_telling(summary.map_max[number].float().numpy(), [int(cell) for cell in summary.cells], count))
    row = next(
        each for each in document.table() if each["layer"] == layer_name(part) and each["head"] == number
    )  # fmt: skip
    found = []
    for query, key in dict.fromkeys((query // _SIDE, key // _SIDE) for query, key in places):
        tile = zoom.tile(0, query, key)
        hidden = (tile.allowed == 0).numpy()
        spans = [f"{span.start:,} to {span.stop - 1:,}" for span in (tile.queries, tile.keys)]
        weights = tile.mean.unsqueeze(0).numpy()
        found.append(
            Summarised(
                site=f"Head {head}, queries {spans[0]}, keys {spans[1]}.weights",
                mean=weights,
                largest=weights,
                query_tokens=_placed(tokens, tile.queries),
                key_tokens=_placed(tokens, tile.keys),
                cells=(1, 1),
                hidden=hidden if hidden.any() else None,
                facts=({name: row[name] for name in _FACTS},),
            )
        )
    return found


def _placed(tokens: Sequence[str], span: slice) -> tuple[str, ...]:
    """Name tokens with their places in the document."""
    return tuple(f"{token}·{place}" for place, token in enumerate(tokens[span], span.start))


def _telling(largest: NDArray[np.float32], cells: Sequence[int], count: int) -> Iterator[tuple[int, int]]:
    """Name the places of the largest cells that lie in different tiles, the first column and the diagonal last."""
    rows, columns = np.indices(largest.shape)
    is_usual = (columns == 0) | (np.abs(rows * cells[0] - columns * cells[1]) < _SIDE)
    order = np.argsort(-np.where(is_usual, largest - 2.0, largest), axis=None, kind="stable")
    seen: list[tuple[int, int]] = []
    for place in order.tolist():
        row, column = divmod(place, largest.shape[1])
        query, key = row * cells[0], column * cells[1]
        if (query // _SIDE, key // _SIDE) not in seen:
            seen.append((query // _SIDE, key // _SIDE))
            yield query, key
        if len(seen) == count:
            return


def _choice(document: Document, name: str, words: str) -> dict[str, Any]:
    values = document.measure(name).tolist()
    finite = [abs(value) for row in values for value in row if value == value]
    high = max(finite) or 1.0
    is_signed = any(value < 0 for row in values for value in row)
    return {
        "label": words,
        "note": "",
        "maps": [
            {
                "title": words,
                "rows": [[None if value != value else value for value in row] for row in values],
                "row_labels": [layer_name(part) for part in document.parts],
                "column_labels": [str(head) for head in range(len(values[0]))],
                "row_title": "layer",
                "column_title": "head",
                "low": -high if is_signed else 0.0,
                "high": high,
            }
        ],
    }
