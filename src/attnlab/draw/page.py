"""The report page: a plain document in, one self-contained HTML file out.

The page makes no request at all: style, script and data are inlined, and its content security policy
admits the hashes of exactly that style and that script. Header, claims, texts and tables are rendered
here and need no JavaScript, and so are diagrams; charts, maps, verdict cells and traces are drawn in the
browser by the files in `report/`. What is measured, and how, does not live here.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attnlab.draw.diagram import diagram_to_svg
from attnlab.draw.document import check_document, is_number
from attnlab.draw.markup import escape, make_page, plural, to_embedded_json

__all__ = ["render_page"]

# Concatenated in this order into one module script: words first, then the parts, then what joins them.
_SCRIPTS = (
    "elements.js",
    "scales.js",
    "axes.js",
    "lines.js",
    "bars.js",
    "verdicts.js",
    "grid.js",
    "heatmap.js",
    "strip.js",
    "chooser.js",
    "maps.js",
    "trace.js",
    "theme.js",
    "page.js",
)
_WEIGHT_DECIMALS = 5
_DIGITS = 7


def render_page(document: Mapping[str, Any]) -> str:
    """Render a run's document as one HTML page that opens from disk and asks the network for nothing.

    The form of the document stands in `attnlab.draw.document`.

    Attention weights are written with 5 decimals and all other numbers that are drawn with 7 significant digits;
    the page says so.

    Raises:
        WrongUsage: A key is missing or unknown, a value has the wrong kind, or lengths do not agree.

    Example:
        >>> page = render_page({"title": "empty", "subtitle": "", "facts": [], "claims": [], "sections": []})
        >>> page.startswith("<!DOCTYPE html>")
        True
    """
    check_document(document)
    parts = {
        "title": escape(document["title"]),
        "subtitle": escape(document["subtitle"]),
        "facts": _facts_to_html(document["facts"]),
        "claims": _claims_to_html(document["claims"]),
        "sections": "\n".join(_section_to_html(i, s) for i, s in enumerate(document["sections"])),
        "data": to_embedded_json([_drawn_part(section) for section in document["sections"]]),
    }
    return make_page("page.html", ["page.css", "sections.css", "print.css"], _SCRIPTS, parts)


def _facts_to_html(facts: Sequence[Sequence[Any]]) -> str:
    pairs = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts)
    return f'<dl class="facts">{pairs}</dl>' if pairs else ""


def _claims_to_html(claims: Sequence[Mapping[str, Any]]) -> str:
    if not claims:
        return '<p class="verdict open"><span class="mark">–</span> This run makes no claims</p>'
    failed = [claim["name"] for claim in claims if not claim["passed"]]
    count = len(claims)
    if failed:
        names = ", ".join(f"<code>{escape(name)}</code>" for name in failed)
        verdict = (
            f'<p class="verdict failed"><span class="mark" aria-hidden="true">✗</span> '
            f"{len(failed)} of {count} {plural(count, 'claim')} failed</p>"
            f'<p class="failures">Failed: {names}</p>'
        )
    else:
        verdict = (
            f'<p class="verdict passed"><span class="mark" aria-hidden="true">✓</span> '
            f"{count} of {count} {plural(count, 'claim')} {'holds' if count == 1 else 'hold'}</p>"
        )
    # Narrow screens turn rows into blocks, which would drop the table's meaning without the roles.
    head = "".join(
        f'<th scope="col" role="columnheader">{name}</th>' for name in ("Verdict", "Claim", "Measured", "Bound")
    )
    rows = "\n".join(_claim_to_row(claim) for claim in claims)
    return (
        f'{verdict}\n<table class="claims" role="table"><caption>What this run claims, and what was measured'
        f'</caption><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">\n{rows}\n</tbody></table>'
    )


def _claim_to_row(claim: Mapping[str, Any]) -> str:
    state, mark, word = ("passed", "✓", "holds") if claim["passed"] else ("failed", "✗", "failed")
    return (
        f'<tr role="row" class="{state}"><td role="cell" class="state"><span class="mark" aria-hidden="true">'
        f"{mark}</span> {word}</td>"
        f'<th role="rowheader" scope="row">{escape(claim["statement"])}<code>{escape(claim["name"])}</code></th>'
        f'<td role="cell" class="figure" data-label="measured">{escape(claim["measured"])}</td>'
        f'<td role="cell" class="figure" data-label="bound">{escape(claim["bound"])}</td></tr>'
    )


def _section_to_html(index: int, section: Mapping[str, Any]) -> str:
    kind = section["kind"]
    if kind == "text":
        body = _paragraphs(section["text"])
    elif kind == "table":
        body = _paragraphs(section["caption"], "caption") + _table_to_html(section)
    elif kind == "diagram":
        body = _paragraphs(section["caption"], "caption") + diagram_to_svg(section)
    else:
        body = (
            f"{_paragraphs(section['caption'], 'caption')}"
            f'<div class="stage" data-section="{index}"></div>'
            "<noscript><p>This part is interactive and needs JavaScript; it asks the network for nothing."
            "</p></noscript>"
        )
    return (
        f'<section class="{kind}-section" aria-labelledby="title-{index}">\n'
        f'<h2 id="title-{index}">{escape(section["title"])}</h2>\n{body}\n</section>'
    )


def _paragraphs(text: str, name: str = "prose") -> str:
    parts = [part.strip() for part in text.replace("\r\n", "\n").split("\n\n")]
    return "".join(f'<p class="{name}">{escape(part)}</p>' for part in parts if part)


def _table_to_html(section: Mapping[str, Any]) -> str:
    columns, rows = section["columns"], section["rows"]
    is_figure = [bool(rows) and all(is_number(row[i]) for row in rows) for i in range(len(columns))]
    tag = [' class="figure"' if figure else "" for figure in is_figure]
    head = "".join(f'<th scope="col"{t}>{escape(c)}</th>' for c, t in zip(columns, tag, strict=True))
    body = "\n".join(
        f"<tr>{''.join(f'<td{t}>{escape(cell)}</td>' for cell, t in zip(row, tag, strict=True))}</tr>" for row in rows
    )
    # A region that scrolls must be reachable by keyboard.
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(section["title"])}">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def _drawn_part(section: Mapping[str, Any]) -> Any:
    """Keep what the browser draws, in plain JSON values and with stated precision; None for the rest."""
    if section["kind"] in ("text", "table", "diagram"):
        return None
    part = dict(section)
    if part["kind"] in ("lines", "bars"):
        part["series"] = [_shortened(series) for series in part["series"]]
    elif part["kind"] == "maps":
        part["choices"] = [
            {**choice, "maps": [{**each, "rows": list(map(_significant, each["rows"]))} for each in choice["maps"]]}
            for choice in part["choices"]
        ]
    elif part["kind"] == "trace":
        part["traces"] = [
            {**trace, "attention": [_rounded_head(head) for head in trace["attention"]]} for trace in part["traces"]
        ]
    return part


def _shortened(series: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value if key == "name" else _significant(value) for key, value in series.items()}


def _significant(values: Iterable[Any]) -> list[Any]:
    return [float(f"{v:.{_DIGITS}g}") if isinstance(v, float) and math.isfinite(v) else v for v in values]


def _rounded_head(head: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **head,
        "rows": [
            [round(v, _WEIGHT_DECIMALS) if isinstance(v, float) and math.isfinite(v) else v for v in row]
            for row in head["rows"]
        ],
    }
