"""`attnlab run NAME --seeds N`: a population, from start to finish."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli import terminal
from attnlab.cli.failures import leaving
from attnlab.cli.progress import progress
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from attnlab.experiments.population import Population

__all__ = ["run_population", "show_population"]


def run_population(
    name: str,
    out: Path | None,
    wanted: Mapping[str, str],
    *,
    seed: int,
    seeds: int,
    parent: Path,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Train the seeds from `seed` on, say what holds, and return the exit status.

    Args:
        name, out, wanted: the experiment, the folder to make (None for the first free one of `parent`), the settings.
        seed, seeds: the first seed, and how many.
        as_json, quiet: print JSON; show no progress.
        **options: go on to `train_population`.
    """
    if name == "all":
        raise WrongUsage("--seeds is for one experiment at a time, such as: attnlab run sorting --seeds 64")
    if seeds < 1:
        raise WrongUsage(f"--seeds must be at least 1; got {seeds}.")
    population = _train(name, out, wanted, range(seed, seed + seeds), parent, quiet or as_json, options)
    return show_population(population, as_json=as_json)


def show_population(population: "Population", *, as_json: bool) -> int:
    """Say what holds, and return the exit status."""
    if as_json:
        sys.stdout.write(json.dumps(_as_mapping(population), indent=2) + "\n")
    else:
        _show(population)
    return population.report.exit_status


def _train(
    name: str,
    out: Path | None,
    wanted: Mapping[str, str],
    seeds: range,
    parent: Path,
    quiet: bool,
    options: Mapping[str, Any],
) -> "Population":
    """Train in the folder named, or in the first free one of the parent."""
    from attnlab.experiments.folder import FolderTaken, free_name
    from attnlab.experiments.population import train_population

    while True:
        folder = out if out is not None else free_name(parent, f"{name}-{len(seeds)}-seeds")
        try:
            title = f"{name}, {len(seeds):,} seeds"
            with leaving(folder), progress(title, is_quiet=quiet) as observer:
                return train_population(name, seeds, out=folder, settings=wanted, observer=observer, **options)
        except FolderTaken:
            if out is not None:
                raise
            # Another run took this name a moment ago; nothing was trained yet, so the next one is as good.


def _show(population: "Population") -> None:
    folder = population.folder
    assert folder is not None
    terminal.show_claims(population.report.claims)
    for name, fault in population.faults.items():
        terminal.say(f"seed {name} broke {fault}")
    terminal.say(f"report   {folder / 'report.html'}")
    member = folder / population.name(0)
    terminal.say(f"look at  attnlab open {folder} · attnlab show {member} · attnlab open {member}", is_quiet=True)


def _as_mapping(population: "Population") -> dict[str, Any]:
    share, low, high = population.success
    return {
        "run": str(population.folder),
        "passed": population.passed,
        "success": {"share": share, "low": low, "high": high},
        "solved_at": dict(zip(map(population.name, range(len(population))), population.solved_at, strict=True)),
        "broken": population.faults,
        "claims": [claim.to_mapping() for claim in population.report.claims],
    }
