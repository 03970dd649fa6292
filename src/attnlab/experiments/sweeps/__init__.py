"""Sweeps: what comes of every combination of some settings, each with many seeds; on one machine or on a cluster."""

from attnlab.experiments.sweeps.sweeping import Sweep, open_sweep, sweep

__all__ = ["Sweep", "open_sweep", "sweep"]
