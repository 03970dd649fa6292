"""A summarized long text as pages and figures: a report, maps of all heads, exact tiles.

write_document(document, "looks/book")
# report.html   every head in numbers: each measure over layers and heads, and a table
# view.html     zoomable maps of all heads
# tiles.html    kept heads weight by weight, at the positions of the largest weights
# figures/      each measure, and the map of each kept head
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnlab.core.store import JsonObject, explained, write_text
from attnlab.display import plural
from attnlab.draw.attention.figure_files import save_figure
from attnlab.draw.attention.summaries import draw_long_map, draw_measure, measure_map
from attnlab.draw.attention.summary_maps import SummaryMaps
from attnlab.draw.page import render_page
from attnlab.draw.sections import MapChoice, Maps, ReportContent, Scalar, Table
from attnlab.draw.view import write_view
from attnlab.errors import WrongUsage
from attnlab.look.heads import layer_name
from attnlab.look.long_text import Document

_MEASURES = {
    "entropy": "entropy of the weights, in nats",
    "largest": "largest weight",
    "distance": "distance back, in tokens",
    "first": "weight on the first token",
    "own": "weight on the token itself",
    "previous": "weight on the token before",
}
_FACTS = ("entropy", "effective_keys", "largest", "first", "own", "previous")
_SIDE = 128  # weights on the side of an exact tile
_TILES = 3  # of each kept head


def write_document(
    document: Document, folder: Path | str | None = None, *, tiles: int = _TILES
) -> Path:
    """Write report, view, exact tiles and figures, and return their folder.

    Args:
        document: the result of `summarize_document` or `open_document`.
        folder: the folder to write to; None for the document's own.
        tiles: how many exact tiles of each kept head are shown.
    """
    folder = document.folder if folder is None else Path(folder)
    with explained(folder):
        (folder / "figures").mkdir(parents=True, exist_ok=True)
    title = f"{document.model}, {document.length:,} {plural(document.length, 'token')}"
    write_text(folder / "report.html", render_page(document_report(document)))
    write_view(folder / "view.html", document_maps(document), title=title)
    for head in document.kept:
        part, number = _part_and_number(document, head)
        figure = draw_long_map(
            document.summary(part).map_max[number],
            num_queries=document.length,
            num_keys=document.length,
            label="largest weight",
            title=f"Head {head}",
            blocked=document.hidden(part),
        )
        save_figure(figure, folder / "figures" / f"head-{head}.png")
    layers = list(map(layer_name, document.parts))
    for name, words in _MEASURES.items():
        figure = draw_measure(document.measure(name), label=words, layers=layers)
        save_figure(figure, folder / "figures" / f"{name}.png")
    if document.kept:
        maps: list[SummaryMaps] = []
        for head in document.kept:
            maps += exact_tiles(document, head, count=tiles)
        write_view(folder / "tiles.html", maps, title=f"{title}: exact tiles")
    return folder


def document_report(document: Document) -> ReportContent:
    """Describe every head in numbers."""
    rows = document.table()
    if not rows:
        raise WrongUsage(f"the long text in {document.folder} has no summarized layer yet.")
    facts: list[tuple[str, Scalar]] = [
        ("Model", document.model),
        ("Tokens", f"{document.length:,}"),
        ("Heads", len(rows)),
        ("Kept for zooming", ", ".join(document.kept) or "none"),
    ]
    if document.unfinished:
        facts.append(("Layers not done yet", ", ".join(map(layer_name, document.unfinished))))
    return ReportContent(
        title="Every head over a long text",
        subtitle="Attention weights of each head, averaged over all tokens, exactly.",
        facts=facts,
        sections=[
            Maps(
                title="Heads at a glance",
                caption="Rows are layers, columns are heads; means over all queries.",
                choices=[_choice(document, name) for name in _MEASURES],
            ),
            Table(
                title="Every head",
                caption="Means over the queries. Distances count tokens, positive is back; "
                "entropy is in nats.",
                columns=["head", *_MEASURES],
                rows=list(map(_table_row, rows)),
            ),
        ],
    )


def _table_row(row: JsonObject) -> list[Scalar]:
    return [f"{row['layer']}.{row['head']}", *(float(f"{row[name]:.4g}") for name in _MEASURES)]


def document_maps(document: Document) -> list[SummaryMaps]:
    """Return the pooled maps of every head, for `view_page` and `write_view`."""
    tokens = tuple(document.tokens)
    maps = []
    for part in document.parts:
        summary, hidden = document.summary(part), document.hidden(part)
        rows = [row for row in document.table() if row["layer"] == layer_name(part)]
        queries, keys = summary.cells.tolist()
        maps.append(
            SummaryMaps(
                site=f"{part}.weights",
                mean=summary.map_mean.float().numpy(),
                largest=summary.map_max.float().numpy(),
                query_tokens=tokens,
                key_tokens=tokens,
                cells=(queries, keys),
                hidden=None if hidden is None else hidden.numpy(),
                facts=tuple(map(_facts, rows)),
            )
        )
    return maps


def exact_tiles(
    document: Document,
    head: str,
    *,
    places: Sequence[tuple[int, int]] | None = None,
    count: int = _TILES,
) -> list[SummaryMaps]:
    """Return exact tiles of a kept head: every weight, with the tokens of both axes.

    The facts are those of the whole head.

    Args:
        document: the summaries with the kept head.
        head: a name such as "3.5".
        places: one (query, key) to include in each tile; None for the places of the largest weights
            off the diagonal and the first token.
        count: how many tiles if `places` is None.
    """
    part, number = _part_and_number(document, head)
    tokens, zoom = document.tokens, document.zoom(head, side=_SIDE)
    if places is None:
        summary = document.summary(part)
        largest = summary.map_max[number].float().numpy()
        places = list(_largest_places(largest, summary.cells.tolist(), count))
    is_own = {"layer": layer_name(part), "head": number}
    row = next(row for row in document.table() if is_own.items() <= row.items())
    tiles = []
    for query, key in dict.fromkeys((query // _SIDE, key // _SIDE) for query, key in places):
        tile = zoom.tile(0, query, key)
        hidden = (tile.allowed == 0).numpy()
        weights = tile.mean.unsqueeze(0).numpy()
        tiles.append(
            SummaryMaps(
                site=f"Head {head}, queries {_span(tile.queries)}, keys {_span(tile.keys)}.weights",
                mean=weights,
                largest=weights,
                query_tokens=_placed(tokens, tile.queries),
                key_tokens=_placed(tokens, tile.keys),
                cells=(1, 1),
                hidden=hidden if hidden.any() else None,
                facts=(_facts(row),),
            )
        )
    return tiles


def _facts(row: JsonObject) -> dict[str, float | None]:
    return {name: row[name] for name in _FACTS}


def _span(places: slice) -> str:
    return f"{places.start:,} to {places.stop - 1:,}"


def _part_and_number(document: Document, head: str) -> tuple[str, int]:
    """Return the attention of a head and its number there."""
    ((part, numbers),) = document.heads([head]).items()
    return part, numbers[0]


def _placed(tokens: Sequence[str], span: slice) -> tuple[str, ...]:
    """Return the names of tokens with their positions in the text."""
    return tuple(f"{token}·{place}" for place, token in enumerate(tokens[span], span.start))


def _largest_places(
    largest: NDArray[np.float32], cells: Sequence[int], count: int
) -> Iterator[tuple[int, int]]:
    """Yield the places of the largest cells of different tiles, first column and diagonal last."""
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


def _choice(document: Document, name: str) -> MapChoice:
    words, layers = _MEASURES[name], list(map(layer_name, document.parts))
    whole = measure_map(document.measure(name).numpy(), words, layers)
    return MapChoice(label=words, note="", maps=[whole])
