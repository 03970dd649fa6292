"""Diagrams: the layout of boxes, words and arrows, and the inline SVG of a page.

Only `lay_out` computes positions, so the page and the figure show the same picture. A box that
contains other boxes has its title at the top; all other words are centered in their box, in lines.
"""

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from attnlab.draw.markup import escape

__all__ = ["Arrow", "Box", "Layout", "Line", "diagram_to_svg", "lay_out"]

_TITLE_LETTER, _NOTE_LETTER = 7.6, 6.5  # mean width of a letter on the page, in pixels
_TITLE_HEIGHT, _NOTE_HEIGHT = 17.0, 15.0
_HEAD_LENGTH, _HEAD_WIDTH = 9.0, 8.0


class Line(NamedTuple):
    """One line of words; x, y is the start, middle or end of its baseline."""

    text: str
    x: float
    y: float
    role: str  # "title", "note" or "label"
    anchor: str  # "start", "middle" or "end"


class Box(NamedTuple):
    """A box in pixels; `tone` is one of `document.TONES`."""

    x: float
    y: float
    width: float
    height: float
    tone: str
    lines: tuple[Line, ...]
    words: str  # title and note in full


class Arrow(NamedTuple):
    """A shaft through points, and the three corners of its head; none if the length is zero."""

    shaft: tuple[tuple[float, float], ...]
    head: tuple[tuple[float, float], ...]
    is_dashed: bool
    label: Line | None


class Layout(NamedTuple):
    """A diagram in the order of drawing: frames, arrows, boxes."""

    frames: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    boxes: tuple[Box, ...]


def lay_out(section: Mapping[str, Any]) -> Layout:
    """Compute the positions of everything in a checked diagram section."""
    frames, boxes = [], []
    for box in sorted(section["boxes"], key=lambda box: -box["width"] * box["height"]):
        if any(_contains(box, other) for other in section["boxes"]):
            frames.append(_place_box(box, is_frame=True))
        else:
            boxes.append(_place_box(box, is_frame=False))
    arrows = [_place_arrow(arrow, section["width"]) for arrow in section["arrows"]]
    return Layout(tuple(frames), tuple(arrows), tuple(boxes))


