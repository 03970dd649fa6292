"""Figure files: PNG for a screen, SVG for a page, PDF for a paper."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

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

    Args:
        figure: of matplotlib, as all of `attnlab.plot` return.
        path: the file; its suffix says the format.
        dpi: dots per inch of a .png.

    Returns:
        the path of the file.

    Raises:
        WrongUsage: another suffix.
        CouldNotRun: the file cannot be written.
    """
    place = Path(path)
    kind = place.suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise WrongUsage(f"figures are written as .png, .svg or .pdf; got {place.name!r}.")
    write_bytes(place, to_bytes(figure, kind, salt="attnlab", dpi=dpi))
    return place


def to_bytes(figure: "Figure", kind: str, *, salt: str, dpi: int = 150) -> bytes:
    """Return the bytes of a figure as "png", "svg" or "pdf"."""
    stream = io.BytesIO()
    with plain_style(salt):
        figure.savefig(stream, format=kind, dpi=dpi, metadata=_METADATA[kind])
    return stream.getvalue()


@contextmanager
def plain_style(salt: str) -> Iterator[None]:
    """Draw with the same settings everywhere: a user's own do not change a figure.

    salt: makes the names inside an SVG.
    """
    from matplotlib import style

    keep_text = {"svg.hashsalt": salt, "svg.fonttype": "none", "pdf.fonttype": 42}
    styles: list[str | dict[str, object]] = ["default", keep_text]
    with style.context(styles), warnings.catch_warnings():
        # A letter that the font lacks is drawn as a box, and stays a letter in the SVG.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield
