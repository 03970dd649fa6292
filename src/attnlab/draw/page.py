"""The report page: a plain document in, one self-contained HTML file out.

The page makes no request at all: style, script and data are inlined, and its content security policy
admits the hashes of exactly that style and that script. Header, claims, texts and tables are rendered
here and need no JavaScript, and so are diagrams; charts, maps, verdict cells and traces are drawn in the
browser by the files in `report/`. What is measured, and how, does not live here.
"""

import itertools
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attnlab.draw.claims import claim_state, judge_all, say_all
from attnlab.draw.diagram import diagram_to_svg
from attnlab.draw.document import check_document
from attnlab.draw.markup import escape, make_page, to_embedded_json
from attnlab.draw.numbers import are_figures, column_words
from attnlab.draw.passages import passages_to_html

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
_MOST_ROWS = 40  # of a table that stands whole on the page; a longer one scrolls in its own box
_LEAST_CONTENTS = 3  # sections; fewer are seen at a glance


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
        "claims": _judged(document.get("claims"), _contents_to_html(document["sections"])),
        "sections": "\n".join(
            _section_to_html(i, section, anchor)
            for i, (section, anchor) in enumerate(
                zip(document["sections"], _anchors(document["sections"]), strict=True)
            )
        ),
        "data": to_embedded_json([_drawn_part(section) for section in document["sections"]]),
    }
    return make_page("page.html", ["page.css", "sections.css", "print.css"], _SCRIPTS, parts)


def _facts_to_html(facts: Sequence[Sequence[Any]]) -> str:
    pairs = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts)
    return f'<dl class="facts">{pairs}</dl>' if pairs else ""


