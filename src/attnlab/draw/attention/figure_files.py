"""Figure files: PNG for a screen, SVG for a page, PDF for a paper."""

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.core.store import write_bytes
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Without dates and versions, which would differ from one file to the next.
_METADATA = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None},
}


def save_figure(figure: "Figure", path: str | Path, *, dpi: int = 150) -> Path:
    """Save a figure as .png, .svg or .pdf, by the file's suffix; equal figures give equal bytes.

    Raises:
        WrongUsage: another suffix.
        CouldNotRun: the file cannot be written.
    """
    from matplotlib import style

    place = Path(path)
    kind = place.suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise WrongUsage(f"figures are written as .png, .svg or .pdf; got {place.name!r}.")
    stream = io.BytesIO()
    keep_text = {"svg.hashsalt": "attnlab", "svg.fonttype": "none", "pdf.fonttype": 42}
    styles: list[str | dict[str, Any]] = ["default", keep_text]
    with style.context(styles), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(stream, format=kind, dpi=dpi, metadata=_METADATA[kind])
    write_bytes(place, stream.getvalue())
    return place
