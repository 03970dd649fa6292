"""Heat maps: one head with its tokens, all heads together, and the difference of two recordings.

Queries are rows and keys are columns. Masked cells are hatched, never shaded; a color bar states
the scale; a map of more cells than a figure can show is pooled, and its title says so.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlab.draw.attention.names import name_axis
from attnlab.draw.attention.pattern import Pattern, Rows, site_words
from attnlab.draw.attention.pooled_maps import pool_head, pooled_length, squares
from attnlab.draw.attention.recordings import to_patterns, why_unjoined
from attnlab.draw.attention.shades import ShadeScale, draw_shades, state_scale
from attnlab.draw.pictures.look import INK, MUTED, PAPER, new_figure, safe_text
from attnlab.errors import WrongUsage, did_you_mean, is_integer, require_known
from attnlab.look.heads import head_at, heads_named

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_CELLS = 1_000  # on a side; a figure has hardly more dots
_THUMB_CELLS = 28  # on a side of a head in the figure of all heads
_LABEL = 50  # letters of what a head does
_SIDE_INCHES = 5.6  # of the longer side of a map


def draw_head(
    recording: Any,
    *place: int | str,
    layer: int | None = None,
    head: int | str | None = None,
    site: str | None = None,
    row: int = 0,
    tokens: Any = None,
    scale: ShadeScale = "linear",
    high: float | None = None,
) -> "Figure":
    """Draw the attention map of one head: queries are rows, keys are columns.

    Args:
        recording: the result of `record`, a mapping of site names to weights, a pattern, a list of
            patterns, or weights: (query, key), (head, query, key), a list of these by layer,
            Hugging Face's `attentions`.
        place, layer, head: which head: `"0.1"` or `"cross 0.1"`; its layer and number, `0, 1` or
            `layer=0, head=1`; its number alone, where there is one attention or with site=.
        site: which attention, such as "layers.3.attention.weights"; None if there is only one.
        row: which input of the batch.
        tokens: names of the places, if the recording has none: a list, a pair (of the queries, of
            the keys).
        scale: of the shades: "linear", or "root" to make small weights visible.
        high: the weight of the strongest shade; None for the largest of the map.

    Returns:
        the figure of matplotlib, which `attnlab.plot.save` writes.

    Raises:
        WrongUsage: no such site, head or row; a weight that is not finite.
        CouldNotRun: matplotlib is missing.

    >>> import attnlab, torch
    >>> model = attnlab.Decoder(attnlab.DecoderConfig()).eval()
    >>> tokens = torch.tensor([[3, 1, 2, 0]])
    >>> figure = attnlab.plot.head(attnlab.record(model, tokens), "0.1")
    >>> [axes.get_ylabel() for axes in figure.axes][:1]
    ['query']
    """
    chosen = _chosen(place, layer, head)
    pattern, number = _pick(to_patterns(recording, row, tokens), site, *chosen)
    values, side = _pooled_if_large(pattern, number)
    title, label = f"Head {head_at(pattern.site, number)}", pattern.label(number)
    return _map_figure(pattern, title, values, side, scale=scale, high=high, label=label)


def draw_difference(
    recording: Any,
    other: Any,
    *place: int | str,
    layer: int | None = None,
    head: int | str | None = None,
    site: str | None = None,
    row: int = 0,
    tokens: Any = None,
    high: float | None = None,
) -> "Figure":
    """Draw the second recording's weights minus the first's, in two colors around zero.

    Cells masked in both are hatched.

    Args:
        recording, other: as `attnlab.plot.head` takes them; maps of the same shape, (query, key).
        place, layer, head: which head, `"0.1"`, or its layer and number.
        site: which attention, such as "layers.3.attention.weights"; None if there is only one.
        row: which input of the batch.
        tokens: names of the places, if the recordings have none.
        high: the difference of the strongest shade; None for the largest of the map.

    Returns:
        the figure of matplotlib.

    Raises:
        WrongUsage: no such site, head or row, or maps of different shapes.
        CouldNotRun: matplotlib is missing.
    """
    chosen = _chosen(place, layer, head)
    one, number = _pick(to_patterns(recording, row, tokens), site, *chosen)
    two, _ = _pick(to_patterns(other, row, tokens), site, *chosen)
    if one.shape != two.shape or one.site != two.site:
        raise WrongUsage(
            f"only maps of one site and shape can be subtracted; got {one.site!r} "
            f"{one.shape} and {two.site!r} {two.shape}."
        )
    (first, side), (second, _) = _pooled_if_large(one, number), _pooled_if_large(two, number)
    is_masked = np.isnan(first) & np.isnan(second)
    change = np.where(is_masked, np.nan, np.nan_to_num(second) - np.nan_to_num(first))
    title = f"Head {head_at(one.site, number)}: difference"
    return _map_figure(one, title, change, side, high=high, is_signed=True, tokens_of=two)


def draw_heads(
    recording: Any, *, sites: Sequence[str] | None = None, row: int = 0, title: str = ""
) -> "Figure":
    """Draw a small map of every head: rows are layers, columns are heads.

    All share one scale, the square root of the weight from 0 to 1. Long maps are pooled to the
    largest weight of squares, whose size the figure states. The steps of a cached generation are
    joined.

    Args:
        recording: the result of `record`, or weights as `attnlab.plot.head` takes them.
        sites: the attentions to draw, such as ["layers.0.attention.weights"]; None for all.
        row: which input of the batch.
        title: the title above the maps.

    Returns:
        the figure of matplotlib.

    Raises:
        WrongUsage: no such site or row; a weight that is not finite.
        CouldNotRun: matplotlib is missing.
    """
    patterns = to_patterns(recording, row)
    if sites is not None:
        patterns = [_pick(patterns, site)[0] for site in sites]
    mosaic, most, side = _mosaic(patterns)
    inches = min(0.62, 14 / most)
    figure = new_figure(max(4.5, most * inches + 1.6), max(2.6, len(patterns) * inches + 1.3))
    axes = figure.add_subplot()
    extent = (-0.5, most - 0.5, len(patterns) - 0.5, -0.5)
    picture = draw_shades(axes, mosaic, scale="root", high=1.0, aspect="auto", extent=extent)
    _draw_gaps(axes, len(patterns), most)
    kind, layers = _kind_and_layers(patterns)
    axes.set_yticks(range(len(patterns)), layers)
    axes.set_xticks(range(0, most, max(1, round(0.2 / inches))))
    axes.tick_params(length=0, labelcolor=INK, labelsize=8)
    axes.set_xlabel("head", color=MUTED, fontsize=9)
    axes.set_ylabel("layer", color=MUTED, fontsize=9)
    axes.spines[:].set_visible(False)
    words = [title or kind]
    if side > 1:
        words.append(f"each dot the largest of {side} × {side} weights")
    if why_unjoined(recording):
        words.append("the last step alone")
    if any(pattern.caution for pattern in patterns):
        words.append("rows do not sum to 1")
    axes.set_title(safe_text("; ".join(words), 90), fontsize=10, loc="left", color=INK)
    state_scale(figure, axes, picture, "weight")
    return figure


def _draw_gaps(axes: Any, rows: int, columns: int) -> None:
    """Separate the heads by blank lines."""
    for column in range(columns + 1):
        axes.axvline(column - 0.5, color=PAPER, linewidth=2.5)
    for row in range(rows + 1):
        axes.axhline(row - 0.5, color=PAPER, linewidth=2.5)


def _kind_and_layers(patterns: Sequence[Pattern]) -> tuple[str, list[str]]:
    """Return the kind of all attentions, and their layers; with the kind of each if they differ."""
    sites = [site_words(pattern.site) for pattern in patterns]
    kinds, layers = zip(*sites, strict=True)
    if len(set(kinds)) > 1:
        return "Attention", list(map(" ".join, sites))
    return kinds[0], [layer or "·" for layer in layers]


def _mosaic(patterns: Sequence[Pattern]) -> tuple[Rows, int, int]:
    """Join all heads into one picture of equal tiles; NaN where masked or without a head.

    Returns:
        The picture, its heads in a row, and how many weights a cell has along each axis.
    """
    most, num_queries, num_keys = map(
        max, zip(*(pattern.shape for pattern in patterns), strict=True)
    )
    side = squares(max(num_queries, num_keys), _THUMB_CELLS)
    tall, wide = pooled_length(num_queries, side), pooled_length(num_keys, side)
    mosaic = np.full((len(patterns) * tall, most * wide), np.nan, np.float32)
    for i, pattern in enumerate(patterns):
        for j in range(pattern.num_heads):
            tile = _largest(pattern, j, side)
            # Shorter sequences are stretched, so that each tile shows a whole head.
            rows = np.arange(tall) * tile.shape[0] // tall
            columns = np.arange(wide) * tile.shape[1] // wide
            stretched = tile[np.ix_(rows, columns)]
            mosaic[i * tall : (i + 1) * tall, j * wide : (j + 1) * wide] = stretched
    return mosaic, most, side


def _largest(pattern: Pattern, head: int, side: int) -> Rows:
    if side == 1:
        return pattern.whole(head)
    return pool_head(pattern, head, side).largest


def _pooled_if_large(pattern: Pattern, head: int) -> tuple[Rows, int]:
    side = squares(max(pattern.num_queries, pattern.num_keys), _MAX_CELLS)
    return _largest(pattern, head, side), side


def _chosen(
    place: Sequence[int | str], layer: int | None, head: int | str | None
) -> tuple[int | str, int | None]:
    """Return the head that is named, by its name or number, and its layer if that is named."""
    rest: list[Any] = list(place)
    got = [*place, *filter(None, [layer, head])]
    if rest and head is None:
        head = rest.pop()
    if rest and layer is None and not isinstance(rest[-1], str):
        layer = rest.pop()
    is_number = all(number is None or is_integer(number) for number in (layer, head))
    is_name = isinstance(head, str) and layer is None
    if rest or not (is_number or is_name):
        raise WrongUsage(
            'a head is named "0.1", or by its layer and number, as 0, 1 or layer=0, head=1; got '
            f"{', '.join(map(repr, got))}."
        )
    return (0 if head is None else head), layer


def _pick(
    patterns: Sequence[Pattern], site: str | None, head: int | str = 0, layer: int | None = None
) -> tuple[Pattern, int]:
    """Return the pattern of a head, and the head's number in it."""
    if isinstance(head, str):
        return _named(patterns, head)
    if layer is not None:
        patterns = _of_layer(patterns, layer)
    if site is None and len(patterns) > 1:
        raise WrongUsage(
            f"there are {len(patterns)} attentions; name the head, such as "
            f"{head_at(patterns[0].site, head)!r}, or choose one with site={patterns[0].site!r}."
        )
    sites = [pattern.site for pattern in patterns]
    if site is None:
        site = sites[0]
    require_known("site", site, sites)
    pattern = patterns[sites.index(site)]
    if not 0 <= head < pattern.num_heads:
        raise WrongUsage(f"{site!r} has heads 0 to {pattern.num_heads - 1}; got {head}.")
    return pattern, head


