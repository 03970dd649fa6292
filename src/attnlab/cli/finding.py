"""Finding the run that a person names: by its path, or by the name of a folder in runs/."""

import os
import re
from pathlib import Path

from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean

__all__ = ["RUNS", "SYSTEMS", "find_run", "is_run", "runs_in"]

RUNS = Path("runs")
SYSTEMS = ("lookup", "anatomy", "handmade", "sentiment", "sorting")
"""What `attnlab run` makes: the experiments by name, known without importing them."""

_MEMBER = re.compile(r"(\d+-)?\d{1,19}")


def find_run(name: str) -> Path:
    """Take a path, or the name of a folder in runs/."""
    if not name.strip():
        raise WrongUsage("name a run: its folder, or the name of one in runs/; `attnlab list` shows them.")
    for path in (Path(name), RUNS / name):
        if is_run(path):
            return path
    here = Path(name)
    inside = runs_in(here)
    if inside:
        raise WrongUsage(f"{name} is no run but holds some; name one of them: {', '.join(sorted(inside))}.")
    _refuse_member(here)
    _refuse_member(RUNS / name)
    known = runs_in(RUNS)
    hint = did_you_mean(here.name, known) if known else "make one with: attnlab run sorting"
    if name in SYSTEMS:
        hint = f"attnlab run {name} makes one."
    raise CouldNotRun(f"there is no run in {name}; {hint}")


def _refuse_member(path: Path) -> None:
    """Say of a path inside a run what there is."""
    from attnlab.experiments.folder import is_finished, kind_of, read_config

    config = read_config(path.parent)
    if config is None or kind_of(config) != "population":
        return
    if not is_finished(path.parent):
        raise CouldNotRun(
            f"the population in {path.parent} is unfinished, and its members can be opened when it is finished: "
            f"attnlab resume {path.parent}"
        )
    seeds = config["population"]["seeds"]
    example = (
        path.parent / str(seeds[0]) if len(config["population"]["variants"]) == 1 else path.parent / f"0-{seeds[0]}"
    )
    raise WrongUsage(f"the population in {path.parent} has no member {path.name!r}; members are named as {example}.")


def is_run(path: Path) -> bool:
    """Say whether a path is a run's folder, or a population's and the seed of a member (`runs/sorting-64-seeds/17`)."""
    is_member = _MEMBER.fullmatch(path.name) is not None and os.path.isfile(path.parent / "population.safetensors")
    return is_member or os.path.isfile(path / "config.json")  # unlike Path, it answers False for a name too long


def runs_in(parent: Path) -> list[str]:
    """List the runs in a folder by their names; none where there is no such folder."""
    return [each.name for each in parent.iterdir() if is_run(each)] if os.path.isdir(parent) else []
