"""Figures into files: PNG for a screen, SVG for a page, PDF for a paper."""

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.errors import WrongUsage
from attnlab.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["save_figure"]

# What would differ from one writing to the next is left out.
_METADATA = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}


def save_figure(figure: "Figure", path: str | Path, *, dpi: int = 150) -> Path:
    """Write a figure; the ending says how: .png, .svg or .pdf. The same figure always gives the same bytes.

    Raises:
        WrongUsage: another ending.
        CouldNotRun: the file cannot be written.
    """
    from matplotlib import style

    place = Path(path)
    kind = place.suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise WrongUsage(f"figures are written as .png, .svg or .pdf; got {place.name!r}.")
    stream = io.BytesIO()
    fonts = {"svg.hashsalt": "attnlab", "svg.fonttype": "none", "pdf.fonttype": 42}  # text stays text
    looks: list[str | dict[str, Any]] = ["default", fonts]
    with style.context(looks), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(stream, format=kind, dpi=dpi, metadata=_METADATA[kind])
    write_bytes(place, stream.getvalue())
    return place
