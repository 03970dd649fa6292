"""Summaries: what a pattern of attention is like, however long, without its matrix of weights."""

from attnlab.look.summaries.reduce import Summarise
from attnlab.look.summaries.similarity import head_similarity
from attnlab.look.summaries.summarise import summarise
from attnlab.look.summaries.summary import Summary
from attnlab.look.summaries.zoom import Tile, Zoom, tile_of

__all__ = ["Summarise", "Summary", "Tile", "Zoom", "head_similarity", "summarise", "tile_of"]
