"""Figures of summaries: measures over layers and heads or along queries, maps of long inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlab.draw.attention.names import STRIDES, fonts, name_axis, token_words
from attnlab.draw.attention.pattern import CAUSAL, numbered
from attnlab.draw.attention.shades import Scale, draw_shades, state_scale
from attnlab.draw.colors import HUES
from attnlab.draw.json_form import without_nan
from attnlab.draw.number_tables import has_tables, tables_section
from attnlab.draw.pictures.look import DASHES, INK, MUTED, dress, finite, new_figure, shown
from attnlab.draw.pictures.maps import draw_map, maps_figure
from attnlab.draw.sections import Heatmap
from attnlab.errors import WrongUsage
from attnlab.look.summaries import Tile
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

    Raises:
        WrongUsage: not (layer, head), no value at all, or another number of names.
        CouldNotRun: matplotlib is missing.
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


def draw_rows(
    rows: Mapping[str, object], *, label: str, title: str = "", tokens: Sequence[str] = ()
) -> "Figure":
    """Draw measures along the queries, one line each, such as the entropy of several heads.

    Args:
        rows: name -> (query,) values, all of one length; NaN leaves a gap.
        label: the measure with its unit.
        title: the title above the lines.
        tokens: names of the queries; empty for their numbers.

    Raises:
        WrongUsage: no line, more than six, or lines and tokens of different lengths.
        CouldNotRun: matplotlib is missing.
    """
    lines = _lines(rows)
    length = len(next(iter(lines.values())))
    if tokens and len(tokens) != length:
        raise WrongUsage(f"{length} queries need as many tokens; got {len(tokens)}.")
    figure = new_figure(8.0, 3.4)
    axes = figure.add_subplot()
    marker = "o" if length <= 40 else None
    for (name, line), hue, dash in zip(lines.items(), HUES, DASHES, strict=False):
        axes.plot(
            finite(line),
            color=hue,
            linestyle=dash,
            linewidth=1.5,
            marker=marker,
            markersize=3,
            label=shown(name),
        )
    dress(axes, title or label, "query", label)
    if tokens:
        name_axis(axes.xaxis, list(tokens), 6.8 / length, title="query")
    if len(lines) > 1:
        axes.legend(
            frameon=False, fontsize=8.5, labelcolor=INK, loc="upper left", bbox_to_anchor=(1.0, 1.0)
        )
    return figure


def _lines(rows: Mapping[str, object]) -> dict[str, NDArray[np.float64]]:
    """Return the lines as arrays; raise `WrongUsage` if they cannot be drawn together."""
    if not 1 <= len(rows) <= len(HUES):
        raise WrongUsage(f"one to {len(HUES)} lines can be told apart; got {len(rows)}.")
    lines = {name: _array(values) for name, values in rows.items()}
    lengths = {name: line.shape for name, line in lines.items()}
    (length, *others) = set(lengths.values())
    if others or len(length) != 1 or length == (0,):
        raise WrongUsage(f"lines must be (query,), of one length; got {lengths}.")
    return lines


def draw_long_map(
    values: Any,
    *,
    num_queries: int | None = None,
    num_keys: int | None = None,
    label: str = "",
    title: str = "",
    query_tokens: Sequence[str] = (),
    key_tokens: Sequence[str] = (),
    first_query: int = 0,
    first_key: int = 0,
    blocked: Any = None,
    scale: Scale = "root",
    high: float | None = None,
) -> "Figure":
    """Draw a pooled map of a long input, such as 30,000 tokens: the axes count tokens, not squares.

    Squares that are fully masked are hatched, unless they hold weight.

    Args:
        values: (squares, squares), the mean or the largest weight of each; NaN if a whole square is
            masked. Squares are equal, but the last of an axis may be cut, as in `summarize`. Or a
            `Tile` of a `Zoom`, with its own places and mask: its largest weights are drawn.
        num_queries: how many queries the map covers; not for a tile.
        num_keys: how many keys; not for a tile.
        label: what a square shows, such as "largest weight".
        title: the title above the map.
        query_tokens: names of these queries; those at the ticks are written beside their places.
        key_tokens: the same for keys.
        first_query: the place of the first of these queries in the input; not for a tile.
        first_key: the same for keys.
        blocked: (squares, squares), True if a whole square is masked; "causal" for squares with all
            keys after their queries; None if nothing is masked, or NaN in `values` says it.
        scale: "root", which makes small weights visible, or "linear".
        high: the value of the strongest shade. None for the largest value, or for the 99th
            percentile of squares with weight if the largest is more than four times that, so that
            one weight of 1 does not blank the rest. The color bar states it.

    Raises:
        WrongUsage: not a map, more squares than tokens, or names that are not as many as the
            tokens.
        CouldNotRun: matplotlib is missing.
    """
    part = _part(
        values, (num_queries, num_keys), (first_query, first_key), (query_tokens, key_tokens)
    )
    if blocked is None:
        blocked = part.blocked
    table = _hide(part, blocked)
    if high is None:
        high = _strongest(table)
    label = label or part.label
    is_signed = bool(np.isfinite(table).any() and np.nanmin(table) < 0)
    (rows, row_side), (columns, column_side) = zip(part.lengths, part.sides, strict=True)
    figure = new_figure(7.6, max(2.6, min(7.0, 5.6 * rows / columns + 1.4)))
    axes = figure.add_subplot()
    is_long = max(part.lengths) > 3 * min(part.lengths)
    top, left = part.first
    picture = draw_shades(
        axes,
        table,
        scale=scale,
        high=high,
        is_signed=is_signed,
        aspect="auto" if is_long else 1.0,
        extent=(left, left + column_side * table.shape[1], top + row_side * table.shape[0], top),
    )
    axes.set_xlim(left, left + columns)  # the last square may reach beyond the last token
    axes.set_ylim(top + rows, top)
    _count_axis(axes.yaxis, "query", top, rows, query_tokens)
    _count_axis(axes.xaxis, "key", left, columns, key_tokens)
    words = f"{title or label}; each dot {row_side:,} × {column_side:,} weights"
    axes.set_title(shown(words, 90), fontsize=10, loc="left", color=INK)
    state_scale(figure, axes, picture, label)
    return figure


@dataclass(frozen=True)
class _Part:
    """A pooled map and its place in the input; pairs are queries, then keys."""

    table: Any
    first: tuple[int, int]
    lengths: tuple[int, int]
    sides: tuple[int, int]
    blocked: Any
    label: str


def _part(
    values: Any,
    lengths: tuple[int | None, int | None],
    first: tuple[int, int],
    tokens: tuple[Sequence[str], ...],
) -> _Part:
    """Read a map or a tile with its places; raise `WrongUsage` if they do not fit together."""
    if isinstance(values, Tile):
        if any(lengths) or any(first):
            raise WrongUsage(
                "a tile has its own places; leave num_queries, num_keys, first_query and "
                "first_key out."
            )
        return _part_of_tile(values, tokens)
    table = _array(values)
    if table.ndim != 2 or not table.size or np.isinf(table).any():
        raise WrongUsage(
            f"a pooled map is (squares, squares) of numbers or NaN; got {shape_text(table.shape)}."
        )
    if lengths[0] is None or lengths[1] is None:
        raise WrongUsage(
            "a map of squares needs num_queries and num_keys, the numbers of tokens it covers; "
            "got none."
        )
    if min(first) < 0:
        raise WrongUsage(
            f"first_query and first_key are places in the input, 0 or more; got {first[0]}, "
            f"{first[1]}."
        )
    num_queries, num_keys = lengths[0], lengths[1]
    sides = (
        _side("query", num_queries, tokens[0], table.shape[0]),
        _side("key", num_keys, tokens[1], table.shape[1]),
    )
    return _Part(table, first, (num_queries, num_keys), sides, None, "weight")


def _part_of_tile(tile: Tile, tokens: tuple[Sequence[str], ...]) -> _Part:
    rows = tile.queries.stop - tile.queries.start
    columns = tile.keys.stop - tile.keys.start
    _check_names("query", rows, tokens[0])
    _check_names("key", columns, tokens[1])
    return _Part(
        _array(tile.max),
        (tile.queries.start, tile.keys.start),
        (rows, columns),
        (tile.cell, tile.cell),
        _array(tile.allowed) == 0,
        "largest weight",
    )


def _hide(part: _Part, blocked: Any) -> Any:
    """Return the map with NaN where a whole square is masked and holds no weight."""
    table = part.table
    if blocked is None:
        return table
    if isinstance(blocked, str):
        if blocked != CAUSAL:
            raise WrongUsage(
                f"blocked is a boolean (squares, squares), {CAUSAL!r} or None; got {blocked!r}."
            )
        query_starts = part.first[0] + part.sides[0] * np.arange(table.shape[0])
        query_ends = np.minimum(query_starts + part.sides[0], part.first[0] + part.lengths[0])
        key_starts = part.first[1] + part.sides[1] * np.arange(table.shape[1])
        hidden = key_starts >= query_ends[:, None]
    else:
        hidden = _array(blocked) != 0
        if hidden.shape != table.shape:
            raise WrongUsage(
                f"blocked must be (squares, squares), {shape_text(table.shape)}, as the map is; "
                f"got {shape_text(hidden.shape)}."
            )
    return np.where(hidden & (table == 0), np.nan, table)


def _strongest(table: Any) -> float:
    """Return the value of the strongest shade: the largest, or a percentile below outliers."""
    sizes = np.abs(table[np.isfinite(table) & (table != 0)])
    if not sizes.size:
        return 1.0
    usual, most = float(np.quantile(sizes, 0.99)), float(sizes.max())
    return usual if most > _OUTLIER * usual else most


def _check_names(axis: str, length: int, tokens: Sequence[str]) -> None:
    if tokens and len(tokens) != length:
        raise WrongUsage(f"the {axis} axis has {length} tokens; got {len(tokens)} names.")


def _side(axis: str, length: int, tokens: Sequence[str], squares: int) -> int:
    """Return how many tokens a square covers on an axis; raise `WrongUsage` if none fits."""
    if length < squares:
        raise WrongUsage(
            f"the {axis} axis has {squares} squares, which are more than its {length} tokens."
        )
    _check_names(axis, length, tokens)
    side = -(-length // squares)
    if -(-length // side) != squares:
        raise WrongUsage(
            f"{length} tokens in equal squares of {side} make {-(-length // side)} squares; the "
            f"{axis} axis of the map has {squares}, so their places are not known."
        )
    return side


def _count_axis(axis: Any, name: str, first: int, length: int, tokens: Sequence[str]) -> None:
    """Put ticks at round places, with the names of the tokens there if they have names."""
    step = next(stride for stride in STRIDES if length / stride <= _MAX_TICKS)
    places = range(-(-first // step) * step, first + length, step)
    words = list(map("{:,}".format, places))
    if tokens:
        words = [f"{place:,}  {token_words(tokens[place - first])}" for place in places]
    axis.set_ticks(np.add(places, 0.5).tolist(), words, fontfamily=fonts() or None)
    axis.set_tick_params(length=3, color=MUTED, labelcolor=INK, labelsize=8)
    if axis.axis_name == "x" and tokens:
        axis.set_tick_params(rotation=30)
    axis.set_label_text(f"{name} (place in the input)", color=MUTED, fontsize=9)


def _array(values: Any) -> NDArray[np.float64]:
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=np.float64)
