"""Pictures of attention: where heads look, as figures for a paper or a slide, and as the patterns a page is made of."""

from attnlab.draw.attention.heatmaps import draw_difference, draw_head, draw_heads
from attnlab.draw.attention.pattern import Pattern
from attnlab.draw.attention.recorded import to_patterns
from attnlab.draw.attention.saving import save_figure
from attnlab.draw.attention.summaries import draw_long_map, draw_measure, draw_rows
from attnlab.draw.attention.traces import draw_trace

__all__ = [
    "Pattern",
    "draw_difference",
    "draw_head",
    "draw_heads",
    "draw_long_map",
    "draw_measure",
    "draw_rows",
    "draw_trace",
    "save_figure",
    "to_patterns",
]
