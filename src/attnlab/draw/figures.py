"""Figures: matplotlib pictures as PNG and SVG bytes, for a run's folder, a paper or a slide.

matplotlib is optional (`pip install attnlab[plot]`) and imported here alone, without pyplot and without touching
anybody's global settings.
"""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnlab.errors import CouldNotRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["attention_figure", "curve_figure", "is_available", "to_files"]

_INK, _ACCENT, _QUIET = "#1f2430", "#3b5bdb", "#8a90a2"


def is_available() -> bool:
    """Say whether figures can be made here."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def curve_figure(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    levels: Mapping[str, float] | None = None,
) -> "Figure":
    """Draw named curves (x, y), and named horizontal levels to hold them against."""
    figure = _new_figure(7.0, 3.6)
    axes = figure.add_subplot()
    colours = [_ACCENT, "#e8590c", "#2b8a3e", "#862e9c"]
    for index, (name, (x, y)) in enumerate(series.items()):
        axes.plot(x, y, label=name, color=colours[index % len(colours)], linewidth=1.6)
    for name, level in (levels or {}).items():
        axes.axhline(level, label=name, color=_QUIET, linestyle=(0, (4, 3)), linewidth=1.2)
    _dress(axes, title, x_label, y_label)
    if len(series) + len(levels or {}) > 1:
        axes.legend(frameon=False, fontsize=9)
    return figure


def attention_figure(trace: Mapping[str, Any], *, title: str) -> "Figure":
    """Draw each head's weights of one trace: queries down, keys across, what may not be seen left blank."""
    heads = trace["attention"]
    figure = _new_figure(0.8 + 3.3 * len(heads), 3.9)
    tokens = trace["tokens"]
    for index, head in enumerate(heads):
        axes = figure.add_subplot(1, len(heads), index + 1)
        rows = head["rows"]
        size = len(rows)
        grid = [[row[key] if key < len(row) else float("nan") for key in range(size)] for row in rows]
        picture = axes.imshow(grid, cmap="Blues", vmin=0, vmax=1)
        axes.set_facecolor("#eceef3")
        for query, row in enumerate(rows):
            for key, weight in enumerate(row):
                if size <= 12:
                    colour = "white" if weight > 0.55 else _INK
                    axes.text(key, query, f"{weight:.2f}", ha="center", va="center", fontsize=7.5, color=colour)
        axes.set_xticks(range(size), tokens[:size])
        axes.set_yticks(range(size), tokens[:size] if index == 0 else [""] * size)
        axes.tick_params(length=0, labelcolor=_INK)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_title(f"{head['site'].removesuffix('.attention.weights')} · head {head['head']}", fontsize=10)
        axes.set_xlabel("key", color=_QUIET)
        if index == 0:
            axes.set_ylabel("query", color=_QUIET)
        if index == len(heads) - 1:
            figure.colorbar(picture, ax=axes, fraction=0.046, label="weight").outline.set_visible(False)
    figure.suptitle(title, fontsize=11, x=0.02, ha="left", color=_INK)
    return figure


def to_files(name: str, figure: "Figure") -> dict[str, bytes]:
    """Write a figure as `name.png` and `name.svg`; the same figure always gives the same bytes."""
    from matplotlib import rc_context

    files = {}
    for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
        stream = io.BytesIO()
        with rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
            figure.savefig(stream, format=suffix, dpi=150, metadata=metadata)
        files[f"{name}.{suffix}"] = stream.getvalue()
    return files


def _new_figure(width: float, height: float) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CouldNotRun("figures need matplotlib; install it with: pip install 'attnlab[plot]'.") from None
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def _dress(axes: Any, title: str, x_label: str, y_label: str) -> None:
    axes.set_title(title, fontsize=11, loc="left", color=_INK)
    axes.set_xlabel(x_label, color=_QUIET)
    axes.set_ylabel(y_label, color=_QUIET)
    axes.tick_params(colors=_QUIET, labelsize=9)
    axes.grid(axis="y", color="#e3e6ee", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#c9cedb")