def _contains(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> bool:
    is_larger = outer["width"] * outer["height"] > inner["width"] * inner["height"]
    return bool(
        is_larger
        and outer["x"] <= inner["x"]
        and outer["y"] <= inner["y"]
        and outer["x"] + outer["width"] >= inner["x"] + inner["width"]
        and outer["y"] + outer["height"] >= inner["y"] + inner["height"]
    )


def _place_box(box: Mapping[str, Any], *, is_frame: bool) -> Box:
    x, y, width, height = box["x"], box["y"], box["width"], box["height"]
    note = box.get("note", "")
    titles = _lines(box["title"], (width - 12) / _TITLE_LETTER)
    notes = _lines(note, (width - 12) / _NOTE_LETTER)
    if not is_frame:
        # Words without room are cut; the tooltip and the description have the whole text.
        titles = _cut(titles, max(1, int((height - 4) / _TITLE_HEIGHT)))
        room = int((height - 4 - len(titles) * _TITLE_HEIGHT) / _NOTE_HEIGHT)
        if notes and titles and room <= 0:
            titles[-1] += " …"
        notes = _cut(notes, room)
    used = len(titles) * _TITLE_HEIGHT + len(notes) * _NOTE_HEIGHT
    at = y + 5 if is_frame else y + (height - used) / 2
    place, anchor = (x + 10, "start") if is_frame else (x + width / 2, "middle")
    lines = []
    for words, role, step in ((titles, "title", _TITLE_HEIGHT), (notes, "note", _NOTE_HEIGHT)):
        for text in words:
            lines.append(Line(text, place, at + step * 0.75, role, anchor))
            at += step
    words_in_full = ": ".join(part for part in (box["title"], note) if part)
    return Box(x, y, width, height, box.get("tone", "plain"), tuple(lines), words_in_full)


def _lines(text: str, letters: float) -> list[str]:
    """Break a text into lines, also inside words that are longer than a line."""
    width = max(1, int(letters))
    return [line for part in text.splitlines() for line in textwrap.wrap(part, width)]


def _cut(lines: list[str], most: int) -> list[str]:
    if len(lines) <= most:
        return lines
    if most <= 0:
        return []
    return [*lines[: most - 1], lines[most - 1] + "…"]


def _place_arrow(arrow: Mapping[str, Any], width: float) -> Arrow:
    points = [(float(x), float(y)) for x, y in arrow["points"]]
    tip = points[-1]
    before = next((point for point in reversed(points) if point != tip), None)
    label = _place_label(arrow.get("label", ""), points, width)
    if before is None:
        return Arrow(tuple(points), (), arrow.get("dashed", False), label)
    length = math.dist(before, tip)
    along = ((tip[0] - before[0]) / length, (tip[1] - before[1]) / length)
    across = (-along[1] * _HEAD_WIDTH / 2, along[0] * _HEAD_WIDTH / 2)
    base = (tip[0] - along[0] * _HEAD_LENGTH, tip[1] - along[1] * _HEAD_LENGTH)
    corners = (
        tip,
        (base[0] + across[0], base[1] + across[1]),
        (base[0] - across[0], base[1] - across[1]),
    )
    while points[-1] == tip:
        points.pop()
    # The shaft ends inside the head, so that its blunt end is hidden.
    end = base if length > _HEAD_LENGTH else before
    return Arrow((*points, end), corners, arrow.get("dashed", False), label)


def _place_label(text: str, points: Sequence[tuple[float, float]], width: float) -> Line | None:
    """Place a label above the longest segment if that is flat, else beside it."""
    if not text:
        return None
    (x0, y0), (x1, y1) = max(itertools.pairwise(points), key=lambda pair: math.dist(*pair))
    x, y, half = (x0 + x1) / 2, (y0 + y1) / 2, len(text) * _NOTE_LETTER / 2
    if abs(x1 - x0) >= abs(y1 - y0):
        return Line(text, min(max(x, half), max(half, width - half)), y - 6, "label", "middle")
    if x + 7 + 2 * half <= width:
        return Line(text, x + 7, y + 4, "label", "start")
    return Line(text, x - 7, y + 4, "label", "end")


def diagram_to_svg(section: Mapping[str, Any]) -> str:
    """Return a diagram as inline SVG, styled by classes so that it follows the page's theme."""
    layout = lay_out(section)
    words = "; ".join(box.words for box in (*layout.frames, *layout.boxes) if box.words)
    labels = [arrow.label for arrow in layout.arrows if arrow.label]
    width, height = section["width"], section["height"]
    parts = [_box_to_svg(box, "frame") for box in layout.frames]
    parts += [_arrow_to_svg(arrow) for arrow in layout.arrows]
    parts += [_box_to_svg(box, "box") for box in layout.boxes]
    parts += [_line_to_svg(line) for line in labels]
    body = "\n".join(parts)
    label = f"{escape(section['title'])}: drawing"
    # A region that scrolls must be reachable by keyboard.
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
        f'<svg class="drawing" role="img" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" aria-label="{escape(words or "an empty picture")}">\n'
        f"{body}\n</svg></div>"
    )


def _box_to_svg(box: Box, kind: str) -> str:
    return (
        f'<g class="{kind} {box.tone}"><title>{escape(box.words)}</title>'
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="7"/>'
        f"{''.join(map(_line_to_svg, box.lines))}</g>"
    )


def _arrow_to_svg(arrow: Arrow) -> str:
    head = f'<polygon points="{_points(arrow.head)}"/>' if arrow.head else ""
    return (
        f'<g class="arrow{" dashed" if arrow.is_dashed else ""}"><polyline '
        f'points="{_points(arrow.shaft)}"/>{head}</g>'
    )


def _points(corners: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.2f},{y:.2f}" for x, y in corners)


def _line_to_svg(line: Line) -> str:
    return (
        f'<text class="{line.role}" x="{line.x:.2f}" y="{line.y:.2f}" text-anchor="{line.anchor}">'
        f"{escape(line.text)}</text>"
    )
