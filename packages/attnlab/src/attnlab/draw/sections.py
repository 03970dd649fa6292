"""The content of a report: frozen dataclasses that the page, the figures and `report.json` share.

Numbers may be None or NaN, which a page shows as gaps and "n/a". Each class checks on construction
that its parts fit each other, and that a page can show them. Sections with a `figure` are also
written as `figures/NAME.png` and `.svg`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from attnlab.core.store import JsonObject
from attnlab.core.traces import Trace
from attnlab.draw.claims import Claim
from attnlab.draw.json_form import Number as Number
from attnlab.draw.json_form import Scalar as Scalar
from attnlab.draw.json_form import from_json, to_json
from attnlab.draw.section import FigureSection as FigureSection
from attnlab.draw.section import Section as Section
from attnlab.draw.section import check_equal, check_limit, check_values

_MAX_MAP_CELLS = 40_000
_MAX_CELLS = 1_000_000
_MAX_BARS = 1_000

Numbers = Sequence[Number]
SeriesStyle = Literal["line", "points", "steps"]
Ends = tuple[Number, Number, Number]
Texts = Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Text(Section):
    """Prose; blank lines separate paragraphs, backticks mark commands."""

    kind = "text"
    text: str

    @property
    def told(self) -> str:
        """The text."""
        return self.text


@dataclass(frozen=True, kw_only=True)
class Level:
    """A horizontal line across a chart."""

    name: str
    y: Number


@dataclass(frozen=True, kw_only=True)
class Band:
    """A named band around a line, such as quantiles."""

    name: str
    low: Numbers
    high: Numbers


@dataclass(frozen=True, kw_only=True)
class Series:
    """A line, separate points or steps, which hold until the next x.

    `low` and `high` are an interval around each y: a band of a line, a whisker of a point. `bands`
    are named bands instead, the widest first.
    """

    name: str
    x: Numbers
    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    bands: Sequence[Band] = ()
    style: SeriesStyle = "line"

    @classmethod
    def of_intervals(
        cls, name: str, x: Numbers, intervals: Iterable[Ends], style: SeriesStyle = "line"
    ) -> Self:
        """Draw estimates with their intervals, each a value with its low and high end."""
        y, low, high = _columns(intervals)
        return cls(name=name, x=x, y=y, low=low, high=high, style=style)

    def __post_init__(self) -> None:
        length = len(self.y)
        check_equal(self, "", "as many y as x", len(self.x), length)
        _check_interval(self, "", self.low, self.high, length, "y")
        for index, band in enumerate(self.bands):
            _check_interval(self, f".bands[{index}]", band.low, band.high, length, "y")


def _columns(intervals: Iterable[Ends]) -> tuple[Numbers, Numbers, Numbers]:
    rows = list(intervals)
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


def _check_interval(
    part: Any, place: str, low: Numbers | None, high: Numbers | None, length: int, what: str
) -> None:
    problem = "expected low and high together, got one of them"
    check_values(part, (low is None) == (high is None), place, problem)
    if low is None or high is None:
        return
    check_equal(part, f"{place}.low", f"one number per {what}", length, len(low))
    check_equal(part, f"{place}.high", f"one number per {what}", length, len(high))
    for index, (one, other) in enumerate(zip(low, high, strict=True)):
        is_reversed = one is not None and other is not None and one > other
        problem = f"expected low at most high, {other}, got {one}"
        check_values(part, not is_reversed, f"{place}.low[{index}]", problem)


@dataclass(frozen=True, kw_only=True)
class Lines(FigureSection):
    """A line chart; `from_zero` keeps zero in sight."""

    kind = "lines"
    look = "Follow each line from left to right; pointing at it reads exact values."
    in_browser = True
    x_label: str
    y_label: str
    series: Sequence[Series]
    levels: Sequence[Level] = ()
    x_log: bool = False
    y_log: bool = False
    from_zero: bool = False


@dataclass(frozen=True, kw_only=True)
class BarSeries:
    """One bar in each group; `low` and `high` are the ends of its whisker."""

    name: str
    values: Numbers
    low: Numbers | None = None
    high: Numbers | None = None

    @classmethod
    def of_intervals(cls, name: str, intervals: Iterable[Ends]) -> Self:
        """Draw estimates with their intervals, each a value with its low and high end."""
        values, low, high = _columns(intervals)
        return cls(name=name, values=values, low=low, high=high)

    def __post_init__(self) -> None:
        _check_interval(self, "", self.low, self.high, len(self.values), "value")


@dataclass(frozen=True, kw_only=True)
class Bars(FigureSection):
    """Grouped bars."""

    kind = "bars"
    look = "Compare the heights."
    in_browser = True
    y_label: str
    groups: Texts
    series: Sequence[BarSeries]
    levels: Sequence[Level] = ()

    @property
    def advice(self) -> str:
        """Explain whiskers where a bar has one."""
        if any(low is not None for series in self.series for low in series.low or ()):
            return "Compare the heights; a whisker is the interval around its value."
        return self.look

    def __post_init__(self) -> None:
        super().__post_init__()
        number = len(self.groups)
        check_limit(self, "", "bars", _MAX_BARS, number * len(self.series))
        for index, series in enumerate(self.series):
            place = f".series[{index}].values"
            check_equal(self, place, "one value per group", number, len(series.values))


@dataclass(frozen=True, kw_only=True)
class Heatmap:
    """A map of numbers; a blank cell is None, and `masked` says what it means if not missing.

    The colors range from `low` to `high`: one that gets stronger if low is 0 or more; two around 0
    if low is negative, and then high is -low.
    """

    title: str
    rows: Sequence[Numbers]
    row_labels: Texts
    column_labels: Texts
    row_title: str
    column_title: str
    low: float
    high: float
    masked: str | None = None

    @classmethod
    def of_weights(
        cls,
        title: str,
        rows: Sequence[Numbers],
        queries: Texts,
        keys: Texts,
        titles: tuple[str, str] = ("query", "key"),
        masked: str | None = None,
    ) -> Self:
        """Draw attention weights, or other shares from 0 to 1."""
        return cls(
            title=title,
            rows=rows,
            row_labels=queries,
            column_labels=keys,
            row_title=titles[0],
            column_title=titles[1],
            low=0.0,
            high=1.0,
            masked=masked,
        )

    def __post_init__(self) -> None:
        has_cells = bool(self.row_labels) and bool(self.column_labels)
        check_values(self, has_cells, "", "expected one row and one column or more, got none")
        check_equal(self, ".rows", "one row per label", len(self.row_labels), len(self.rows))
        columns = len(self.column_labels)
        for index, row in enumerate(self.rows):
            check_equal(self, f".rows[{index}]", "one number per column", columns, len(row))
        low, high = self.low, self.high
        is_reversed = low >= high
        check_values(
            self, not is_reversed, ".low", f"expected a number below high, {high}, got {low}"
        )
        problem = f"expected two colors around 0, so high = {-low}, as low is {low}; got {high}"
        check_values(self, low >= 0 or math.isclose(high, -low), ".high", problem)


@dataclass(frozen=True, kw_only=True)
class MapChoice:
    """Maps that are shown together."""

    label: str
    note: str
    maps: Sequence[Heatmap]

    def __post_init__(self) -> None:
        check_values(self, bool(self.maps), ".maps", "expected one map or more, got none")


@dataclass(frozen=True, kw_only=True)
class Maps(FigureSection):
    """Maps of any numbers; several choices get a chooser, and the figure shows the first."""

    kind = "maps"
    look = "Look for the strongest colors: they are the largest numbers."
    in_browser = True
    choices: Sequence[MapChoice]

    @property
    def advice(self) -> str:
        """Explain both colors where a map has numbers below zero."""
        if any(heatmap.low < 0 for choice in self.choices for heatmap in choice.maps):
            return "Look for the strongest colors: they are the largest numbers, up or down from 0."
        return self.look

    def __post_init__(self) -> None:
        super().__post_init__()
        check_values(self, bool(self.choices), ".choices", "expected one choice or more, got none")
        total = 0
        for index, choice in enumerate(self.choices):
            for number, heatmap in enumerate(choice.maps):
                cells = len(heatmap.rows) * len(heatmap.column_labels)
                place = f".choices[{index}].maps[{number}].rows"
                check_limit(self, place, "cells", _MAX_MAP_CELLS, cells)
                total += cells
        check_limit(self, "", "cells in all maps together", _MAX_CELLS, total)


@dataclass(frozen=True, kw_only=True)
class Table(Section):
    """A table, which is also written as CSV."""

    kind = "table"
    caption: str
    columns: Texts
    rows: Sequence[Sequence[Scalar]]

    @classmethod
    def of_records(cls, title: str, caption: str, records: Iterable[Mapping[str, Scalar]]) -> Self:
        """Make a table of one record or more, whose keys are the columns."""
        rows_by_column = list(records)
        rows = [list(record.values()) for record in rows_by_column]
        return cls(title=title, caption=caption, columns=list(rows_by_column[0]), rows=rows)

    def __post_init__(self) -> None:
        for index, row in enumerate(self.rows):
            place = f".rows[{index}]"
            check_equal(self, place, "one cell per column", len(self.columns), len(row))


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One input with the model's answer and the correct one."""

    input: Texts
    output: Texts
    expected: Texts
    correct: bool
    confidence: Number = None


