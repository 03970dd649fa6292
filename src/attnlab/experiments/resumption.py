"""`resume`: continue a run that was stopped, from what its folder holds."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.experiments.folder import read_unfinished
from attnlab.experiments.population import Population, train_population
from attnlab.experiments.registry import run
from attnlab.experiments.report import Report
from attnlab.experiments.search import Search, tune
from attnlab.experiments.sweeps import Sweep, sweep
from attnlab.experiments.sweeps.axes import shown
from attnlab.train.config import EngineName, LayoutName
from attnlab.train.distributed import refuse_launched
from attnlab.train.observer import Observer


def resume(
    folder: Path | str, *, workers: int | None = None, observer: Observer | None = None
) -> Report | Population | Sweep | Search:
    """Continue a run that was stopped; it ends in the same bytes as if it had never stopped.

    Args:
        folder: the run's.
        workers: processes on this machine that share a sweep or a search; None for the engine that
            computed it before.
        observer: is told of progress.

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
    for kind, make in (("sweep", sweep), ("search", tune)):
        if kind in begun:
            return make(
                begun["experiment"], out=folder, resume=True, workers=workers, observer=observer
            )
    if workers is not None:
        raise WrongUsage(
            "workers share the cells of a sweep or the trials of a search; a run is computed "
            "in one process."
        )
    if "population" in begun:
        # Refused here, since the handler below would blame the config for it.
        refuse_launched("a population")
    rerun = _original_call(folder, begun)
    try:
        return rerun(observer=observer, out=folder, resume=True)
    except WrongUsage as error:
        raise CouldNotRun(f"{folder / 'config.json'} is not usable: {error}") from None


def _original_call(folder: Path, begun: Mapping[str, Any]) -> Callable[..., Report | Population]:
    """Return the call that wrote this config, without its observer.

    Raises:
        CouldNotRun: the config lacks something, or holds what it cannot.
    """
    try:
        how: dict[str, Any] = {name: begun[name] for name in ("layout", "engine")}
        for name, known in (("layout", get_args(LayoutName)), ("engine", get_args(EngineName))):
            if how[name] not in known:
                raise WrongUsage(f"{name} is {how[name]!r}; {did_you_mean(str(how[name]), known)}")
        if "population" not in begun:
            return partial(run, begun["experiment"], seed=begun["seed"], **how, **begun["settings"])
        # As texts, since a setting may have the name of an argument, as handmade's `seeds` has.
        how["settings"] = {name: shown(value) for name, value in begun["settings"].items()}
        members = begun["population"]
        seeds, variants, stops = members["seeds"], members["variants"], members["stop_when_solved"]
        if (
            not isinstance(seeds, list)
            or not all(isinstance(each, dict) for each in variants)
            or type(stops) is not bool
        ):
            raise WrongUsage(
                f"expected a list of seeds and of variants, and a flag; got {str(members)[:100]}"
            )
    except (WrongUsage, KeyError, TypeError, AttributeError) as error:
        raise CouldNotRun(f"{folder / 'config.json'} is not usable: {error}") from None
    return partial(
        train_population, begun["experiment"], seeds, vary=variants, stop_when_solved=stops, **how
    )
