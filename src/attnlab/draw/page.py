"""The report page: from a document to one self-contained HTML file.

The page makes no request: style, script and data are inlined, and its content security policy
allows the hashes of exactly that style and that script. Header, claims, texts, tables and diagrams
are rendered here and need no JavaScript; charts, maps, verdict cells and traces are drawn in the
browser by the files in `report/`.
"""

import itertools
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attnlab.draw.claims import claim_state, judge_all, say_all
from attnlab.draw.diagram import diagram_to_svg
from attnlab.draw.document import check_document
from attnlab.draw.markup import escape, make_page, to_embedded_json
from attnlab.draw.numbers import are_figures, column_words
from attnlab.draw.passages import passages_to_html

__all__ = ["render_page"]

# Joined in this order into one script: helpers first, then the kinds of sections, then the page.
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
_MAX_ROWS = 40  # of a table; a longer one scrolls in its own box
_MIN_SECTIONS = 3  # for a table of contents


def render_page(document: Mapping[str, Any]) -> str:
    """Render a document as one HTML page that opens from disk and makes no request.

    `attnlab.draw.document` describes the form of the document. Attention weights are written with 5
    decimals and all other drawn numbers with 7 significant digits; the page says so.

    Raises:
        WrongUsage: A key is missing or unknown, a value has the wrong kind, or lengths do not
            agree.

    Example:
        >>> document = {"title": "empty", "subtitle": "", "facts": [], "claims": [], "sections": []}
        >>> render_page(document).startswith("<!DOCTYPE html>")
        True
    """
    check_document(document)
    sections = document["sections"]
    anchors = _anchors(sections)
    rendered = [
        _section_to_html(index, section, anchor)
        for index, (section, anchor) in enumerate(zip(sections, anchors, strict=True))
    ]
    contents = _contents_to_html(sections, anchors)
    parts = {
        "title": escape(document["title"]),
        "subtitle": escape(document["subtitle"]),
        "facts": _facts_to_html(document["facts"]),
        "claims": _claims_section(document.get("claims"), contents),
        "sections": "\n".join(rendered),
        "data": to_embedded_json([_drawn_part(section) for section in sections]),
    }
    return make_page("page.html", ["page.css", "sections.css", "print.css"], _SCRIPTS, parts)


def _facts_to_html(facts: Sequence[Sequence[Any]]) -> str:
    pairs = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts)
    return f'<dl class="facts">{pairs}</dl>' if pairs else ""


