"""Charts: lines with bands on plain or logarithmic axes, grouped bars with whiskers, levels."""

import itertools
import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlab.draw.colors import HUES
from attnlab.draw.numbers import number_words
from attnlab.draw.pictures.look import (
    DASHES,
    INK,
    MUTED,
    PAPER,
    dress,
    finite_array,
    new_figure,
    safe_text,
)
from attnlab.draw.sections import Bars, BarSeries, Level, Lines, Series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

_MAX_DOTS = 40  # points of a line that get markers
_MAX_DIGITS = 7  # of a drawn number, as on the page
_MAX_TICKS = 12  # values with a tick of their own on a logarithmic axis


def lines_figure(section: Lines) -> "Figure":
    """Draw a `lines` section."""
    width = 7.0
    figure = new_figure(width, 3.7)
    axes = figure.add_subplot()
    dress(axes, section.title, section.x_label, section.y_label)
    for index, series in enumerate(section.series):
        _draw_line(axes, series, index, x_log=section.x_log)
    _draw_levels(axes, section.levels)
    places, heights = [], []
    for series in section.series:
        places += finite_array(series.x)
        heights += finite_array(series.y)
    if section.x_log:
        _make_log(axes, "x", places)
    else:
        _count_in_whole_steps(axes, places)
    if section.y_log:
        _make_log(axes, "y", heights)
    elif section.from_zero:
        axes.update_datalim([(max(places, default=0.0), 0.0)])
        axes.autoscale_view()
        axes.set_ylim(bottom=0.0)
    _, labels = axes.get_legend_handles_labels()
    if len(labels) > 1 or (labels and not section.series):
        _add_legend_below(figure, axes, width)
    return figure


def _count_in_whole_steps(axes: Any, places: Sequence[float]) -> None:
    """Leave out ticks between whole numbers if all places are whole: there is no step 1.5."""
    from matplotlib.ticker import MaxNLocator

    if all(x.is_integer() for x in places if not math.isnan(x)):
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))


def _draw_line(axes: Any, series: Series, index: int, *, x_log: bool) -> None:
    x = np.array(finite_array(series.x))
    pick = np.argsort(x, kind="stable")
    pick = pick[~np.isnan(x[pick])]
    if x_log:
        pick = pick[x[pick] > 0.0]
    x, y = x[pick], np.array(finite_array(series.y))[pick]
    hue = HUES[index % len(HUES)]
    style = series.style
    is_points = style == "points"
    # A point between gaps makes no line, so short lines also show their points.
    has_markers = is_points or (len(x) <= _MAX_DOTS and style == "line")
    axes.plot(
        x,
        y,
        label=safe_text(series.name, 60),
        color=hue,
        linestyle="none" if is_points else DASHES[index % len(DASHES)],
        drawstyle="steps-post" if style == "steps" else "default",
        linewidth=1.6,
        marker="o" if has_markers else None,
        markersize=3.5,
    )
    for number, band in enumerate(series.bands, 1):
        low, high = np.array(finite_array(band.low))[pick], np.array(finite_array(band.high))[pick]
        _draw_band(axes, x, y, low, high, hue)
        # Bands overlap: the legend shows each as dark as the chart does.
        label, alpha = safe_text(band.name, 60), 1 - 0.84**number
        axes.fill_between([], [], [], color=hue, alpha=alpha, linewidth=0, label=label)
    if series.low is not None and series.high is not None:
        low, high = (
            np.array(finite_array(series.low))[pick],
            np.array(finite_array(series.high))[pick],
        )
        _draw_band(axes, x, y, low, high, hue, are_apart=is_points)


def _draw_band(
    axes: Any, x: Floats, y: Floats, low: Floats, high: Floats, hue: str, *, are_apart: bool = False
) -> None:
    """Shade an interval along a line, or draw a vertical stroke at each separate point."""
    there = (~np.isnan(low + high + y)).tolist()
    if not are_apart:
        axes.fill_between(x, low, high, where=there, color=hue, alpha=0.16, linewidth=0)
    alpha = 0.55 if are_apart else None
    for i in range(len(x)):
        # A band needs two neighbors; an interval without any is a vertical stroke.
        has_neighbor = any(there[max(0, i - 1) : i] + there[i + 1 : i + 2])
        if there[i] and (are_apart or not has_neighbor):
            axes.plot([x[i], x[i]], [low[i], high[i]], color=hue, linewidth=1.2, alpha=alpha)


def _draw_levels(axes: Any, levels: Sequence[Level]) -> None:
    for level in levels:
        (y,) = finite_array([level.y])
        if not math.isnan(y):
            label = safe_text(level.name, 60)
            axes.axhline(
                y, label=label, color=INK, linestyle=(0, (4, 3)), linewidth=1.1, zorder=2.5
            )


