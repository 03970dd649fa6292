"""Populations: an experiment's model trained for many seeds at once, and what only many of them can show.

One lucky run proves nothing about a small transformer. A population is written as an ordinary run is, and each of its
members opens as an ordinary run too.
"""

from attnlab.experiments.population.population import Place, Population
from attnlab.experiments.population.storing import is_member, is_population, load, open_population, open_run
from attnlab.experiments.population.training import train_population

__all__ = [
    "Place",
    "Population",
    "is_member",
    "is_population",
    "load",
    "open_population",
    "open_run",
    "train_population",
]
