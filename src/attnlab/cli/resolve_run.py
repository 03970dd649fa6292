"""Resolve the name of a run: a path, or the name of a folder in runs/."""

import os
import re
from pathlib import Path

from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean

__all__ = ["RUNS", "SYSTEMS", "find_run", "is_run", "runs_in"]

RUNS = Path("runs")
SYSTEMS = ("lookup", "anatomy", "handmade", "sentiment", "sorting")
"""The names of the experiments, known without importing them."""

_MEMBER = re.compile(r"(\d+-)?\d{1,19}")


def find_run(name: str) -> Path:
    """Return the folder of a run, given its path or its name in runs/."""
    if not name.strip():
        raise WrongUsage(
            "name a run: its folder, or the name of one in runs/; `attnlab list` shows them."
        )
    for path in (Path(name), RUNS / name):
        if is_run(path):
            return path
    here = Path(name)
    inside = runs_in(here)
    if inside:
        raise WrongUsage(
            f"{name} is no run but holds some; name one of them: {', '.join(sorted(inside))}."
        )
    _refuse_member(here)
    _refuse_member(RUNS / name)
    known = runs_in(RUNS)
    hint = did_you_mean(here.name, known) if known else "make one with: attnlab run sorting"
    if name in SYSTEMS:
        hint = f"attnlab run {name} makes one."
    raise CouldNotRun(f"there is no run in {name}; {hint}")


def _refuse_member(path: Path) -> None:
    """Raise an error that explains a wrong path inside a population, such as a missing member."""
    from attnlab.experiments.folder import is_finished, kind_of, read_config

    config = read_config(path.parent)
    if config is None or kind_of(config) != "population":
        return
    if not is_finished(path.parent):
        raise CouldNotRun(
            f"the population in {path.parent} is unfinished; its models can be opened once it is "
            f"finished: attnlab resume {path.parent}"
        )
    seed = config["population"]["seeds"][0]
    has_variants = len(config["population"]["variants"]) > 1
    example = path.parent / (f"0-{seed}" if has_variants else str(seed))
    raise WrongUsage(
        f"the population in {path.parent} has no member {path.name!r}; members are named as "
        f"{example}."
    )


def is_run(path: Path) -> bool:
    """Is this the folder of a run, or a member of a population (`runs/sorting-64-seeds/17`)?"""
    # Unlike Path, os.path returns False for a name that is too long.
    in_population = os.path.isfile(path.parent / "population.safetensors")
    is_member = in_population and _MEMBER.fullmatch(path.name) is not None
    return is_member or os.path.isfile(path / "config.json")


def runs_in(parent: Path) -> list[str]:
    """List the names of the runs in a folder; empty if there is no such folder."""
    return [each.name for each in parent.iterdir() if is_run(each)] if os.path.isdir(parent) else []