def _make_log(axes: Any, which: str, values: Sequence[float]) -> None:
    """Make an axis logarithmic, with plain numbers for ticks; a few values get their own ticks."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    places = sorted({value for value in values if value > 0})
    if not places:
        return
    axes.set(**{f"{which}scale": "log"})
    axis = getattr(axes, f"{which}axis")
    words = FuncFormatter(lambda value, _: _tick_words(value))
    if which == "x" and 1 < len(places) <= _MAX_TICKS:
        gaps = [math.log(b / a) for a, b in itertools.pairwise(places)]
        # Labels of values that lie too close would overlap.
        if min(gaps) >= math.log(places[-1] / places[0]) / 16:
            axis.set_major_locator(FixedLocator(places))
            axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(words)
    # Within one power of ten only the minor ticks have numbers.
    has_minor_labels = which == "y" and places[-1] / places[0] < 10
    axis.set_minor_formatter(words if has_minor_labels else NullFormatter())


def _tick_words(value: float) -> str:
    words = f"{value:.3g}"
    if 1e-4 < abs(value) < 1e6:
        words = f"{value:,.10g}"
    return words.replace("-", "−")


def bars_figure(section: Bars) -> "Figure":
    """Draw a `bars` section: bars begin at zero, a missing value is a gap with "n/a"."""
    groups, all_series = section.groups, section.series
    num_series = max(1, len(all_series))
    width = min(14.0, max(7.0, 0.9 + 0.24 * len(groups) * (num_series + 0.8)))
    names, do_lean = _group_names(groups, (width - 0.8) / max(1, len(groups)))
    figure = new_figure(width, 3.9 + 0.045 * max(map(len, names), default=0) * do_lean)
    axes = figure.add_subplot()
    dress(axes, section.title, "", section.y_label)
    pitch = 1 / (num_series + 0.8)
    for index, series in enumerate(all_series):
        middles = [group + (index - (num_series - 1) / 2) * pitch for group in range(len(groups))]
        _draw_bars(axes, series, middles, 0.86 * pitch, HUES[index % len(HUES)])
    _draw_levels(axes, section.levels)
    axes.axhline(0, color=MUTED, linewidth=0.9)
    axes.spines["bottom"].set_visible(False)
    axes.margins(x=0.01, y=0.08)
    if num_series * len(groups) <= 2.3 * (width - 0.8):
        _write_values(axes, section, pitch)
    places = range(len(groups))
    if do_lean:
        axes.set_xticks(places, names, rotation=45, ha="right", rotation_mode="anchor")
    else:
        axes.set_xticks(places, names)
    axes.tick_params(axis="x", length=0)
    if num_series > 1 or section.levels:
        _add_legend_below(figure, axes, width)
    return figure


def _draw_bars(
    axes: Any, series: BarSeries, middles: Sequence[float], width: float, hue: str
) -> None:
    values, label = finite_array(series.values), safe_text(series.name, 60)
    bars = axes.bar(middles, values, width, color=hue, label=label, zorder=2)
    _draw_whiskers(axes, series, middles, values)
    style = {"textcoords": "offset points", "ha": "center", "fontsize": 8, "color": MUTED}
    for bar, middle, value in zip(bars, middles, values, strict=True):
        if math.isnan(value):
            bar.set_height(0)
            axes.annotate("n/a", (middle, 0), (0, 3), **style)


def _add_legend_below(figure: "Figure", axes: Any, width: float) -> None:
    """Add a legend below the chart: series in order, levels last, row by row."""
    handles, labels = axes.get_legend_handles_labels()
    named = sorted(
        zip(handles, labels, strict=True), key=lambda pair: hasattr(pair[0], "get_linestyle")
    )
    inches = [0.55 + 0.072 * len(label) for _, label in named]
    across = 4
    while across > 1 and sum(max(inches[i::across], default=0.0) for i in range(across)) > width:
        across -= 1
    across = max(1, min(across, len(named)))
    ordered = []
    for column in range(across):  # matplotlib fills one column after the other
        ordered += named[column::across]
    handles, labels = zip(*ordered, strict=True)
    figure.legend(
        handles,
        labels,
        loc="outside lower left",
        ncols=across,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
    )


def _draw_whiskers(
    axes: Any, series: BarSeries, middles: Sequence[float], values: Sequence[float]
) -> None:
    if series.low is None or series.high is None:
        return
    low, high = finite_array(series.low), finite_array(series.high)
    for x, value, a, b in zip(middles, values, low, high, strict=True):
        if not math.isnan(value + a + b):
            # A line from end to end: an interval need not contain the value, an error bar must.
            axes.plot([x, x], [a, b], color=PAPER, linewidth=3.2, zorder=3)
            axes.plot(
                [x, x], [a, b], color=INK, linewidth=1.2, marker="_", markersize=6, zorder=3.1
            )


def _write_values(axes: Any, section: Bars, pitch: float) -> None:
    from matplotlib.patheffects import withStroke

    num_series = len(section.series)
    for index, series in enumerate(section.series):
        values = finite_array(series.values)
        lows = values if series.low is None else finite_array(series.low)
        highs = values if series.high is None else finite_array(series.high)
        for group, (value, low, high) in enumerate(zip(values, lows, highs, strict=True)):
            if math.isnan(value):
                continue
            there = [number for number in (value, low, high) if not math.isnan(number)]
            at, shift = max(there), 5
            if value < 0:
                at, shift = min(there), -12
            x = group + (index - (num_series - 1) / 2) * pitch
            axes.annotate(
                number_words(float(f"{value:.{_MAX_DIGITS}g}")),
                (x, at),
                (0, shift),
                textcoords="offset points",
                ha="center",
                fontsize=7.5,
                color=INK,
                # Above the whiskers of neighbors, which would cross a number out.
                zorder=4,
                path_effects=[withStroke(linewidth=2.5, foreground=PAPER)],
            )


def _group_names(groups: Sequence[str], inches: float) -> tuple[list[str], bool]:
    """Return the names, in lines if they fit, and whether they have to be slanted."""
    letters = max(1, int(inches * 13))
    wrap = textwrap.TextWrapper(letters, break_long_words=False, break_on_hyphens=False).wrap
    names = []
    for group in groups:
        lines = wrap(safe_text(group, 60)) or [safe_text(group)]
        if len(lines) > 4 or max(map(len, lines)) > letters:
            return [safe_text(group, 28) for group in groups], True
        names.append("\n".join(lines))
    return names, False
