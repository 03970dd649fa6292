"""Diagrams: boxes and arrows, and where their words go.

A box that contains other boxes has its title at the top; all other words are centered in their box,
in lines. The page draws the layout as inline SVG.
"""

import itertools
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from attnlab.draw.section import Section

Tone = Literal["plain", "accent", "quiet"]

_TITLE_LETTER, _NOTE_LETTER = 7.6, 6.5  # mean width of a letter on the page, in pixels
_TITLE_HEIGHT, _NOTE_HEIGHT = 17.0, 15.0
_HEAD_LENGTH, _HEAD_WIDTH = 9.0, 8.0


@dataclass(frozen=True, kw_only=True)
class Box:
    """A box of a diagram, in pixels; y goes down."""

    x: float
    y: float
    width: float
    height: float
    title: str
    note: str = ""
    tone: Tone = "plain"


@dataclass(frozen=True, kw_only=True)
class Arrow:
    """An arrow through points (x, y), in pixels."""

    points: Sequence[tuple[float, float]]
    dashed: bool = False
    label: str = ""


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


@dataclass(frozen=True)
class PlacedLine:
    """One line of words; x, y is the start, middle or end of its baseline."""

    text: str
    x: float
    y: float
    role: str  # "title", "note" or "label"
    anchor: str  # "start", "middle" or "end"


@dataclass(frozen=True)
class PlacedBox:
    """A box in pixels; `tone` is that of the `Box`."""

    x: float
    y: float
    width: float
    height: float
    tone: str
    lines: tuple[PlacedLine, ...]
    words: str  # title and note in full


@dataclass(frozen=True)
class PlacedArrow:
    """A shaft through points, and the three corners of its head; none if the length is zero."""

    shaft: tuple[tuple[float, float], ...]
    head: tuple[tuple[float, float], ...]
    is_dashed: bool
    label: PlacedLine | None


@dataclass(frozen=True)
class Layout:
    """A diagram in the order of drawing: frames, arrows, boxes."""

    frames: tuple[PlacedBox, ...]
    arrows: tuple[PlacedArrow, ...]
    boxes: tuple[PlacedBox, ...]

    @property
    def words(self) -> str:
        """The words of all boxes, for screen readers."""
        return "; ".join(box.words for box in (*self.frames, *self.boxes) if box.words)


def lay_out(diagram: Diagram) -> Layout:
    """Compute the positions of everything in a diagram."""
    frames, boxes = [], []
    for box in sorted(diagram.boxes, key=lambda box: -box.width * box.height):
        if any(_contains(box, other) for other in diagram.boxes):
            frames.append(_place_box(box, is_frame=True))
        else:
            boxes.append(_place_box(box, is_frame=False))
    arrows = [_place_arrow(arrow, diagram.width) for arrow in diagram.arrows]
    return Layout(tuple(frames), tuple(arrows), tuple(boxes))


def _contains(outer: Box, inner: Box) -> bool:
    return (
        outer.width * outer.height > inner.width * inner.height
        and outer.x <= inner.x
        and outer.y <= inner.y
        and outer.x + outer.width >= inner.x + inner.width
        and outer.y + outer.height >= inner.y + inner.height
    )


def _place_box(box: Box, *, is_frame: bool) -> PlacedBox:
    titles = _lines(box.title, (box.width - 12) / _TITLE_LETTER)
    notes = _lines(box.note, (box.width - 12) / _NOTE_LETTER)
    if not is_frame:
        # Words without room are cut; the tooltip and the description have the whole text.
        titles = _cut(titles, max(1, int((box.height - 4) / _TITLE_HEIGHT)))
        room = int((box.height - 4 - len(titles) * _TITLE_HEIGHT) / _NOTE_HEIGHT)
        if notes and titles and room <= 0:
            titles[-1] += " …"
        notes = _cut(notes, room)
    used = len(titles) * _TITLE_HEIGHT + len(notes) * _NOTE_HEIGHT
    at, place, anchor = box.y + (box.height - used) / 2, box.x + box.width / 2, "middle"
    if is_frame:
        at, place, anchor = box.y + 5, box.x + 10, "start"
    lines = []
    for words, role, step in ((titles, "title", _TITLE_HEIGHT), (notes, "note", _NOTE_HEIGHT)):
        for text in words:
            lines.append(PlacedLine(text, place, at + step * 0.75, role, anchor))
            at += step
    words_in_full = ": ".join(filter(None, (box.title, box.note)))
    return PlacedBox(box.x, box.y, box.width, box.height, box.tone, tuple(lines), words_in_full)


def _lines(text: str, letters: float) -> list[str]:
    """Break a text into lines, also inside words that are longer than a line."""
    lines = []
    for part in text.splitlines():
        lines += textwrap.wrap(part, max(1, int(letters)))
    return lines


def _cut(lines: list[str], most: int) -> list[str]:
    if len(lines) <= most:
        return lines
    if most <= 0:
        return []
    return [*lines[: most - 1], lines[most - 1] + "…"]


def _place_arrow(arrow: Arrow, width: float) -> PlacedArrow:
    points = [(float(x), float(y)) for x, y in arrow.points]
    label = _place_label(arrow.label, points, width)
    shaft, tip = list(points), points[-1]
    while shaft and shaft[-1] == tip:
        shaft.pop()
    if not shaft:
        return PlacedArrow(tuple(points), (), arrow.dashed, label)
    before = shaft[-1]
    length = math.dist(before, tip)
    along = ((tip[0] - before[0]) / length, (tip[1] - before[1]) / length)
    across = (-along[1] * _HEAD_WIDTH / 2, along[0] * _HEAD_WIDTH / 2)
    base = (tip[0] - along[0] * _HEAD_LENGTH, tip[1] - along[1] * _HEAD_LENGTH)
    corners = (
        tip,
        (base[0] + across[0], base[1] + across[1]),
        (base[0] - across[0], base[1] - across[1]),
    )
    # The shaft ends inside the head, so that its blunt end is hidden.
    end = base if length > _HEAD_LENGTH else before
    return PlacedArrow((*shaft, end), corners, arrow.dashed, label)


def _place_label(
    text: str, points: Sequence[tuple[float, float]], width: float
) -> PlacedLine | None:
    """Place a label above the longest segment if that is flat, else beside it."""
    if not text:
        return None
    (x0, y0), (x1, y1) = max(itertools.pairwise(points), key=lambda pair: math.dist(*pair))
    x, y, half = (x0 + x1) / 2, (y0 + y1) / 2, len(text) * _NOTE_LETTER / 2
    if abs(x1 - x0) >= abs(y1 - y0):
        return PlacedLine(
            text, min(max(x, half), max(half, width - half)), y - 6, "label", "middle"
        )
    if x + 7 + 2 * half <= width:
        return PlacedLine(text, x + 7, y + 4, "label", "start")
    return PlacedLine(text, x - 7, y + 4, "label", "end")
