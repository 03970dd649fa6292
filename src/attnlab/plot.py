"""Figures of attention by matplotlib, for a paper or a slide: `attnlab.plot.heads(recording)`."""

from attnlab.draw.attention import draw_difference as difference
from attnlab.draw.attention import draw_head as head
from attnlab.draw.attention import draw_heads as heads
from attnlab.draw.attention import draw_long_map as long_map
from attnlab.draw.attention import draw_measure as measure
from attnlab.draw.attention import draw_rows as rows
from attnlab.draw.attention import draw_trace as trace
from attnlab.draw.attention import save_figure as save

__all__ = ["difference", "head", "heads", "long_map", "measure", "rows", "save", "trace"]
