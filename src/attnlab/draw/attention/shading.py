"""What all maps of attention share: how a weight becomes a shade, what is hatched, the bar that states the scale."""

import textwrap
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnlab.draw.pictures.look import MUTED, PAPER, RULE, shown
from attnlab.draw.pictures.maps import colour_map
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Scale", "draw_shades", "state_scale"]

Scale = Literal["linear", "root"]

_LETTER = 0.068  # inches of a letter of the bar's label
_AROUND = 1.1  # inches of a figure of one map that the bar does not reach along: title, names, title of the axis


def draw_shades(axes: Any, values: Any, *, scale: Scale, high: float, is_signed: bool = False, **options: Any) -> Any:
    """Shade cells from 0 to `high`, or from `-high` to `high`; those without a number are hatched. Return the picture.

    Raises:
        WrongUsage: an unknown scale, or a strongest shade that is not above 0.
    """
    if not high > 0:
        raise WrongUsage(f"high is the value of the strongest shade, above 0; got {high}.")
    axes.patch.set(facecolor=PAPER, edgecolor=RULE, hatch="/////", linewidth=0)
    axes.spines[:].set_color(RULE)
    shades = colour_map(is_signed=is_signed)
    return axes.imshow(values, cmap=shades, norm=_norm(scale, high, is_signed), interpolation="nearest", **options)


def state_scale(figure: "Figure", axes: Any, picture: Any, label: str, *, inches: float | None = None) -> None:
    """State the scale beside a map: its ends, its kind, what is hatched, and whether something goes beyond.

    The words are broken into lines no longer than the bar, `inches` or as much as a figure of one map leaves it.
    """
    bar: Any = figure.colorbar(picture, ax=axes, fraction=0.045, pad=0.03, aspect=24)
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=MUTED, labelsize=8, length=0)
    values = np.ma.masked_invalid(picture.get_array())
    words = [
        label,
        "shade: square root" if type(picture.norm).__name__ == "FuncNorm" else "",
        "hatched: masked" if np.ma.getmaskarray(values).any() else "",
        "beyond the end: as at the end" if values.count() and abs(values).max() > picture.norm.vmax * 1.000001 else "",
    ]
    room = figure.get_figheight() - _AROUND if inches is None else inches
    lines = textwrap.wrap(shown("; ".join(filter(None, words))), max(14, int(room / _LETTER)))
    bar.set_label("\n".join(lines), color=MUTED, fontsize=8.5)


def _norm(scale: Scale, high: float, is_signed: bool) -> Any:
    from matplotlib.colors import FuncNorm, Normalize

    if scale not in ("linear", "root"):
        raise WrongUsage(f"scale must be 'linear' or 'root'; got {scale!r}.")
    low = -high if is_signed else 0.0
    if scale == "linear":
        return Normalize(low, high, clip=True)
    functions = (lambda x: np.sign(x) * np.sqrt(np.abs(x)), lambda x: np.sign(x) * np.square(x))
    return FuncNorm(functions, low, high, clip=True)
