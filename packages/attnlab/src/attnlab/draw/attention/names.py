"""Names on the axes of a figure: white space is visible, and no letter is a blank box.

Names that would overlap are left out; the title of the axis then says how many places a name
stands for.
"""

import functools
import unicodedata
from collections.abc import Sequence
from typing import Any

from attnlab.draw.pictures.look import INK, MUTED, safe_text

_FONTS = (
    "DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Micro Hei",
    "Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Emoji", "Symbola",
)  # fmt: skip
_MAX_LETTERS = 16
_NAME_INCHES = 0.13  # least distance between two names
STRIDES = [step * 10**power for power in range(12) for step in (1, 2, 5)]


def token_words(token: str, most: int = _MAX_LETTERS) -> str:
    """Make a token visible: blanks, new lines and tabs as signs, an empty token as ∅.

    Letters that no installed font has are written as their code, so that different tokens look
    different.

    >>> token_words(" the"), token_words(""), token_words("$x"), token_words("\\n")
    ('␣the', '∅', '\\\\$x', '⏎')
    """
    text = token.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥") or "∅"
    return safe_text("".join(map(_drawable, text)), most)


def _drawable(letter: str) -> str:
    """Return a letter, or its code if no font has it."""
    # No font draws a control character, a lone surrogate or a direction mark.
    if ord(letter) in _letters() or unicodedata.category(letter) in ("Cc", "Cs", "Cf"):
        return letter
    return f"⟨{ord(letter):X}⟩"


@functools.cache
def fonts() -> list[str]:
    """List the installed ones of the fonts for many scripts."""
    from matplotlib.font_manager import get_font_names

    installed = set(get_font_names())
    return [name for name in _FONTS if name in installed]


@functools.cache
def _letters() -> frozenset[int]:
    from matplotlib.font_manager import findfont, get_font

    return frozenset(code for name in fonts() for code in get_font(findfont(name)).get_charmap())


def name_axis(
    axis: Any, tokens: Sequence[str], cell: float, *, title: str = "", side: int = 1
) -> None:
    """Label an axis with tokens, as many as there is room for.

    Args:
        axis: `axes.xaxis` or `axes.yaxis`, with one unit per cell.
        tokens: the names of all places, also if a cell holds several.
        cell: the width of a cell in inches.
        title: what the axis shows, such as "key"; empty for no title.
        side: how many tokens a cell holds.
    """
    num_cells = -(-len(tokens) // side)
    stride = next((stride for stride in STRIDES if stride * cell >= _NAME_INCHES), num_cells)
    places, apart = range(0, num_cells, stride), stride * side
    names = list(map(token_words, tokens[::apart]))
    if apart > 1 and title:
        names = [f"{index * apart:,}  {name}" for index, name in enumerate(names)]
        title = f"{title} (place and name of every {apart:,}{_ending(apart)})"
    leans = axis.axis_name == "x" and max(map(len, names), default=0) * 0.075 > stride * cell
    style: dict[str, object] = {"fontfamily": fonts() or None}
    if leans:
        style["rotation"] = 90
    axis.set_ticks(list(places), names, **style)
    axis.set_tick_params(length=0, labelcolor=INK, labelsize=7.5)
    axis.set_label_text(title, color=MUTED, fontsize=9)


def _ending(number: int) -> str:
    """Return the ending of an ordinal; strides are 2, or end in 0 or 5."""
    return "nd" if number == 2 else "th"
