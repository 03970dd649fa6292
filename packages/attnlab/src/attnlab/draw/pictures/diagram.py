"""Diagrams as figures, in the layout of the page (`attnlab.draw.diagram`) at 96 pixels an inch."""

from typing import TYPE_CHECKING, Any

from attnlab.draw.diagram import PlacedArrow, PlacedBox, PlacedLine, lay_out
from attnlab.draw.pictures.look import (
    ACCENT,
    INK,
    MUTED,
    PAPER,
    RULE,
    SUNKEN,
    WASH,
    new_figure,
    shown,
)
from attnlab.draw.sections import Diagram

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCH = 96
_POINT = 72 / _INCH
_TITLE_SPACE = 34  # pixels above the drawing
_SIZES = {"title": 13.0 * _POINT, "note": 11.5 * _POINT, "label": 11.5 * _POINT}
_FILLS = {"plain": (PAPER, MUTED), "accent": (WASH, ACCENT), "quiet": (SUNKEN, RULE)}
_WORDS = {"plain": (INK, MUTED), "accent": (ACCENT, INK), "quiet": (MUTED, MUTED)}


def diagram_figure(section: Diagram) -> "Figure":
    """Draw a `diagram` section."""
    width, height = section.width, section.height
    figure = new_figure(width / _INCH, (height + _TITLE_SPACE) / _INCH)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, height / (height + _TITLE_SPACE)))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    place = 1 - 12 / (height + _TITLE_SPACE)
    figure.text(10 / width, place, shown(section.title), fontsize=11, color=INK, va="top")
    layout = lay_out(section)
    for box in layout.frames:
        _draw_box(axes, box, 1.0, is_frame=True)
    for arrow in layout.arrows:
        _draw_arrow(axes, arrow)
    for box in layout.boxes:
        _draw_box(axes, box, 3.0, is_frame=False)
    for arrow in layout.arrows:
        if arrow.label:
            _write(axes, arrow.label, MUTED, ground=PAPER)
    return figure


def _draw_box(axes: Any, box: PlacedBox, order: float, *, is_frame: bool) -> None:
    from matplotlib.patches import FancyBboxPatch

    fill, edge = _FILLS[box.tone]
    if is_frame and box.tone == "plain":
        fill, edge = "none", RULE
    # The rounding stays inside the box, as on the page.
    round_by = min(7.0, box.width / 2, box.height / 2)
    axes.add_patch(
        FancyBboxPatch(
            (box.x, box.y),
            box.width,
            box.height,
            boxstyle=f"round,pad=0,rounding_size={round_by}",
            facecolor=fill,
            edgecolor=edge,
            linewidth=1.1,
            zorder=order,
        )
    )
    title_color, note_color = _WORDS[box.tone]
    for line in box.lines:
        if line.role == "title":
            _write(axes, line, title_color, weight="bold")
        else:
            _write(axes, line, note_color)


def _draw_arrow(axes: Any, arrow: PlacedArrow) -> None:
    from matplotlib.patches import Polygon

    x, y = zip(*arrow.shaft, strict=True)
    dashes: object = (0, (4, 3)) if arrow.is_dashed else "solid"
    axes.plot(x, y, color=MUTED, linewidth=1.1, linestyle=dashes, zorder=2)
    if arrow.head:
        axes.add_patch(
            Polygon(arrow.head, closed=True, facecolor=MUTED, edgecolor="none", zorder=2)
        )


def _write(
    axes: Any, line: PlacedLine, color: str, *, weight: str = "normal", ground: str | None = None
) -> None:
    box = None
    if ground:
        box = {"facecolor": ground, "edgecolor": "none", "pad": 1}
    axes.text(
        line.x,
        line.y,
        shown(line.text),
        ha={"start": "left", "middle": "center", "end": "right"}[line.anchor],
        va="baseline",
        fontsize=_SIZES[line.role],
        fontweight=weight,
        color=color,
        zorder=4,
        bbox=box,
    )
