"""Summaries of attention patterns of any length, without their matrix of weights."""

from attnlab.look.summaries.summarize import Summarize, head_similarity, summarize
from attnlab.look.summaries.summary import Summary
from attnlab.look.summaries.zoom import Tile, Zoom

__all__ = ["Summarize", "Summary", "Tile", "Zoom", "head_similarity", "summarize"]
