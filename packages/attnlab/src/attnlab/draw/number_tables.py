"""Tables of numbers that results offer, as maps: of ablations, patches, controls and attributions.

A result has `number_tables()`; see `NumberTable`. Nothing here knows the results themselves.
"""

import re
from dataclasses import replace
from typing import Any

import numpy as np

from attnlab.display import Card, NumberTable, card_of, card_text, short
from attnlab.draw.json_form import without_nan
from attnlab.draw.sections import Heatmap, MapChoice, Maps, ReportContent, Section, Table, Text


def has_tables(result: Any) -> bool:
    """Does this result offer tables of numbers?"""
    return hasattr(result, "number_tables")


def tables_section(result: Any, *, title: str = "", high: float | None = None) -> Maps:
    """Return a result's tables as a section of maps: what pages and figures draw."""
    tables: list[NumberTable] = result.number_tables()
    top = high or max(map(_largest, tables), default=0.0) or 1.0
    low = 0.0
    if any(float(np.nan_to_num(table.values).min()) < 0 for table in tables):
        low = -top
    maps = [map_of(table, low, top) for table in tables]
    choices = [MapChoice(label=title or tables[0].label, note="", maps=maps)]
    if len(maps) > _MOST_TOGETHER:
        choices = [MapChoice(label=one_map.title, note="", maps=[one_map]) for one_map in maps]
    return Maps(title=title or tables[0].label, caption="", choices=choices)


def tables_report(result: Any) -> ReportContent:
    """Return the page of a result: its summary in words, with facts and cautions, and its maps.

    A result with `page_words`, a title and a caption, has its rows as a table and its cautions as
    notes; one with `_page_card` has a card for its page.
    """
    card = result._page_card() if hasattr(result, "_page_card") else card_of(result)
    facts = [(name, short(value)) for name, value in card.facts]
    subtitle = " ".join(card_text(Card(card.title)).split())
    title = re.sub(
        r"(?<=[a-z])[A-Z]", lambda letter: f" {letter[0].lower()}", type(result).__name__
    )
    caption, more = ". ".join(card.lines), list[Section]()
    if hasattr(result, "page_words"):
        title, caption = result.page_words
        rows = [list(map(short, row)) for row in card.rows]
        more.append(Table(title="In numbers", caption="", columns=list(card.columns), rows=rows))
        more += [Text(title="Notes", text="\n\n".join(card.lines))] * bool(card.lines)
    sections = [replace(tables_section(result), caption=caption), *more]
    return ReportContent(title=title, subtitle=subtitle, facts=facts, sections=sections)


_MOST_TOGETHER = 12  # maps without a chooser


def _largest(table: NumberTable) -> float:
    return float(np.abs(np.nan_to_num(table.values)).max())


def map_of(table: NumberTable, low: float, high: float) -> Heatmap:
    """Return a table as a map whose colors range from `low` to `high`."""
    return Heatmap(
        title=table.title,
        rows=without_nan(list(table.values)),
        row_labels=list(table.rows),
        column_labels=list(table.columns),
        row_title=table.row_title,
        column_title=table.column_title,
        low=low,
        high=high,
    )
