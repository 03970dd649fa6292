"""Figures: the sections of a document that ask for one, as PNG and SVG bytes, for a run's folder, a paper or a slide.

matplotlib is optional (`pip install attnlab[plot]`) and used without pyplot and without touching anybody's global
settings; how each kind of section looks stands in `attnlab.draw.pictures`.
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
    """Say whether figures can be made here."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def section_figures(document: Mapping[str, Any]) -> dict[str, bytes]:
    """Draw every section that names a `figure`, as `name.png` and `name.svg`.

    The same document always gives the same bytes. Empty where matplotlib is missing; a trace section without a
    trace has no figure.

    Args:
        document: a document as `attnlab.draw.document` describes it; it may still lack its claims.

    Raises:
        WrongUsage: the document does not have that form.
    """
    check_document({"claims": [], **document})
    if not is_available():
        return {}
    files: dict[str, bytes] = {}
    for section in document["sections"]:
        if "figure" in section and not (section["kind"] == "trace" and not section["traces"]):
            files |= to_files(section["figure"], partial(_FIGURES[section["kind"]], section))
    return files


def to_files(name: str, draw: "Callable[[], Figure]") -> dict[str, bytes]:
    """Write what `draw` draws as `name.png` and `name.svg`; the same figure always gives the same bytes."""
    from matplotlib import style

    files = {}
    # Whoever set matplotlib up in their own way gets the same figures as everybody else.
    with style.context(["default", {"svg.hashsalt": name, "svg.fonttype": "none"}]), warnings.catch_warnings():
        # A letter that the font lacks is drawn as a box, and stays itself in the SVG.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = draw()
        for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            stream = io.BytesIO()
            figure.savefig(stream, format=suffix, dpi=150, metadata=metadata)
            files[f"{name}.{suffix}"] = stream.getvalue()
            figure.set_layout_engine("none")  # laid out once, for both files alike
    return files
