"""Figures: sections of a report as PNG and SVG bytes, for a run folder, a paper or a slide.

matplotlib is optional (`pip install attnlab[plot]`) and used without pyplot and without changing
global settings; `attnlab.draw.pictures` draws each kind of section.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from attnlab.draw.attention.figure_files import plain_style, to_bytes
from attnlab.draw.attention.traces import trace_figure
from attnlab.draw.pictures.charts import bars_figure, lines_figure
from attnlab.draw.pictures.maps import maps_figure
from attnlab.draw.sections import Bars, FigureSection, Lines, Maps, ReportContent, Traces

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_PICTURES: dict[type[FigureSection], Callable[[Any], "Figure"]] = {
    Lines: lines_figure,
    Bars: bars_figure,
    Maps: maps_figure,
    Traces: trace_figure,
}


def is_available() -> bool:
    """Is matplotlib installed?"""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def section_figures(report: ReportContent) -> dict[str, bytes]:
    """Draw every section that names a `figure`, as `name.png` and `name.svg`.

    Equal reports give equal bytes. The result is empty without matplotlib; a trace section without
    traces has no figure.
    """
    if not is_available():
        return {}
    files: dict[str, bytes] = {}
    for section in report.sections:
        is_empty = isinstance(section, Traces) and not section.traces
        if isinstance(section, FigureSection) and section.figure is not None and not is_empty:
            picture = _PICTURES.get(type(section), type(section).picture)
            files |= to_files(section.figure, partial(picture, section))
    return files


def to_files(name: str, draw: "Callable[[], Figure]") -> dict[str, bytes]:
    """Return a figure as `name.png` and `name.svg`; equal figures give equal bytes."""
    with plain_style(name):
        figure = draw()
    files = {}
    for suffix in ("png", "svg"):
        files[f"{name}.{suffix}"] = to_bytes(figure, suffix, salt=name)
        figure.set_layout_engine("none")  # both files share one layout
    return files
