"""Maps: shaded cells side by side, with numbers if they are few.

Shades differ in lightness and are linear in the value: one color from `low` up, two colors around
zero if `low` is negative. Cells without a number stay blank.
"""

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlab.draw.colors import COOL, STRONG, WARM
from attnlab.draw.pictures.look import INK, MUTED, PAPER, RULE, finite_array, new_figure, safe_text
from attnlab.draw.sections import Heatmap, Maps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_COLUMNS = 4
_MAX_INCHES = 32.0  # of a side: four maps of twelve keys with legible numbers
_MAX_NUMBERS = 12  # rows and columns of a map with numbers in its cells
_MIN_INCHES = 4.0
_LARGEST_CELL = 0.42
_LETTERS_PER_INCH = 12.0  # of a title, at least
_LINE_INCHES = 0.2
_BAR_INCHES = 0.75  # width of the color bar with its numbers
_NAME_INCHES = 0.14  # least distance between two names
_STEPS = np.linspace(0, 1, 33).tolist()  # of a color map, between which matplotlib blends


def maps_figure(section: Maps) -> "Figure":
    """Draw the first choice of a `maps` section."""
    return _grid_of_maps(section.title, section.choices[0].maps)


def _grid_of_maps(title: str, maps: Sequence[Heatmap]) -> "Figure":
    across = min(_MAX_COLUMNS, max(1, len(maps)))
    widths, heights = [3.0], [2.0]
    if maps:
        wide, high = zip(*map(_inches, maps), strict=True)
        widths = [max(wide[column::across]) for column in range(across)]
        heights = [max(high[first : first + across]) for first in range(0, len(maps), across)]
    width, height = sum(widths), sum(heights)
    room = max(_MIN_INCHES, min(width, _MAX_INCHES))
    heading = textwrap.wrap(safe_text(title, 100), int(room * _LETTERS_PER_INCH))
    figure = new_figure(room, 0.3 + _LINE_INCHES * len(heading) + min(height, _MAX_INCHES))
    figure.suptitle("\n".join(heading), fontsize=11, x=0.01, ha="left", color=INK)
    if width < room:  # the title is wider than the maps, which are aligned left
        widths.append(room - width)
    grid = figure.add_gridspec(len(heights), len(widths), width_ratios=widths)
    ranges = {(heatmap.low, heatmap.high) for heatmap in maps}
    for index, heatmap in enumerate(maps):
        axes = figure.add_subplot(grid[index // across, index % across])
        picture = draw_map(axes, heatmap)
        if len(ranges) > 1 or index == len(maps) - 1:
            add_color_bar(figure, axes, picture)
    if len(maps) == 1:
        _trim(figure, axes)
    return figure


def _trim(figure: "Figure", axes: Any) -> None:
    """Take away the height that a map with cells of a fixed shape leaves above and below it."""
    figure.draw_without_rendering()
    drawn = axes.get_tightbbox()
    room = axes.get_position(original=True).transformed(figure.transFigure)
    empty = max(room.y1, drawn.y1) - min(room.y0, drawn.y0) - drawn.height
    figure.set_figheight(figure.get_figheight() - empty / figure.dpi)


def add_color_bar(figure: "Figure", axes: Any, picture: Any) -> Any:
    """Add the scale of a map beside it."""
    bar: Any = figure.colorbar(picture, ax=axes, fraction=0.045, pad=0.03, aspect=24)
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=MUTED, labelsize=8, length=0)
    return bar


def _inches(heatmap: Heatmap) -> tuple[float, float]:
    """Return the width and height of a map with names and titles; fewer cells are larger."""
    num_rows, num_columns = len(heatmap.row_labels), len(heatmap.column_labels)
    cell, high = _cell_inches(heatmap)
    names = 0.085 * max(min(_longest(heatmap.row_labels), 18), 3)
    heads = 0.15
    if _leans(heatmap, cell):
        heads = min(0.085 * _longest(heatmap.column_labels), 1.4)
    titles = _LINE_INCHES * (len(_title_lines(heatmap, cell)) - 1)
    width = max(1.9, num_columns * cell + names + _BAR_INCHES)
    return width, max(1.2, num_rows * high + heads + 0.75) + titles


def _cell_inches(heatmap: Heatmap) -> tuple[float, float]:
    """Return the width and height of a cell; in a map of many rows it is wider than it is high."""
    num_rows, num_columns = max(1, len(heatmap.rows)), max(1, len(heatmap.column_labels))
    high = min(_LARGEST_CELL, max(0.085, 5.0 / max(num_rows, num_columns)))
    return min(_LARGEST_CELL, max(high, min(2.0 * high, 5.0 / num_columns))), high


def _title_lines(heatmap: Heatmap, cell: float) -> list[str]:
    """Break a map's title at the width of its map, so that titles do not overlap."""
    inches = len(heatmap.column_labels) * cell + _BAR_INCHES
    return textwrap.wrap(safe_text(heatmap.title, 100), int(inches * _LETTERS_PER_INCH)) or [""]


def _longest(names: Sequence[str]) -> int:
    return max(map(len, names), default=0)


def _leans(heatmap: Heatmap, cell: float) -> bool:
    return _longest(heatmap.column_labels) * 0.078 > cell


def color_map(*, is_signed: bool) -> Any:
    """Return the shades of all maps: one color, or two colors around zero."""
    from matplotlib.colors import LinearSegmentedColormap

    colors = list(map(COOL.rgb, _STEPS))
    if is_signed:
        colors = [*map(WARM.rgb, reversed(_STEPS)), *colors[1:]]
    return LinearSegmentedColormap.from_list("shades", colors, N=511)


def draw_map(axes: Any, heatmap: Heatmap) -> Any:
    """Draw one map into axes, and return the image for a color bar."""
    low, high = heatmap.low, heatmap.high
    shades = color_map(is_signed=low < 0).with_extremes(bad=PAPER)
    rows = list(map(finite_array, heatmap.rows))
    num_rows, num_columns = len(rows), len(heatmap.column_labels)
    cell, cell_height = _cell_inches(heatmap)
    has_numbers = num_rows <= _MAX_NUMBERS and num_columns <= _MAX_NUMBERS
    tinted = rows
    if has_numbers and low < 0:
        decimals = _decimals(np.array(rows, np.float64))
        tinted = [[0.0 if round(value, decimals) == 0 else value for value in row] for row in rows]
    picture = axes.imshow(
        tinted or [[math.nan]],
        cmap=shades,
        vmin=low,
        vmax=high,
        interpolation="nearest",
        aspect=cell_height / cell,
    )
    if has_numbers:
        _write_numbers(axes, rows, low, high)
    _name_axis(axes.set_yticks, heatmap.row_labels, cell_height)
    if _leans(heatmap, cell):
        _name_axis(axes.set_xticks, heatmap.column_labels, cell, rotation=90)
    else:
        _name_axis(axes.set_xticks, heatmap.column_labels, cell)
    axes.tick_params(length=0, labelcolor=INK, labelsize=8)
    for spine in axes.spines.values():
        spine.set_color(RULE)
    axes.set_title("\n".join(_title_lines(heatmap, cell)), fontsize=9.5, loc="left", color=INK)
    axes.set_xlabel(safe_text(heatmap.column_title, 40), color=MUTED, fontsize=9)
    axes.set_ylabel(safe_text(heatmap.row_title, 40), color=MUTED, fontsize=9)
    return picture


def _name_axis(name: Any, labels: Sequence[str], cell: float, **options: Any) -> None:
    places = range(0, len(labels), math.ceil(_NAME_INCHES / cell))
    name(list(places), [safe_text(labels[i], 18) for i in places], **options)


def _write_numbers(axes: Any, rows: Sequence[Sequence[float]], low: float, high: float) -> None:
    decimals = _decimals(np.array(rows, np.float64))
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            if math.isnan(value):
                continue
            depth = abs(value) / high if low < 0 else (value - low) / (high - low)
            words = f"{value:.{decimals}f}".replace("-", "−")
            if round(value, decimals) == 0:
                words = "0"
            color = PAPER if depth > STRONG else INK
            axes.text(j, i, words, ha="center", va="center", fontsize=7, color=color)


def _decimals(values: NDArray[np.float64]) -> int:
    known = values[~np.isnan(values)]
    largest = np.abs(known).max(initial=0.0)
    if largest >= 100 or bool((known % 1 == 0).all()):
        return 0
    if largest >= 10:
        return 1
    return min(6, max(2, 1 - math.floor(math.log10(largest))))  # two digits of the largest
