"""Resolve the folder of a run: one to read, by its path or its name in runs/, or one to write."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from attnlab.cli.failures import writing_to
from attnlab.cli.progress import progress
from attnlab.cli.terminal import note
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean, typed

if TYPE_CHECKING:
    from attnlab.train.observer import Observer

RUNS = Path("runs")
EXPERIMENTS = ("lookup", "anatomy", "handmade", "open_program", "sentiment", "sorting")
"""The names of the experiments, known without importing them."""

_Made = TypeVar("_Made")
_MEMBER = re.compile(r"\d{1,19}")


def find_folder(name: str) -> Path:
    """Return a folder, given its path or its name in runs/."""
    is_in_runs = os.path.isdir(RUNS / name) and not os.path.lexists(name)
    if is_in_runs:
        return RUNS / name
    return Path(name)


def runs_there(name: str = "") -> str:
    """Suggest what could be typed in place of a name of a run, as the end of a sentence."""
    known = runs_in(RUNS)
    if known:
        return did_you_mean(name, known)
    return "make one with: attnlab run sorting"


def find_run(name: str) -> Path:
    """Return the folder of a run, given its path or its name in runs/."""
    if not name.strip():
        raise WrongUsage(f"name a run: its folder, or the name of one in runs/; {runs_there()}")
    for path in (Path(name), RUNS / name):
        if is_run(path):
            return _by_seed(path)
    here = Path(name)
    folder = find_folder(name)
    inside = sorted(str(folder / run) for run in runs_in(folder))
    if inside:
        raise WrongUsage(f"{name} is no run but holds some; name one of them: {', '.join(inside)}.")
    _refuse_member(here)
    _refuse_member(RUNS / name)
    if os.path.isfile(here / "view.html"):
        raise CouldNotRun(f"{name} is no run; attnlab open {typed(name)} shows the page in it.")
    hint = f"attnlab run {name} makes one." if name in EXPERIMENTS else runs_there(here.name)
    raise CouldNotRun(f"there is no run in {name}; {hint}")


def _by_seed(path: Path) -> Path:
    """Return the path of a member by its seed, where it is given by its block and row."""
    if not _MEMBER.fullmatch(path.name) or os.path.isfile(path / "config.json"):
        return path
    from attnlab.experiments.folder import member_path

    return member_path(path)


def _refuse_member(path: Path) -> None:
    """Raise an error that explains a wrong path inside a population, such as a missing member."""
    from attnlab.experiments.folder import is_finished, read_config, run_kind
    from attnlab.experiments.run_config import seeds_of_config

    config = read_config(path.parent)
    if config is None or run_kind(config) != "population":
        return
    if not is_finished(path.parent):
        raise CouldNotRun(
            f"the population in {path.parent} is unfinished; its models can be opened once it is "
            f"finished: attnlab resume {typed(path.parent)}"
        )
    example = path.parent / str(seeds_of_config(config["population"])[0])
    raise WrongUsage(
        f"the population in {path.parent} has no member {path.name!r}; members are named as "
        f"{example}."
    )


def is_run(path: Path) -> bool:
    """Is this the folder of a run, or a member of a population (`runs/sorting-64-seeds/17`; in
    blocks also `runs/sorting-2048-seeds/1/17`)?"""
    # Unlike Path, os.path returns False for a name that is too long.
    parent, is_member = path.parent, _MEMBER.fullmatch(path.name) is not None
    in_population = os.path.isfile(parent / "population.safetensors") or _has_blocks(parent)
    in_block = _MEMBER.fullmatch(parent.name) is not None and _has_blocks(parent.parent)
    is_member = is_member and (in_population or in_block)
    return is_member or os.path.isfile(path / "config.json")


def _has_blocks(path: Path) -> bool:
    return os.path.isdir(path / "blocks") and os.path.isfile(path / "config.json")


def runs_in(parent: Path) -> list[str]:
    """List the names of the runs in a folder; empty if there is no such folder."""
    if not os.path.isdir(parent):
        return []
    return [path.name for path in parent.iterdir() if is_run(path)]


def in_run_folder(
    make: Callable[..., _Made], out: Path | None, name: str, title: str, *, is_quiet: bool
) -> _Made:
    """Call `make` with the folder to write and an observer of its progress.

    Args:
        make: trains and returns the result.
        out: the folder; None for the first free one of runs/ with this name.
        name: of the folder; -2, -3, … is added where it is taken.
        title: of the progress.
        is_quiet: whether to hide the progress.
    """
    with progress(title, is_quiet=is_quiet) as observer:
        if out is not None:
            with writing_to(out):
                return make(out=out, observer=observer)
        made, folder = in_free_folder(make, RUNS, name, observer)
    if not is_quiet:
        note_other_name(folder, name)
    return made


def in_free_folder(
    make: Callable[..., _Made], parent: Path, name: str, observer: "Observer | None"
) -> tuple[_Made, Path]:
    """Call `make` with the first free folder of `parent` with this name; return both."""
    from attnlab.experiments.folder import FolderTaken, free_name

    while True:
        folder = free_name(parent, name)
        try:
            with writing_to(folder):
                return make(out=folder, observer=observer), folder
        except FolderTaken:
            # Another run has just taken this name; nothing was trained yet, so try the next one.
            continue


def note_other_name(folder: Path, name: str) -> None:
    """Say that a run has another name than the experiment, whose name was taken."""
    if folder.name != name:
        note(
            f"{folder.parent / name} is kept, and {name} still means it; this one is {folder.name}."
        )
