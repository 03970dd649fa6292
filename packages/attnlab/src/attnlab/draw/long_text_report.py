"""A summarized long text as pages and figures: a report, maps of all heads.

write_document(document, "looks/book")
# report.html   every head in numbers: each measure over layers and heads, and a table
# view.html     zoomable maps of all heads
# figures/      each measure
"""

from pathlib import Path

from attnlab.core.store import JsonObject, explained, write_text
from attnlab.display import plural
from attnlab.draw.attention.figure_files import save_figure
from attnlab.draw.attention.summaries import draw_measure, measure_map
from attnlab.draw.attention.summary_maps import FACTS, SummaryMaps
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


def write_document(document: Document, folder: Path | str | None = None) -> Path:
    """Write report, view and figures, and return their folder.

    Args:
        document: the result of `summarize_document` or `open_document`.
        folder: the folder to write to; None for the document's own.
    """
    folder = document.folder if folder is None else Path(folder)
    with explained(folder):
        (folder / "figures").mkdir(parents=True, exist_ok=True)
    title = f"{document.model}, {document.length:,} {plural(document.length, 'token')}"
    write_text(folder / "report.html", render_page(document_report(document)))
    write_view(folder / "view.html", document_maps(document), title=title)
    layers = list(map(layer_name, document.parts))
    for name, words in _MEASURES.items():
        figure = draw_measure(document.measure(name), label=words, layers=layers)
        save_figure(figure, folder / "figures" / f"{name}.png")
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
                facts=tuple({name: row[name] for name in FACTS} for row in rows),
            )
        )
    return maps


def _choice(document: Document, name: str) -> MapChoice:
    words, layers = _MEASURES[name], list(map(layer_name, document.parts))
    whole = measure_map(document.measure(name).numpy(), words, layers)
    return MapChoice(label=words, note="", maps=[whole])
