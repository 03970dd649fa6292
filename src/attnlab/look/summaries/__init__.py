"""Summaries of attention patterns of any length, without their matrix of weights."""

from attnlab.look.summaries.reduce import Summarize
from attnlab.look.summaries.similarity import head_similarity
from attnlab.look.summaries.summarize import summarize
from attnlab.look.summaries.summary import Summary
from attnlab.look.summaries.zoom import Tile, Zoom, tile_of

__all__ = ["Summarize", "Summary", "Tile", "Zoom", "head_similarity", "summarize", "tile_of"]
