"""The report page: from a report to one self-contained HTML file.

The page makes no request: style, script and data are inlined, and its content security policy
allows the hashes of exactly that style and that script. Header, claims, texts, tables, diagrams and
passages are templates and need no JavaScript; charts, maps, verdict cells and traces are drawn in
the browser by the files in `report/`.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from attnlab.draw.claims import claim_state, sum_up
from attnlab.draw.json_form import to_json
from attnlab.draw.markup import make_page, to_embedded_json
from attnlab.draw.numbers import are_figures, column_words
from attnlab.draw.sections import Maps, Passage, ReportContent, Section, Table, Traces
from attnlab.draw.wire import drawn_map, drawn_trace

_DIGITS = 7
_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Line ends, invisible characters, and those that reverse the direction of a text."""


def render_page(report: ReportContent, *, is_live: bool = False) -> str:
    """Render a report as one HTML page that opens from disk and makes no request.

    Maps and attention weights are in the wire form of `draw.wire`; all other drawn numbers are
    written with 7 significant digits.

    is_live: a notebook's kernel may answer to what is typed and edited in it; without one it is the
    same page.

    Example:
        >>> report = ReportContent(title="empty", subtitle="", facts=[], sections=[])
        >>> render_page(report).startswith("<!DOCTYPE html>")
        True
    """
    # A trace is the living picture: a reader meets it before the facts and all the rest.
    sections = sorted(report.sections, key=lambda section: not isinstance(section, Traces))
    styles, module = ["page.css", "sections.css", "print.css"], "report/page.js"
    if is_live:
        styles[2:2] = ["view/view.css", "view/seeds.css"]
        module = "view/modules/report.js"
    return make_page(
        "report/page.html",
        styles,
        module,
        report=report,
        sections=sections,
        has_picture=bool(sections) and isinstance(sections[0], Traces),
        anchors=_anchors(sections),
        verdict=sum_up(report.claims or (), "This run makes no claims"),
        claim_state=claim_state,
        table_columns=_table_columns,
        token_text=_token_text,
        has_blanks=_has_blanks,
        data=to_embedded_json(list(map(_drawn_part, sections))),
    )


def _anchors(sections: Sequence[Section]) -> list[str]:
    """Name sections by their titles, so that links to them also work in the next report."""
    anchors: list[str] = []
    for section in sections:
        title = unicodedata.normalize("NFKD", section.title).lower()
        plain = title.encode("ascii", "ignore").decode()
        stem = "-".join(["section", *re.findall(r"[a-z0-9]+", plain)[:12]])
        name, number = stem, 1
        while name in anchors:
            number += 1
            name = f"{stem}-{number}"
        anchors.append(name)
    return anchors


@dataclass(frozen=True)
class TableColumn:
    """A column as the page shows it."""

    name: str
    is_figures: bool
    cells: Sequence[Any]


def _table_columns(table: Table) -> list[TableColumn]:
    columns = []
    for index, name in enumerate(table.columns):
        cells = [row[index] for row in table.rows]
        columns.append(TableColumn(name, are_figures(cells), column_words(cells)))
    return columns


def _has_blanks(passage: Passage) -> bool:
    """Do the tokens contain their blanks?"""
    return any("␣" in token for token in passage.tokens)


def _token_text(token: str) -> Markup:
    visible = _INVISIBLE.sub(lambda match: ascii(match[0])[1:-1], token)
    # A line may break after the sign for a blank.
    return Markup(escape(visible).replace("␣", Markup('<span class="blank">␣</span><wbr>')))


def _drawn_part(section: Section) -> Any:
    """Return the data that the browser draws, with the stated precision; None if it draws none."""
    if not section.in_browser:
        return None
    if isinstance(section, Traces):
        return to_json(section) | {"traces": list(map(drawn_trace, section.traces))}
    if isinstance(section, Maps):
        choices = []
        for choice in section.choices:
            choices.append(to_json(choice) | {"maps": list(map(drawn_map, choice.maps))})
        return to_json(section) | {"choices": choices}
    return _rounded(to_json(section), lambda value: float(f"{value:.{_DIGITS}g}"))


def _rounded(value: Any, rounding: Callable[[float], float]) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(inner, rounding) for name, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner, rounding) for inner in value]
    if isinstance(value, float) and math.isfinite(value):
        return rounding(value)
    return value
