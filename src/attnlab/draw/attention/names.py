"""Names on the axes of a figure: white space is seen, no letter is a blank box, names that would touch are left out.

What is left out is said: the title of the axis tells how many places one name stands for.
"""

import functools
import unicodedata
from collections.abc import Sequence
from typing import Any

from attnlab.draw.pictures.look import INK, MUTED, shown

__all__ = ["fonts", "name_axis", "token_words"]

_FONTS = (
    "DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Micro Hei", "Noto Sans Arabic",
    "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Emoji", "Symbola",
)  # fmt: skip
_MOST_LETTERS = 16
_NAME_INCHES = 0.13  # from one name to the next, at least
_STRIDES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)


def token_words(token: str, most: int = _MOST_LETTERS) -> str:
    """Word a token so that it can be seen: blanks, new lines and tabs as signs, nothing as ∅, the rest as it is.

    Letters that no installed font has are told by their code, so that two tokens never look alike for want of a font.

    >>> token_words(" the"), token_words(""), token_words("$x"), token_words("\\n")
    ('␣the', '∅', '\\\\$x', '⏎')
    """
    text = token.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥") if token else "∅"
    known = _letters()
    words = "".join(letter if ord(letter) in known or _is_no_shape(letter) else f"⟨{ord(letter):X}⟩" for letter in text)
    return shown(words, most)


def _is_no_shape(letter: str) -> bool:
    """Controls, lone surrogates and marks of direction have no shape in any font."""
    return unicodedata.category(letter) in ("Cc", "Cs", "Cf")


@functools.cache
def fonts() -> list[str]:
    """List those of the fonts for many scripts that are installed here."""
    from matplotlib.font_manager import get_font_names

    installed = set(get_font_names())
    return [name for name in _FONTS if name in installed]


@functools.cache
def _letters() -> frozenset[int]:
    from matplotlib.font_manager import findfont, get_font

    return frozenset(code for name in fonts() for code in get_font(findfont(name)).get_charmap())


def name_axis(axis: Any, tokens: Sequence[str], cell: float, *, title: str, side: int = 1) -> None:
    """Name the places of an axis whose cells are `cell` inches wide, each `side` tokens long.

    Args:
        axis: `axes.xaxis` or `axes.yaxis`, with one unit for a cell.
        tokens: the names of all places, side by side, also where a cell holds several.
        cell: inches.
        title: what the axis shows, such as "key".
        side: tokens in a cell.
    """
    num_cells = -(-len(tokens) // side)
    stride = next((each for each in _STRIDES if each * cell >= _NAME_INCHES), num_cells)
    places = range(0, num_cells, stride)
    names = [token_words(tokens[place * side]) for place in places]
    apart = stride * side
    if apart > 1:
        names = [f"{place * side:,}  {name}" for place, name in zip(places, names, strict=True)]
        title = f"{title} (place and name of every {apart:,}{_ending(apart)})"
    leans = axis.axis_name == "x" and max(map(len, names), default=0) * 0.075 > stride * cell
    axis.set_ticks(list(places), names, fontfamily=fonts() or None, **({"rotation": 90} if leans else {}))
    axis.set_tick_params(length=0, labelcolor=INK, labelsize=7.5)
    axis.set_label_text(title, color=MUTED, fontsize=9)


def _ending(number: int) -> str:
    """The ending of an ordinal; strides are 2, or end in 0 or 5."""
    return "nd" if number == 2 else "th"
