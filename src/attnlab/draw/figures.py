"""Figures: sections of a document as PNG and SVG bytes, for a run folder, a paper or a slide.

matplotlib is optional (`pip install attnlab[plot]`) and used without pyplot and without changing
global settings; `attnlab.draw.pictures` draws each kind of section.
"""

import io
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from attnlab.draw.document import check_document
from attnlab.draw.pictures.charts import bars_figure, lines_figure
from attnlab.draw.pictures.diagram import diagram_figure
from attnlab.draw.pictures.maps import maps_figure, trace_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["is_available", "section_figures", "to_files"]

_FIGURES: dict[str, Callable[[Mapping[str, Any]], "Figure"]] = {
    "lines": lines_figure,
    "bars": bars_figure,
    "maps": maps_figure,
    "diagram": diagram_figure,
    "trace": trace_figure,
}


def is_available() -> bool:
    """Is matplotlib installed?"""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def section_figures(document: Mapping[str, Any]) -> dict[str, bytes]:
    """Draw every section that names a `figure`, as `name.png` and `name.svg`.

    Equal documents give equal bytes. The result is empty without matplotlib; a trace section
    without traces has no figure.

    Args:
        document: a document as in `attnlab.draw.document`; its claims may be missing.

    Raises:
        WrongUsage: the document does not have that form.
    """
    check_document({"claims": [], **document})
    if not is_available():
        return {}
    files: dict[str, bytes] = {}
    for section in document["sections"]:
        is_empty = section["kind"] == "trace" and not section["traces"]
        if "figure" in section and not is_empty:
            files |= to_files(section["figure"], partial(_FIGURES[section["kind"]], section))
    return files


def to_files(name: str, draw: "Callable[[], Figure]") -> dict[str, bytes]:
    """Return a figure as `name.png` and `name.svg`; equal figures give equal bytes."""
    from matplotlib import style

    files = {}
    # A user's own matplotlib settings do not change these figures.
    with (
        style.context(["default", {"svg.hashsalt": name, "svg.fonttype": "none"}]),
        warnings.catch_warnings(),
    ):
        # A letter that the font lacks is drawn as a box, and stays a letter in the SVG.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = draw()
        for suffix, metadata in (
            ("png", {"Software": None}),
            ("svg", {"Date": None, "Creator": None}),
        ):
            stream = io.BytesIO()
            figure.savefig(stream, format=suffix, dpi=150, metadata=metadata)
            files[f"{name}.{suffix}"] = stream.getvalue()
            figure.set_layout_engine("none")  # both files share one layout
    return files
