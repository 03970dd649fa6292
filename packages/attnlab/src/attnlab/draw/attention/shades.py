"""Shades of all attention maps: from weight to shade, hatching of masked cells, the color bar."""

import textwrap
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnlab.draw.pictures.look import MUTED, PAPER, RULE, safe_text
from attnlab.draw.pictures.maps import add_color_bar, color_map
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ShadeScale = Literal["linear", "root"]

_LETTER = 0.068  # width of a letter of the bar's label in inches
_MARGIN = 1.1  # inches of a figure above and below the bar: title, names, title of the axis


def draw_shades(
    axes: Any,
    values: Any,
    *,
    scale: ShadeScale,
    high: float,
    is_signed: bool = False,
    **options: Any,
) -> Any:
    """Shade cells from 0 or `-high` to `high`, hatch those without a number, return the image.

    Raises:
        WrongUsage: an unknown scale, or a strongest shade that is not above 0.
    """
    if not high > 0:
        raise WrongUsage(f"high is the value of the strongest shade, above 0; got {high}.")
    axes.patch.set(facecolor=PAPER, edgecolor=RULE, hatch="/////", linewidth=0)
    axes.spines[:].set_color(RULE)
    norm = _norm(scale, high, is_signed)
    shades = color_map(is_signed=is_signed)
    return axes.imshow(values, cmap=shades, norm=norm, interpolation="nearest", **options)


def state_scale(
    figure: "Figure", axes: Any, picture: Any, label: str, *, inches: float | None = None
) -> None:
    """Add a color bar with the scale, the meaning of hatching, and whether values exceed the scale.

    The label is broken into lines no longer than the bar: `inches`, or what a figure of one map
    leaves for it.
    """
    bar = add_color_bar(figure, axes, picture)
    values = np.ma.masked_invalid(picture.get_array())
    words = [label] if label else []
    if type(picture.norm).__name__ == "FuncNorm":
        words.append("shade: square root")
    if np.ma.getmaskarray(values).any():
        words.append("hatched: masked")
    if values.count() and abs(values).max() > picture.norm.vmax * 1.000001:
        words.append("beyond the end: as at the end")
    if inches is None:
        inches = figure.get_figheight() - _MARGIN
    lines = textwrap.wrap(safe_text("; ".join(words)), max(14, int(inches / _LETTER)))
    bar.set_label("\n".join(lines), color=MUTED, fontsize=8.5)


def _norm(scale: ShadeScale, high: float, is_signed: bool) -> Any:
    from matplotlib.colors import FuncNorm, Normalize

    if scale not in ("linear", "root"):
        raise WrongUsage(f"scale must be 'linear' or 'root'; got {scale!r}.")
    low = -high if is_signed else 0.0
    if scale == "linear":
        return Normalize(low, high, clip=True)
    functions = (lambda x: np.sign(x) * np.sqrt(np.abs(x)), lambda x: np.sign(x) * np.square(x))
    return FuncNorm(functions, low, high, clip=True)
