"""Sweeps: every combination of some settings, each with many seeds, here or on a cluster."""

from attnlab.experiments.sweeps.sweep_run import Sweep, open_sweep, sweep

__all__ = ["Sweep", "open_sweep", "sweep"]
