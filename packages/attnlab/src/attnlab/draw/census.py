"""The page of a census: maps of all heads by measure and effect, a table, and the heads that matter
with their examples, distances and tokens."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnlab.core.store import JsonObject, write_text
from attnlab.draw.corpus import capitalized, passage_of
from attnlab.draw.number_tables import map_of
from attnlab.draw.page import render_page
from attnlab.draw.sections import (
    Bars,
    BarSeries,
    MapChoice,
    Maps,
    PassageGroup,
    Passages,
    ReportContent,
    Section,
    Table,
)
from attnlab.look.census import Census
from attnlab.look.census.bins import distance_words
from attnlab.look.census.meter import COUNTED
from attnlab.look.census.result import KINDS, METRICS, MOST

_HEADS, _BARS, _EXAMPLES, _TOKENS = 12, 4, 2, 8  # heads, and what is shown of each
_OFTEN = 5  # occurrences of a token that is ranked by its mean
_SHARES = ("previous", "first", "own", "duplicate", "induction", "largest")
_COLUMNS = (*_SHARES, "entropy", "distance")
_OTHERS = {
    "entropy": "In nats.",
    "distance": "The mean distance back, in tokens; negative is ahead.",
    "spread": "The standard deviation of the distance, in tokens.",
}


def census_report(census: Census, *, heads: Sequence[str] | None = None) -> ReportContent:
    """Describe a census as a report.

    Args:
        census: the result of `census`, `merge_censuses` or `open_census`.
        heads: heads whose examples, distances and tokens are shown; None for those with the largest
            effects, or without effects those that do one thing most.
    """
    rows = census.table()
    chosen = _chosen(census) if heads is None else list(heads)
    missing = f", {len(census.missing)} blocks of them not read" if census.missing else ""
    sections: list[Section] = [_maps(census, rows)]
    if census.effects:
        sections.append(_effects(census))
    sections += [_table(census, rows), _examples(census, chosen), _distances(census, chosen)]
    sections.append(_tokens(census, chosen))
    return ReportContent(
        title=f"What the heads of {census.model} do",
        subtitle=f"{len(census.heads)} heads over {census.counts['texts read']:,} texts"
        f"{'' if census.corpus == 'texts' else f' of {census.corpus}'}{missing}.",
        facts=[
            *((name, f"{count:,}") for name, count in census.counts.items() if count),
            ("kinds", census.kinds_text()),
        ],
        sections=sections,
    )


def write_census_page(census: Census, path: Path | str, **options: Any) -> Path:
    """Write the page of a census and return its path; options are of `census_report`."""
    write_text(Path(path), render_page(census_report(census, **options)))
    return Path(path)


def _chosen(census: Census) -> list[str]:
    """Choose the heads with the largest effects, and those that do one thing most."""

    def telling(row: JsonObject) -> float:
        return max(float(row[measure] or 0.0) for measure in KINDS if measure != "first")

    ranked = census.ranked()
    by_effect = ranked[: _HEADS * 2 // 3] if census.effects else []
    rows = [*by_effect, *sorted(ranked, key=telling, reverse=True)]
    return list(dict.fromkeys(row["head"] for row in rows))[:_HEADS]


def _maps(census: Census, rows: Sequence[JsonObject]) -> Maps:
    """Draw the shares of weight together, and every other measure on a scale of its own."""
    by_measure = dict(zip(COUNTED, census.number_tables(), strict=True))
    maps = {name: map_of(table, 0.0, 1.0) for name, table in by_measure.items() if name in _SHARES}
    choices = [MapChoice(label="shares of the weight", note="", maps=list(maps.values()))]
    for name, note in _OTHERS.items():
        table = by_measure[name]
        high = max(abs(row[name] or 0.0) for row in rows) or 1.0
        low = -high if any((row[name] or 0.0) < 0 for row in rows) else 0.0
        choices.append(MapChoice(label=name, note=note, maps=[map_of(table, low, high)]))
    return Maps(
        title="What heads do", caption="Means over the queries where defined.", choices=choices
    )


def _effects(census: Census) -> Maps:
    """Draw the effects of each control, in a unit in which they can be read."""
    largest = max(abs(row["effect"]) for row in census.effects) or 1.0
    unit = 10.0 ** min(0, math.floor(math.log10(largest)))
    high = math.ceil(100.0 * largest / unit) / 100.0  # as the cells show it
    low = -high if any(row["effect"] < 0 for row in census.effects) else 0.0
    maps = []
    for table in census.effect_tables():
        cells = [[value / unit for value in row] for row in table.values]
        maps.append(map_of(table._replace(values=cells), low, high))
    scale = f" Numbers are in units of {unit:g}." if unit != 1.0 else ""
    caution = f" Caution: {census.caution}" if census.caution else ""
    words = METRICS[census.effects[0]["metric"]]
    return Maps(
        title="Whether they matter",
        caption=f"{capitalized(words)} where the head's output is zero "
        f"(zeroed) or its weights are equal on all keys (uniform).{scale}{caution}",
        choices=[MapChoice(label="effects", note="", maps=maps)],
    )


def _table(census: Census, rows: Sequence[JsonObject]) -> Table:
    columns = ["head", "kind", *_COLUMNS]
    controls = list(dict.fromkeys(row["control"] for row in census.effects))
    caption = (
        "Means over the queries where a measure is defined: first at those after the first "
        "token, duplicate and induction at tokens that occurred before. A kind is named where its "
        f"mean is {MOST} or more."
    )
    measures = [*_COLUMNS]
    if census.repeats:
        measures.append("induction_on_repeats")
        columns.append("induction on repeats")
        caption += " On repeats: where random tokens come twice."
    columns += [f"{control} [95 %]" for control in controls]
    if controls and census.effects[0]["metric"] == "loss":
        caption += " Effects with their intervals; * where the effect is significant."
    elif controls:
        caption += " Effects with their intervals."
    cells = []
    for row in sorted(rows, key=lambda row: -abs(row.get("zeroed", 0.0))):
        line = [row["head"], row["kind"], *(_short(row[measure]) for measure in measures)]
        for control in controls:
            low, high = row[f"{control}_low"], row[f"{control}_high"]
            mark = "*" * bool(row[f"{control}_matters"])
            line.append(f"{row[control]:+.4f}{mark} [{low:+.4f}, {high:+.4f}]")
        cells.append(line)
    return Table(title="All heads", caption=caption, columns=columns, rows=cells)


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _examples(census: Census, heads: Sequence[str]) -> Passages:
    groups = []
    for head in heads:
        shown = [("strongest", example) for example in census.examples(head)[:_EXAMPLES]]
        for tenth, examples in enumerate(census.deciles(head), 1):
            shown += [(f"tenth {tenth}", example) for example in examples[:1]]
        items = [passage_of(example, f"{label}: ") for label, example in shown]
        groups.append(PassageGroup(title=f"Head {head}", items=items))
    return Passages(
        title="Examples",
        caption="The query is framed; the key with its largest weight, the first token left out, "
        "is filled. The strongest texts, and one text drawn by lot from each tenth of all texts.",
        groups=groups,
    )


def _distances(census: Census, heads: Sequence[str]) -> Bars:
    shares = {head: dict(census.distances(head)) for head in heads[:_BARS]}
    seen = {word for bins in shares.values() for word in bins}
    words = [word for word in reversed(distance_words()) if word in seen]
    return Bars(
        title="How far heads look",
        caption="The share of all weight by the distance of the key from the query, in tokens.",
        y_label="share of the weight",
        groups=words,
        series=[
            BarSeries(name=f"head {head}", values=[bins.get(word, 0.0) for word in words])
            for head, bins in shares.items()
        ],
    )


def _tokens(census: Census, heads: Sequence[str]) -> Table:
    rows = []
    for head in heads:
        total = census.tokens(head, "key", _TOKENS)
        mean = census.tokens(head, "key", _TOKENS, by="mean", least=_OFTEN)
        queries = census.tokens(head, "query", _TOKENS, by="mean", least=_OFTEN)
        rows.append([head, *map(_listed, (total, mean, queries))])
    return Table(
        title="Tokens",
        caption="Keys with what an occurrence gets from all queries of its text together, which "
        "may exceed 1: those that get the most in all, and the most on average. Queries with the "
        "mean of their largest weight, the first token left out. Averages are of tokens that "
        f"occur {_OFTEN} times or more.",
        columns=["head", "keys, by total", "keys, by mean", "queries, by mean"],
        rows=rows,
    )


def _listed(tokens: Sequence[JsonObject]) -> str:
    return " · ".join(f"{row['token']}\u00a0{row['mean']:.2f}" for row in tokens)
