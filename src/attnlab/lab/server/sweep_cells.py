"""The cells of a sweep, as the room Sweeps shows them."""

from attnlab.errors import CouldNotRun
from attnlab.experiments.sweeps import open_sweep
from attnlab.experiments.sweeps.axes import all_shown
from attnlab.experiments.sweeps.cells import Cell
from attnlab.experiments.sweeps.outcome import CellOutcome

_MOST_MODELS = 100_000


def describe_sweep(folder: str) -> dict[str, object]:
    """Describe a sweep, finished or not: its axes, and every cell, the last axis moving fastest."""
    found = open_sweep(folder)
    outcome, config = found.outcome, found.report.config
    grid = outcome.grid
    axes = []
    for axis in grid.axes:
        axes.append({"name": axis.name, "comment": axis.comment, "labels": axis.labels()})
    if len(outcome.expected) > _MOST_MODELS:
        raise CouldNotRun(
            f"this sweep has {len(outcome.expected):,} models, and {_MOST_MODELS:,} are shown here "
            f"at most: look at its report with attnlab open {folder}"
        )
    return {
        "experiment": config["experiment"],
        "told": str(found.report.content.subtitle),
        "models": len(outcome.members),
        "expected": len(outcome.expected),
        "axes": axes,
        "seeds": list(grid.seeds),
        "fixed": all_shown(config["settings"]),
        "figures": outcome.figures,
        "cells": list(map(_described, grid.cells, outcome.cells)),
    }


def _described(cell: Cell, trained: CellOutcome | None) -> dict[str, object]:
    """Describe a cell; without `solved` if none of its models is trained."""
    values = all_shown(cell.fields)
    told: dict[str, object] = {"name": cell.name, "values": values, "refusal": cell.refusal}
    if trained is None:
        return told
    return told | {
        "solved": trained.solved,
        "share": list(trained.share),
        "solvedAt": trained.solved_at,
        "loss": trained.loss,
        "figures": trained.figures,
        "members": [[each.seed, each.solved_at, each.fault] for each in trained.members],
    }
