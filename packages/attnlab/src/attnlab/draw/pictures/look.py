"""The style of all figures: colors, sizes, axes, and text that is drawn literally.

The colors are those of the light page. No global setting of matplotlib is changed.
"""

import math
import textwrap
import unicodedata
from typing import TYPE_CHECKING, Any

from attnlab.draw.colors import COLORS
from attnlab.errors import CouldNotRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, RULE = COLORS["ink"].light, COLORS["muted"].light, COLORS["rule"].light
PAPER, ACCENT = COLORS["figure"].light, COLORS["accent"].light
DASHES: tuple[Any, ...] = (
    "solid",
    (0, (5, 2)),
    (0, (1.5, 2)),
    (0, (7, 2, 1.5, 2)),
    (0, (9, 3)),
    (0, (3, 3)),
)


def new_figure(width: float, height: float) -> "Figure":
    """Make an empty figure of a size in inches.

    Raises:
        CouldNotRun: matplotlib is not installed.
    """
    try:
        from attnlab.draw.pictures.notebook_figure import NotebookFigure
    except ImportError:
        raise CouldNotRun(
            "figures need matplotlib; install it with: pip install 'attnlab[plot]'."
        ) from None
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    return NotebookFigure(figsize=(width, height), layout=layout, facecolor=PAPER)


def safe_text(text: str, most: int = 200) -> str:
    """Make a text safe to draw: no formulas, visible white space and control characters.

    >>> safe_text("$5 and $6"), safe_text("one\\ntwo"), safe_text("far too long", 8)
    ('\\\\$5 and \\\\$6', 'one⏎two', 'far too…')
    """
    if text.strip():
        text = text.replace("\t", "⇥")
    else:
        text = text.replace(" ", "␣")
    text = "".join(map(_valid, text.replace("\n", "⏎")))
    if len(text) > most:
        text = text[: most - 1] + "…"
    return text.replace("$", r"\$")


def _valid(letter: str) -> str:
    """Replace control characters and lone surrogates, which would make an SVG invalid."""
    if unicodedata.category(letter) in ("Cc", "Cs"):
        return "\ufffd"
    return letter


def finite_array(values: Any) -> list[float]:
    """Return the numbers with NaN for None and infinities, which matplotlib does not draw."""
    return [float(v) if v is not None and math.isfinite(v) else math.nan for v in values]


def dress(axes: Any, title: str, x_label: str, y_label: str) -> None:
    """Set the titles of the axes, and remove needless lines."""
    axes.set_title(safe_text(title), fontsize=11, loc="left", color=INK, pad=10)
    axes.set_xlabel(safe_text(x_label), color=MUTED)
    axes.set_ylabel("\n".join(textwrap.wrap(safe_text(y_label), 34)), color=MUTED)
    axes.tick_params(colors=MUTED, labelsize=9, which="both")
    axes.tick_params(axis="y", length=0, which="both")
    axes.grid(axis="y", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
