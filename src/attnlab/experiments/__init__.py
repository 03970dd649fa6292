"""Experiments: `config → run → report`, one system a file."""

from attnlab.experiments.asking import ask
from attnlab.experiments.claims import Claim
from attnlab.experiments.loading import load
from attnlab.experiments.population import Population, open_population, open_run, train_population
from attnlab.experiments.registry import run
from attnlab.experiments.report import Report
from attnlab.experiments.resuming import resume

__all__ = [
    "Claim",
    "Population",
    "Report",
    "ask",
    "load",
    "open_population",
    "open_run",
    "resume",
    "run",
    "train_population",
]
