"""A figure that shows itself in a notebook, without pyplot and without a magic.

As the last value of a cell it is a picture. A figure of `attnlab.plot` that its cell does not
display itself appears below the cell, as pyplot's do, so that a cell may make several.
"""

import io
import sys
import warnings
from typing import Any

from matplotlib.figure import Figure

_waiting: list[Figure] = []
"""Figures of the running cell that it has not displayed yet."""


class NotebookFigure(Figure):
    """A figure with a picture of its own for notebooks."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            self.savefig(stream, format="png")
        return stream.getvalue()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Display what the cell drew before it, and note that it is displayed itself; its picture
        comes from `_repr_png_`, or from what `%matplotlib inline` has registered."""
        if self in _waiting:
            place = _waiting.index(self)
            earlier = _waiting[:place]
            del _waiting[: place + 1]
            _display(earlier)
        return {}


def show_below_cell(figure: Figure) -> None:
    """Display a figure at the end of its cell, unless the cell displays it; nothing elsewhere."""
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is None:
        return
    if _show_waiting not in shell.events.callbacks["post_run_cell"]:
        shell.events.register("post_run_cell", _show_waiting)
    _waiting.append(figure)


def _show_waiting(_: object = None) -> None:
    waiting = _waiting.copy()
    _waiting.clear()
    _display(waiting)


def _display(figures: list[Figure]) -> None:
    from IPython.display import display

    for figure in figures:
        display(figure)
