"""Experiments: `config → run → report`, one system a file.

What only reads the files of runs, as `attnlab list` does, needs no torch: so the names below are
imported when one of them is first used.
"""

from typing import Any

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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'attnlab.experiments' has no attribute {name!r}")
    from attnlab.experiments.claims import Claim
    from attnlab.experiments.model_loader import load
    from attnlab.experiments.population import (
        Population,
        open_population,
        open_run,
        train_population,
    )
    from attnlab.experiments.prompts import ask
    from attnlab.experiments.registry import run
    from attnlab.experiments.report import Report
    from attnlab.experiments.resumption import resume

    found = (
        Claim,
        Population,
        Report,
        ask,
        load,
        open_population,
        open_run,
        resume,
        run,
        train_population,
    )
    return dict(zip(__all__, found, strict=True))[name]
