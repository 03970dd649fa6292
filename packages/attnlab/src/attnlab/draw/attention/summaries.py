"""Figures of summaries: measures over layers and heads, maps of long inputs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlab.draw.attention.names import STRIDES
from attnlab.draw.attention.pattern import CAUSAL, numbered
from attnlab.draw.attention.shades import ShadeScale, draw_shades, state_scale
from attnlab.draw.json_form import without_nan
from attnlab.draw.number_tables import has_tables, tables_section
from attnlab.draw.pictures.look import INK, MUTED, new_figure, safe_text
from attnlab.draw.pictures.maps import draw_map, maps_figure
from attnlab.draw.sections import Heatmap
from attnlab.errors import WrongUsage
from attnlab.shapes import shape_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_TICKS = 9
_OUTLIER = 4  # times the 99th percentile


def draw_measure(
    values: Any,
    *,
    label: str = "",
    title: str = "",
    layers: Sequence[str] = (),
    high: float | None = None,
) -> "Figure":
    """Draw one number for each head, or the maps of a result such as `patch_all`'s.

    With values below zero, two colors range around zero; else one color grows from zero.

    Args:
        values: (layer, head), anything that NumPy can read; NaN leaves a head blank. Or the result
            of `patch_all`, `patch_paths`, `ablate`, `pattern_effects` or `direct_logits`, which
            knows its rows and columns: of patches layer by position, with the tokens.
        label: the measure with its unit; a result has its own.
        title: the title above the map.
        layers: names of the layers; empty for their numbers.
        high: the value of the strongest shade; None for the largest.

    Returns:
        the figure of matplotlib.

    Raises:
        WrongUsage: not (layer, head), no value at all, or another number of names.
        CouldNotRun: matplotlib is missing.

    >>> import attnlab
    >>> figure = attnlab.plot.measure([[0.1, 0.9], [0.4, 0.2]], label="largest weight")
    """
    if high is not None and not high > 0:
        raise WrongUsage(f"high is the value of the strongest shade, above 0; got {high}.")
    if has_tables(values):
        return maps_figure(tables_section(values, title=title or label, high=high))
    if not label:
        raise WrongUsage("say what the numbers are, such as label='mean entropy (nats)'.")
    table = _array(values)
    _check_measure(table, label, layers)
    num_layers, num_heads = table.shape
    cell = min(0.5, 14 / num_heads)
    figure = new_figure(
        max(4.0, num_heads * cell + 1.8), max(2.2, num_layers * min(cell, 0.42) + 1.4)
    )
    axes = figure.add_subplot()
    names = layers or numbered(num_layers)
    picture = draw_map(axes, measure_map(table, title or label, names, high))
    axes.set_aspect("auto")
    state_scale(figure, axes, picture, label)
    return figure


def measure_map(
    table: Any, title: str, layers: Sequence[str], high: float | None = None
) -> Heatmap:
    """Return one number for each head as a map: an array (layer, head), NaN for a blank cell."""
    top = high or float(np.nanmax(np.abs(table))) or 1.0
    return Heatmap(
        title=title,
        rows=without_nan(table.tolist()),
        row_labels=[*layers],
        column_labels=numbered(table.shape[1]),
        row_title="layer",
        column_title="head",
        low=-top if np.nanmin(table) < 0 else 0.0,
        high=top,
    )


def _check_measure(table: Any, label: str, layers: Sequence[str]) -> None:
    if table.ndim != 2 or not table.size:
        raise WrongUsage(
            f"a measure is (layer, head), one number or more; got {shape_text(table.shape)}."
        )
    if not np.isfinite(table).any() or np.isinf(table).any():
        raise WrongUsage(
            f"the values of {label!r} must be numbers, at least one of them finite and none "
            "infinite."
        )
    if layers and len(layers) != len(table):
        raise WrongUsage(f"{len(table)} layers need as many names; got {len(layers)}.")


def draw_long_map(
    values: Any,
    *,
    num_queries: int,
    num_keys: int,
    label: str = "weight",
    title: str = "",
    blocked: Any = None,
    scale: ShadeScale = "root",
    high: float | None = None,
) -> "Figure":
    """Draw a pooled map of a long input, such as 30,000 tokens: the axes count tokens, not squares.

    Squares that are fully masked are hatched, unless they hold weight.

    Args:
        values: (squares, squares), the mean or the largest weight of each; NaN if a whole square is
            masked. Squares are equal, but the last of an axis may be cut, as in `summarize`.
        num_queries: how many queries the map covers.
        num_keys: how many keys.
        label: what a square shows, such as "largest weight".
        title: the title above the map.
        blocked: (squares, squares), True if a whole square is masked; "causal" for squares with all
            keys after their queries; None if nothing is masked, or NaN in `values` says it.
        scale: "root", which makes small weights visible, or "linear".
        high: the value of the strongest shade. None for the largest value, or for the 99th
            percentile of squares with weight if the largest is more than four times that, so that
            one weight of 1 does not blank the rest. The color bar states it.

    Returns:
        the figure of matplotlib.

    Raises:
        WrongUsage: not a map, or more squares than tokens.
        CouldNotRun: matplotlib is missing.
    """
    table = _array(values)
    if table.ndim != 2 or not table.size or np.isinf(table).any():
        raise WrongUsage(
            f"a pooled map is (squares, squares) of numbers or NaN; got {shape_text(table.shape)}."
        )
    sides = (_side("query", num_queries, table.shape[0]), _side("key", num_keys, table.shape[1]))
    if blocked is not None:
        hidden = _hidden(table, sides, num_queries, blocked)
        table = np.where(hidden & (table == 0), np.nan, table)
    if high is None:
        high = _strongest(table)
    is_signed = bool(np.isfinite(table).any() and np.nanmin(table) < 0)
    figure = new_figure(7.6, max(2.6, min(7.0, 5.6 * num_queries / num_keys + 1.4)))
    axes = figure.add_subplot()
    is_long = max(num_queries, num_keys) > 3 * min(num_queries, num_keys)
    picture = draw_shades(
        axes,
        table,
        scale=scale,
        high=high,
        is_signed=is_signed,
        aspect="auto" if is_long else 1.0,
        extent=(0, sides[1] * table.shape[1], sides[0] * table.shape[0], 0),
    )
    axes.set_xlim(0, num_keys)  # the last square may reach beyond the last token
    axes.set_ylim(num_queries, 0)
    _count_axis(axes.yaxis, "query", num_queries)
    _count_axis(axes.xaxis, "key", num_keys)
    words = f"{title or label}; each dot {sides[0]:,} × {sides[1]:,} weights"
    axes.set_title(safe_text(words, 90), fontsize=10, loc="left", color=INK)
    state_scale(figure, axes, picture, label)
    return figure


def _hidden(table: Any, sides: tuple[int, int], num_queries: int, blocked: Any) -> Any:
    """Return where whole squares are masked."""
    if isinstance(blocked, str):
        if blocked != CAUSAL:
            raise WrongUsage(
                f"blocked is a boolean (squares, squares), {CAUSAL!r} or None; got {blocked!r}."
            )
        ends = np.minimum(sides[0] * np.arange(1, table.shape[0] + 1), num_queries)
        return sides[1] * np.arange(table.shape[1]) >= ends[:, None]
    hidden = _array(blocked) != 0
    if hidden.shape != table.shape:
        raise WrongUsage(
            f"blocked must be (squares, squares), {shape_text(table.shape)}, as the map is; got "
            f"{shape_text(hidden.shape)}."
        )
    return hidden


def _strongest(table: Any) -> float:
    """Return the value of the strongest shade: the largest, or a percentile below outliers."""
    sizes = np.abs(table[np.isfinite(table) & (table != 0)])
    if not sizes.size:
        return 1.0
    usual, most = float(np.quantile(sizes, 0.99)), float(sizes.max())
    return usual if most > _OUTLIER * usual else most


def _side(axis: str, length: int, squares: int) -> int:
    """Return how many tokens a square covers on an axis; raise `WrongUsage` if none fits."""
    if length < squares:
        raise WrongUsage(
            f"the {axis} axis has {squares} squares, which are more than its {length} tokens."
        )
    side = -(-length // squares)
    if -(-length // side) != squares:
        raise WrongUsage(
            f"{length} tokens in equal squares of {side} make {-(-length // side)} squares; the "
            f"{axis} axis of the map has {squares}, so their places are not known."
        )
    return side


def _count_axis(axis: Any, name: str, length: int) -> None:
    """Put ticks at round places."""
    step = next(stride for stride in STRIDES if length / stride <= _MAX_TICKS)
    places = range(0, length, step)
    axis.set_ticks(np.add(places, 0.5).tolist(), list(map("{:,}".format, places)))
    axis.set_tick_params(length=3, color=MUTED, labelcolor=INK, labelsize=8)
    axis.set_label_text(f"{name} (place in the input)", color=MUTED, fontsize=9)


def _array(values: Any) -> NDArray[np.float64]:
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=np.float64)
