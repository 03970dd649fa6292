"""attnlab run NAME --seeds N: train a population and show which claims hold."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli import terminal
from attnlab.cli.failures import writing_to
from attnlab.cli.progress import progress
from attnlab.cli.runs import print_json
from attnlab.errors import WrongUsage

if TYPE_CHECKING:
    from attnlab.experiments.population import Population

__all__ = ["run_population", "show_population"]


def run_population(
    name: str,
    out: Path | None,
    settings: Mapping[str, str],
    *,
    seed: int,
    seeds: int,
    parent: Path,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Train a population, show which claims hold, and return the exit status.

    Args:
        name: the experiment.
        out: the folder to create; None for the first free one of `parent`.
        settings: key -> value, as typed.
        seed: the first seed.
        seeds: how many seeds.
        parent: where the folder is created.
        as_json: print JSON.
        quiet: hide the progress.
        **options: of `train_population`.
    """
    from attnlab.experiments.folder import FolderTaken, free_name
    from attnlab.experiments.population import train_population

    if name == "all":
        raise WrongUsage(
            "--seeds is for one experiment at a time, such as: attnlab run sorting --seeds 64"
        )
    if seeds < 1:
        raise WrongUsage(f"--seeds must be at least 1; got {seeds}.")
    numbers = range(seed, seed + seeds)
    title = f"{name}, {seeds:,} seeds"
    while True:
        folder = out if out is not None else free_name(parent, f"{name}-{seeds}-seeds")
        try:
            with writing_to(folder), progress(title, is_quiet=quiet or as_json) as observer:
                population = train_population(
                    name, numbers, out=folder, settings=settings, observer=observer, **options
                )
            return show_population(population, as_json=as_json)
        except FolderTaken:
            if out is not None:
                raise
            # Another run has just taken this name; nothing was trained yet, so try the next one.


def show_population(population: "Population", *, as_json: bool) -> int:
    """Show which claims hold, and return the exit status."""
    if as_json:
        print_json(_as_mapping(population))
    else:
        _show(population)
    return population.report.exit_status


def _show(population: "Population") -> None:
    folder = population.folder
    assert folder is not None
    terminal.show_claims(population.report.claims)
    for name, fault in population.faults.items():
        terminal.say(f"seed {name} diverged {fault}")
    terminal.say(f"report   {folder / 'report.html'}")
    member = folder / population.name(0)
    terminal.say(
        f"look at  attnlab open {folder} · attnlab show {member} · attnlab open {member}",
        is_quiet=True,
    )


def _as_mapping(population: "Population") -> dict[str, Any]:
    share, low, high = population.success
    names = [population.name(index) for index in range(len(population))]
    return {
        "run": str(population.folder),
        "passed": population.passed,
        "success": {"share": share, "low": low, "high": high},
        "solved_at": dict(zip(names, population.solved_at, strict=True)),
        "broken": population.faults,
        "claims": [claim.to_mapping() for claim in population.report.claims],
    }
