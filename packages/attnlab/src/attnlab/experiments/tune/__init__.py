"""Hyper-parameter searches with Optuna: which setting do most seeds learn with?"""

from attnlab.experiments.tune.tuner import Search, open_search, tune

__all__ = ["Search", "open_search", "tune"]
