"""Hyper-parameter searches with Optuna: which setting do most seeds learn with?"""

from attnlab.experiments.search.tuner import Search, open_search, tune

__all__ = ["Search", "open_search", "tune"]
