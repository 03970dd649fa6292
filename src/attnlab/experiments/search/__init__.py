"""Searches: the setting with which most seeds learn a task, found with Optuna's help."""

from attnlab.experiments.search.searching import Search, open_search, search

__all__ = ["Search", "open_search", "search"]
