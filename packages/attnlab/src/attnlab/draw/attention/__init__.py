"""Figures of attention for a paper or a slide, and the patterns that figures and pages draw."""

from attnlab.draw.attention.figure_files import save_figure
from attnlab.draw.attention.heatmaps import draw_difference, draw_head, draw_heads
from attnlab.draw.attention.pattern import Pattern
from attnlab.draw.attention.recordings import to_patterns
from attnlab.draw.attention.summaries import draw_long_map, draw_measure
from attnlab.draw.attention.traces import draw_trace

__all__ = [
    "Pattern",
    "draw_difference",
    "draw_head",
    "draw_heads",
    "draw_long_map",
    "draw_measure",
    "draw_trace",
    "save_figure",
    "to_patterns",
]