def _anchors(sections: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name sections by their titles, so that a link to one still leads there in the next report."""
    anchors: list[str] = []
    for section in sections:
        plain = unicodedata.normalize("NFKD", section["title"]).encode("ascii", "ignore").decode().lower()
        words = "-".join(re.findall(r"[a-z0-9]+", plain)[:12])
        stem = f"section-{words}" if words else "section"
        names = (stem if number == 1 else f"{stem}-{number}" for number in itertools.count(1))
        anchors.append(next(name for name in names if name not in anchors))
    return anchors


def _contents_to_html(sections: Sequence[Mapping[str, Any]]) -> str:
    if len(sections) < _LEAST_CONTENTS:
        return ""
    links = "".join(
        f'<li><a href="#{anchor}">{escape(section["title"])}</a></li>'
        for section, anchor in zip(sections, _anchors(sections), strict=True)
    )
    return (
        f'<nav class="contents" aria-label="Contents"><details><summary>Contents: {len(sections)} sections</summary>'
        f"<ol>{links}</ol></details></nav>"
    )


def _judged(claims: Sequence[Mapping[str, Any]] | None, contents: str) -> str:
    """The section of claims; where nothing is judged, the list of contents alone."""
    if claims is None:
        return f"<section>{contents}</section>" if contents else ""
    body = _claims_to_html(claims, contents)
    return f'<section class="verdict-section" aria-label="Claims">\n{body}\n</section>'


def _claims_to_html(claims: Sequence[Mapping[str, Any]], contents: str) -> str:
    """The verdict in one line, then the list of contents, then every claim."""
    if not claims:
        return f'<p class="verdict open"><span class="mark">–</span> This run makes no claims</p>{contents}'
    passed = [claim["passed"] for claim in claims]
    style, mark, _ = claim_state(judge_all(passed))
    verdict = (
        f'<p class="verdict {style}"><span class="mark" aria-hidden="true">{mark}</span> {say_all(passed)}</p>'
        f"{_names_to_html('failures', 'Failed', False, claims)}{_names_to_html('doubts', 'Undecided', None, claims)}"
    )
    # Narrow screens turn rows into blocks, which would drop the table's meaning without the roles.
    head = "".join(
        f'<th scope="col" role="columnheader">{name}</th>' for name in ("Verdict", "Claim", "Measured", "Bound")
    )
    rows = "\n".join(_claim_to_row(claim) for claim in claims)
    return (
        f'{verdict}\n{contents}<table class="claims" role="table"><caption>What this run claims, and what was measured'
        f'</caption><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">\n{rows}\n</tbody></table>'
    )


def _names_to_html(style: str, word: str, passed: bool | None, claims: Sequence[Mapping[str, Any]]) -> str:
    """Name the claims that came out one way."""
    names = ", ".join(f"<code>{escape(claim['name'])}</code>" for claim in claims if claim["passed"] is passed)
    return f'<p class="{style}">{word}: {names}</p>' if names else ""


def _claim_to_row(claim: Mapping[str, Any]) -> str:
    state, mark, word = claim_state(claim["passed"])
    return (
        f'<tr role="row" class="{state}"><td role="cell" class="state"><span class="mark" aria-hidden="true">'
        f"{mark}</span> {word}</td>"
        f'<th role="rowheader" scope="row">{escape(claim["statement"])}<code>{escape(claim["name"])}</code></th>'
        f'<td role="cell" class="figure measured" data-label="measured">{escape(claim["measured"])}</td>'
        f'<td role="cell" class="figure" data-label="bound">{escape(claim["bound"])}</td></tr>'
    )


def _section_to_html(index: int, section: Mapping[str, Any], anchor: str) -> str:
    kind = section["kind"]
    if kind == "text":
        body = _paragraphs(section["text"])
    elif kind == "table":
        body = _paragraphs(section["caption"], "caption") + _table_to_html(section)
    elif kind == "diagram":
        body = _paragraphs(section["caption"], "caption") + diagram_to_svg(section)
    elif kind == "passages":
        body = _paragraphs(section["caption"], "caption") + passages_to_html(section)
    else:
        body = (
            f"{_paragraphs(section['caption'], 'caption')}"
            f'<div class="stage" data-section="{index}"></div>'
            "<noscript><p>This part is interactive and needs JavaScript; it asks the network for nothing."
            "</p></noscript>"
        )
    return (
        f'<section id="{anchor}" class="{kind}-section" aria-labelledby="title-{index}">\n'
        f'<h2 id="title-{index}">{escape(section["title"])}</h2>\n{body}\n</section>'
    )


def _paragraphs(text: str, name: str = "prose") -> str:
    parts = [part.strip() for part in text.replace("\r\n", "\n").split("\n\n")]
    return "".join(f'<p class="{name}">{_with_commands(escape(part))}</p>' for part in parts if part)


def _with_commands(text: str) -> str:
    """Set what stands between backticks in code type: a command that is copied must come whole."""
    return re.sub(r"`([^`\n]+)`", r'<code class="command">\1</code>', text)


def _table_to_html(section: Mapping[str, Any]) -> str:
    columns, rows = section["columns"], section["rows"]
    words = [column_words([row[i] for row in rows]) for i in range(len(columns))]
    tag = [' class="figure"' if are_figures([row[i] for row in rows]) else "" for i in range(len(columns))]
    head = "".join(f'<th scope="col"{t}>{escape(c)}</th>' for c, t in zip(columns, tag, strict=True))
    body = "\n".join(
        f"<tr>{''.join(f'<td{t}>{escape(cell)}</td>' for cell, t in zip(row, tag, strict=True))}</tr>"
        for row in (zip(*words, strict=True) if columns else [()] * len(rows))
    )
    is_long = len(rows) > _MOST_ROWS
    long, told = (" long", f'<p class="note">{len(rows):,} rows: scroll for more.</p>') if is_long else ("", "")
    # A region that scrolls must be reachable by keyboard.
    return (
        f'<div class="scroll{long}" tabindex="0" role="region" aria-label="{escape(section["title"])}: table">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>{told}"
    )


def _drawn_part(section: Mapping[str, Any]) -> Any:
    """Keep what the browser draws, in plain JSON values and with stated precision; None for the rest."""
    if section["kind"] in ("text", "table", "diagram", "passages"):
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
    return {key: _shortened_part(key, value) for key, value in series.items()}


def _shortened_part(key: str, value: Any) -> Any:
    if key == "bands":
        return [_shortened(band) for band in value]
    return value if key in ("name", "names", "style") else _significant(value)


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
