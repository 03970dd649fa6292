"""Summaries of attention patterns of any length, without their matrix of weights."""

from attnlab.look.summaries.summarize import Summarize, summarize
from attnlab.look.summaries.summary import Summary

__all__ = ["Summarize", "Summary", "summarize"]