def _of_layer(patterns: Sequence[Pattern], layer: int) -> list[Pattern]:
    layers = [site_words(pattern.site)[1] or "0" for pattern in patterns]
    matching = [
        pattern for pattern, name in zip(patterns, layers, strict=True) if name == str(layer)
    ]
    if not matching:
        raise WrongUsage(f"there is no layer {layer!r}; {did_you_mean(str(layer), set(layers))}")
    return matching


def _named(patterns: Sequence[Pattern], head: str) -> tuple[Pattern, int]:
    by_part = {pattern.site.removesuffix("weights").rstrip("."): pattern for pattern in patterns}
    sizes = {part: pattern.num_heads for part, pattern in by_part.items()}
    ((part, numbers),) = heads_named([head], sizes).items()
    return by_part[part], numbers[0]


def _map_figure(
    pattern: Pattern,
    title: str,
    values: Rows,
    side: int,
    *,
    scale: ShadeScale = "linear",
    high: float | None = None,
    is_signed: bool = False,
    tokens_of: Pattern | None = None,
    label: str = "",
) -> "Figure":
    """Draw one map with the names of its axes and its color bar."""
    if high is None:
        largest = float(np.abs(np.nan_to_num(values)).max())
        high = largest or 1.0  # a map of zeros has no strongest shade
    is_signed = is_signed or bool((values < 0).any())
    num_rows, num_columns = values.shape
    cell = min(0.36, _SIDE_INCHES / max(num_rows, num_columns))
    wide, tall = max(cell, 0.9 / num_columns), max(cell, 0.9 / num_rows)
    figure = new_figure(max(4.8, num_columns * wide + 2.4), max(2.6, num_rows * tall + 1.9))
    axes = figure.add_subplot()
    picture = draw_shades(
        axes, values, scale=scale, high=high, is_signed=is_signed, aspect=tall / wide
    )
    other = tokens_of or pattern
    queries = _joined(pattern.query_tokens, other.query_tokens)
    keys = _joined(pattern.key_tokens, other.key_tokens)
    name_axis(axes.yaxis, queries, tall, title="query", side=side)
    name_axis(axes.xaxis, keys, wide, title="key", side=side)
    dot, measure = "largest", "weight"
    if tokens_of:
        dot, measure = "difference of the largest", "difference of weights"
    words = [title]
    if side > 1:
        words.append(f"each dot the {dot} of {side} × {side}")
    if pattern.caution:
        words.append("rows do not sum to 1")
    lines = [safe_text("; ".join(words), 90)]
    if label:
        lines.append(safe_text(label, _LABEL))
    axes.set_title("\n".join(lines), fontsize=10, loc="left", color=INK)
    state_scale(figure, axes, picture, measure)
    return figure


def _joined(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """Name each place by its token, or by both tokens if they differ."""
    return ["/".join(dict.fromkeys(pair)) for pair in zip(one, other, strict=True)]