@dataclass(frozen=True, kw_only=True)
class Verdicts(Section):
    """Every input and its answer."""

    kind = "verdicts"
    look = "Look for ✗: each cell is one input with the model's answer."
    in_browser = True
    caption: str
    items: Sequence[Verdict]


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A piece of a text; `query` and `key` are positions in its tokens."""

    label: str
    tokens: Texts
    query: int
    key: int

    def __post_init__(self) -> None:
        count = len(self.tokens)
        for name, position in (("query", self.query), ("key", self.key)):
            problem = f"expected one of {count} tokens, got {position}"
            check_values(self, position < count, f".{name}", problem)


@dataclass(frozen=True, kw_only=True)
class PassageGroup:
    """Passages under one heading."""

    title: str
    items: Sequence[Passage]


@dataclass(frozen=True, kw_only=True)
class Passages(Section):
    """Passages of texts, with a query and a key marked in each."""

    kind = "passages"
    look = "Look from the framed token, the query, to the filled one, the key."
    caption: str
    groups: Sequence[PassageGroup]


@dataclass(frozen=True, kw_only=True)
class Box:
    """A box of a diagram with one line of words, in pixels; y goes down."""

    x: float
    y: float
    width: float
    height: float
    title: str
    tone: Literal["plain", "accent", "quiet"] = "plain"


@dataclass(frozen=True, kw_only=True)
class Arrow:
    """An arrow through points (x, y), in pixels."""

    points: Sequence[tuple[float, float]]
    dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Diagram(Section):
    """Boxes and arrows inside `width` × `height` pixels."""

    kind = "diagram"
    look = "Follow the arrows from box to box."
    caption: str
    width: float
    height: float
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]


def shown_trace(trace: Trace) -> Trace:
    """Return a trace as a page shows it: steps with positions, cross-attention first, rounded."""
    steps = [step for step in trace.steps if step.position is not None]
    heads = []
    for head in sorted(trace.attention, key=lambda head: head.key_tokens is None):
        rows = [np.array(row, np.float64).round(6).tolist() for row in head.rows]
        heads.append(replace(head, rows=rows))
    return replace(trace, steps=steps, attention=heads)


def _check_trace(section: "Traces", trace: Trace) -> None:
    length = len(trace.tokens)
    for index, step in enumerate(trace.steps):
        place, chances = f".steps[{index}]", len(step.probabilities)
        check_equal(section, place, "one probability per candidate", len(step.candidates), chances)
        problem = f"expected a token after it, below {length - 1}, got {step.position}"
        is_followed = step.position is not None and step.position + 1 < length
        check_values(section, is_followed, f"{place}.position", problem)
    for index, head in enumerate(trace.attention):
        place, count = f".attention[{index}].rows", len(head.rows)
        problem = f"expected at most {length} rows, one per token, got {count}"
        check_values(section, count <= length, place, problem)
        keys = length if head.key_tokens is None else len(head.key_tokens)
        widest = max(map(len, head.rows), default=0)
        problem = f"expected rows of at most {keys} keys, got {widest}"
        check_values(section, widest <= keys, place, problem)


@dataclass(frozen=True, kw_only=True)
class Traces(FigureSection):
    """Traces with a chooser; the figure shows that of `figure_input`, or the first."""

    kind = "trace"
    look = "Step on, and watch where each head looks before the next token is picked."
    in_browser = True
    traces: Sequence[Trace]
    figure_input: Texts | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for trace in self.traces:
            _check_trace(self, trace)


@dataclass(frozen=True, kw_only=True)
class ReportContent:
    """The content of a report.

    title, subtitle: of the page · facts: pairs of a name and a value · sections: in their order ·
    claims: None if it makes none.
    """

    title: str
    subtitle: str
    facts: Sequence[tuple[str, Scalar]]
    sections: Sequence[Section]
    claims: Sequence[Claim] | None = None

    def __post_init__(self) -> None:
        names = [getattr(section, "figure", None) for section in self.sections]
        for index, name in enumerate(names):
            is_new = name is None or name not in names[:index]
            problem = f"expected a name of its own, got {name!r} for the second time"
            check_values(self, is_new, f".sections[{index}].figure", problem)

    def section(self, title: str) -> Section:
        """Return the section with this title."""
        return next(section for section in self.sections if section.title == title)

    def to_json(self) -> JsonObject:
        """Return plain values for `report.json`."""
        plain: JsonObject = to_json(self)
        return plain

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Read what `to_json` returned.

        Raises:
            WrongUsage: a key is missing or unknown, a value has another type, or two do not fit.
        """
        report: Self = from_json(cls, value, "report")
        return report
