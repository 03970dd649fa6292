"""`resume`: continue a run that was stopped, from what its folder holds."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import get_args

from attnlab.core.store import refusing_damage
from attnlab.errors import CouldNotRun, WrongUsage, require_known
from attnlab.experiments.folder import RunConfig, read_unfinished
from attnlab.experiments.population import Population, train_population
from attnlab.experiments.report import Report
from attnlab.experiments.run_config import seeds_of_config
from attnlab.experiments.runner import run
from attnlab.experiments.sweeps import Sweep, sweep
from attnlab.experiments.sweeps.axes import all_shown
from attnlab.experiments.tune import Search, tune
from attnlab.train.config import EngineName, LayoutName
from attnlab.train.observer import Observer


def resume(
    folder: Path | str, *, workers: int | None = None, observer: Observer | None = None
) -> Report | Population | Sweep | Search:
    """Continue a run that was stopped; it ends in the same bytes as if it had never stopped.

    Args:
        folder: the run's.
        workers: processes on this machine that share a sweep, a search or a population in blocks;
            None for the engine that computed it before.
        observer: is told of progress.

    Returns:
        what the run would have returned: a `Report`, a `Population`, a `Sweep` or a `Search`.

    Raises:
        WrongUsage: `workers` for a run of another kind.
        CouldNotRun: no unfinished run is there, another process writes it, this attnlab or torch is
            not the one it was begun with (the differences are shown), or its config is damaged.

    >>> resume("runs/no")
    Traceback (most recent call last):
        ...
    attnlab.errors.CouldNotRun: there is no run to resume in runs/no; begin it without --resume.
    """
    folder = Path(folder)
    begun = read_unfinished(folder)
    name = begun["experiment"]
    if "sweep" in begun:
        return sweep(name, out=folder, resume=True, workers=workers, observer=observer)
    if "search" in begun:
        return tune(name, out=folder, resume=True, workers=workers, observer=observer)
    many = begun.get("population", {})
    if workers is not None and "block" not in many:
        raise WrongUsage(
            "workers share the cells of a sweep, the trials of a search or the blocks of a large "
            "population; another run is computed in one process."
        )
    file = folder / "config.json"
    with refusing_damage(str(file)):
        rerun = _begun_again(begun)
    if workers is not None:
        rerun = partial(rerun, workers=workers)
    try:
        return rerun(observer=observer, out=folder, resume=True)
    except WrongUsage as error:
        raise CouldNotRun(f"{file} is damaged: {error}") from None


def _begun_again(begun: RunConfig) -> Callable[..., Report | Population]:
    """Return what trains a run or a population as its config says."""
    layout, engine = begun["layout"], begun["engine"]
    require_known("layout", layout, get_args(LayoutName))
    require_known("engine", engine, get_args(EngineName))
    rerun: Callable[..., Report | Population] = partial(run, seed=begun["seed"])
    if "population" in begun:
        members = begun["population"]
        rerun = partial(
            train_population,
            seeds=seeds_of_config(members),
            stop_when_solved=bool(members["stop_when_solved"]),
        )
    # As texts, since a setting may have the name of an argument, as handmade's `seeds` has.
    settings = all_shown(begun["settings"])
    return partial(rerun, begun["experiment"], settings=settings, layout=layout, engine=engine)
