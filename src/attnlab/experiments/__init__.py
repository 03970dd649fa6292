"""Experiments: `config → run → report`, one system a file."""

from attnlab.experiments.claims import Claim
from attnlab.experiments.registry import run
from attnlab.experiments.report import Report, open_run

__all__ = ["Claim", "Report", "open_run", "run"]
