"""Stands before matplotlib, as if that were not installed."""

raise ImportError("No module named 'matplotlib'")
