"""Figures of attention by matplotlib, for a paper or a slide: `attnlab.plot.heads(recording)`.

In a notebook they appear below their cell, without a magic.
"""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, NoReturn, ParamSpec

from attnlab.draw.attention import (
    draw_difference,
    draw_head,
    draw_heads,
    draw_long_map,
    draw_measure,
    draw_trace,
)
from attnlab.draw.attention import save_figure as save
from attnlab.errors import no_attribute

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["difference", "head", "heads", "long_map", "measure", "save", "trace"]

P = ParamSpec("P")


def _below_cell(draw: "Callable[P, Figure]") -> "Callable[P, Figure]":
    """Let the figures of a function appear below their cell in a notebook."""

    @wraps(draw)
    def drawn(*args: P.args, **options: P.kwargs) -> "Figure":
        figure = draw(*args, **options)
        from attnlab.draw.pictures.notebook_figure import show_below_cell

        show_below_cell(figure)
        return figure

    return drawn


difference = _below_cell(draw_difference)
head = _below_cell(draw_head)
heads = _below_cell(draw_heads)
long_map = _below_cell(draw_long_map)
measure = _below_cell(draw_measure)
trace = _below_cell(draw_trace)

if not TYPE_CHECKING:  # a type checker knows the names

    def __getattr__(name: str) -> NoReturn:
        raise no_attribute(__name__, name, __all__)
