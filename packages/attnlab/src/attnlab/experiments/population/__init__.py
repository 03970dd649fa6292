"""Populations: an experiment's model trained for many seeds at once.

One lucky run proves nothing about a small transformer. A population is saved as an ordinary run is,
and each of its members opens as an ordinary run too.
"""

from attnlab.experiments.population.fit import train_population
from attnlab.experiments.population.population import Population
from attnlab.experiments.population.storage import (
    is_member,
    is_population,
    load_run_model,
    open_population,
    open_run_or_member,
)

__all__ = [
    "Population",
    "is_member",
    "is_population",
    "load_run_model",
    "open_population",
    "open_run_or_member",
    "train_population",
]