def _anchors(sections: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name sections by their titles, so that links to them also work in the next report."""
    anchors: list[str] = []
    for section in sections:
        title = unicodedata.normalize("NFKD", section["title"]).lower()
        plain = title.encode("ascii", "ignore").decode()
        words = "-".join(re.findall(r"[a-z0-9]+", plain)[:12])
        stem = f"section-{words}" if words else "section"
        names = (stem if number == 1 else f"{stem}-{number}" for number in itertools.count(1))
        anchors.append(next(name for name in names if name not in anchors))
    return anchors


def _contents_to_html(sections: Sequence[Mapping[str, Any]], anchors: Sequence[str]) -> str:
    if len(sections) < _MIN_SECTIONS:
        return ""
    links = "".join(
        f'<li><a href="#{anchor}">{escape(section["title"])}</a></li>'
        for section, anchor in zip(sections, anchors, strict=True)
    )
    return (
        '<nav class="contents" aria-label="Contents"><details>'
        f"<summary>Contents: {len(sections)} sections</summary>"
        f"<ol>{links}</ol></details></nav>"
    )


def _claims_section(claims: Sequence[Mapping[str, Any]] | None, contents: str) -> str:
    """Render the section of claims; without claims, the table of contents alone."""
    if claims is None:
        return f"<section>{contents}</section>" if contents else ""
    body = _claims_to_html(claims, contents)
    return f'<section class="verdict-section" aria-label="Claims">\n{body}\n</section>'


def _claims_to_html(claims: Sequence[Mapping[str, Any]], contents: str) -> str:
    """Render the verdict in one line, the table of contents, and every claim."""
    if not claims:
        return (
            '<p class="verdict open"><span class="mark">–</span> This run makes no '
            f"claims</p>{contents}"
        )
    passed = [claim["passed"] for claim in claims]
    style, mark, _ = claim_state(judge_all(passed))
    verdict = (
        f'<p class="verdict {style}"><span class="mark" aria-hidden="true">{mark}</span> '
        f"{say_all(passed)}</p>"
        f"{_names_to_html('failures', 'Failed', False, claims)}"
        f"{_names_to_html('doubts', 'Undecided', None, claims)}"
    )
    # Narrow screens show rows as blocks, which are no table for screen readers without the roles.
    head = "".join(
        f'<th scope="col" role="columnheader">{name}</th>'
        for name in ("Verdict", "Claim", "Measured", "Bound")
    )
    rows = "\n".join(_claim_to_row(claim) for claim in claims)
    return (
        f'{verdict}\n{contents}<table class="claims" role="table"><caption>What this run claims, '
        f'and what was measured</caption><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">\n{rows}\n</tbody></table>'
    )


def _names_to_html(
    style: str, word: str, passed: bool | None, claims: Sequence[Mapping[str, Any]]
) -> str:
    """List the names of the claims with this outcome."""
    names = ", ".join(
        f"<code>{escape(claim['name'])}</code>" for claim in claims if claim["passed"] is passed
    )
    return f'<p class="{style}">{word}: {names}</p>' if names else ""


def _claim_to_row(claim: Mapping[str, Any]) -> str:
    state, mark, word = claim_state(claim["passed"])
    name = f"<code>{escape(claim['name'])}</code>"
    return (
        f'<tr role="row" class="{state}"><td role="cell" class="state">'
        f'<span class="mark" aria-hidden="true">{mark}</span> {word}</td>'
        f'<th role="rowheader" scope="row">{escape(claim["statement"])}{name}</th>'
        f'<td role="cell" class="figure measured" data-label="measured">'
        f"{escape(claim['measured'])}</td>"
        f'<td role="cell" class="figure" data-label="bound">{escape(claim["bound"])}</td></tr>'
    )


def _section_to_html(index: int, section: Mapping[str, Any], anchor: str) -> str:
    kind = section["kind"]
    if kind == "text":
        body = _paragraphs(section["text"])
    else:
        body = _paragraphs(section["caption"], "caption")
    if kind in _RENDERERS:
        body += _RENDERERS[kind](section)
    elif kind != "text":
        body += (
            f'<div class="stage" data-section="{index}"></div>'
            "<noscript><p>This part is interactive and needs JavaScript; it makes no request."
            "</p></noscript>"
        )
    return (
        f'<section id="{anchor}" class="{kind}-section" aria-labelledby="title-{index}">\n'
        f'<h2 id="title-{index}">{escape(section["title"])}</h2>\n{body}\n</section>'
    )


def _paragraphs(text: str, name: str = "prose") -> str:
    parts = [part.strip() for part in text.replace("\r\n", "\n").split("\n\n")]
    return "".join(
        f'<p class="{name}">{_with_commands(escape(part))}</p>' for part in parts if part
    )


def _with_commands(text: str) -> str:
    """Render text between backticks as code that does not wrap, so that commands can be copied."""
    return re.sub(r"`([^`\n]+)`", r'<code class="command">\1</code>', text)


def _table_to_html(section: Mapping[str, Any]) -> str:
    rows = section["rows"]
    head, cells = "", [""] * len(rows)
    for i, column in enumerate(section["columns"]):
        values = [row[i] for row in rows]
        style = ' class="figure"' if are_figures(values) else ""
        head += f'<th scope="col"{style}>{escape(column)}</th>'
        for number, words in enumerate(column_words(values)):
            cells[number] += f"<td{style}>{escape(words)}</td>"
    body = "\n".join(f"<tr>{row}</tr>" for row in cells)
    long = note = ""
    if len(rows) > _MAX_ROWS:
        long, note = " long", f'<p class="note">{len(rows):,} rows: scroll for more.</p>'
    label = f"{escape(section['title'])}: table"
    # A region that scrolls must be reachable by keyboard.
    return (
        f'<div class="scroll{long}" tabindex="0" role="region" aria-label="{label}">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>{note}"
    )


_RENDERERS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "table": _table_to_html,
    "diagram": diagram_to_svg,
    "passages": passages_to_html,
}
"""How sections that need no JavaScript are rendered below their caption."""


def _drawn_part(section: Mapping[str, Any]) -> Any:
    """Return the data that the browser draws, with the stated precision; None if it draws none."""
    if section["kind"] == "text" or section["kind"] in _RENDERERS:
        return None
    part = dict(section)
    if part["kind"] in ("lines", "bars"):
        part["series"] = [_rounded_series(series) for series in part["series"]]
    elif part["kind"] == "maps":
        part["choices"] = [
            {**choice, "maps": [_rounded_map(each) for each in choice["maps"]]}
            for choice in part["choices"]
        ]
    elif part["kind"] == "trace":
        part["traces"] = [
            {**trace, "attention": [_rounded_head(head) for head in trace["attention"]]}
            for trace in part["traces"]
        ]
    return part


def _rounded_series(series: Mapping[str, Any]) -> dict[str, Any]:
    rounded = dict(series)
    for key, value in series.items():
        if key == "bands":
            rounded[key] = [_rounded_series(band) for band in value]
        elif key not in ("name", "names", "style"):
            rounded[key] = [_significant(number) for number in value]
    return rounded


def _rounded_map(each: Mapping[str, Any]) -> dict[str, Any]:
    return {**each, "rows": [[_significant(value) for value in row] for row in each["rows"]]}


def _rounded_head(head: Mapping[str, Any]) -> dict[str, Any]:
    return {**head, "rows": [[_rounded_weight(weight) for weight in row] for row in head["rows"]]}


def _significant(value: Any) -> Any:
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.{_DIGITS}g}")
    return value


def _rounded_weight(value: Any) -> Any:
    if isinstance(value, float) and math.isfinite(value):
        return round(value, _WEIGHT_DECIMALS)
    return value
